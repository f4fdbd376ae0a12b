/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extended reliable connections (XRC).
 *
 * A sending QP is connected to a receiving QP without a receive queue. Each request names an
 * SRQ by number, in any process that has the responder's domain open. Receive, CQ and PD are
 * those of the SRQ, in its process; state, rights and failure are those of the QP, possibly in
 * another process. So a poster works on two segments: it holds the token of the QP in one, and
 * takes, moves and completes in the other.
 *
 * An SRQ may be destroyed while posters use it, because its users know neither them nor the
 * QPs. A poster pins the SRQ (key.c) before it reads `life`, a unique number, and unpins it
 * after completion and notification. Destruction clears the life and then waits for the pins,
 * so no poster accesses its ring, or the ring of its CQ, when they are freed. Earlier
 * completions may be polled or not.
 *
 * Destruction does not wait for a stopped or dead poster; the CQ's rings are kept until that
 * process dies (emu_cq_late). A poster that continues later finds the life cleared before it
 * takes a receive, unless it was stopped right between: then the head of the queue has moved,
 * and heads of later SRQs in the same place are higher. A receive already taken is completed;
 * the completion counts only while the SRQ exists, which the poll checks.
 *
 * A poster records a taken receive (shm_qp.taken) before completing it. The word decides
 * between the poster and the owner of a failed QP, which flushes receives of stopped and dead
 * posters. A poster that has lost its token may meet posters of the next connection at the QP.
 * Therefore it replaces only the value that its request found. If the value has changed, the
 * poster's receive is not recorded and the poster completes it. A receive is lost only if a
 * poster stops permanently before recording it.
 *
 * A domain is identified by inode and device. A process that has one open holds the inode and
 * an abstract unix socket "emuverbs/xrcd/DEVICE-INODE/SLOT.N". So other processes see that the
 * domain exists, and it ends with the last of them. Opening is serialized on the machine by
 * another such name.
 */
#include "emul/verbs/base/sysio.h"
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OPEN_WAIT_MS 2000u
#define SLOT_WORDS   (EMU_MAX_SLOTS / 64)

struct emu_xrcd {
    struct ibv_xrcd xrcd;
    struct emu_xrcd *next;
    struct shm_xrcd id;
    int sock;  /* holds the name */
    int inode; /* holds the inode; -1: none */
    _Atomic int users;
};

static bool same(const struct shm_xrcd *a, const struct shm_xrcd *b)
{
    return a->dev == b->dev && a->ino == b->ino;
}

static void name_of(char name[64], const struct shm_xrcd *id)
{
    snprintf(name, 64, "emuverbs/xrcd/%" PRIx64 "-%" PRIx64 "/", id->dev, id->ino);
}

/* Returns whether any process on this machine has the domain open. */
static bool exists(const struct shm_xrcd *id)
{
    char prefix[64], line[512];
    bool found = false;
    FILE *f = fopen("/proc/net/unix", "re");

    name_of(prefix, id);
    while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
        const char *at = strstr(line, prefix);
        found = at != NULL && at[strlen(prefix)] >= '0' && at[strlen(prefix)] <= '9';
    }
    if (f != NULL)
        fclose(f);
    return found;
}

/* Takes the name that serializes opening of this domain; returns a socket or -errno. */
static int alone(const struct shm_xrcd *id)
{
    char prefix[64], name[80];
    int sock = 0;

    name_of(prefix, id);
    snprintf(name, sizeof(name), "%sopening", prefix);
    for (unsigned ms = 0; ms < OPEN_WAIT_MS; ms++) {
        sock = emu_listen_abstract(name);
        if (sock != -EADDRINUSE)
            break;
        usleep(1000);
    }
    return sock;
}

/* Takes a name of the domain; returns a socket or -errno. */
static int take_name(struct emu_dev *d, const struct shm_xrcd *id, int oflags)
{
    char prefix[64], name[120];

    name_of(prefix, id);
    snprintf(name, sizeof(name), "%s%u.%" PRIu64, prefix, d->slot,
             atomic_fetch_add(&d->seg->serial, 1));
    int lock = alone(id);
    if (lock < 0)
        return lock;
    bool there = exists(id);
    int sock = there && (oflags & O_EXCL)      ? -EINVAL
               : !there && !(oflags & O_CREAT) ? -EAGAIN
                                               : emu_listen_abstract(name);
    sys_close(lock);
    return sock;
}

/* Determines the identity of the domain and takes its name; returns 0 or a positive errno. */
static int identify(struct emu_dev *d, struct emu_xrcd *x, uint32_t device, int fd, int oflags)
{
    struct stat st;

    x->inode = -1;
    if (fd == -1) {
        if (!(oflags & O_CREAT))
            return EINVAL;
        /* above all numbers of devices and file systems */
        x->id.dev = UINT64_MAX;
        x->id.ino = RX_TOKEN(atomic_fetch_add(&d->seg->serial, 1) + 1, d->slot);
    } else {
        if (fstat(fd, &st) < 0)
            return errno;
        x->id.dev = (uint64_t)st.st_dev * EMU_MAX_DEVICES + device;
        x->id.ino = st.st_ino;
        x->inode = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (x->inode < 0)
            return errno;
    }
    x->sock = take_name(d, &x->id, oflags);
    if (x->sock >= 0)
        return 0;
    if (x->inode >= 0)
        sys_close(x->inode);
    return -x->sock;
}

struct ibv_xrcd *emu_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
    const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    struct emu_dev *d = emu_dev_for(context);
    struct emu_xrcd *x = NULL;
    int err = 0;

    if (emu_call(CALL_ibv_open_xrcd))
        err = ENOMEM;
    else if (d == NULL)
        err = EIO;
    else if (!d->knobs.srq)
        err = EOPNOTSUPP;
    else if (attr->comp_mask != needed || (attr->oflags & ~(O_CREAT | O_EXCL)))
        err = EINVAL;
    else if ((x = calloc(1, sizeof(*x))) == NULL)
        err = ENOMEM;
    else
        err = identify(d, x, emu_hca_of(context)->index, attr->fd, attr->oflags);
    if (err) {
        free(x);
        errno = err;
        return NULL;
    }
    x->xrcd.context = context;
    pthread_mutex_lock(&d->lock);
    x->next = d->xrcds;
    d->xrcds = x;
    pthread_mutex_unlock(&d->lock);
    emu_count(COUNT_live_xrcd, 1);
    return &x->xrcd;
}

static void let_go(const struct emu_xrcd *x, void (*close_own)(int fd))
{
    struct stat st;

    close_own(x->sock);
    if (x->inode >= 0 && fstat(x->inode, &st) == 0 && st.st_ino == x->id.ino)
        sys_close(x->inode);
}

int emu_close_xrcd(struct ibv_xrcd *xrcd)
{
    struct emu_xrcd *x = (struct emu_xrcd *)xrcd;
    struct emu_dev *d = emu_dev_for(xrcd->context);

    if (emu_call(CALL_ibv_close_xrcd) || d == NULL)
        return EIO;
    if (atomic_load(&x->users))
        return EBUSY;
    pthread_mutex_lock(&d->lock);
    for (struct emu_xrcd **pp = &d->xrcds; *pp; pp = &(*pp)->next)
        if (*pp == x) {
            *pp = x->next;
            break;
        }
    pthread_mutex_unlock(&d->lock);
    let_go(x, emu_own_close);
    free(x);
    emu_uncount(COUNT_live_xrcd, 1);
    return 0;
}

void emu_xrc_forked(struct emu_dev *d)
{
    for (struct emu_xrcd *x = d->xrcds; x; x = x->next)
        let_go(x, emu_own_drop);
}

void emu_xrcd_hold(struct emu_xrcd *x, struct shm_xrcd *id)
{
    *id = x->id;
    atomic_fetch_add(&x->users, 1);
}

void emu_xrcd_drop(struct emu_xrcd *x)
{
    atomic_fetch_sub(&x->users, 1);
}

void emu_xrc_srq_begins(struct emu_dev *d, struct emu_srq *srq, struct ibv_xrcd *xrcd,
                        struct ibv_cq *cq)
{
    struct shm_srq *s = shm_srq(d->seg, srq->index);
    srq->xrcd = (struct emu_xrcd *)xrcd;
    srq->cq = (struct emu_cq *)cq;
    srq->life = atomic_fetch_add(&d->seg->serial, 1) + 1;
    emu_xrcd_hold(srq->xrcd, &s->xrcd);
    s->cq = srq->cq->index;
    atomic_fetch_add(&srq->cq->users, 1);
    pthread_mutex_lock(&srq->cq->lock);
    srq->cq_next = srq->cq->xrc_srqs;
    srq->cq->xrc_srqs = srq;
    pthread_mutex_unlock(&srq->cq->lock);
    atomic_store(&s->life, srq->life);
}

int emu_get_srq_num(struct ibv_srq *ibsrq, uint32_t *number)
{
    struct emu_srq *srq = (struct emu_srq *)ibsrq;
    struct emu_dev *d = emu_dev_for(ibsrq->context);

    if (d == NULL || srq->xrcd == NULL)
        return EINVAL;
    *number = d->slot << EMU_SRQ_BITS | srq->index;
    return 0;
}

void emu_xrc_srq_destroyed(struct emu_dev *d, struct emu_srq *srq)
{
    struct shm_srq *s = shm_srq(d->seg, srq->index);
    uint64_t late[SLOT_WORDS] = {0};
    struct shm_cqe *e;

    atomic_store(&s->life, 0);
    pthread_mutex_lock(&srq->rq.lock);
    atomic_store(&s->rq.head, atomic_load(&s->rq.tail));
    pthread_mutex_unlock(&srq->rq.lock);
    emu_mr_drain(d, EMU_SRQ_PLACE(srq->index), late);
    pthread_mutex_lock(&srq->cq->lock); /* later completions free no place */
    for (uint32_t slot = 0; slot < EMU_MAX_SLOTS; slot++)
        if (late[slot / 64] >> (slot % 64) & 1)
            emu_cq_late(srq->cq, slot);
    for (uint64_t i = 0; (e = emu_cq_unread(d, srq->cq, i)) != NULL; i++)
        if (e->skip == SHM_SKIP_WITHOUT_SRQ && e->sq_index == srq->life)
            e->skip = SHM_REPORT;
    for (struct emu_srq **pp = &srq->cq->xrc_srqs; *pp; pp = &(*pp)->cq_next)
        if (*pp == srq) {
            *pp = srq->cq_next;
            break;
        }
    pthread_mutex_unlock(&srq->cq->lock);
    atomic_fetch_sub(&srq->cq->users, 1);
    emu_xrcd_drop(srq->xrcd);
}

struct emu_peer *emu_xrc_peer(struct emu_dev *d, struct emu_qp *qp, uint32_t srqn)
{
    uint32_t slot = srqn >> EMU_SRQ_BITS;

    errno = ESRCH;
    return slot < EMU_MAX_SLOTS ? emu_peer_of(d, &qp->srq_peer, slot) : NULL;
}

int emu_xrc_find(struct emu_dev *d, struct emu_qp *qp, const struct shm_qp *rs, uint32_t srqn,
                 struct emu_named *n)
{
    struct emu_peer *p = emu_xrc_peer(d, qp, srqn);

    if (p == NULL)
        return errno == ESRCH || errno == ECONNREFUSED ? ENOENT : EAGAIN;
    if (!emu_peer_answers(p))
        return EAGAIN;
    if (!emu_peer_greet(d, p)) /* before pinning, see emu_mr_drain() */
        return EAGAIN;
    n->index = srqn & (EMU_MAX_SRQS - 1);
    emu_srq_pin(d, p, n->index, &n->pin);
    const struct shm_srq *s = shm_srq(p->seg, n->index);
    n->life = atomic_load(&s->life);
    if (!n->life || !same(&s->xrcd, &rs->xrcd)) {
        emu_mr_unpin(&n->pin);
        return ENOENT;
    }
    n->cq = s->cq;
    n->user.pd = s->pd;
    atomic_store_explicit(&n->user.qpn, qp->attr.dest_qp_num, memory_order_relaxed);
    n->before = atomic_load(&rs->taken);
    n->said = false;
    return 0;
}

void emu_xrc_report(struct shm_qp *rs, uint64_t token, struct emu_named *n, uint32_t slot,
                    uint64_t wr_id)
{
    uint64_t before = n->before;

    if ((before && !(before & RX_DONE)) || atomic_load(&rs->busy) != token)
        return;
    rs->taken_wr_id = wr_id;
    rs->taken_life = n->life;
    rs->taken_srqn = slot << EMU_SRQ_BITS | n->index;
    rs->taken_cq = n->cq;
    n->said = atomic_compare_exchange_strong(&rs->taken, &before, token);
}

/* Completes the receive recorded by the poster with this token, if any, with a flush error. */
static void flush_taken(struct emu_dev *d, struct emu_qp *qp, uint64_t token)
{
    struct shm_qp *s = qp->s;
    struct emu_named n = {.life = s->taken_life, .index = s->taken_srqn & (EMU_MAX_SRQS - 1)};
    struct shm_cqe c = {.qpn = qp->qp.qp_num,
                        .wr_id = s->taken_wr_id,
                        .sq_index = s->taken_life,
                        .srq = SHM_OF_XRC_SRQ,
                        .skip = SHM_SKIP_WITHOUT_SRQ,
                        .status = IBV_WC_WR_FLUSH_ERR};
    uint32_t cq = s->taken_cq, slot = s->taken_srqn >> EMU_SRQ_BITS;

    if (!emu_xrc_claim(s, token))
        return; /* nothing recorded, or already completed */
    struct emu_peer *p = slot < EMU_MAX_SLOTS ? emu_peer_get(d, slot) : NULL;
    if (p != NULL && emu_peer_greet(d, p)) {
        emu_srq_pin(d, p, n.index, &n.pin);
        if (emu_xrc_found(p->seg, &n)) {
            emu_count(COUNT_wr_flushed, 1);
            emu_cq_push(d, p, cq, &c);
            emu_cq_notify(d, p, cq, true);
        }
        emu_mr_unpin(&n.pin);
    }
    emu_peer_put(d, p);
}

bool emu_xrc_revoke(struct emu_dev *d, struct emu_qp *qp, uint64_t token)
{
    uint64_t busy = token;

    if (!atomic_compare_exchange_strong(&qp->s->busy, &busy, 0))
        return false;
    flush_taken(d, qp, token);
    return true;
}

void emu_xrc_settle(struct emu_dev *d, struct emu_qp *qp)
{
    uint64_t token = atomic_load(&qp->s->taken);

    if (token && !(token & RX_DONE))
        flush_taken(d, qp, token);
}
