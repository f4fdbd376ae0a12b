/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Keys of regions and windows: allocation, checks, reference tracking.
 *
 * A key is random and contains the region's place in the table; known keys do not reveal
 * others.
 *
 * A poster increments the region's user count, notes the pin in its own segment, and checks the
 * key again; after the copy it clears the note and decrements the count. A thread that revokes
 * a key waits for the users. Usually the count is zero immediately. Otherwise the notes decide,
 * because only a poster with a note may be copying; one that adds a note later finds the key
 * revoked. Running processes are waited for, up to PIN_WAIT. For a stopped or dead process the
 * pin is undone: its note is cleared, so that the process does not decrement the count if it
 * continues. Posters of datagrams are unknown until their greeting has been read, so a
 * non-empty inbox is also waited for.
 */
#include "emul/verbs/memory/memory.h"

#include <sched.h>
#include <stdio.h>
#include <sys/random.h>

#define PIN_CHECK (EMU_NSEC / 50) /* wait before the notes are searched */
#define PIN_WAIT  (5 * EMU_NSEC)
#define ALL_MRS   UINT32_MAX /* used as an index: all regions */

/* Draws 32 unpredictable bits. Under d->lock. False if the kernel has none. */
static bool draw(struct emu_dev *d, uint32_t *bits)
{
    if (!d->random_left) {
        if (getrandom(d->random, sizeof(d->random), 0) != sizeof(d->random))
            return false;
        d->random_left = sizeof(d->random) / sizeof(d->random[0]);
    }
    *bits = d->random[--d->random_left];
    return true;
}

uint32_t emu_mr_draw_key(struct emu_dev *d, bool window)
{
    const uint32_t kind = window ? EMU_WINDOW_BIT : 0;
    const uint32_t step = window ? 1u << 8 : 1, places = window ? EMU_MAX_MWS : EMU_MAX_MRS;
    uint32_t key;

    if (!draw(d, &key))
        return 0;
    /* from a random place to the next free one; tables are rarely full */
    for (uint32_t n = 0; n < places; n++, key += step) {
        uint32_t i = shm_key_index(key = (key & (EMU_WINDOW_BIT - 1)) | kind);
        struct shm_mr *s = shm_mr(d->seg, i);
        if (i && (window ? (void *)d->mw[i - EMU_MAX_MRS] : (void *)d->mr[i]) == NULL &&
            atomic_load(&s->users) == 0)
            return key;
    }
    return 0;
}

static void drop_user(struct shm_mr *s)
{
    uint32_t n = atomic_load(&s->users);

    /* never below zero: the owner may have undone the pin and reset the count */
    while (n && !atomic_compare_exchange_weak(&s->users, &n, n - 1))
        ;
}

/* Undoes the pins that `p` has noted on region `mr` of this process; ALL_MRS: on any. */
static void undo_pins(struct emu_dev *d, struct emu_peer *p, uint32_t mr)
{
    for (uint32_t i = 0; i < EMU_PINS; i++) {
        uint32_t e = atomic_load(&p->seg->pins[i]);
        if (e && SHM_PIN_SLOT(e) == d->slot && (mr == ALL_MRS || SHM_PIN_MR(e) == mr) &&
            atomic_compare_exchange_strong(&p->seg->pins[i], &e, 0))
            drop_user(shm_mr(d->seg, SHM_PIN_MR(e)));
    }
}

/* Returns whether the segment's process has noted a pin on region `mr` of this process. */
static bool is_noted(struct shm_head *seg, const struct emu_dev *d, uint32_t mr)
{
    for (uint32_t i = 0; i < EMU_PINS; i++)
        if (atomic_load(&seg->pins[i]) == SHM_PIN(d->slot, mr))
            return true;
    return atomic_load(&seg->unnoted) > 0;
}

/* Returns whether `p` has a pin and runs; undoes the pins of a stopped process. */
static bool holds(struct emu_dev *d, struct emu_peer *p, void *arg)
{
    const uint32_t *index = arg;

    if (!is_noted(p->seg, d, *index))
        return false;
    if (!emu_peer_stopped(p))
        return true;
    undo_pins(d, p, *index);
    return false;
}

void emu_mr_drain(struct emu_dev *d, uint32_t index)
{
    struct shm_mr *s = shm_mr(d->seg, index);

    if (atomic_load(&s->users) == 0)
        return;
    uint64_t since = emu_now(), check_at = since + PIN_CHECK;
    emu_count(COUNT_drains, 1);
    for (; atomic_load(&s->users) > 0; sched_yield()) {
        uint64_t now = emu_now();
        bool too_long = now > since + PIN_WAIT;
        if (too_long)
            emu_count(COUNT_drains_given_up, 1);
        if (too_long || (now > check_at && shm_ring_peek(d->seg, &d->seg->inbox, 0) == NULL &&
                         !is_noted(d->seg, d, index) && !emu_peers_any(d, holds, &index))) {
            atomic_store(&s->users, 0);
            break;
        }
        if (now > check_at) {
            emu_count(COUNT_drain_checks, 1);
            check_at = now + PIN_CHECK;
        }
    }
}

/* Names the cause, once, if a key is live and of the other kind. */
__attribute__((noinline)) static void explain(const struct shm_mr *s, uint32_t key, bool remote)
{
    static atomic_bool told;

    if (atomic_load(&s->key) != (key & ~EMU_RKEY_BIT) || atomic_exchange(&told, true))
        return;
    fprintf(
        stderr,
        "emuverbs: key 0x%08x: the %s of a region was used as its %s; give the peer mr->rkey "
        "and requests mr->lkey (other devices have two keys), or set "
        "EMUVERBS_EQUAL_KEYS=1\n",
        key, remote ? "lkey" : "rkey", remote ? "rkey" : "lkey");
}

int emu_mr_local(struct emu_dev *d, uint32_t pd, const struct ibv_sge *sge, uint32_t access,
                 struct iovec *out)
{
    struct shm_mr *s = shm_mr(d->seg, shm_key_index(sge->lkey));

    if (sge->lkey == 0 || (sge->lkey & EMU_WINDOW_BIT) ||
        atomic_load_explicit(&s->key, memory_order_acquire) != sge->lkey) {
        if (sge->lkey & EMU_RKEY_BIT)
            explain(s, sge->lkey, false);
        return -1;
    }
    uint64_t off = sge->addr - s->iova;
    if (s->pd != pd || off > s->length || sge->length > s->length - off ||
        (s->access & access) != access)
        return -1;
    out->iov_base = (void *)(uintptr_t)(s->addr + off);
    out->iov_len = sge->length;
    return s->access & IBV_ACCESS_ON_DEMAND ? 1 : 0;
}

/* Notes a pin in this process's segment, for the owner; NULL when all notes are in use. */
static inline __attribute__((always_inline)) _Atomic uint32_t *note_pin(struct emu_dev *d,
                                                                        uint32_t entry)
{
    /* the library is loaded at start: the variable needs no lookup call */
    static _Thread_local uint32_t hint __attribute__((tls_model("initial-exec")));

    for (uint32_t k = 0; k < EMU_PINS; k++) {
        _Atomic uint32_t *e = &d->seg->pins[(hint + k) % EMU_PINS];
        uint32_t none = 0;
        if (atomic_load_explicit(e, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong(e, &none, entry)) {
            hint = (hint + k) % EMU_PINS;
            return e;
        }
    }
    return NULL;
}

/* Counts this process as a user of a place of the table, and notes the pin. */
static inline __attribute__((always_inline)) void use(struct emu_dev *d, struct emu_peer *p,
                                                      struct shm_mr *s, uint32_t index,
                                                      struct emu_pin *pin)
{
    pin->mr = s;
    atomic_fetch_add(&s->users, 1);
    pin->entry = SHM_PIN(p->slot, index);
    pin->note = note_pin(d, pin->entry);
    if (pin->note == NULL) {
        pin->entry = 0;
        pin->note = &d->seg->unnoted;
        atomic_fetch_add(pin->note, 1);
    }
}

int emu_mr_pin(struct emu_dev *d, struct emu_peer *p, uint32_t key, bool remote,
               const struct shm_user *user, uint64_t addr, uint64_t len, uint32_t access,
               struct iovec *out, struct emu_pin *pin)
{
    uint32_t bare = key & ~EMU_RKEY_BIT, index = shm_key_index(bare);
    struct shm_mr *s = shm_mr(p->seg, index);

    pin->mr = NULL;
    if (bare == 0 || remote != !!(key & EMU_RKEY_BIT)) {
        /* a window's rkey always has the bit */
        if (!remote || !d->knobs.equal_keys || bare == 0 || (key & EMU_WINDOW_BIT)) {
            explain(s, key, remote);
            return -1;
        }
    }
    if ((!remote && (key & EMU_WINDOW_BIT)) || atomic_load(&s->key) != bare)
        return -1;
    use(d, p, s, index, pin);
    if (atomic_load(&s->key) == bare) {
        uint64_t off = addr - s->iova;
        if (s->pd == user->pd && (!s->qpn || s->qpn == atomic_load(&user->qpn)) &&
            off <= s->length && len <= s->length - off && (s->access & access) == access) {
            out->iov_base = (void *)(uintptr_t)(s->addr + off);
            out->iov_len = len;
            return s->access & IBV_ACCESS_ON_DEMAND ? 1 : 0;
        }
    }
    emu_mr_unpin(pin);
    return -1;
}

void emu_mr_unpin(struct emu_pin *pin)
{
    if (pin->mr == NULL)
        return;
    if (!pin->entry)
        atomic_fetch_sub(pin->note, 1);
    if (!pin->entry || atomic_compare_exchange_strong(pin->note, &pin->entry, 0))
        drop_user(pin->mr);
    pin->mr = NULL;
}

/* Undoes the pins of a dead process on regions of this one. */
static void peer_died(struct emu_dev *d, struct emu_peer *p)
{
    undo_pins(d, p, ALL_MRS);
}

__attribute__((constructor)) static void loaded(void)
{
    static const struct emu_above row = {.peer_died = peer_died};

    emu_above_is(EMU_ABOVE_MEMORY, &row);
}
