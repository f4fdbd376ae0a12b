/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Completion channels. Programs poll a descriptor whose counter counts wake-ups, one per
 * event. Events are counted in the word shm_cq.armed of their CQ, so a channel needs no shared
 * list, and a dying poster neither loses nor duplicates events. A dead poster may or may not
 * have signalled the eventfd: then its count is set according to the CQs. The same happens when
 * a CQ is destroyed with its events. A poster running meanwhile may signal an event that was
 * already counted; the result is a read that finds no event.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

EMU_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct emu_dev *d = emu_dev_for(context);
    struct emu_chan *c = NULL;

    if (emu_call(CALL_ibv_create_comp_channel))
        errno = EMFILE;
    else if (d == NULL)
        errno = EIO;
    else
        c = calloc(1, sizeof(*c));
    if (c == NULL)
        return NULL;
    c->ch.context = context;
    c->ch.fd = emu_events_open(&c->counter, 0);
    if (c->ch.fd < 0) {
        free(c);
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    uint32_t n, i = 0;
    for (n = 0; n < EMU_MAX_CHANS; n++) {
        i = (d->next_chan + n) % EMU_MAX_CHANS;
        if (!(atomic_load(&shm_chan(d->seg, i)->gen) & 1))
            break;
    }
    if (n < EMU_MAX_CHANS) {
        d->next_chan = i + 1;
        c->index = i;
        atomic_store(&shm_chan(d->seg, i)->fd, c->counter);
        atomic_fetch_add(&shm_chan(d->seg, i)->gen, 1);
    }
    pthread_mutex_unlock(&d->lock);
    if (n == EMU_MAX_CHANS) {
        emu_events_close(c->ch.fd, c->counter);
        free(c);
        errno = ENOMEM;
        return NULL;
    }
    emu_count(COUNT_live_channel, 1);
    return &c->ch;
}

EMU_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    struct emu_chan *c = (struct emu_chan *)channel;
    struct emu_dev *d = emu_dev_for(channel->context);

    if (emu_call(CALL_ibv_destroy_comp_channel) || d == NULL)
        return EIO;
    pthread_mutex_lock(&d->lock);
    bool busy = c->cqs != NULL;
    if (!busy) {
        /* before closing: late posters check `gen` and write nothing */
        pthread_mutex_lock(&d->self.chan_lock);
        atomic_fetch_add(&shm_chan(d->seg, c->index)->gen, 1);
        pthread_mutex_unlock(&d->self.chan_lock);
    }
    pthread_mutex_unlock(&d->lock);
    if (busy)
        return EBUSY;
    emu_events_close(c->ch.fd, c->counter);
    free(c);
    emu_uncount(COUNT_live_channel, 1);
    return 0;
}

void emu_chan_settle(struct emu_chan *c)
{
    uint64_t n = 0, one;
    struct iovec v = {&one, sizeof(one)};

    /* a program's thread may also read: do not block */
    while (emu_is_own(c->counter) && preadv2(c->counter, &v, 1, -1, RWF_NOWAIT) > 0)
        ;
    for (const struct emu_cq *q = c->cqs; q; q = q->chan_next)
        n += emu_cq_events(q);
    while (n && emu_is_own(c->counter) && write(c->counter, &n, sizeof(n)) < 0 &&
           errno == EINTR)
        ;
    atomic_fetch_add(&c->settled, 1);
}

EMU_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                                void **cq_context)
{
    struct emu_chan *c = (struct emu_chan *)channel;
    struct emu_dev *d = emu_dev_for(channel->context);

    if (emu_call(CALL_ibv_get_cq_event) || d == NULL) {
        errno = EIO;
        return -1;
    }
    for (;;) {
        struct emu_cq *found = NULL;
        uint32_t settled = atomic_load(&c->settled);
        if (emu_events_take(channel->fd, c->counter) < 0)
            return -1;
        pthread_mutex_lock(&d->lock);
        for (struct emu_cq **pp = &c->cqs; *pp; pp = &(*pp)->chan_next) {
            struct emu_cq *q = *pp;
            if (emu_cq_events(q) == 0)
                continue;
            q->fetched++;
            found = q;
            if (q->chan_next !=
                NULL) { /* moved to the end: the other CQs are first next time */
                *pp = q->chan_next;
                while (*pp != NULL)
                    pp = &(*pp)->chan_next;
                *pp = q;
                q->chan_next = NULL;
            }
            break;
        }
        if (atomic_load(&c->settled) != settled)
            emu_chan_settle(c); /* settling counted the event of the wake-up read before */
        if (found != NULL) {
            pthread_mutex_lock(&found->cq.mutex);
            found->comp_events++;
            pthread_mutex_unlock(&found->cq.mutex);
        }
        pthread_mutex_unlock(&d->lock);
        if (found != NULL) {
            emu_count(COUNT_comp_events, 1);
            *cq = &found->cq;
            *cq_context = found->cq.cq_context;
            return 0;
        }
        /* the CQ of the event was destroyed meanwhile: wait for the next event */
    }
}

EMU_EXPORT void ibv_ack_cq_events(struct ibv_cq *ibcq, unsigned int nevents)
{
    emu_call(CALL_ibv_ack_cq_events);
    pthread_mutex_lock(&ibcq->mutex);
    ibcq->comp_events_completed += nevents;
    pthread_cond_signal(&ibcq->cond);
    pthread_mutex_unlock(&ibcq->mutex);
}
