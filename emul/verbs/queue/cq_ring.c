/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The rings of completion queues, and how a queue grows.
 *
 * A ring has a power of two of places, of which as many may be used as the program asked for. A
 * queue that is made smaller, or larger within its places, gets another limit. One that needs
 * more places gets another ring, while posters of any process push into the old one and may be
 * stopped or killed anywhere in it. The owner does so under the queue's lock:
 *
 *   1. It makes the new ring, which nobody knows, and names it in the old one's `next`.
 *   2. It moves what is unread from the old ring to the new one, in order.
 *   3. When the old ring is empty it puts the seal into the place at its head, which is the
 * next to be filled. The swap of that word fails if a poster has just filled the place: then
 *      there is something to move again (2).
 *   4. It names the new ring in the queue.
 *
 * Why nothing is lost, doubled or out of order. A completion exists from the moment that its
 * poster's swap of the word at the tail succeeds. No poster gets past a place before it is
 * filled, so the place at the head of an empty ring is the only one that can be filled next,
 * and the seal fills it: a swap came either before, and its completion was moved in step 2, or
 * finds the seal. Nothing is in the new ring before the seal but what was moved, as only the
 * seal leads there: so all that came before it are in front of all that come later. A poster
 * that had already got a cell of the old ring gives it back and begins again in the new one.
 *
 * Why nobody waits. `next` is set before the seal is there, so a poster that meets the seal
 * knows the way although the owner may be stopped between steps 3 and 4; it may lead over
 * several rings, if the poster itself was stopped for long. The owner repeats step 2 only when
 * somebody has completed something.
 *
 * Why a poll is not deceived. Who polls without the lock reads the private pointer to the ring,
 * looks at the ring, and reads the pointer again. It is NULL from before the first completion
 * is moved, and another one afterwards, and no ring is used twice while the queue lives. So a
 * ring that was found empty between two equal values was empty of itself, and the poll says so;
 * else it takes the lock.
 *
 * A sealed ring stays until the queue is destroyed, as posters may still be in it; together
 * they have fewer places than the one in use.
 *
 * A queue is destroyed when no queue pair uses it, and then no poster runs in it, as each had
 * the token of a queue pair. But one that was stopped may have lost its token anywhere in here,
 * and goes on when it wakes up: with a cell, or the place of one, in its hands. Then the rings
 * stay as they are, heads and all, until that poster's process dies (emu_cq_late): what it adds
 * there nobody sees.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t places_for(uint32_t n)
{
    uint32_t p = 1;

    while (p < n)
        p <<= 1;
    return p;
}

/* A head without a ring; NULL without memory. */
static struct emu_ring *head_new(struct emu_dev *d)
{
    pthread_mutex_lock(&d->lock);
    struct emu_ring *r = d->ring_heads;
    if (r)
        d->ring_heads = r->next;
    pthread_mutex_unlock(&d->lock);
    if (r)
        return r;
    r = calloc(1, sizeof(*r));
    if (r && !(r->off_head = emu_arena_alloc(d, sizeof(struct shm_ring)))) {
        free(r);
        return NULL;
    }
    if (r)
        r->s = shm_at(d->seg, r->off_head);
    return r;
}

void emu_cq_ring_free(struct emu_dev *d, struct emu_ring *r)
{
    if (!r)
        return;
    if (r->off)
        emu_arena_free(d, r->off, r->bytes);
    r->off = 0;
    pthread_mutex_lock(&d->lock);
    r->next = d->ring_heads;
    d->ring_heads = r;
    pthread_mutex_unlock(&d->lock);
}

struct emu_ring *emu_cq_ring_new(struct emu_dev *d, uint32_t cap)
{
    uint32_t places = places_for(cap);
    struct emu_ring *r = head_new(d);

    if (!r)
        return NULL;
    r->bytes = shm_ring_bytes(places, sizeof(struct shm_cqe));
    r->off = emu_arena_alloc(d, r->bytes);
    if (!r->off) {
        emu_cq_ring_free(d, r);
        return NULL;
    }
    shm_ring_init(d->seg, r->s, r->off, places, sizeof(struct shm_cqe), cap);
    return r;
}

/* Puts a copy of `c` into the ring, with another time unless that is 0. */
static enum shm_pushed put(const struct shm_head *seg, struct shm_ring *ring, uint32_t slot,
                           const struct shm_cqe *c, uint64_t time)
{
    struct shm_cqe *e = shm_cell_get(seg, ring, slot);

    if (!e)
        return SHM_FULL;
    memcpy((char *)e + sizeof(e->cell), (const char *)c + sizeof(c->cell),
           sizeof(*c) - sizeof(c->cell));
    if (time)
        e->time = time;
    emu_step(EMU_STEP_push);
    enum shm_pushed p = shm_ring_push(seg, ring, e);
    if (p != SHM_PUSHED)
        shm_cell_put(seg, ring, e);
    return p;
}

/* A completion found no room. */
static void overrun(struct emu_dev *d, struct emu_peer *owner, uint32_t index)
{
    emu_count(COUNT_cq_overruns, 1);
    if (!atomic_exchange(&shm_cq(owner->seg, index)->overrun, 1))
        emu_peer_send(d, owner, INBOX_CQ_OVERRUN, index, 0, NULL, 0);
}

bool emu_cq_push(struct emu_dev *d, struct emu_peer *owner, uint32_t index,
                 const struct shm_cqe *c)
{
    struct shm_cq *s = shm_cq(owner->seg, index);

    if (!atomic_load_explicit(&s->in_use, memory_order_relaxed))
        return false;
    uint64_t off = atomic_load_explicit(&s->off_ring, memory_order_acquire);
    uint64_t time = s->stamps ? emu_now() : 0;
    for (;;) {
        struct shm_ring *ring = shm_at(owner->seg, off);
        enum shm_pushed p = put(owner->seg, ring, d->slot, c, time);
        if (p == SHM_PUSHED)
            return true;
        if (p == SHM_FULL)
            break;
        off = atomic_load(&ring->next);
        if (!off) /* the queue has gone, and its memory is another's */
            return false;
    }
    overrun(d, owner, index);
    return false;
}

/* Steps 1 to 4 above. Under cq->lock. */
static void exchange(struct emu_dev *d, struct emu_cq *cq, struct emu_ring *larger)
{
    struct shm_ring *old = cq->ring;
    struct shm_cqe *e;

    atomic_store(&old->next, larger->off_head);
    atomic_store(&cq->ring, NULL);
    do {
        while ((e = shm_ring_peek(d->seg, old, 0)) != NULL) {
            if (put(d->seg, larger->s, d->slot, e, 0) != SHM_PUSHED) {
                if (e->bounce)
                    shm_bounce_put(d->seg, e->bounce - 1);
                overrun(d, &d->self, cq->index);
            }
            shm_ring_pop(d->seg, old);
        }
    } while (!shm_ring_seal(d->seg, old));
    emu_step(EMU_STEP_grow);
    atomic_store(&cq->s->off_ring, larger->off_head);
    atomic_store(&cq->ring, larger->s);
    cq->rings[cq->nrings++] = larger;
}

static int resize(struct emu_dev *d, struct emu_cq *cq, uint32_t cqe)
{
    uint32_t places = places_for(cqe), held = 0;
    struct emu_ring *larger = NULL;
    int err = 0;

    /* the lock of the arena comes before the queue's: so what may be needed is made first */
    pthread_mutex_lock(&cq->lock);
    bool more = places > ((struct shm_ring *)cq->ring)->mask + 1;
    pthread_mutex_unlock(&cq->lock);
    if (more && !(larger = emu_cq_ring_new(d, cqe)))
        return ENOMEM;
    pthread_mutex_lock(&cq->lock);
    struct shm_ring *ring = cq->ring;
    while (emu_cq_unread(d, cq, held))
        held++;
    if (held > cqe) {
        err = EINVAL;
    } else if (places > ring->mask + 1) {
        exchange(d, cq, larger);
        larger = NULL;
    } else {
        atomic_store(&ring->cap, cqe);
    }
    if (!err)
        cq->cq.cqe = (int)cqe;
    pthread_mutex_unlock(&cq->lock);
    emu_cq_ring_free(d, larger); /* another thread has made the queue larger meanwhile */
    return err;
}

EMU_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
    struct emu_dev *d = emu_dev_for(cq->context);

    if (emu_call(CALL_ibv_resize_cq))
        return ENOMEM;
    if (!d)
        return EIO;
    if (cqe < 1 || (uint64_t)cqe > d->knobs.max_cqe)
        return EINVAL;
    return resize(d, (struct emu_cq *)cq, (uint32_t)cqe);
}
