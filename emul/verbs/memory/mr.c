/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Protection domains and memory regions.
 *
 * A key is drawn at random, and says which place of the table is the region's: neither a key
 * that was given back nor one that was seen tells anything of others. Registering makes every
 * page present and, for local write, writable, which refuses holes and read-only memory as
 * pinning does. Deregistering clears the key and then waits for remote operations that have
 * checked it already: after it returns, nothing more is written. Regions whose pages come on
 * demand are told of in demand.c.
 *
 * A poster counts itself among the region's users, notes that in its own segment, and looks at
 * the key again; after the copy it clears the note and uncounts itself. The count is the quick
 * answer: none. Where it stays above zero the notes decide, as only a poster with a note may be
 * copying: one that notes itself later finds the key gone. One that runs is waited for, up to
 * PIN_WAIT; one that is stopped or dead is not, whatever the others do, and its note is
 * cleared, which tells it, should it go on, that it is not counted any more. A poster of
 * datagrams is not known before its greeting has been read, so an inbox that is not empty is
 * waited for, too.
 */
#include "emul/verbs/memory/memory.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define PIN_LOOK (EMU_NSEC / 50) /* time before it is looked who they are */
#define PIN_WAIT (5 * EMU_NSEC)
#define ALL_MRS  UINT32_MAX /* in place of an index */

struct ibv_pd *emu_pd_new(struct ibv_context *context)
{
    struct emu_dev *d = emu_dev_for(context);
    struct emu_pd *pd = NULL;

    if (!d)
        errno = EIO;
    else
        pd = calloc(1, sizeof(*pd));
    if (!pd)
        return NULL;
    pd->pd.context = context;
    pthread_mutex_lock(&d->lock);
    pd->pd.handle = d->next_pd++;
    pthread_mutex_unlock(&d->lock);
    return &pd->pd;
}

EMU_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    if (emu_call(CALL_ibv_alloc_pd)) {
        errno = ENOMEM;
        return NULL;
    }
    struct ibv_pd *pd = emu_pd_new(context);
    if (pd)
        emu_count(COUNT_live_pd, 1);
    return pd;
}

EMU_EXPORT int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
    struct emu_pd *pd = (struct emu_pd *)ibpd;

    if (emu_call(CALL_ibv_dealloc_pd) || !emu_dev_for(ibpd->context))
        return EIO;
    if (atomic_load(&pd->users))
        return EBUSY;
    if (pd->parent_of)
        atomic_fetch_sub(&pd->parent_of->users, 1);
    if (pd->td_users)
        atomic_fetch_sub(pd->td_users, 1);
    free(pd);
    emu_uncount(COUNT_live_pd, 1);
    return 0;
}

int emu_mr_populate(const void *addr, size_t length, bool write)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)addr & ~(page - 1);
    uintptr_t to = ((uintptr_t)addr + length + page - 1) & ~(page - 1);

    if (length == 0)
        return 0;
    if (to < from)
        return EINVAL;
    while (madvise((void *)from, to - from, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) <
           0) {
        if (errno == EAGAIN || errno == EINTR)
            continue;
        if (errno != EINVAL)
            return EFAULT;
        /* no right, or a kernel before 5.14: look whether everything is at least mapped */
        size_t pages = (to - from) / page;
        unsigned char *vec = malloc(pages);
        if (!vec)
            return ENOMEM;
        char probe;
        struct iovec l = {&probe, 1}, r = {(void *)from, 1};
        bool old_kernel = madvise((void *)from, 0, MADV_POPULATE_READ) < 0;
        bool mapped = mincore((void *)from, to - from, vec) == 0 &&
                      process_vm_readv(getpid(), &l, 1, &r, 1, 0) == 1;
        free(vec);
        return old_kernel && mapped ? 0 : EFAULT;
    }
    return 0;
}

/* Adds to the pinned bytes if the limit allows it. */
static bool account(struct emu_dev *d, size_t length)
{
    struct emu_counters *c = emu_counters;
    uint64_t now;

    if (!length)
        return true; /* whatever another thread is just being refused */
    now = atomic_fetch_add(&c->count[COUNT_pinned_bytes], length) + length;

    if (d->knobs.memlock && now > d->knobs.memlock) {
        emu_uncount(COUNT_pinned_bytes, length);
        return false;
    }
    uint64_t peak = atomic_load(&c->count[COUNT_pinned_peak]);
    while (now > peak &&
           !atomic_compare_exchange_weak(&c->count[COUNT_pinned_peak], &peak, now))
        ;
    return true;
}

/* Thirty-two bits that nobody can foresee. Under d->lock. False when the kernel has none. */
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
    /* from a place at random to the next that is free; tables are hardly ever full */
    for (uint32_t n = 0; n < places; n++, key += step) {
        uint32_t i = shm_key_index(key = (key & (EMU_WINDOW_BIT - 1)) | kind);
        struct shm_mr *s = shm_mr(d->seg, i);
        if (i && !(window ? (void *)d->mw[i - EMU_MAX_MRS] : (void *)d->mr[i]) &&
            atomic_load(&s->users) == 0)
            return key;
    }
    return 0;
}

#define WRITTEN_BY_OTHERS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* Can this be registered? 0 or a positive errno; then its pages are there or come on demand. */
static int check_region(const struct emu_dev *d, void *addr, size_t length, unsigned access)
{
    const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | WRITTEN_BY_OTHERS |
                           IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                           IBV_ACCESS_ON_DEMAND | IBV_ACCESS_OPTIONAL_RANGE;

    if ((access & ~known) ||
        ((access & WRITTEN_BY_OTHERS) && !(access & IBV_ACCESS_LOCAL_WRITE)))
        return EINVAL;
    if ((uintptr_t)addr + length < (uintptr_t)addr)
        return EINVAL;
    if (access & IBV_ACCESS_ON_DEMAND)
        return d->knobs.odp ? 0 : EOPNOTSUPP;
    return emu_mr_populate(addr, length, access & (IBV_ACCESS_LOCAL_WRITE | WRITTEN_BY_OTHERS));
}

/* How much of a region counts as pinned. */
static size_t pinned(size_t length, unsigned access)
{
    return access & IBV_ACCESS_ON_DEMAND ? 0 : length;
}

struct ibv_mr *emu_mr_new(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                          unsigned access)
{
    struct emu_dev *d = emu_dev_for(pd->context);
    int err = 0;

    if (emu_call(CALL_ibv_reg_mr))
        err = ENOMEM;
    else if (!d || emu_has_failed(pd->context))
        err = EIO;
    else
        err = check_region(d, addr, length, access);
    struct emu_mr *mr = err ? NULL : calloc(1, sizeof(*mr));
    if (!mr) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    if (!account(d, pinned(length, access))) {
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    uint32_t lkey = d->live_mr < d->knobs.max_mr ? emu_mr_draw_key(d, false) : 0;
    if (!lkey) {
        pthread_mutex_unlock(&d->lock);
        emu_uncount(COUNT_pinned_bytes, pinned(length, access));
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    uint32_t index = shm_key_index(lkey);
    struct shm_mr *s = shm_mr(d->seg, index);
    d->mr[index] = mr;
    d->live_mr++;
    s->pd = pd->handle;
    s->access = access;
    s->addr = (uintptr_t)addr;
    s->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
    s->length = length;
    s->qpn = 0;
    atomic_store(&s->key, lkey);
    pthread_mutex_unlock(&d->lock);

    mr->index = index;
    mr->mr.context = pd->context;
    mr->mr.pd = pd;
    mr->mr.addr = addr;
    mr->mr.length = length;
    mr->mr.handle = index;
    mr->mr.lkey = lkey;
    mr->mr.rkey = lkey | EMU_RKEY_BIT;
    atomic_fetch_add(&((struct emu_pd *)pd)->users, 1);
    emu_count(COUNT_live_mr, 1);
    emu_count(COUNT_reg_bytes_total, pinned(length, access));
    return &mr->mr;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                          unsigned access)
{
    if (length)
        return emu_mr_new(pd, addr, length, iova, access);
    errno = EINVAL;
    return NULL;
}

#undef ibv_reg_mr
EMU_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    return reg(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

#undef ibv_reg_mr_iova
EMU_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
                                          uint64_t iova, int access)
{
    return reg(pd, addr, length, iova, (unsigned)access);
}

EMU_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
                                           uint64_t iova, unsigned int access)
{
    return reg(pd, addr, length, iova, access);
}

EMU_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                            uint64_t iova, int fd, int access)
{
    (void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    errno = EOPNOTSUPP;
    return NULL;
}

static void drop_user(struct shm_mr *s)
{
    uint32_t n = atomic_load(&s->users);

    /* never below zero: the owner may have given up on us and reset it */
    while (n && !atomic_compare_exchange_weak(&s->users, &n, n - 1))
        ;
}

/* Undoes the pins that `p` has noted on region `mr` of this process. */
static void undo_pins(struct emu_dev *d, struct emu_peer *p, uint32_t mr)
{
    for (uint32_t i = 0; i < EMU_PINS; i++) {
        uint32_t e = atomic_load(&p->seg->pins[i]);
        if (e && SHM_PIN_SLOT(e) == d->slot && (mr == ALL_MRS || SHM_PIN_MR(e) == mr) &&
            atomic_compare_exchange_strong(&p->seg->pins[i], &e, 0))
            drop_user(shm_mr(d->seg, SHM_PIN_MR(e)));
    }
}

/* Has the segment's process noted that it uses region `mr` of this one? */
static bool is_noted(struct shm_head *seg, const struct emu_dev *d, uint32_t mr)
{
    for (uint32_t i = 0; i < EMU_PINS; i++)
        if (atomic_load(&seg->pins[i]) == SHM_PIN(d->slot, mr))
            return true;
    return atomic_load(&seg->unnoted) > 0;
}

struct drain {
    uint32_t mr;
    uint64_t *late;
};

static void is_late(const struct drain *n, uint32_t slot)
{
    if (n->late)
        n->late[slot / 64] |= UINT64_C(1) << (slot % 64);
}

/* Has `p`, and runs? */
static bool holds(struct emu_dev *d, struct emu_peer *p, void *arg)
{
    const struct drain *n = arg;

    if (!is_noted(p->seg, d, n->mr))
        return false;
    if (!emu_peer_stopped(p))
        return true;
    undo_pins(d, p, n->mr);
    is_late(n, p->slot);
    return false;
}

/* Has `p`, and is not waited for any more? */
static bool takes_too_long(struct emu_dev *d, struct emu_peer *p, void *arg)
{
    const struct drain *n = arg;

    if (is_noted(p->seg, d, n->mr))
        is_late(n, p->slot);
    return false;
}

void emu_mr_drain(struct emu_dev *d, uint32_t index, uint64_t *late)
{
    struct drain n = {index, late};
    struct shm_mr *s = shm_mr(d->seg, index);

    if (atomic_load(&s->users) == 0)
        return;
    for (uint64_t since = emu_now(), look = since + PIN_LOOK; atomic_load(&s->users) > 0;
         sched_yield()) {
        uint64_t now = emu_now();
        bool too_long = now > since + PIN_WAIT;
        if (too_long) {
            emu_peers_any(d, takes_too_long, &n);
            takes_too_long(d, &d->self, &n);
        }
        if (too_long || (now > look && !shm_ring_peek(d->seg, &d->seg->inbox, 0) &&
                         !is_noted(d->seg, d, index) && !emu_peers_any(d, holds, &n))) {
            atomic_store(&s->users, 0);
            break;
        }
        if (now > look)
            look = now + PIN_LOOK;
    }
}

/*
 * Takes a region's key away and waits for whoever uses the memory: EBUSY while a window is
 * bound to it. A payload that came before is copied there first. One that a poster pushes
 * meanwhile ends its receive with LOC_PROT_ERR; a poll that was about to copy is waited for.
 */
static int retract(struct emu_dev *d, struct emu_mr *mr)
{
    emu_above_settle(d);
    pthread_mutex_lock(&d->lock);
    bool bound = emu_mw_any(d, mr);
    if (!bound)
        atomic_store(&shm_mr(d->seg, mr->index)->key, 0);
    pthread_mutex_unlock(&d->lock);
    if (bound)
        return EBUSY;
    emu_mr_drain(d, mr->index, NULL);
    emu_above_settle(d);
    return 0;
}

EMU_EXPORT int ibv_dereg_mr(struct ibv_mr *ibmr)
{
    struct emu_mr *mr = (struct emu_mr *)ibmr;
    struct emu_dev *d = emu_dev_for(ibmr->context);

    if (emu_call(CALL_ibv_dereg_mr))
        return EIO;
    if (!d)
        return EIO;
    if (retract(d, mr))
        return EINVAL; /* a window is bound to it */
    pthread_mutex_lock(&d->lock);
    size_t was_pinned = pinned(mr->mr.length, shm_mr(d->seg, mr->index)->access);
    d->mr[mr->index] = NULL; /* another thread may have the place from now on */
    d->live_mr--;
    pthread_mutex_unlock(&d->lock);
    emu_uncount(COUNT_pinned_bytes, was_pinned);
    emu_uncount(COUNT_live_mr, 1);
    atomic_fetch_sub(&((struct emu_pd *)mr->mr.pd)->users, 1);
    if (mr->dm_users)
        atomic_fetch_sub(mr->dm_users, 1);
    free(mr);
    return 0;
}

static int rereg(struct emu_dev *d, struct emu_mr *mr, int flags, struct ibv_pd *pd, void *addr,
                 size_t length, unsigned access)
{
    struct shm_mr *s = shm_mr(d->seg, mr->index);
    bool moved = flags & IBV_REREG_MR_CHANGE_TRANSLATION;

    if (mr->dm_users || !flags || (moved && !length) ||
        (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || (moved && !addr) ||
        (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS)) ||
        ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->context != mr->mr.context)))
        return EINVAL;
    if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
        access = s->access;
    if (!moved) {
        addr = mr->mr.addr;
        length = mr->mr.length;
    }
    int err = check_region(d, addr, length, access);
    if (err)
        return err;
    /* what it had stays until the new is there, as when the kernel pins both */
    bool anew = moved || ((access ^ s->access) & IBV_ACCESS_ON_DEMAND);
    size_t before = anew ? pinned(mr->mr.length, s->access) : 0;
    size_t after = anew ? pinned(length, access) : 0;
    if (!account(d, after))
        return ENOMEM;
    err = retract(d, mr);
    if (err) {
        emu_uncount(COUNT_pinned_bytes, after);
        return err;
    }
    s->access = access;
    emu_uncount(COUNT_pinned_bytes, before);
    emu_count(COUNT_reg_bytes_total, after);
    if (moved) {
        s->addr = (uintptr_t)addr;
        s->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
        s->length = length;
        mr->mr.addr = addr;
        mr->mr.length = length;
    }
    if (flags & IBV_REREG_MR_CHANGE_PD) {
        atomic_fetch_sub(&((struct emu_pd *)mr->mr.pd)->users, 1);
        atomic_fetch_add(&((struct emu_pd *)pd)->users, 1);
        s->pd = pd->handle;
        mr->mr.pd = pd;
    }
    atomic_store(&s->key, mr->mr.lkey);
    return 0;
}

/*
 * What fails leaves the region as it was. Its keys stay: while it changes they are nobody's, as
 * if it was deregistered. A payload that a poster has checked before and pushes afterwards is
 * looked at again when it is copied (land_part in cq.c).
 */
EMU_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
                            size_t length, int access)
{
    struct emu_dev *d = emu_dev_for(mr->context);
    int err = EIO;

    if (emu_call(CALL_ibv_rereg_mr))
        err = ENOMEM;
    else if (d)
        err = rereg(d, (struct emu_mr *)mr, flags, pd, addr, length, (unsigned)access);
    if (!err)
        return 0;
    errno = err;
    return IBV_REREG_MR_ERR_INPUT;
}

int emu_mr_local(struct emu_dev *d, uint32_t pd, const struct ibv_sge *sge, uint32_t access,
                 struct iovec *out)
{
    struct shm_mr *s = shm_mr(d->seg, shm_key_index(sge->lkey));

    if (sge->lkey == 0 || (sge->lkey & EMU_WINDOW_BIT) ||
        atomic_load_explicit(&s->key, memory_order_acquire) != sge->lkey)
        return -1;
    uint64_t off = sge->addr - s->iova;
    if (s->pd != pd || off > s->length || sge->length > s->length - off ||
        (s->access & access) != access)
        return -1;
    out->iov_base = (void *)(uintptr_t)(s->addr + off);
    out->iov_len = sge->length;
    return s->access & IBV_ACCESS_ON_DEMAND ? 1 : 0;
}

/* Notes a pin in this process's segment, for the owner to find; NULL when there is no room. */
static inline __attribute__((always_inline)) _Atomic uint32_t *note_pin(struct emu_dev *d,
                                                                        uint32_t entry)
{
    /* the library is there from the start: no call is needed to find it */
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

/* Counts this process among the users of a place of the table, and notes that. */
static inline __attribute__((always_inline)) void use(struct emu_dev *d, struct emu_peer *p,
                                                      struct shm_mr *s, uint32_t index,
                                                      struct emu_pin *pin)
{
    pin->mr = s;
    atomic_fetch_add(&s->users, 1);
    pin->entry = SHM_PIN(p->slot, index);
    pin->note = note_pin(d, pin->entry);
    if (!pin->note) {
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
    if (bare == 0 || remote != !!(key & EMU_RKEY_BIT) || (!remote && (key & EMU_WINDOW_BIT)) ||
        atomic_load(&s->key) != bare)
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

void emu_srq_pin(struct emu_dev *d, struct emu_peer *p, uint32_t srq, struct emu_pin *pin)
{
    uint32_t index = EMU_SRQ_PLACE(srq & (EMU_MAX_SRQS - 1));

    use(d, p, shm_mr(p->seg, index), index, pin);
}

void emu_mr_unpin(struct emu_pin *pin)
{
    if (!pin->mr)
        return;
    if (!pin->entry)
        atomic_fetch_sub(pin->note, 1);
    if (!pin->entry || atomic_compare_exchange_strong(pin->note, &pin->entry, 0))
        drop_user(pin->mr);
    pin->mr = NULL;
}

/* Undoes the pins of a process that died on regions of this one. */
static void peer_died(struct emu_dev *d, struct emu_peer *p)
{
    undo_pins(d, p, ALL_MRS);
}

__attribute__((constructor)) static void loaded(void)
{
    static const struct emu_above row = {.peer_died = peer_died};

    emu_above_is(EMU_ABOVE_MEMORY, &row);
}
