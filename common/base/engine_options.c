/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The engine's options.  A new option needs a row here; parsing and `bmi-perf --options` use
 * this table. */
#include "base/options.h"

#define KIB 1024
#define MIB (1024 * KIB)
#define GIB (1024LL * MIB)
#define TIB (1024LL * GIB)

const struct rme_option_row rme_engine_options[] = {
    /* messages */
    {"rx_size", "bytes", 4608, 1 * KIB, 64 * KIB, NULL,
     "Payload of one receive buffer and of one send buffer; the message header is added.  "
     "Larger buffers send larger messages without rendezvous and pin more memory per "
     "connection.  The default holds 4 KiB and the header of a file system's request.  "
     "Lowered to 1008 bytes where the process may lock less than 1 MiB."},
    {"eager_max", "bytes", 64 * KIB, 0, 64 * KIB, NULL,
     "Largest payload of an expected message that is sent eagerly, if it fits one buffer.  "
     "An eager send completes before its receive is matched, so the sender does not learn "
     "that a receive was too small.  0: every expected message with a payload uses "
     "rendezvous, which reports the error to both sides and takes longer."},
    {"eager_window", "bytes", 1 * MIB, 64 * KIB, 1 * GIB, NULL,
     "Limit on eager payload buffered per peer without a matching receive, and, at a "
     "quarter of it, on unexpected messages until the host fetches them.  At the limit the "
     "peer sends RTS only, at most one for each 16 bytes of the window."},
    {"rx_buffered_bytes", "bytes", 64 * MIB, 1 * MIB, 1 * TIB, NULL,
     "Limit on receive-side buffering for all peers together: unmatched eager messages, "
     "unexpected messages that were not fetched, unmatched RTS.  Above half of the limit, "
     "the hosts that hold most are throttled."},
    {"credits", "count", 8, 4, 4096, NULL,
     "Receive buffers posted for a new connection, and up to 64 for a busy one; each pins "
     "rx_size bytes.  With a shared receive queue, or when a quarter of credits_pool is in "
     "use, a connection starts with one, and gets these with its first message.  Without "
     "one, connections made by a client have four until the first message."},
    {"credits_pool", "count", 1536, 0, 1 << 20, NULL,
     "Limit on receive buffers for all connections together, beyond those that each starts "
     "with.  A connection gets a part of what is left; idle ones return theirs, if there "
     "is a shared receive queue.  A peer that waits for rx_buffered_bytes gets three.  "
     "Raise the limit where hundreds of clients of a server without a shared receive queue "
     "are busy together."},

    /* large messages */
    /* the order of enum rme_prefer */
    {"rndv", "auto|write|read", 0, 0, 2, NULL,
     "Which side moves rendezvous data.  auto: chosen per message from the number of "
     "requests and the load; write: RDMA write by the sender; read: RDMA read by the "
     "receiver, of messages that are ready in one piece when they are announced."},
    {"fragment_bytes", "bytes", 1 * MIB, 64 * KIB, 1 * GIB, NULL,
     "Rendezvous messages are registered and transferred in fragments of this size, so that "
     "registration overlaps the transfer."},
    {"pack_threshold", "bytes", -1, -1, 1 * GIB, NULL,
     "Unregistered payloads below this size are copied through registered memory; larger "
     "ones are registered and cached.  -1: from the costs of the device, at most 64 KiB "
     "(bmi-perf --explain).  0: copied up to the limit that bmi-perf --explain prints.  For "
     "lists see list_mode."},
    /* the order of enum rme_lists */
    {"list_mode", "auto|pack|group", 0, 0, 2, NULL,
     "How a list of segments beyond the eager size is transferred.  auto: from its bytes "
     "and segments; pack: copied into one buffer; group: in place, neighbouring segments "
     "registered together."},
    {"early_cts", "switch", 1, 0, 1, NULL,
     "A large receive in registered memory is advertised to the sender before its RTS while "
     "the connection is idle, which saves RTS and CTS.  Cancelling such a receive needs an "
     "answer of the peer."},
    {"eager_ring_bytes", "bytes", 512 * KIB, 0, 4 * MIB, NULL,
     "Size of the ring that a peer gets when its messages exceed a receive buffer.  "
     "The peer writes messages of up to 16 to 32 KiB, by the device's costs, there by RDMA, "
     "and of up to 64 KiB that a rendezvous would copy, too (bmi-perf --explain); messages "
     "in the ring count as eager (eager_max).  0: no ring, in either direction."},
    {"eager_ring_pool", "bytes", 16 * MIB, 0, 1 * TIB, NULL,
     "Limit on rings for all peers together, and never more than a sixteenth of the "
     "memory that the process may lock.  A host gets at most half of it.  At a limit a peer "
     "gets a ring when another's was idle for pool_idle_ms."},
    {"rdma_inflight_bytes", "bytes", 1 * MIB, 64 * KIB, 1 * GIB, NULL,
     "Limit on rendezvous bytes that each side gives its device at a time per connection, "
     "in transfers of half of that, or in one if a message within the limit is alone.  Less "
     "lowers the delay of small messages; the limit must cover the network's rate times the "
     "time to wake up."},

    /* progress */
    {"poll_us", "us", 200, 0, 1000000, NULL,
     "A waiting call polls this long before it sleeps: a quarter of the time under "
     "contention for the processor, and not at all after polling has often found nothing.  "
     "Raise it for latency; 0 saves processor time."},

    /* connections */
    {"connect_timeout_ms", "ms", 30000, 10, 600000, NULL,
     "Time to establish a connection.  Servers that get 10,000 connections together need "
     "more than 10 s for the last one.  A peer that rejects connections because its backlog "
     "is full is tried again for twice the time.  A cancelled operation whose peer has not "
     "released the memory after a tenth of the time breaks the connection."},
    {"backoff_max_ms", "ms", 2000, 1, 600000, NULL,
     "Longest pause between attempts to connect.  The first pause is a hundredth of it, and "
     "each further one twice as long."},
    {"keepalive_ms", "ms", 2000, 0, 600000, NULL,
     "A silent connection with work outstanding is probed at this interval, and by the "
     "server a client without any after 15 times as long: a client that disappeared is "
     "noticed within twice that time.  0: never."},
    {"peer_timeout_ms", "ms", 0, 0, 3600000, NULL,
     "A peer that has not answered a probe for this long is considered dead, and its "
     "operations fail.  0: rely on the device, which reports dead hosts and processes, and "
     "wait for stopped or slow ones."},

    /* memory */
    {"regcache_entries", "count", 1024, 0, 1 << 20, NULL,
     "Limit on cached registrations of user memory.  0, or a system where unmapping cannot "
     "be watched: register for each operation.  A registration keeps the rights that its "
     "memory had: programs that mprotect buffers between uses need 0.  A quarter of the "
     "memory that the process may lock stays registered at most."},
    {"pool_bytes", "bytes", -1, -1, 64 * TIB, NULL,
     "Limit on registered memory of the engine (BMI_memalloc and bounce buffers), at least "
     "8 KiB.  -1: derived from RLIMIT_MEMLOCK."},
    {"pool_idle_ms", "ms", 10000, 0, 3600000, NULL,
     "Idle engine memory, all but 1 MiB, is returned to the system after this time, and "
     "rings that a peer has not used are reclaimed.  0: never."},
    {NULL, NULL, 0, 0, 0, NULL, NULL},
};
