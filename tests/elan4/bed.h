/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A fixture for tests of the emulated Elan4: processes on nodes of their own network, each with
 * a context, queues and memory, and a shared page for synchronization and addresses. */
#ifndef TESTS_ELAN4_BED_H
#define TESTS_ELAN4_BED_H

#include <elan4/library.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/elan4/scratch.h"

/* In a process of a test: ends it with a message unless the condition holds. */
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
};

struct bed {
    int node, index;   /* of the process within the test */
    struct meeting *m; /* shared by the processes of a test */
    ELAN_CAPABILITY cap;
    ELAN4_CTX *ctx;
    ELAN4_SDRAM *sdram;
    ELAN4_ALLOC *alloc;
    ELAN4_COOKIEPOOL *cookies;
    E4_CmdQ *cq, *irq;
    unsigned vp;
    _Atomic int trap_type, trap_proc, traps;
    /* an input queue */
    E4_InputQueue *queue;
    E4_Event *queue_event;
    volatile E4_uint64 *arrived;
    char *slots;
    E4_Addr first, last;
};

/* Attaches to a context of this process's node, opens everything, and counts traps. */
void bed_open(struct bed *b, int context);
void bed_close(struct bed *b);
unsigned vp_of(int node, int context);
E4_Addr elan(struct bed *b, const volatile void *p);

/* Allocates main memory, or SDRAM, filled with zero. */
void *main_mem(struct bed *b, size_t size);
void *sdram_mem(struct bed *b, size_t size);
/* Makes an event that writes *word. */
E4_Event *word_event(struct bed *b, volatile E4_uint64 *word, int count);
void bed_queue(struct bed *b, unsigned slot);

struct _E4_DMA64 dma(size_t size, unsigned flags, unsigned vp, E4_Addr src, E4_Addr dst,
                     E4_Addr srcev, E4_Addr dstev);
void run_dma(struct bed *b, struct _E4_DMA64 d);
/* Requests a DMA from the interface of that node's first process. */
void ask_dma(struct bed *b, int node, struct _E4_DMA64 d);
void flush(struct bed *b);

/* Returns a word of main memory with that value. */
uint64_t *number_mem(struct bed *b, uint64_t value);

/* Returns whether the word is set within `ms`. */
bool word_set(struct bed *b, volatile E4_uint64 *word, int ms);
bool trapped(struct bed *b, int type, int ms);

/* Barrier: all `n` processes pass stage `i` together. */
void meet(struct bed *b, int i, int n);
/* Publish a value; wait for one. */
void tell(struct bed *b, int i, uint64_t v);
uint64_t told(struct bed *b, int i);
uint64_t now_ms(void);

typedef void (*bed_fn)(struct bed *b);
/* Runs each function in a process, the i-th on node i. Returns 0 if all succeeded. */
int run_beds(int n, const bed_fn *fn);
/* Does the same; process `victim` must die by SIGKILL. */
int run_beds_kill(int n, const bed_fn *fn, int victim);

#endif
