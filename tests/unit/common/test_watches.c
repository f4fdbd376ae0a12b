/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The end of watches: those that lie side by side end together. */
#include "config.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"
#include "fake_fabric.h"
#include "memory/monitor.h"
#include "memory/mreg.h"

#define PAGE   ((size_t)4096)
#define PAGES  16
#define SOURCE RME_ACCESS_REMOTE_READ

struct engine {
    struct fake fake;
    struct rme_pin pin;
    struct rme_mreg *mreg;
};

static struct engine *engine_new(void)
{
    struct engine *e = calloc(1, sizeof(*e));
    struct rme_mreg_config config = {.max_entries = 64, .max_bytes = 64 << 20, .batch = 8};

    assert_non_null(e);
    fake_init(&e->fake);
    rme_pin_init(&e->pin, &fake_ops, fake_fabric(&e->fake), NULL);
    config.pin = &e->pin;
    assert_int_equal(rme_mreg_new(&config, &e->mreg), 0);
    if (!rme_mreg_caches(e->mreg)) {
        rme_mreg_free(e->mreg);
        free(e);
        skip();
    }
    return e;
}

static void engine_free(struct engine *e)
{
    rme_mreg_free(e->mreg);
    assert_int_equal(fake_live(&e->fake), 0);
    assert_int_equal(e->fake.bad_deregs, 0);
    fake_destroy(&e->fake);
    free(e);
}

static char *map_anonymous(size_t pages)
{
    char *at =
        mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    memset(at, 1, pages * PAGE);
    return at;
}

/* Uses memory once.  True: it had to be registered. */
static bool registers(struct engine *e, void *base, size_t length)
{
    struct rme_mseg seg = {.base = base, .length = length};
    unsigned before = e->fake.regs;
    struct rme_mreg_hold *hold;

    assert_int_equal(rme_mreg_acquire(e->mreg, &seg, 1, SOURCE, &hold), 0);
    assert_true(fake_covers(&e->fake, seg.rkey, base, length, SOURCE));
    if (rme_mreg_release(e->mreg, hold))
        rme_mreg_reap(e->mreg);
    return e->fake.regs != before;
}

/* How many mappings of this process the kernel watches. */
static int watched_mappings(void)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    int n = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " uw") != NULL)
            n++;
    fclose(maps);
    return n;
}

/* Calls that end watches, of all threads. */
static atomic_uint unwatched;

int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
    if (request == UFFDIO_UNREGISTER)
        atomic_fetch_add(&unwatched, 1);
    return __real_ioctl(fd, request, arg);
}

#define WATCHES 6

struct watches {
    struct rme_watcher watcher;
    pthread_mutex_t lock;
    struct rme_monitor *monitor;
    struct rme_watch watch[WATCHES], *list[WATCHES];
    struct rme_claim claim[WATCHES];
    char *base;
};

static void changed(void *arg, uintptr_t start, uintptr_t end)
{
    (void)arg, (void)start, (void)end;
}

/* Two pages each, side by side, but for the last, which is apart. */
static void watch_all(struct watches *w)
{
    engine_free(engine_new()); /* skips where nothing can be watched */
    *w = (struct watches){.lock = PTHREAD_MUTEX_INITIALIZER, .base = map_anonymous(PAGES)};
    w->watcher = (struct rme_watcher){.lock = &w->lock, .gone = changed, .arg = w};
    assert_int_equal(rme_monitor_join(&w->watcher, &w->monitor), 0);
    for (int i = 0; i < WATCHES; i++) {
        struct rme_watch *watch = w->list[i] = &w->watch[i];

        watch->start = (uintptr_t)w->base + (size_t)(i + (i == WATCHES - 1)) * 2 * PAGE;
        watch->end = watch->start + 2 * PAGE;
        watch->claims = &w->claim[i];
        w->claim[i].node.start = watch->start;
        w->claim[i].node.end = watch->end;
        rme_monitor_watch(w->monitor, watch);
    }
    assert_int_equal(watched_mappings(), 2);
    atomic_store(&unwatched, 0);
}

static void leave_all(struct watches *w)
{
    assert_int_equal(watched_mappings(), 0);
    rme_monitor_leave(w->monitor, &w->watcher);
    munmap(w->base, PAGES * PAGE);
}

static void neighbours_end_at_once(void **state)
{
    struct watches w;

    (void)state;
    watch_all(&w);
    rme_monitor_unwatch(w.monitor, w.list, WATCHES);
    assert_int_equal(atomic_load(&unwatched), 2);
    leave_all(&w);
}

/* Whichever of them was used first. */
static void what_is_given_up_ends_at_once(void **state)
{
    struct engine *e = engine_new();
    char *base = map_anonymous(65);

    (void)state;
    for (int i = 64; i > 0; i--)
        assert_true(registers(e, base + (size_t)i * PAGE, PAGE));
    atomic_store(&unwatched, 0);
    assert_true(registers(e, base, PAGE));
    rme_mreg_reap(e->mreg);
    assert_int_equal(fake_live(&e->fake), 57);
    assert_int_equal(atomic_load(&unwatched), 1);
    engine_free(e);
    munmap(base, 65 * PAGE);
}

/* What somebody else claims in their middle stays. */
static void neighbours_of_what_is_claimed(void **state)
{
    struct rme_watch *others[WATCHES - 1];
    struct watches w;
    uintptr_t seam = 0;

    (void)state;
    watch_all(&w);
    for (int i = 0, n = 0; i < WATCHES; i++)
        if (i != 2)
            others[n++] = w.list[i];
    rme_monitor_unwatch(w.monitor, others, WATCHES - 1);
    assert_int_equal(atomic_load(&unwatched), 3);
    assert_int_equal(watched_mappings(), 1);
    pthread_mutex_lock(&w.lock);
    assert_int_equal(rme_monitor_still(w.monitor, w.watch[2].start, w.watch[2].end, &seam),
                     RME_STILL_YES);
    assert_int_equal(rme_monitor_still(w.monitor, w.watch[1].start, w.watch[1].end, &seam),
                     RME_STILL_NO);
    pthread_mutex_unlock(&w.lock);
    rme_monitor_unwatch(w.monitor, &w.list[2], 1);
    leave_all(&w);
}

/* A file has taken the place of one of them: the others end nevertheless. */
static void neighbours_of_a_file(void **state)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct watches w;

    (void)state;
    assert_true(fd >= 0);
    watch_all(&w);
    assert_ptr_equal(
        mmap((void *)w.watch[1].start, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0),
        (void *)w.watch[1].start);
    close(fd);
    rme_monitor_unwatch(w.monitor, w.list, WATCHES);
    leave_all(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_end_at_once),
        cmocka_unit_test(what_is_given_up_ends_at_once),
        cmocka_unit_test(neighbours_of_what_is_claimed),
        cmocka_unit_test(neighbours_of_a_file),
    };

    alarm(300); /* a deadlock fails the test */
    return cmocka_run_group_tests_name("watches", tests, NULL, NULL);
}
