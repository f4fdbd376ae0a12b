/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Device memory, accessed by two calls and by regions whose addresses begin at zero. Here it is
 * ordinary process memory, limited to EMU_MAX_DM bytes per process, and no faster. A forked
 * child may use it through its parent's context. As on adapters, copies begin and end at
 * multiples of four bytes.
 */
#include "emul/verbs/memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GRAIN 4u

struct emu_dm {
    struct ibv_dm dm;
    struct emu_dev *owner; /* in a forked child: the parent's */
    size_t length;
    _Atomic int users; /* regions */
    unsigned char *bytes;
};

static bool is_inside(const struct emu_dm *m, uint64_t off, size_t n)
{
    return off % GRAIN == 0 && n % GRAIN == 0 && off <= m->length && n <= m->length - off;
}

static int to_dm(struct ibv_dm *dm, uint64_t off, const void *from, size_t n)
{
    struct emu_dm *m = (struct emu_dm *)dm;

    if (!is_inside(m, off, n))
        return EINVAL;
    memcpy(m->bytes + off, from, n);
    return 0;
}

static int from_dm(void *to, struct ibv_dm *dm, uint64_t off, size_t n)
{
    struct emu_dm *m = (struct emu_dm *)dm;

    if (!is_inside(m, off, n))
        return EINVAL;
    memcpy(to, m->bytes + off, n);
    return 0;
}

/* Reserves `n` bytes of the process's limit. */
static bool take(struct emu_dev *d, size_t n)
{
    uint64_t used = atomic_load(&d->dm_used);

    do {
        if (n > EMU_MAX_DM || used > EMU_MAX_DM - n)
            return false;
    } while (!atomic_compare_exchange_weak(&d->dm_used, &used, used + n));
    return true;
}

struct ibv_dm *emu_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
    struct emu_dev *d = emu_dev_base();
    struct emu_dm *m = NULL;
    size_t align = sizeof(void *);
    void *bytes = NULL;
    int err = 0;

    if (emu_call(CALL_ibv_alloc_dm) || d == NULL)
        err = ENOMEM;
    else if (attr->comp_mask || !attr->length || attr->log_align_req > 12)
        err = EINVAL;
    else if (!take(d, attr->length))
        err = ENOMEM;
    if (err) {
        errno = err;
        return NULL;
    }
    if (attr->log_align_req > 3)
        align = (size_t)1 << attr->log_align_req;
    m = calloc(1, sizeof(*m));
    if (m == NULL || posix_memalign(&bytes, align, attr->length)) {
        free(m);
        atomic_fetch_sub(&d->dm_used, attr->length);
        errno = ENOMEM;
        return NULL;
    }
    memset(bytes, 0, attr->length);
    m->owner = d;
    m->bytes = bytes;
    m->length = attr->length;
    m->dm =
        (struct ibv_dm){.context = context, .memcpy_to_dm = to_dm, .memcpy_from_dm = from_dm};
    emu_count(COUNT_live_dm, 1);
    return &m->dm;
}

int emu_free_dm(struct ibv_dm *dm)
{
    struct emu_dm *m = (struct emu_dm *)dm;
    struct emu_dev *d = emu_dev_base();

    if (emu_call(CALL_ibv_free_dm) || m->owner != d)
        return EIO;
    if (atomic_load(&m->users))
        return EBUSY;
    atomic_fetch_sub(&d->dm_used, m->length);
    free(m->bytes);
    free(m);
    emu_uncount(COUNT_live_dm, 1);
    return 0;
}

struct ibv_mr *emu_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t off, size_t length,
                             unsigned int access)
{
    struct emu_dm *m = (struct emu_dm *)dm;

    if (!(access & IBV_ACCESS_ZERO_BASED) ||
        (access & (IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND)) || dm->context != pd->context ||
        !is_inside(m, off, length)) {
        errno = EINVAL;
        return NULL;
    }
    struct ibv_mr *mr = emu_mr_new(pd, m->bytes + off, length, 0, access);
    if (mr != NULL) {
        atomic_fetch_add(&m->users, 1);
        ((struct emu_mr *)mr)->dm_users = &m->users;
        mr->addr = NULL; /* not accessible to the program */
    }
    return mr;
}
