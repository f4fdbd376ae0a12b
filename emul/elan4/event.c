/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Events: a count, negative while sets are outstanding, and an action when the count reaches
 * 0: store a word, or copy a block. A block copied to a command port contains commands, which
 * are appended to the context's inbox in the same transaction, and executed from there one by
 * one. Events that set events therefore do not nest, and the owner can continue a chain if
 * the process that started it dies.
 */
#include "emul/elan4/emu.h"

struct image {
    uint64_t count_type, p0, p1;
};

bool emu4_inbox_room(const struct shm_ctx *c)
{
    /* also called without the lock, as a hint */
    uint64_t head = __atomic_load_n(&c->inbox_head, __ATOMIC_RELAXED);
    uint64_t tail = __atomic_load_n(&c->inbox_tail, __ATOMIC_RELAXED);

    return tail - head <= EMU4_INBOX - EMU4_INBOX_RESERVE;
}

/* Appends commands to the port that contains `where`. */
static void to_port(struct emu4_txn *t, uint64_t where, const uint64_t *w, unsigned n)
{
    struct shm_ctx *c = t->e->c;
    uint64_t queue = ADDR_OFFSET(where) / PORT_BYTES;

    if (ADDR_TAG(where) != (c->tag & 0xfff) || queue >= EMU4_CQS || !c->cq[queue].in_use) {
        emu4_trap(t, UTS_INVALID_ADDR, UTS_EPROC, where, 0);
        return;
    }
    if (t->inbox_tail - c->inbox_head + n + 1 > EMU4_INBOX) {
        emu4_trap(t, UTS_BAD_TRAP, UTS_EPROC, where, n); /* an endless chain */
        return;
    }
    EMU4_TXN_SET(t, c->inbox[t->inbox_tail % EMU4_INBOX], queue << 32 | n);
    t->inbox_tail++;
    for (unsigned i = 0; i < n; i++, t->inbox_tail++)
        EMU4_TXN_SET(t, c->inbox[t->inbox_tail % EMU4_INBOX], w[i]);
}

static void fire(struct emu4_txn *t, const struct image *ev)
{
    static const uint32_t bytes_of[] = {1, 2, 4, 8};
    uint64_t block[E4_EVENT_COPY_SIZE_MASK];
    unsigned n = ev->count_type & E4_EVENT_COPY_SIZE_MASK;

    EMU4_COUNT(events_fired, 1);
    if (ev->count_type & E4_EVENT_COPY_TYPE_MASK) {
        if (ADDR_REGION(ev->p0) == REGION_PORT)
            to_port(t, ev->p0, &ev->p1, 1);
        else
            emu4_txn_store(t, ev->p0, ev->p1,
                           bytes_of[(ev->count_type & E4_EVENT_DATA_TYPE_MASK) >> 8]);
        return;
    }
    if (n == 0)
        return;
    if ((ev->p0 & 63) || emu4_read(t->e, ev->p0, block, n * 8) < 0) {
        emu4_trap(t, UTS_INVALID_ADDR, UTS_EPROC, ev->p0, n);
        return;
    }
    if (ADDR_REGION(ev->p1) == REGION_PORT) {
        to_port(t, ev->p1, block, n);
        return;
    }
    for (unsigned i = 0; i < n; i++)
        emu4_txn_store(t, ev->p1 + 8 * i, block[i], 8);
}

static bool read_event(struct emu4_txn *t, E4_Addr at, struct image *ev)
{
    if (ADDR_REGION(at) != REGION_PORT && emu4_read(t->e, at, ev, sizeof(*ev)) == 0)
        return true;
    emu4_trap(t, UTS_INVALID_ADDR, UTS_EPROC, at, 0);
    return false;
}

void emu4_event_set(struct emu4_txn *t, E4_Addr event)
{
    E4_Addr at = event & ~(E4_Addr)31;
    struct image ev;

    if (!read_event(t, at, &ev))
        return;
    EMU4_COUNT(events_set, 1);
    int32_t count = (int32_t)(ev.count_type >> 32);
    int64_t units = event & 31 ? (int64_t)(event & 31) : 32;
    int64_t sum = count + units;
    if (sum > INT32_MAX) {
        emu4_trap(t, UTS_BAD_TRAP, UTS_EPROC, at, ev.count_type);
        return;
    }
    emu4_txn_store(t, at, (uint64_t)(uint32_t)sum << 32 | (uint32_t)ev.count_type, 8);
    if (sum >= 0 && count < 0)
        fire(t, &ev);
}

void emu4_event_wait(struct emu4_txn *t, E4_Addr event, uint64_t count_type, uint64_t p0,
                     uint64_t p1)
{
    E4_Addr at = event & ~(E4_Addr)31;
    struct image ev;

    if (!read_event(t, at, &ev))
        return;
    int64_t sum = (int64_t)(int32_t)(ev.count_type >> 32) + (int32_t)(count_type >> 32);
    if (sum > INT32_MAX || sum < INT32_MIN) {
        emu4_trap(t, UTS_BAD_TRAP, UTS_EPROC, at, count_type);
        return;
    }
    ev = (struct image){(uint64_t)(uint32_t)sum << 32 | (uint32_t)count_type, p0, p1};
    emu4_txn_store(t, at, ev.count_type, 8);
    emu4_txn_store(t, at + 8, p0, 8);
    emu4_txn_store(t, at + 16, p1, 8);
    if (sum >= 0)
        fire(t, &ev);
}
