/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "caching.h"

#include <stdio.h>
#include <sys/mman.h>

#include "memory/monitor.h"
#include "unit.h"

/* As the engine does (engine/forked.c). */
static void guard_forks(void)
{
    assert_int_equal(pthread_atfork(rme_monitor_before_fork, rme_monitor_after_fork,
                                    rme_monitor_after_fork_in_child),
                     0);
}

struct engine *engine_open(struct rme_mreg_config config, uint64_t zone_bytes, size_t pages)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct engine *e = calloc(1, sizeof(*e));

    assert_non_null(e);
    pthread_once(&once, guard_forks);
    fake_init(&e->fake);
    e->log = rme_log_new(fake_log_line, &e->seen);
    rme_pin_init(&e->pin, &fake_ops, fake_fabric(&e->fake), e->log);
    config.pin = &e->pin;
    assert_int_equal(rme_zone_new(&e->pin, zone_bytes, 0, &e->zone), 0);
    config.zone = e->zone;
    assert_int_equal(rme_mreg_new(&config, &e->mreg), 0);
    e->pages = pages;
    e->memory =
        mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(e->memory, MAP_FAILED);
    return e;
}

void engine_needs_cache(struct engine *e)
{
    if (rme_mreg_caches(e->mreg))
        return;
    rme_log_drain(e->log);
    assert_non_null(strstr(e->seen.last, "userfaultfd"));
    engine_free(e);
    skip();
}

struct engine *engine_new(uint64_t entries, uint32_t batch)
{
    struct engine *e = engine_open(
        (struct rme_mreg_config){.max_entries = entries, .max_bytes = 64 << 20, .batch = batch},
        1 << 20, 1);

    engine_needs_cache(e);
    return e;
}

void engine_free(struct engine *e)
{
    rme_mreg_free(e->mreg);
    rme_zone_free(e->zone);
    assert_int_equal(fake_live(&e->fake), 0);
    assert_int_equal(e->fake.bad_deregs, 0);
    rme_log_free(e->log);
    fake_destroy(&e->fake);
    munmap(e->memory, e->pages * PAGE);
    free(e);
}

char *map_anonymous(size_t pages)
{
    char *at =
        mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    memset(at, 1, pages * PAGE);
    return at;
}

bool registers(struct engine *e, void *base, size_t length)
{
    struct rme_mseg seg = {.base = base, .length = length};
    unsigned before = e->fake.regs;
    struct rme_mreg_hold *hold;

    assert_int_equal(rme_mreg_acquire(e->mreg, &seg, 1, SOURCE, &hold), 0);
    assert_true(fake_covers(&e->fake, seg.rkey, base, length, SOURCE));
    if (rme_mreg_release(e->mreg, hold, NULL))
        rme_mreg_dereg_flush(e->mreg);
    return e->fake.regs != before;
}

int watched_mappings(void)
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
