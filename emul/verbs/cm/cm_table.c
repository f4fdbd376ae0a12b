/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of ids; device, groups and path of an id. */
#include "emul/verbs/cm/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct cm_state_all cm = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define NUM_MASK 0xffffu

/* Assigns a number unused by other ids. Under cm.lock. */
static bool number(struct cm_id *id)
{
    if (cm.table == NULL) {
        cm.table = calloc(NUM_MASK + 1, sizeof(*cm.table));
        if (cm.table == NULL)
            return false;
        cm.next_num = 1;
    }
    for (uint32_t n = 0; n <= NUM_MASK; n++) {
        uint32_t num = cm.next_num++;
        if (num == 0)
            num = cm.next_num++;
        if (cm.table[num & NUM_MASK] != NULL)
            continue;
        cm.table[num & NUM_MASK] = id;
        id->num = num;
        return true;
    }
    return false;
}

struct cm_id *cm_id_by_num(uint32_t num)
{
    struct cm_id *id = cm.table != NULL ? cm.table[num & NUM_MASK] : NULL;

    return id != NULL && id->num == num ? id : NULL;
}

/* Under cm.lock. */
struct cm_id *cm_id_new(struct cm_chan *chan, void *context, enum rdma_port_space ps)
{
    struct cm_id *id = calloc(1, sizeof(*id));

    if (id == NULL)
        return NULL;
    if (!number(id)) {
        free(id);
        errno = ENOMEM;
        return NULL;
    }
    id->id.channel = &chan->ch;
    id->id.context = context;
    id->id.ps = ps;
    id->id.qp_type = ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
    id->claim = -1;
    id->owner = emu_dev_peek();
    pthread_cond_init(&id->acked_cond, NULL);
    id->next = cm.ids;
    if (cm.ids != NULL)
        cm.ids->prev = id;
    cm.ids = id;
    return id;
}

static void remove_listener(const struct cm_id *id)
{
    struct cm_id **at = &cm.listeners;

    while (*at != id)
        at = &(*at)->next_listener;
    *at = id->next_listener;
}

void cm_id_free(struct cm_id *id)
{
    struct emu_dev *d = emu_dev_peek();

    if (id->prev != NULL)
        id->prev->next = id->next;
    else
        cm.ids = id->next;
    if (id->next != NULL)
        id->next->prev = id->prev;
    if (id->backlog)
        remove_listener(id);
    cm.table[id->num & NUM_MASK] = NULL;
    if (id->claim >= 0)
        emu_unwatch_close(id->claim);
    if (d != NULL)
        emu_peer_put(d, id->peer);
    pthread_cond_destroy(&id->acked_cond);
    emu_turns_end(&id->turns);
    free(id);
}

struct ibv_pd *cm_default_pd(struct ibv_context *verbs)
{
    struct ibv_pd **of_device = &emu_hca_of(verbs)->cm_pd;

    pthread_mutex_lock(&cm.lock);
    if (*of_device == NULL)
        *of_device = emu_pd_new(verbs);
    struct ibv_pd *pd = *of_device;
    pthread_mutex_unlock(&cm.lock);
    return pd;
}

void cm_set_port(struct cm_id *id, uint32_t port)
{
    id->port = (uint8_t)port;
    id->hca = atomic_load(&emu_dev_base()->hca[EMU_PORT_DEVICE(port)]);
}

int cm_set_verbs(struct cm_id *id)
{
    struct emu_dev *d = emu_dev_peek();

    if (id->id.verbs != NULL)
        return 0;
    if (d == NULL)
        return -EIO;
    struct emu_ctx *c = emu_ctx_get(d, id->hca != NULL ? id->hca : atomic_load(&d->hca[0]));
    if (c == NULL)
        return -errno;
    if (id->id.pd == NULL && (id->id.pd = cm_default_pd(&c->v.context)) == NULL)
        return -errno;
    id->id.verbs = &c->v.context;
    id->id.port_num = EMU_PORT_OF(id->port);
    return 0;
}

void cm_groups_free(struct cm_id *id)
{
    for (struct cm_group *g; (g = id->groups) != NULL;) {
        id->groups = g->next;
        pthread_cond_destroy(&g->acked_cond);
        free(g);
    }
}

void cm_path(const struct emu_dev *d, const struct cm_id *id, struct ibv_ah_attr *a)
{
    memset(a, 0, sizeof(*a));
    a->port_num = EMU_PORT_OF(id->port);
    a->dlid = emu_lid(d, id->remote_port);
    a->sl = id->sl;
    if (d->knobs.ethernet) {
        a->is_global = 1;
        emu_gid(d, id->remote_port, &a->grh.dgid);
        a->grh.sgid_index = (uint8_t)(emu_gids(d) - 1);
        a->grh.hop_limit = 64;
        a->grh.traffic_class = id->traffic_class;
    }
}

void cm_forked(struct emu_dev *d)
{
    (void)d;
    for (struct cm_id *id = cm.ids; id; id = id->next)
        if (id->claim >= 0)
            emu_own_drop(id->claim);
    cm = (struct cm_state_all){.timer.fn = cm.timer.fn};
    pthread_mutex_init(&cm.lock, NULL);
}
