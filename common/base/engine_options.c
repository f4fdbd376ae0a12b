/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The engine's tunables.  To add one, add a row; parsing and `bmi-perf --options` follow from
 * it. */
#include "base/options.h"

#define KIB 1024
#define MIB (1024 * KIB)
#define GIB (1024LL * MIB)
#define TIB (1024LL * GIB)

const struct rme_option_row rme_engine_options[] = {
    /* messages */
    {"rx_size", "bytes", 4608, 1 * KIB, 64 * KIB,
     "Payload of one receive and one send buffer; the message header comes on top.  Larger "
     "ones send larger messages in one go and pin more memory for each connection.  The "
     "default takes 4 KiB and what a file system's request says of them.  A process that may "
     "lock less than 1 MiB has 1008 bytes, and a network with smaller messages what they take.",
     NULL},
    {"eager_max", "bytes", 64 * KIB, 0, 64 * KIB,
     "Largest expected payload sent whole in one buffer, if it fits.  The send of such a "
     "message is complete before it meets its receive, so that it may not learn that the "
     "receive is too small.  With 0 every expected message with a payload asks first: both "
     "sides always learn of it, and small messages take longer.",
     NULL},
    {"eager_window", "bytes", 1 * MIB, 64 * KIB, 1 * GIB,
     "Eager payload held for one peer while no receive is posted for it; beyond it the peer "
     "sends descriptions only.",
     NULL},
    {"unexpected_window", "bytes", 256 * KIB, 64 * KIB, 1 * GIB,
     "Unexpected messages held for one peer until the host fetches them; beyond it the peer "
     "sends descriptions only.",
     NULL},
    {"rts_max", "count", 65536, 1024, 1 << 20,
     "Descriptions of large messages held for one peer until they are matched; beyond it the "
     "peer's next messages wait, whatever their tags.",
     NULL},
    {"kept_bytes", "bytes", 64 * MIB, 1 * MIB, 1 * TIB,
     "What all peers together make this process keep (messages without receives, unexpected "
     "ones not fetched, descriptions) at most.  From half of it on, the hosts that hold most "
     "wait.",
     NULL},
    {"credits", "count", 8, 4, 4096,
     "Receive buffers promised to a connection at first.  Where all connections share them, or "
     "a quarter of `credits_pool` is promised, that is one, and these come with the first "
     "message.  A client's connections that do not share them have four until they are used.  "
     "Each pins rx_size bytes.",
     NULL},
    {"credits_max", "count", 64, 4, 4096,
     "Receive buffers promised to a busy connection at most.", NULL},
    {"credits_pool", "count", 1536, 0, 1 << 20,
     "Receive buffers promised to all connections that others made, together, beyond the "
     "one that each has, where the device keeps those that it was given.  No connection gets "
     "more than a part of what is left; idle ones give theirs back.  Peers of before, which "
     "need four, are refused when nothing is left; one that has to wait for `kept_bytes` "
     "gets three whatever is left.  What a shared queue was given stays with "
     "it; where each connection has its own, idle ones give back one with each message, the "
     "probes of `idle_keepalive_ms` included.  Raise it where hundreds of clients of a "
     "server that has no shared queue are busy at once.",
     NULL},

    /* large messages */
    {"rndv", "name", 0, 0, 0,
     "Who moves large messages: auto (planner), write (the sender writes), read (the receiver "
     "reads).",
     "auto"},
    {"unit", "bytes", 1 * MIB, 64 * KIB, 1 * GIB,
     "Large messages are registered and moved in units of this size, so that registration "
     "overlaps the transfer.",
     NULL},
    {"pack_threshold", "bytes", 64 * KIB, 0, 1 * GIB,
     "Messages with less payload than this are copied where their memory is not registered, "
     "larger ones registered for good; 0 decides by the costs of one use. Of lists see lists.",
     NULL},
    {"lists", "name", 0, 0, 0,
     "How a list of segments travels that is no eager message: auto (the costs say), pack "
     "(copied into one buffer), group (in place, neighbours registered together), hybrid "
     "(copied below pack_threshold, else group), single (in place, each segment registered by "
     "itself, which is there to be measured).",
     "auto"},
    {"invite", "switch", 1, 0, 1,
     "A large receive whose memory is registered opens it to the sender before that has asked, "
     "if the connection is idle: the message then needs no RTS and CTS.  Cancelling such a "
     "receive needs the peer's answer.",
     NULL},
    {"fast_bytes", "bytes", 512 * KIB, 0, 4 * MIB,
     "Memory that a peer is lent when it sends messages larger than a receive buffer: it "
     "writes those of up to 64 KiB there without asking where that costs less (bmi-perf "
     "--explain), and they count as eager (eager_max).  0 lends none, and uses none of others.",
     NULL},
    {"fast_pool", "bytes", 16 * MIB, 0, 1 * TIB,
     "Such memory for all peers together.  When nothing is left, who would have some waits "
     "for it in turn: idle holders give theirs back, and where all are busy the longest one.  "
     "It is a sixteenth of what the process may lock at most.",
     NULL},
    {"heavy_ops", "count", 64, 1, 1 << 20,
     "A server that has more messages to move by RDMA counts as heavily loaded: its clients "
     "then move the data.",
     NULL},
    {"xfer_ops_peer", "count", 16, 1, 1 << 16,
     "RDMA transfers outstanding to one peer; more wait.", NULL},
    {"xfer_bytes_peer", "bytes", 1 * MIB, 64 * KIB, 1 * GIB,
     "Bytes of large messages that each side gives its device at a time for one connection, "
     "cut into transfers of half of that: small messages wait behind no more.  Less makes them "
     "wait less; large ones need it to cover the network's rate times the time to wake up.",
     NULL},
    {"xfer_ops", "count", 256, 1, 1 << 20,
     "RDMA transfers outstanding in the process; more wait, but each peer may have one.", NULL},

    {"sample_ops", "count", 61, 0, 1 << 30,
     "One operation in so many is watched, and the time in each of its stages counted; 0 none. "
     "A prime, so that a host that repeats itself has each of its operations watched in turn.",
     NULL},
    {"measure_costs", "switch", 1, 0, 1,
     "Whether what copies and registrations cost is measured when an engine opens, which takes "
     "up to 20 ms; 0 takes the costs of a common machine, so that messages travel alike "
     "everywhere.",
     NULL},

    /* progress */
    {"spin_us", "us", 200, 0, 1000000,
     "A waiting call polls at most this long before it sleeps, a quarter of it when others "
     "take the processor meanwhile, and not at all when polling has not paid, in servers and "
     "clients alike.  Raise it for latency, 0 saves the processor.",
     NULL},

    /* connections */
    {"connect_timeout_ms", "ms", 30000, 10, 600000,
     "A connection that is not up by then has failed.  A server to which ten thousand come at "
     "once needs longer than 10 s for the last of them.",
     NULL},
    {"busy_timeout_ms", "ms", 60000, 0, 3600000,
     "A peer at which too many connection requests wait is asked again for so long, with the "
     "pauses below; then the connection has failed.",
     NULL},
    {"backoff_min_ms", "ms", 20, 1, 600000,
     "Pause before the second attempt to connect; it doubles up to backoff_max_ms.", NULL},
    {"backoff_max_ms", "ms", 2000, 1, 600000, "Longest pause between attempts to connect.",
     NULL},
    {"keepalive_ms", "ms", 2000, 0, 600000,
     "A silent connection with work outstanding is probed this often; 0 never.", NULL},
    {"idle_keepalive_ms", "ms", 30000, 0, 3600000,
     "A server probes a client that has been silent for this long though nothing is "
     "outstanding, so that one that is gone without a word is noticed within twice that; 0 "
     "never.",
     NULL},
    {"peer_timeout_ms", "ms", 0, 0, 3600000,
     "A peer whose process has not answered a probe for this long is dead: its operations end "
     "with an error.  0 trusts the device, which finds out about dead hosts and processes, and "
     "waits for one that is stopped or slow.",
     NULL},
    {"cancel_timeout_ms", "ms", 3000, 10, 600000,
     "A cancel whose peer has not let go of the memory by then breaks the connection.", NULL},

    /* memory */
    {"regcache_entries", "count", 1024, 0, 1 << 20,
     "Registrations of user memory kept for reuse; 0 registers for each operation, as does a "
     "system whose unmaps cannot be watched.  A registration keeps the rights that memory had: "
     "programs that protect (mprotect) buffers which they use again need 0.",
     NULL},
    {"regcache_bytes", "bytes", -1, -1, 64 * TIB,
     "User memory kept registered for reuse; -1 derives it from RLIMIT_MEMLOCK, and is no "
     "bound where a device pages memory on demand.",
     NULL},
    {"regcache_batch", "count", 16, 1, 1 << 10,
     "Registrations that are given up together when there is no room for another one, an "
     "eighth of regcache_entries at most: what lies side by side costs less so. A cache that "
     "was full has room for as many again when nothing waits.",
     NULL},
    {"zone_bytes", "bytes", -1, -1, 64 * TIB,
     "Bound of registered zone memory (buffers handed out and bounce buffers), 8 KiB at least; "
     "-1 derives it from RLIMIT_MEMLOCK.",
     NULL},
    {"zone_keep_bytes", "bytes", 64 * MIB, 0, 64 * TIB,
     "Idle zone memory that stays registered; more is given back to the system.", NULL},
    {"zone_idle_ms", "ms", 10000, 0, 3600000,
     "Idle zone memory that nobody needed for this long is given back as well, all but 1 MiB, "
     "and what a peer was lent and has not used for so long (fast_bytes) is asked for again; 0 "
     "never.",
     NULL},
    {"huge_pages", "switch", 1, 0, 1,
     "Take zone memory from huge pages when the system has any free.", NULL},
    {"dont_fork", "switch", 1, 0, 1,
     "Keep zone memory out of child processes (MADV_DONTFORK), so that a fork cannot move it "
     "away from the device.",
     NULL},
    {NULL, NULL, 0, 0, 0, NULL, NULL},
};
