/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Thread domains and parent domains. A parent domain is an alias of a protection domain;
 * objects of both can be combined. A thread domain promises that one thread at a time uses its
 * objects. Allocators of a parent domain are for a provider's buffers in program memory.
 * Neither is used here: queues are in the shared segment and have locks.
 */
#include "emul/verbs/memory/memory.h"

#include <errno.h>
#include <stdlib.h>

struct emu_td {
    struct ibv_td td;
    _Atomic int users; /* parent domains */
};

struct ibv_td *emu_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
    struct emu_td *t = NULL;

    if (attr->comp_mask)
        errno = EINVAL;
    else if (emu_call(CALL_ibv_alloc_td))
        errno = ENOMEM;
    else
        t = calloc(1, sizeof(*t));
    if (t == NULL)
        return NULL;
    t->td.context = context;
    emu_count(COUNT_live_td, 1);
    return &t->td;
}

int emu_dealloc_td(struct ibv_td *td)
{
    struct emu_td *t = (struct emu_td *)td;

    if (emu_call(CALL_ibv_dealloc_td))
        return EIO;
    if (atomic_load(&t->users))
        return EBUSY;
    free(t);
    emu_uncount(COUNT_live_td, 1);
    return 0;
}

static int check(struct ibv_context *context, const struct ibv_parent_domain_init_attr *a)
{
    const uint32_t known =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;

    if (a->pd == NULL || a->pd->context != context ||
        (a->td != NULL && a->td->context != context))
        return EINVAL;
    if (a->comp_mask & ~known)
        return EINVAL;
    if ((a->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) &&
        (a->alloc == NULL || a->free == NULL))
        return EINVAL;
    /* a parent domain may not be nested */
    return ((struct emu_pd *)a->pd)->parent_of != NULL ? EINVAL : 0;
}

struct ibv_pd *emu_alloc_parent_domain(struct ibv_context *context,
                                       struct ibv_parent_domain_init_attr *attr)
{
    int err = check(context, attr);

    if (!err && emu_call(CALL_ibv_alloc_parent_domain))
        err = ENOMEM;
    struct emu_pd *pd = err ? NULL : calloc(1, sizeof(*pd));
    if (pd == NULL) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    pd->pd.context = context;
    pd->pd.handle = attr->pd->handle;
    pd->parent_of = (struct emu_pd *)attr->pd;
    atomic_fetch_add(&pd->parent_of->users, 1);
    if (attr->td != NULL) {
        pd->td_users = &((struct emu_td *)attr->td)->users;
        atomic_fetch_add(pd->td_users, 1);
    }
    emu_count(COUNT_live_pd, 1);
    return &pd->pd;
}
