/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Questions to a verbs device. Each is a function that uses the device and records its results
 * as text, without judging them. The same questions are put to the software HCA and to kernel
 * devices, and the answers are compared (tests/verbs/judge, doc/verbs-differences.md).
 *
 * An answer must not depend on timing, addresses, numbers chosen by the device, or its limits.
 */
#ifndef TESTS_VERBS_ASK_H
#define TESTS_VERBS_ASK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* Arguments of main. */
extern const char *from_name, *to_name; /* devices; NULL is the first */
/* address of rdma_cm's listener: an IPv4 address of the device `to` */
extern const char *cm_address;
extern int cm_port;

/* Appends to the answer, separated by "; ". */
void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns "ok", or the name of a call's error. Verbs return errno or -1 with errno set. */
const char *result(int ret);
const char *pointer_result(const void *p);
/* Ends the question because its preparation failed, which no answer may look like. */
#define NEED(cond)                                                                             \
    do {                                                                                       \
        if (!(cond))                                                                           \
            need_failed(#cond, __FILE__, __LINE__);                                            \
    } while (0)
void need_failed(const char *what, const char *file, int line) __attribute__((noreturn));

#define END_SIZE   65536
#define END_QKEY   0x11223344u /* of QPs for datagrams */
#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* One end of a connection: a QP with its objects. */
struct end {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *scq, *rcq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    unsigned char *buf;
    uint8_t gid_index;
    union ibv_gid gid;
    uint16_t lid;
    struct end *other;
    /* Set before end_open; 0: default, -1: none. */
    int rights, qp_rights, cqe, srq_wr, rnr_retry, retry, timeout, reads, granted_reads,
        sig_all;
    bool with_channel;
    bool datagrams; /* a UD QP, which end_open brings to RTS */
    /* Set before sending: of atomic operations, and of datagrams. */
    uint64_t operand, swap;
    struct ibv_ah *ah;
    uint32_t to, qkey;
    struct end *with;      /* shares the device and the domain of this end */
    struct ibv_qp_cap cap; /* granted, after end_open */
};

/* Which of a question's ends are open, a on `from` and b on `to`: both, connected or in INIT; a
 * alone; none. */
enum setup { CONNECTED, APART, ALONE, NOTHING };

/* A question is a function, or a request from a to b's buffer and what to tell of its end. */
struct question {
    const char *text;
    void (*ask)(struct end *a, struct end *b);
    enum setup setup;
    struct end a, b;
    struct request {
        enum ibv_wr_opcode op;
        uint32_t length;
        uint64_t offset, from;
        uint32_t key_xor, lkey_xor;
        unsigned flags;
        uint32_t receive; /* bytes of a receive posted before, 0: none */
    } request;
    const char *tell;
    int n; /* of questions that share a function */
};
extern const struct question *asked;
extern const struct question memory_questions[], window_questions[], queue_questions[],
    flow_questions[], event_questions[], cm_questions[], datagram_questions[],
    atomic_questions[];
void question_put(const struct question *q);
#define ASK(name)                                                                              \
    static void name(struct end *a __attribute__((unused)),                                    \
                     struct end *b __attribute__((unused)))

/* Answers with the results that are named by words: requester, sender, it (completions of a),
 * receiver (of b; with ?: none is expected), responder (b's event), state (of a), states,
 * memory (whether b's is as it was). */
void tell(struct end *a, struct end *b, const char *words);
/* Answers with the result of posting; returns whether it succeeded. */
bool posted(int ret);
void end_open(struct end *e, bool passive); /* a QP in INIT */
int end_init(struct end *e, uint8_t port);
int end_rtr(struct end *e, const struct end *peer, uint32_t qpn);
int end_rts(struct end *e);
void ends_open(struct end *a, struct end *b); /* and connected; a is on `from`, b on `to` */
void ends_connect(struct end *a, struct end *b);
int end_to(struct end *e, enum ibv_qp_state state);
/* Returns the state; if it is not ERR, after half a second: a completion may precede the
 * state. */
const char *qp_state(struct ibv_qp *qp);
const char *state_name(enum ibv_qp_state state);

/* Posts from the buffer's start, with id 1; the remote address is the other end's buffer. With
 * SEND_WITH_INV or LOCAL_INV `rkey` is invalidated. */
int send_plain(struct end *e, enum ibv_wr_opcode op, uint32_t length, unsigned flags);
int send_to(struct end *e, uint64_t id, enum ibv_wr_opcode op, uint32_t length, unsigned flags,
            uint64_t raddr, uint32_t rkey);
int receive(struct end *e, uint64_t id, uint32_t length);

/* Lets time pass. The software HCA's clock is stepped, in all waits below, too, and its service
 * thread waited for: events, and their absence, do not depend on the machine's speed. */
void pass_ms(int ms);

/* Waits up to ms for a completion; returns false if none came. */
bool next_wc(struct ibv_cq *cq, struct ibv_wc *wc, int ms);
/* Answers "WHO: STATUS" for the next completion ("nothing" if none comes). */
void answer_wc(const char *who, struct ibv_cq *cq);
/* Answers with the number of completions until none came for a while, and their status. */
void answer_wcs(const char *who, struct ibv_cq *cq);
/* Answers with the next asynchronous event. */
void answer_async(const char *who, struct end *e);
/* Waits for up to ms, or without a limit (-1, without a clock). */
bool readable(int fd, int ms);
const char *status_name(enum ibv_wc_status status);

#define WRITE    IBV_WR_RDMA_WRITE
#define READ     IBV_WR_RDMA_READ
#define SEND     IBV_WR_SEND
#define WIMM     IBV_WR_RDMA_WRITE_WITH_IMM
#define SIGNALED IBV_SEND_SIGNALED
#define WAIT_MS  8000 /* wait for expected events */
#define NONE_MS  300  /* wait for events that must not come */

#endif
