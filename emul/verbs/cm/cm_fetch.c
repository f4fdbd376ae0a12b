/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Fetching events. As in the real library, fetching has effects: a connection response changes
 * the QP to RTS and is answered by RTU; a rejection changes the QP to the error state. */
#include "emul/verbs/cm/cm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Returns an id without a device to the state before address resolution, which can be
 * repeated. */
static void unresolved(struct cm_id *id)
{
    pthread_mutex_lock(&cm.lock);
    if (id->state == CM_ADDR_RESOLVED)
        id->state = id->bound ? CM_BOUND : CM_IDLE;
    pthread_mutex_unlock(&cm.lock);
}

/* Performs the part of fetching that runs in the program's thread. False: a request cannot be
 * served, and is not reported. */
static bool digest(struct cm_event *e)
{
    struct cm_id *id = (struct cm_id *)e->ev.id;
    int err;

    switch (e->ev.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        e->ev.status = cm_set_verbs(id);
        if (e->ev.status) {
            e->ev.event = RDMA_CM_EVENT_ADDR_ERROR;
            unresolved(id);
        }
        break;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        err = cm_set_verbs(id);
        if (err) {
            fprintf(stderr,
                    "emuverbs: connection request rejected: no device for its identifier: %s; "
                    "provide more descriptors (ulimit -n) or memory\n",
                    strerror(-err));
            return false;
        }
        if (id->sync && rdma_migrate_id(&id->id, NULL))
            e->ev.status = -errno;
        break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        if (id->id.qp == NULL)
            break;
        if (cm_process_response(id) < 0) {
            e->ev.event = RDMA_CM_EVENT_CONNECT_ERROR;
            e->ev.status = -errno;
        } else {
            e->ev.event = RDMA_CM_EVENT_ESTABLISHED;
            emu_count(COUNT_connects, 1);
        }
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        emu_count(COUNT_connects, 1);
        break;
    case RDMA_CM_EVENT_REJECTED:
        emu_count(COUNT_rejects, 1);
        cm_qp_err(id);
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        emu_count(COUNT_disconnects, 1);
        break;
    case RDMA_CM_EVENT_MULTICAST_JOIN:
        e->ev.status = cm_group_attach(id, e->group);
        if (e->ev.status)
            e->ev.event = RDMA_CM_EVENT_MULTICAST_ERROR;
        break;
    default:
        break;
    }
    return true;
}

EMU_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel,
                                 struct rdma_cm_event **event)
{
    struct cm_chan *c = (struct cm_chan *)channel;

    if (emu_call(CALL_rdma_get_cm_event)) {
        errno = ENOMEM;
        return -1;
    }
    if (c->dev != emu_dev_peek()) {
        errno = EIO;
        return -1;
    }
    for (;;) {
        pthread_mutex_lock(&cm.lock);
        bool entered = cm_chan_enter(c);
        pthread_mutex_unlock(&cm.lock);
        if (!entered) {
            errno = EBADF;
            return -1;
        }
        int got = emu_events_take(channel->fd, c->counter);
        int err = got < 0 ? errno : EBADF;
        pthread_mutex_lock(&cm.lock);
        if (!cm_chan_leave(c) || got < 0) {
            pthread_mutex_unlock(&cm.lock);
            errno = err;
            return -1;
        }
        struct cm_event *e = c->head;
        if (e != NULL) {
            c->head = e->next;
            if (c->head == NULL)
                c->tail = &c->head;
            e->next = NULL;
            e->owner->fetched++;
            if (e->group != NULL)
                e->group->fetched++;
            if (e->ev.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
                e->owner->pending--;
                ((struct cm_id *)e->ev.id)->of = NULL;
            }
        }
        pthread_mutex_unlock(&cm.lock);
        if (e == NULL)
            continue; /* its id was destroyed meanwhile: wait for the next */
        bool seen = digest(e);
        struct cm_id *id = (struct cm_id *)e->ev.id;
        emu_count(COUNT_live_cm_event, 1);
        if (e->ev.event == RDMA_CM_EVENT_CONNECT_REQUEST)
            emu_count(COUNT_live_cm_id, 1);
        if (seen) {
            *event = &e->ev;
            return 0;
        }
        cm_id_end(id); /* rejects the request; the channel exists until the acknowledgement */
        emu_uncount(COUNT_live_cm_id, 1);
        rdma_ack_cm_event(&e->ev);
    }
}

EMU_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
    struct cm_event *e = (struct cm_event *)event;

    emu_call(CALL_rdma_ack_cm_event);
    if (event == NULL) {
        errno = EINVAL;
        return -1;
    }
    pthread_mutex_lock(&cm.lock);
    if (e->group != NULL) {
        e->group->acked++;
        pthread_cond_broadcast(&e->group->acked_cond);
    }
    e->owner->acked++;
    pthread_cond_broadcast(&e->owner->acked_cond);
    pthread_mutex_unlock(&cm.lock);
    free(e);
    emu_uncount(COUNT_live_cm_event, 1);
    return 0;
}

int cm_complete(struct cm_id *id)
{
    struct rdma_cm_event *e;

    if (!id->sync)
        return 0;
    if (id->id.event != NULL) {
        rdma_ack_cm_event(id->id.event);
        id->id.event = NULL;
    }
    if (rdma_get_cm_event(id->id.channel, &e))
        return -1;
    id->id.event = e;
    if (e->status == 0)
        return 0;
    errno = e->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED
            : e->status < 0                    ? -e->status
                                               : EIO;
    return -1;
}

EMU_EXPORT int rdma_migrate_id(struct rdma_cm_id *ibid, struct rdma_event_channel *channel)
{
    struct cm_id *id = (struct cm_id *)ibid;
    struct cm_chan *to = (struct cm_chan *)channel, *from = (struct cm_chan *)ibid->channel;
    struct cm_chan *drop = NULL;

    if (emu_call(CALL_rdma_migrate_id)) {
        errno = ENOMEM;
        return -1;
    }
    if (!cm_is_ours(id)) {
        errno = EIO;
        return -1;
    }
    if (channel == NULL && id->own_channel) {
        errno = EINVAL;
        return -1;
    }
    if (id->own_channel && ibid->event != NULL) {
        rdma_ack_cm_event(ibid->event);
        ibid->event = NULL;
    }
    if (to == NULL) {
        to = cm_chan_new();
        if (to == NULL)
            return -1;
    }
    pthread_mutex_lock(&cm.lock);
    if (to == from) { /* the events are on the right channel */
        pthread_mutex_unlock(&cm.lock);
        return 0;
    }
    if (id->own_channel)
        drop = from;
    struct cm_event **pp = &from->head;
    while (*pp != NULL) {
        struct cm_event *e = *pp;
        if (!cm_event_is_of(e, id)) {
            pp = &e->next;
            continue;
        }
        uint64_t one;
        struct iovec v = {&one, sizeof(one)};
        *pp = e->next;
        e->next = NULL;
        if (!emu_is_own(from->counter) || preadv2(from->counter, &v, 1, -1, RWF_NOWAIT) < 0)
            one = 0;
        cm_chan_put(to, e);
    }
    from->tail = pp;
    ibid->channel = &to->ch;
    id->own_channel = channel == NULL;
    id->sync = channel == NULL;
    for (struct cm_id *child = cm.ids; child; child = child->next)
        if (child->of == id) {
            child->id.channel = ibid->channel;
            child->sync = id->sync;
        }
    if (drop != NULL)
        cm_chan_free(drop);
    pthread_mutex_unlock(&cm.lock);
    return 0;
}
