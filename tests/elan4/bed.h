/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A bed for tests of the emulated Elan4: processes on nodes of a network of their own, each
 * with a context, queues and memory, and a page that they share to meet and to tell addresses.
 */
#ifndef TESTS_ELAN4_BED_H
#define TESTS_ELAN4_BED_H

#include <elan4/library.h>
#include <elan/elanctrl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/elan4/scratch.h"
#include "tests/emul/stop.h"

/* In a process of a test: ends it with a message when the condition does not hold. */
#define CHECK(cond)                                                                            \
    do {                                                                                       \
        if (!(cond)) {                                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                         \
            _exit(1);                                                                          \
        }                                                                                      \
    } while (0)

#define NODES    4
#define CONTEXTS 16
#define LOW      2
#define SLOTS    4 /* of a queue */
#define SLOT     256

struct meeting {
    _Atomic int stage[64];
    _Atomic uint64_t word[64];
    char text[4096];
};

struct bed {
    int node, index;   /* of the process among those of the test */
    struct meeting *m; /* shared by the processes of a test */
    ELAN_CAPABILITY cap;
    ELAN4_CTX *ctx;
    ELAN4_SDRAM *sdram;
    ELAN4_ALLOC *alloc;
    ELAN4_COOKIEPOOL *cookies;
    E4_CmdQ *cq, *irq;
    unsigned vp;
    _Atomic int trap_type, trap_proc, traps;
    /* a queue */
    E4_InputQueue *queue;
    E4_Event *queue_event;
    volatile E4_uint64 *arrived;
    char *slots;
    E4_Addr first, last;
};

/* A capability of all nodes, contexts LOW and up. */
void bed_cap(ELAN_CAPABILITY *cap, int context);
/* All but attaching; traps are counted in the bed. */
void bed_prepare(struct bed *b);
/* Attached at a context of this process's node, and open. */
void bed_open(struct bed *b, int context);
/* What comes after attaching by oneself. */
void bed_attached(struct bed *b);
void bed_close(struct bed *b);
unsigned vp_of(int node, int context);
E4_Addr elan(struct bed *b, const volatile void *p);

/* Memory of both kinds; filled with zero. */
void *main_mem(struct bed *b, size_t size);
void *sdram_mem(struct bed *b, size_t size);
/* An event that writes *word. */
E4_Event *word_event(struct bed *b, volatile E4_uint64 *word, int count);
/* Makes an event one that starts `d` by a chain when it fires after `count` sets. */
void event_sends(struct bed *b, E4_Event *ev, int count, struct _E4_DMA64 d);
void bed_queue(struct bed *b, unsigned slot);
/* Takes one message: its slot, which stays valid until the next; NULL after `ms` without. */
char *queue_take(struct bed *b, unsigned slot, int ms);

struct _E4_DMA64 dma(size_t size, unsigned flags, unsigned vp, E4_Addr src, E4_Addr dst,
                     E4_Addr srcev, E4_Addr dstev);
void run_dma(struct bed *b, struct _E4_DMA64 d);
/* The same, by the interface of that node's first process. */
void ask_dma(struct bed *b, int node, struct _E4_DMA64 d);
void flush(struct bed *b);

/* A word of main memory with that value. */
uint64_t *number_mem(struct bed *b, uint64_t value);
/* Sends it to a queue of node 0's first process; the event is 0, or set when it is there. */
void send_number(struct bed *b, E4_Addr queue, uint64_t value, E4_Addr ev);
/* Takes one from the bed's queue, whose slots have 64 bytes; 0 after `ms` without. */
uint64_t take_number(struct bed *b, int ms);

/* Whether the word is set within `ms`. */
bool word_set(struct bed *b, volatile E4_uint64 *word, int ms);
/* Whether it stays 0 for `ms`. */
bool word_quiet(struct bed *b, volatile E4_uint64 *word, int ms);
bool trapped(struct bed *b, int type, int ms);
int32_t count_of(const E4_Event *ev);

/* Meets the others: everybody of `n` passes stage `i` together. */
void meet(struct bed *b, int i, int n);
/* Tells a value, and waits for one. */
void tell(struct bed *b, int i, uint64_t v);
uint64_t told(struct bed *b, int i);
uint64_t now_ms(void);

typedef void (*bed_fn)(struct bed *b);
/* Runs each function in a process, the i-th on node i. 0 when all ended well. */
int run_beds(int n, const bed_fn *fn);
/* The same; process `victim` is expected to die by SIGKILL. */
int run_beds_kill(int n, const bed_fn *fn, int victim);

#endif
