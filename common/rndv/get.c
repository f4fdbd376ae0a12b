/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The receiver reads what RTS offers, and sends FIN.  The sender stays in RTS until then
 * (rts.c).
 */
#include "rndv/rndv.h"

void rme_get_receive(struct rme *rme, struct rme_op *op, struct rme_message *rts)
{
    struct rme_rndv *r = op->rndv;

    r->reads = true;
    r->access = RME_ACCESS_LOCAL_WRITE;
    list_add_tail(&rts->remote_window->link, &r->remote_windows);
    rts->remote_window = NULL;
    rme_rndv_begin(rme, op, RME_OP_MOVING, rme_get_stages);
}

const struct rme_rndv_stage rme_get_stages[RME_OP_STATES] = {
    [RME_OP_MOVING] = {.advance = rme_xfers_advance},
};
