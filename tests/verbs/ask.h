/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Questions to a verbs device.  Each is a function that does something and writes down what the
 * device answered, in words; it judges nothing.  The same questions are put to the software HCA
 * and to kernel devices, and the answers are compared (tests/verbs/judge,
 * doc/verbs-differences.md).
 *
 * An answer must not depend on timing, addresses, numbers the device chose, or how large its
 * limits are.
 */
#ifndef TESTS_VERBS_ASK_H
#define TESTS_VERBS_ASK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct question {
    const char *text;
    void (*ask)(void);
};

extern const struct question memory_questions[], window_questions[], queue_questions[],
    flow_questions[], event_questions[], cm_questions[], datagram_questions[],
    atomic_questions[];

/* What main was told. */
extern const char *from_name, *to_name; /* devices; NULL is the first */
/* where rdma_cm listens: an IPv4 address of the device `to` */
extern const char *cm_address;
extern int cm_port;

/* Adds to the answer, with "; " before all but the first. */
void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What a call returned: "ok", or the name of the error. Verbs return errno or -1 with errno
 * set. */
const char *result(int ret);
const char *pointer_result(const void *p);
/* Ends the question: its preparation failed, which no answer may look like. */
#define NEED(cond)                                                                             \
    do {                                                                                       \
        if (!(cond))                                                                           \
            need_failed(#cond, __FILE__, __LINE__);                                            \
    } while (0)
void need_failed(const char *what, const char *file, int line) __attribute__((noreturn));

#define END_SIZE   65536
#define END_QKEY   0x11223344u /* of queue pairs for datagrams */
#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* One end of a connection: a queue pair with all it needs. */
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
    /* Set before end_open; 0 takes a default, -1 is none. */
    int rights, qp_rights, cqe, srq_wr, rnr_retry, retry, timeout, reads, granted_reads,
        sig_all;
    bool with_channel;
    bool datagrams;        /* a queue pair of type UD, which end_open brings to RTS */
    struct end *with;      /* shares the device and the domain of this one */
    struct ibv_qp_cap cap; /* granted, after end_open */
};

void end_open(struct end *e, bool passive); /* a queue pair in INIT */
int end_rtr(struct end *e, const struct end *peer, uint32_t qpn);
int end_rts(struct end *e);
void ends_open(struct end *a, struct end *b); /* and connected; a is on `from`, b on `to` */
int end_to(struct end *e, enum ibv_qp_state state);
/* The state; when it is not ERR, half a second later: a completion may come before the
 * state. */
const char *end_state(struct end *e);
const char *qp_state(struct ibv_qp *qp);
const char *state_name(enum ibv_qp_state state);

/* From the buffer's start, with id 1; the far end is the other's buffer. */
int send_plain(struct end *e, enum ibv_wr_opcode op, uint32_t length, unsigned flags);
int send_to(struct end *e, uint64_t id, enum ibv_wr_opcode op, uint32_t length, unsigned flags,
            uint64_t raddr, uint32_t rkey);
int receive(struct end *e, uint64_t id, uint32_t length);

/*
 * Lets time pass. The software HCA's clock is stepped, as are all waits below, and its service
 * thread waited for: so what comes and what does not is independent of how fast the machine is.
 */
void pass_ms(int ms);

/* Waits for a completion, up to ms; false when none came. */
bool next_wc(struct ibv_cq *cq, struct ibv_wc *wc, int ms);
/* Answers "WHO: STATUS" for the next completion ("nothing" when none comes). */
void answer_wc(const char *who, struct ibv_cq *cq);
/* Answers how many completions come, until none came for a while, and their status. */
void answer_wcs(const char *who, struct ibv_cq *cq);
/* Answers with the next asynchronous event. */
void answer_async(const char *who, struct end *e);
/* Within so many ms, or ever (-1, by no clock). */
bool readable(int fd, int ms);
const char *status_name(enum ibv_wc_status status);

#define WRITE    IBV_WR_RDMA_WRITE
#define READ     IBV_WR_RDMA_READ
#define SEND     IBV_WR_SEND
#define WIMM     IBV_WR_RDMA_WRITE_WITH_IMM
#define SIGNALED IBV_SEND_SIGNALED
#define WAIT_MS  8000 /* for what must come */
#define NONE_MS  300  /* for what must not */

#endif
