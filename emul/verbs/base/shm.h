/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The memory that processes share: one segment per process, mapped by every peer.
 *
 * A process that opens the device creates one sparse memfd (the segment) and owns it. Whatever
 * a peer must see or change while this process sleeps, is stopped or has died lives in it: the
 * memory region table, the responder half of every queue pair, receive rings, completion rings,
 * and an inbox for messages of the connection manager. Peers never take a lock in it. Two kinds
 * of ring are enough:
 *
 *   message ring (struct shm_ring): many producers, one consumer (the owner). A producer takes
 * a free cell from a bitmap, fills it, and then puts its number into the word at the tail by
 * one compare-and-swap, which is the moment the message exists. Anybody may help to move the
 * tail. A producer that is stopped or killed at any point holds up nobody: it leaves at most a
 * cell that is not in the ring, which names its slot, so that the owner of the ring gets it
 * back when it learns of the death. The consumer of an empty ring may seal it: the seal is a
 * word that no producer gets past, so nothing is put into the ring any more, and who tries goes
 * on with the ring that the sealed one names.
 *
 *   receive ring (struct shm_rq): one producer (the owner, under its own private lock), many
 *     consumers (posters). A consumer copies the entry at the head and owns it if its
 *     compare-and-swap of the head succeeds; a torn copy always loses that swap.
 *
 * All counters that index rings are 64-bit and never wrap.
 */
#ifndef EMUL_VERBS_SHM_H
#define EMUL_VERBS_SHM_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emul/verbs/base/counters.h"
#include "emul/verbs/base/knobs.h"

/* A QP number is the process's slot and an index in its table: unique on the machine. */
#define EMU_QP_BITS    14
#define EMU_SLOT_BITS  10
#define EMU_MAX_QPS    (1u << EMU_QP_BITS)
#define EMU_MAX_SLOTS  (1u << EMU_SLOT_BITS)
#define EMU_MAX_CQS    16384u
#define EMU_SRQ_BITS   11
#define EMU_MAX_SRQS   (1u << EMU_SRQ_BITS)
#define EMU_MAX_CHANS  8192u
#define EMU_MAX_MRS    (1u << 18)
#define EMU_MAX_MWS    (1u << 16)
#define EMU_MAX_SGE    64u
#define EMU_MAX_MCASTS 1024u
#define EMU_MAX_FLOWS  256u
/* The table of regions: behind them windows, and then a place for the users of each SRQ. */
#define EMU_SRQ_PLACE(srq) (EMU_MAX_MRS + EMU_MAX_MWS + (srq))
#define EMU_MR_PLACES      EMU_SRQ_PLACE(EMU_MAX_SRQS)

#define EMU_BOUNCE_SLOTS 1024u

#define EMU_INBOX_ENTRIES 4096u

#define EMU_REFUSED                  16u
#define SHM_REFUSED(incarnation, id) ((incarnation) ^ (uint64_t)(id) << 32)

/*
 * A poster notes each region, window or shared receive queue that it has pinned (shm_mr.users)
 * in its own segment, so that the owner knows whom to wait for, and whom not because it died or
 * is stopped.
 */
#define EMU_PINS            1024u
#define SHM_PIN(slot, mr)   (0x80000000u | (uint32_t)(slot) << 19 | (mr))
#define SHM_PIN_SLOT(entry) ((entry) >> 19 & (EMU_MAX_SLOTS - 1))
#define SHM_PIN_MR(entry)   ((entry) & ((1u << 19) - 1))
_Static_assert(EMU_MR_PLACES <= 1u << 19, "each place can be noted");

#define EMU_SHM_MAGIC   UINT64_C(0x656d757665726273)
#define EMU_SHM_VERSION 18u

/*
 * Keys. rkeys have the first bit, lkeys have not: mixing them up is an error here as on real
 * devices. The second bit tells windows from regions. The rest is drawn at random, and contains
 * the place in the table (shm_key_index): of a region's key all thirty bits, of a window's all
 * but the last eight, which its binder chooses.
 */
#define EMU_RKEY_BIT   0x80000000u
#define EMU_WINDOW_BIT 0x40000000u

/* A ring's word: the sequence number of its place, and the cell in it + 1, or 0 while it is
 * free. */
#define RING_WORD(seq, cell) (((uint64_t)(seq) << 24) | (cell))
/* How far the word's place is ahead of place `seq`. A word has 40 bits of its place. */
#define RING_AHEAD(word, seq)                                                                  \
    ((int64_t)(((word) & ~UINT64_C(0xffffff)) - ((uint64_t)(seq) << 24)))
#define RING_CELL(word) ((uint32_t)(word)&0xffffff)
#define RING_SEAL       0xffffffu /* in place of a cell */

struct shm_ring {
    _Alignas(64) _Atomic uint64_t tail; /* next place to fill */
    _Alignas(64) _Atomic uint64_t head; /* next place to consume */
    /* from the segment's start; constant from here to stride */
    _Alignas(64) uint64_t off_words;
    uint64_t off_cells;
    uint64_t off_free; /* bitmap of cells: a set bit is a free cell */
    uint32_t mask;     /* places - 1, places a power of two */
    uint32_t shift;    /* see word_at */
    uint32_t cells;
    uint32_t stride;       /* bytes of a cell; it begins with struct shm_cell */
    _Atomic uint32_t cap;  /* how many may be unread */
    _Atomic uint64_t next; /* the ring that takes its place, from the segment's start; or 0 */
};

/* Head of a cell: the slot of the process that has taken it; 0 when free or just taken. */
struct shm_cell {
    _Atomic uint32_t owner;
};

/* One completion. Exactly one cache line. */
struct shm_cqe {
    struct shm_cell cell;
    uint32_t byte_len;
    uint64_t wr_id;
    uint64_t sq_index; /* from_sq: work request counter of the send queue; XRC: SRQ's life */
    uint64_t token;    /* else: of the poster that made it, see RX_TOKEN */
    uint32_t imm;      /* as on the wire */
    uint32_t qpn;
    uint32_t src_qp;
    uint32_t bounce; /* slot number + 1 of a payload still to be copied, or 0 */
    uint8_t status;
    uint8_t opcode;
    uint8_t wc_flags;
    uint8_t from_sq;
    uint8_t skip;   /* enum shm_skip */
    uint8_t srq;    /* enum shm_srq_use */
    uint8_t sl;     /* of a datagram */
    uint8_t source; /* number of the port that it came from */
    uint64_t time;  /* CLOCK_MONOTONIC, ns, where its queue wants it */
};
_Static_assert(sizeof(struct shm_cqe) == 64, "a completion is one cache line");

/* Whether a completion is consumed without being reported. */
enum shm_skip {
    SHM_REPORT,
    SHM_SKIP,            /* its QP is gone: it is about to leave the queue */
    SHM_SKIP_WITHOUT_SRQ /* if the XRC SRQ of its receive is gone: its writer was late */
};

/* Whose receive a completion is of. */
enum shm_srq_use {
    SHM_OF_QP,      /* the queue pair's own */
    SHM_OF_SRQ,     /* its shared receive queue's */
    SHM_OF_XRC_SRQ, /* that of the shared receive queue that the request named */
};

enum cq_armed { CQ_ARMED_NO, CQ_ARMED_SOLICITED, CQ_ARMED_ANY };

/*
 * shm_cq.armed: for what the queue is armed (enum cq_armed), the slot of who disarmed it last
 * and has not woken its owner yet (or 0), and how many times it was disarmed, which is the
 * number of its events. One word, so that nobody dies in between. A place keeps the number when
 * another queue gets it.
 */
#define CQ_ARMED_HOW(armed)  ((uint32_t)(armed)&3u)
#define CQ_ARMED_SLOT(armed) ((uint32_t)((armed) >> 2) & (EMU_MAX_SLOTS - 1))
#define CQ_ARMED_TIMES       12 /* shift */
#define CQ_DISARMED(armed, slot)                                                               \
    ((((armed) >> CQ_ARMED_TIMES) + 1) << CQ_ARMED_TIMES | (uint64_t)(slot) << 2 | CQ_ARMED_NO)
/* Nobody owes a wake-up any more. */
#define CQ_NOTIFIED(armed) ((armed) & ~((uint64_t)(EMU_MAX_SLOTS - 1) << 2))

struct shm_cq {
    _Alignas(64) _Atomic uint64_t off_ring; /* a ring that is or was the queue's: cq_ring.c */
    _Atomic uint64_t armed;                 /* see CQ_ARMED */
    _Atomic uint32_t overrun;
    _Atomic uint32_t in_use;
    _Atomic uint32_t chan; /* channel index + 1, 0 without */
    uint32_t stamps;       /* 1: completions bear the time */
};

struct shm_chan {
    _Atomic uint32_t gen; /* odd while in use; grows before the descriptor is closed */
    _Atomic int32_t fd;   /* the eventfd's number in the owner */
};

struct shm_sge {
    uint64_t addr;
    uint32_t length;
    uint32_t lkey;
};

struct shm_rwqe {
    uint64_t wr_id;
    uint32_t nsge;
    uint32_t pad;
    struct shm_sge sge[];
};

struct shm_rq {
    _Alignas(64) _Atomic uint64_t tail;
    _Alignas(64) _Atomic uint64_t head;
    uint64_t off;
    uint32_t mask;
    uint32_t stride;
    uint32_t max_sge;
    _Atomic uint32_t limit; /* SRQ: raise an event when fewer are left; 0 when disarmed */
};

/* An XRC domain: that of an inode for one device, or one that no other process has. */
struct shm_xrcd {
    uint64_t dev, ino;
};

struct shm_srq {
    struct shm_rq rq;
    uint32_t pd;
    _Atomic uint32_t in_use;
    /* Of XRC: the rest holds for who has the place pinned and finds a life. */
    _Atomic uint64_t life; /* never the same twice in a process; 0: requests cannot name it */
    struct shm_xrcd xrcd;
    uint32_t cq;
};

/*
 * A region, or a window on one: places from EMU_MAX_MRS on. The first place is never used. Of
 * the place of a shared receive queue only `users` are.
 */
struct shm_mr {
    _Atomic uint32_t key;   /* without EMU_RKEY_BIT; 0 when free, or not bound */
    _Atomic uint32_t users; /* remote operations that are using it now */
    uint32_t pd;
    uint32_t access;
    uint64_t addr; /* in the owner's address space */
    uint64_t iova; /* what work requests call it */
    uint64_t length;
    uint32_t qpn; /* only by this queue pair of the owner; 0 is any */
    uint32_t pad;
};

static inline uint32_t shm_key_index(uint32_t key)
{
    return key & EMU_WINDOW_BIT ? EMU_MAX_MRS + (key >> 8 & (EMU_MAX_MWS - 1))
                                : key & (EMU_MAX_MRS - 1);
}

/*
 * Who is executing into a responder: 0, or a token that no other execution on this machine has.
 * The owner may revoke it when the poster is stopped or dead.
 */
#define RX_TOKEN(serial, slot) (((uint64_t)(serial) << 16) | (slot))
#define RX_SLOT(token)         ((uint32_t)(token) & (EMU_MAX_SLOTS - 1))
#define RX_DONE                0x8000u /* in `taken`: the receive has its completion */
/* A process begins with a serial at random, at most this: who had its slot before used others,
 * and there are as many again for it to count on. */
#define SHM_SERIAL_FIRST ((UINT64_C(1) << 47) - 1)

/* Who reaches memory: a region must be of this domain, a window of this queue pair. */
struct shm_user {
    _Atomic uint32_t qpn;
    uint32_t pd;
};

/*
 * The responder half of a queue pair. Which shared receive queue, domain and completion queue
 * an XRC one uses depends on the request, and its poster alone knows them.
 */
struct shm_qp {
    struct shm_user user;   /* its number is 0 when it is free */
    _Atomic uint64_t busy;  /* RX_TOKEN of the poster executing now */
    uint64_t dest_inc;      /* incarnation of the process whose QP may execute here */
    _Atomic uint32_t state; /* enum ibv_qp_state */
    uint32_t dest_qpn;
    uint32_t access;
    uint32_t recv_cq;
    uint32_t srq;  /* index + 1, 0 without; SHM_NAMED_SRQ of XRC */
    uint32_t type; /* enum ibv_qp_type */
    uint32_t qkey; /* a datagram must bring it */
    uint8_t min_rnr_timer;
    uint8_t max_dest_rd;
    _Atomic uint8_t comm_est; /* first message seen since RTR */
    uint8_t fabric;      /* network of its device: only queue pairs of the same one get here */
    uint8_t device;      /* number of its device */
    _Atomic uint8_t why; /* the event of who failed it, until its owner has raised that; or 0 */
    /* The receive that the poster has taken and not yet completed, for its owner to flush. */
    _Atomic uint64_t taken; /* the poster's token, with RX_DONE when it is completed; or 0 */
    uint64_t taken_wr_id;
    /* The same from the QP's own queue: said before it is taken, so that no moment is
     * missed. */
    _Atomic uint64_t taking;    /* the poster's token */
    _Atomic uint64_t taking_at; /* the place in the queue */
    /* XRC: the domain; and of what was taken the queue's life, its number and its CQ */
    struct shm_xrcd xrcd;
    uint64_t taken_life;
    uint32_t taken_srqn, taken_cq;
    struct shm_rq rq;
};
#define SHM_NAMED_SRQ UINT32_MAX /* the one that the request names */

/* A queue pair for datagrams is in a multicast group. */
struct shm_mcast {
    _Atomic uint32_t qpn; /* 0: free. Set after the rest, cleared first. */
    uint8_t gid[16];
};

/* What a flow can ask of a frame, as it is on the wire; what a frame has not is zero. */
#define SHM_FRAME_VLAN 1u
#define SHM_FRAME_IPV4 2u
#define SHM_FRAME_IPV6 4u
#define SHM_FRAME_TCP  8u
#define SHM_FRAME_UDP  16u
struct shm_frame {
    uint8_t kinds; /* SHM_FRAME_*: what it is */
    uint8_t dst_mac[6], src_mac[6];
    uint8_t proto, tos, ttl;       /* IPv4 */
    uint8_t next_hdr, tclass, hop; /* IPv6 */
    uint8_t src_v6[16], dst_v6[16];
    uint8_t pad;         /* zero, as all bytes are compared */
    uint16_t ether_type; /* behind the VLAN's tag, where it has one */
    uint16_t vlan_tag;
    uint16_t src_port, dst_port;
    uint32_t src_v4, dst_v4;
    uint32_t flow_label;
};

_Static_assert(sizeof(struct shm_frame) == 72, "no other bytes are in between");

/* A queue pair gets the frames that agree with `value` in the bits of `mask`. */
struct shm_flow {
    _Atomic uint32_t qpn; /* 0: free. Set after the rest, cleared first. */
    uint32_t priority;    /* 0 is the best */
    struct shm_frame value, mask;
};

/* A small message on its way into a posted receive: copied by the receiver's ibv_poll_cq. */
struct shm_bounce {
    _Atomic uint32_t owner; /* slot of the process that filled it; 0 when free or just taken */
    uint32_t length;
    uint32_t nsge;
    struct shm_sge sge[EMU_MAX_SGE];
    unsigned char data[EMU_BOUNCE_BYTES];
};

/* What arrives in an inbox. CM messages are defined in cm.h and use the payload. */
enum inbox_kind {
    INBOX_QP_ERROR = 1,
    INBOX_SRQ_LIMIT,
    INBOX_CQ_OVERRUN,
    INBOX_COMM_EST,
    INBOX_SIGNAL, /* a poster could not get the channel's descriptor: signal it yourself */
    INBOX_CM,
    /* the process in slot `index` is going to send datagrams here: know it, and its death */
    INBOX_HELLO
};

#define EMU_INBOX_PAYLOAD 480u

struct shm_msg {
    struct shm_cell cell;
    uint32_t kind;
    uint32_t index; /* of the object concerned */
    uint32_t arg;   /* kind's own: an event type */
    _Alignas(8) unsigned char payload[EMU_INBOX_PAYLOAD];
};
_Static_assert(sizeof(struct shm_msg) <= 512, "an inbox entry");

/*
 * The number of the service thread in the kernel. This puts the bit there when that thread
 * ends, be it with the process or because that becomes another program (exec): from then on
 * nobody reads or clears up in the segment.
 */
#define SHM_KEEPER(keeper) ((int)((keeper)&FUTEX_TID_MASK))
#define SHM_LEFT(keeper)   (((keeper)&FUTEX_OWNER_DIED) != 0)

struct shm_head {
    uint64_t magic;
    uint32_t version;
    uint32_t slot;
    int32_t pid;
    int32_t bell_fd; /* eventfd that wakes the service thread */
    uint64_t incarnation;
    uint64_t size;
    _Atomic uint32_t ready;
    _Atomic uint32_t silent; /* knob: this process answers nothing */
    _Atomic uint32_t keeper; /* the service thread: SHM_KEEPER, SHM_LEFT */
    uint64_t off_mr, off_qp, off_cq, off_srq, off_chan, off_mcast, off_flow, off_bounce,
        off_arena;
    /* what follows changes all the time: peers read only what is above */
    _Alignas(64) _Atomic uint64_t serial; /* the last of this process's tokens as a poster */
    _Atomic uint32_t pins[EMU_PINS]; /* regions of others that it is using now, see SHM_PIN */
    _Atomic uint32_t unnoted;        /* those that it is using beyond these */
    _Atomic uint64_t atomics; /* who does one on this process's memory: see exec.c; or 0 */
    /* of each device: when all that leaves this process by it has left: link.c */
    _Atomic uint64_t link_free[EMU_MAX_DEVICES];
    struct shm_ring inbox;
    /* something of an object here found no room there: the owner looks at all of them */
    _Atomic uint32_t untold;
    /* connection requests whose senders this process may not reach, the last ones */
    _Atomic uint64_t refused[EMU_REFUSED];
    _Atomic uint32_t next_refused;
    _Alignas(64) _Atomic uint64_t bounce_free[EMU_BOUNCE_SLOTS / 64];
    _Alignas(64) struct emu_counters counters;
};

static inline void *shm_at(const struct shm_head *seg, uint64_t off)
{
    return (char *)(uintptr_t)seg + off;
}
static inline struct shm_qp *shm_qp(const struct shm_head *seg, uint32_t i)
{
    return (struct shm_qp *)shm_at(seg, seg->off_qp) + (i & (EMU_MAX_QPS - 1));
}
static inline struct shm_cq *shm_cq(const struct shm_head *seg, uint32_t i)
{
    return (struct shm_cq *)shm_at(seg, seg->off_cq) + (i & (EMU_MAX_CQS - 1));
}
static inline struct shm_srq *shm_srq(const struct shm_head *seg, uint32_t i)
{
    return (struct shm_srq *)shm_at(seg, seg->off_srq) + (i & (EMU_MAX_SRQS - 1));
}
static inline struct shm_chan *shm_chan(const struct shm_head *seg, uint32_t i)
{
    return (struct shm_chan *)shm_at(seg, seg->off_chan) + (i & (EMU_MAX_CHANS - 1));
}
static inline struct shm_mcast *shm_mcast(const struct shm_head *seg, uint32_t i)
{
    return (struct shm_mcast *)shm_at(seg, seg->off_mcast) + (i & (EMU_MAX_MCASTS - 1));
}
static inline struct shm_flow *shm_flow(const struct shm_head *seg, uint32_t i)
{
    return (struct shm_flow *)shm_at(seg, seg->off_flow) + (i & (EMU_MAX_FLOWS - 1));
}
static inline struct shm_mr *shm_mr(const struct shm_head *seg, uint32_t i)
{
    return (struct shm_mr *)shm_at(seg, seg->off_mr) + (i < EMU_MR_PLACES ? i : 0);
}
static inline struct shm_bounce *shm_bounce(const struct shm_head *seg, uint32_t i)
{
    return (struct shm_bounce *)shm_at(seg, seg->off_bounce) + (i & (EMU_BOUNCE_SLOTS - 1));
}

/* Bytes that a ring with this many places (a power of two) takes in the segment. */
uint64_t shm_ring_bytes(uint32_t places, uint32_t stride);

/* Prepares `ring` in shm_ring_bytes zeroed bytes at `off`. Owner only. */
void shm_ring_init(struct shm_head *seg, struct shm_ring *ring, uint64_t off, uint32_t places,
                   uint32_t stride, uint32_t cap);

/* Is it such a ring?  For those in the segment of another process, which may say anything. */
bool shm_ring_is_at(const struct shm_ring *ring, uint64_t off, uint32_t places,
                    uint32_t stride);

/*
 * Takes a cell for the process in `slot`, to be filled and then pushed or given back; NULL when
 * there is none. Any thread.
 */
void *shm_cell_get(const struct shm_head *seg, struct shm_ring *ring, uint32_t slot);
void shm_cell_put(const struct shm_head *seg, struct shm_ring *ring, void *cell);

enum shm_pushed { SHM_PUSHED, SHM_FULL, SHM_SEALED };

/* Puts a filled cell into the ring; unless that is done the cell is still the caller's. */
enum shm_pushed shm_ring_push(const struct shm_head *seg, struct shm_ring *ring, void *cell);

/*
 * Seals an empty ring; false when it is not empty. `next` must be set before, and no producer
 * waits for anything. Consumer only.
 */
bool shm_ring_seal(const struct shm_head *seg, struct shm_ring *ring);

/* The cell `i` places behind the head, or NULL when there are not so many. Consumer only. */
void *shm_ring_peek(const struct shm_head *seg, const struct shm_ring *ring, uint64_t i);

/* Changes the places of two cells, so many places behind the head. Consumer only. */
void shm_ring_swap(const struct shm_head *seg, struct shm_ring *ring, uint64_t i, uint64_t j);

/* Gives back the cell at the head. Consumer only. */
void shm_ring_pop(const struct shm_head *seg, struct shm_ring *ring);

/* Gets back cells that a dead process had taken and not pushed. Consumer only. How many. */
unsigned shm_ring_recover(const struct shm_head *seg, struct shm_ring *ring, uint32_t slot);

/* Takes a bounce slot of `seg` for the process in `slot`; -1 when all are in use. Any process.
 */
int shm_bounce_get(struct shm_head *seg, uint32_t slot);
void shm_bounce_put(struct shm_head *seg, uint32_t i);

#endif
