/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fabric.h - the interface between the engine and a fabric (a network).
 *
 * A fabric owns devices, connections ("links"), receive buffers, send buffers and queues.  The
 * engine owns messages, matching, credits, protocols and the memory of operations.  The
 * interface has three things: messages of at most one receive buffer, transfers (RDMA of many
 * pieces followed by one notification), and events.
 *
 * Threads.  The engine calls every function with its lock held, except wait(), wake(), reg()
 * and dereg(), which any thread calls without the lock, concurrently with everything else.
 * Threads of a fabric (a resolver) may not call the engine: their results become events of a
 * later poll().  A fabric never calls the engine back.
 *
 * Blocking.  Only wait() waits for an event.  Creating and freeing a link may take as long as
 * the driver takes for its queues, and rx_reserve() and tx_get() may register buffers; all
 * other threads wait meanwhile.
 *
 * Order on one link.  Messages arrive in the order in which they were queued.  Immediates and
 * messages behind a transfer (RME_NOTIFY_MSG) are part of that order.  Transfers with the same
 * `imm` belong to one operation: the notification of a transfer arrives after all its data is
 * in place (for a read: here), after the data of all earlier transfers of the operation, and
 * after their notifications.
 *
 * Flow control.  A message consumes one receive buffer of the peer, and an immediate may (on
 * some networks none does).  The engine sends no more than the peer has granted, and grants
 * no more than rx_reserve() advertised and rx_return() gave back: between two engines a receive
 * buffer is always posted.  The engine disconnects a peer that exceeds its grant.  Until then
 * messages of other links may wait where links share buffers; the links stay up.
 *
 * Failure.  Every failure of a link ends in exactly one RME_EV_LINK_DOWN.  After that event the
 * device accesses no memory for the link any more, neither for posted work nor by keys that the
 * peer holds.  Queued messages and transfers end without an event of their own; the engine
 * accounts for them at LINK_DOWN.  link_free() releases the link.  A request that ends before
 * its answer has no LINK_DOWN: link_accept() fails.
 */
#ifndef RME_FABRIC_H
#define RME_FABRIC_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include "rme.h"

struct rme_fabric; /* one open fabric; defined by the fabric */
struct rme_link;   /* one connection; defined by the fabric */
struct rme_options;
struct rme_stats;

/* Arguments of open().  All pointers stay valid until close(). */
struct rme_fabric_config {
    const struct rme_addr
        *listen; /* NULL: accept no links; parts by rme_addr_part() (addr.h) */
    bool bind_specific;
    /* bytes of a receive buffer and of a send buffer, the limit of a message */
    uint32_t rx_size;
    /* limit of registered bytes of the process; 0: unknown */
    uint64_t budget;
    /* values by rme_option_*() (options.h); the fabric's own rows are among them */
    const struct rme_options *options;
    struct rme_stats *stats; /* counters (stats.h) */
    void (*log)(void *arg, enum rme_log_level level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    void *log_arg;
};

/* Memory is copied up to `base` bytes, plus `segment` bytes for each further segment, plus
 * `request` bytes for each further work request of the use in place. */
struct rme_pack_limit {
    uint32_t base, segment, request;
};

/* Limits by which the planner chooses, for one kind of device. */
struct rme_limits {
    struct rme_pack_limit once; /* memory that is registered for one use */
    struct rme_pack_limit list; /* a list whose registration stays cached */
    uint32_t read;              /* write requests that cost as much as a read request, >= 1 */
    /* the same for binding and invalidating a memory window, 0: 2; for a registration of its
     * own, where there are no windows */
    uint32_t window, each;
    /* bytes whose two copies take as long as the control messages of a rendezvous; 0: 32 KiB go
     * through the ring, and memory stays registered from 64 KiB on */
    uint32_t control;
    bool offloads; /* transfers take no time of a processor: loads of both sides do not count */
};

/* Limits of an adapter that needs no registration (plan.c). */
extern const struct rme_limits rme_limits_unregistered;

/* Capabilities of a fabric; constant while open. */
struct rme_caps {
    uint32_t max_sge;      /* local segments of one piece of a transfer (>= 1) */
    uint32_t max_read_sge; /* the same for reads */
    /* a local segment costs the device as much as a separate piece */
    bool segments_apart;
    uint64_t max_piece; /* bytes of one piece */
    uint64_t max_regs;  /* the device's limit of registrations */
    bool has_read;      /* transfers may be reads */
    bool slow_read;     /* reads have much less bandwidth than writes */
    /* a message may follow a read (RME_NOTIFY_MSG) and delays no later read; otherwise the
     * engine sends a message for itself when the read is complete */
    bool chains_reads;
    const struct rme_limits *limits; /* NULL: those of an adapter (plan.c) */
    /* the device checks no keys: a malicious peer can access all memory of the process */
    bool open_memory;
    /* size of the receive queue that all links share, whose buffers are never withdrawn;
     * 0: a receive queue for each link */
    uint32_t shared_rx;
    bool keeps_rx; /* posted receives of a link cannot be withdrawn */
    /* memory windows that mw_bind() can have open at a time, over all links; 0: none, and the
     * rkey of a registration gives every peer access to all of it */
    uint32_t mws;
    /* a message may close a window of its receiver (tx_send_closing(), rme_rdma_op.closes), and
     * one of a peer closes a window here */
    bool closes;
    /* only without windows: register memory for one operation alone before a peer gets its
     * rkey */
    bool register_each;
    /*
     * RME_ACCESS_DEMAND is supported: user memory is registered without pinning, and each
     * access uses the mapping of that moment, so a registration is never stale.  An access to
     * unmapped or protected memory ends the link.  Memory that windows are bound to must be
     * writable, also for reads.
     */
    bool on_demand;
    /* `unsignalled` transfers are unsignalled: their completions may come late.  An
     * acknowledgement of the peer implies local completion: the device reads that memory no
     * more, except for a retransmission, which the peer discards as a duplicate. */
    bool unsignalled;
    /* link_probe() finds out quickly whether a silent peer is alive: call it after look_ms of
     * silence while an answer is outstanding, then after twice that, until the keepalive probe
     * is due; 0: with the keepalive probe only */
    uint32_t look_ms;
};

/* A registration.  Keys are opaque to the engine and never both 0; rkey is for mw_bind(), or
 * for the peer on devices without windows. */
struct rme_mr {
    void *handle;
    uintptr_t base;
    size_t length;
    uint64_t lkey;
    uint64_t rkey;
    bool demand; /* of the accounting of pinned bytes (pin.h) */
};

/* local read: source of sends and writes */
#define RME_ACCESS_LOCAL        0u
#define RME_ACCESS_LOCAL_WRITE  1u /* sink of reads and receives */
#define RME_ACCESS_REMOTE_READ  2u
#define RME_ACCESS_REMOTE_WRITE 4u /* implies LOCAL_WRITE */
#define RME_ACCESS_DEMAND       8u /* on-demand paging (caps.on_demand) */

/* Memory that one peer may access: a part of one registration. */
struct rme_range {
    void *base;
    uint64_t length; /* 0: no access */
    uint64_t rkey;   /* of the registration */
    uint64_t key;    /* out: for the peer */
    void *window;    /* private to the fabric */
};

/* A local segment. */
struct rme_sge {
    void *base;
    uint64_t length;
    uint64_t lkey;
};

/* One contiguous remote range against up to max_sge local segments of the same total length:
 * one work request. */
struct rme_rdma_seg {
    uint64_t raddr;
    uint64_t rkey;
    const struct rme_sge *seg;
    uint32_t nseg;
};

enum rme_notify {
    RME_NOTIFY_NONE,
    RME_NOTIFY_IMM, /* writes only: the peer gets RME_EV_IMM with `imm` */
    /* the message `tx` (tx_length bytes in a buffer of tx_get) follows the data; of a read only
     * with caps.chains_reads */
    RME_NOTIFY_MSG,
};

/*
 * A transfer, filled in by the engine.  The structure and all that it points to stay valid
 * until RME_EV_RDMA_DONE or LINK_DOWN. npiece may be 0: only the notification is sent.
 */
struct rme_rdma_op {
    bool read;
    enum rme_notify notify;
    /* a write without a completion of its own (unsignalled), only with caps.unsignalled: the
     * completion comes with that of a later transfer which notifies and is not unsignalled */
    bool unsignalled;
    uint32_t imm; /* number of the operation, also without IMM */
    void *tx;
    size_t tx_length;
    uint64_t closes; /* key of the peer's window that `tx` closes on its arrival; 0: none */
    const struct rme_rdma_seg *piece;
    uint32_t npiece;
    uint64_t bytes; /* of all pieces; for counters */
    void *owner;    /* private to the engine */
    struct {        /* private to the fabric, from rdma_op() until the completion */
        struct rme_rdma_op *next;
        uint32_t at;
        uint64_t mark;
        uint8_t what;
    } fabric;
};

enum rme_event_type {
    /* a peer requests a link: call link_accept() or link_reject(); hello is valid until the
     * next poll() */
    RME_EV_LINK_REQUEST,
    RME_EV_LINK_UP,   /* established; on the active side hello is the peer's answer */
    RME_EV_LINK_DOWN, /* see above; error and, after a reject, the reject's hello data */
    RME_EV_RECV,      /* a message; the engine owns the buffer until rx_return() */
    /* an immediate of a peer's write; its receive buffer is reposted already */
    RME_EV_IMM,
    /* a transfer is complete locally: data in place (read) or its memory reusable (write) */
    RME_EV_RDMA_DONE,
    RME_EV_TX_ROOM, /* tx_get() of this link returned NULL before, and would succeed now */
    RME_EV_MW_INVALIDATED, /* mw_invalidate() is complete */
};

struct rme_event {
    enum rme_event_type type;
    struct rme_link *link;
    void *owner;         /* argument of link_connect or link_accept; NULL for LINK_REQUEST */
    int error;           /* LINK_DOWN: negative errno; -ESHUTDOWN after link_disconnect() */
    const char *why;     /* LINK_DOWN: details of the error, or NULL; constant */
    const void *hello;   /* LINK_REQUEST, LINK_UP (active), LINK_DOWN after reject */
    size_t hello_length; /* may include padding of the transport */
    void *data;          /* RECV */
    size_t length;       /* RECV */
    void *rx;            /* RECV: token for rx_return() */
    uint32_t imm;        /* IMM */
    struct rme_rdma_op *rdma_op; /* RDMA_DONE */
    void *closed;                /* CLOSED: the owner argument of mw_invalidate() */
};

#define RME_PATH_TEXT 512

struct rme_fabric_ops {
    /* RME_RELEASE of the build, and the size of this table.  Both come first: a process with
     * two method libraries may have an engine of another build, which reads these two alone. */
    const char *release;
    size_t size;
    const char *scheme; /* "ib": addresses are "ib://…" */
    /* the fabric's own options, ended by a row without a name; may be NULL */
    const struct rme_option_row *options;

    /*
     * Opens devices and listens on the parts of config->listen that have the fabric's scheme.
     * Logs one line for each failure, with cause and remedy.  -ENODEV: no device.  close() is
     * called after all links are freed and all registrations ended.
     */
    int (*open)(const struct rme_fabric_config *config, struct rme_fabric **out);
    void (*close)(struct rme_fabric *f);
    const struct rme_caps *(*caps)(const struct rme_fabric *f);
    /* Returns the port of the first listening part, 0 for none.  NULL: addresses have no
     * ports. */
    uint16_t (*listen_port)(const struct rme_fabric *f);

    /*
     * Registers memory (no lock held).  -ENOMEM: limit of locked memory or of the device;
     * -EACCES: the memory does not permit the access.  Logs nothing.
     */
    int (*reg)(struct rme_fabric *f, void *base, size_t length, unsigned access,
               struct rme_mr *mr);
    void (*dereg)(struct rme_fabric *f, struct rme_mr *mr);

    /*
     * Starts a link to part `part` of addr.  Posts `rx` receive buffers before the peer can see
     * the request.  Returns with *out set before any name is resolved; LINK_UP or LINK_DOWN
     * follows (-ECONNREFUSED no listener, -EHOSTUNREACH no route or address, -ENONET unknown
     * host name, -ETIMEDOUT, -EACCES rejected by the peer's engine with hello data, -EBUSY the
     * peer's backlog is full: try again).  The engine limits the time by link_disconnect().
     */
    int (*link_connect)(struct rme_fabric *f, const struct rme_addr *addr, int part,
                        const void *hello, size_t length, uint32_t rx, void *owner,
                        struct rme_link **out);
    int (*link_accept)(struct rme_link *link, const void *hello, size_t length, uint32_t rx,
                       void *owner);
    /* Rejects a request, with data for the peer, and frees the link. */
    void (*link_reject)(struct rme_link *link, const void *hello, size_t length);
    /* Starts to disconnect a link in any state.  LINK_DOWN follows soon from a later poll(),
     * also with a silent peer.  The engine calls wake() after this and after link_connect(). */
    void (*link_disconnect)(struct rme_link *link, int error);
    /*
     * Checks whether the peer is alive: work is pending and the peer has been silent.  Needed
     * on networks that report a dead peer only to a sender, because this side may lack a credit
     * for a message.  LINK_DOWN follows from a later poll() if the peer is dead.  NULL: the
     * device reports dead peers.
     */
    void (*link_probe)(struct rme_link *link);
    /* Frees a link, after its LINK_DOWN. */
    void (*link_free)(struct rme_link *link);
    /* Returns the peer's address as text, valid from LINK_REQUEST or LINK_UP on: "host:port".
     * All connections from a machine's address have the same host. */
    const char *(*link_peer)(const struct rme_link *link);
    /* Describes the path of an established link (device, port, rate, MTU, GID) as text for
     * users; RME_PATH_TEXT bytes suffice.  NULL: not supported. */
    void (*link_path)(const struct rme_link *link, char *text, size_t size);

    /* Without windows: returns the key by which the peer of this link accesses the registration
     * with `rkey`.  NULL: `rkey`, for every peer. */
    uint64_t (*link_key)(struct rme_link *link, uint64_t rkey);

    /* Posts n more receive buffers for the link.  -ENOSPC, -ENOMEM: unchanged. */
    int (*rx_reserve)(struct rme_link *link, uint32_t n);
    /* Withdraws n receive buffers of an idle link; not with caps.keeps_rx. */
    void (*rx_release)(struct rme_link *link, uint32_t n);
    /* Reposts a receive buffer, before any message that is queued later on that link is sent.
     * Returns true if a flush() has to follow. */
    bool (*rx_return)(struct rme_fabric *f, void *rx);

    /* Allocates a send buffer of rx_size bytes, freed by tx_send(), rdma_op() or tx_put().
     * NULL:  none is free now, RME_EV_TX_ROOM follows. */
    void *(*tx_get)(struct rme_link *link);
    void (*tx_put)(struct rme_link *link, void *tx);
    /* Queues the message of `length` bytes in tx, and takes the buffer.  Fails by LINK_DOWN
     * only. */
    void (*tx_send)(struct rme_link *link, void *tx, size_t length);
    /* The same; on its arrival the message closes the window of the peer with this key, which
     * must be open: otherwise the link ends.  With caps.closes. */
    void (*tx_send_closing)(struct rme_link *link, void *tx, size_t length, uint64_t key);
    /* Sends a message that consists of a header and of the caller's memory, which is copied, at
     * once.  False: nothing was sent, because work is queued before, or no buffer is free; use
     * tx_get() and tx_send().  NULL: always use these. */
    bool (*send_now)(struct rme_link *link, const void *head, size_t head_length,
                     const void *base, size_t length);
    /* Queues a transfer; the fabric posts it as its send queue and read depth permit.  Fails by
     * LINK_DOWN only. */
    void (*rdma_op)(struct rme_link *link, struct rme_rdma_op *x);

    /*
     * With caps.mws: binds windows to n ranges for the peer of this link alone, in one
     * direction: RME_ACCESS_REMOTE_READ or RME_ACCESS_REMOTE_WRITE, which the registration must
     * permit.  Queued in the order of messages: a message that is queued later may carry the
     * keys.  -EAGAIN: no window is free, none was bound; try again after RME_EV_MW_INVALIDATED.
     * Any other error is treated as the loss of the link.
     */
    int (*mw_bind)(struct rme_link *link, struct rme_range *range, uint32_t n, unsigned access);
    /*
     * Invalidates the windows of ranges.  RME_EV_MW_INVALIDATED with `owner` follows: from then
     * on the keys are invalid and no access is in flight.  The memory must stay registered
     * until then, or until LINK_DOWN, which replaces RME_EV_MW_INVALIDATED.  True: messages of
     * the peer have closed all of them, and no event follows.
     */
    bool (*mw_invalidate)(struct rme_link *link, struct rme_range *range, uint32_t n,
                          void *owner);

    /* Posts all queued work to the device, with one doorbell for each link. */
    void (*flush)(struct rme_fabric *f);

    /* Returns up to max events, 0 for none.  Handles connection and asynchronous events,
     * too. */
    int (*poll)(struct rme_fabric *f, struct rme_event *events, int max);
    /* Requests a notification of the next event.  The engine polls once more before wait(). */
    int (*arm)(struct rme_fabric *f);
    /* Sleeps until a notification, wake() or the timeout (no lock held). */
    void (*wait)(struct rme_fabric *f, int timeout_ms);
    /* Ends the current or the next wait().  The unmap monitor calls, too, while other threads
     * may be in munmap(): allocates nothing, and takes no lock whose holders allocate or free
     * memory. */
    void (*wake)(struct rme_fabric *f);
    /* Returns the ms until the fabric needs a poll(), for timers or events without a
     * notification; -1: never. */
    int (*deadline)(struct rme_fabric *f);
};

#endif
