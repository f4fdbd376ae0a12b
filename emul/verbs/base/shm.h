/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Shared memory: one segment per process, mapped by every peer.
 *
 * A process that opens the device creates one sparse memfd, the segment, and owns it. The
 * segment holds all state that peers access while its owner sleeps, is stopped or has died:
 * table of memory regions, responder half of each QP, receive rings, completion rings, and an
 * inbox for messages of the connection manager. Peers take no lock in it. There are two kinds
 * of rings:
 *
 *   message ring (struct shm_ring): many producers, one consumer (the owner). A producer takes
 *     a free cell from a bitmap, fills it, and publishes its number in the word at the tail by
 *     one compare-and-swap. Any process may advance the tail. A producer that is stopped or
 *     killed blocks no other: at most one cell outside of the ring is lost, which names the
 *     producer's slot, so that the owner recovers the cell when it notices the death. The
 *     consumer may seal an empty ring by a word that no producer can replace. Producers then
 *     continue with the ring named by `next`.
 *
 *   receive ring (struct shm_rq): one producer (the owner, under its own private lock), many
 *     consumers (posters). A consumer copies the entry at the head and owns the entry if its
 *     compare-and-swap of the head succeeds; after a torn copy the swap always fails.
 *
 * Counters that index rings have 64 bits and never wrap.
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

/* A QP number consists of the process's slot and an index in its table: unique on the
 * machine. */
#define EMU_QP_BITS    14
#define EMU_SLOT_BITS  10
#define EMU_MAX_QPS    (1u << EMU_QP_BITS)
#define EMU_MAX_SLOTS  (1u << EMU_SLOT_BITS)
#define EMU_MAX_CQS    16384u
#define EMU_MAX_SRQS   (1u << 11)
#define EMU_MAX_CHANS  8192u
#define EMU_MAX_MRS    (1u << 18)
#define EMU_MAX_MWS    (1u << 16)
#define EMU_MAX_SGE    64u
#define EMU_MAX_MCASTS 1024u
#define EMU_MR_PLACES  (EMU_MAX_MRS + EMU_MAX_MWS) /* table of regions, followed by windows */

#define EMU_BOUNCE_SLOTS 1024u

#define EMU_INBOX_ENTRIES 4096u

#define EMU_REFUSED                  16u
#define SHM_REFUSED(incarnation, id) ((incarnation) ^ (uint64_t)(id) << 32)

/*
 * A poster notes each region or window that it has pinned (shm_mr.users) in its own
 * segment. From the notes the owner derives which processes to wait for; dead and stopped ones
 * are skipped.
 */
#define EMU_PINS            1024u
#define SHM_PIN(slot, mr)   (0x80000000u | (uint32_t)(slot) << 19 | (mr))
#define SHM_PIN_SLOT(entry) ((entry) >> 19 & (EMU_MAX_SLOTS - 1))
#define SHM_PIN_MR(entry)   ((entry) & ((1u << 19) - 1))
_Static_assert(EMU_MR_PLACES <= 1u << 19, "each place can be noted");

#define EMU_SHM_MAGIC   UINT64_C(0x656d757665726273)
#define EMU_SHM_VERSION 21u

/*
 * Keys. The first bit distinguishes rkeys from lkeys, so that mixing them up is an error, as on
 * real devices. The second bit distinguishes windows from regions. The remaining bits are
 * random and contain the place in the table (shm_key_index): all thirty bits of a region's key,
 * and all but the last eight of a window's key, which the binder chooses.
 */
#define EMU_RKEY_BIT   0x80000000u
#define EMU_WINDOW_BIT 0x40000000u

/* Word of a ring: sequence number of its place, and cell + 1, or 0 if the place is free. */
#define RING_WORD(seq, cell) (((uint64_t)(seq) << 24) | (cell))
/* Number of places that the word is ahead of place `seq`. A word has 40 bits of the place. */
#define RING_AHEAD(word, seq)                                                                  \
    ((int64_t)(((word) & ~UINT64_C(0xffffff)) - ((uint64_t)(seq) << 24)))
#define RING_CELL(word) ((uint32_t)(word)&0xffffff)
#define RING_SEAL       0xffffffu /* in place of a cell */

struct shm_ring {
    _Alignas(64) _Atomic uint64_t tail; /* next place to fill */
    _Alignas(64) _Atomic uint64_t head; /* next place to consume */
    /* offsets from the segment's start; constant from here to stride */
    _Alignas(64) uint64_t off_words;
    uint64_t off_cells;
    uint64_t off_free; /* offset of the bitmap of cells; a set bit is a free cell */
    uint32_t mask;     /* places - 1; the number of places is a power of two */
    uint32_t shift;    /* see word_at */
    uint32_t cells;
    uint32_t stride;       /* bytes of a cell, which begins with struct shm_cell */
    _Atomic uint32_t cap;  /* limit of unread entries */
    _Atomic uint64_t next; /* offset of the replacing ring in the segment; 0: none */
};

/* Head of a cell: slot of the process that has taken the cell; 0: free or just taken. */
struct shm_cell {
    _Atomic uint32_t owner;
};

/* A completion of exactly one cache line. */
struct shm_cqe {
    _Alignas(64) struct shm_cell cell;
    uint32_t byte_len;
    uint64_t wr_id;
    uint64_t sq_index; /* from_sq: work request counter of the SQ */
    uint64_t token;    /* not from_sq: token of the poster, see RX_TOKEN */
    uint32_t imm;      /* network byte order */
    uint32_t qpn;
    uint32_t src_qp;
    uint32_t bounce; /* bounce slot + 1 of a payload to be copied; 0: none */
    uint8_t status;
    uint8_t opcode;
    uint8_t wc_flags;
    uint8_t from_sq;
    uint8_t skip;   /* 1: QP destroyed, the completion is about to be removed */
    uint8_t srq;    /* 1: of a receive of the QP's SRQ */
    uint8_t sl;     /* datagrams only */
    uint8_t source; /* number of the source port */
};
_Static_assert(sizeof(struct shm_cqe) == 64, "a completion is one cache line");

enum cq_armed { CQ_ARMED_NO, CQ_ARMED_SOLICITED, CQ_ARMED_ANY };

/*
 * shm_cq.armed: armed state (enum cq_armed), slot of the last process that disarmed the CQ and
 * has not woken its owner yet (0: none), and number of times that the CQ was disarmed, which is
 * the number of its events. One word, so that the death of a process leaves no intermediate
 * state. The number is kept when the place is reused.
 */
#define CQ_ARMED_HOW(armed)  ((uint32_t)(armed)&3u)
#define CQ_ARMED_SLOT(armed) ((uint32_t)((armed) >> 2) & (EMU_MAX_SLOTS - 1))
#define CQ_ARMED_TIMES       12 /* shift */
#define CQ_DISARMED(armed, slot)                                                               \
    ((((armed) >> CQ_ARMED_TIMES) + 1) << CQ_ARMED_TIMES | (uint64_t)(slot) << 2 | CQ_ARMED_NO)
/* Clears the slot: no process owes a wake-up. */
#define CQ_NOTIFIED(armed) ((armed) & ~((uint64_t)(EMU_MAX_SLOTS - 1) << 2))

struct shm_cq {
    /* offset of a current or former ring of the CQ, see cq_ring.c */
    _Alignas(64) _Atomic uint64_t off_ring;
    _Atomic uint64_t armed; /* see CQ_ARMED */
    _Atomic uint32_t overrun;
    _Atomic uint32_t in_use;
    _Atomic uint32_t chan; /* channel index + 1; 0: none */
};

struct shm_chan {
    _Atomic uint32_t gen; /* odd while in use; incremented before the descriptor is closed */
    _Atomic int32_t fd;   /* number of the eventfd in the owner */
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
    _Atomic uint32_t limit; /* SRQ: raise an event when fewer are left; 0: disarmed */
};

struct shm_srq {
    struct shm_rq rq;
    _Atomic uint32_t in_use;
};

/* A region, or, from place EMU_MAX_MRS on, a memory window. Place 0 is unused. */
struct shm_mr {
    _Atomic uint32_t key;   /* without EMU_RKEY_BIT; 0: free or not bound */
    _Atomic uint32_t users; /* remote operations in progress */
    uint32_t pd;
    uint32_t access;
    uint64_t addr; /* in the owner's address space */
    uint64_t iova; /* start address in work requests */
    uint64_t length;
    uint32_t qpn; /* access only by this QP of the owner; 0: any */
    uint32_t pad;
};

static inline uint32_t shm_key_index(uint32_t key)
{
    return key & EMU_WINDOW_BIT ? EMU_MAX_MRS + (key >> 8 & (EMU_MAX_MWS - 1))
                                : key & (EMU_MAX_MRS - 1);
}

/* Identity of the current execution at a responder: 0, or a token unique on this machine. The
 * owner may revoke the token of a stopped or dead poster. */
#define RX_TOKEN(serial, slot) (((uint64_t)(serial) << 16) | (slot))
#define RX_SLOT(token)         ((uint32_t)(token) & (EMU_MAX_SLOTS - 1))
#define RX_DONE                0x8000u /* in `taken`: the receive has its completion */
/* Limit of a process's first serial, which is random: tokens differ from those of the former
 * process of the slot, and as many more serials remain. */
#define SHM_SERIAL_FIRST ((UINT64_C(1) << 47) - 1)

/* User of memory: a region requires this protection domain, a window this QP. */
struct shm_user {
    _Atomic uint32_t qpn;
    uint32_t pd;
};

/* Responder half of a QP. */
struct shm_qp {
    struct shm_user user;   /* qpn 0: free */
    _Atomic uint64_t busy;  /* RX_TOKEN of the executing poster; 0: none */
    uint64_t dest_inc;      /* incarnation of the peer process whose QP may execute here */
    _Atomic uint32_t state; /* enum ibv_qp_state */
    uint32_t dest_qpn;
    uint32_t access;
    uint32_t recv_cq;
    uint32_t srq;  /* index + 1; 0: none */
    uint32_t type; /* enum ibv_qp_type */
    uint32_t qkey; /* required in datagrams */
    uint8_t min_rnr_timer;
    uint8_t max_dest_rd;
    _Atomic uint8_t comm_est; /* first message seen since RTR */
    uint8_t device;           /* device number */
    uint8_t gid_type;         /* enum ibv_gid_type of its path */
    /* event of the process that failed the QP, until raised by the owner; 0: none */
    _Atomic uint8_t why;
    /* Receive that a poster has taken and not completed; the owner flushes the receive if
     * needed. */
    _Atomic uint64_t taken; /* the poster's token, with RX_DONE after completion; 0: none */
    uint64_t taken_wr_id;
    /* The same for the QP's own queue, written before the receive is taken, so that no interval
     * is uncovered. */
    _Atomic uint64_t taking;    /* the poster's token */
    _Atomic uint64_t taking_at; /* place in the queue */
    struct shm_rq rq;
};

/* Membership of a UD QP in a multicast group. */
struct shm_mcast {
    _Atomic uint32_t qpn; /* 0: free; set last, cleared first */
    uint8_t gid[16];
};

/* Payload of a small message for a posted receive, copied by the receiver's ibv_poll_cq. */
struct shm_bounce {
    _Atomic uint32_t owner; /* slot of the process that filled it; 0: free or just taken */
    uint32_t length;
    uint32_t nsge;
    struct shm_sge sge[EMU_MAX_SGE];
    unsigned char data[EMU_BOUNCE_BYTES];
};

/* Kinds of inbox messages. CM messages are defined in cm.h and use the payload. */
enum inbox_kind {
    INBOX_QP_ERROR = 1,
    INBOX_SRQ_LIMIT,
    INBOX_CQ_OVERRUN,
    INBOX_COMM_EST,
    /* a poster could not open the channel's descriptor: the owner signals the channel */
    INBOX_SIGNAL,
    INBOX_CM,
    /* the process in slot `index` is about to send datagrams: map its segment and watch its
     * death */
    INBOX_HELLO
};

#define EMU_INBOX_PAYLOAD 480u

struct shm_msg {
    struct shm_cell cell;
    uint32_t kind;
    uint32_t index; /* index of the object */
    uint32_t arg;   /* depends on the kind: an event type */
    _Alignas(8) unsigned char payload[EMU_INBOX_PAYLOAD];
};
_Static_assert(sizeof(struct shm_msg) <= 512, "an inbox entry");

/* Kernel thread ID of the service thread. The kernel sets the bit FUTEX_OWNER_DIED when the
 * thread ends, by exit of the process or by exec. From then on the segment is not served. */
#define SHM_KEEPER(keeper) ((int)((keeper)&FUTEX_TID_MASK))
#define SHM_LEFT(keeper)   (((keeper)&FUTEX_OWNER_DIED) != 0)

#define EMU_ASKED_LEN 64
enum emu_asked { ASKED_NOTHING, ASKED_BEING_WRITTEN, ASKED_CHANGE, ASKED_UNKNOWN };

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
    _Atomic uint32_t keeper; /* service thread: SHM_KEEPER, SHM_LEFT */
    uint64_t off_mr, off_qp, off_cq, off_srq, off_chan, off_mcast, off_bounce, off_arena;
    /* changes frequently; peers read the fields above only */
    _Alignas(64) _Atomic uint64_t serial; /* last token of this process as a poster */
    _Atomic uint32_t pins[EMU_PINS];      /* peers' regions in use, see SHM_PIN */
    _Atomic uint32_t unnoted;             /* number of further regions in use */
    /* token of the process executing an atomic on this process's memory, see exec.c; 0: none */
    _Atomic uint64_t atomics;
    /* per device: time at which all outgoing data will have left, see link.c */
    _Atomic uint64_t link_free[EMU_MAX_DEVICES];
    struct shm_ring inbox;
    /* an event found the inbox full: the owner checks all its objects */
    _Atomic uint32_t untold;
    /* last connection requests whose senders this process may not access */
    _Atomic uint64_t refused[EMU_REFUSED];
    _Atomic uint32_t next_refused;
    /* change of a device that `emuverbs --device` asks for */
    _Atomic uint32_t asked; /* enum emu_asked */
    char asked_device[EMU_ASKED_LEN], asked_state[EMU_ASKED_LEN];
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
static inline struct shm_mr *shm_mr(const struct shm_head *seg, uint32_t i)
{
    return (struct shm_mr *)shm_at(seg, seg->off_mr) + (i < EMU_MR_PLACES ? i : 0);
}
static inline struct shm_bounce *shm_bounce(const struct shm_head *seg, uint32_t i)
{
    return (struct shm_bounce *)shm_at(seg, seg->off_bounce) + (i & (EMU_BOUNCE_SLOTS - 1));
}

/* Returns the bytes of a ring with `places` (a power of two) entries in the segment. */
uint64_t shm_ring_bytes(uint32_t places, uint32_t stride);

/* Initializes `ring` in shm_ring_bytes() zeroed bytes at `off`. Owner only. */
void shm_ring_init(struct shm_head *seg, struct shm_ring *ring, uint64_t off, uint32_t places,
                   uint32_t stride, uint32_t cap);

/* Checks the fields of a ring in another process's segment, which may contain anything. */
bool shm_ring_is_at(const struct shm_ring *ring, uint64_t off, uint32_t places,
                    uint32_t stride);

/* Takes a cell for the process in `slot`, to be pushed or given back; NULL when all are in use.
 * Any thread. */
void *shm_cell_get(const struct shm_head *seg, struct shm_ring *ring, uint32_t slot);
void shm_cell_put(const struct shm_head *seg, struct shm_ring *ring, void *cell);

enum shm_pushed { SHM_PUSHED, SHM_FULL, SHM_SEALED };

/* Appends a filled cell to the ring; unless SHM_PUSHED is returned, the cell remains the
 * caller's. */
enum shm_pushed shm_ring_push(const struct shm_head *seg, struct shm_ring *ring, void *cell);

/* Seals an empty ring; false if not empty. `next` must have been set. Producers do not wait.
 * Consumer only. */
bool shm_ring_seal(const struct shm_head *seg, struct shm_ring *ring);

/* Returns the cell `i` places behind the head, or NULL if there is none. Consumer only. */
void *shm_ring_peek(const struct shm_head *seg, const struct shm_ring *ring, uint64_t i);

/* Swaps the cells `i` and `j` places behind the head. Consumer only. */
void shm_ring_swap(const struct shm_head *seg, struct shm_ring *ring, uint64_t i, uint64_t j);

/* Frees the cell at the head. Consumer only. */
void shm_ring_pop(const struct shm_head *seg, struct shm_ring *ring);

/* Recovers cells that a dead process had taken and not pushed; returns their number. Consumer
 * only. */
unsigned shm_ring_recover(const struct shm_head *seg, struct shm_ring *ring, uint32_t slot);

/* Takes a bounce slot of `seg` for the process in `slot`; -1 when all are in use. Any
 * process. */
int shm_bounce_get(struct shm_head *seg, uint32_t slot);
void shm_bounce_put(struct shm_head *seg, uint32_t i);

#endif
