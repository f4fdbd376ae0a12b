/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Multicast groups of this machine.
 *
 * A process lists its member QPs in its segment, for senders to read. An abstract unix socket
 * "emuverbs/mcast/GID/SLOT" per process and group announces members: senders search such names
 * among the sockets of their network namespace. Names disappear with their process.
 */
#include "emul/verbs/queue/queue.h"
#include "emul/verbs/base/sysio.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_MLID 0xc000

struct emu_group {
    struct emu_group *next;
    union ibv_gid gid;
    unsigned members; /* of this process */
    int sock;         /* holds the name */
};

static void name_of(char name[64], const union ibv_gid *gid)
{
    name += sprintf(name, "emuverbs/mcast/");
    for (int i = 0; i < 16; i++)
        name += sprintf(name, "%02x", gid->raw[i]);
    strcpy(name, "/");
}

/* Returns the table entry of a member, or a free one for qpn 0; NULL if there is none. */
static struct shm_mcast *place(struct emu_dev *d, uint32_t qpn, const union ibv_gid *gid)
{
    for (uint32_t i = 0; i < EMU_MAX_MCASTS; i++) {
        struct shm_mcast *m = shm_mcast(d->seg, i);
        if (atomic_load(&m->qpn) == qpn && (!qpn || memcmp(m->gid, gid, sizeof(m->gid)) == 0))
            return m;
    }
    return NULL;
}

/* Returns the group, created if missing; NULL with errno. Under d->lock. */
static struct emu_group *group(struct emu_dev *d, const union ibv_gid *gid)
{
    char prefix[64], name[80];
    struct emu_group *g;

    for (g = d->groups; g != NULL; g = g->next)
        if (memcmp(&g->gid, gid, sizeof(*gid)) == 0)
            return g;
    g = calloc(1, sizeof(*g));
    if (g == NULL)
        return NULL;
    name_of(prefix, gid);
    snprintf(name, sizeof(name), "%s%u", prefix, d->slot);
    g->gid = *gid;
    g->sock = emu_listen_abstract(name);
    if (g->sock < 0) {
        errno = -g->sock;
        free(g);
        return NULL;
    }
    g->next = d->groups;
    d->groups = g;
    return g;
}

/* Destroys a group without members of this process. Under d->lock. */
static void drop_empty(struct emu_dev *d, struct emu_group *g)
{
    if (g->members)
        return;
    for (struct emu_group **pp = &d->groups; *pp; pp = &(*pp)->next)
        if (*pp == g) {
            *pp = g->next;
            break;
        }
    emu_own_close(g->sock);
    free(g);
}

void emu_mcast_forked(struct emu_dev *d)
{
    for (struct emu_group *g = d->groups; g; g = g->next)
        emu_own_drop(g->sock);
}

static bool is_group(const struct emu_dev *d, const union ibv_gid *gid, uint16_t lid)
{
    return emu_gid_is_group(gid) && (d->knobs.ethernet || (lid >= FIRST_MLID && lid != 0xffff));
}

EMU_EXPORT int ibv_attach_mcast(struct ibv_qp *ibqp, const union ibv_gid *gid, uint16_t lid)
{
    struct emu_dev *d = emu_dev_for(ibqp->context);
    struct emu_qp *qp = (struct emu_qp *)ibqp;
    int err = 0;

    if (emu_call(CALL_ibv_attach_mcast))
        return ENOMEM;
    if (d == NULL)
        return EIO;
    if (ibqp->qp_type != IBV_QPT_UD || !is_group(d, gid, lid))
        return EINVAL;
    pthread_mutex_lock(&d->lock);
    struct shm_mcast *m = place(d, ibqp->qp_num, gid) != NULL ? NULL : place(d, 0, NULL);
    struct emu_group *g = m != NULL ? group(d, gid) : NULL;
    if (g != NULL) {
        g->members++;
        qp->groups++;
        memcpy(m->gid, gid, sizeof(m->gid));
        atomic_store(&m->qpn, ibqp->qp_num);
    } else if (m != NULL || place(d, ibqp->qp_num, gid) == NULL) {
        err = ENOMEM; /* else already a member */
    }
    pthread_mutex_unlock(&d->lock);
    return err;
}

EMU_EXPORT int ibv_detach_mcast(struct ibv_qp *ibqp, const union ibv_gid *gid, uint16_t lid)
{
    struct emu_dev *d = emu_dev_for(ibqp->context);
    struct emu_qp *qp = (struct emu_qp *)ibqp;
    int err = EINVAL;

    if (emu_call(CALL_ibv_detach_mcast) || d == NULL)
        return EIO;
    if (ibqp->qp_type != IBV_QPT_UD || !is_group(d, gid, lid))
        return EINVAL;
    pthread_mutex_lock(&d->lock);
    struct shm_mcast *m = place(d, ibqp->qp_num, gid);
    struct emu_group *g = m != NULL ? group(d, gid) : NULL;
    if (g != NULL) {
        atomic_store(&m->qpn, 0);
        qp->groups--;
        g->members--;
        drop_empty(d, g);
        err = 0;
    }
    pthread_mutex_unlock(&d->lock);
    return err;
}

unsigned emu_mcast_slots(struct emu_dev *d, const union ibv_gid *gid, uint32_t *slots,
                         unsigned max)
{
    char prefix[64], line[512];
    unsigned n = 0;
    FILE *f = fopen("/proc/net/unix", "re");

    if (f == NULL)
        return 0;
    name_of(prefix, gid);
    while (n < max && fgets(line, sizeof(line), f) != NULL) {
        char *at = strstr(line, prefix);
        if (at == NULL)
            continue;
        unsigned long slot = strtoul(at + strlen(prefix), NULL, 10);
        bool known = slot == d->slot || slot >= EMU_MAX_SLOTS;
        for (unsigned i = 0; i < n && !known; i++)
            known = slots[i] == slot; /* a connection to the name is also listed */
        if (!known)
            slots[n++] = (uint32_t)slot;
    }
    fclose(f);
    return n;
}
