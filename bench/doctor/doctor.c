/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rows of bmi-perf doctor, and the mode; see doctor.h. */
#include "config.h"
#include "bench/doctor/doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "bench/transport.h"

static void print(struct doctor *doctor, const char *line)
{
    puts(line);
    if (doctor->report != NULL)
        fprintf(doctor->report, "%s\n", line);
}

void doctor_row(struct doctor *doctor, enum verdict verdict, const char *remedy,
                const char *subject, const char *format, ...)
{
    static const char *const names[] = {"PASS", "WARN", "FAIL"};
    char finding[WHY_SIZE], line[WHY_SIZE + 64];
    va_list args;

    va_start(args, format);
    vsnprintf(finding, sizeof finding, format, args);
    va_end(args);
    snprintf(line, sizeof line, "%s  %-16s %s", names[verdict], subject, finding);
    print(doctor, line);
    if (remedy != NULL) {
        snprintf(line, sizeof line, "%23sremedy: %s", "", remedy);
        print(doctor, line);
    }
    doctor->rows[verdict]++;
}

void doctor_line(struct doctor *doctor, const char *format, ...)
{
    char line[WHY_SIZE];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    print(doctor, line);
}

static bool open_report(struct doctor *doctor, const char *name)
{
    if (name != NULL)
        doctor->report = fopen(name, "w");
    if (name != NULL && doctor->report == NULL)
        fprintf(stderr, "bmi-perf: %s: cannot be written: %s\n", name, strerror(errno));
    return name == NULL || doctor->report != NULL;
}

/* Returns false if a line could not be written. */
static bool close_report(struct doctor *doctor, const char *name)
{
    bool bad = doctor->report != NULL && ferror(doctor->report);

    if (doctor->report == NULL || (!fclose(doctor->report) && !bad))
        return true;
    fprintf(stderr, "bmi-perf: %s: not written completely: %s\n", name, strerror(errno));
    return false;
}

int mode_doctor(const struct args *args)
{
    const char *address = args->npositional ? args->positional[0] : NULL;
    struct doctor doctor = {0};

    if (args->npositional > 1) {
        fprintf(stderr, "bmi-perf: doctor takes one address at most; see bmi-perf --help\n");
        return 2;
    }
    if (!open_report(&doctor, args->report))
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0); /* rows come as they are found, also into a pipe */
    doctor_line(&doctor, "bmi-perf doctor, " PACKAGE_NAME " " PACKAGE_VERSION);
    doctor_host(&doctor);
    if (address == NULL || strstr(address, "ib://") != NULL)
        doctor_devices(&doctor, args->bmi_options);
    if (address != NULL)
        doctor_network(&doctor, address, args->bmi_options);
    doctor_line(&doctor, "%u passed, %u warnings, %u failed", doctor.rows[DOCTOR_PASS],
                doctor.rows[DOCTOR_WARN], doctor.rows[DOCTOR_FAIL]);
    if (address == NULL && !doctor.rows[DOCTOR_FAIL])
        doctor_line(&doctor, "next: bmi-perf server ib://HOST:PORT on another machine, and "
                             "bmi-perf doctor ib://HOST:PORT here");
    return !close_report(&doctor, args->report) || doctor.rows[DOCTOR_FAIL];
}
