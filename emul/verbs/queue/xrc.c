/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extended reliable connections (XRC).
 *
 * A queue pair that only sends is connected to one that only receives and has no receive queue:
 * each request names a shared receive queue (SRQ) by number, in any process that has the
 * responder's domain open. The receive, the completion queue and the protection domain of the
 * memory are that SRQ's, of its process; state, rights and failure are the queue pair's, of
 * another one maybe. So the poster works on two segments: it has the token of the queue pair in
 * the one, as for any connection, and takes, moves and completes in the other.
 *
 * An SRQ may be destroyed while posters are at it, as they are known to its users no more than
 * the queue pairs are. A poster pins it (key.c) before it looks at its `life`, a number that
 * never comes again, and until it has completed and notified. Who destroys it takes the life
 * away first, and then waits for who has it pinned: so nobody is in its ring, nor in that of
 * its completion queue, when these are freed. What was completed before is the program's to
 * poll or not.
 *
 * A poster that is stopped there, or dead, is not waited for. The rings of the completion queue
 * stay until it is dead (emu_cq_late). It may go on later. It finds the life gone before it
 * takes a receive, unless it was stopped right between: then the head of the queue has moved,
 * and no head of a later SRQ in the same place is as low. A receive that it had taken already
 * it completes; it says that such a completion counts only while the SRQ is there, and who
 * polls knows.
 *
 * A poster that has taken a receive says so (shm_qp.taken) before it completes it. That word
 * decides between it and the owner of a queue pair that has failed, who flushes what stopped
 * and dead posters left behind. One that has lost its token meanwhile may meet the next
 * connection's posters at the queue pair. Therefore what a request found is its own, and it
 * puts its token only in place of what it found there. If that is another now nobody knows what
 * it has but itself, and it completes that. Only one that stops for good before it has said so
 * loses a receive.
 *
 * A domain is an inode and a device. Who has one open holds an abstract unix socket
 * "emuverbs/xrcd/DEVICE-INODE/SLOT.N", and the inode. So others know that it exists, and it
 * ends with the last of them. Opening is done under a name of its own, one at a time on the
 * machine.
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
    int inode; /* holds the inode; -1 without one */
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

/* Has anybody on this machine the domain open? */
static bool exists(const struct shm_xrcd *id)
{
    char prefix[64], line[512];
    bool found = false;
    FILE *f = fopen("/proc/net/unix", "re");

    name_of(prefix, id);
    while (f && !found && fgets(line, sizeof(line), f)) {
        const char *at = strstr(line, prefix);
        found = at && at[strlen(prefix)] >= '0' && at[strlen(prefix)] <= '9';
    }
    if (f)
        fclose(f);
    return found;
}

/* Holds a name alone, of those who open this domain; a socket or -errno. */
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

/* Takes the name of a domain; a socket or -errno. */
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

/* Fills in who the domain is and takes it: 0 or a positive errno. */
static int identify(struct emu_dev *d, struct emu_xrcd *x, uint32_t device, int fd, int oflags)
{
    struct stat st;

    x->inode = -1;
    if (fd == -1) {
        if (!(oflags & O_CREAT))
            return EINVAL;
        /* more than any number of a device and its file system */
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
    else if (!d)
        err = EIO;
    else if (!d->knobs.srq)
        err = EOPNOTSUPP;
    else if (attr->comp_mask != needed || (attr->oflags & ~(O_CREAT | O_EXCL)))
        err = EINVAL;
    else if (!(x = calloc(1, sizeof(*x))))
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

static void let_go(const struct emu_xrcd *x)
{
    sys_close(x->sock);
    if (x->inode >= 0)
        sys_close(x->inode);
}

int emu_close_xrcd(struct ibv_xrcd *xrcd)
{
    struct emu_xrcd *x = (struct emu_xrcd *)xrcd;
    struct emu_dev *d = emu_dev_for(xrcd->context);

    if (emu_call(CALL_ibv_close_xrcd) || !d)
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
    let_go(x);
    free(x);
    emu_uncount(COUNT_live_xrcd, 1);
    return 0;
}

void emu_xrc_forked(struct emu_dev *d)
{
    for (struct emu_xrcd *x = d->xrcds; x; x = x->next)
        let_go(x);
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

    if (!d || !srq->xrcd)
        return EINVAL;
    *number = d->slot << EMU_SRQ_BITS | srq->index;
    return 0;
}

void emu_xrc_srq_gone(struct emu_dev *d, struct emu_srq *srq)
{
    struct shm_srq *s = shm_srq(d->seg, srq->index);
    uint64_t late[SLOT_WORDS] = {0};
    struct shm_cqe *e;

    atomic_store(&s->life, 0);
    pthread_mutex_lock(&srq->rq.lock);
    atomic_store(&s->rq.head, atomic_load(&s->rq.tail));
    pthread_mutex_unlock(&srq->rq.lock);
    emu_mr_drain(d, EMU_SRQ_PLACE(srq->index), late);
    pthread_mutex_lock(&srq->cq->lock); /* what comes now frees no place any more */
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

    if (!p)
        return errno == ESRCH || errno == ECONNREFUSED ? ENOENT : EAGAIN;
    if (!emu_peer_answers(p))
        return EAGAIN;
    if (!emu_peer_greet(d, p)) /* before it is pinned: see emu_mr_drain */
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

void emu_xrc_say(struct shm_qp *rs, uint64_t token, struct emu_named *n, uint32_t slot,
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

/* Completes with a flush error what the poster with this token has taken, if that was said. */
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
        return; /* it had none, or has completed it */
    struct emu_peer *p = slot < EMU_MAX_SLOTS ? emu_peer_get(d, slot) : NULL;
    if (p && emu_peer_greet(d, p)) {
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
