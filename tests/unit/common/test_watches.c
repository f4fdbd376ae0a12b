/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The end of watches: adjacent ones are ended together.  Huge pages are watched whole. */
#include "config.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "unit.h"
#include "caching.h"
#include "memory/monitor.h"

/* Calls that end watches, over all threads. */
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
    struct rme_monitor *monitor;
    struct rme_watch watch[WATCHES], *list[WATCHES];
    char *base;
};

static void changed(void *arg, uintptr_t start, uintptr_t end)
{
    (void)arg, (void)start, (void)end;
}

/* Watches ranges of two pages each, adjacent except for the last. */
static void watch_all(struct watches *w)
{
    engine_free(engine_new(64, 8)); /* skips where memory cannot be watched */
    *w = (struct watches){.base = map_anonymous(PAGES)};
    w->watcher = (struct rme_watcher){.on_unmap = changed, .arg = w};
    assert_int_equal(
        rme_monitor_join(&w->watcher, &w->monitor, &(struct rme_monitor_lacks){NULL}), 0);
    for (int i = 0; i < WATCHES; i++) {
        struct rme_watch *watch = w->list[i] = &w->watch[i];

        watch->claim.start = (uintptr_t)w->base + (size_t)(i + (i == WATCHES - 1)) * 2 * PAGE;
        watch->claim.end = watch->claim.start + 2 * PAGE;
        assert_int_equal(rme_monitor_watch(w->monitor, watch), 0);
    }
    assert_int_equal(watched_mappings(), 2);
    atomic_store(&unwatched, 0);
}

static void unwatch(struct watches *w, struct rme_watch **list, int count)
{
    struct rme_itree dropped = {NULL};

    pthread_mutex_lock(rme_monitor_lock(w->monitor));
    for (int i = 0; i < count; i++)
        rme_monitor_drop(w->monitor, list[i]);
    pthread_mutex_unlock(rme_monitor_lock(w->monitor));
    for (int i = 0; i < count; i++)
        rme_itree_insert(&dropped, &list[i]->claim);
    rme_monitor_unwatch(w->monitor, &dropped);
    assert_null(dropped.root);
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
    unwatch(&w, w.list, WATCHES);
    assert_int_equal(atomic_load(&unwatched), 2);
    leave_all(&w);
}

/* When the cache is full some entries are evicted together, the oldest: at most an eighth of
 * the limit. */
static void some_are_given_up_together(void **state)
{
    static const struct {
        uint32_t batch;
        unsigned gone;
    } lanes[] = {{0, 1}, {1, 1}, {3, 3}, {100, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
        struct engine *e = engine_new(32, lanes[i].batch);
        char *base = map_anonymous(128);
        unsigned gone = lanes[i].gone;

        for (size_t k = 0; k < 32; k++)
            assert_true(registers(e, base + k * 2 * PAGE, PAGE));
        assert_int_equal(rme_pin_counted(&e->pin, RME_C_REG_EVICTIONS), 0); /* all fit */
        assert_true(registers(e, base + 100 * PAGE, PAGE));
        assert_int_equal(rme_pin_counted(&e->pin, RME_C_REG_EVICTIONS), gone);
        rme_mreg_dereg_flush(e->mreg);
        assert_int_equal(e->fake.deregs, gone);
        assert_int_equal(fake_live(&e->fake), 33 - gone);
        for (size_t k = gone; k < 32; k++)
            assert_false(registers(e, base + k * 2 * PAGE, PAGE)); /* the younger ones stay */
        engine_free(e);
        munmap(base, 128 * PAGE);
    }
}

/* A range in their middle that another watcher claims stays watched. */
static void neighbours_of_what_is_claimed(void **state)
{
    struct rme_watch *others[WATCHES - 1];
    struct watches w;

    (void)state;
    watch_all(&w);
    for (int i = 0, n = 0; i < WATCHES; i++)
        if (i != 2)
            others[n++] = w.list[i];
    unwatch(&w, others, WATCHES - 1);
    assert_int_equal(atomic_load(&unwatched), 3);
    assert_int_equal(watched_mappings(), 1);
    pthread_mutex_lock(rme_monitor_lock(w.monitor));
    assert_true(rme_monitor_still(w.monitor, &w.watch[2]));
    assert_false(rme_monitor_still(w.monitor, &w.watch[1]));
    pthread_mutex_unlock(rme_monitor_lock(w.monitor));
    unwatch(&w, &w.list[2], 1);
    leave_all(&w);
}

/* A file has replaced one of them: the others end nevertheless. */
static void neighbours_of_a_file(void **state)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct watches w;

    (void)state;
    assert_true(fd >= 0);
    watch_all(&w);
    assert_ptr_equal(mmap((void *)w.watch[1].claim.start, 2 * PAGE, PROT_READ,
                          MAP_PRIVATE | MAP_FIXED, fd, 0),
                     (void *)w.watch[1].claim.start);
    close(fd);
    unwatch(&w, w.list, WATCHES);
    leave_all(&w);
}

/* ---- huge pages ---- */

/* Returns the KiB of transparent huge pages in mappings that overlap [from, to). */
static unsigned long huge_kib(const char *from, const char *to)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    unsigned long start, end, kib, sum = 0;
    bool inside = false;
    char line[512];

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start < (uintptr_t)to && end > (uintptr_t)from;
        else if (inside && sscanf(line, "AnonHugePages: %lu", &kib) == 1)
            sum += kib;
    }
    fclose(maps);
    return sum;
}

/* Returns whether the kernel reports their places, since Linux 6.7. */
static bool huge_pages_are_known(void)
{
    struct utsname name;
    unsigned major = 0, minor = 0;

    return uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 7));
}

static void huge_pages_stay_whole(void **state)
{
    const size_t huge = (size_t)2 << 20;
    struct engine *e = engine_new(1, 0);
    char *all =
        mmap(NULL, 5 * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *base = (char *)(((uintptr_t)all + huge - 1) / huge * huge);
    unsigned long before;

    (void)state;
    assert_ptr_not_equal(all, MAP_FAILED);
    madvise(base, 4 * huge, MADV_HUGEPAGE);
    memset(base, 1, 4 * huge);
    before = huge_kib(base, base + 4 * huge);
    if (!huge_pages_are_known() || before < 4 * huge / 1024) {
        munmap(all, 5 * huge);
        engine_free(e);
        skip();
    }
    /* from the middle of one to the middle of another */
    assert_true(registers(e, base + PAGE, 2 * huge));
    assert_int_equal(huge_kib(base, base + 4 * huge), before);
    assert_true(registers(e, base + 3 * huge + PAGE, PAGE)); /* evicts the first one */
    rme_mreg_dereg_flush(e->mreg);
    assert_int_equal(e->fake.regs, 2);
    assert_int_equal(fake_live(&e->fake), 1);
    assert_int_equal(huge_kib(base, base + 4 * huge), before);
    assert_int_equal(munmap(base + 3 * huge + PAGE, PAGE), 0); /* the change is detected */
    while (!rme_mreg_wants_dereg(e->mreg)) /* the unmap returns before it is handled */
        usleep(1000);
    rme_mreg_dereg_flush(e->mreg);
    assert_int_equal(fake_live(&e->fake), 0);
    munmap(all, 5 * huge);
    engine_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_end_at_once),
        cmocka_unit_test(some_are_given_up_together),
        cmocka_unit_test(neighbours_of_what_is_claimed),
        cmocka_unit_test(neighbours_of_a_file),
        cmocka_unit_test(huge_pages_stay_whole),
    };

    alarm(300); /* a deadlock fails the test */
    return cmocka_run_group_tests_name("watches", tests, NULL, NULL);
}
