/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Internals of the loop fabric. loop.c: hosts, events, sleeping, knobs. loop_link.c: links and
 * their buffers. loop_device.c: the device. One mutex guards the whole network of hosts.
 * Engines call with their own lock held, and the fabric never calls an engine.
 */
#ifndef TESTS_FABRIC_LOOP_INT_H
#define TESTS_FABRIC_LOOP_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include "loop.h"
#include "base/options.h"
#include "base/stats.h"

#define LOOP_NAME_MAX  64
#define LOOP_HELLO_MAX 256
#define LOOP_RX_MAX    (1u << 20) /* receive buffers of a host */

struct loop_fabric;

/* Puts a node in front of a list, or takes one out: it points to the next one, and to the
 * pointer to itself. */
#define LOOP_PUT(head, node)                                                                   \
    do {                                                                                       \
        (node)->next = (head);                                                                 \
        (node)->at = &(head);                                                                  \
        if ((node)->next)                                                                      \
            (node)->next->at = &(node)->next;                                                  \
        (head) = (node);                                                                       \
    } while (0)
#define LOOP_TAKE(node)                                                                        \
    do {                                                                                       \
        *(node)->at = (node)->next;                                                            \
        if ((node)->next)                                                                      \
            (node)->next->at = (node)->at;                                                     \
    } while (0)

/* One registration. */
struct loop_mr {
    uint64_t lkey, rkey; /* 0: the slot is free */
    uintptr_t base;
    size_t length;
    unsigned access;
    const struct rme_link *link; /* of a window: its link */
    uint32_t below;              /* of a window: slot of its registration */
};

/* An event queued for the engine. */
struct loop_event {
    struct rme_event event;
    struct loop_event *next;
    uint64_t not_before; /* RDMA_DONE: the earliest poll that may return it */
    /* RDMA_DONE of an unsignalled transfer: work that a completed signalled one must follow */
    uint64_t behind;
    uint8_t hello[LOOP_HELLO_MAX];
};

/* A received message that the engine holds. */
struct loop_rx {
    struct rme_link *link; /* NULL: the link is freed */
    struct loop_rx *next, **at;
    void *data;
};

/* A send buffer; the engine sees `data` behind it. */
struct loop_tx {
    struct loop_tx *next, **at; /* in the link's list, while the engine composes in it */
    size_t length;
    uint64_t closes; /* key of the peer's window, 0: none */
    _Alignas(64) uint8_t data[];
};

/* Work of one link for the device, in queueing order. */
struct loop_work {
    struct loop_work *next;
    struct loop_tx *tx; /* a message; NULL for a transfer */
    struct rme_rdma_op *rdma_op;
    uint32_t moved;  /* moved pieces */
    uint32_t *order; /* order in which the pieces move; NULL: as listed */
    uint64_t number; /* position among the link's work, from 1 */
    uint32_t imm;
    uint64_t *keys; /* windows to close */
    uint32_t nkeys;
    void *owner; /* owner of the CLOSED event */
    /* with a model */
    uint32_t binds; /* windows to bind, which takes the device's time alone */
    bool carried;   /* delivered, not complete */
    uint8_t awaits; /* LOOP_AWAITS_…: reports of the model */
};

/*
 * A model that takes the device's time.  Its functions run with loop_net.lock held.  Links are
 * established and ended without a model.
 */
struct loop_timing {
    /* The device has got `work` and the work behind it. */
    void (*flushed)(struct rme_link *link, struct loop_work *work);
    /* An event was queued for the host. */
    void (*notified)(struct loop_fabric *f);
};

#define LOOP_AWAITS_DATA 1 /* the data and the notification have not arrived */
#define LOOP_AWAITS_END  2 /* not complete here */

/* Begins to use a model; NULL: ends that.  No work may be in flight. */
void loop_time(const struct loop_timing *timing);
/* Reports of the model, which take the lock. */
void loop_timed_arrival(struct rme_link *link, struct loop_work *work);
void loop_timed_end(struct rme_link *link, struct loop_work *work);

/*
 * connecting  active side: the device has not seen it, or the peer has not answered
 * requested   passive side: not answered yet
 * up
 * ended       LINK_DOWN is queued or taken
 */
enum loop_state {
    LOOP_STATE_CONNECTING,
    LOOP_STATE_REQUESTED,
    LOOP_STATE_UP,
    LOOP_STATE_ENDED
};

struct rme_link {
    struct loop_fabric *fabric;
    struct rme_link *next, **at;           /* all links of the fabric */
    struct rme_link *busy_next, **busy_at; /* links with work, over all fabrics */
    struct rme_link *peer;
    enum loop_state state;
    bool request_taken; /* passive: the engine has got LINK_REQUEST */
    bool request_sent;  /* active: the device has delivered it */
    bool down_taken;
    bool lost;         /* Elan4: nothing is delivered, and no event reports the loss */
    uint32_t patience; /* Elan4: polls until the loss is detected by work in progress */
    uint32_t drain;    /* Elan4: steps for which data moves after the end was requested */
    int ending;        /* the device ends the link with this error */
    void *owner;
    char target[LOOP_NAME_MAX * 2]; /* active: host:port */
    char peer_name[LOOP_NAME_MAX * 2];
    uint8_t hello[LOOP_HELLO_MAX];           /* active: own hello data, until delivered */
    uint32_t mws;                            /* open windows */
    struct loop_work *queued, **queued_tail; /* before flush() */
    struct loop_work *work, **work_tail;     /* seen by the device */
    /* number of the newest work; of the last signalled one that is complete */
    uint64_t numbered, signalled;
    uint32_t rx_advertised, rx_ready, rx_debt;
    uint32_t tx_used;
    bool tx_wanted;
    struct loop_rx *rx_lent;
    struct loop_tx *tx_lent;
    void *model; /* belongs to the model */
};

struct loop_listener {
    char name[LOOP_NAME_MAX * 2];
    struct loop_listener *next;
};

struct loop_fabric {
    struct loop_fabric *next, **at;
    struct rme_fabric_config config;
    struct rme_caps caps;
    char name[LOOP_NAME_MAX];
    struct loop_listener *listeners;
    struct rme_link *links;
    struct loop_event *events, **events_tail; /* not polled yet */
    struct loop_event *given;                 /* returned by the last poll() */
    /* held by the engine after their link was freed */
    struct loop_rx *rx_orphans;
    uint32_t nevents;
    struct loop_mr *mrs;
    uint32_t nmrs, mrs_used, windows_used;
    uint64_t rnr; /* counted and not yet added to stats */
    uint64_t random;
    uint32_t read_depth, sq_depth, rx_total;
    uint32_t rx_unflushed; /* receive buffers returned since the last flush() */
    uint64_t late_done, polls;
    uint32_t host, hello_max;
    bool elan4; /* the rules of Quadrics Elan4 */
    bool chaos;
    bool armed, notified;
    atomic_bool woken;
    uint16_t port;
    /* of a sleep; taken after loop_net.lock; its holders neither allocate nor free memory */
    pthread_mutex_t nap;
    pthread_cond_t wakeup;
    atomic_uint kicks; /* calls of loop_kick */
    void *model;       /* belongs to the model */
};

struct loop_fault_rule {
    char name[LOOP_NAME_MAX];
    uint64_t k, times;
    int error;
};

struct loop_net {
    pthread_mutex_t lock;
    struct loop_fabric *fabrics;
    struct rme_link *busy;
    struct loop_fault_rule faults[LOOP_CALL_COUNT];
    uint64_t calls[LOOP_CALL_COUNT];
    uint64_t kill_at;      /* messages until the kill */
    uint64_t kill_at_step; /* steps until the kill */
    unsigned held;
    const struct loop_timing *timing;
    uint16_t next_port;
    struct loop_census census;
};

extern struct loop_net loop_net;

/* The following functions need loop_net.lock held, except those in the fabric's table
 * (loop_op_*). */

uint64_t loop_random(struct loop_fabric *f, uint64_t bound);
void loop_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Counts the call; returns true and the error if it has to fail. */
bool loop_faulty(const struct loop_fabric *f, enum loop_call call, int *error);
struct loop_event *loop_event_new(enum rme_event_type type, struct rme_link *link);
void loop_event_push(struct loop_fabric *f, struct loop_event *e);
void loop_event_hello(const struct loop_fabric *receiver, struct loop_event *e,
                      const void *hello, size_t length);
/* Removes a link's events from the queue (all, or of one type). */
void loop_events_drop(struct loop_fabric *f, const struct rme_link *link);
/* Ends a sleep of the host if there is a reason; loop_net.lock is not needed. */
void loop_kick(struct loop_fabric *f);
struct loop_fabric *loop_find_listener(const char *target);

void loop_busy(struct rme_link *link);
void loop_idle(struct rme_link *link);
struct rme_link *loop_link_new(struct loop_fabric *f);
void loop_link_delete(struct rme_link *link);
/* Ends the link: queues its LINK_DOWN, drops its work, and lets the device end the other
 * side. */
void loop_link_end(struct rme_link *link, int error, const void *hello, size_t length);
/* Fails a link as the network: the link ends with the error; on Elan4 it is lost. */
void loop_link_fail(struct rme_link *link, int error);
/* Fails all links of a host, as if its cables were cut. */
void loop_cut(struct loop_fabric *f);
void loop_work_free(struct rme_link *link, struct loop_work *w);
void loop_rx_give(struct rme_link *link, uint32_t n);
/* Queues work without data for the device. */
void loop_bind_later(struct rme_link *link, uint32_t binds);
/* Closes windows of a link: those of a piece of work, or all. */
void loop_mws_invalidate(struct rme_link *link, const struct loop_work *w);
/* Is the window of this key open to the link's peer? */
bool loop_mw_is_open(const struct rme_link *link, uint64_t key);
/* Closes an open window. */
void loop_mw_close(struct rme_link *link, uint64_t key);

/* Runs one step of the device. Returns false when there is nothing to do. */
bool loop_device_step(void);

int loop_op_reg(struct rme_fabric *rf, void *base, size_t length, unsigned access,
                struct rme_mr *mr);
void loop_op_dereg(struct rme_fabric *rf, struct rme_mr *mr);
int loop_op_connect(struct rme_fabric *rf, const struct rme_addr *addr, int part,
                    const void *hello, size_t length, uint32_t rx, void *owner,
                    struct rme_link **out);
int loop_op_accept(struct rme_link *link, const void *hello, size_t length, uint32_t rx,
                   void *owner);
void loop_op_reject(struct rme_link *link, const void *hello, size_t length);
void loop_op_disconnect(struct rme_link *link, int error);
void loop_op_probe(struct rme_link *link);
/* Ends a link that was lost. */
void loop_link_found_lost(struct rme_link *link);
void loop_op_link_free(struct rme_link *link);
const char *loop_op_peer(const struct rme_link *link);
int loop_op_rx_reserve(struct rme_link *link, uint32_t n);
void loop_op_rx_release(struct rme_link *link, uint32_t n);
bool loop_op_rx_return(struct rme_fabric *rf, void *rx);
void *loop_op_tx_get(struct rme_link *link);
void loop_op_tx_put(struct rme_link *link, void *tx);
void loop_op_tx_send(struct rme_link *link, void *tx, size_t length);
void loop_op_tx_send_closing(struct rme_link *link, void *tx, size_t length, uint64_t key);
void loop_op_rdma(struct rme_link *link, struct rme_rdma_op *x);
/* Returns 1 if the registration's key opens it to peers, else 0. */
unsigned loop_is_shown(const struct loop_fabric *f, const struct loop_mr *mr);
int loop_op_mw_bind(struct rme_link *link, struct rme_range *range, uint32_t n,
                    unsigned access);
bool loop_op_mw_invalidate(struct rme_link *link, struct rme_range *range, uint32_t n,
                           void *owner);
void loop_op_flush(struct rme_fabric *rf);

#endif
