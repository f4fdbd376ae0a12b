/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Options of the fabric: one table for parsing and for `bmi-perf --options`. */
#include <stdio.h>
#include <string.h>
#include "bmi_ib/device/device.h"

const struct rme_option_row ib_options[] = {
    {"device", "name", 0, 0, 0, "",
     "RDMA device (a name of ibv_devices), or several, as mlx5_0+mlx5_1: connections are "
     "spread over them and fail over to another.  Memory is registered with each device and "
     "counts as often.  Empty: the device of the listening address, else the first one with an "
     "active port."},
    {"gid", "name", 0, 0, 0, "",
     "RoCE: source address of outgoing connections, one of the device's.  Where it has two "
     "GIDs the system chooses the version of RoCE.  Empty: by the route to the peer.  With "
     "several devices: one for each, as 192.0.2.1+198.51.100.1."},
    {"traffic_class", "value", -1, -1, 255, NULL,
     "Type of service of connections that this process makes, in both directions.  RoCE: the "
     "traffic class (104 is DSCP 26).  InfiniBand: between IPv4 addresses only, the QoS class "
     "that the subnet manager maps to a service level.  -1: system default.  The connecting "
     "side decides."},
    {"srq", "auto|on|off", 0, 0, 2, NULL,
     "Shared receive queue: auto (when listening, if the device supports it well), on, off."},
    /* 512: mlx5_calc_send_wqe() of rdma-core takes 192 bytes for the longest headers (window
     * binding) plus the larger of 16 per SGE (IB_SGE_MAX) and of max_inline + 4, rounded up to
     * 16: 464, rounded up to a multiple of 64. */
    {"sq_depth", "count", 15, 8, 32767, NULL,
     "Send queue entries per connection; further requests wait in memory.  The device adds one "
     "and rounds up to a power of two.  Idle connections hold this memory, too: on mlx5 512 "
     "bytes per entry, 8 KiB with the defaults."},
    {"signal_each", "switch", 0, 0, 1, NULL,
     "Signal each work request, instead of the last one of a transfer or chain and each half "
     "queue.  For measurements only."},
    {"max_inline", "bytes", 256, 0, 4096, NULL,
     "Messages up to this size are posted inline, within the device's limit."},
    {"rkey_scope", "operation|region", 0, 0, 1, NULL,
     "Memory that a key opens to a peer.  operation: exactly the bytes of one operation, for "
     "that peer, until the operation ends (type 2 memory windows; without them, and on "
     "soft-RoCE, one registration per operation, whose key any peer could use meanwhile; see "
     "the log).  region: a whole cached registration, in one direction, for all peers, while "
     "cached; of the allocator's memory up to 4 MiB with buffers of other operations, in both "
     "directions: a client that guesses a key of 32 bits reads and writes data of others.  By "
     "the model of ConnectX-5 and 6 it saves 1 to 13 % of the time of 64 KiB in one piece, 37 "
     "to 52 % of 256 KiB in 64 pieces on both sides.  Only where all hosts trust each other."},
    {"odp", "off|on|auto", 0, 0, 2, NULL,
     "On-demand paging: user memory is registered without being pinned.  off; on: opening "
     "fails if the device lacks it for RDMA reads and writes over RC, or with "
     "rkey_scope=region; auto: if available.  The engine's own buffers are always pinned."},
    {"ack_timeout", "exponent", 0, 0, 31, NULL,
     "Time without an acknowledgement before the device sends again, 4.096 us * 2^value, seven "
     "times.  0: 17 (0.5 s), on soft-RoCE 18.  Lower where packets are lost (RoCE without flow "
     "control), because a lost last packet stalls its connection for this time; higher where a "
     "large fabric is slower than that."},
    {"relaxed_ordering", "off|on|auto", 2, 0, 2, NULL,
     "Lets PCIe reorder the device's writes to memory, which some processors need for full "
     "rate.  The engine never reads data before its completion.  auto: on AMD processors."},
    {"rnr_retry", "count", 7, 0, 7, NULL,
     "RC retries after receiver-not-ready, which needs a peer that exceeds its credits.  7: no "
     "limit."},
    {NULL, NULL, 0, 0, 0, NULL, NULL},
};

bool ib_part(const char *text, unsigned i, char *out, size_t size)
{
    size_t length;
    for (; text != NULL && i; i--) {
        text = strchr(text, '+');
        text += text != NULL;
    }
    if (text == NULL)
        return false;
    length = strcspn(text, "+");
    snprintf(out, size, "%.*s", (int)length, text);
    return length < size;
}
