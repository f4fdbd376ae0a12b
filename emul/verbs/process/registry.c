/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who is on this machine: slots, and the segments of other processes.
 *
 * A process owns slot N while it holds the abstract unix socket "emuverbs/slot/N". Such a name
 * lives in the kernel's network namespace and vanishes with its holder, so nothing is ever left
 * behind and two processes never hold one slot. Whoever needs the process in a slot (or the one
 * that listens on an rdma_cm address) connects to the name; that works even while the holder is
 * stopped, since connecting needs only its backlog, and the kernel then tells the holder's pid.
 * The holder's segment is the memfd of the right name among /proc/PID/fd. Its event descriptors
 * are copied by pidfd_getfd. All of that needs the same right as process_vm_writev, which the
 * data path needs anyway.
 *
 * A peer's structure is kept while the peer lives or anything refers to it. When its pidfd says
 * that it died, it leaves the table, but stays mapped for the QPs that still point at it.
 */
#include "emul/verbs/process/process.h"
#include "emul/verbs/base/sysio.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static int pidfd_open_(int pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int pidfd_getfd_(int pidfd, int fd)
{
    return (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

static socklen_t abstract_addr(struct sockaddr_un *sun, const char *name)
{
    size_t len = strlen(name);

    memset(sun, 0, sizeof(*sun));
    sun->sun_family = AF_UNIX;
    if (len > sizeof(sun->sun_path) - 1)
        len = sizeof(sun->sun_path) - 1;
    memcpy(sun->sun_path + 1, name, len);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

int emu_listen_abstract(const char *name)
{
    struct sockaddr_un sun;
    socklen_t len = abstract_addr(&sun, name);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (s < 0)
        return -errno;
    if (bind(s, (struct sockaddr *)&sun, len) < 0 || listen(s, 4096) < 0) {
        int err = errno;
        sys_close(s);
        return -err;
    }
    return s;
}

int emu_listener_pid(const char *name)
{
    struct sockaddr_un sun;
    socklen_t len = abstract_addr(&sun, name);
    struct ucred cred;
    socklen_t clen = sizeof(cred);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int ret;

    if (s < 0)
        return -errno;
    if (connect(s, (struct sockaddr *)&sun, len) < 0)
        ret = -errno;
    else if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &cred, &clen) < 0)
        ret = -errno;
    else
        ret = cred.pid > 0 ? cred.pid : -ESRCH;
    sys_close(s);
    return ret;
}

/*
 * The first slot and the last are nobody's: a queue pair in one of them could have the number
 * 0, or the one that stands for all members of a group.
 */
#define SLOTS (EMU_MAX_SLOTS - 2)

int emu_slot_claim(struct emu_dev *d)
{
    char name[64];
    uint32_t start = (uint32_t)d->pid % SLOTS;

    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t slot = 1 + (start + i) % SLOTS;
        snprintf(name, sizeof(name), "emuverbs/slot/%u", slot);
        int s = emu_listen_abstract(name);
        if (s >= 0) {
            d->slot = slot;
            d->slot_sock = s;
            return 0;
        }
        if (s != -EADDRINUSE)
            return s;
    }
    return -EUSERS;
}

void emu_explain_eperm(int pid)
{
    static _Atomic int said;

    if (atomic_exchange(&said, 1))
        return;
    fprintf(
        stderr,
        "emuverbs: the kernel forbids access to the memory of process %d (EPERM). Remedy: run "
        "both processes as the same user, set /proc/sys/kernel/yama/ptrace_scope to 0 or 1, "
        "and in a container allow process_vm_readv (Docker: --cap-add=SYS_PTRACE)\n",
        pid);
}

/* Finds the memfd of a process and maps it. */
static struct shm_head *map_segment(int pid, uint64_t *size)
{
    char path[300], link[128];
    struct shm_head *seg = NULL;
    int err = ESRCH;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    if (!dir) {
        if (errno == EACCES || errno == EPERM) {
            emu_explain_eperm(pid);
            errno = EPERM;
        }
        return NULL;
    }
    for (struct dirent *e; !seg && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, e->d_name);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        if (n <= 0)
            continue;
        link[n] = 0;
        if (strncmp(link, "/memfd:emuverbs-", 16) != 0)
            continue;
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) {
            err = errno;
            continue;
        }
        struct stat st;
        if (fstat(fd, &st) == 0 && (uint64_t)st.st_size > sizeof(struct shm_head)) {
            seg = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (seg == MAP_FAILED) {
                err = errno;
                seg = NULL;
            } else if (seg->magic != EMU_SHM_MAGIC || seg->version != EMU_SHM_VERSION ||
                       seg->size != (uint64_t)st.st_size || !atomic_load(&seg->ready)) {
                err = EPROTO;
                munmap(seg, (size_t)st.st_size);
                seg = NULL;
            } else {
                *size = (uint64_t)st.st_size;
            }
        }
        sys_close(fd);
    }
    closedir(dir);
    if (!seg)
        errno = err;
    return seg;
}

/* Whether a process has ended, be it reaped or not. */
static bool pid_gone(int pid, int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    if (pidfd >= 0)
        return poll(&p, 1, 0) > 0;
    /* no pidfds here (an old kernel, valgrind): what is dead has no memory, not even unmapped
     */
    char byte;
    struct iovec l = {&byte, 1}, r = {NULL, 1};
    return process_vm_readv(pid, &l, 1, &r, 1, 0) < 0 && errno == ESRCH;
}

static struct emu_peer *peer_open(struct emu_dev *d, int pid)
{
    uint64_t size = 0;
    int pidfd = pidfd_open_(pid);

    if (pidfd < 0 && errno != ENOSYS)
        return NULL;
    struct shm_head *seg = map_segment(pid, &size);
    struct emu_peer *p = seg ? calloc(1, sizeof(*p)) : NULL;
    if (!p || pid_gone(pid, pidfd)) {
        static _Atomic int said;
        int err = p ? ESRCH : errno;
        if ((err == EMFILE || err == ENFILE || err == ENOMEM) && !atomic_exchange(&said, 1))
            fprintf(stderr,
                    "emuverbs: process %d cannot be reached: %s; every peer takes three "
                    "descriptors (see ulimit -n)\n",
                    pid, strerror(err));
        if (seg)
            munmap(seg, size);
        free(p);
        if (pidfd >= 0)
            sys_close(pidfd);
        errno = err;
        return NULL;
    }
    p->seg = seg;
    p->size = size;
    p->slot = seg->slot & (EMU_MAX_SLOTS - 1);
    p->incarnation = seg->incarnation;
    p->pid = pid;
    p->pidfd = pidfd;
    p->refs = 1; /* the table's */
    atomic_store(&p->bell, -1);
    pthread_mutex_init(&p->chan_lock, NULL);

    pthread_mutex_lock(&d->lock);
    struct emu_peer *old = d->peers[p->slot];
    if (old && old->incarnation == p->incarnation) {
        /* another thread was faster */
        old->refs++;
        pthread_mutex_unlock(&d->lock);
        munmap(seg, size);
        if (pidfd >= 0)
            sys_close(pidfd);
        free(p);
        return old;
    }
    p->refs++;
    p->next = old;
    d->peers[p->slot] = p;
    pthread_mutex_unlock(&d->lock);
    emu_watch_peer(d, p);
    return p;
}

/* A living peer that we know already, with a reference. */
static struct emu_peer *peer_known(struct emu_dev *d, int pid, uint32_t slot)
{
    struct emu_peer *found = NULL;

    if (pid ? pid == d->pid : slot == d->slot)
        return &d->self;
    pthread_mutex_lock(&d->lock);
    uint32_t from = pid ? 0 : slot, to = pid ? EMU_MAX_SLOTS - 1 : slot;
    for (uint32_t i = from; i <= to && !found; i++) {
        struct emu_peer *p = d->peers[i];
        if (p && (!pid || p->pid == pid) && !atomic_load(&p->dead) &&
            !pid_gone(p->pid, p->pidfd))
            found = p;
    }
    if (found)
        found->refs++;
    pthread_mutex_unlock(&d->lock);
    return found;
}

struct emu_peer *emu_peer_by_pid(struct emu_dev *d, int pid)
{
    struct emu_peer *p = peer_known(d, pid, 0);

    return p ? p : peer_open(d, pid);
}

struct emu_peer *emu_peer_get(struct emu_dev *d, uint32_t slot)
{
    char name[64];
    struct emu_peer *p = peer_known(d, 0, slot);

    if (p)
        return p;
    snprintf(name, sizeof(name), "emuverbs/slot/%u", slot);
    int pid = emu_listener_pid(name);
    if (pid < 0) {
        errno = -pid;
        return NULL;
    }
    return peer_open(d, pid);
}

void emu_peer_ref(struct emu_dev *d, struct emu_peer *p)
{
    if (p->self)
        return;
    pthread_mutex_lock(&d->lock);
    p->refs++;
    pthread_mutex_unlock(&d->lock);
}

void emu_peer_put(struct emu_dev *d, struct emu_peer *p)
{
    if (!p || p->self)
        return;
    pthread_mutex_lock(&d->lock);
    bool last = --p->refs == 0;
    pthread_mutex_unlock(&d->lock);
    if (!last)
        return;
    if (p->chan) {
        for (uint32_t i = 0; i < EMU_MAX_CHANS; i++)
            if (p->chan[i].gen)
                sys_close(p->chan[i].fd);
        free(p->chan);
    }
    if (atomic_load(&p->bell) >= 0)
        sys_close(atomic_load(&p->bell));
    if (p->pidfd >= 0)
        sys_close(p->pidfd);
    munmap(p->seg, p->size);
    pthread_mutex_destroy(&p->chan_lock);
    free(p);
}

void emu_peer_clear(struct emu_dev *d, uint32_t slot)
{
    emu_above_slot_died(d, slot);
    shm_ring_recover(d->seg, &d->seg->inbox, slot);
}

void emu_peer_died(struct emu_dev *d, struct emu_peer *p)
{
    bool listed = false;

    atomic_store(&p->dead, true);
    emu_unwatch_peer(p);
    pthread_mutex_lock(&d->lock);
    for (struct emu_peer **pp = &d->peers[p->slot]; *pp; pp = &(*pp)->next)
        if (*pp == p) {
            *pp = p->next;
            listed = true;
            break;
        }
    pthread_mutex_unlock(&d->lock);
    emu_peer_clear(d, p->slot);
    emu_above_peer_died(d, p);
    if (listed)
        emu_peer_put(d, p);
}

struct emu_peer *emu_peer_of(struct emu_dev *d, struct emu_peer **last, uint32_t slot)
{
    if (!*last || (*last)->slot != slot || atomic_load(&(*last)->dead)) {
        struct emu_peer *p = emu_peer_get(d, slot);
        emu_peer_put(d, *last);
        *last = p;
    }
    return *last;
}

bool emu_peer_greet(struct emu_dev *d, struct emu_peer *p)
{
    if (p->self || atomic_exchange(&p->greeted, true) ||
        emu_peer_send(d, p, INBOX_HELLO, d->slot, 0, NULL, 0))
        return true;
    atomic_store(&p->greeted, false);
    return false;
}

bool emu_peer_stopped(struct emu_peer *p)
{
    char path[64], state = 0;

    if (p->self)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/stat", p->pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return true; /* gone */
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    fclose(f);
    return state == 'T' || state == 't' || state == 'Z' || state == 'X';
}

bool emu_peers_any(struct emu_dev *d,
                   bool (*is)(struct emu_dev *d, struct emu_peer *p, void *arg), void *arg)
{
    bool any = false;

    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < EMU_MAX_SLOTS && !any; i++)
        for (struct emu_peer *p = d->peers[i]; p && !any; p = p->next)
            any = is(d, p, arg);
    pthread_mutex_unlock(&d->lock);
    return any;
}

void emu_peers_check(struct emu_dev *d)
{
    for (uint32_t i = 0; i < EMU_MAX_SLOTS; i++) {
        pthread_mutex_lock(&d->lock);
        struct emu_peer *p = d->peers[i];
        while (p && (p->pidfd >= 0 || !pid_gone(p->pid, p->pidfd)))
            p = p->next;
        pthread_mutex_unlock(&d->lock);
        if (p)
            emu_peer_died(d, p);
    }
}

/* Copies a descriptor of a peer; -1 when that is not possible (too many open, an old kernel).
 */
static int copy_fd(struct emu_peer *p, int fd)
{
    int copy = fd >= 0 && p->pidfd >= 0 ? pidfd_getfd_(p->pidfd, fd) : -1;

    if (copy < 0 && p->pidfd >= 0 && errno == EPERM)
        emu_explain_eperm(p->pid);
    return copy;
}

void emu_peer_ring_bell(struct emu_dev *d, struct emu_peer *p)
{
    if (p->self) {
        emu_kick(d->seg->bell_fd);
        return;
    }
    int fd = atomic_load(&p->bell);
    if (fd < 0) {
        fd = copy_fd(p, p->seg->bell_fd);
        if (fd < 0) {
            /* connecting to its slot wakes the service thread just as well */
            char name[64];
            snprintf(name, sizeof(name), "emuverbs/slot/%u", p->slot);
            emu_listener_pid(name);
            return;
        }
        int none = -1;
        if (!atomic_compare_exchange_strong(&p->bell, &none, fd)) {
            sys_close(fd);
            fd = none;
        }
    }
    emu_kick(fd);
}

void emu_peer_signal_chan(struct emu_dev *d, struct emu_peer *p, uint32_t chan)
{
    if (p->self) {
        emu_kick(atomic_load(&shm_chan(d->seg, chan)->fd));
        return;
    }
    if (atomic_load(&p->dead))
        return;
    struct shm_chan *s = shm_chan(p->seg, chan);
    uint32_t gen = atomic_load(&s->gen);

    pthread_mutex_lock(&p->chan_lock);
    if (!p->chan)
        p->chan = calloc(EMU_MAX_CHANS, sizeof(*p->chan));
    struct emu_peer_chan *c = p->chan ? &p->chan[chan & (EMU_MAX_CHANS - 1)] : NULL;
    if (c && c->gen != gen) {
        if (c->gen)
            sys_close(c->fd);
        c->gen = 0;
        int fd = gen & 1 ? copy_fd(p, atomic_load(&s->fd)) : -1;
        if (fd >= 0) {
            c->fd = fd;
            c->gen = gen;
        }
    }
    bool done = c && c->gen && emu_kick(c->fd);
    pthread_mutex_unlock(&p->chan_lock);
    if (!done && (gen & 1))
        emu_peer_send(d, p, INBOX_SIGNAL, chan, gen, NULL, 0);
}

bool emu_peer_send(struct emu_dev *d, struct emu_peer *p, uint32_t kind, uint32_t index,
                   uint32_t arg, const void *payload, size_t len)
{
    struct shm_ring *inbox = &p->seg->inbox;
    struct shm_msg *m = atomic_load(&p->dead) ? NULL : shm_cell_get(p->seg, inbox, d->slot);

    if (!m)
        return false;
    m->kind = kind;
    m->index = index;
    m->arg = arg;
    if (len > EMU_INBOX_PAYLOAD)
        len = EMU_INBOX_PAYLOAD;
    if (len)
        memcpy(m->payload, payload, len);
    if (shm_ring_push(p->seg, inbox, m) != SHM_PUSHED) {
        shm_cell_put(p->seg, inbox, m);
        return false;
    }
    emu_peer_ring_bell(d, p);
    return true;
}
