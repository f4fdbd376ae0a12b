/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* memlock.h - whether the memlock limit counts, for the engine and for bmi-perf doctor. */
#ifndef RME_MEMLOCK_H
#define RME_MEMLOCK_H

#include <linux/capability.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RME_FIRST_USER_NAMESPACE 0xeffffffdu /* its inode: PROC_USER_INIT_INO of the kernel */

/* Returns true if the limit does not count: CAP_IPC_LOCK lifts it in the first user namespace
 * alone, not for root of a rootless container. */
static inline bool rme_may_lock_anything(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    struct stat own;

    if (stat("/proc/self/ns/user", &own) == 0 && own.st_ino != RME_FIRST_USER_NAMESPACE)
        return false;
    return syscall(SYS_capget, &header, data) == 0 &&
           (data[0].effective & (1u << CAP_IPC_LOCK)) != 0;
}

#endif
