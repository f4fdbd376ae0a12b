/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The reference of test_account.c: what the engine holds and owes, by what its peers and its
 * host did and heard. */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include "scripted.h"

enum { LINKS = 3, TAGS = 3, OPS = 96, LIVE = 5, LETTERS = 64, RESERVE = 4, COST = 64 };
enum { SMALL = 1900, LARGE = 6000, LARGER = 60000, TINY = 10, ROOM = 70000 };
enum { RETURN = 1, CONTROL = 2, DATA = 3 }; /* credits in hand for a message, with a reserve */
enum { EXPECTED, UNEXPECTED, STREAMS };
enum kind { SEND, ASK, RECV };

/* OFFERED: by RTS; MATCHED: a receive whose answer was not heard; OVER: a report is due. */
enum state { FREE, QUEUED, POSTED, OFFERED, MATCHED, MOVING, OVER };

struct item {
    enum kind kind;
    enum state state;
    struct side *side;
    int32_t tag;
    int64_t size, actual;
    uint32_t ours, theirs, age;
    bool stopped, told, refused, open, reads,
        confirmed; /* perhaps: written, and the credit is back */
    int result;
    rme_id id;
    char *memory;
};

/* A message of the peer that has no receive, or is unexpected and not fetched. */
struct letter {
    bool rts, unexpected, pulled, complete, left; /* left: cancelled */
    int32_t tag;
    int64_t size;
    uint32_t theirs, ours, age;
    struct side *side; /* NULL: unused */
    unsigned life;     /* of its link */
};

struct side {
    struct rme_addr *addr;
    bool active, up, asked;
    unsigned slot, life;
    uint32_t granted, returned;            /* by the peer */
    uint32_t have, promised, first;        /* of the peer, by the engine */
    uint32_t used, got_back;               /* of these */
    uint32_t limit[STREAMS];               /* the peer's windows */
    uint32_t in[STREAMS], taken[STREAMS];  /* cost of the engine's messages; consumed */
    uint32_t out[STREAMS], freed[STREAMS]; /* of the peer's; reported */
    uint32_t low[STREAMS], high[STREAMS];  /* bounds of what the engine reports */
    uint32_t rts_max;
};

extern struct side side[LINKS];
extern struct item item[OPS];
extern struct letter letter[LETTERS];
extern unsigned seed, first_seed, step, age;
extern uint32_t name; /* last handle of the peers */
/* bytes of a message that waits; beside it of one that is being pulled, or offered */
extern uint64_t kept, pulling, offer;
extern struct rme *rme;
extern bool reads;
extern unsigned finished; /* transfers whose end was not heard yet */

#define MUST(condition)                                                                        \
    do {                                                                                       \
        if (!(condition))                                                                      \
            fail_msg("seed %u, step %u: %s", first_seed, step, #condition);                    \
    } while (0)

unsigned pick(unsigned limit);
/* The oldest operation of this kind and state; tag -1: any. */
struct item *oldest(const struct side *s, enum kind kind, enum state state, int tag);
unsigned count_of(const struct side *s, enum kind kind, enum state state);
void letter_drop(struct letter *l);
/* A report is expected. */
void over(struct item *i, int result, int64_t actual);
/* The engine sends a message. */
void heard(const struct rme_wire_message *m);
/* The engine reports an operation. */
void reported(const struct rme_done *done);
/* Polls until no event is left. */
void run(void);
/* Credits of the engine that are not in use. */
uint32_t free_of(const struct side *s);
/* Lets the engine come to rest, and compares. */
void check(void);
/* The one with the link; null: none. */
struct side *side_of(unsigned slot);

#endif
