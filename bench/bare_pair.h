/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bare_pair.h - a process and its child, each with one end of a connection, on plain verbs with
 * nothing of ours in between: for programs that measure what the device does by itself.
 *
 *     child = bare_fork(&b, "name");   both go on; side 0 is the parent
 *     bare_open(&b, &want);            device, memory, a queue pair that takes receives
 *     bare_connect(&b);                returns when the other side is connected, too
 *     ...
 *     bare_close(&b);
 *
 * Whatever fails ends the process with a line that names the program and what was tried.
 */
#ifndef BENCH_BARE_PAIR_H
#define BENCH_BARE_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <infiniband/verbs.h>

struct bare_board; /* what both processes see */

struct bare {
    const char *program;
    struct bare_board *board;
    unsigned side; /* 0: the parent */
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq; /* of both queues */
    struct ibv_qp *qp;
    struct ibv_mr *mr; /* of all the memory */
    char *memory;
    size_t length;
    struct ibv_port_attr port;
    uint8_t gid;
};

struct bare_want {
    size_t length;     /* bytes of memory, zeroed, readable and writable by the peer */
    unsigned sends;    /* depths of the queues */
    unsigned receives; /* may be 0 */
    unsigned inlined;  /* bytes of inline data */
    unsigned reads;    /* most RDMA reads under way, as far as the device goes */
};

/* The child's number, 0 in the child, which ends with its parent. */
pid_t bare_fork(struct bare *b, const char *program);
/* True: the child ended well. */
bool bare_wait(const struct bare *b, pid_t child);

void bare_open(struct bare *b, const struct bare_want *want);
void bare_connect(struct bare *b);
void bare_close(struct bare *b);

/* Until both sides have called it as often. */
void bare_meet(const struct bare *b);
uint64_t bare_peer_memory(const struct bare *b);
uint32_t bare_peer_rkey(const struct bare *b);
/* A count that both sides add to; the sum. */
uint64_t bare_add(const struct bare *b, uint64_t n);

uint64_t bare_now_ns(void);
/* After a look that found nothing, both 0 at first: lets others run, and ends the process when
 * nothing has come for a minute. */
void bare_rest(const struct bare *b, unsigned *looks, uint64_t *since);
/* One completion that is good; false: there is none yet. */
bool bare_poll(const struct bare *b, struct ibv_wc *wc);
void bare_die(const struct bare *b, const char *what) __attribute__((noreturn));
/* A number from `least` to `most`, else 0. */
size_t bare_number(const char *text, size_t least, size_t most);

#endif
