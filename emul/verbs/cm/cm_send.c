/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages to the peer of an identifier, and the time until which an answer is waited for. */
#include "emul/verbs/cm/cm.h"

#include <string.h>

void cm_timer_arm(uint64_t due)
{
    struct emu_dev *d = emu_dev_peek();

    if (d)
        emu_timer_sooner(d, &cm.timer, due);
}

void cm_set_deadline(struct cm_id *id, uint64_t ms)
{
    id->deadline = ms ? emu_now() + ms * (EMU_NSEC / 1000) : 0;
    if (ms)
        cm_timer_arm(id->deadline);
}

bool cm_send(struct cm_id *id, struct cm_msg *m, enum cm_type type)
{
    struct emu_dev *d = emu_dev_peek();

    if (!d || !id->peer || d->knobs.silent || d->hca[EMU_PORT_DEVICE(id->port)].failed ||
        atomic_load(&id->peer->seg->silent))
        return true; /* lost on the way */
    m->type = type;
    m->src_slot = d->slot;
    m->src_inc = d->self.incarnation;
    m->local_id = id->num;
    m->remote_id = id->remote_num;
    m->port = id->port;
    return emu_peer_send(d, id->peer, INBOX_CM, 0, 0, m, sizeof(*m));
}

void cm_send_simple(struct cm_id *id, enum cm_type type)
{
    struct cm_msg m = {0};

    cm_send(id, &m, type);
}

bool cm_send_sidr(struct cm_id *id, struct cm_msg *m, uint16_t status)
{
    m->reason = status;
    return cm_send(id, m, CM_SIDR_REP);
}

void cm_send_rej(struct cm_id *id, uint16_t reason, const void *data, uint8_t len)
{
    struct cm_msg m = {.reason = reason, .private_len = len};

    if (len)
        memcpy(m.private_data, data, len);
    if (!cm_is_ud(id))
        cm_send(id, &m, CM_REJ);
    else if (id->state == CM_REQ_RCVD)
        cm_send_sidr(id, &m, CM_SIDR_REJECT);
}

void cm_enter_timewait(struct cm_id *id)
{
    struct emu_dev *d = emu_dev_peek();

    id->state = CM_TIMEWAIT;
    cm_set_deadline(id, d && d->knobs.timewait_ms ? d->knobs.timewait_ms : 1);
}

void cm_farewell(struct cm_id *id)
{
    switch (id->state) {
    case CM_REQ_SENT:
        cm_send_rej(id, CM_REJ_TIMEOUT, NULL, 0);
        break;
    case CM_REQ_RCVD:
    case CM_REP_RCVD:
        cm_send_rej(id, CM_REJ_CONSUMER, NULL, 0);
        break;
    case CM_REP_SENT:
    case CM_ESTABLISHED:
        if (!cm_is_ud(id))
            cm_send_simple(id, CM_DREQ);
        break;
    case CM_DREQ_RCVD:
        cm_send_simple(id, CM_DREP);
        break;
    case CM_IDLE:
    case CM_BOUND:
    case CM_ADDR_RESOLVED:
    case CM_ROUTE_RESOLVED:
    case CM_LISTEN:
    case CM_DREQ_SENT:
    case CM_TIMEWAIT:
    case CM_CLOSED:
        break;
    }
}
