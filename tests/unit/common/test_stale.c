/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Looks for use of stale registrations. Four threads take random steps with memory of all
 * kinds: they map, unmap, replace, move, shrink, grow, discard, free lazily, remove, punch,
 * truncate, map shared segments over it, move the heap's end, and fork. They transfer the
 * memory through the registration caches of two engines, into which hints register as well.
 * In a second test they transfer lists with holes, in which others discard memory.
 * The device (held_fabric.h) holds pages, so memory replaced behind a registration shows up as
 * wrong data. Every byte is compared.
 *
 * test_stale [STEPS [SEED]]: number of steps of all threads together.
 */
#include "config.h"
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "held_fabric.h"
#include "memory/monitor.h"
#include "memory/mreg.h"

#define PAGE      ((size_t)4096)
#define MAX_PAGES 8
#define SLOTS     12
#define THREADS   4
#define ENGINES   2

#define SOURCE RME_ACCESS_REMOTE_READ
#define SINK   RME_ACCESS_REMOTE_WRITE

enum kind { NONE, PRIVATE, SHARED, FILE_SHARED, FILE_PRIVATE, KINDS };

struct slot {
    enum kind kind;
    char *base;
    size_t pages;
    int fd;       /* FILE_…: a memfd of MAX_PAGES pages */
    bool segment; /* a segment of one page is mapped over a part */
    bool mixed;   /* may be memory of several kinds */
};

struct thread {
    pthread_t id;
    struct rme_mreg **mreg;
    unsigned seed;
    uint64_t number; /* of the last transfer; unique among all threads */
    long steps;
    long transfers, stale, failed;
    struct slot slot[SLOTS];
    char mine[MAX_PAGES * PAGE], got[MAX_PAGES * PAGE];
};

static long steps = 80000;
static unsigned first_seed = 1;

static unsigned pick(struct thread *t, unsigned limit)
{
    return (unsigned)rand_r(&t->seed) % limit;
}

/* ---- transfers ---- */

/* Fills in bytes that no other transfer moves. */
static void compose(struct thread *t, char *out, size_t length)
{
    t->number++;
    for (size_t at = 0; at + sizeof(uint64_t) <= length; at += sizeof(uint64_t)) {
        uint64_t word = t->number * 0x9e3779b97f4a7c15u + at;

        memcpy(out + at, &word, sizeof(word));
    }
}

static bool device_moves(struct thread *t, unsigned access, uint64_t key, char *base,
                         size_t length)
{
    return access == SOURCE ? held_read(key, base, length, t->got)
                            : held_write(key, base, length, t->mine);
}

/* Returns whether the error is a limit of this kernel's device, not of the cache. */
static bool is_limit_of_device(int error, bool mixed)
{
    return error == -EOPNOTSUPP || (error == -EINVAL && mixed);
}

/* Moves fresh bytes from memory, perhaps of several kinds, to the device, or from there into
 * memory. Returns 0 or the error of the registration. */
static int transfer(struct thread *t, char *base, size_t length, bool mixed)
{
    unsigned access = held_pins() && pick(t, 2) == 0 ? SINK : SOURCE;
    struct rme_mreg *mreg = t->mreg[pick(t, ENGINES)];
    struct rme_mseg seg = {.base = base, .length = length};
    struct rme_mreg_hold *hold;
    int error;

    compose(t, t->mine, length);
    if (access == SOURCE)
        memcpy(base, t->mine, length);
    error = rme_mreg_acquire(mreg, &seg, 1, access, &hold);
    if (error != 0) {
        if (!is_limit_of_device(error, mixed)) {
            t->failed++;
            print_message("%zu bytes of memory were refused: %s\n", length, strerror(-error));
        }
        return error;
    }
    t->transfers++;
    if (!device_moves(t, access, seg.rkey, base, length))
        t->failed++;
    else if (memcmp(access == SOURCE ? t->got : base, t->mine, length) != 0)
        t->stale++;
    if (rme_mreg_release(mreg, hold, NULL) || pick(t, 8) == 0)
        rme_mreg_dereg_flush(mreg);
    return 0;
}

/* Uses the heap, shared by all threads, so that its end moves up and down. */
static void use_heap(struct thread *t)
{
    char *buffer[6];

    for (int i = 0; i < 6; i++)
        buffer[i] = malloc(MAX_PAGES * PAGE);
    for (int i = 0; i < 6; i++)
        if (buffer[i] != NULL)
            (void)transfer(t, buffer[i], MAX_PAGES * PAGE, false);
    for (int i = 5; i >= 0; i--)
        free(buffer[i]);
}

/* ---- changes of memory ---- */

static void fill_slot(struct thread *t, struct slot *slot)
{
    enum kind kind = pick(t, 4) == 0 ? (enum kind)(1 + pick(t, KINDS - 1)) : PRIVATE;
    int flags = kind == PRIVATE || kind == FILE_PRIVATE ? MAP_PRIVATE : MAP_SHARED;

    *slot = (struct slot){.kind = kind, .fd = -1, .pages = 1 + pick(t, MAX_PAGES)};
    if (kind == FILE_SHARED || kind == FILE_PRIVATE) {
        slot->fd = memfd_create("stale", MFD_CLOEXEC);
        if (slot->fd < 0 || ftruncate(slot->fd, MAX_PAGES * PAGE) != 0)
            t->failed++;
    } else {
        flags |= MAP_ANONYMOUS;
    }
    slot->base = mmap(NULL, MAX_PAGES * PAGE, PROT_READ | PROT_WRITE, flags, slot->fd, 0);
    if (slot->base == MAP_FAILED) {
        t->failed++;
        if (slot->fd >= 0)
            close(slot->fd);
        slot->kind = NONE;
        return;
    }
    munmap(slot->base + slot->pages * PAGE, (MAX_PAGES - slot->pages) * PAGE);
}

/* Drops the slot without unmapping: another thread may have mapped memory there. */
static void abandon_slot(struct slot *slot)
{
    if (slot->fd >= 0)
        close(slot->fd);
    slot->kind = NONE;
}

static void empty_slot(struct slot *slot)
{
    munmap(slot->base, slot->pages * PAGE);
    abandon_slot(slot);
}

static char *some_page(struct thread *t, const struct slot *slot)
{
    return slot->base + pick(t, (unsigned)slot->pages) * PAGE;
}

/* Changes the size, and so mostly the place. */
static void resize(struct thread *t, struct slot *slot)
{
    size_t pages = 1 + pick(t, MAX_PAGES);
    void *moved;

    if (slot->segment) /* a segment would not grow */
        return;
    moved = mremap(slot->base, slot->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
    if (moved != MAP_FAILED) {
        slot->base = moved;
        slot->pages = pages;
    }
}

/* Replaces the memory at the end of the mapping, which the kernel still watches. */
static void exchange_end(struct thread *t, struct slot *slot)
{
    size_t pages = slot->pages, left;
    char *last;

    if (slot->segment || pages < 2)
        return;
    left = 1 + pick(t, (unsigned)pages - 1);
    if (mremap(slot->base, pages * PAGE, left * PAGE, 0) != slot->base)
        return;
    slot->pages = left;
    last = slot->base + (left - 1) * PAGE; /* memory before it may be another mapping */
    if (mremap(last, PAGE, (1 + pages - left) * PAGE, 0) == last)
        slot->pages = pages;
}

/* Moves the slot over another one, which ends thereby. */
static void move_over(struct thread *t, struct slot *slot)
{
    struct slot *other = &t->slot[pick(t, SLOTS)];
    char *base = other->base;
    void *moved;

    if (other == slot || other->kind == NONE || other->pages < slot->pages || slot->segment)
        return;
    moved = mremap(slot->base, slot->pages * PAGE, slot->pages * PAGE,
                   MREMAP_MAYMOVE | MREMAP_FIXED, base);
    if (moved == base) {
        munmap(base + slot->pages * PAGE, (other->pages - slot->pages) * PAGE);
        slot->base = base;
    } else { /* of several mappings some may have moved: the contents are unknown */
        abandon_slot(slot);
    }
    abandon_slot(other);
}

/* Discards memory that hints have registered.  (Empty memory held for reading alone differs
 * from the pages written there next.) */
static void discard_what_hints_name(struct thread *t, const struct slot *slot)
{
    if (!held_pins())
        return;
    for (int i = 0; i < ENGINES; i++)
        rme_mreg_hint(t->mreg[i], slot->base, slot->pages * PAGE, SINK);
    madvise(slot->base, slot->pages * PAGE, MADV_DONTNEED);
}

/* Moves the pages away; the mapping stays, empty. */
static void move_pages_only(const struct slot *slot)
{
    void *moved = mremap(slot->base, slot->pages * PAGE, slot->pages * PAGE,
                         MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP, Linux 5.7 */);

    if (moved != MAP_FAILED)
        munmap(moved, slot->pages * PAGE);
}

static void put_segment_over(struct thread *t, struct slot *slot)
{
    char *page = some_page(t, slot);
    int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);

    if (id < 0)
        return;
    slot->segment |= shmat(id, page, SHM_REMAP) == page;
    slot->mixed |= slot->segment;
    shmctl(id, IPC_RMID, NULL);
}

/* Replaces pages of the file. */
static void change_file(struct thread *t, const struct slot *slot)
{
    off_t page = (off_t)(pick(t, (unsigned)slot->pages) * PAGE);

    if (pick(t, 2) == 0) {
        (void)fallocate(slot->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page, PAGE);
    } else if (ftruncate(slot->fd, page) != 0 || ftruncate(slot->fd, MAX_PAGES * PAGE) != 0) {
        t->failed++;
    }
}

/* The child overwrites its memory and unmaps some of it, without effect on its parent. */
static void fork_child(struct thread *t)
{
    pid_t pid;

    if (!held_pins())
        return;
    pid = fork();
    if (pid == 0) {
        for (int i = 0; i < SLOTS; i++) {
            if (t->slot[i].kind != PRIVATE)
                continue;
            memset(t->slot[i].base, 0xee, t->slot[i].pages * PAGE);
            munmap(t->slot[i].base, t->slot[i].pages * PAGE);
        }
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, NULL, 0) != pid)
        t->failed++;
}

static void step(struct thread *t)
{
    struct slot *slot = &t->slot[pick(t, SLOTS)];
    size_t first;

    if (slot->kind == NONE) {
        fill_slot(t, slot);
        return;
    }
    switch (pick(t, 200)) {
    case 0:
    case 1:
        empty_slot(slot);
        break;
    case 2:
        madvise(some_page(t, slot), PAGE, MADV_DONTNEED);
        break;
    case 3:
        madvise(some_page(t, slot), PAGE, MADV_FREE);
        break;
    case 4:
        madvise(some_page(t, slot), PAGE, MADV_REMOVE);
        break;
    case 5:
        (void)mmap(some_page(t, slot), PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        slot->mixed |= slot->kind != PRIVATE;
        break;
    case 6:
        resize(t, slot);
        break;
    case 7:
        move_over(t, slot);
        break;
    case 8:
        if (slot->kind == PRIVATE)
            move_pages_only(slot);
        break;
    case 9:
        put_segment_over(t, slot);
        break;
    case 10:
    case 11:
        if (slot->fd >= 0)
            change_file(t, slot);
        break;
    case 12:
        if (pick(t, 8) == 0)
            use_heap(t);
        break;
    case 13:
        if (pick(t, 20) == 0)
            fork_child(t);
        break;
    case 14:
        exchange_end(t, slot);
        break;
    case 15:
    case 16:
    case 17:
        discard_what_hints_name(t, slot);
        break;
    default:
        first = pick(t, 3) == 0 ? pick(t, (unsigned)slot->pages) : 0;
        if (transfer(t, slot->base + first * PAGE, (slot->pages - first) * PAGE, slot->mixed) !=
            0)
            empty_slot(slot); /* the device refuses such memory here */
        break;
    }
}

static void *run(void *arg)
{
    struct thread *t = arg;

    for (long i = 0; i < t->steps; i++)
        step(t);
    for (int i = 0; i < SLOTS; i++)
        if (t->slot[i].kind != NONE)
            empty_slot(&t->slot[i]);
    return NULL;
}

/* ---- two engines ---- */

struct bed {
    struct rme_pin pin[ENGINES];
    struct rme_mreg *mreg[ENGINES];
};

static void bed_close(struct bed *bed)
{
    for (int i = 0; i < ENGINES; i++)
        rme_mreg_free(bed->mreg[i]);
    assert_int_equal(held_live(), 0);
    held_close();
}

/* Opens the engines; skips the test without a cache. */
static void bed_open(struct bed *bed)
{
    held_open();
    for (int i = 0; i < ENGINES; i++) {
        struct rme_mreg_config config = {
            .pin = &bed->pin[i], .max_entries = 100, .max_bytes = 4 << 20};

        rme_pin_init(&bed->pin[i], &held_ops, NULL, NULL);
        assert_int_equal(rme_mreg_new(&config, &bed->mreg[i]), 0);
    }
    if (!rme_mreg_caches(bed->mreg[0])) {
        bed_close(bed);
        skip();
    }
}

/* Runs the threads over two engines; skips the test without a cache, or without a device that
 * `writes` where one is needed. */
static void run_all(void *(*body)(void *), bool writes)
{
    struct thread *thread;
    struct bed bed;
    long transfers = 0, stale = 0, failed = 0, hits = 0, evictions = 0;

    bed_open(&bed);
    if (writes && !held_pins()) {
        bed_close(&bed);
        skip();
    }
    thread = calloc(THREADS, sizeof(*thread));
    assert_non_null(thread);
    for (unsigned i = 0; i < THREADS; i++) {
        thread[i].mreg = bed.mreg;
        thread[i].seed = first_seed * THREADS + i;
        thread[i].number = (uint64_t)i << 48;
        thread[i].steps = steps / THREADS;
        assert_int_equal(pthread_create(&thread[i].id, NULL, body, &thread[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i].id, NULL);
        transfers += thread[i].transfers;
        stale += thread[i].stale;
        failed += thread[i].failed;
    }
    for (int i = 0; i < ENGINES; i++) {
        hits += (long)rme_pin_counted(&bed.pin[i], RME_C_REG_HITS);
        evictions += (long)rme_pin_counted(&bed.pin[i], RME_C_REG_EVICTIONS);
    }
    print_message("%ld steps, %ld transfers (%s), %d registrations, %ld hits, %ld evictions, "
                  "%ld stale, %ld failed\n",
                  steps, transfers, held_pins() ? "pinned" : "held by pipes", held_ever(), hits,
                  evictions, stale, failed);
    free(thread);
    bed_close(&bed);
    assert_int_equal(stale, 0);
    assert_int_equal(failed, 0);
    assert_true(hits > 0);
}

static void no_stale_registration(void **state)
{
    (void)state;
    run_all(run, false);
}

/* ---- holes of lists ---- */

#define AREA_PAGES 48
#define LIST_MOST  6

/* Pages that all threads use.  A page that is discarded before it is free again, as allocators
 * do, may be in a hole of another thread's list meanwhile. */
static struct {
    pthread_mutex_t lock;
    char *base;
    bool used[AREA_PAGES];
} area = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned take_pages(struct thread *t, struct rme_mseg *seg)
{
    unsigned wanted = 1 + pick(t, LIST_MOST), taken = 0;

    pthread_mutex_lock(&area.lock);
    for (int i = 0; i < AREA_PAGES && taken < wanted; i++) {
        unsigned page = pick(t, AREA_PAGES);

        if (area.used[page])
            continue;
        area.used[page] = true;
        seg[taken++] = (struct rme_mseg){.base = area.base + page * PAGE, .length = PAGE};
    }
    pthread_mutex_unlock(&area.lock);
    return taken;
}

static void give_page_back(struct thread *t, char *page)
{
    if (pick(t, 4) == 0)
        madvise(page, PAGE, MADV_DONTNEED);
    pthread_mutex_lock(&area.lock);
    area.used[(size_t)(page - area.base) / PAGE] = false;
    pthread_mutex_unlock(&area.lock);
}

static void use_list(struct thread *t)
{
    struct rme_mreg *mreg = t->mreg[pick(t, ENGINES)];
    struct rme_mseg seg[LIST_MOST];
    struct rme_mreg_hold *hold;
    unsigned count = take_pages(t, seg);

    if (count == 0)
        return;
    if (rme_mreg_acquire(mreg, seg, count, SINK, &hold) != 0) {
        t->failed++;
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        t->transfers++;
        compose(t, t->mine, PAGE);
        if (!device_moves(t, SINK, seg[i].rkey, seg[i].base, PAGE))
            t->failed++;
        else if (memcmp(seg[i].base, t->mine, PAGE) != 0)
            t->stale++;
    }
    if (rme_mreg_release(mreg, hold, NULL))
        rme_mreg_dereg_flush(mreg);
    for (unsigned i = 0; i < count; i++)
        give_page_back(t, seg[i].base);
}

static void *run_lists(void *arg)
{
    struct thread *t = arg;

    for (long i = 0; i < t->steps; i++)
        use_list(t);
    return NULL;
}

static void no_stale_hole(void **state)
{
    (void)state;
    area.base = mmap(NULL, AREA_PAGES * PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(area.base, MAP_FAILED);
    run_all(run_lists, true);
    munmap(area.base, AREA_PAGES * PAGE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_stale_registration),
        cmocka_unit_test(no_stale_hole),
    };

    if (argc > 1)
        steps = strtol(argv[1], NULL, 10);
    if (argc > 2)
        first_seed = (unsigned)strtoul(argv[2], NULL, 10);
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_TRIM_THRESHOLD, 1);
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
    if (pthread_atfork(rme_monitor_before_fork, rme_monitor_after_fork,
                       rme_monitor_after_fork_in_child) != 0)
        return 1;
    alarm(600 + (unsigned)(steps / 1000)); /* a deadlock fails the test */
    return cmocka_run_group_tests_name("stale", tests, NULL, NULL);
}
