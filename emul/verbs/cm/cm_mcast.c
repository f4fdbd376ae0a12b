/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Multicast groups of the connection manager. There is no subnet manager: an address is mapped
 * to its group, and joining succeeds immediately. As in the real library, the QP is attached
 * when the program fetches the event, in the program's thread.
 */
#include "emul/verbs/cm/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int fail(int err)
{
    errno = err;
    return -1;
}

/* Returns the id's group of an address, or the end of the list. Under cm.lock. */
static struct cm_group **find(struct cm_id *id, const union cm_addr *addr)
{
    struct cm_group **pp = &id->groups;

    while (*pp != NULL && !cm_addr_equal(&(*pp)->addr, addr))
        pp = &(*pp)->next;
    return pp;
}

static int join(struct rdma_cm_id *ibid, struct sockaddr *addr, bool send_only, void *context)
{
    struct cm_id *id = (struct cm_id *)ibid;
    struct cm_group *g = NULL;
    union cm_addr a;
    int err = 0;

    if (emu_call(CALL_rdma_join_multicast))
        return fail(ENOMEM);
    if (!cm_is_ours(id))
        return fail(EIO);
    if (addr == NULL || !cm_addr_copy(&a, addr) || !cm_addr_is_multicast(addr) || !cm_is_ud(id))
        return fail(EINVAL);
    pthread_mutex_lock(&cm.lock);
    struct cm_group **at = find(id, &a);
    if (ibid->verbs == NULL || *at != NULL ||
        (id->state != CM_BOUND && id->state != CM_ADDR_RESOLVED &&
         id->state != CM_ROUTE_RESOLVED))
        err = EINVAL;
    else if ((g = calloc(1, sizeof(*g))) == NULL)
        err = ENOMEM;
    if (g != NULL) {
        g->addr = a;
        g->context = context;
        g->send_only = send_only;
        cm_addr_group(&emu_dev_base()->knobs, &a, &g->gid);
        pthread_cond_init(&g->acked_cond, NULL);
        *at = g;
        cm_event_post_join(id, g);
    }
    pthread_mutex_unlock(&cm.lock);
    return err ? fail(err) : cm_complete(id);
}

EMU_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
    return join(id, addr, false, context);
}

EMU_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id,
                                      struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
    bool flags = attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

    if (!(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) ||
        (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) ||
        (flags && attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED))
        return fail(EINVAL);
    return join(id, attr->addr,
                flags && attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context);
}

EMU_EXPORT int rdma_leave_multicast(struct rdma_cm_id *ibid, struct sockaddr *addr)
{
    struct cm_id *id = (struct cm_id *)ibid;
    union cm_addr a;

    emu_call(CALL_rdma_leave_multicast);
    if (!cm_is_ours(id))
        return fail(EIO);
    if (addr == NULL || !cm_addr_copy(&a, addr))
        return fail(EINVAL);
    pthread_mutex_lock(&cm.lock);
    struct cm_group **at = find(id, &a), *g = *at;
    if (g == NULL) {
        pthread_mutex_unlock(&cm.lock);
        return fail(EADDRNOTAVAIL);
    }
    *at = g->next;
    if (ibid->event != NULL && ((struct cm_event *)ibid->event)->group == g) {
        /* a synchronous id keeps its last event until the next call */
        struct rdma_cm_event *e = ibid->event;
        ibid->event = NULL;
        pthread_mutex_unlock(&cm.lock);
        rdma_ack_cm_event(e);
        pthread_mutex_lock(&cm.lock);
    }
    cm_event_purge(id, g);
    while (g->acked != g->fetched)
        pthread_cond_wait(&g->acked_cond, &cm.lock);
    pthread_mutex_unlock(&cm.lock);
    cm_group_detach(id, g);
    pthread_cond_destroy(&g->acked_cond);
    free(g);
    return 0;
}
