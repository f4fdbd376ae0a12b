/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Unsupported calls of libibverbs, such as device sharing, which fail. Without them the real
 * library would be entered with objects unknown to it. */
#include "emul/verbs/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

EMU_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context,
                                           struct ibv_ah_attr *attr,
                                           uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
    (void)context, (void)attr, (void)mac, (void)vid;
    return -EOPNOTSUPP;
}

EMU_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp, (void)ece;
    return EOPNOTSUPP;
}

EMU_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp, (void)ece;
    return EOPNOTSUPP;
}

EMU_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
    (void)cmd_fd;
    errno = EOPNOTSUPP;
    return NULL;
}

EMU_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
    (void)context, (void)handle;
    errno = EOPNOTSUPP;
    return NULL;
}

EMU_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
    (void)pd;
}

EMU_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
    (void)context, (void)handle;
    errno = EOPNOTSUPP;
    return NULL;
}

EMU_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
    (void)dm;
}

EMU_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
    (void)pd, (void)handle;
    errno = EOPNOTSUPP;
    return NULL;
}

EMU_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
    (void)mr;
}

/* Reads files that exist under emuverbs --sysfs only; programs take a failure for "unknown". */
EMU_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
EMU_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
    char path[PATH_MAX];
    int fd = -1;

    if (snprintf(path, sizeof(path), "%s/%s", dir, file) < (int)sizeof(path))
        fd = open(path, O_RDONLY | O_CLOEXEC);
    else
        errno = ENAMETOOLONG;
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, buf, size);
    close(fd);
    if (n > 0 && buf[n - 1] == '\n')
        buf[--n] = 0;
    else if (n >= 0 && (size_t)n < size)
        buf[n] = 0;
    return (int)n;
}

/* Does nothing: registered memory is accessed through the process's page tables, so
 * copy-on-write is harmless. */
EMU_EXPORT int ibv_fork_init(void)
{
    return 0;
}

EMU_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return IBV_FORK_UNNEEDED;
}

/* Fails: rsockets access librdmacm's private structure behind each id, which the ids here lack.
 * Programs may fall back to TCP. */
EMU_EXPORT int rsocket(int domain, int type, int protocol);
EMU_EXPORT int rsocket(int domain, int type, int protocol)
{
    (void)domain, (void)type, (void)protocol;
    errno = EPROTONOSUPPORT;
    return -1;
}
