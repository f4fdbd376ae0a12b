/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Inside the Elan4 fabric.
 *
 * From the top; a file uses none that uses it:
 *
 *   fabric.c  opening, closing, the table       poll.c    one poll
 *   host.c    what the host asks of a link      rx.c      packets that came, in their order
 *   greet.c   how a link begins                 refuse.c  what the interface refused
 *   check.c   links that wait for time          leave.c   telling peers that they are left
 *   ask.c     asking at a server's desk
 *   link.c    the life of a link                out.c     messages, transfers on their way out
 *   move.c    transfers                         tx.c      packets
 *   buffers.c receive buffers                   links.c   the table of links
 *   owner.c   what each process holds of ours   event.c   what the host is told
 *   wait.c    sleeping                          log.c     the log, the clock
 *
 * The engine's lock guards all of it but the descriptors of wait() and wake().
 */
#ifndef BMI_ELAN4_ELAN_H
#define BMI_ELAN4_ELAN_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "base/addr.h"
#include "bmi_elan4/exchange.h"
#include "bmi_elan4/packet.h"
#include "bmi_elan4/servers.h"
#include "bmi_elan4/share.h"
#include "fabric.h"
#include "base/options.h"
#include "base/stats.h"

#define ELAN_HELLO_MAX   512
#define ELAN_LINKS       4096 /* of one process */
#define ELAN_WINDOW      64   /* packets of a link that may be on their way, a power of two */
#define ELAN_PIECE       (UINT64_C(1) << 30)
#define ELAN_READS       78 /* read requests that a queue for them takes between two marks */
#define ELAN_RESTLESS_MS 1
#define ELAN_LOOK_MS     25 /* whether a peer that takes no messages is still there */
/* the same, asked at a server's desk; from one question to the next, too */
#define ELAN_ASK_MS  500
#define ELAN_ANSWERS 2 /* of a desk, after which a queue that takes nothing has no way */
/* buffers of unfinished DMAs to one node, with which new links are refused to it */
#define ELAN_KEPT_MOST 1024
#define ELAN_STRAYS    256 /* refusals that are remembered for peers, a power of two */

/* What a packet, or a message of several, is composed in. It is in main memory, its event in
 * SDRAM. */
struct elan_tx {
    TAILQ_ENTRY(elan_tx) next; /* of the link's lent, queued or sent ones; of the free ones */
    struct rme_link *link;     /* NULL: it has gone; then it waits among the orphans */
    uint8_t *at;               /* a header, behind it data; further packets behind both */
    E4_Event *event;
    volatile E4_uint64 *landed;
    uint32_t length;       /* of the message */
    int64_t since;         /* when it was first seen not to have landed; 0: not yet; of one
                            * with a link in f->watched, else by the clock */
    uint32_t seq, packets; /* when sent: the first number, and how many */
    uint32_t arg;
    uint8_t kind;
    /* a transfer's place in the queue, without memory of its own */
    struct rme_xfer *x;
    struct elan_tx *note;   /* the message behind it, or NULL */
    struct elan_move *move; /* when begun */
    uint32_t piece, seg;    /* begun so far */
    uint64_t skip;          /* bytes of that segment */
    uint64_t ahead;         /* bytes of that piece before it */
    bool over;              /* DONE has come */
    bool kept;              /* an orphan in quarantine */
    /* of its place alone: it was had again by what is said there, without landing */
    bool bound;
    uint64_t lost;                /* the last generation that it was for then; 0: not known */
    LIST_ENTRY(elan_tx) at_place; /* free ones of the place */
    bool answer;                  /* to somebody who has no link */
    /* where its packets go, and how many of them were refused there: they set no event */
    unsigned vp;
    E4_Addr queue;
    uint64_t generation; /* 0: not known */
    uint32_t refused;
};
TAILQ_HEAD(elan_txs, elan_tx);

/* A transfer under way: events and chains that end in a packet to ourselves. */
struct elan_move {
    TAILQ_ENTRY(elan_move) next; /* free ones, or those of a link */
    struct rme_link *link;       /* NULL: free, or its link has gone */
    struct rme_xfer *x;
    struct elan_tx *place; /* in the link's queue; NULL for a silent one that has left it */
    struct elan_tx
        *note;          /* what goes to the peer behind the data: `own`, a message's, or NULL */
    struct elan_tx own; /* room for an immediate */
    E4_Event *data, *told;            /* all data is in place; the peer has been told */
    uint8_t *note_chain, *self_chain; /* commands that the events copy to the ports */
    E4_Addr note_port, self_port;
    uint8_t *self;       /* the packet to ourselves */
    uint32_t index, use; /* use: counts its transfers */
    uint32_t before;     /* silent transfers that have to be complete first */
    int64_t since;       /* likewise when it was first seen not to have ended; 0: not yet */
    uint64_t serial;
    bool held;        /* its notification waits for them */
    bool let;         /* our own set of its event is done, or on its way */
    uint32_t refused; /* of its DMAs: they never set the event */
    /* refused requests for its reads, counted by the local interface */
    volatile E4_uint64 *unasked;
    bool busy; /* from its beginning until DONE comes, whatever becomes of its link */
    /* in quarantine: what was under way, to whom, and when it is over all the same; 0: never */
    bool kept;
    bool read;
    unsigned vp;
    uint64_t generation;
    E4_Addr queue, low, high;
    int64_t until;
    bool bound; /* of that place alone, as a packet may be */
    uint64_t lost;
    LIST_ENTRY(elan_move) at_place;
};
TAILQ_HEAD(elan_moves, elan_move);

/* A buffer or a transfer is had again without having landed at a process of that generation.
 * It may have been before; `lost` is the last of them, or 0 if one is not known. */
static inline void elan_bind(bool *bound, uint64_t *lost, uint64_t generation)
{
    if (!*bound || *lost != 0)
        *lost = generation;
    *bound = true;
}

struct elan_rx {
    struct elan_rx *next;
    struct rme_link *link; /* NULL: it has gone */
    LIST_ENTRY(elan_rx) lent;
    _Alignas(64) uint8_t data[];
};

struct elan_held {
    struct elan_packet p;
    uint8_t *body; /* NULL: the place is empty */
};

/* X(NAME, what the link waits for) */
#define ELAN_STATES(X)                                                                         \
    X(FINDING, "the answer of the server's desk")                                              \
    X(GREETING, "the answer to HELLO")                                                         \
    X(REQUESTED, "the host's answer")                                                          \
    X(UP, "nothing")                                                                           \
    X(ENDING, "the end of what is under way, and the peer's BYE")                              \
    X(DOWN, "the host to free it")

enum elan_state {
#define X(NAME, prose) ELAN_##NAME##_STATE,
    ELAN_STATES(X)
#undef X
};

struct rme_link {
    struct rme_fabric *f;
    TAILQ_ENTRY(rme_link) all, eventful_next, dirty_next, ready_next, sending_next, ending_next;
    bool eventful, dirty, ready, sending;
    bool tell_request, tell_up, tell_down, tell_room;
    bool passive, bye_sent, bye_in;
    bool placed; /* it is one of those that its process has been given */
    bool gap;    /* numbers were given out that never come to the peer */
    bool kept;   /* given up, but its peer may still reach our memory */
    bool rest;   /* among those in quarantine, which are looked at now and then */
    bool dead;   /* the peer is known to be */
    bool lost;   /* a packet in order was: of those behind it only BYE says something */
    enum elan_state state;
    int error;
    const char *why; /* what else is known of that, or NULL; constant */
    int64_t until;   /* ENDING: when it is given up */
    int64_t looked;  /* when the log was last asked about the peer */
    int64_t asked;   /* … and its desk, or when that answered */
    void *owner;
    uint32_t number; /* here */
    /* the peer */
    unsigned vp;
    E4_Addr queue;
    uint64_t generation;
    uint32_t peer_number;
    char name[32];
    bool heard;
    uint8_t hello[ELAN_HELLO_MAX]; /* the peer's when `heard`; before that, our own */
    size_t hello_length;
    struct bmi_elan4_call *call, *question; /* for its card; whether it is the same process */
    /* GREETING: of the process that its desk told of, how often that has answered since, that
     * HELLO waits until its queue takes what others sent there, and, when it took HELLO, when
     * its desk is asked next, after which pause */
    uint64_t met;
    uint32_t answers;
    bool unsaid;
    int64_t due, pause;
    /* out */
    struct elan_txs lent, queued, sent;
    uint32_t tx_used, next_seq;
    bool tx_wanted;
    struct elan_moves moves;
    uint32_t nmoves, silent;
    uint64_t serial;
    E4_CmdQ *reads;
    volatile E4_uint64 *read_mark; /* how far the queue for reads has come */
    uint64_t read_marks;
    /* in */
    uint32_t expected;
    struct elan_held held[ELAN_WINDOW];
    struct elan_rx *filling, *rx_free;
    uint32_t filled, rx_debt;
    LIST_HEAD(, elan_rx) rx_lent;
};
TAILQ_HEAD(elan_links, rme_link);

/* An address where our interface refused a DMA that was none of ours. */
struct elan_stray {
    E4_Addr at;
    enum bmi_elan4_trap_kind kind;
};

/* The account of a place in the network (owner.c). */
struct elan_owner {
    uint64_t generation;  /* of the process that was seen there last */
    uint32_t out, former; /* buffers that it has, and that those before it have */
    bool dead;            /* it is known to be */
    bool desk;            /* one of them has answered at a desk */
    int64_t stalled;      /* since when no packet has landed that it was sent; 0: not known */
    uint64_t seen;        /* the last one that packets came from; when the first and the last */
    int64_t first, last;  /* of these came */
    LIST_HEAD(, elan_tx) tx; /* free ones of the place alone */
    LIST_HEAD(, elan_move) move;
};

/* A peer that is to be told that a link was given up. */
struct elan_owed {
    TAILQ_ENTRY(elan_owed) next;
    unsigned vp;
    E4_Addr queue;
    uint64_t generation;
    uint32_t number;
};
TAILQ_HEAD(elan_owings, elan_owed);

struct rme_fabric {
    struct rme_fabric_config config;
    struct rme_caps caps;
    struct bmi_elan4_nic *nic;
    struct bmi_elan4_inbox *inbox;
    struct bmi_elan4_servers *servers;
    struct bmi_elan4_desk *desk;
    struct bmi_elan4_card card;
    uint64_t traps;     /* seen so far */
    int64_t traps_said; /* when */
    struct rme_link *table[ELAN_LINKS];
    uint32_t nonce[ELAN_LINKS];
    struct elan_share places; /* links that others asked for */
    uint32_t next_index;
    struct elan_links links, eventful, dirty, ready, sending;
    struct elan_links ending, resting;     /* those that end; and of these the silent ones */
    int64_t rested;                        /* when they were last looked at */
    uint32_t callings, wanting, greetings; /* links whose `met` is not 0 */
    struct elan_owings owed;
    /* the last of `strays`, and for each process how many of them it has been told, or NULL */
    struct elan_stray stray[ELAN_STRAYS];
    uint32_t strays;
    uint32_t *told;
    struct elan_owner *owner; /* of each place */
    bool died;                /* since the last look at them */
    /* in quarantine, without a link; buffers in all that may be */
    uint32_t kept_moves, kept_most;
    /* as of the last poll, or elan_look_soon() after it: after how many ms a sleeper is to look
     * again; 0: need not */
    _Atomic int restless;
    _Atomic int hint; /* a sleeper saw something at the descriptors of greet.c */
    /* out */
    struct elan_txs tx_free, orphans;
    struct elan_share answers; /* to who has no link; shared by nodes */
    uint32_t tx_count, norphans, tx_most, tx_per_link, packets_most;
    struct elan_move **move; /* all that were made */
    uint32_t nmove, move_room;
    struct elan_share active; /* transfers that are with the interface */
    struct elan_moves move_free;
    /* free ones of some place alone, the oldest first; and how many of each there may be */
    struct elan_txs tx_spare;
    struct elan_moves move_spare;
    uint32_t tx_spares, move_spares, spares_most;
    /* events of the poll that is under way */
    struct rme_event *out;
    int used, max;
    int epoll_fd, wake_fd;
    uint32_t polls;
    int64_t drain_ms, dead_ms, quarantine_ms, kept_said;
    int64_t watched, watched_at; /* time that links were watched; when they were last */
};

extern const struct rme_option_row elan_options[];

/* The link's server is greeted no longer. */
static inline void elan_greeted(struct rme_link *l)
{
    l->f->greetings -= l->met != 0;
    l->met = 0;
}

/* The link is among those that have something to tell, */
static inline void elan_link_eventful(struct rme_link *l)
{
    if (l->eventful)
        return;
    l->eventful = true;
    TAILQ_INSERT_TAIL(&l->f->eventful, l, eventful_next);
}

/* to send, */
static inline void elan_link_dirty(struct rme_link *l)
{
    if (l->dirty)
        return;
    l->dirty = true;
    TAILQ_INSERT_TAIL(&l->f->dirty, l, dirty_next);
}

/* under way, */
static inline void elan_tx_sending(struct rme_link *l)
{
    if (l->sending)
        return;
    l->sending = true;
    TAILQ_INSERT_TAIL(&l->f->sending, l, sending_next);
}

/* or perhaps held that can be delivered now. */
static inline void elan_link_ready(struct rme_link *l)
{
    if (l->ready || l->state == ELAN_DOWN_STATE || !l->held[l->expected % ELAN_WINDOW].body)
        return;
    l->ready = true;
    TAILQ_INSERT_TAIL(&l->f->ready, l, ready_next);
}

/* log.c */
void elan_log(struct rme_fabric *f, enum rme_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int64_t elan_now(void);

/* wait.c */
int elan_op_arm(struct rme_fabric *f);
void elan_op_wait(struct rme_fabric *f, int timeout_ms);
void elan_op_wake(struct rme_fabric *f);
/* Something waits from now on for what only a poll finds: a sleep without a limit ends. */
void elan_look_soon(struct rme_fabric *f);
int elan_wait_open(struct rme_fabric *f);
void elan_wait_close(struct rme_fabric *f);
int elan_watch(struct rme_fabric *f, int fd, uint32_t events);

/* event.c */
struct rme_event *elan_emit(struct rme_fabric *f, enum rme_event_type type, struct rme_link *l);
/* What the link has to tell but packets, as far as there is room. */
void elan_tell(struct rme_link *l);
void elan_tell_all(struct rme_fabric *f);

/* owner.c */
/* A buffer is taken for a process, or is had again. */
void elan_owner_charge(struct rme_fabric *f, unsigned vp, uint64_t generation);
void elan_owner_give(struct rme_fabric *f, unsigned vp, uint64_t generation);
/* That process has as many as one link may. */
bool elan_owner_full(const struct rme_fabric *f, unsigned vp, uint64_t generation);
/* It and those that were there before have twice as many. */
bool elan_place_full(const struct rme_fabric *f, unsigned vp);
/* Three times as many: who asks for a link is not told that there is none. */
bool elan_place_silent(const struct rme_fabric *f, unsigned vp);
void elan_owner_died(struct rme_fabric *f, unsigned vp, uint64_t generation);
bool elan_owner_dead(const struct rme_fabric *f, unsigned vp, uint64_t generation);
/* No packet to that process has landed since then; or one has landed. */
void elan_owner_stalled(struct rme_fabric *f, unsigned vp, uint64_t generation, int64_t since);
void elan_owner_resumed(struct rme_fabric *f, unsigned vp, uint64_t generation);
/* The earlier of `then`, when a packet to that process was given to the interface, and the time
 * since which none has landed. */
int64_t elan_owner_stalled_since(const struct rme_fabric *f, unsigned vp, uint64_t generation,
                                 int64_t then);
/* Another process was the last that was seen there. */
bool elan_owner_replaced(const struct rme_fabric *f, unsigned vp, uint64_t generation);
/* A process has sent something: it lives, and the former owner of its context does not. */
void elan_see(struct rme_fabric *f, unsigned vp, uint64_t generation);
/* Another process has been seen at that context for quarantine_ms: the interface has tried all
 * that it had for the former owner meanwhile, so nothing of it is under way. */
bool elan_succeeded(const struct rme_fabric *f, unsigned vp, uint64_t generation);

/* links.c */
struct rme_link *elan_link_new(struct rme_fabric *f);
struct rme_link *elan_link_of(struct rme_fabric *f, uint32_t number);
/* That process is known to be dead; on this node the log tells, by another owner or none. */
bool elan_owner_gone(struct rme_fabric *f, unsigned vp, uint64_t generation);
/* The same of a link's peer. */
bool elan_link_orphaned(struct rme_link *l);
/* There are so many buffers of unfinished DMAs to a node that no new links with any process of
 * it are to be made, or to that process; says so, now and then. */
bool elan_kept_full(struct rme_fabric *f, int node, const struct bmi_elan4_card *theirs);

/* buffers.c */
int elan_op_rx_reserve(struct rme_link *l, uint32_t n);
uint32_t elan_op_rx_release(struct rme_link *l, uint32_t n);
void elan_op_rx_return(struct rme_fabric *f, void *rx);
/* No message is delivered any more: a link may take long to end, and needs no buffers. */
void elan_rx_rest(struct rme_link *l);
/* Nothing is delivered any more; what the host has stays its own until it gives it back. */
void elan_rx_close(struct rme_link *l);
void elan_rx_forget(struct rme_link *l);

/* tx.c */
int elan_tx_make(struct rme_fabric *f, struct elan_tx *tx, size_t bytes);
void elan_tx_unmake(struct rme_fabric *f, struct elan_tx *tx);
void *elan_op_tx_get(struct rme_link *l);
void elan_op_tx_put(struct rme_link *l, void *data);
void elan_op_tx_send(struct rme_link *l, void *data, size_t length);
struct elan_tx *elan_tx_of(struct rme_link *l, void *data);
/* Headers of a message's packets; gives the numbers out. */
void elan_tx_number(struct rme_link *l, struct elan_tx *tx);
/* The DMA of the i-th packet of it, as seven dwords. */
void elan_tx_dma(struct rme_link *l, struct elan_tx *tx, uint32_t i, E4_Addr event,
                 uint64_t dma[7]);
static inline uint32_t elan_packets(size_t length)
{
    return length <= ELAN_BODY ? 1 : (uint32_t)((length + ELAN_BODY - 1) / ELAN_BODY);
}
/* A packet outside of all order, to somebody who may have no link; its body is a card, if any,
 * and data. -ENOBUFS: that place has too many. What is for a dead process is as good as sent.
 */
int elan_tx_alone(struct rme_fabric *f, unsigned vp, E4_Addr queue, struct elan_packet *p,
                  const struct bmi_elan4_card *card, const void *data, size_t length);
/* An answer to somebody who has no link. -ENOBUFS: too many such answers have not landed, of
 * that process or of its node. */
int elan_tx_answer(struct rme_fabric *f, unsigned vp, E4_Addr queue, struct elan_packet *p,
                   const void *data, size_t length);
/* The same in the order of a link. */
int elan_tx_control(struct rme_link *l, enum elan_kind kind, uint32_t arg,
                    const struct bmi_elan4_card *card, const void *data, size_t length);
/* Gives a message to the interface. */
void elan_tx_message(struct rme_link *l, struct elan_tx *tx);
/* Those who found no buffer are told when there is one. */
void elan_tx_rooms(struct rme_fabric *f);
/* A free one of its place alone. */
void elan_tx_spare(struct rme_fabric *f, struct elan_tx *tx);
/* The number of a process's node among those of the range. */
static inline unsigned elan_node_of(const struct rme_fabric *f, unsigned vp)
{
    const struct bmi_elan4_range *r = &f->nic->range;

    return vp / (unsigned)(r->high_context - r->low_context + 1);
}

/* Back to the free ones. */
static inline void elan_tx_give(struct rme_fabric *f, struct elan_tx *tx)
{
    elan_owner_give(f, tx->vp, tx->generation);
    if (tx->answer)
        elan_share_give(&f->answers, elan_node_of(f, tx->vp));
    tx->answer = false;
    tx->link = NULL;
    if (tx->bound)
        elan_tx_spare(f, tx);
    else
        TAILQ_INSERT_HEAD(&f->tx_free, tx, next);
}

/* One that belonged to the link is free again. */
static inline void elan_tx_unuse(struct rme_link *l, struct elan_tx *tx)
{
    elan_tx_give(l->f, tx);
    l->tx_used--;
}

/* move.c */
void elan_moves_close(struct rme_fabric *f);
/* Begins the transfer, or goes on with it. False: it has to wait. */
bool elan_move_issue(struct rme_link *l, struct elan_tx *place);
/* What was begun and is not all given to the interface ends with what was, and tells nobody. */
void elan_move_cut(struct rme_link *l, struct elan_tx *place);
void elan_move_done(struct rme_fabric *f, uint32_t index, uint32_t use);
void elan_move_forget(struct rme_link *l);
/* Notifications that wait for transfers which will not be complete are not sent any more. */
void elan_move_unhold(struct rme_link *l);
/* Of its DMAs some were refused and all others are over: DONE never comes. */
bool elan_move_stuck(const struct elan_move *m);
/* The peer's interface has refused a request for a read of the link. */
bool elan_move_unasked(const struct rme_link *l);
/* A DMA in quarantine was refused by that process's interface. */
void elan_move_refused(struct rme_fabric *f, unsigned vp, enum bmi_elan4_trap_kind kind,
                       E4_Addr at);
/* Those in quarantine whose time is over. */
void elan_moves_check(struct rme_fabric *f, int64_t now);
/* Nothing of the link's transfers is under way. */
bool elan_moves_over(const struct rme_link *l);

/* measure.c */
bool elan_measure(struct rme_fabric *f, struct rme_piece_costs *out);

/* out.c */
void elan_op_flush(struct rme_fabric *f);
void elan_tx_landed(struct rme_fabric *f);
/* Packets of nobody that are over are free again; `now` is 0 where time does not matter. */
void elan_tx_sweep(struct rme_fabric *f, int64_t now);
/* What is queued and not begun is forgotten; with `all` what was begun or sent is nobody's
 * until it lands. */
void elan_tx_drop(struct rme_link *l, bool all);
/* A packet that belongs to nobody has waited for ELAN_ASK_MS until that queue takes it. */
bool elan_tx_waits(const struct rme_fabric *f, unsigned vp, E4_Addr queue, int64_t now);
/* A packet to a queue of that process was refused there. False: there is none. */
bool elan_tx_refused(struct rme_fabric *f, unsigned vp, E4_Addr queue);
/* It has landed, or is a transfer that is stuck. */
bool elan_tx_over(const struct rme_fabric *f, const struct elan_tx *tx);
bool elan_tx_restless(const struct rme_fabric *f);
void elan_tx_close(struct rme_fabric *f);

/* link.c */
/* The link goes to another state; the one place that sets it, where the probe is. */
void elan_link_step(struct rme_link *l, enum elan_state state);
/* The link is over: LINK_DOWN follows, and nothing else. */
void elan_link_down(struct rme_link *l, int error);
void elan_link_end(struct rme_link *l, int error);
/* The peer takes nothing any more: it is waited for no longer, but may live and write. */
void elan_link_silent(struct rme_link *l, int64_t now);
void elan_link_broken(struct rme_link *l, const char *why);
/* The peer is known to be dead. */
void elan_link_dead(struct rme_link *l);
/* The peer says that it has no such link. */
void elan_link_nobody(struct rme_link *l);
/* The peer has said BYE, or BREAK. */
void elan_link_bye(struct rme_link *l);
void elan_link_left(struct rme_link *l);
/* An ending one is looked at now and then only. */
void elan_link_rest(struct rme_link *l);
void elan_op_free(struct rme_link *l);
/* That process has the place, so those that had it before are dead; the next poll ends their
 * links. */
void elan_owners_before(struct rme_fabric *f, unsigned vp, uint64_t generation);
/* Ends the links of processes that have been found dead. */
void elan_owners_check(struct rme_fabric *f);

/* ask.c */
/* Asks a server of another node, or one that is greeted, at its desk, whether it is still the
 * process of this link, whoever called; if not, the link is down. */
void elan_ask(struct rme_link *l, int64_t now);
/* Goes on with that. An answer that does not come says nothing. */
void elan_ask_step(struct rme_link *l, int64_t now);

/* check.c */
/* Whether an ending link has come to its end. */
void elan_links_check(struct rme_fabric *f, int64_t now);
/* Links whose messages do not land, or whose transfers do not end: their peers may be dead. */
void elan_links_overdue(struct rme_fabric *f, int64_t now);

/* leave.c */
/* The peer is told that its link is given up, now or when there is a buffer for it. */
void elan_say_left(struct rme_link *l);
/* Peers that there was no buffer for are told. */
void elan_links_tell(struct rme_fabric *f);
/* Waits until peers have what they were told last. All links are down. */
void elan_leave(struct rme_fabric *f);

/* refuse.c */
void elan_refusals(struct rme_fabric *f);
/* Ends a link with a refused request for a read; false: the link has none. */
bool elan_unasked(struct rme_link *l);
/* Tells the peer what was refused here that it has not been told. */
void elan_refusals_tell(struct rme_link *l);
/* A peer says that its interface refused something. */
void elan_refused_there(struct rme_link *l, const struct elan_packet *p, const uint8_t *body);

/* greet.c */
int elan_op_connect(struct rme_fabric *f, const struct rme_addr *addr, int part,
                    const void *hello, size_t length, uint32_t rx, void *owner,
                    struct rme_link **out);
int elan_op_accept(struct rme_link *l, const void *hello, size_t length, uint32_t rx,
                   void *owner);
void elan_op_reject(struct rme_link *l, const void *hello, size_t length);
void elan_greet_packet(struct rme_fabric *f, struct rme_link *l, const struct elan_packet *p,
                       const uint8_t *body);
void elan_greet_calls(struct rme_fabric *f, int64_t now);

/* rx.c */
void elan_rx_take(struct rme_fabric *f);
void elan_rx_ready(struct rme_fabric *f);

/* host.c */
void elan_op_disconnect(struct rme_link *l, int error);
void elan_op_probe(struct rme_link *l);
void elan_op_xfer(struct rme_link *l, struct rme_xfer *x);

/* poll.c */
int elan_op_poll(struct rme_fabric *f, struct rme_event *events, int max);
int elan_op_deadline(struct rme_fabric *f);

static inline bool elan_room(const struct rme_fabric *f)
{
    return f->used < f->max;
}

#endif
