/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* caching.h - a cache of registrations over the fabric that only registers, and what the kernel
 * watches for it. */
#ifndef CACHING_H
#define CACHING_H

#include <stdbool.h>
#include <stddef.h>

#include "fake_fabric.h"
#include "memory/mreg.h"

#define PAGE   ((size_t)4096)
#define PAGES  16
#define SOURCE RME_ACCESS_REMOTE_READ

struct engine {
    struct fake fake;
    struct rme_pin pin;
    struct rme_mreg *mreg;
};

/* A cache of so many entries, which gives up `batch` of them together.  The test is skipped
 * where nothing can be watched. */
struct engine *engine_new(uint64_t entries, uint32_t batch);
/* Nothing is left registered. */
void engine_free(struct engine *e);

char *map_anonymous(size_t pages);
/* Uses memory once.  True: it had to be registered. */
bool registers(struct engine *e, void *base, size_t length);
/* How many mappings of this process the kernel watches. */
int watched_mappings(void);

#endif
