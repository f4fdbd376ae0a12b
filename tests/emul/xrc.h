/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Extended reliable connections (XRC) for tests: one side, and helpers. */
#ifndef TESTS_EMUL_XRC_H
#define TESTS_EMUL_XRC_H

#include "tests/emul/pair.h"

#define PLACES 4u /* of an SRQ */

/* A side has a domain, an SRQ in it, and one half of each connection. */
struct xrc {
    struct side *s;
    struct ibv_xrcd *domain;
    struct ibv_srq *srq;
    struct ibv_qp *sends, *receives;
    uint32_t number, to; /* number of its SRQ, and of the one that its requests name */
};

/* A file whose domain all processes of a test open; exists while tests run. */
extern char xrc_inode[];
int xrc_make_inode(void **state);
int xrc_remove_inode(void **state);

/* Return NULL and errno, like the verbs. */
struct ibv_xrcd *domain(struct side *s, int fd, int oflags);
struct ibv_xrcd *domain_of(struct side *s, const char *path, int oflags);
struct ibv_srq *shared_queue(struct side *s, struct ibv_xrcd *x); /* completes in s->rcq */
/* ops: 0, or those of the interface ibv_wr_* */
struct ibv_qp *sender(struct side *s, uint64_t ops);
struct ibv_qp *receiver(struct side *s, struct ibv_xrcd *x);

/* Connects one half to the other half with number `dest`. */
void join(struct ibv_qp *qp, uint32_t dest, uint8_t rnr_retry);
/* Opens a side without its own QP, and gives it a domain and an SRQ. */
void xrc_open(struct xrc *x, struct side *s);
/* The same with both halves of a connection, on which requests go to its own SRQ. */
void loop(struct xrc *x, struct side *s, uint8_t rnr_retry);
void xrc_close(struct xrc *x);

int try_post(struct ibv_srq *q, struct side *s, uint64_t id, uint32_t off, uint32_t len);
void post(struct xrc *x, uint64_t id, uint32_t off, uint32_t len);
/* Posts a request to the SRQ x->to. */
int try_request(struct xrc *x, uint64_t id, enum ibv_wr_opcode op, uint32_t len, uint64_t roff);
/* Posts a request and waits for its completion with this status. */
void request(struct xrc *x, uint64_t id, enum ibv_wr_opcode op, uint32_t len, uint64_t roff,
             enum ibv_wc_status status);
/* Checks that the responder has failed, and that its owner got this event. */
void expect_failed(struct xrc *x, enum ibv_event_type event);

#endif
