/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Kernel and limits of this process; see doctor.h. */
#include "bench/doctor/doctor.h"
#include "common/memory/memlock.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define OPEN_FILES 1024
/* Below it the default pools are smaller than their maximum: a sixteenth is 16 MiB. */
#define LOCKED_BYTES (UINT64_C(256) << 20)

/* A locked-down kernel is no fault: it may explain why the driver's module is missing. */
static void check_kernel(struct doctor *doctor)
{
    struct utsname name;
    char text[128] = "";

    doctor_line_of(text, sizeof text, "/sys/kernel", "security", "lockdown");
    doctor->locked = strchr(text, '[') != NULL && strstr(text, "[none]") == NULL;
    if (uname(&name) == 0)
        doctor_row(doctor, DOCTOR_PASS, NULL, "kernel", "%s %s %s%s%s", name.sysname,
                   name.release, name.machine, doctor->locked ? ", lockdown: " : "",
                   doctor->locked ? text : "");
}

/* Names the system and the files of the libraries, whose names have the version. */
static void check_system(struct doctor *doctor)
{
    char line[512], system[128] = "unknown", verbs[64] = "", cm[64] = "";
    FILE *release = fopen("/etc/os-release", "re"), *maps = fopen("/proc/self/maps", "re");

    while (release != NULL && fgets(line, sizeof line, release) != NULL)
        if (sscanf(line, "PRETTY_NAME=\"%127[^\"]", system) == 1)
            break;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        const char *file = strrchr(line, '/');

        if (file != NULL && strncmp(file, "/libemuverbs.so", 15) == 0)
            strcpy(cm, strcpy(verbs, "of emuverbs"));
        else if (file != NULL && (sscanf(file, "/libibverbs.so.%63s", verbs) != 1))
            sscanf(file, "/librdmacm.so.%63s", cm);
    }
    if (release != NULL)
        fclose(release);
    if (maps != NULL)
        fclose(maps);
    doctor_row(doctor, DOCTOR_PASS, NULL, "system",
               "%s, %ld processors, libibverbs %s, "
               "librdmacm %s",
               system, sysconf(_SC_NPROCESSORS_ONLN), verbs[0] ? verbs : "none",
               cm[0] ? cm : "none");
}

static void check_userfaultfd(struct doctor *doctor)
{
    long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

    if (fd >= 0) {
        close((int)fd);
        return doctor_row(doctor, DOCTOR_PASS, NULL, "userfaultfd",
                          "permitted: registrations can be cached");
    }
    doctor_row(doctor, DOCTOR_WARN,
               "use Linux 5.14 or later, and in a container permit userfaultfd (seccomp)",
               "userfaultfd",
               "%s: without hooks in the C library (row registration cache) messages up to 256 "
               "KiB are copied",
               strerror(errno));
}

/* A service that systemd starts has other limits than this shell. */
static void check_memlock(struct doctor *doctor)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    bool little;

    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY || rme_may_lock_anything())
        return doctor_row(doctor, DOCTOR_PASS, NULL, "memlock",
                          "unlimited%s for this process; a service needs LimitMEMLOCK=infinity",
                          limit.rlim_cur == RLIM_INFINITY ? "" : " by CAP_IPC_LOCK");
    little = limit.rlim_cur < LOCKED_BYTES;
    doctor_row(doctor, little ? DOCTOR_WARN : DOCTOR_PASS,
               !little ? NULL
               : limit.rlim_max < LOCKED_BYTES
                   ? "raise the hard limit, too: memlock in /etc/security/limits.conf; "
                     "LimitMEMLOCK=infinity in a systemd unit; docker run --ulimit memlock=-1"
                   : "ulimit -l unlimited; LimitMEMLOCK=infinity in a systemd unit; docker run "
                     "--ulimit memlock=-1",
               "memlock", "%" PRIu64 " KiB may be registered by this process%s",
               (uint64_t)limit.rlim_cur >> 10,
               little ? ": pools are smaller, and more data is copied" : "");
}

static void check_files(struct doctor *doctor)
{
    struct rlimit limit = {0};
    bool little;

    getrlimit(RLIMIT_NOFILE, &limit);
    little = limit.rlim_cur < OPEN_FILES;
    doctor_row(doctor, little ? DOCTOR_WARN : DOCTOR_PASS,
               little ? "ulimit -n 4096; LimitNOFILE=4096 in a systemd unit" : NULL,
               "open files", "%" PRIu64 " for this process%s", (uint64_t)limit.rlim_cur,
               little ? ": a server of many files may run out of them" : "");
}

void doctor_host(struct doctor *doctor)
{
    check_system(doctor);
    check_kernel(doctor);
    check_userfaultfd(doctor);
    check_memlock(doctor);
    check_files(doctor);
}
