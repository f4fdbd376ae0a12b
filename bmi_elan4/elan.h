/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * elan.h - internals of the Elan4 fabric.
 *
 * Files, from the top; a file does not use files above it:
 *
 *   fabric.c    open, close, function table     poll.c      one poll, timeouts, leaving
 *   rx.c        received packets, in order      handshake.c connection setup, queries
 *   refuse.c    refused DMAs                    link.c      links and receive buffers
 *   move.c      send queues and transfers       tx.c        packets
 *   account.c   buffers held by processes       event.c     events of a poll, sleeping
 *
 * All files have nic.h, and compat.h by that.
 *
 * The engine's lock protects everything except the descriptors of wait() and wake().  fabric.h
 * describes the elan_op_*() functions.  An int result is 0 or a negative errno unless stated
 * otherwise.
 */
#ifndef BMI_ELAN4_ELAN_H
#define BMI_ELAN4_ELAN_H

#include <stdatomic.h>

#include "base/addr.h"
#include "base/list.h"
#include "bmi_elan4/conn_info.h"
#include "bmi_elan4/nic.h"
#include "bmi_elan4/packet.h"
#include "bmi_elan4/servers.h"
#include "bmi_elan4/share.h"
#include "fabric.h"
#include "base/options.h"
#include "base/stats.h"
#include "base/timer.h"

#define ELAN_HELLO_MAX   512
#define ELAN_LINKS       4096  /* maximum links of a process */
#define ELAN_WINDOW      64    /* maximum packets of a link in flight, a power of two */
#define ELAN_HELD        16384 /* maximum packets of a process that overtook others */
#define ELAN_READS       78    /* maximum read requests of a link that are not complete */
#define ELAN_RESTLESS_MS 1
#define ELAN_DRAIN_MS    300 /* time for a link to end in order, before its peer is silent */
#define ELAN_CHECK_MS    25  /* interval of checks of a peer that accepts no messages */
/* age at which a server's bootstrap server is queried, and interval of queries */
#define ELAN_ASK_MS  500
#define ELAN_CALL_MS 2000 /* timeout of a query */
/* answers of a bootstrap server after which a stuck queue counts as unreachable */
#define ELAN_ANSWERS 2
/* buffers of unfinished DMAs to one node at which new links with the node are refused */
#define ELAN_KEPT_MAX 1024

/* Process, and its link; `generation` and `number` are 0 if not known. */
struct elan_peer {
    unsigned vp;
    E4_Addr queue;
    uint64_t generation;
    uint32_t number;
};

/* Returns true for the same process, on any link. */
static inline bool elan_same(const struct elan_peer *a, const struct elan_peer *b)
{
    return a->vp == b->vp && a->generation == b->generation;
}

/* Base of a buffer and of a transfer: memory that a DMA may use after the end of its link. */
struct elan_dma {
    struct list_head next; /* free, or an orphan */
    bool is_move;
    bool kept;  /* an orphan in quarantine */
    bool ended; /* an orphan: reads by the interface of a dead process */
    struct elan_peer to;
    struct elan_share *share; /* that it is taken from; NULL: none */
    int64_t since; /* ms; when first seen without landing; 0: not yet.  With a link in observed
                    * time (f->watched), of an orphan by the clock */
};
enum { ELAN_TX, ELAN_MOVE, ELAN_POOLS };

/* Entry of a link's queue: a message, or a transfer with its message, immediate, or nothing.  A
 * message, of one or several packets, has a buffer in main memory with an event in SDRAM. */
struct elan_tx {
    struct elan_dma d;
    struct list_head next; /* in one of the link's lists */
    uint8_t *at;           /* a header and data, then further packets */
    E4_Event *event;       /* NULL: no buffer */
    volatile E4_uint64 *landed;
    uint32_t length;       /* bytes of the message */
    uint32_t seq, packets; /* when sent: first sequence number, and count */
    uint32_t arg;
    uint8_t kind;
    struct rme_rdma_op *x;  /* NULL: a message only */
    struct elan_move *move; /* of x, once started */
    uint32_t piece, seg;    /* position of the next DMA of x */
    uint64_t ahead;         /* bytes of that piece that were started */
};

/* Transfer in progress: events, and chains that end in a packet to this process. */
struct elan_move {
    struct elan_dma d;
    struct list_head next; /* in moves of a link */
    struct rme_link *link; /* NULL: free, or link gone */
    struct rme_rdma_op *x;
    struct elan_tx *note;             /* message or immediate behind the data, or NULL */
    uint8_t *sdram;                   /* holds the following: */
    E4_Event *data, *notified;        /* events: all data is in place; the peer is notified */
    uint8_t *note_chain, *self_chain; /* commands that the events copy to the ports */
    E4_Addr note_port, self_port;
    uint8_t *self, *imm; /* packets to this process, and of an immediate */
    uint32_t index, use; /* use: number of its transfers */
    uint32_t unposted;   /* DMAs */
    bool let;            /* the own set of its event is done, or posted; DONE has not come */
    uint32_t refused;    /* number of its DMAs that were refused, which set no event */
    bool reported;       /* by the peer, which may be false */
    /* refused requests for its reads, counted by the local interface */
    volatile E4_uint64 *unasked;
};

struct elan_rx {
    struct list_head next; /* free, or lent to the host */
    struct rme_link *link; /* NULL: link gone */
    _Alignas(64) uint8_t data[];
};

/* Packet that overtook others. */
struct elan_held {
    struct elan_packet p;
    uint8_t body[];
};

enum elan_report {
    /* set and not reported: the host does not know the link */
    ELAN_REPORT_REQUEST = 1 << RME_EV_LINK_REQUEST,
    ELAN_REPORT_UP = 1 << RME_EV_LINK_UP,
    ELAN_REPORT_DOWN = 1 << RME_EV_LINK_DOWN, /* alone */
    ELAN_REPORT_ROOM = 1 << RME_EV_TX_ROOM
};

enum elan_state {
    ELAN_HANDSHAKE_STATE, /* awaits the answer of the bootstrap server, then that to HELLO */
    ELAN_REQUESTED_STATE, /* the host's answer */
    ELAN_UP_STATE,
    ELAN_ENDING_STATE, /* the end of what is under way, and the peer's BYE */
    ELAN_DOWN_STATE    /* the host to free it */
};

struct rme_link {
    struct rme_fabric *f;
    struct list_head all, eventful_next, dirty_next, ready_next, sending_next, wanting_next,
        ending_next;
    bool eventful, dirty, ready, sending, wanting;
    unsigned reports; /* enum elan_report: events to be reported */
    bool passive, bye_sent, bye_in;
    bool kept; /* in quarantine: dropped, but the peer may still access local memory */
    enum elan_state state;
    int error;
    const char *why; /* additional reason, or NULL; constant */
    int64_t until;   /* ENDING: ms, deadline */
    int64_t checked; /* ms; last check of the log for the peer */
    int64_t asked;   /* ms; last query at its bootstrap server, or its answer */
    void *owner;
    uint32_t number; /* local number */
    /* HANDSHAKE: queue 0 before the bootstrap server's answer; generation by that, or by the
     * log, or 0 */
    struct elan_peer peer;
    char name[32];
    bool has_hello;
    uint8_t hello[ELAN_HELLO_MAX]; /* if `heard` the peer's, else the own one */
    size_t hello_length;
    /* for the connection data, or whether the process is the same */
    struct bmi_elan4_query call;
    /* HANDSHAKE with a server known from its bootstrap server: number of its answers since, ms
     * of the next query, 0 until HELLO is sent, and its back-off; else `pause` is 0 */
    uint32_t answers;
    int64_t due, pause;
    /* out */
    struct list_head at_host, queued, sent;
    uint32_t next_seq;
    struct list_head moves;
    E4_CmdQ *reads; /* requests */
    /* in */
    uint32_t expected;
    struct elan_held *held[ELAN_WINDOW]; /* by sequence number; NULL: none */
    struct elan_rx *filling;
    uint32_t filled, rx_debt;
    struct list_head rx_free, rx_at_host;
};

/* Account of a place in the network (account.c). */
struct elan_account {
    uint64_t generation;  /* of the process seen there last, or sent to first */
    uint32_t out, former; /* buffers held by that process, and by its predecessors */
    bool dead;            /* the process is known to be dead */
    bool bootstrap;       /* a process there has answered at a bootstrap server */
    int64_t first, last;  /* ms of the first and the last packet from it; 0: none */
};

struct rme_fabric {
    struct rme_fabric_config config;
    struct bmi_elan4_nic *nic;
    struct bmi_elan4_inbox *inbox;
    struct bmi_elan4_servers *servers;
    struct bmi_elan4_bootstrap bootstrap; /* its listener is -1 without one */
    struct bmi_elan4_conn_info conn_info;
    uint64_t traps; /* refusals handled */
    struct rme_link *table[ELAN_LINKS];
    struct elan_share places;  /* accepted links */
    struct elan_share held;    /* packets that overtook others */
    uint32_t next_index, uses; /* next free index, perhaps; part of the next link's number */
    struct list_head links, eventful, dirty, ready, sending, wanting;
    struct list_head ending; /* the last one to begin is first */
    /* there may be queries, or handshakes with servers known from their bootstrap server */
    bool asking;
    struct elan_account *account;  /* one per place */
    bool died;                     /* a process was found dead since the last check */
    uint32_t kept_moves, kept_max; /* transfers among the orphans; limit on orphans */
    /* ms after which a sleeper must poll again, as of the last poll or elan_check_soon(); 0: no
     * limit */
    _Atomic int restless;
    /* the next poll checks timeouts, descriptors of handshake.c and ending links */
    _Atomic int hint;
    /* out */
    struct list_head free[ELAN_POOLS], orphans;
    struct elan_share answers;  /* in flight to processes without a link */
    struct elan_share messages; /* of the host, on links */
    uint32_t tx_count, norphans, tx_max, tx_per_link;
    uint32_t tx_bytes, packets_max; /* maximum of a message */
    struct elan_move **move;        /* all allocated */
    uint32_t nmove;
    struct elan_share active; /* transfers at the interface */
    /* events of the poll in progress */
    struct rme_event *out;
    int used, max;
    int epoll_fd;
    uint32_t polls;
    int64_t dead_ms, quarantine_ms;
    int64_t watched, watched_at; /* observed time, ms; time of the last observation */
};

/* Add a link to a list of the fabric, and remove it: `eventful` links have events, `dirty` ones
 * something to send, `sending` ones packets in flight, `ready` ones deliverable packets,
 * `wanting` ones lack a buffer. */
#define ELAN_ADD(l, list)                                                                      \
    do {                                                                                       \
        if (!(l)->list)                                                                        \
            list_add_tail(&(l)->list##_next, &(l)->f->list);                                   \
        (l)->list = true;                                                                      \
    } while (0)
#define ELAN_REMOVE(l, list)                                                                   \
    do {                                                                                       \
        if ((l)->list)                                                                         \
            list_del_init(&(l)->list##_next);                                                  \
        (l)->list = false;                                                                     \
    } while (0)

/* Log a line; the format is a literal.  The engine limits the lines of one format and one name
 * (base/log.h), because peers can cause many. */
#define elan_log(f, level, format, ...)                                                        \
    ((f)->config.log((f)->config.log_arg, level, "%s: " format, "elan4", ##__VA_ARGS__))
#define elan_link_log(l, level, format, ...)                                                   \
    ((l)->f->config.log((l)->f->config.log_arg, level, "%s: " format, (l)->name, ##__VA_ARGS__))

/* Adds an event to those to be reported. */
static inline void elan_report_later(struct rme_link *l, enum elan_report what)
{
    l->reports |= what;
    ELAN_ADD(l, eventful);
}

/* event.c */
/* Returns the next event of the caller's array, which must have room. */
struct rme_event *elan_emit(struct rme_fabric *f, enum rme_event_type type, struct rme_link *l);
/* Delivers the link's events other than packets, as far as there is room. */
void elan_report(struct rme_link *l);
void elan_report_all(struct rme_fabric *f);
int elan_op_arm(struct rme_fabric *f);
void elan_op_wait(struct rme_fabric *f, int timeout_ms);
void elan_op_wake(struct rme_fabric *f);
/* Ends a sleep without a limit, because something must be polled for. */
void elan_check_soon(struct rme_fabric *f);
int elan_wait_open(struct rme_fabric *f);
/* Adds a descriptor, whose events set f->hint, to the epoll set. */
int elan_watch(struct rme_fabric *f, int fd, uint32_t events);

/* account.c */
/* Count a buffer for its process as taken, or as free again. */
void elan_account_charge(struct rme_fabric *f, const struct elan_dma *d);
void elan_account_give(struct rme_fabric *f, const struct elan_dma *d);
/* Returns true if that process holds as many buffers as one link may. */
bool elan_account_full(const struct rme_fabric *f, const struct elan_peer *of);
/* Returns true if the process and its predecessors hold `times` as many: at twice as many there
 * are no new links, at three times no answers to requests. */
bool elan_place_full(const struct rme_fabric *f, unsigned vp, uint32_t times);
/* Return true if a process is known to be dead, or another one has been seen at its place
 * since; or, on this node, if the log shows another owner or none. */
bool elan_account_over(const struct rme_fabric *f, const struct elan_peer *of);
bool elan_account_dead(const struct rme_fabric *f, const struct elan_peer *of);
/* Records that a process is alive, and its predecessors are dead: this or the next poll ends
 * their links. */
void elan_see(struct rme_fabric *f, const struct elan_peer *from);
/* Adds a buffer or transfer whose link is gone, or that never had a link, to the orphans. */
void elan_orphan(struct rme_fabric *f, struct elan_dma *d, bool kept);
/* Removes an orphan that no DMA uses. */
void elan_orphan_over(struct rme_fabric *f, struct elan_dma *d);
/* Returns true, and logs at a limited rate, if too many orphans of a node, or of that process,
 * are held for a new link. */
bool elan_kept_full(struct rme_fabric *f, int node, const struct elan_peer *from);

/* tx.c */
void *elan_op_tx_get(struct rme_link *l);
void elan_op_tx_put(struct rme_link *l, void *data);
void elan_op_tx_send(struct rme_link *l, void *data, size_t length);
/* Takes the buffer with this payload from the host, as a message. */
struct elan_tx *elan_tx_of(struct rme_link *l, const void *data, size_t length);
/* Queues a message, or a transfer, in the order of its link, or drops it if the link is not
 * up. */
void elan_tx_queue(struct rme_link *l, struct elan_tx *tx);
/* Assigns sequence numbers to a message, and writes the headers of its packets. */
void elan_tx_number(struct rme_link *l, struct elan_tx *tx);
/* Fills in the DMA of packet i, which sets the event. */
void elan_tx_dma(struct rme_fabric *f, const struct elan_peer *to, struct elan_tx *tx,
                 uint32_t i, const volatile void *event, E4_DMA *dma);
static inline uint32_t elan_packets(size_t length)
{
    return length <= ELAN_BODY ? 1 : (uint32_t)((length + ELAN_BODY - 1) / ELAN_BODY);
}
/* Sends a packet outside the order, to a process that may have no link; HELLO and ACCEPT have
 * the connection data of this process before the data.  Returns 0; -ENOMEM; -ENOBUFS if that
 * place holds too many, or, for an answer (REJECT), if too many to the process or its node have
 * not landed; -ECONNREFUSED: the process is dead. */
int elan_tx_alone(struct rme_fabric *f, const struct elan_peer *to, enum elan_kind kind,
                  uint32_t arg, const void *data, size_t length);
/* Sends a packet of a link, in its order, or immediately for a kind without order, whose
 * landing is watched all the same.  Returns 0 or -ENOMEM. */
int elan_tx_control(struct rme_link *l, enum elan_kind kind, uint32_t arg, const void *data,
                    size_t length);
/* Replaces each packet of a message that is not sent yet by BREAK. */
void elan_tx_break(struct rme_fabric *f, struct elan_tx *tx);
/* Posts a message to the interface. */
void elan_tx_message(struct rme_link *l, struct elan_tx *tx);
/* Reports TX_ROOM to links that lacked a buffer, when there is one. */
void elan_tx_rooms(struct rme_fabric *f);
/* Returns a buffer that may not land to its share, for others. */
void elan_tx_unshare(struct elan_tx *tx);
/* Frees an entry, with its buffer. */
void elan_tx_give(struct rme_fabric *f, struct elan_tx *tx);

/* move.c */
/* Handles DONE: the transfer `index`, in its use number `use`, is complete. */
void elan_move_done(struct rme_fabric *f, uint32_t index, uint32_t use);
/* Returns the number of refused DMAs if all others are over, else 0. */
uint32_t elan_move_stuck(const struct elan_move *m);
/* Completes the transfers of an ending link of which only refused DMAs are left; BREAK replaces
 * the notification. */
void elan_moves_complete(struct rme_link *l);
void elan_op_flush(struct rme_fabric *f);
/* Frees the buffers of packets that have landed. */
void elan_tx_landed(struct rme_fabric *f);
/* Drops queued messages and transfers that are not started; with `all`, messages in flight
 * become orphans until they land, and transfers are in quarantine. */
void elan_tx_drop(struct rme_link *l, bool all);
/* Returns true if an orphan has waited since `then`, or earlier, for that queue. */
bool elan_tx_waits(const struct rme_fabric *f, const struct elan_peer *to, int64_t then);
/* Returns true if a message has landed; DONE removes that of a transfer. */
bool elan_tx_over(const struct rme_fabric *f, const struct elan_tx *tx);
/* Returns the oldest message that has not landed, except those of transfers. */
struct elan_tx *elan_tx_flying(const struct rme_link *l);
/* Frees all buffers and transfers. */
void elan_tx_close(struct rme_fabric *f);

/* link.c */
int elan_op_rx_reserve(struct rme_link *l, uint32_t n);
void elan_op_rx_release(struct rme_link *l, uint32_t n);
bool elan_op_rx_return(struct rme_fabric *f, void *rx);
/* Allocates a link with a number, in the state DOWN; NULL: no memory or table full. */
struct rme_link *elan_link_new(struct rme_fabric *f);
/* Sets the state of a link; the only function that does, with a probe. */
void elan_link_step(struct rme_link *l, enum elan_state state);
/* Ends the link: only LINK_DOWN follows. */
void elan_link_down(struct rme_link *l, int error);
/* Starts the end of a link that is up; others are down. */
void elan_link_end(struct rme_link *l, int error);
/* Aborts a link whose peer violated the protocol; `why` is logged. */
void elan_link_broken(struct rme_link *l, const char *why);
/* Handles a peer that is known to be dead. */
void elan_link_dead(struct rme_link *l);
/* Handles BYE of the peer. */
void elan_link_bye(struct rme_link *l);
void elan_op_free(struct rme_link *l);

/* refuse.c */
/* Handles the traps of the interface. */
void elan_refusals(struct rme_fabric *f);
/* Ends a link with a refused read request.  Returns false if the link has none. */
bool elan_unasked(struct rme_link *l);
/* Handles a peer's report of refusals. */
void elan_refused_there(struct rme_link *l, const struct elan_packet *p, const uint8_t *body);

/* handshake.c */
int elan_op_connect(struct rme_fabric *f, const struct rme_addr *addr, int part,
                    const void *hello, size_t length, uint32_t rx, void *owner,
                    struct rme_link **out);
int elan_op_accept(struct rme_link *l, const void *hello, size_t length, uint32_t rx,
                   void *owner);
void elan_op_reject(struct rme_link *l, const void *hello, size_t length);
void elan_op_rdma(struct rme_link *l, struct rme_rdma_op *x);
void elan_op_probe(struct rme_link *l);
/* Queries the bootstrap server of a server of another node, or of one in a handshake, whether
 * it is still the process of this link, on either side; if not, the link is down. */
void elan_ask(struct rme_link *l, int64_t now);
/* Handles a packet of connection setup or end; l NULL: no such link. */
void elan_handshake_packet(struct rme_fabric *f, struct rme_link *l,
                           const struct elan_packet *p, const uint8_t *body);
/* Serves the bootstrap server, and advances queries and handshakes. */
void elan_handshake_calls(struct rme_fabric *f, int64_t now);

/* rx.c */
/* Takes packets from the input queue while the caller's array has room. */
void elan_rx_take(struct rme_fabric *f);
/* Delivers held packets whose turn has come. */
void elan_rx_ready(struct rme_fabric *f);

/* poll.c */
/* Ends all links, and waits until LEFT has reached their peers, within limits (poll.c). */
void elan_leave(struct rme_fabric *f);
int elan_op_poll(struct rme_fabric *f, struct rme_event *events, int max);
int elan_op_deadline(struct rme_fabric *f);

static inline bool elan_room(const struct rme_fabric *f)
{
    return f->used < f->max;
}

#endif
