/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Processes of this machine: slots, and segments of other processes.
 *
 * A process owns slot N while it holds the name "emuverbs/slot/N" (claim.c), which tells its
 * process ID, even while it is stopped.
 *
 * The holder's segment is a memfd among the descriptors of one of its threads,
 * /proc/PID/task/TID/fd, that contains its process ID or slot. Its memory is accessed through
 * its service thread, which may outlive the main thread. Its eventfds are copied by
 * pidfd_getfd. All this needs the same permission as process_vm_writev.
 *
 * After exec() a process counts as another one with the same process ID: the kernel marks its
 * segment (SHM_LEFT), and its service thread is gone.
 *
 * A peer's structure is kept while the peer lives or is referenced. A dead peer leaves the
 * table, but stays mapped for QPs that refer to it.
 */
#include "emul/verbs/process/process.h"
#include "emul/verbs/base/sysio.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* limit of waiting for the threads of a process that has left */
#define LEFT_WAIT (5 * EMU_NSEC)

static int pidfd_open_(int pid)
{
    return sys_no_stream((int)syscall(SYS_pidfd_open, pid, 0));
}

static int pidfd_getfd_(int pidfd, int fd)
{
    return sys_no_stream((int)syscall(SYS_pidfd_getfd, pidfd, fd, 0));
}

static uint64_t limit_of(int resource)
{
    struct rlimit r = {0};

    getrlimit(resource, &r);
    return (uint64_t)r.rlim_cur; /* UINT64_MAX: unlimited */
}

/* Explains, once, a lack of descriptors or memory. `pid`: 0 if unknown; `size`: bytes of the
 * peer's segment, 0 if irrelevant. */
static void explain_lack(_Atomic int *said, const char *what, int pid, int err, uint64_t size)
{
    char why[400], who[32] = "a process";

    if (err == EMFILE)
        snprintf(why, sizeof(why),
                 "out of descriptors: the limit is %" PRIu64
                 " (RLIMIT_NOFILE), and each peer needs three; raise the limit (ulimit -n)",
                 limit_of(RLIMIT_NOFILE));
    else if (err == ENFILE)
        snprintf(why, sizeof(why),
                 "the machine is out of open files (/proc/sys/fs/file-nr); raise "
                 "/proc/sys/fs/file-max, or end programs that hold many");
    else if (err == ENOMEM && size)
        snprintf(why, sizeof(why),
                 "no address space for the peer's segment of %" PRIu64
                 " bytes (RLIMIT_AS is %" PRIu64
                 " bytes); raise the limit (ulimit -v) or /proc/sys/vm/max_map_count, or make "
                 "segments smaller (EMUVERBS_SEGMENT_MIB)",
                 size, limit_of(RLIMIT_AS));
    else if (err == ENOMEM)
        snprintf(
            why, sizeof(why),
            "no kernel memory for a descriptor; free memory of the machine or the container");
    else
        return;
    if (atomic_exchange(said, 1))
        return;
    if (pid)
        snprintf(who, sizeof(who), "process %d", pid);
    fprintf(stderr, "emuverbs: %s %s: %s (%s)\n", who, what, why, strerror(err));
}

/* The first and the last slot are not used: QP numbers in them could be 0, or the number of all
 * members of a multicast group. */
#define SLOTS (EMU_MAX_SLOTS - 2)

static void *number_main(void *number)
{
    *(int *)number = gettid();
    return NULL;
}

/*
 * Returns a number recently not used by the kernel for a process or thread: that of a new
 * thread. The process ID is not suitable, because exec() does not change the ID, and peers may
 * still be clearing the state of the former program by its slot.
 */
static int fresh_number(const struct emu_dev *d)
{
    int number = d->pid;
    sigset_t all, old;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&thread, NULL, number_main, &number) == 0)
        pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return number;
}

int emu_slot_claim(struct emu_dev *d)
{
    char name[64];
    uint32_t start = (uint32_t)fresh_number(d) % SLOTS;
    int error = emu_names_use(d->knobs.names);

    if (error)
        return error;
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t slot = 1 + (start + i) % SLOTS;
        snprintf(name, sizeof(name), "emuverbs/slot/%u", slot);
        int s = emu_name_hold(name);
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
        "emuverbs: process %d: the kernel denies access to its memory, or from there to the "
        "memory of this process (EPERM); run both processes as the same user, in one user "
        "namespace and one PID namespace, set /proc/sys/kernel/yama/ptrace_scope to 0 or 1, "
        "and in a container allow process_vm_readv (Docker: --cap-add=SYS_PTRACE)\n",
        pid);
}

/* Returns the process that owns a slot, or -errno. Wakes its service thread. */
static int slot_pid(uint32_t slot)
{
    char name[64];

    snprintf(name, sizeof(name), "emuverbs/slot/%u", slot);
    return emu_name_holder(name);
}

/*
 * Returns whether a segment opened by a process is its own. A process also has the segments of
 * peers open while mapping them, and a forked child briefly that of its parent. In another PID
 * namespace the process ID differs, and the slot decides. *err is set if the slot cannot be
 * resolved.
 */
static bool is_own(const struct shm_head *seg, int pid, int *err)
{
    int holder = seg->pid == pid ? pid : slot_pid(seg->slot & (EMU_MAX_SLOTS - 1));

    if (holder < 0 && holder != -ECONNREFUSED)
        *err = -holder;
    return holder == pid;
}

static bool is_proc_there(void)
{
    return access("/proc/self/fd", X_OK) == 0;
}

/* Explains, once, that this process sees no /proc. */
static void explain_proc(int pid)
{
    static _Atomic int said;

    if (!atomic_exchange(&said, 1))
        fprintf(stderr,
                "emuverbs: process %d cannot be reached: no /proc here, in a changed root "
                "(chroot) or a sandbox; mount /proc there, or connect before the change\n",
                pid);
}

/* Finds the memfd of a process among the descriptors of one of its threads, a folder of /proc,
 * and maps it. Sets `size` to the size of the file found, even if mapping fails. */
static struct shm_head *map_from(const char *thread, int pid, uint64_t *size)
{
    char path[700], link[128];
    struct shm_head *seg = NULL;
    int err = ESRCH;

    snprintf(path, sizeof(path), "%s/fd", thread);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        if (errno == EACCES || !is_proc_there())
            errno = EPERM;
        return NULL;
    }
    for (struct dirent *e; seg == NULL && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "%s/fd/%s", thread, e->d_name);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        if (n < 0 && (errno == EACCES || errno == EPERM))
            err = EPERM; /* listable, as in another user namespace, but not readable */
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
            *size = (uint64_t)st.st_size;
            seg = emu_segment_map(NULL, *size, MAP_SHARED, fd);
            if (seg == MAP_FAILED) {
                err = errno;
                seg = NULL;
            } else if (seg->magic != EMU_SHM_MAGIC || seg->version != EMU_SHM_VERSION ||
                       seg->size != (uint64_t)st.st_size || !atomic_load(&seg->ready) ||
                       !emu_segment_fits(seg)) {
                err = EPROTO;
                munmap(seg, (size_t)st.st_size);
                seg = NULL;
            } else if (!is_own(seg, pid, &err)) {
                munmap(seg, (size_t)st.st_size);
                seg = NULL;
            }
        }
        sys_close(fd);
    }
    closedir(dir);
    if (seg == NULL)
        errno = err;
    return seg;
}

/* Maps the segment of a process. An exited main thread has no accessible descriptors; then
 * other threads are tried. */
static struct shm_head *map_segment(int pid, uint64_t *size)
{
    char thread[300];

    snprintf(thread, sizeof(thread), "/proc/%d", pid);
    struct shm_head *seg = map_from(thread, pid, size);
    int err = errno;
    snprintf(thread, sizeof(thread), "/proc/%d/task", pid);
    DIR *dir = seg == NULL && (err == ESRCH || err == EPERM) ? opendir(thread) : NULL;
    for (struct dirent *e; dir != NULL && seg == NULL && (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.' || atoi(e->d_name) == pid)
            continue;
        snprintf(thread, sizeof(thread), "/proc/%d/task/%s", pid, e->d_name);
        seg = map_from(thread, pid, size);
        if (seg == NULL && errno != ENOENT)
            err = errno;
    }
    if (dir != NULL)
        closedir(dir);
    if (seg == NULL && err == EPERM)
        (is_proc_there() ? emu_explain_eperm : explain_proc)(pid);
    if (seg == NULL)
        errno = err;
    return seg;
}

/* Returns the thread for memory access. The number in the segment is verified: the thread must
 * belong to the process, whose number may differ in another PID namespace. */
static int thread_of(int pid, const struct shm_head *seg)
{
    char path[64];
    int tid = SHM_KEEPER(atomic_load(&seg->keeper));

    snprintf(path, sizeof(path), "/proc/%d/task/%d", pid, tid);
    return seg->pid == pid && access(path, F_OK) == 0 ? tid : pid;
}

/* Returns whether a process is exiting or executing another program. */
static bool has_left(const struct emu_peer *p)
{
    return SHM_LEFT(atomic_load(&p->seg->keeper));
}

/* Returns whether a process has exited, reaped or not. */
static bool is_dead(const struct emu_peer *p)
{
    struct pollfd f = {.fd = p->pidfd, .events = POLLIN};

    if (p->pidfd >= 0)
        return poll(&f, 1, 0) > 0;
    /* no pidfds (old kernel, seccomp, valgrind): a dead process has no memory */
    char byte;
    struct iovec l = {&byte, 1}, r = {NULL, 1};
    return process_vm_readv(p->tid, &l, 1, &r, 1, 0) < 0 && errno == ESRCH;
}

/* Returns whether no thread of a process that has left holds its slot's name. */
static bool slot_is_free(const struct emu_peer *p)
{
    int pid = slot_pid(p->slot);

    return pid == -ECONNREFUSED || (pid > 0 && pid != p->pid);
}

/*
 * Returns whether no thread of a process that has left still accesses this segment or memory.
 * Threads end one by one, each after its system call; afterwards the slot's name is free. If
 * another process inherited the name, such as a child in fork, LEFT_WAIT decides. Service
 * thread.
 */
static bool is_through(struct emu_peer *p)
{
    uint64_t now = emu_now();

    if (!p->left_since)
        p->left_since = now;
    return slot_is_free(p) || now - p->left_since > LEFT_WAIT;
}

static void peer_close(struct emu_peer *p)
{
    if (p->seg != NULL)
        munmap(p->seg, p->size);
    if (p->pidfd >= 0)
        emu_own_close(p->pidfd);
    free(p);
}

static struct emu_peer *peer_open(struct emu_dev *d, int pid)
{
    struct emu_peer *p = calloc(1, sizeof(*p));
    int err;

    if (p == NULL)
        return NULL;
    p->pid = pid;
    p->pidfd = pidfd_open_(pid);
    if (p->pidfd >= 0)
        emu_own(p->pidfd);
    bool refused = p->pidfd < 0 && (errno == ENOSYS || errno == EPERM || errno == EACCES);
    p->seg = p->pidfd >= 0 || refused ? map_segment(pid, &p->size) : NULL;
    err = errno;
    if (p->seg != NULL) {
        p->tid = thread_of(pid, p->seg);
        err = ESRCH;
    }
    if (p->seg == NULL || is_dead(p)) {
        static _Atomic int said;
        explain_lack(&said, "cannot be reached", pid, err, p->size);
        peer_close(p);
        errno = err;
        return NULL;
    }
    p->slot = p->seg->slot & (EMU_MAX_SLOTS - 1);
    p->incarnation = p->seg->incarnation;
    p->refs = 1; /* the table's reference */
    atomic_store(&p->bell, -1);
    pthread_mutex_init(&p->chan_lock, NULL);

    pthread_mutex_lock(&d->lock);
    struct emu_peer *old = d->peers[p->slot];
    if (old != NULL && old->incarnation == p->incarnation) {
        /* another thread was faster */
        old->refs++;
        pthread_mutex_unlock(&d->lock);
        pthread_mutex_destroy(&p->chan_lock);
        peer_close(p);
        return old;
    }
    p->refs++;
    p->next = old;
    d->peers[p->slot] = p;
    emu_watch_peer(d, p); /* before the service thread can find and remove it */
    pthread_mutex_unlock(&d->lock);
    return p;
}

/* Returns a living peer in the table, with a reference. */
static struct emu_peer *peer_known(struct emu_dev *d, int pid, uint32_t slot)
{
    struct emu_peer *found = NULL;

    if (pid ? pid == d->pid : slot == d->slot)
        return &d->self;
    pthread_mutex_lock(&d->lock);
    uint32_t from = pid ? 0 : slot, to = pid ? EMU_MAX_SLOTS - 1 : slot;
    for (uint32_t i = from; i <= to && found == NULL; i++) {
        struct emu_peer *p = d->peers[i];
        if (p != NULL && (!pid || p->pid == pid) && !atomic_load(&p->dead) && !has_left(p) &&
            !is_dead(p))
            found = p;
    }
    if (found != NULL)
        found->refs++;
    pthread_mutex_unlock(&d->lock);
    return found;
}

struct emu_peer *emu_peer_by_pid(struct emu_dev *d, int pid)
{
    struct emu_peer *p = peer_known(d, pid, 0);

    return p != NULL ? p : peer_open(d, pid);
}

struct emu_peer *emu_peer_get(struct emu_dev *d, uint32_t slot)
{
    struct emu_peer *p = peer_known(d, 0, slot);

    if (p != NULL)
        return p;
    int pid = slot_pid(slot);
    if (pid < 0) {
        static _Atomic int said;
        explain_lack(&said, "cannot be reached", 0, -pid, 0);
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
    if (p == NULL || p->self)
        return;
    pthread_mutex_lock(&d->lock);
    bool last = --p->refs == 0;
    pthread_mutex_unlock(&d->lock);
    if (!last)
        return;
    if (p->chan != NULL) {
        for (uint32_t i = 0; i < EMU_MAX_CHANS; i++)
            if (p->chan[i].gen)
                emu_own_close(p->chan[i].fd);
        free(p->chan);
    }
    if (atomic_load(&p->bell) >= 0)
        emu_own_close(atomic_load(&p->bell));
    pthread_mutex_destroy(&p->chan_lock);
    peer_close(p);
}

void emu_peer_clear(struct emu_dev *d, uint32_t slot)
{
    emu_above_slot_died(d, slot);
    shm_ring_recover(d->seg, &d->seg->inbox, slot);
    emu_above_untold(d); /* the process may have died between a change here and its message */
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
    if (listed) {
        emu_peer_put(d, p);
        emu_count(COUNT_peers_died, 1);
    }
}

struct emu_peer *emu_peer_of(struct emu_dev *d, struct emu_peer **last, uint32_t slot)
{
    if (*last == NULL || (*last)->slot != slot || atomic_load(&(*last)->dead)) {
        struct emu_peer *p = emu_peer_get(d, slot);
        emu_peer_put(d, *last);
        *last = p;
    }
    return *last;
}

bool emu_peer_greet(struct emu_dev *d, struct emu_peer *p)
{
    if (p->self || atomic_load(&p->greeted))
        return true;
    if (!emu_peer_send(d, p, INBOX_HELLO, d->slot, 0, NULL, 0))
        return false;
    atomic_store(&p->greeted, true); /* not earlier: another thread would rely on it */
    return true;
}

bool emu_peer_stopped(struct emu_peer *p)
{
    if (p->self)
        return false;
    if (has_left(p)) /* the number may belong to another program */
        return slot_is_free(p);
    return emu_has_stopped(p->pid);
}

bool emu_peer_had_turn(const struct emu_peer *p, uint64_t *ran)
{
    return p->self || has_left(p) || emu_had_turn(p->pid, ran);
}

void emu_turns_begin(const struct emu_dev *d, struct emu_turns *t)
{
    t->n = 0;
    for (uint32_t slot = 0; slot < EMU_MAX_SLOTS; slot++) {
        int pid = slot == d->slot ? -1 : slot_pid(slot);
        if (pid <= 0 || emu_at_rest(pid))
            continue;
        if (t->n == t->room) {
            uint32_t room = t->room ? 2 * t->room : 8;
            struct emu_turn *of = realloc(t->of, room * sizeof(*of));
            if (of == NULL)
                return;
            t->of = of;
            t->room = room;
        }
        t->of[t->n].pid = pid;
        emu_had_turn(pid, &t->of[t->n++].ran);
    }
}

bool emu_peers_any(struct emu_dev *d,
                   bool (*is)(struct emu_dev *d, struct emu_peer *p, void *arg), void *arg)
{
    bool any = false;

    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < EMU_MAX_SLOTS && !any; i++)
        for (struct emu_peer *p = d->peers[i]; p != NULL && !any; p = p->next)
            any = is(d, p, arg);
    pthread_mutex_unlock(&d->lock);
    return any;
}

struct emu_peer *emu_peer_unseen(struct emu_dev *d)
{
    struct emu_peer *found = NULL;

    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < EMU_MAX_SLOTS && found == NULL; i++)
        for (struct emu_peer *p = d->peers[i]; p != NULL && found == NULL; p = p->next)
            if ((p->pidfd >= 0 ? has_left(p) : is_dead(p)) && is_through(p))
                found = p;
    pthread_mutex_unlock(&d->lock);
    return found;
}

static bool is_eventfd(int fd)
{
    char path[40], link[40];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, link, sizeof(link) - 1);
    link[n > 0 ? n : 0] = 0;
    return strcmp(link, "anon_inode:[eventfd]") == 0;
}

/* Copies an eventfd of a peer; -1 on failure (descriptor limit, old kernel, or closed by the
 * program and reused for another file). */
static int copy_fd(struct emu_peer *p, int fd)
{
    static _Atomic int said;
    int copy = fd >= 0 && p->pidfd >= 0 ? pidfd_getfd_(p->pidfd, fd) : -1;
    bool left = has_left(p); /* the descriptor is the new program's, or access is denied */

    if (copy >= 0)
        emu_own(copy);
    if (left || (copy >= 0 && !is_eventfd(copy))) {
        if (copy >= 0)
            emu_own_close(copy);
        return -1;
    }
    if (copy < 0 && p->pidfd >= 0 && errno == EPERM)
        emu_explain_eperm(p->pid);
    else if (copy < 0 && p->pidfd >= 0 && fd >= 0)
        explain_lack(&said, "may be woken late", p->pid, errno, 0);
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
            /* connecting to its slot also wakes the service thread */
            slot_pid(p->slot);
            return;
        }
        int none = -1;
        if (!atomic_compare_exchange_strong(&p->bell, &none, fd)) {
            emu_own_close(fd);
            fd = none;
        }
    }
    emu_kick(fd);
}

void emu_peer_signal_chan(struct emu_dev *d, struct emu_peer *p, uint32_t chan)
{
    struct shm_chan *s = shm_chan(p->seg, chan);
    uint32_t gen = atomic_load(&s->gen);

    emu_step(EMU_STEP_signal);
    if (p->self) {
        pthread_mutex_lock(&p->chan_lock);
        if ((gen & 1) && atomic_load(&s->gen) == gen)
            emu_kick(atomic_load(&s->fd));
        pthread_mutex_unlock(&p->chan_lock);
        return;
    }
    if (atomic_load(&p->dead))
        return;
    pthread_mutex_lock(&p->chan_lock);
    if (p->chan == NULL)
        p->chan = calloc(EMU_MAX_CHANS, sizeof(*p->chan));
    struct emu_peer_chan *c = p->chan != NULL ? &p->chan[chan & (EMU_MAX_CHANS - 1)] : NULL;
    if (c != NULL && c->gen != gen) {
        if (c->gen)
            emu_own_close(c->fd);
        c->gen = 0;
        int fd = gen & 1 ? copy_fd(p, atomic_load(&s->fd)) : -1;
        if (fd >= 0 && atomic_load(&s->gen) != gen) { /* may have been reused */
            emu_own_close(fd);
        } else if (fd >= 0) {
            c->fd = fd;
            c->gen = gen;
        }
    }
    bool done = c != NULL && c->gen && emu_kick(c->fd);
    pthread_mutex_unlock(&p->chan_lock);
    if (!done && (gen & 1))
        emu_peer_send(d, p, INBOX_SIGNAL, chan, gen, NULL, 0);
}

/* Puts a message into the inbox; false when full. */
static bool put(struct emu_dev *d, struct emu_peer *p, uint32_t kind, uint32_t index,
                uint32_t arg, const void *payload, size_t len)
{
    struct shm_ring *inbox = &p->seg->inbox;
    struct shm_msg *m = shm_cell_get(p->seg, inbox, d->slot);

    if (m == NULL)
        return false;
    m->kind = kind;
    m->index = index;
    m->arg = arg;
    if (len > EMU_INBOX_PAYLOAD)
        len = EMU_INBOX_PAYLOAD;
    if (len)
        memcpy(m->payload, payload, len);
    if (shm_ring_push(p->seg, inbox, m) == SHM_PUSHED)
        return true;
    shm_cell_put(p->seg, inbox, m);
    return false;
}

bool emu_peer_send(struct emu_dev *d, struct emu_peer *p, uint32_t kind, uint32_t index,
                   uint32_t arg, const void *payload, size_t len)
{
    if (atomic_load(&p->dead))
        return false;
    bool there = put(d, p, kind, index, arg, payload, len);
    if (!there && (kind == INBOX_CM || kind == INBOX_HELLO))
        return false;
    if (!there)
        atomic_store(&p->seg->untold, 1);
    emu_peer_ring_bell(d, p);
    return there;
}
