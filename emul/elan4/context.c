/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contexts: creation, routes, attaching to a context number of this node, detaching. */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int fail(int err)
{
    errno = err;
    return -1;
}

/* Clears the state of an earlier context in this place. Other threads read the fields that tell
 * an engine whether there is work without the lock. */
static void clear(struct emu4_end *e)
{
    struct shm_ctx *c = e->c;
    struct emu4_txn t;

    if (!c->tag)
        return; /* never used: all zero */
    emu4_lock(&t, e);
    atomic_store(&c->blocked, 0);
    __atomic_store_n(&c->inbox_head, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&c->inbox_tail, 0, __ATOMIC_RELAXED);
    memset((char *)&c->inbox_left, 0, sizeof(*c) - offsetof(struct shm_ctx, inbox_left));
    emu4_unlock(&t);
}

EMU4_EXPORT void elan_nullcap(ELAN_CAPABILITY *cap)
{
    memset(cap, 0, sizeof(*cap));
    for (unsigned i = 0; i < 4; i++)
        cap->cap_userkey.key_values[i] = (unsigned)ELAN_CAP_UNINITIALISED;
    cap->cap_version = ELAN_CAP_VERSION_NUMBER;
    cap->cap_lowcontext = cap->cap_highcontext = cap->cap_mycontext = ELAN_CAP_UNINITIALISED;
    cap->cap_lownode = cap->cap_highnode = ELAN_CAP_UNINITIALISED;
}

EMU4_EXPORT ELAN4_CTX *elan4_init(int rail)
{
    if (emu4_call(EMU4_CALL_elan4_init))
        return NULL;
    if (rail != 0) {
        errno = ENODEV;
        return NULL;
    }
    struct emu4_proc *p = emu4_proc();
    if (p == NULL)
        return NULL;
    uint64_t node = emu4_knobs_node();
    if (node >= p->knobs.nodes) {
        emu4_print("EMUELAN4_NODE=%u, but the network has %u nodes (EMUELAN4_NODES)",
                   (unsigned)node, (unsigned)p->knobs.nodes);
        errno = ENXIO;
        return NULL;
    }
    struct emu4_ctx *x = calloc(1, sizeof(*x));
    if (x == NULL)
        return NULL;
    x->ports = mmap(NULL, (size_t)EMU4_CQS * PORT_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
    if (x->ports == MAP_FAILED)
        goto err;
    x->node = (unsigned)node;
    x->context = -1;
    x->pub.ctx_position = (ELAN_POSITION){.pos_mode = ELAN_POS_MODE_SWITCHED,
                                          .pos_nodeid = x->node,
                                          .pos_levels = 1,
                                          .pos_nodes = (unsigned)p->knobs.nodes};
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < EMU4_CTXS; i++) {
        if (p->ctx[i] != NULL)
            continue;
        x->index = i;
        x->end = (struct emu4_end){&p->self, &p->self.seg->ctx[i], 0};
        clear(&x->end);
        x->end.c->tag = 0x1000 | p->next_tag++ % 0xfff;
        p->ctx[i] = x;
        pthread_mutex_unlock(&p->lock);
        return &x->pub;
    }
    pthread_mutex_unlock(&p->lock);
    errno = ENOSPC;
    munmap(x->ports, (size_t)EMU4_CQS * PORT_BYTES);
err:
    free(x);
    return NULL;
}

EMU4_EXPORT int elan4_set_standard_mappings(ELAN4_CTX *ctx)
{
    if (emu4_call(EMU4_CALL_elan4_set_standard_mappings))
        return -1;
    emu4_ctx_of(ctx)->standard = true;
    return 0;
}

EMU4_EXPORT int elan4_set_required_mappings(ELAN4_CTX *ctx)
{
    if (emu4_call(EMU4_CALL_elan4_set_required_mappings))
        return -1;
    emu4_ctx_of(ctx)->required = true;
    return 0;
}

/* Checks a capability as the driver does. Processes are numbered node by node, without gaps. */
static bool cap_valid(const ELAN_CAPABILITY *cap)
{
    return cap->cap_version == ELAN_CAP_VERSION_NUMBER &&
           (cap->cap_type & ELAN_CAP_TYPE_MASK) == ELAN_CAP_TYPE_BLOCK &&
           (cap->cap_type & ELAN_CAP_TYPE_NO_BITMAP) && cap->cap_lownode >= 0 &&
           cap->cap_lownode <= cap->cap_highnode && cap->cap_lowcontext >= 0 &&
           cap->cap_lowcontext <= cap->cap_highcontext &&
           cap->cap_highcontext <= ELAN_USER_TOP_CONTEXT_NUM &&
           (cap->cap_lowcontext >= ELAN_RMS_BASE_CONTEXT_NUM ||
            cap->cap_highcontext < ELAN_RMS_BASE_CONTEXT_NUM) &&
           (cap->cap_railmask & 1);
}

EMU4_EXPORT int elan4_add_p2pvp(ELAN4_CTX *ctx, unsigned process, ELAN_CAPABILITY *cap)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    struct shm_ctx *c = x->end.c;

    if (emu4_call(EMU4_CALL_elan4_add_p2pvp))
        return -1;
    if (!cap_valid(cap))
        return fail(EINVAL);
    unsigned contexts = (unsigned)(cap->cap_highcontext - cap->cap_lowcontext) + 1;
    unsigned nodes = (unsigned)(cap->cap_highnode - cap->cap_lownode) + 1;
    if (cap->cap_highnode > 0xfff || nodes * contexts > EMU4_VPS || /* at most 2^23 */
        process > EMU4_VPS - nodes * contexts)
        return fail(EINVAL);
    for (unsigned vp = 0; vp < nodes * contexts; vp++)
        __atomic_store_n(&c->route[process + vp],
                         EMU4_ROUTE((unsigned)cap->cap_lownode + vp / contexts,
                                    (unsigned)cap->cap_lowcontext + vp % contexts),
                         __ATOMIC_RELAXED);
    return 0;
}

/* Waits for peers that are writing pieces of data, at most one second for a stopped process. */
static void wait_for_writers(struct emu4_proc *p)
{
    uint64_t give_up = emu4_now() + EMU4_NSEC;

    for (unsigned i = 0; i < EMU4_USERS; i++) {
        struct shm_user *u = &p->self.seg->user[i];
        for (unsigned k = 0; atomic_load(&u->busy) && emu4_now() < give_up; k++) {
            if (k % 1024 == 1023 && emu4_process_dead(atomic_load(&u->pid)))
                break;
            sched_yield();
        }
    }
}

EMU4_EXPORT int elan4_block_inputter(ELAN4_CTX *ctx, unsigned blocked)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    struct emu4_txn t;

    if (emu4_call(EMU4_CALL_elan4_block_inputter))
        return -1;
    emu4_lock(&t, &x->end);
    atomic_store(&x->end.c->blocked, blocked != 0);
    emu4_unlock(&t);
    if (blocked)
        wait_for_writers(emu4_proc_peek());
    return 0;
}

/* Applies the driver's rules; returns 0 or an errno. */
static int may_attach(const struct emu4_ctx *x, const ELAN_CAPABILITY *cap)
{
    int node = (int)x->node, context = cap->cap_mycontext;

    if (!cap_valid(cap) || node < cap->cap_lownode || node > cap->cap_highnode ||
        context < cap->cap_lowcontext || context > cap->cap_highcontext)
        return EINVAL;
    if (context < 2)
        return EBUSY; /* reserved by the kernel */
    if (context >= ELAN_RMS_BASE_CONTEXT_NUM)
        return EACCES; /* assigned by a resource manager */
    return 0;
}

EMU4_EXPORT int elan4_attach(ELAN4_CTX *ctx, ELAN_CAPABILITY *cap)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    struct emu4_proc *p = emu4_proc_peek();

    if (emu4_call(EMU4_CALL_elan4_attach))
        return -1;
    int err = x->context >= 0 ? EINVAL : may_attach(x, cap);
    if (err)
        return fail(err);
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < EMU4_CTXS; i++)
        if (p->ctx[i] != NULL && p->ctx[i]->node == x->node &&
            p->ctx[i]->context == cap->cap_mycontext) {
            pthread_mutex_unlock(&p->lock);
            return fail(EBUSY);
        }
    uint32_t generation = ++p->generation;
    struct emu4_record r = {.magic = EMU4_MAGIC,
                            .incarnation = p->self.incarnation,
                            .pid = p->pid,
                            .memfd = p->seg_fd,
                            .index = x->index,
                            .generation = generation};
    x->end.c->node = x->node;
    x->end.c->context = (uint32_t)cap->cap_mycontext;
    /* before the registry entry: a process that finds the entry must find the context
     * attached */
    atomic_store(&x->end.c->attached, generation);
    if (emu4_registry_take(p, x->node, (unsigned)cap->cap_mycontext, &r) < 0) {
        err = errno;
        atomic_store(&x->end.c->attached, 0);
        pthread_mutex_unlock(&p->lock);
        return fail(err);
    }
    x->end.generation = generation;
    x->context = cap->cap_mycontext;
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static void detach(struct emu4_proc *p, struct emu4_ctx *x)
{
    struct shm_ctx *c = x->end.c;
    struct emu4_txn t;

    emu4_lock(&t, &x->end);
    atomic_store(&c->attached, 0);
    __atomic_store_n(&c->inbox_head, c->inbox_tail, __ATOMIC_RELAXED);
    c->inbox_left = 0;
    emu4_unlock(&t);
    wait_for_writers(p);
    pthread_mutex_lock(&p->lock);
    emu4_registry_give(p, x->node, (unsigned)x->context);
    x->context = -1;
    pthread_mutex_unlock(&p->lock);
}

EMU4_EXPORT void elan4_fini(ELAN4_CTX *ctx)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    struct emu4_proc *p = emu4_proc_peek();

    if (p == NULL || p->pid != getpid())
        return;
    if (x->context >= 0)
        detach(p, x);
    emu4_cmdqs_free(x);
    pthread_mutex_lock(&p->lock);
    p->ctx[x->index] = NULL;
    pthread_mutex_unlock(&p->lock);
    while (atomic_load(&p->trapping) == x)
        sched_yield();
    emu4_pools_free(x);
    munmap(x->ports, (size_t)EMU4_CQS * PORT_BYTES);
    free(x);
}

EMU4_EXPORT int elan4_register_trap_handler(ELAN4_CTX *ctx, int utsType, int utsProc,
                                            ELAN4_TRAP_HANDLER handler, void *arg)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    struct emu4_proc *p = emu4_proc_peek();
    int rc = -1;

    if (emu4_call(EMU4_CALL_elan4_register_trap_handler))
        return -1;
    pthread_mutex_lock(&p->lock);
    if (x->handlers < sizeof(x->handler) / sizeof(x->handler[0])) {
        x->handler[x->handlers++] = (struct emu4_handler){utsType, utsProc, handler, arg};
        rc = 0;
    } else {
        errno = ENOSPC;
    }
    pthread_mutex_unlock(&p->lock);
    return rc;
}
