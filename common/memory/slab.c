/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Slabs.  Free blocks are poisoned for AddressSanitizer, so that a use is reported. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "memory/slab.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ZONE_POISON
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ZONE_POISON
#endif

#ifdef ZONE_POISON
#include <sanitizer/asan_interface.h>
/* Children inherit the memory, too: with MADV_DONTFORK a later mapping at the same addresses
 * would still be poisoned. */
#define NOT_FOR_CHILDREN MADV_DOFORK
#else
#define NOT_FOR_CHILDREN                           MADV_DONTFORK
#define ASAN_POISON_MEMORY_REGION(address, size)   ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_PAGE ((size_t)2 << 20)

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

size_t rme_slab_mapped(size_t size)
{
    return round_up(size, RME_SLAB_SMALLEST);
}

/* Maps `size` bytes, aligned. */
static char *map_aligned(size_t size, size_t alignment)
{
    char *raw = mmap(NULL, size + alignment, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *base;

    if (raw == MAP_FAILED)
        return NULL;
    base = (char *)round_up((uintptr_t)raw, alignment);
    if (base > raw)
        munmap(raw, (size_t)(base - raw));
    if (raw + alignment > base)
        munmap(base + size, (size_t)(raw + alignment - base));
    return base;
}

/*
 * Maps huge pages and touches them.  A page that mmap() has reserved may be refused at its
 * first touch, with SIGBUS (a limit of the control group, a node without free pages); before
 * Linux 5.14 there is no way to find out.
 */
static char *map_huge(size_t size)
{
    char *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

    if (base == MAP_FAILED)
        return NULL;
    if (madvise(base, size, MADV_POPULATE_WRITE) == 0 || errno == EINVAL)
        return base;
    munmap(base, size);
    return NULL;
}

static char *map_memory(const struct rme_zone_config *config, size_t size)
{
    bool huge = config->huge && size % HUGE_PAGE == 0;
    char *base = huge ? map_huge(size) : NULL;

    if (base == NULL) {
        base = map_aligned(size, huge ? HUGE_PAGE : RME_SLAB_SMALLEST);
        if (base == NULL)
            return NULL;
        if (huge)
            (void)madvise(base, size, MADV_HUGEPAGE); /* advisory; small pages work as well */
    }
    (void)madvise(base, size, NOT_FOR_CHILDREN);
    return base;
}

void rme_slab_free(const struct rme_zone_config *config, struct rme_slab *slab)
{
    if (slab->readable)
        rme_pin_dereg(config->pin, &slab->to_read);
    if (slab->registered) {
        rme_pin_dereg(config->pin, &slab->mr);
        atomic_fetch_sub(&config->pin->zone_bytes, slab->size);
    }
    ASAN_UNPOISON_MEMORY_REGION(slab->base, slab->size);
    munmap(slab->base, rme_slab_mapped(slab->size));
    free(slab);
}

static bool register_slab(const struct rme_zone_config *config, struct rme_slab *slab,
                          enum rme_slab_effort effort)
{
    struct rme_pin *pin = config->pin;
    unsigned access = RME_ACCESS_LOCAL_WRITE | (pin->each        ? 0
                                                : pin->keys_open ? RME_ACCESS_REMOTE_WRITE
                                                                 : RME_ACCESS_REMOTE);
    int ret = effort == RME_SLAB_QUIET
                  ? rme_pin_try(pin, slab->base, slab->size, access, &slab->mr)
                  : rme_pin_reg(pin, slab->base, slab->size, access, &slab->mr);

    if (ret != 0)
        return false;
    atomic_fetch_add(&pin->zone_bytes, slab->size);
    return true;
}

struct rme_slab *rme_slab_new(const struct rme_zone_config *config,
                              const struct rme_slab *shape, enum rme_slab_effort effort)
{
    struct rme_slab *slab = malloc(sizeof(*slab));

    if (slab == NULL)
        return NULL;
    *slab = *shape;
    slab->free = slab->all;
    slab->base = map_memory(config, rme_slab_mapped(slab->size));
    if (slab->base == NULL) {
        free(slab);
        return NULL;
    }
    slab->place.start = (uintptr_t)slab->base;
    slab->place.end = slab->place.start + rme_slab_mapped(slab->size);
    slab->registered = effort != RME_SLAB_PLAIN && register_slab(config, slab, effort);
    if (effort == RME_SLAB_QUIET && !slab->registered) {
        rme_slab_free(config, slab);
        return NULL;
    }
    ASAN_POISON_MEMORY_REGION(slab->base, slab->size);
    return slab;
}

void *rme_slab_take(struct rme_slab *slab)
{
    char *block = slab->base + (size_t)__builtin_ctzll(slab->free) * slab->block;

    slab->free &= slab->free - 1;
    ASAN_UNPOISON_MEMORY_REGION(block, slab->block);
    return block;
}

void rme_slab_put(struct rme_slab *slab, void *block)
{
    size_t index = (size_t)((char *)block - slab->base) / slab->block;

    ASAN_POISON_MEMORY_REGION(block, slab->block);
    slab->free |= (uint64_t)1 << index;
}

bool rme_slab_in_use(const struct rme_slab *slab, const void *start, size_t length)
{
    size_t offset = (size_t)((const char *)start - slab->base);
    size_t index = offset / slab->block;

    return offset < slab->size && (slab->free >> index & 1) == 0 &&
           length <= (index + 1) * slab->block - offset;
}
