/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Atomic operations: atomic among each other, as on an adapter, not to instructions of the
 * program that owns the memory. Posters take turns by a word in the owner's segment that names
 * the current one. A dead poster, which can no longer write, is skipped. A stopped poster is
 * not skipped, because the write would happen after continuing; requests that wait for it fail
 * as with an unresponsive peer.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <sched.h>

/* Returns the word that identifies this process and incarnation. */
static uint64_t atomic_word(const struct emu_peer *p)
{
    return p->incarnation << 16 | p->slot;
}

/* Waits for this process's turn at the peer's memory; false on time-out. */
static bool enter(struct emu_dev *d, struct emu_peer *p)
{
    _Atomic uint64_t *turn = &p->seg->atomics;
    uint64_t mine = atomic_word(&d->self), since = 0, check_at = 0, holder = 0;

    while (!atomic_compare_exchange_strong(turn, &holder, mine)) {
        uint64_t now = emu_now();
        if (!since)
            check_at = (since = now) + EMU_TURN_CHECK;
        if (now > since + EMU_TURN_WAIT)
            return false;
        bool dead = false;
        if (holder && now > check_at) {
            struct emu_peer *at = emu_peer_get(d, (uint32_t)holder & (EMU_MAX_SLOTS - 1));
            dead = at != NULL ? atomic_word(at) != holder
                              : errno == ECONNREFUSED || errno == ESRCH;
            emu_peer_put(d, at);
            check_at = now + EMU_TURN_CHECK;
        }
        if (!dead) { /* otherwise take over the dead poster's word, if unchanged */
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
