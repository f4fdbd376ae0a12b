/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Options of the fabric: one table for parsing and for `bmi-perf --options`. */
#include <stdio.h>
#include <string.h>
#include "bmi_ib/device/device.h"

const struct rme_option_row ib_options[] = {
    {"device", "name", 0, 0, 0,
     "RDMA device (a name of ibv_devices), or several, as mlx5_0+mlx5_1: connections are "
     "spread over them and fail over to another.  Memory is registered with each device and "
     "counts as often.  Empty: the device of the listening address, else the first one with an "
     "active port.",
     ""},
    {"ib_port", "port", 0, 0, 255,
     "Physical port of the device; connections routed over another port are refused.  0: any.",
     NULL},
    {"gid", "name", 0, 0, 0,
     "RoCE: index in the port's GID table, or address, of the source GID.  Where an address "
     "has two GIDs the system chooses the version of RoCE.  Empty: by the route to the peer.  "
     "With several devices: one for each, as 192.0.2.1+198.51.100.1, or one index for all.",
     ""},
    {"traffic_class", "value", -1, -1, 255,
     "Type of service of connections that this process makes, in both directions.  RoCE: the "
     "traffic class (104 is DSCP 26).  InfiniBand: between IPv4 addresses only, the QoS class "
     "that the subnet manager maps to a service level.  -1: system default.  The connecting "
     "side decides.",
     NULL},
    {"srq", "name", 0, 0, 0,
     "Shared receive queue: auto (when listening, if the device supports it well), on, off.",
     "auto"},
    {"srq_depth", "count", 16384, 64, 1 << 20,
     "Limit on receive buffers of a shared receive queue, within the device's limit, lowered "
     "where little memory may be locked.  Each connection has at least one buffer, so this "
     "also limits the number of connections.",
     NULL},
    /* 512: mlx5_calc_send_wqe() of rdma-core takes 192 bytes for the longest headers (window
     * binding) plus the larger of 16 per SGE of max_sge and of max_inline + 4, rounded up to
     * 16: 464, rounded up to a multiple of 64. */
    {"sq_depth", "count", 15, 8, 32767,
     "Send queue entries per connection; further requests wait in memory.  The device adds one "
     "and rounds up to a power of two.  Idle connections hold this memory, too: on mlx5 512 "
     "bytes per entry, 8 KiB with the defaults.",
     NULL},
    {"signal_each", "switch", 0, 0, 1,
     "Signal each work request, instead of the last one of a transfer or chain and each half "
     "queue.  For measurements only.",
     NULL},
    {"rq_depth", "count", 127, 8, 32767,
     "Receive queue entries per connection without a shared receive queue, at least "
     "credits_max + 8.  Idle connections hold this memory, too: 16 bytes per entry, 2 KiB with "
     "the default.",
     NULL},
    {"cq_depth", "count", 0, 0, 1 << 22,
     "Initial size of the completion queue; resized, or more queues created, as connections "
     "are added.  0: 8K, less where little memory may be locked.",
     NULL},
    {"max_sge", "count", 16, 1, 64,
     "Limit on segments per work request, within the device's limit.", NULL},
    {"max_inline", "bytes", 256, 0, 4096,
     "Messages up to this size are posted inline, within the device's limit.", NULL},
    {"tx_buffers", "count", 1024, 32, 1 << 20, "Send buffers shared by all connections.", NULL},
    {"tx_per_link", "count", 128, 8, 1 << 20,
     "Limit on send buffers held by one connection, so that a dead peer cannot take all.",
     NULL},
    {"tx_stuck_ms", "ms", 20000, 0, 3600 * 1000,
     "While seven eighths of the send buffers are held and a connection waits for one: a "
     "connection with at least half of its share whose peer has accepted nothing for this time "
     "is closed.  Progress is sampled every eighth of the time, as completions are reported in "
     "batches.  0: never.",
     NULL},
    {"expose", "name", 0, 0, 0,
     "Memory that a key opens to a peer.  operation: exactly the bytes of one operation, for "
     "that peer, until the operation ends (type 2 memory windows; without them, and on "
     "soft-RoCE, one registration per operation, whose key any peer could use meanwhile; see "
     "the log).  region: a whole cached registration, in one direction, for all peers, while "
     "cached.",
     "operation"},
    {"odp", "name", 0, 0, 0,
     "On-demand paging: user memory is registered without being pinned.  off; on: opening "
     "fails if the device lacks it for RDMA reads and writes over RC, or with expose=region; "
     "auto: if available.  The engine's own buffers are always pinned.",
     "off"},
    {"windows", "count", 4096, 16, 1 << 20,
     "Limit on open memory windows, within the device's limit; more wait.  A peer gets at most "
     "an eighth of the number left to others, and always enough for one message.",
     NULL},
    {"ack_timeout", "exponent", 0, 0, 31,
     "RC acknowledgement timeout, 4.096 us * 2^value.  0: 17 (0.5 s), on software devices 18.",
     NULL},
    {"retry_count", "count", 7, 0, 7, "RC retransmissions before the peer is considered dead.",
     NULL},
    {"rnr_retry", "count", 7, 0, 7,
     "RC retries after receiver-not-ready, which needs a peer that exceeds its credits.  7: no "
     "limit.",
     NULL},
    {"read_depth", "count", 16, 1, 255,
     "RDMA reads in flight offered per connection; the smaller value of both sides holds.",
     NULL},
    {"read_limit", "count", 64, 1, 32768,
     "RDMA reads of one connection posted at once; reads beyond the read depth queue in the "
     "device.",
     NULL},
    {"resolve_timeout_ms", "ms", 2000, 10, 600000,
     "Time to resolve an address, and again for the route.", NULL},
    {"way_timeout_ms", "ms", 3000, 10, 600000,
     "With several addresses of a peer or several local devices: time for one attempt before "
     "the next address or device is tried.  The last attempt has the rest of "
     "connect_timeout_ms.",
     NULL},
    {"drain_timeout_ms", "ms", 1000, 10, 600000,
     "Time for a failed connection's QP to flush before the QP is destroyed.", NULL},
    {"backlog", "count", 1024, 1, 65535, "Limit on connection requests waiting for an answer.",
     NULL},
    {"fork_safe", "switch", 0, 0, 1,
     "Call ibv_fork_init, for hosts that fork while connected on kernels before 5.12; costs "
     "one madvise per registration.",
     NULL},
    {NULL, NULL, 0, 0, 0, NULL, NULL},
};

bool ib_part(const char *text, unsigned i, char *out, size_t size)
{
    for (; text && i; i--) {
        text = strchr(text, '+');
        text += text != NULL;
    }
    if (!text)
        return false;
    size_t length = strcspn(text, "+");
    snprintf(out, size, "%.*s", (int)length, text);
    return length < size;
}
