/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Is a stale registration ever used?  Four threads map, unmap, move, discard, and transfer
 * memory at random, through one registration cache.  The fabric here really holds on to pages:
 * a registration is a vmsplice of them into a pipe, and the device's read is a look into that
 * pipe.  What the device reads is compared with what was written just before, so memory that
 * was exchanged behind a registration shows up as wrong data.
 *
 * STALE_STEPS sets the number of steps of each thread.
 */
#include "config.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "unit.h"
#include "fabric.h"
#include "mreg.h"

#define PAGE      ((size_t)4096)
#define MAX_PAGES 8
#define SLOTS     12
#define THREADS   4

/* ---- a fabric whose registrations hold pages ---- */

struct held {
    int out, in; /* the pipe with the pages in it */
    uintptr_t base;
    size_t length;
};

static struct rme_caps held_caps = {
    .max_sge = 1, .max_read_sge = 1, .max_regs = 1 << 16, .has_read = true};
static atomic_int live, registrations;

static const struct rme_caps *caps(const struct rme_fabric *f)
{
    (void)f;
    return &held_caps;
}

static int reg(struct rme_fabric *f, void *base, size_t length, unsigned access,
               struct rme_mr *mr)
{
    struct held *held = malloc(sizeof(*held));
    struct iovec part = {.iov_base = base, .iov_len = length};
    int fds[2];

    (void)f;
    (void)access;
    if (held == NULL)
        return -ENOMEM;
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        free(held);
        return -ENOMEM;
    }
    if (vmsplice(fds[1], &part, 1, 0) != (ssize_t)length) {
        close(fds[0]);
        close(fds[1]);
        free(held);
        return -EFAULT;
    }
    *held =
        (struct held){.out = fds[0], .in = fds[1], .base = (uintptr_t)base, .length = length};
    *mr = (struct rme_mr){.handle = held,
                          .base = held->base,
                          .length = length,
                          .lkey = (uintptr_t)held,
                          .rkey = (uintptr_t)held};
    atomic_fetch_add(&live, 1);
    atomic_fetch_add(&registrations, 1);
    return 0;
}

static void dereg(struct rme_fabric *f, struct rme_mr *mr)
{
    struct held *held = mr->handle;

    (void)f;
    close(held->out);
    close(held->in);
    free(held);
    atomic_fetch_sub(&live, 1);
}

static const struct rme_fabric_ops held_ops = {
    .scheme = "held", .caps = caps, .reg = reg, .dereg = dereg};

/* What the device would read at `start`. */
static bool device_reads(uint64_t key, const char *start, size_t length, char *out)
{
    const struct held *held = (const struct held *)(uintptr_t)key;
    char whole[2 * MAX_PAGES * PAGE + 2 * PAGE];
    int copy[2];
    bool good;

    if ((uintptr_t)start < held->base ||
        (uintptr_t)start + length > held->base + held->length || held->length > sizeof(whole) ||
        pipe2(copy, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    good = tee(held->out, copy[1], held->length, 0) == (ssize_t)held->length &&
           read(copy[0], whole, held->length) == (ssize_t)held->length;
    close(copy[0]);
    close(copy[1]);
    if (good)
        memcpy(out, whole + ((uintptr_t)start - held->base), length);
    return good;
}

/* ---- the threads ---- */

struct thread {
    pthread_t id;
    struct rme_mreg *mreg;
    unsigned seed;
    uint64_t number; /* of the last transfer; unlike that of any other thread */
    long steps;
    long transfers, stale, failed;
    struct {
        char *base;
        size_t pages;
    } slot[SLOTS];
};

static unsigned pick(struct thread *t, unsigned limit)
{
    return (unsigned)rand_r(&t->seed) % limit;
}

static char *map_pages(size_t pages, void *where)
{
    char *at = mmap(where, pages * PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | (where != NULL ? MAP_FIXED : 0), -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* Writes fresh marks into memory, has the device read it, and compares. */
static void transfer(struct thread *t, char *base, size_t length)
{
    struct rme_mseg seg = {.base = base, .length = length};
    struct rme_mreg_hold *hold;
    char got[MAX_PAGES * PAGE];

    t->number++;
    for (size_t at = 0; at + sizeof(t->number) <= length; at += 512)
        memcpy(base + at, &t->number, sizeof(t->number));
    if (rme_mreg_acquire(t->mreg, &seg, 1, RME_ACCESS_REMOTE_READ, &hold) != 0) {
        t->failed++;
        return;
    }
    t->transfers++;
    if (!device_reads(seg.rkey, base, length, got))
        t->failed++;
    else if (memcmp(got, base, length) != 0)
        t->stale++;
    if (rme_mreg_release(t->mreg, hold) || pick(t, 8) == 0)
        rme_mreg_reap(t->mreg);
}

static void heap_transfer(struct thread *t)
{
    char *buffer[6];

    for (int i = 0; i < 6; i++)
        buffer[i] = malloc(MAX_PAGES * PAGE);
    for (int i = 0; i < 6; i++)
        if (buffer[i] != NULL)
            transfer(t, buffer[i], MAX_PAGES * PAGE);
    for (int i = 5; i >= 0; i--)
        free(buffer[i]);
}

static void step(struct thread *t)
{
    unsigned i = pick(t, SLOTS);
    char *base = t->slot[i].base;
    size_t pages = t->slot[i].pages, first;
    void *moved;

    if (base == NULL) {
        t->slot[i].pages = 1 + pick(t, MAX_PAGES);
        t->slot[i].base = map_pages(t->slot[i].pages, NULL);
        return;
    }
    switch (pick(t, 200)) {
    case 0:
    case 1:
        munmap(base, pages * PAGE);
        t->slot[i].base = NULL;
        break;
    case 2:
        madvise(base + pick(t, (unsigned)pages) * PAGE, PAGE, MADV_DONTNEED);
        break;
    case 3:
        (void)map_pages(1, base + pick(t, (unsigned)pages) * PAGE);
        break;
    case 4:
        t->slot[i].pages = 1 + pick(t, MAX_PAGES);
        moved = mremap(base, pages * PAGE, t->slot[i].pages * PAGE, MREMAP_MAYMOVE);
        t->slot[i].base = moved != MAP_FAILED ? moved : base;
        if (moved == MAP_FAILED)
            t->slot[i].pages = pages;
        break;
    case 5:
        if (pick(t, 8) == 0)
            heap_transfer(t);
        break;
    default:
        first = pick(t, 3) == 0 ? pick(t, (unsigned)pages) : 0;
        transfer(t, base + first * PAGE, (pages - first) * PAGE);
        break;
    }
}

static void *run(void *arg)
{
    struct thread *t = arg;

    for (long i = 0; i < t->steps; i++)
        step(t);
    for (int i = 0; i < SLOTS; i++)
        if (t->slot[i].base != NULL)
            munmap(t->slot[i].base, t->slot[i].pages * PAGE);
    return NULL;
}

static void no_stale_registration(void **state)
{
    const char *steps = getenv("STALE_STEPS");
    struct thread *thread = calloc(THREADS, sizeof(*thread));
    struct rme_pin pin;
    struct rme_mreg_config config = {.pin = &pin, .max_entries = 120, .max_bytes = 4 << 20};
    struct rme_mreg *mreg;
    long transfers = 0, stale = 0, failed = 0;

    (void)state;
    assert_non_null(thread);
    rme_pin_init(&pin, &held_ops, NULL, NULL);
    assert_int_equal(rme_mreg_new(&config, &mreg), 0);
    if (!rme_mreg_caches(mreg)) {
        rme_mreg_free(mreg);
        free(thread);
        skip();
    }
    for (unsigned i = 0; i < THREADS; i++) {
        thread[i].mreg = mreg;
        thread[i].seed = i + 1;
        thread[i].number = (uint64_t)i << 48;
        thread[i].steps = steps != NULL ? strtol(steps, NULL, 10) : 20000;
        assert_int_equal(pthread_create(&thread[i].id, NULL, run, &thread[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i].id, NULL);
        transfers += thread[i].transfers;
        stale += thread[i].stale;
        failed += thread[i].failed;
    }
    print_message(
        "%ld transfers, %d registrations, %ld hits, %ld evictions, %ld stale, %ld failed\n",
        transfers, atomic_load(&registrations), (long)atomic_load(&pin.hits),
        (long)atomic_load(&pin.evictions), stale, failed);
    rme_mreg_free(mreg);
    free(thread);
    assert_int_equal(stale, 0);
    assert_int_equal(failed, 0);
    assert_true(atomic_load(&pin.hits) > 0);
    assert_int_equal(atomic_load(&live), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_stale_registration)};

    alarm(600); /* a deadlock fails the test */
    return cmocka_run_group_tests_name("stale", tests, NULL, NULL);
}
