/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "caching.h"

#include <stdio.h>
#include <sys/mman.h>

#include "unit.h"

struct engine *engine_new(uint64_t entries, uint32_t batch)
{
    struct engine *e = calloc(1, sizeof(*e));
    struct rme_mreg_config config = {
        .max_entries = entries, .max_bytes = 64 << 20, .batch = batch};

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

void engine_free(struct engine *e)
{
    rme_mreg_free(e->mreg);
    assert_int_equal(fake_live(&e->fake), 0);
    assert_int_equal(e->fake.bad_deregs, 0);
    fake_destroy(&e->fake);
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
    if (rme_mreg_release(e->mreg, hold))
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
