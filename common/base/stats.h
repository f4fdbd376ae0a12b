/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Counters: lists of name, unit and text, from which the enum and the table (inspect.c) are
 * made. The engine's lock guards them; a fabric increments its own in calls that hold that
 * lock. Registrations and zones are counted without the lock, by rme_pin_count().
 */
#ifndef RME_STATS_H
#define RME_STATS_H

#include <stdint.h>

/* Counted for each peer; rme_stats has the sum of the peers that are gone. */
#define RME_PEER_COUNTERS(X)                                                                   \
    X(SENDS_EAGER, "sends_eager", "messages", "messages sent whole in eager buffers")          \
    X(SENDS_RING, "sends_eager_rdma", "messages",                                              \
      "of sends_eager: written into the ring that the peer granted")                           \
    X(SENDS_RNDV_WRITE, "sends_rndv_write", "messages",                                        \
      "messages sent by rendezvous: RDMA write by this process")                               \
    X(SENDS_RNDV_READ, "sends_rndv_read", "messages",                                          \
      "messages sent by rendezvous: RDMA read by the peer")                                    \
    X(RECVS_EAGER, "recvs_eager", "messages", "messages received in eager buffers")            \
    X(RECVS_RING, "recvs_eager_rdma", "messages",                                              \
      "of recvs_eager: received in the ring granted to the peer")                              \
    X(RECVS_RNDV_WRITE, "recvs_rndv_write", "messages",                                        \
      "messages received by rendezvous: RDMA write by the peer")                               \
    X(RECVS_RNDV_READ, "recvs_rndv_read", "messages",                                          \
      "messages received by rendezvous: RDMA read by this process")                            \
    X(UNEXPECTED_SENT, "unexpected_sent", "messages", "unexpected messages sent")              \
    X(UNEXPECTED_RECEIVED, "unexpected_received", "messages", "unexpected messages received")  \
    X(BYTES_SENT, "bytes_sent", "bytes", "payload of completed sends")                         \
    X(BYTES_RECEIVED, "bytes_received", "bytes", "payload of completed receives")

/* Counters that only grow. */
#define RME_EVENT_COUNTERS(X)                                                                  \
    X(CONTROL_SENT, "control_sent", "messages",                                                \
      "control messages sent: RTS, CTS, FIN but of writes, cancel and their answers")          \
    X(EARLY_CTS_SENT, "invites_sent", "messages",                                              \
      "receives whose memory was advertised before their RTS")                                 \
    X(EARLY_CTS_TAKEN, "invites_taken", "messages",                                            \
      "sends into memory that was advertised before their RTS: no CTS, and mostly no RTS")     \
    X(DEFERRED, "deferred", "messages",                                                        \
      "receives reported after a transfer that their peer had acknowledged")                   \
    X(RING_GRANTS, "eager_ring_grants", "grants", "rings granted to peers")                    \
    X(RING_FULL, "eager_ring_full", "times",                                                   \
      "times that the ring, or the peer's window, was full")                                   \
    X(RING_WITHDRAWN, "eager_ring_withdrawn", "grants", "rings requested back from peers")     \
    X(CREDIT_SENT, "credit_sent", "messages", "explicit credit messages sent")                 \
    X(CREDIT_STALLS, "credit_stalls", "messages", "messages that had to wait for a credit")    \
    X(CREDITS_REDUCED, "credits_reduced", "buffers", "receive buffers returned by idle peers") \
    X(EAGER_REFUSED, "eager_refused", "messages",                                              \
      "eager messages refused by the peer: larger than their receive")                         \
    X(PACK_CUT, "pack_cut", "parts",                                                           \
      "parts of messages copied in smaller blocks because bounce buffers ran short")           \
    X(PACK_RESERVE, "pack_reserve", "parts",                                                   \
      "parts of messages copied through the reserve block, which is shared by all peers")      \
    X(UNMATCHED_EAGER, "unmatched_eager", "messages",                                          \
      "eager messages copied aside because no receive was posted")                             \
    X(BYTES_COPIED, "bytes_copied", "bytes", "payload copied by the processor")                \
    X(REGISTRATIONS, "registrations", "calls", "memory registrations")                         \
    X(DEREGISTRATIONS, "deregistrations", "calls", "memory deregistrations")                   \
    X(REGISTER_NS, "register_ns", "ns", "time of threads that registered memory of messages")  \
    X(REG_HITS, "reg_hits", "lookups", "ranges found in the registration cache")               \
    X(REG_MISSES, "reg_misses", "lookups", "ranges that had to be registered")                 \
    X(REG_EVICTIONS, "reg_evictions", "regions", "registrations evicted from the cache")       \
    X(REG_REFUSED, "reg_refused", "calls",                                                     \
      "registrations refused by the system; the data was copied instead")                      \
    X(RDMA_READS, "rdma_reads", "requests", "RDMA read work requests posted")                  \
    X(RDMA_WRITES, "rdma_writes", "requests", "RDMA write work requests posted")               \
    X(SEND_REQUESTS, "send_requests", "requests", "send work requests posted")                 \
    X(DOORBELLS, "doorbells", "calls", "post-send calls")                                      \
    X(RECV_DOORBELLS, "recv_doorbells", "calls", "post-receive calls")                         \
    X(SIGNALLED, "signalled", "requests", "work requests that requested a completion")         \
    X(CQ_POLLS, "cq_polls", "calls", "completion queue polls")                                 \
    X(CQ_ENTRIES, "cq_entries", "entries", "completions reaped")                               \
    X(WAKEUPS, "wakeups", "times", "sleeps ended by an event")                                 \
    X(SLEEPS, "sleeps", "times", "sleeps begun")                                               \
    X(WINDOWS, "windows", "ranges", "ranges of memory opened to one peer for one operation")   \
    X(RNR, "rnr", "events", "receiver-not-ready errors seen")                                  \
    X(CONNECTS, "connects", "links", "links established")                                      \
    X(CONNECTS_AGAIN, "connects_again", "requests",                                            \
      "connection requests repeated because the peer's backlog was full")                      \
    X(RECONNECTS, "reconnects", "links", "links to a peer that had one before")                \
    X(LINK_FAILURES, "link_failures", "links", "links that failed or were not established")    \
    X(REJECTS, "rejects", "requests", "connection requests refused")                           \
    X(CANCELS, "cancels", "operations", "operations ended by cancel")                          \
    X(PROTOCOL_ERRORS, "protocol_errors", "messages", "malformed or invalid messages")

/* Current values. */
#define RME_GAUGES(X)                                                                          \
    X(RX_BUFFERED_BYTES, "rx_buffered_bytes", "bytes",                                         \
      "buffered for peers now: unmatched messages and RTS, unexpected messages not fetched")   \
    X(RING_BYTES, "eager_ring_bytes", "bytes", "rings granted to peers now")                   \
    X(CREDITS_LENT, "credits_lent", "buffers",                                                 \
      "receive buffers granted now beyond those of new links")                                 \
    X(REGISTERED_BYTES, "registered_bytes", "bytes", "memory registered now")                  \
    X(DEMAND_BYTES, "demand_bytes", "bytes",                                                   \
      "of registered_bytes: paged on demand and not pinned")                                   \
    X(ZONE_BYTES, "zone_bytes", "bytes", "registered zone memory held now")                    \
    X(PACK_BYTES, "pack_bytes", "bytes",                                                       \
      "of zone_bytes: bounce buffers for parts of messages in use now")                        \
    X(PEERS, "peers", "peers", "peers with a link now")                                        \
    X(QUARANTINED, "quarantined", "buffers",                                                   \
      "buffers and links withheld now: a device may still access them")                        \
    X(OPS_LIVE, "ops_live", "operations", "operations posted and not yet reported")

#define RME_COUNTERS(X) RME_PEER_COUNTERS(X) RME_EVENT_COUNTERS(X) RME_GAUGES(X)

enum rme_counter_id {
#define RME_COUNTER_ENUM(id, name, unit, text) RME_C_##id,
    RME_COUNTERS(RME_COUNTER_ENUM)
#undef RME_COUNTER_ENUM
        RME_C_COUNT,
#define RME_COUNTER_ONE(id, name, unit, text) +1
    RME_C_PEER = RME_PEER_COUNTERS(RME_COUNTER_ONE), /* the first ones: counted for each peer */
    RME_C_GAUGES = RME_C_COUNT - (RME_GAUGES(RME_COUNTER_ONE)) /* the first gauge */
#undef RME_COUNTER_ONE
};

struct rme_stats {
    uint64_t value[RME_C_COUNT];
};

#endif
