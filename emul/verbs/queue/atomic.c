/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Atomic operations are atomic to each other, as an adapter's are, not to the instructions of
 * the program that has the memory. Posters take turns at the memory of one process, by a word
 * in its segment that names who is at it. One that died there is passed by: what it has not
 * written it never will. One that is stopped there is not, as it would write when it goes on;
 * requests that wait for it end as those to a peer that does not answer.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <sched.h>

/* The word that tells who does an atomic operation: this process, in this life. */
static uint64_t atomic_word(const struct emu_peer *p)
{
    return p->incarnation << 16 | p->slot;
}

/* Waits for this process's turn at the memory of the peer. */
static bool enter(struct emu_dev *d, struct emu_peer *p)
{
    _Atomic uint64_t *turn = &p->seg->atomics;
    uint64_t mine = atomic_word(&d->self), since = 0, look = 0, holder = 0;

    while (!atomic_compare_exchange_strong(turn, &holder, mine)) {
        uint64_t now = emu_now();
        if (!since)
            look = (since = now) + EMU_TURN_LOOK;
        if (now > since + EMU_TURN_WAIT)
            return false;
        bool dead = false;
        if (holder && now > look) {
            struct emu_peer *at = emu_peer_get(d, (uint32_t)holder & (EMU_MAX_SLOTS - 1));
            dead = at ? atomic_word(at) != holder : errno == ECONNREFUSED || errno == ESRCH;
            emu_peer_put(d, at);
            look = now + EMU_TURN_LOOK;
        }
        if (!dead) { /* else its word is taken over, if it is still there */
            holder = 0;
            sched_yield();
        }
    }
    return true;
}

static int do_word(struct emu_peer *p, const struct emu_wr *wr, struct iovec remote,
                   uint64_t *old)
{
    uint64_t new;
    struct iovec to = {old, 8}, from = {&new, 8}, there = remote;
    int err = emu_copy_from(p, &to, 1, &there, 1, 8);

    if (err)
        return err;
    new = wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? *old + wr->atomic.compare_add
          : *old == wr->atomic.compare_add          ? wr->atomic.swap
                                                    : *old;
    return new == *old ? 0 : emu_copy_to(p, &from, 1, &remote, 1, 8);
}

int emu_atomic(struct emu_dev *d, struct emu_peer *p, const struct emu_wr *wr,
               struct iovec remote, uint64_t *old)
{
    if (!enter(d, p))
        return -ESRCH;
    int err = do_word(p, wr, remote, old);
    atomic_store(&p->seg->atomics, 0);
    return err;
}
