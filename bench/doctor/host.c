/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Kernel and limits of this process; see doctor.h. */
#include "bench/doctor/doctor.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/userfaultfd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define OPEN_FILES 1024
/* Below it the default pools are smaller than their maximum: a sixteenth is 16 MiB. */
#define LOCKED_BYTES (UINT64_C(256) << 20)

static void check_kernel(struct doctor *doctor)
{
    struct utsname name;

    if (uname(&name) == 0)
        doctor_row(doctor, DOCTOR_PASS, NULL, "kernel", "%s %s", name.sysname, name.release);
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

/* Returns true if the memlock limit does not apply. */
static bool may_lock(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    unsigned long long effective = 0;
    char line[128];

    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "CapEff: %llx", &effective) == 1)
            break;
    if (status)
        fclose(status);
    return effective >> CAP_IPC_LOCK & 1;
}

static void check_memlock(struct doctor *doctor)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};

    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY || may_lock())
        return doctor_row(doctor, DOCTOR_PASS, NULL, "memlock", "unlimited%s",
                          limit.rlim_cur == RLIM_INFINITY ? "" : " by CAP_IPC_LOCK");
    doctor_row(
        doctor, limit.rlim_cur < LOCKED_BYTES ? DOCTOR_WARN : DOCTOR_PASS,
        limit.rlim_cur < LOCKED_BYTES ? "ulimit -l unlimited; LimitMEMLOCK=infinity in a "
                                        "systemd unit; docker run --ulimit memlock=-1"
                                      : NULL,
        "memlock", "%" PRIu64 " KiB may be registered%s", (uint64_t)limit.rlim_cur >> 10,
        limit.rlim_cur < LOCKED_BYTES ? ": pools are smaller, and more data is copied" : "");
}

static void check_files(struct doctor *doctor)
{
    struct rlimit limit = {0};
    bool little;

    getrlimit(RLIMIT_NOFILE, &limit);
    little = limit.rlim_cur < OPEN_FILES;
    doctor_row(doctor, little ? DOCTOR_WARN : DOCTOR_PASS,
               little ? "ulimit -n 4096; LimitNOFILE=4096 in a systemd unit" : NULL,
               "open files", "%" PRIu64, (uint64_t)limit.rlim_cur);
}

void doctor_host(struct doctor *doctor)
{
    check_kernel(doctor);
    check_userfaultfd(doctor);
    check_memlock(doctor);
    check_files(doctor);
}
