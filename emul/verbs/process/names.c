/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Functions of the libraries that concern no object: names of states and events, rates, sysfs,
 * fork, sockets. */
#include "emul/verbs/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Returns row `n` of a table of names, in which rows may be missing. */
static const char *name_of(const char *const *names, size_t count, int n, const char *unknown)
{
    return n >= 0 && (size_t)n < count && names[n] != NULL ? names[n] : unknown;
}

EMU_EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    static const char *const names[] = {
        [IBV_WC_SUCCESS] = "success",
        [IBV_WC_LOC_LEN_ERR] = "local length error",
        [IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
        [IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
        [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
        [IBV_WC_MW_BIND_ERR] = "memory management operation error",
        [IBV_WC_BAD_RESP_ERR] = "bad response error",
        [IBV_WC_LOC_ACCESS_ERR] = "local access error",
        [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
        [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_REM_OP_ERR] = "remote operation error",
        [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
        [IBV_WC_LOC_RDD_VIOL_ERR] = "local RDD violation error",
        [IBV_WC_REM_INV_RD_REQ_ERR] = "remote invalid RD request",
        [IBV_WC_REM_ABORT_ERR] = "aborted error",
        [IBV_WC_INV_EECN_ERR] = "invalid EE context number",
        [IBV_WC_INV_EEC_STATE_ERR] = "invalid EE context state",
        [IBV_WC_FATAL_ERR] = "fatal error",
        [IBV_WC_RESP_TIMEOUT_ERR] = "response timeout error",
        [IBV_WC_GENERAL_ERR] = "general error",
        [IBV_WC_TM_ERR] = "TM error",
        [IBV_WC_TM_RNDV_INCOMPLETE] = "TM software rendezvous",
    };

    return name_of(names, LENGTH(names), (int)status, "unknown");
}

EMU_EXPORT const char *ibv_node_type_str(enum ibv_node_type type)
{
    static const char *const names[] = {
        [IBV_NODE_CA] = "InfiniBand channel adapter",
        [IBV_NODE_SWITCH] = "InfiniBand switch",
        [IBV_NODE_ROUTER] = "InfiniBand router",
        [IBV_NODE_RNIC] = "iWARP NIC",
        [IBV_NODE_USNIC] = "usNIC",
        [IBV_NODE_USNIC_UDP] = "usNIC UDP",
        [IBV_NODE_UNSPECIFIED] = "unspecified",
    };

    return name_of(names, LENGTH(names), (int)type, "unknown");
}

EMU_EXPORT const char *ibv_port_state_str(enum ibv_port_state state)
{
    static const char *const names[] = {
        [IBV_PORT_NOP] = "no state change (NOP)",
        [IBV_PORT_DOWN] = "down",
        [IBV_PORT_INIT] = "init",
        [IBV_PORT_ARMED] = "armed",
        [IBV_PORT_ACTIVE] = "active",
        [IBV_PORT_ACTIVE_DEFER] = "active defer",
    };

    return name_of(names, LENGTH(names), (int)state, "unknown");
}

EMU_EXPORT const char *ibv_event_type_str(enum ibv_event_type type)
{
    static const char *const names[] = {
        [IBV_EVENT_CQ_ERR] = "CQ error",
        [IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
        [IBV_EVENT_QP_REQ_ERR] = "invalid request local work queue error",
        [IBV_EVENT_QP_ACCESS_ERR] = "local access violation work queue error",
        [IBV_EVENT_COMM_EST] = "communication established",
        [IBV_EVENT_SQ_DRAINED] = "send queue drained",
        [IBV_EVENT_PATH_MIG] = "path migrated",
        [IBV_EVENT_PATH_MIG_ERR] = "path migration request error",
        [IBV_EVENT_DEVICE_FATAL] = "local catastrophic error",
        [IBV_EVENT_PORT_ACTIVE] = "port active",
        [IBV_EVENT_PORT_ERR] = "port error",
        [IBV_EVENT_LID_CHANGE] = "LID change",
        [IBV_EVENT_PKEY_CHANGE] = "P_Key change",
        [IBV_EVENT_SM_CHANGE] = "SM change",
        [IBV_EVENT_SRQ_ERR] = "SRQ catastrophic error",
        [IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
        [IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached",
        [IBV_EVENT_CLIENT_REREGISTER] = "client reregistration",
        [IBV_EVENT_GID_CHANGE] = "GID table change",
        [IBV_EVENT_WQ_FATAL] = "WQ fatal",
    };

    return name_of(names, LENGTH(names), (int)type, "unknown");
}

EMU_EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
#define X(name) [name] = #name
    static const char *const names[] = {
        X(RDMA_CM_EVENT_ADDR_RESOLVED),   X(RDMA_CM_EVENT_ADDR_ERROR),
        X(RDMA_CM_EVENT_ROUTE_RESOLVED),  X(RDMA_CM_EVENT_ROUTE_ERROR),
        X(RDMA_CM_EVENT_CONNECT_REQUEST), X(RDMA_CM_EVENT_CONNECT_RESPONSE),
        X(RDMA_CM_EVENT_CONNECT_ERROR),   X(RDMA_CM_EVENT_UNREACHABLE),
        X(RDMA_CM_EVENT_REJECTED),        X(RDMA_CM_EVENT_ESTABLISHED),
        X(RDMA_CM_EVENT_DISCONNECTED),    X(RDMA_CM_EVENT_DEVICE_REMOVAL),
        X(RDMA_CM_EVENT_MULTICAST_JOIN),  X(RDMA_CM_EVENT_MULTICAST_ERROR),
        X(RDMA_CM_EVENT_ADDR_CHANGE),     X(RDMA_CM_EVENT_TIMEWAIT_EXIT),
    };
#undef X

    return name_of(names, LENGTH(names), (int)event, "UNKNOWN EVENT");
}

/* Rates by their number, which old headers do not name up to the last: in Mbit/s, and as
 * multiple of 2.5 Gbit/s. */
static const struct {
    int mbps, mult;
} rates[] = {
    [IBV_RATE_2_5_GBPS] = {2500, 1},
    [IBV_RATE_5_GBPS] = {5000, 2},
    [IBV_RATE_10_GBPS] = {10000, 4},
    [IBV_RATE_20_GBPS] = {20000, 8},
    [IBV_RATE_30_GBPS] = {30000, 12},
    [IBV_RATE_40_GBPS] = {40000, 16},
    [IBV_RATE_60_GBPS] = {60000, 24},
    [IBV_RATE_80_GBPS] = {80000, 32},
    [IBV_RATE_120_GBPS] = {120000, 48},
    [IBV_RATE_14_GBPS] = {14062, 0},
    [IBV_RATE_56_GBPS] = {56250, 0},
    [IBV_RATE_112_GBPS] = {112500, 0},
    [IBV_RATE_168_GBPS] = {168750, 0},
    [IBV_RATE_25_GBPS] = {25781, 0},
    [IBV_RATE_100_GBPS] = {103125, 0},
    [IBV_RATE_200_GBPS] = {206250, 0},
    [IBV_RATE_300_GBPS] = {309375, 0},
    [IBV_RATE_28_GBPS] = {28125, 11},
    [IBV_RATE_50_GBPS] = {53125, 20},
    [IBV_RATE_400_GBPS] = {425000, 160},
    [IBV_RATE_600_GBPS] = {637500, 240},
    [23] = {850000, 320},
    [24] = {1275000, 480},
};

EMU_EXPORT int ibv_rate_to_mbps(enum ibv_rate rate)
{
    return (size_t)rate < LENGTH(rates) && rates[rate].mbps ? rates[rate].mbps : -1;
}

EMU_EXPORT int ibv_rate_to_mult(enum ibv_rate rate)
{
    return (size_t)rate < LENGTH(rates) && rates[rate].mult ? rates[rate].mult : -1;
}

EMU_EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps)
{
    for (size_t i = 0; mbps && i < LENGTH(rates); i++)
        if (rates[i].mbps == mbps)
            return (enum ibv_rate)i;
    return IBV_RATE_MAX;
}

EMU_EXPORT enum ibv_rate mult_to_ibv_rate(int mult)
{
    for (size_t i = 0; mult && i < LENGTH(rates); i++)
        if (rates[i].mult == mult)
            return (enum ibv_rate)i;
    return IBV_RATE_MAX;
}

EMU_EXPORT const char *ibv_get_sysfs_path(void);
EMU_EXPORT const char *ibv_get_sysfs_path(void)
{
    return "/sys";
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
    static atomic_bool told;

    (void)domain, (void)type, (void)protocol;
    if (!atomic_exchange(&told, true))
        fprintf(stderr, "emuverbs: rsocket(): not supported; under librspreload the program "
                        "goes on over TCP\n");
    errno = EPROTONOSUPPORT;
    return -1;
}
