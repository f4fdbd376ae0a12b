/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Event channels: a list, and a counter of its events. */
#include "emul/verbs/cm/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct cm_chan *cm_chan_new(void)
{
    struct cm_chan *c = calloc(1, sizeof(*c));

    if (c == NULL)
        return NULL;
    c->ch.fd = emu_events_open(&c->counter, 0);
    if (c->ch.fd < 0) {
        free(c);
        return NULL;
    }
    c->tail = &c->head;
    c->dev = emu_dev_peek();
    return c;
}

/* Keeps a destroyed channel until the next one is destroyed, so that a thread that reads a
 * channel just destroyed, as in rping, finds it closed. Under cm.lock. */
static void keep_destroyed(struct cm_chan *c)
{
    free(cm.destroyed);
    cm.destroyed = c;
}

void cm_chan_free(struct cm_chan *c)
{
    while (c->head != NULL) {
        struct cm_event *e = c->head;
        c->head = e->next;
        free(e);
    }
    emu_events_close(c->ch.fd, c->counter);
    c->gone = true;
    if (c->readers == 0)
        keep_destroyed(c);
}

bool cm_chan_enter(struct cm_chan *c)
{
    if (c->gone)
        return false;
    c->readers++;
    return true;
}

bool cm_chan_leave(struct cm_chan *c)
{
    bool gone = c->gone;

    if (--c->readers == 0 && gone)
        keep_destroyed(c);
    return !gone;
}

EMU_EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
    if (emu_call(CALL_rdma_create_event_channel)) {
        errno = ENOMEM;
        return NULL;
    }
    if (emu_dev() == NULL)
        return NULL;
    struct cm_chan *c = cm_chan_new();
    if (c == NULL)
        return NULL;
    emu_count(COUNT_live_cm_channel, 1);
    return &c->ch;
}

EMU_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
    emu_call(CALL_rdma_destroy_event_channel);
    if (((struct cm_chan *)channel)->dev != emu_dev_peek())
        return;
    pthread_mutex_lock(&cm.lock);
    cm_chan_free((struct cm_chan *)channel);
    pthread_mutex_unlock(&cm.lock);
    emu_uncount(COUNT_live_cm_channel, 1);
}

/* Converts an event to the failure of its step, for fault injection. */
static enum rdma_cm_event_type failed_form(enum rdma_cm_event_type type, int *status)
{
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        *status = -EHOSTUNREACH;
        return RDMA_CM_EVENT_ADDR_ERROR;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        *status = -EHOSTUNREACH;
        return RDMA_CM_EVENT_ROUTE_ERROR;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        *status = -ETIMEDOUT;
        return RDMA_CM_EVENT_UNREACHABLE;
    case RDMA_CM_EVENT_ESTABLISHED:
        *status = -ECONNABORTED;
        return RDMA_CM_EVENT_CONNECT_ERROR;
    case RDMA_CM_EVENT_MULTICAST_JOIN:
        *status = -EHOSTUNREACH;
        return RDMA_CM_EVENT_MULTICAST_ERROR;
    default:
        return type;
    }
}

void cm_chan_put(struct cm_chan *c, struct cm_event *e)
{
    *c->tail = e;
    c->tail = &e->next;
    if (!emu_kick(c->counter))
        return; /* counter at its limit: the descriptor is readable anyway */
}

static void conn_param(struct rdma_conn_param *p, const struct cm_msg *m)
{
    /* the peer's initiator depth is the local responder depth, and vice versa */
    p->responder_resources = m->initiator_depth;
    p->initiator_depth = m->responder_resources;
    p->flow_control = m->flow_control;
    p->retry_count = m->retry_count;
    p->rnr_retry_count = m->rnr_retry_count;
    p->srq = m->srq;
    p->qp_num = m->qpn;
}

/* Fills in the peer's UD QP. A request carries data only. */
static void ud_param(struct rdma_ud_param *p, const struct cm_id *id,
                     enum rdma_cm_event_type type, const struct cm_msg *m)
{
    if (type != RDMA_CM_EVENT_ESTABLISHED)
        return;
    cm_path(emu_dev_base(), id, &p->ah_attr);
    p->qp_num = m->qpn;
    p->qkey = m->qkey;
}

static struct cm_event *make(struct cm_id *owner, struct cm_id *id,
                             enum rdma_cm_event_type type, int status, const struct cm_msg *m,
                             size_t private_len)
{
    struct cm_event *e = calloc(1, sizeof(*e));

    if (e == NULL)
        return NULL;
    e->owner = owner;
    e->ev.id = &id->id;
    e->ev.event = type;
    e->ev.status = status;
    if (m != NULL) {
        if (cm_is_ud(id))
            ud_param(&e->ev.param.ud, id, type, m);
        else
            conn_param(&e->ev.param.conn, m);
        memcpy(e->private_data, m->private_data, sizeof(m->private_data));
        if (private_len && cm_is_ud(id)) {
            e->ev.param.ud.private_data = e->private_data;
            e->ev.param.ud.private_data_len = (uint8_t)private_len;
        } else if (private_len) {
            e->ev.param.conn.private_data = e->private_data;
            e->ev.param.conn.private_data_len = (uint8_t)private_len;
        }
    }
    return e;
}

void cm_event_post(struct cm_id *id, enum rdma_cm_event_type type, int status,
                   const struct cm_msg *m, size_t private_len)
{
    if (emu_call(CALL_cm_event)) {
        enum rdma_cm_event_type failed = failed_form(type, &status);
        if (failed != type) {
            if (type == RDMA_CM_EVENT_CONNECT_RESPONSE)
                cm_send_rej(id, CM_REJ_TIMEOUT, NULL, 0);
            else if (type == RDMA_CM_EVENT_ESTABLISHED)
                cm_farewell(id);
            id->state = CM_CLOSED;
            cm_set_deadline(id, 0);
        }
        type = failed;
    }
    struct cm_event *e = make(id, id, type, status, m, private_len);
    if (e != NULL)
        cm_chan_put((struct cm_chan *)id->id.channel, e);
}

void cm_event_post_request(struct cm_id *listener, struct cm_id *child, const struct cm_msg *m)
{
    struct cm_event *e = make(listener, child, RDMA_CM_EVENT_CONNECT_REQUEST, 0, m,
                              cm_is_ud(child) ? CM_SIDR_REQ_PRIVATE : CM_REQ_PRIVATE);

    emu_call(CALL_cm_event);
    if (e == NULL)
        return;
    e->ev.listen_id = &listener->id;
    listener->pending++;
    cm_chan_put((struct cm_chan *)listener->id.channel, e);
}

void cm_event_post_join(struct cm_id *id, struct cm_group *g)
{
    struct cm_event *e = make(id, id, RDMA_CM_EVENT_MULTICAST_JOIN, 0, NULL, 0);
    struct rdma_ud_param *p = e != NULL ? &e->ev.param.ud : NULL;

    if (e == NULL)
        return;
    if (emu_call(CALL_cm_event))
        e->ev.event = failed_form(e->ev.event, &e->ev.status);
    e->group = g;
    p->private_data = g->context;
    cm_path(emu_dev_base(), id, &p->ah_attr);
    p->ah_attr.is_global = 1;
    p->ah_attr.grh.dgid = g->gid;
    p->ah_attr.grh.hop_limit = 64;
    p->ah_attr.dlid = emu_dev_base()->knobs.ethernet ? 0 : CM_GROUP_LID;
    p->qp_num = EMU_MCAST_QPN;
    p->qkey = RDMA_UDP_QKEY;
    cm_chan_put((struct cm_chan *)id->id.channel, e);
}

void cm_event_purge(struct cm_id *id, struct cm_group *g)
{
    struct cm_chan *c = (struct cm_chan *)id->id.channel;
    struct cm_event **pp = &c->head;

    while (*pp != NULL) {
        struct cm_event *e = *pp;
        if (!cm_event_is_of(e, id) || (g != NULL && e->group != g)) {
            pp = &e->next;
            continue;
        }
        *pp = e->next;
        uint64_t one;
        struct iovec v = {&one, sizeof(one)};
        if (!emu_is_own(c->counter) || preadv2(c->counter, &v, 1, -1, RWF_NOWAIT) < 0)
            one = 0; /* a reader has taken the count, will find no event, and will wait again */
        free(e);
    }
    c->tail = pp;
    if (g != NULL || !id->backlog)
        return;
    for (struct cm_id *child = cm.ids, *next; child; child = next) {
        next = child->next;
        if (child->of != id)
            continue;
        cm_farewell(child);
        cm_id_free(child);
    }
}

void cm_id_end(struct cm_id *id)
{
    pthread_mutex_lock(&cm.lock);
    cm_farewell(id);
    id->state = CM_CLOSED; /* messages to it are answered as to an unknown id */
    cm_event_purge(id, NULL);
    while (id->acked != id->fetched)
        pthread_cond_wait(&id->acked_cond, &cm.lock);
    cm_event_purge(id, NULL);
    cm_groups_free(id);
    struct cm_chan *own = id->own_channel ? (struct cm_chan *)id->id.channel : NULL;
    cm_id_free(id);
    if (own != NULL)
        cm_chan_free(own);
    pthread_mutex_unlock(&cm.lock);
}
