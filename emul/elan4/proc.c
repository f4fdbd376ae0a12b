/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The network interface of this process: its segment, created at the first call.
 *
 * The segment is an anonymous memfd and disappears with the last process that maps it. A forked
 * child does not use its parent's segment, but creates its own when needed.
 */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "emul/common/limits.h"

#define REMEDY "EMUELAN4_SEGMENT_MIB, 16"

static struct {
    pthread_mutex_t lock;
    struct emu4_proc *_Atomic proc;
    bool fork_handler;
} made = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct emu4_knobs knobs;
static pthread_once_t knobs_once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t random_state;

uint64_t emu4_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * EMU4_NSEC + (uint64_t)ts.tv_nsec;
}

void emu4_print(const char *fmt, ...)
{
    char line[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    fprintf(stderr, "emuelan4: %s\n", line);
}

/* splitmix64: the state is a counter, shared by threads without a lock. */
uint32_t emu4_random(void)
{
    uint64_t z = atomic_fetch_add_explicit(&random_state, UINT64_C(0x9e3779b97f4a7c15),
                                           memory_order_relaxed);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(z >> 32);
}

static uint64_t true_random(void)
{
    uint64_t v = 0;

    if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != sizeof(v))
        v = emu4_now() ^ (uint64_t)getpid() << 32;
    return v;
}

static void load_knobs(void)
{
    emu4_knobs_load(&knobs);
    emu4_fail_init(knobs.fail);
    atomic_store(&random_state, knobs.seed ? knobs.seed : true_random());
}

const struct emu4_knobs *emu4_knobs(void)
{
    pthread_once(&knobs_once, load_knobs);
    return &knobs;
}

int emu4_path(char *path, size_t size, const char *name)
{
    char dir[200];
    const char *base = emu4_knobs()->dir;

    if (*base)
        snprintf(dir, sizeof(dir), "%s", base);
    else
        snprintf(dir, sizeof(dir), "/dev/shm/emuelan4-%u", (unsigned)getuid());
    if (mkdir(dir, *base ? 0777 : 0700) < 0 && errno != EEXIST) {
        emu4_print("cannot make the folder %s: %s; set EMUELAN4_DIR to another", dir,
                   strerror(errno));
        return -1;
    }
    if ((size_t)snprintf(path, size, "%s/%s", dir, name) >= size) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return 0;
}

static void in_child(void)
{
    atomic_store(&made.proc, NULL);
    pthread_mutex_init(&made.lock, NULL);
    emu4_engine_forked();
    emu4_memory_forked();
    emu4_counters = calloc(1, sizeof(*emu4_counters));
    knobs_once = (pthread_once_t)PTHREAD_ONCE_INIT;
}

static uint64_t align_up(uint64_t v, uint64_t a)
{
    return (v + a - 1) & ~(a - 1);
}

/* Makes a sealed file of `size` bytes and maps it. NULL: errno says why. */
static struct shm_head *map_segment(int pid, uint64_t size, int *out)
{
    char name[64];

    if (!emul_may_be_so_large("emuelan4", REMEDY, size)) {
        errno = EFBIG;
        return NULL;
    }
    snprintf(name, sizeof(name), "emuelan4-%d", pid);
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return NULL;
    if (ftruncate(fd, (off_t)size) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        close(fd);
        return NULL;
    }
    struct shm_head *seg = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (seg == MAP_FAILED) {
        int err = errno;
        close(fd);
        if (err == ENOMEM)
            emul_print_no_room("emuelan4", REMEDY, size);
        errno = err;
        return NULL;
    }
    madvise(seg, size, MADV_DONTDUMP); /* a dump would populate the sparse file */
    *out = fd;
    return seg;
}

static int make_segment(struct emu4_proc *p)
{
    uint64_t arena = align_up(sizeof(struct shm_head), 65536);
    uint64_t size = arena + (p->knobs.segment_mib << 20);
    int fd = -1;
    struct shm_head *seg = map_segment(p->pid, size, &fd);

    if (seg == NULL)
        return -1;
    int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bell < 0) {
        munmap(seg, size);
        close(fd);
        return -1;
    }
    seg->magic = EMU4_MAGIC;
    seg->version = EMU4_VERSION;
    seg->pid = p->pid;
    seg->incarnation = true_random() | 1;
    seg->size = size;
    seg->arena_off = arena;
    seg->arena_len = size - arena;
    seg->arena_va = (uint64_t)(uintptr_t)seg + arena;
    seg->bell_fd = bell;
    atomic_store(&seg->user[0].pid, p->pid);
    atomic_store(&seg->user[0].state, USER_KNOWN);
    p->seg_fd = fd;
    p->arena = (char *)seg + arena;
    p->self = (struct emu4_peer){.seg = seg,
                                 .size = size,
                                 .incarnation = seg->incarnation,
                                 .arena_off = arena,
                                 .arena_len = size - arena,
                                 .arena_va = seg->arena_va,
                                 .pid = p->pid,
                                 .pidfd = -1,
                                 .bell = bell,
                                 .refs = 1,
                                 .self = true};
    return 0;
}

struct emu4_proc *emu4_proc_peek(void)
{
    return atomic_load_explicit(&made.proc, memory_order_acquire);
}

static struct emu4_proc *make(void)
{
    struct emu4_proc *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return NULL;
    p->knobs = *emu4_knobs();
    p->pid = getpid();
    p->next_tag = (uint32_t)true_random();
    pthread_mutex_init(&p->lock, NULL);
    p->folder_fd = emu4_folder_enter();
    if (p->folder_fd < 0)
        goto err_proc;
    if (make_segment(p) < 0)
        goto err_folder;
    emu4_counters = &p->self.seg->counters;
    if (emu4_service_start(p) < 0)
        goto err_segment;
    if (!made.fork_handler)
        pthread_atfork(NULL, NULL, in_child);
    made.fork_handler = true;
    return p;

err_segment:
    emu4_counters = calloc(1, sizeof(*emu4_counters));
    close(p->self.bell);
    munmap(p->self.seg, p->self.size);
    close(p->seg_fd);
err_folder:
    close(p->folder_fd);
err_proc:
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

struct emu4_proc *emu4_proc(void)
{
    struct emu4_proc *p = emu4_proc_peek();

    if (p != NULL)
        return p;
    pthread_mutex_lock(&made.lock);
    p = atomic_load(&made.proc);
    if (p == NULL) {
        p = make();
        atomic_store_explicit(&made.proc, p, memory_order_release);
    }
    pthread_mutex_unlock(&made.lock);
    return p;
}

/* Freed ranges are reused. The list of holes is sorted by offset; no two are adjacent. */
int64_t emu4_arena_take(struct emu4_proc *p, uint64_t bytes)
{
    int64_t off = -1;

    bytes = align_up(bytes ? bytes : 1, 4096);
    pthread_mutex_lock(&p->lock);
    for (struct emu4_hole **at = &p->holes; *at != NULL && off < 0; at = &(*at)->next) {
        struct emu4_hole *h = *at;
        if (h->len < bytes)
            continue;
        off = (int64_t)h->off;
        h->off += bytes;
        h->len -= bytes;
        if (!h->len) {
            *at = h->next;
            free(h);
            break;
        }
    }
    if (off < 0 && bytes <= p->self.arena_len && p->arena_next <= p->self.arena_len - bytes) {
        off = (int64_t)p->arena_next;
        p->arena_next += bytes;
    }
    pthread_mutex_unlock(&p->lock);
    return off;
}

static void add_hole(struct emu4_proc *p, uint64_t off, uint64_t bytes)
{
    struct emu4_hole **at = &p->holes, *before = NULL;

    while (*at != NULL && (*at)->off < off) {
        before = *at;
        at = &before->next;
    }
    if (before != NULL && before->off + before->len == off) {
        before->len += bytes;
    } else {
        struct emu4_hole *h = malloc(sizeof(*h));
        if (h == NULL)
            return; /* the range is lost */
        *h = (struct emu4_hole){*at, off, bytes};
        *at = h;
        before = h;
    }
    struct emu4_hole *next = before->next;
    if (next != NULL && before->off + before->len == next->off) {
        before->len += next->len;
        before->next = next->next;
        free(next);
    }
}

void emu4_arena_give(struct emu4_proc *p, uint64_t off, uint64_t bytes)
{
    bytes = align_up(bytes ? bytes : 1, 4096);
    /* emptied before the range can be allocated again */
    madvise(p->arena + off, bytes, MADV_REMOVE);
    pthread_mutex_lock(&p->lock);
    add_hole(p, off, bytes);
    pthread_mutex_unlock(&p->lock);
}

__attribute__((destructor)) static void write_counters(void)
{
    struct emu4_proc *p = emu4_proc_peek();
    char path[400];

    if (p == NULL || p->pid != getpid() || !*p->knobs.counters)
        return;
    snprintf(path, sizeof(path), "%s/emuelan4-%d.json", p->knobs.counters, p->pid);
    FILE *f = fopen(path, "w");
    if (f == NULL) {
        emu4_print("cannot write %s: %s", path, strerror(errno));
        return;
    }
    emu4_counters_json(emu4_counters, p->pid, f);
    fclose(f);
}
