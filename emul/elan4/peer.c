/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Other processes. The registry names the owner of a context. The owner's segment is opened
 * through /proc, which needs the same permission as process_vm_writev. A segment must be a
 * sealed memfd of the right size; its numbers are checked and copied before use. Then this
 * process enters itself as a user and wakes the owner. From then on each process watches the
 * other's life.
 *
 * A dead peer leaves the list immediately and is unmapped with its last reference.
 */
#include "emul/elan4/emu.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int pidfd_open_(int pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

bool emu4_process_dead(int pid)
{
    int fd = pid > 0 ? pidfd_open_(pid) : -1;

    if (fd < 0)
        return pid <= 0 || errno == ESRCH || errno == EINVAL;
    struct pollfd f = {.fd = fd, .events = POLLIN};
    bool gone = poll(&f, 1, 0) == 1;
    close(fd);
    return gone;
}

/* Reports once why a process cannot be reached, unless the process is gone. */
static void explain(int pid, int err)
{
    static _Atomic bool said;
    bool limit = err == EMFILE || err == ENFILE || err == ENOMEM;

    if ((!limit && err != EPERM && err != EACCES) || atomic_exchange(&said, true))
        return;
    if (limit) {
        emu4_print(
            "process %d cannot be reached: %s; each peer needs two descriptors and address "
            "space for its segment (ulimit -n, -v)",
            pid, strerror(err));
        return;
    }
    emu4_print(
        "process %d: the kernel denies access to its memory; run both as the same user, set "
        "/proc/sys/kernel/yama/ptrace_scope to 0, and in a container allow process_vm_readv "
        "(Docker: --cap-add=SYS_PTRACE)",
        pid);
}

/* Opens the memfd of a process; refuses any other file. */
static int open_segment(const struct emu4_record *r)
{
    char path[64], link[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", r->pid, r->memfd);
    ssize_t n = readlink(path, link, sizeof(link) - 1);
    if (n < 0) {
        explain(r->pid, errno);
        return -1;
    }
    link[n] = 0;
    if (strncmp(link, "/memfd:emuelan4-", 16) != 0) {
        errno = ESRCH;
        return -1;
    }
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        explain(r->pid, errno);
    return fd;
}

/* Checks a segment's identity. Reports once a process of another version that did not check the
 * folder. */
static bool is_of(const struct shm_head *seg, const struct emu4_record *r)
{
    static _Atomic bool said;
    uint32_t version = seg->version;

    if (seg->magic != EMU4_MAGIC || seg->pid != r->pid || seg->incarnation != r->incarnation)
        return false;
    if (version != EMU4_VERSION && !atomic_exchange(&said, true))
        emu4_print(
            "process %d cannot be reached: version %u of this library there, version %u here; "
            "run both with the same version",
            r->pid, version, EMU4_VERSION);
    return version == EMU4_VERSION;
}

/* Returns whether a user entry in `state` can be taken: in pass 0 a free one, in pass 1 one of
 * a known process that died, in pass 2 one of a process that died while entering. */
static bool vacant(uint64_t state, unsigned pass)
{
    if (pass < 2)
        return state == (pass == 0 ? USER_FREE : USER_LEFT);
    return (uint32_t)state == USER_ENTERING && emu4_process_dead((int)(state >> 32));
}

/* Enters this process as a user; returns the user number, or 0 if all are in use. */
static uint32_t enter(struct emu4_proc *p, struct shm_head *seg)
{
    uint32_t start = emu4_random() % (EMU4_USERS - 1);
    uint64_t entering = (uint64_t)(uint32_t)p->pid << 32 | USER_ENTERING;

    for (unsigned pass = 0; pass < 3; pass++)
        for (uint32_t k = 0; k < EMU4_USERS - 1; k++) {
            uint32_t i = 1 + (start + k) % (EMU4_USERS - 1);
            struct shm_user *u = &seg->user[i];
            uint64_t was = atomic_load(&u->state);
            if (!vacant(was, pass) ||
                !atomic_compare_exchange_strong(&u->state, &was, entering))
                continue;
            atomic_store(&u->busy, 0);
            atomic_store(&u->pid, p->pid);
            /* the owner reads the other fields from here on */
            atomic_store(&u->state, USER_TAKEN);
            emu4_step(EMU4_STEP_GREETING);
            atomic_store(&seg->news, 1);
            return i;
        }
    return 0;
}

static struct emu4_peer *map(struct emu4_proc *p, const struct emu4_record *r)
{
    struct stat st;
    struct emu4_peer *peer = NULL;
    int fd = open_segment(r);

    if (fd < 0)
        return NULL;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) < 0 || seals < 0 || !(seals & F_SEAL_SHRINK) ||
        (uint64_t)st.st_size < sizeof(struct shm_head))
        goto out;
    uint64_t size = (uint64_t)st.st_size;
    struct shm_head *seg = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (seg == MAP_FAILED) {
        explain(r->pid, errno);
        goto out;
    }
    madvise(seg, size, MADV_DONTDUMP); /* a dump would populate the sparse file */
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL || !is_of(seg, r))
        goto bad;
    *peer = (struct emu4_peer){.seg = seg,
                               .size = size,
                               .incarnation = r->incarnation,
                               .arena_off = seg->arena_off,
                               .arena_len = seg->arena_len,
                               .arena_va = seg->arena_va,
                               .pid = r->pid,
                               .bell = -1,
                               .refs = 1};
    if (peer->arena_off < sizeof(*seg) || peer->arena_off > size ||
        peer->arena_len > size - peer->arena_off)
        goto bad;
    peer->pidfd = pidfd_open_(r->pid);
    if (peer->pidfd < 0) {
        explain(r->pid, errno);
        goto bad;
    }
    peer->user = enter(p, seg);
    if (!peer->user) {
        emu4_print("process %d cannot be reached: limit of %u peers reached there", r->pid,
                   EMU4_USERS - 1);
        atomic_store(&seg->news, 1); /* makes the owner look for dead users */
        emu4_ring(peer);
        if (atomic_load(&peer->bell) >= 0) /* opened by emu4_ring() */
            emu4_own_close(atomic_load(&peer->bell));
        close(peer->pidfd);
        goto bad;
    }
    close(fd);
    return peer;

bad:
    free(peer);
    munmap(seg, size);
    peer = NULL;
out:
    close(fd);
    return peer;
}

void emu4_peer_ref(struct emu4_peer *peer)
{
    atomic_fetch_add(&peer->refs, 1);
}

void emu4_peer_put(struct emu4_proc *p, struct emu4_peer *peer)
{
    if (atomic_fetch_sub(&peer->refs, 1) != 1)
        return;
    (void)p;
    int bell = atomic_load(&peer->bell);
    if (bell >= 0)
        emu4_own_close(bell);
    emu4_own_close(peer->pidfd);
    munmap(peer->seg, peer->size);
    free(peer);
}

void emu4_peer_died(struct emu4_proc *p, struct emu4_peer *peer)
{
    bool found = false;

    pthread_mutex_lock(&p->lock);
    for (struct emu4_peer **at = &p->peers; *at; at = &(*at)->next)
        if (*at == peer) {
            *at = peer->next;
            found = true;
            break;
        }
    if (found) {
        atomic_store(&peer->dead, true);
        for (unsigned i = 0; i < EMU4_CACHE; i++)
            if (p->cache[i].end.peer == peer)
                p->cache[i] = (struct emu4_cached){0};
        emu4_service_unwatch(peer);
    }
    pthread_mutex_unlock(&p->lock);
    if (!found)
        return;
    EMU4_COUNT(peers_dead, 1);
    emu4_peer_put(p, peer);
}

/* Returns the process of a record, mapped, without a new reference. Under proc.lock. */
static struct emu4_peer *peer_of(struct emu4_proc *p, const struct emu4_record *r)
{
    if (r->pid == p->pid)
        return r->incarnation == p->self.incarnation ? &p->self : NULL;
    for (struct emu4_peer *q = p->peers; q; q = q->next)
        if (q->pid == r->pid && q->incarnation == r->incarnation)
            return q;
    struct emu4_peer *q = map(p, r);
    if (q == NULL)
        return NULL;
    q->next = p->peers;
    p->peers = q;
    EMU4_COUNT(peers, 1);
    emu4_service_watch(q);
    emu4_ring(q);
    return q;
}

static bool still_there(const struct emu4_end *e)
{
    return e->peer != NULL && !atomic_load(&e->peer->dead) &&
           atomic_load(&e->c->attached) == e->generation;
}

/* Returns whether no context of the node was attached since the owner was looked up. */
static bool none_attached(const struct emu4_cached *c)
{
    return c->attaches != NULL && atomic_load(c->attaches) == c->count;
}

bool emu4_target_get(struct emu4_proc *p, uint32_t route, struct emu4_end *end)
{
    struct emu4_cached *hit = &p->cache[(route ^ route >> 11) & (EMU4_CACHE - 1)];
    struct emu4_record r;
    bool found = false;

    pthread_mutex_lock(&p->lock);
    if (hit->route == route && none_attached(hit) && still_there(&hit->end)) {
        found = true;
        goto out;
    }
    emu4_attaches *attaches = emu4_registry_attaches(p, EMU4_ROUTE_NODE(route));
    uint64_t count = attaches != NULL ? atomic_load(attaches) : 0; /* read before the lookup */
    if (emu4_registry_find(p, EMU4_ROUTE_NODE(route), EMU4_ROUTE_CONTEXT(route), &r) &&
        r.index < EMU4_CTXS) {
        struct emu4_peer *peer = peer_of(p, &r);
        if (peer != NULL) {
            struct emu4_end e = {peer, &peer->seg->ctx[r.index], r.generation};
            if (still_there(&e)) {
                *hit = (struct emu4_cached){route, e, attaches, count};
                found = true;
            }
        }
    }
out:
    if (found) {
        *end = hit->end;
        emu4_peer_ref(end->peer);
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

/* Writes to other files, such as a broken pipe, could end this process. */
static bool is_eventfd(int fd)
{
    char path[40], link[40];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, link, sizeof(link) - 1);
    link[n > 0 ? n : 0] = 0;
    return strcmp(link, "anon_inode:[eventfd]") == 0;
}

/* Returns the peer's eventfd, or -1. */
static int bell_of(struct emu4_peer *peer)
{
    int bell = atomic_load(&peer->bell);

    if (bell >= 0)
        return bell;
    int fd = (int)syscall(SYS_pidfd_getfd, peer->pidfd, peer->seg->bell_fd, 0);
    if (fd < 0) {
        explain(peer->pid, errno);
        return -1;
    }
    if (!is_eventfd(fd)) {
        close(fd);
        return -1;
    }
    emu4_own(fd);
    if (atomic_compare_exchange_strong(&peer->bell, &bell, fd))
        return fd;
    emu4_own_close(fd);
    return bell;
}

/* Only the owner's threads clear `asleep` before they ring: another process may stop or die
 * before ringing, or fail to ring. Others ring until the owner clears `asleep` itself. */
void emu4_ring(struct emu4_peer *peer)
{
    uint64_t one = 1;

    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load(&peer->seg->asleep))
        return;
    if (peer->self && !atomic_exchange(&peer->seg->asleep, 0))
        return; /* another thread rings */
    int bell = bell_of(peer);
    if (bell < 0 || !emu4_is_own(bell))
        return;
    EMU4_COUNT(bells, 1);
    if (write(bell, &one, sizeof(one)) < 0 && errno != EAGAIN)
        return; /* the process is gone; its pidfd reports the death */
}
