/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rings of completion queues, and growing them.
 *
 * A ring has a power of two of places, limited to the requested number of entries. A CQ resized
 * within its places is given another limit. A CQ that needs more places is given another ring,
 * while posters of any process push into the old one and may be stopped or killed at any point.
 * The owner, under the CQ's lock:
 *
 *   1. creates the new ring, unknown to others, and stores it in the old one's `next`;
 *   2. moves the unread entries from the old ring to the new one, in order;
 *   3. when the old ring is empty, puts the seal into the place at its head, which is the next
 *      to be filled; if a poster has just filled the place, the swap fails: continue with 2;
 *   4. publishes the new ring in the CQ.
 *
 * No completion is lost, duplicated or reordered: a completion exists from the swap of the word
 * at the tail. Posters fill places in order, so the place at the head of an empty ring is the
 * next to be filled, and the seal fills it. A poster's swap either precedes the seal, and its
 * completion is moved in step 2, or finds the seal. Before the seal the new ring contains moved
 * entries only, because posters reach it through the seal. A poster that holds a cell of the
 * old ring returns the cell and starts again in the new ring.
 *
 * No poster waits: `next` is set before the seal, so a poster that meets the seal can continue
 * even if the owner is stopped between steps 3 and 4; after a long stop it may follow several
 * rings. The owner repeats step 2 only after a new completion.
 *
 * Polling without the lock is safe: the poller reads the private pointer to the ring, checks
 * the ring, and reads the pointer again. The pointer is NULL from before the first move until
 * the new ring is set, and rings are not reused while the CQ exists. So a ring found empty
 * between two equal values was empty; otherwise the poller takes the lock.
 *
 * Sealed rings are kept until the CQ is destroyed, because posters may still be in them;
 * together they have fewer places than the current ring.
 *
 * A CQ is destroyed when no QP uses it. Then no poster runs in it, because each had the token
 * of a QP. A stopped poster may have lost its token while holding a cell or a place, and
 * continue later. In this case the rings and their heads are kept until that process dies
 * (emu_cq_late); its late entries are ignored.
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

/* Returns a head without a ring; NULL if out of memory. */
static struct emu_ring *head_new(struct emu_dev *d)
{
    pthread_mutex_lock(&d->lock);
    struct emu_ring *r = d->ring_heads;
    if (r != NULL)
        d->ring_heads = r->next;
    pthread_mutex_unlock(&d->lock);
    if (r != NULL)
        return r;
    r = calloc(1, sizeof(*r));
    if (r != NULL && !(r->off_head = emu_arena_alloc(d, sizeof(struct shm_ring)))) {
        free(r);
        return NULL;
    }
    if (r != NULL)
        r->s = shm_at(d->seg, r->off_head);
    return r;
}

void emu_cq_ring_free(struct emu_dev *d, struct emu_ring *r)
{
    if (r == NULL)
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

    if (r == NULL)
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

uint32_t emu_cq_max(const struct emu_dev *d)
{
    uint64_t each = emu_arena_takes(sizeof(struct shm_ring)) +
                    emu_arena_takes(shm_ring_bytes(1024, sizeof(struct shm_cqe)));
    uint64_t most = emu_segment_arena(d) / each;

    return (uint32_t)(most < EMU_MAX_CQS ? most : EMU_MAX_CQS);
}

/* Puts a copy of `c` into the ring. */
static enum shm_pushed put(const struct shm_head *seg, struct shm_ring *ring, uint32_t slot,
                           const struct shm_cqe *c)
{
    struct shm_cqe *e = shm_cell_get(seg, ring, slot);

    if (e == NULL)
        return SHM_FULL;
    memcpy((char *)e + sizeof(e->cell), (const char *)c + sizeof(c->cell),
           sizeof(*c) - sizeof(c->cell));
    emu_step(EMU_STEP_push);
    enum shm_pushed p = shm_ring_push(seg, ring, e);
    if (p != SHM_PUSHED)
        shm_cell_put(seg, ring, e);
    return p;
}

/* Handles a completion that found the CQ full. */
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
    for (;;) {
        struct shm_ring *ring = shm_at(owner->seg, off);
        enum shm_pushed p = put(owner->seg, ring, d->slot, c);
        if (p == SHM_PUSHED)
            return true;
        if (p == SHM_FULL)
            break;
        off = atomic_load(&ring->next);
        if (!off) /* the CQ was destroyed and its memory reused */
            return false;
    }
    overrun(d, owner, index);
    return false;
}

/* Replaces the ring: steps 1 to 4 above. Under cq->lock. */
static void exchange(struct emu_dev *d, struct emu_cq *cq, struct emu_ring *larger)
{
    struct shm_ring *old = cq->ring;
    struct shm_cqe *e;

    atomic_store(&old->next, larger->off_head);
    atomic_store(&cq->ring, NULL);
    do {
        while ((e = shm_ring_peek(d->seg, old, 0)) != NULL) {
            if (put(d->seg, larger->s, d->slot, e) != SHM_PUSHED) {
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

    /* the arena's lock is taken before the CQ's, so memory is allocated beforehand */
    pthread_mutex_lock(&cq->lock);
    bool more = places > ((struct shm_ring *)cq->ring)->mask + 1;
    pthread_mutex_unlock(&cq->lock);
    if (more && (larger = emu_cq_ring_new(d, cqe)) == NULL)
        return ENOMEM;
    pthread_mutex_lock(&cq->lock);
    struct shm_ring *ring = cq->ring;
    while (emu_cq_unread(d, cq, held) != NULL)
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
    emu_cq_ring_free(d, larger); /* another thread has grown the CQ meanwhile */
    return err;
}

EMU_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
    struct emu_dev *d = emu_dev_for(cq->context);

    if (emu_call(CALL_ibv_resize_cq))
        return ENOMEM;
    if (d == NULL)
        return EIO;
    if (cqe < 1 || (uint64_t)cqe > d->knobs.max_cqe)
        return EINVAL;
    return resize(d, (struct emu_cq *)cq, (uint32_t)cqe);
}
