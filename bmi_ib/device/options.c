/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The fabric's tunables: one table for parsing and `bmi-perf --options`. */
#include <stdio.h>
#include <string.h>
#include "bmi_ib/device/device.h"

const struct rme_option_row ib_options[] = {
    {"device", "name", 0, 0, 0,
     "RDMA device to use (a name of ibv_devices), or several, as mlx5_0+mlx5_1: connections "
     "are spread over them, and what one that fails has carried comes up again over another.  "
     "Memory is registered on each, and counts as often.  Empty takes the device that the "
     "listening address belongs to, else the first one with an active port.",
     ""},
    {"stripe_bytes", "bytes", 256 << 10, 0, 1 << 30,
     "With several devices here and at the peer: transfers of so many bytes or more are shared "
     "by two of them.  A transfer has half of `xfer_bytes_peer` at most.  0: a connection "
     "keeps to one device.",
     NULL},
    {"stripe_retry_ms", "ms", 1000, 0, 3600 * 1000,
     "A second device that cannot be reached, or is lost, is tried again after so long, then "
     "each time after twice as long, up to 64 times this, while there is something for it.  0: "
     "it is not tried again.",
     NULL},
    {"ib_port", "port", 0, 0, 255,
     "Physical port of the device; connections that leave by another one are refused.  0 is "
     "any.",
     NULL},
    {"gid", "name", 0, 0, 0,
     "RoCE: index in the port's table, or address, of the GID that connections leave by; its "
     "address is their source.  Of an address that has two the system chooses the version of "
     "RoCE.  Empty: the route to the peer decides.  With several devices: one for each, as "
     "192.0.2.1+198.51.100.1, or an index for all of them.",
     ""},
    {"traffic_class", "value", -1, -1, 255,
     "Type of service of the connections that this process makes, for both directions: on RoCE "
     "the traffic class (104 is DSCP 26), on InfiniBand, between IPv4 addresses only, the QoS "
     "class that the subnet manager gives a service level.  -1: as the system has it.  Of a "
     "connection that a peer makes the peer decides.",
     NULL},
    {"srq", "name", 0, 0, 0,
     "Receive buffers shared by all connections: auto (when listening, where the device does "
     "it well), on, off.",
     "auto"},
    {"srq_depth", "count", 16384, 64, 1 << 20,
     "Most receive buffers of all connections together when they are shared, as far as the "
     "device allows; fewer where little may be locked.  Each connection has one at least, so "
     "this is the most connections, too.",
     NULL},
    /* 512: mlx5_calc_send_wqe() of rdma-core takes 192 bytes for the longest headers, those of
     * a window's binding, and the larger of 16 for each of max_sge and of max_inline with 4
     * before it, in steps of 16: 464, rounded up to a multiple of 64. */
    {"sq_depth", "count", 15, 8, 32767,
     "Send requests a connection may have with the device; more wait in memory.  The device "
     "keeps one more, and rounds up to a power of two.  They take memory while the connection "
     "is idle, too: 8 KiB on mlx5 with the defaults, 512 bytes for each.",
     NULL},
    {"signal_each", "switch", 0, 0, 1,
     "Ask for a completion of each work request, instead of one for what ends a transfer or "
     "a chain and for half of the queue.  It costs time, and is there to be measured.",
     NULL},
    {"rq_depth", "count", 127, 8, 32767,
     "Most receive buffers of one connection when they are not shared: `credits_max` and 8, or "
     "more.  They take memory while the connection is idle, too: 2 KiB with the default, 16 "
     "bytes for each.",
     NULL},
    {"cq_depth", "count", 0, 0, 1 << 22,
     "Completions that the completion queue holds at first; it grows, or more are made, as "
     "connections need it.  0 takes 8K, fewer where little may be locked.",
     NULL},
    {"max_sge", "count", 16, 1, 64,
     "Segments of one work request at most, as far as the device allows.", NULL},
    {"max_inline", "bytes", 256, 0, 4096,
     "Messages up to this size travel inside the work request, as far as the device allows.",
     NULL},
    {"tx_buffers", "count", 1024, 32, 1 << 20, "Send buffers shared by all connections.", NULL},
    {"tx_per_link", "count", 128, 8, 1 << 20,
     "Send buffers one connection may hold, so that a dead peer starves nobody.", NULL},
    {"tx_stuck_ms", "ms", 20000, 0, 3600 * 1000,
     "While seven eighths of the send buffers are held (the rest is for connections that have "
     "nothing under way) and a connection waits for one: another that holds half of its share "
     "of them, or more, and whose peer has taken nothing for so long, ends.  As the device "
     "tells of several messages together, a peer counts as alive that takes one each eighth of "
     "this time.  0: none ends.",
     NULL},
    {"expose", "name", 0, 0, 0,
     "What a key that a peer is given opens to it: operation, exactly the bytes of one "
     "operation, to that peer, until the operation ends (by memory windows of type 2; on "
     "devices without them, and on soft-RoCE, by a registration for each operation, whose key "
     "serves every peer meanwhile; the log says what holds); region, all of a registration "
     "that is kept, in one direction, to every peer, for as long as it is registered.",
     "operation"},
    {"odp", "name", 0, 0, 0,
     "User memory is registered without pinning it, and the device asks the kernel for its "
     "pages (on-demand paging): off; on, and to open fails where the device cannot do that for "
     "RDMA writes and reads of connections, or expose is region; auto, where it can.  Buffers "
     "of the engine's own are pinned all the same.",
     "off"},
    {"windows", "count", 4096, 16, 1 << 20,
     "Memory windows that may be open at a time, as far as the device allows; what needs more "
     "waits.  One of several peers has at most an eighth of what it leaves to the others, and "
     "in any case what one message needs at a time.",
     NULL},
    {"ack_timeout", "exponent", 0, 0, 31,
     "A request is repeated when it was not acknowledged within 4.096 us times two to this "
     "power.  0 takes 17 (0.5 s), on software devices 18.",
     NULL},
    {"retry_count", "count", 7, 0, 7, "Repetitions before the peer counts as dead.", NULL},
    {"rnr_retry", "count", 7, 0, 7,
     "Repetitions when the peer has no receive posted, which happens only if another of its "
     "peers "
     "takes more than it was granted.  7 is for ever.",
     NULL},
    {"read_depth", "count", 16, 1, 255,
     "RDMA reads in flight per connection offered to the peer; the smaller side decides.",
     NULL},
    {"read_limit", "count", 64, 1, 32768,
     "RDMA reads of one connection given to the device at once; those beyond the read depth "
     "queue there.",
     NULL},
    {"resolve_timeout_ms", "ms", 2000, 10, 600000,
     "Time to find the device for an address, and again to find the route.", NULL},
    {"way_timeout_ms", "ms", 3000, 10, 600000,
     "Where a peer has several addresses, or this host several devices: the time in which a "
     "connection by one of them must be up before another is tried.  The last has what is left "
     "of connect_timeout_ms.",
     NULL},
    {"drain_timeout_ms", "ms", 1000, 10, 600000,
     "Time a failed connection's queue has to give its requests back before it is destroyed "
     "without.",
     NULL},
    {"probe_ms", "ms", 500, 0, 600000,
     "Where a server's machine answers but nobody listens for this network, how long to find "
     "out whether somebody listens at the port by TCP, to say so; 0: not at all.",
     NULL},
    {"backlog", "count", 1024, 1, 65535, "Connection requests that may wait to be answered.",
     NULL},
    {"fork_safe", "switch", 0, 0, 1,
     "Call ibv_fork_init, for hosts that fork while connected on kernels before 5.12; costs a "
     "madvise for each registration.",
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
