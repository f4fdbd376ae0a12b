/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bare_pair.h - a process and its child with one end of a connection each, on plain verbs: for
 * programs that measure the device alone.
 *
 *     child = bare_fork(&b, "name");   both continue; side 0 is the parent
 *     bare_open(&b, &want);            device, memory, a QP with receives
 *     bare_connect(&b);                returns when both sides are connected
 *     ...
 *     bare_close(&b);
 *
 * A failure ends the process with a line that names the program and the failed step.
 */
#ifndef BENCH_BARE_PAIR_H
#define BENCH_BARE_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <infiniband/verbs.h>

struct bare_board; /* memory shared by both processes */

struct bare {
    const char *program;
    struct bare_board *board;
    unsigned side; /* 0: the parent */
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq; /* of send and receive queue */
    struct ibv_qp *qp;
    struct ibv_mr *mr; /* of all the memory */
    char *memory;
    size_t length;
    struct ibv_port_attr port;
    uint8_t gid;
};

struct bare_want {
    size_t length;     /* bytes of zeroed memory, readable and writable by the peer */
    unsigned sends;    /* depth of the send queue */
    unsigned receives; /* depth of the receive queue; may be 0 */
    unsigned inlined;  /* bytes of inline data */
    unsigned reads;    /* limit of RDMA reads in flight, also limited by the device */
};

/* Returns the child's process ID, 0 in the child, which ends with its parent. */
pid_t bare_fork(struct bare *b, const char *program);
/* Waits for the child; true if its exit status is 0. */
bool bare_wait(const struct bare *b, pid_t child);

void bare_open(struct bare *b, const struct bare_want *want);
void bare_connect(struct bare *b);
void bare_close(struct bare *b);

/* Waits until the other side has also called it. */
void bare_barrier(const struct bare *b);
uint64_t bare_peer_memory(const struct bare *b);
uint32_t bare_peer_rkey(const struct bare *b);
/* Adds to a counter shared by both sides; returns the sum. */
uint64_t bare_add(const struct bare *b, uint64_t n);

uint64_t bare_now_ns(void);
/* Called after a poll without result, with both arguments 0 initially: yields the processor at
 * times, and ends the process after a minute without result. */
void bare_rest(const struct bare *b, unsigned *polls, uint64_t *since);
/* Takes a successful completion; false if there is none. */
bool bare_poll(const struct bare *b, struct ibv_wc *wc);
void bare_die(const struct bare *b, const char *what) __attribute__((noreturn));
/* Parses a number from `least` to `most`; 0 if invalid. */
size_t bare_number(const char *text, size_t least, size_t most);

#endif
