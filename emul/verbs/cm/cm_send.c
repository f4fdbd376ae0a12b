/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages to the peer of an id, and time-outs of answers.
 *
 * A request that finds the peer's inbox full is retried while its id waits for an answer
 * (cm_proto.c). Other messages are kept here in order until there is room or the peer is dead,
 * even if the id is destroyed, because the peer would not repeat its request.
 */
#include "emul/verbs/cm/cm.h"

#include <stdlib.h>
#include <string.h>

/* Limit per peer. A connection has a few messages; a peer with more does not read its inbox. */
#define MAX_UNSENT 65536u

struct cm_unsent {
    struct cm_unsent *next;
    struct cm_msg m;
};

struct cm_waiting {
    struct cm_waiting *next;
    struct emu_peer *peer; /* with a reference */
    struct cm_unsent *head, **tail;
    uint32_t count;
};

/* Returns the kept messages of a peer, creating the list if `make`. Under cm.lock. NULL: none,
 * or no memory. */
static struct cm_waiting *waiting_for(struct emu_dev *d, struct emu_peer *p, bool make)
{
    struct cm_waiting *w = cm.waiting;

    while (w != NULL && w->peer != p)
        w = w->next;
    if (w != NULL || !make || (w = calloc(1, sizeof(*w))) == NULL)
        return w;
    emu_peer_ref(d, p);
    w->peer = p;
    w->tail = &w->head;
    w->next = cm.waiting;
    cm.waiting = w;
    return w;
}

static bool put(struct emu_dev *d, struct emu_peer *p, const struct cm_msg *m)
{
    return emu_peer_send(d, p, INBOX_CM, 0, 0, m, sizeof(*m));
}

void cm_send_message(struct emu_dev *d, struct emu_peer *p, const struct cm_msg *m)
{
    struct cm_waiting *w = waiting_for(d, p, false);

    if ((w == NULL && put(d, p, m)) || atomic_load(&p->dead))
        return;
    struct cm_unsent *u = malloc(sizeof(*u));
    if (u != NULL)
        w = waiting_for(d, p, true);
    if (u == NULL || w == NULL || w->count == MAX_UNSENT) {
        free(u);
        return;
    }
    u->next = NULL;
    u->m = *m;
    *w->tail = u;
    w->tail = &u->next;
    w->count++;
    cm_timer_arm(emu_now() + CM_RETRY);
}

bool cm_send_unsent(struct emu_dev *d)
{
    for (struct cm_waiting *w, **at = &cm.waiting; (w = *at) != NULL;) {
        struct cm_unsent *u;
        while ((u = w->head) != NULL &&
               (atomic_load(&w->peer->dead) || put(d, w->peer, &u->m))) {
            w->head = u->next;
            w->count--;
            free(u);
        }
        if (w->head != NULL) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        emu_peer_put(d, w->peer);
        free(w);
    }
    return cm.waiting != NULL;
}

void cm_unsent_forked(void)
{
    for (struct cm_waiting *w; (w = cm.waiting) != NULL;) {
        for (struct cm_unsent *u; (u = w->head) != NULL;) {
            w->head = u->next;
            free(u);
        }
        cm.waiting = w->next;
        free(w);
    }
}

void cm_timer_arm(uint64_t due)
{
    struct emu_dev *d = emu_dev_peek();

    if (d != NULL)
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

    if (d == NULL || id->peer == NULL || d->knobs.silent ||
        emu_port_is_down(id->hca, EMU_PORT_OF(id->port)) || atomic_load(&id->peer->seg->silent))
        return true; /* lost by the network */
    m->type = type;
    m->src_slot = d->slot;
    m->src_inc = d->self.incarnation;
    m->local_id = id->num;
    m->remote_id = id->remote_num;
    m->port = id->port;
    if (type == CM_REQ || type == CM_SIDR_REQ)
        return put(d, id->peer, m);
    cm_send_message(d, id->peer, m);
    return true;
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
    cm_set_deadline(id, d != NULL && d->knobs.timewait_ms ? d->knobs.timewait_ms : 1);
}

void cm_farewell(struct cm_id *id)
{
    switch (id->state) {
    case CM_REQ_SENT:
        if (id->req_delivered)
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
