/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Counters: one table of calls and one of everything else. Both are in the process's segment,
 * so that `emuverbs --show PID` can read them while the process runs. */
#ifndef EMUL_VERBS_COUNTERS_H
#define EMUL_VERBS_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Calls of both libraries that can fail or are counted by tests. The second column: 1 if a
 * single-fault sweep counts the call. Releasing calls, and ibv_poll_cq, whose number depends on
 * timing, are not counted, but can be failed by name.
 */
#define EMU_CALLS(X)                                                                           \
    X(ibv_get_device_list, 1)                                                                  \
    X(ibv_open_device, 1)                                                                      \
    X(ibv_close_device, 0)                                                                     \
    X(ibv_query_device, 1)                                                                     \
    X(ibv_query_port, 1)                                                                       \
    X(ibv_query_gid, 1)                                                                        \
    X(ibv_query_pkey, 1)                                                                       \
    X(ibv_alloc_pd, 1)                                                                         \
    X(ibv_dealloc_pd, 0)                                                                       \
    X(ibv_reg_mr, 1)                                                                           \
    X(ibv_dereg_mr, 0)                                                                         \
    X(ibv_alloc_mw, 1)                                                                         \
    X(ibv_dealloc_mw, 0)                                                                       \
    X(ibv_create_comp_channel, 1)                                                              \
    X(ibv_destroy_comp_channel, 0)                                                             \
    X(ibv_create_cq, 1)                                                                        \
    X(ibv_resize_cq, 1)                                                                        \
    X(ibv_destroy_cq, 0)                                                                       \
    X(ibv_poll_cq, 0)                                                                          \
    X(ibv_req_notify_cq, 1)                                                                    \
    X(ibv_get_cq_event, 1)                                                                     \
    X(ibv_ack_cq_events, 0)                                                                    \
    X(ibv_get_async_event, 0)                                                                  \
    X(ibv_ack_async_event, 0)                                                                  \
    X(ibv_create_ah, 1)                                                                        \
    X(ibv_destroy_ah, 0)                                                                       \
    X(ibv_attach_mcast, 1)                                                                     \
    X(ibv_detach_mcast, 0)                                                                     \
    X(ibv_create_srq, 1)                                                                       \
    X(ibv_modify_srq, 1)                                                                       \
    X(ibv_query_srq, 1)                                                                        \
    X(ibv_destroy_srq, 0)                                                                      \
    X(ibv_post_srq_recv, 1)                                                                    \
    X(ibv_create_qp, 1)                                                                        \
    X(ibv_modify_qp, 1)                                                                        \
    X(ibv_query_qp, 1)                                                                         \
    X(ibv_destroy_qp, 0)                                                                       \
    X(ibv_post_send, 1)                                                                        \
    X(ibv_post_recv, 1)                                                                        \
    X(rdma_create_event_channel, 1)                                                            \
    X(rdma_destroy_event_channel, 0)                                                           \
    X(rdma_create_id, 1)                                                                       \
    X(rdma_destroy_id, 0)                                                                      \
    X(rdma_migrate_id, 1)                                                                      \
    X(rdma_bind_addr, 1)                                                                       \
    X(rdma_resolve_addr, 1)                                                                    \
    X(rdma_resolve_route, 1)                                                                   \
    X(rdma_listen, 1)                                                                          \
    X(rdma_connect, 1)                                                                         \
    X(rdma_accept, 1)                                                                          \
    X(rdma_reject, 1)                                                                          \
    X(rdma_establish, 1)                                                                       \
    X(rdma_disconnect, 0)                                                                      \
    X(rdma_get_cm_event, 1)                                                                    \
    X(rdma_ack_cm_event, 0)                                                                    \
    X(rdma_create_qp, 1)                                                                       \
    X(rdma_destroy_qp, 0)                                                                      \
    X(rdma_create_srq, 1)                                                                      \
    X(rdma_getaddrinfo, 1)                                                                     \
    X(rdma_create_ep, 1)                                                                       \
    X(rdma_init_qp_attr, 1)                                                                    \
    X(rdma_join_multicast, 1)                                                                  \
    X(rdma_leave_multicast, 0)                                                                 \
    X(rdma_set_option, 1)                                                                      \
    X(completion, 1)                                                                           \
    X(lost, 0)                                                                                 \
    X(late, 0)                                                                                 \
    X(not_ready, 0)                                                                            \
    X(cm_event, 1)

/* X(name, unit, prose) */
#define EMU_COUNTS(X)                                                                          \
    X(doorbells, "calls", "post calls of any kind with at least one work request")             \
    X(wr_send, "requests", "sends executed, with immediate or not")                            \
    X(wr_write, "requests", "RDMA writes")                                                     \
    X(wr_write_imm, "requests", "RDMA writes with immediate data")                             \
    X(wr_read, "requests", "RDMA reads")                                                       \
    X(wr_atomic, "requests", "atomic operations")                                              \
    X(wr_bind, "requests", "memory windows bound")                                             \
    X(wr_local_inv, "requests", "invalidations of a window by its owner")                      \
    X(wr_recv, "requests", "receives posted to a receive queue")                               \
    X(wr_srq_recv, "requests", "receives posted to a shared receive queue")                    \
    X(wr_signalled, "requests", "work requests that requested a completion")                   \
    X(wr_inline, "requests", "work requests with inline data")                                 \
    X(wr_failed, "requests", "work requests completed with an error, without flushes")         \
    X(wr_flushed, "requests", "sends and receives flushed")                                    \
    X(bytes_send, "bytes", "payload of sends")                                                 \
    X(bytes_write, "bytes", "payload of RDMA writes")                                          \
    X(bytes_read, "bytes", "payload of RDMA reads")                                            \
    X(bounced, "messages", "sends whose payload was copied through the shared segment")        \
    X(chained, "requests", "RDMA writes moved together with others of the same post")          \
    X(cqes, "completions", "completions returned by ibv_poll_cq")                              \
    X(polls_empty, "calls", "ibv_poll_cq calls that found nothing")                            \
    X(comp_events, "events", "completion events fetched")                                      \
    X(async_events, "events", "asynchronous events raised")                                    \
    X(rnr_events, "events",                                                                    \
      "attempts of this process that found no posted receive at the peer")                     \
    X(retries, "events", "attempts that the peer did not answer")                              \
    X(datagrams_lost, "datagrams",                                                             \
      "datagrams of this process dropped because no receive was posted")                       \
    X(cq_overruns, "events", "completions lost because a completion queue was full")           \
    X(reg_bytes_total, "bytes", "bytes registered since the start")                            \
    X(pinned_bytes, "bytes", "bytes registered now")                                           \
    X(pinned_peak, "bytes", "peak of pinned_bytes")                                            \
    X(live_context, "objects", "open device contexts")                                         \
    X(live_pd, "objects", "protection domains")                                                \
    X(live_mr, "objects", "memory regions")                                                    \
    X(live_mw, "objects", "memory windows")                                                    \
    X(live_channel, "objects", "completion channels")                                          \
    X(live_cq, "objects", "completion queues")                                                 \
    X(live_srq, "objects", "shared receive queues")                                            \
    X(live_qp, "objects", "queue pairs")                                                       \
    X(live_ah, "objects", "address handles")                                                   \
    X(live_cm_channel, "objects", "rdma_cm event channels")                                    \
    X(live_cm_id, "objects", "rdma_cm identifiers")                                            \
    X(live_cm_event, "objects", "rdma_cm events fetched and not acknowledged")                 \
    X(connects, "events", "connections established by rdma_cm")                                \
    X(rejects, "events", "REJECTED events delivered")                                          \
    X(disconnects, "events", "DISCONNECTED events delivered")                                  \
    X(faults_injected, "events", "failures injected by EMUVERBS_FAIL")                         \
    X(peers_died, "processes", "dead peers cleaned up")                                        \
    X(drains, "waits", "waits until memory has no users")                                      \
    X(drain_checks, "looks", "checks for users of memory during drains")                       \
    X(drains_given_up, "waits", "of drains: ended although a running user remained")           \
    X(posters_given_up, "waits",                                                               \
      "waits for a posting thread of a queue pair that ended although the thread is running")  \
    X(ends_checked, "looks", "checks whether a delayed disconnection can be reported")         \
    X(trace_lost, "lines", "lines that could not be written to EMUVERBS_TRACE")                \
    X(service_rounds, "rounds", "wake-ups of the service thread")                              \
    X(sweep_calls, "calls", "calls that EMUVERBS_FAIL=K numbers")

enum emu_call {
#define X(name, sweep) CALL_##name,
    EMU_CALLS(X)
#undef X
        CALL_COUNT
};

enum emu_count {
#define X(name, unit, prose) COUNT_##name,
    EMU_COUNTS(X)
#undef X
        COUNT_COUNT
};

#define EMU_MAX_DEVICES 8u
#define EMU_MAX_PORTS   4u /* of a device */

/* Counters of each port: X(name, prose). */
#define EMU_PORT_COUNTS(X)                                                                     \
    X(requests, "work requests posted to queue pairs of the port")                             \
    X(bytes, "payload of sends, writes, reads and atomic operations of the port")

enum emu_port_count {
#define X(name, prose) PORT_COUNT_##name,
    EMU_PORT_COUNTS(X)
#undef X
        PORT_COUNT_COUNT
};

struct emu_counters {
    _Atomic uint64_t call[CALL_COUNT];
    _Atomic uint64_t count[COUNT_COUNT];
    /* by port number; row 0 is unused, because the first port's counts are the remainder */
    _Atomic uint64_t port[EMU_MAX_DEVICES * EMU_MAX_PORTS][PORT_COUNT_COUNT];
};

/* Counters of this process, never NULL; in the segment once it exists. The pointer may change
 * while other threads count. */
extern struct emu_counters *_Atomic emu_counters;

static inline void emu_count(enum emu_count c, uint64_t n)
{
    atomic_fetch_add_explicit(&emu_counters->count[c], n, memory_order_relaxed);
}
static inline void emu_uncount(enum emu_count c, uint64_t n)
{
    atomic_fetch_sub_explicit(&emu_counters->count[c], n, memory_order_relaxed);
}

/* Counts for a port. The first port, used by most processes, has no counters and no cost. */
static inline void emu_count_port(uint8_t number, enum emu_port_count c, uint64_t n)
{
    if (number)
        atomic_fetch_add_explicit(&emu_counters->port[number][c], n, memory_order_relaxed);
}

/* Copies the counters to `to` and uses them there. Not thread-safe. */
void emu_counters_move(struct emu_counters *to);

/* Returns a counter or number of calls by name, or a port's counter, such as "0.1 bytes" for
 * the first port of the first device; -1 for an unknown name. */
int64_t emu_counters_find(const struct emu_counters *c, const char *name);

/* Writes all counters as one JSON object, with process ID and program. */
void emu_counters_json(const struct emu_counters *c, int pid, const char *program, FILE *out);

/* Prints the table of names, units and descriptions. */
void emu_counters_help(FILE *out);

#endif
