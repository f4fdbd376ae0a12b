/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fabric.h - the seam between the engine and a fabric.
 *
 * A fabric owns devices, connections ("links"), receive buffers, send buffers and queues.  The
 * engine owns messages, matching, credits, protocols and the memory of operations.  The seam
 * speaks of three things only: messages of at most one receive buffer, transfers (RDMA of many
 * pieces with one notification behind them), and events.
 *
 * Threads.  The engine calls every function with its lock held, so a fabric needs no lock of
 * its own for them.  The exceptions are wait(), wake(), reg() and dereg(): they are called
 * without the lock, from any thread, concurrently with everything else.  A fabric may have
 * threads of its own (a resolver), but they must not call the engine: what they find out
 * becomes an event of a later poll().
 *
 * Nothing here waits for an event except wait().  Nothing here calls back.  Making and freeing
 * a link may take as long as a driver takes for its queues, and rx_reserve() and tx_get() may
 * register more buffers; all other threads wait that long.
 *
 * Order on one link.  Messages arrive at the peer in the order in which they were queued here;
 * that behind a transfer (RME_NOTIFY_MSG) is one of them, and an immediate that is `ordered`
 * has its place among them.  Transfers with the same `imm` are of one operation: the
 * notification of one arrives after all data of it, and of those of the operation that were
 * queued before it, is in place (for a read: after the data has arrived here), and after their
 * notifications.
 * Nothing else has an order: any other immediate (a report) may overtake what was queued before
 * it and be overtaken by what was queued behind it, where caps.reports_apart says so, but for
 * barrier().  Where it does not, immediates have their places among the messages, too.
 *
 * Flow control.  Each message may consume one receive buffer of the peer, and so may each
 * immediate (on a network whose remote events need none it does not, and nobody sees it).  The
 * engine never sends more than the peer has granted, and grants only what rx_reserve() promised
 * and rx_return() gave back, so among engines a receive buffer is always there.  A peer that is
 * none may take more; the engine cuts it off when it sees that.  Where buffers are shared by
 * links, the messages of others wait until then; their links live.
 *
 * Failure.  Whatever goes wrong with a link ends in exactly one RME_EV_LINK_DOWN, after which
 * the device touches no memory on behalf of that link any more: neither by what we posted nor
 * by what the peer does with keys (it has ended what was under way).  Transfers and messages
 * still queued are gone without an event of their own; the engine accounts for them at
 * LINK_DOWN.  All resources of the link are released by link_free().  A request that is over
 * before it was answered has no LINK_DOWN: the answer fails.
 */
#ifndef RME_FABRIC_H
#define RME_FABRIC_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include "rme.h"

struct rme_fabric; /* one open fabric; the fabric's own structure starts as it likes */
struct rme_link;   /* one connection; likewise */
struct rme_options;
struct rme_stats;

/* What the engine lends a fabric for its life. */
struct rme_fabric_config {
    const struct rme_addr *listen; /* NULL: accept nobody.  Parts by rme_addr_part() (addr.h) */
    bool bind_specific;
    /* bytes of one receive buffer and of one send buffer, or fewer: caps.max_message */
    uint32_t rx_size;
    /* bytes that the process may register, all in all; 0: not known */
    uint64_t budget;
    /* values by rme_option_*() (options.h); the fabric's own rows are among them */
    const struct rme_options *options;
    struct rme_stats *stats; /* counters to bump (stats.h) */
    void (*log)(void *arg, enum rme_log_level level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    void *log_arg;
};

/* What a fabric can do; constant while it is open. */
struct rme_caps {
    uint32_t max_sge;      /* local segments of one piece of a transfer (>= 1) */
    uint32_t max_read_sge; /* the same for reads */
    /* each local segment costs the device as much as a piece of its own */
    bool segments_apart;
    uint64_t max_piece; /* bytes of one piece */
    /* bytes of a buffer where they are fewer than rx_size, as the network carries no larger
     * message; 0: they are rx_size */
    uint32_t max_message;
    uint64_t max_regs; /* registrations the device admits */
    bool has_read;     /* transfers may be reads */
    bool slow_read;    /* … but move bytes much slower than writes */
    /* nanoseconds of a small message from post to arrival, where they are known to be many more
     * than an adapter takes; 0: they are not */
    uint32_t message_ns;
    /* the device checks no keys: a peer that means harm reaches all memory of the process */
    bool open_memory;
    /* all links share a queue of so many receive buffers; it keeps what it got.  0: each has
     * its own */
    uint32_t shared_rx;
    /* each link has its own, and a promise that is taken back leaves them there until messages
     * have used them, or the link ends; and links may be many, since others make them */
    bool keeps_rx;
    /* immediates that are not `ordered` have no place among the messages.  A network whose
     * notifications are numbered like messages, to be put in order, does not say so: there a
     * message is taken after the data before it, xfer_bytes_peer at most. */
    bool reports_apart;
    /* ranges that expose() can have open at a time, over all links; 0: it has none, and the key
     * of a registration opens all of it to every peer */
    uint32_t windows;
    /* no windows, and what an operation opens is to be registered for it alone */
    bool register_each;
    /*
     * User memory may be registered with RME_ACCESS_DEMAND: nothing of it is pinned, and each
     * access finds what is mapped there then, so that a registration is never of what the host
     * does not have any more.  An access that finds nothing, or may not write there, ends the
     * link; and what windows open must be writable, whatever they allow.
     */
    bool on_demand;
    /* Completions of transfers that are `quiet` may come late.  And what a peer shows that it
     * has taken needs none of ours: the device reads that memory no more, or only to send the
     * same place again, which the peer ignores. */
    bool quiet;
    /* link_probe() tells soon whether a peer is there whose answer is waited for, and is to be
     * called after so many ms of silence, and after twice that, till a probe is due; 0: only
     * then */
    uint32_t look_ms;
};

/* Nanoseconds that a transfer takes longer, */
struct rme_piece_costs {
    uint32_t segment_ns; /* for one more local segment, */
    uint32_t request_ns; /* for one more transfer that is started together with others, */
    uint32_t read_ns;    /* and how much longer than that if it reads */
};

/* A registration.  Keys are opaque to the engine, never both 0; rkey is for expose(), or goes
 * to the peer where there are no windows. */
struct rme_mr {
    void *handle;
    uintptr_t base;
    size_t length;
    uint64_t lkey;
    uint64_t rkey;
    bool demand; /* the account's (pin.h) */
};

/* read locally: source of sends and writes, no remote access */
#define RME_ACCESS_LOCAL        0u
#define RME_ACCESS_LOCAL_WRITE  1u /* sink of reads and receives */
#define RME_ACCESS_REMOTE_READ  2u
#define RME_ACCESS_REMOTE_WRITE 4u /* implies LOCAL_WRITE */
#define RME_ACCESS_DEMAND       8u /* its pages come on demand (caps.on_demand) */

/* Memory that is opened to one peer: a part of one registration. */
struct rme_range {
    void *base;
    uint64_t length; /* 0: nothing is opened */
    uint64_t rkey;   /* of the registration */
    uint64_t key;    /* out: for the peer */
    void *window;    /* the fabric's */
};

/* A local segment. */
struct rme_lseg {
    void *base;
    uint64_t length;
    uint64_t lkey;
};

/* One contiguous remote range against up to max_sge local segments of the same total length:
 * one work request. */
struct rme_piece {
    uint64_t raddr;
    uint64_t rkey;
    const struct rme_lseg *seg;
    uint32_t nseg;
};

enum rme_notify {
    RME_NOTIFY_NONE,
    RME_NOTIFY_IMM, /* writes only: the peer gets RME_EV_IMM with `imm` */
    /* the message `tx` (from tx_get, filled, tx_length bytes) is sent behind the data */
    RME_NOTIFY_MSG,
};

/*
 * A transfer.  Filled by the engine, which keeps it and everything it points to alive until
 * RME_EV_XFER_DONE (or LINK_DOWN).  npiece may be 0: only the notification is sent.
 */
struct rme_xfer {
    bool read;
    enum rme_notify notify;
    bool ordered; /* IMM: it has its place among the messages */
    /* only with caps.quiet, writes: nobody waits for its completion.  It comes at the latest
     * when a transfer that was queued behind it, notifies, and is not quiet, is complete. */
    bool quiet;
    uint32_t imm; /* also without IMM: which operation it belongs to */
    void *tx;
    size_t tx_length;
    const struct rme_piece *piece;
    uint32_t npiece;
    uint64_t bytes; /* of all pieces; for counters */
    void *owner;    /* the engine's */
    struct {        /* the fabric's, from xfer() until its completion */
        struct rme_xfer *next;
        uint32_t at;
        uint64_t mark;
        uint8_t what;
    } fabric;
};

enum rme_event_type {
    /* a peer wants a link; hello is valid until the next poll(); answer accept or reject
     * then */
    RME_EV_LINK_REQUEST,
    RME_EV_LINK_UP,   /* usable; on the active side hello is the peer's answer */
    RME_EV_LINK_DOWN, /* see above; error and, after a reject, the reject's hello data */
    RME_EV_RECV,      /* a message; the buffer is the engine's until rx_return() */
    /* an immediate of a peer's write; its receive buffer has been given back already */
    RME_EV_IMM,
    /* a transfer is complete locally: data in place (read) or its memory reusable (write) */
    RME_EV_XFER_DONE,
    RME_EV_TX_ROOM, /* tx_get() had returned NULL on this link and would now succeed */
    RME_EV_CLOSED,  /* what unexpose() was to close is closed */
};

struct rme_event {
    enum rme_event_type type;
    struct rme_link *link;
    void *owner;           /* what link_connect/link_accept was given; NULL for LINK_REQUEST */
    int error;             /* LINK_DOWN: negative errno, -ESHUTDOWN when we asked for it */
    const char *why;       /* LINK_DOWN: what else is known of that, or NULL; constant */
    const void *hello;     /* LINK_REQUEST, LINK_UP (active), LINK_DOWN after reject */
    size_t hello_length;   /* transports pad; the hello codec knows its own length */
    void *data;            /* RECV */
    size_t length;         /* RECV */
    void *rx;              /* RECV: token for rx_return() */
    uint32_t imm;          /* IMM */
    struct rme_xfer *xfer; /* XFER_DONE */
    void *closed;          /* CLOSED: the owner that unexpose() was given */
};

struct rme_fabric_ops {
    /* RME_RELEASE as it was built with, and the bytes of this table: builds of one release may
     * differ.  The first of all: an engine of another build, which a process with two method
     * libraries may have, reads nothing else. */
    const char *release;
    size_t size;
    /* "ib": addresses are "ib://…", options of the fabric are in `options` */
    const char *scheme;
    /* rows of its own, ended by a row without name; may be NULL */
    const struct rme_option_row *options;

    /*
     * Opens devices and, when config->listen is given, listens on all of its parts that are
     * ours.  Logs one line per failure that names cause and remedy.  -ENODEV: no device.
     * close() is called after every link is freed and every registration returned.
     */
    int (*open)(const struct rme_fabric_config *config, struct rme_fabric **out);
    void (*close)(struct rme_fabric *f);
    const struct rme_caps *(*caps)(const struct rme_fabric *f);
    /* The port that the first part listens on, 0 for none; NULL: addresses have no ports. */
    uint16_t (*listen_port)(const struct rme_fabric *f);

    /*
     * Registers memory (no lock held).  -ENOMEM: the memlock limit or the device's; -EACCES:
     * this memory cannot be opened to a peer; nothing is logged here.
     */
    int (*reg)(struct rme_fabric *f, void *base, size_t length, unsigned access,
               struct rme_mr *mr);
    void (*dereg)(struct rme_fabric *f, struct rme_mr *mr);

    /*
     * Measures what pieces cost the device, without a peer, in a few milliseconds (no lock
     * held, before there are links).  False: it cannot be known, and *out is as it was.  NULL:
     * it never can.
     */
    bool (*measure)(struct rme_fabric *f, struct rme_piece_costs *out);

    /*
     * Starts a link to part `part` of addr.  Promises `rx` receive buffers before the peer can
     * see the request.  Returns with *out set before anything is resolved; the outcome is
     * LINK_UP or LINK_DOWN (-ECONNREFUSED nobody listens, -EHOSTUNREACH no route or address,
     * -ETIMEDOUT, -EACCES rejected by the peer's engine with hello data, -EBUSY so many
     * requests wait there that this one was not taken: worth another try).  The engine bounds
     * the time with link_disconnect().
     */
    int (*link_connect)(struct rme_fabric *f, const struct rme_addr *addr, int part,
                        const void *hello, size_t length, uint32_t rx, void *owner,
                        struct rme_link **out);
    int (*link_accept)(struct rme_link *link, const void *hello, size_t length, uint32_t rx,
                       void *owner);
    /* Refuses a request, with data for the peer; the link is freed by this call. */
    void (*link_reject)(struct rme_link *link, const void *hello, size_t length);
    /* Starts to end a link in any state.  LINK_DOWN follows from a later poll, soon, also when
     * the peer is silent.  The engine ends the wait() of another thread after this, and after
     * link_connect(). */
    void (*link_disconnect)(struct rme_link *link, int error);
    /*
     * Work waits, and nothing was heard of the peer for a while. A network that says of a peer
     * only what a message finds out looks by itself whether the peer is still there: there may
     * be no credit for a message. LINK_DOWN follows from a later poll if it is not. NULL where
     * the device tells.
     */
    void (*link_probe)(struct rme_link *link);
    /* After LINK_DOWN only. */
    void (*link_free)(struct rme_link *link);
    /* The peer's address as text (host:port) and as sockaddr; valid from LINK_REQUEST or
     * LINK_UP on. */
    const char *(*link_peer)(const struct rme_link *link);
    /* struct sockaddr *, or NULL where there is none */
    const void *(*link_sockaddr)(const struct rme_link *link);
    /* Where there is none: a number that all processes of the peer's host have, and those of no
     * other host.  NULL: there is an address, or each peer counts as a host of its own. */
    uint64_t (*link_host)(const struct rme_link *link);
    /* How an established link goes through the network, in words for people; NULL: there is
     * nothing to say. */
    void (*link_path)(const struct rme_link *link, char *text, size_t size);

    /* How many transfers of so many bytes move side by side on an established link, each as
     * fast as if it were alone: the devices that it has for them.  NULL: one. */
    unsigned (*link_lanes)(const struct rme_link *link, uint64_t bytes);

    /* Where there are no windows: the key by which the peer of this link reaches what was
     * registered with `rkey`; NULL: it is `rkey`, for every peer. */
    uint64_t (*link_key)(struct rme_link *link, uint64_t rkey);

    /* Promises n more receive buffers to the link.  -ENOSPC, -ENOMEM: the promise stays as it
     * was. */
    int (*rx_reserve)(struct rme_link *link, uint32_t n);
    /*
     * Takes a promise of n buffers back (an idle link; n may be 0).  How many more than
     * promised the link still has of its own, since its device gives none back that no message
     * has used.
     */
    uint32_t (*rx_release)(struct rme_link *link, uint32_t n);
    /* Gives a received buffer back; before anything sent later on that link, the device can
     * receive into it again. */
    void (*rx_return)(struct rme_fabric *f, void *rx);

    /* A send buffer of rx_size bytes; NULL: none now, RME_EV_TX_ROOM will follow.  tx_send or
     * xfer or tx_put ends it. */
    void *(*tx_get)(struct rme_link *link);
    void (*tx_put)(struct rme_link *link, void *tx);
    /* Queues a message of `length` bytes composed in tx.  The buffer is the fabric's again.
     * Cannot fail but by LINK_DOWN. */
    void (*tx_send)(struct rme_link *link, void *tx, size_t length);
    /* Queues a transfer.  Cannot fail but by LINK_DOWN; the fabric paces it by its queue's room
     * and read depth. */
    void (*xfer)(struct rme_link *link, struct rme_xfer *x);
    /* Where reports are apart: what is queued from now on arrives behind all that was queued
     * before.  Else it may be NULL. */
    void (*barrier)(struct rme_link *link);

    /*
     * Where there are windows.  Opens n ranges to the peer of this link, and to nobody else,
     * for one direction: access is RME_ACCESS_REMOTE_READ or RME_ACCESS_REMOTE_WRITE, and the
     * registration has it.  Queued like a message: one that is queued later may carry the
     * keys.  -EAGAIN, and nothing is opened: too many are open; RME_EV_CLOSED makes room.  Any
     * other error is as if the link were lost.
     */
    int (*expose)(struct rme_link *link, struct rme_range *range, uint32_t n, unsigned access);
    /*
     * Closes ranges that expose() opened.  RME_EV_CLOSED with `owner` follows: from then on no
     * key opens them, and no access to them is under way.  Until then, or LINK_DOWN, which
     * comes without it, they stay registered.
     */
    void (*unexpose)(struct rme_link *link, struct rme_range *range, uint32_t n, void *owner);

    /* Rings the doorbells for what was queued since the last flush, one per link that has
     * anything. */
    void (*flush)(struct rme_fabric *f);

    /* Up to max events; 0 when there are none.  Handles connection and asynchronous events as
     * well. */
    int (*poll)(struct rme_fabric *f, struct rme_event *events, int max);
    /* Asks for a wake-up at the next event.  The engine polls once more after it before it
     * sleeps. */
    int (*arm)(struct rme_fabric *f);
    /* Sleeps until an event may be there, wake() is called, or the time is over (no lock
     * held). */
    void (*wait)(struct rme_fabric *f, int timeout_ms);
    /* Ends a wait(), present or next (no lock held). */
    void (*wake)(struct rme_fabric *f);
    /* Milliseconds until the fabric wants a poll(), for its own timers or for what ends no
     * wait(); -1 for never. */
    int (*deadline)(struct rme_fabric *f);
};

#endif
