/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* UD QPs for tests of the software HCA. A failure ends the process. */
#ifndef TESTS_EMUL_DATAGRAMS_H
#define TESTS_EMUL_DATAGRAMS_H

#include "tests/emul/pair.h"

#define QKEY   0x1234u
#define HEADER 40        /* bytes of a receive before the data */
#define GROUP  0xffffffu /* QP number of a multicast group */

struct address {
    union ibv_gid gid;
    uint32_t qpn;
    uint32_t zero; /* sent as it is: no byte keeps its former value */
};

union ibv_gid gid_of(struct side *s);
/* Creates a QP ready to send; `ops`: send operations of its extended interface, 0 for none. */
struct ibv_qp *ud_qp(struct side *s, struct ibv_srq *srq, uint64_t ops);
/* Opens a side with a QP for datagrams. */
void open_ud(struct side *s);
/* Creates an address handle; the caller destroys it. */
struct ibv_ah *handle(struct side *s, union ibv_gid to, uint16_t lid);
/* Posts a datagram of `len` bytes at offset `off` of the buffer; returns the errno value. */
int try_from(struct side *s, struct ibv_qp *qp, uint64_t id, struct ibv_ah *ah, uint32_t qpn,
             uint32_t off, uint32_t len, unsigned flags);
/* Sends a datagram from the side's QP and takes its completion. */
void datagram(struct side *s, uint64_t id, struct ibv_ah *ah, uint32_t qpn, uint32_t off,
              uint32_t len);
/* Exchanges the addresses of the sides' QPs; returns the other one. */
struct address meet_address(struct side *s);
/* Returns the address of a multicast group. */
union ibv_gid group(void);

#endif
