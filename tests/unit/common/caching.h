/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* caching.h - a registration cache over the fabric that only registers, and its kernel
 * watches. */
#ifndef CACHING_H
#define CACHING_H

#include <stdbool.h>
#include <stddef.h>

#include "fake_fabric.h"
#include "memory/mreg.h"

#define PAGE   ((size_t)4096)
#define PAGES  16
#define SOURCE RME_ACCESS_REMOTE_READ
#define SINK   (RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_WRITE)

struct engine {
    struct fake fake;
    struct fake_log seen;
    struct rme_log *log;
    struct rme_pin pin;
    struct rme_zone *zone;
    struct rme_mreg *mreg;
    char *memory; /* of this many pages */
    size_t pages;
};

/* Opens a zone and registrations; the configuration's pin and zone are set here. */
struct engine *engine_open(struct rme_mreg_config config, uint64_t zone_bytes, size_t pages);
/* Skips the test where memory cannot be watched, which a line of the log says. */
void engine_needs_cache(struct engine *e);
/* Opens a cache with `entries` entries, which evicts `batch` of them together. Skips the test
 * where memory cannot be watched. */
struct engine *engine_new(uint64_t entries, uint32_t batch);
/* Checks that nothing stays registered. */
void engine_free(struct engine *e);

char *map_anonymous(size_t pages);
/* Uses memory once. Returns true if the use registered it. */
bool registers(struct engine *e, void *base, size_t length);
/* Returns the number of this process's mappings that the kernel watches. */
int watched_mappings(void);

#endif
