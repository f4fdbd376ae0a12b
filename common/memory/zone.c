/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Normal path.  A slab is a mapping with one registration, cut into 1 to 64 blocks of one size,
 * with a bit for each free block.  Slabs with free and used blocks are listed by class,
 * registered ones in front.  A slab without used blocks is idle, and may serve any class
 * whose blocks can fill the slab.  Large requests are slabs of one block.  Release finds the
 * slab in a tree of addresses.
 *
 * Growth.  The lock is dropped while a slab is mapped and registered, which may take long.  The
 * bytes are counted against the limit before that, so concurrent growth stays below it.
 *
 * Release.  A slab that was idle during a whole interval between two checks (idle_ms) is
 * released, the oldest first, while more than REST_BYTES are idle; those stay for a process
 * that is active now and then.  At the limit, idle slabs are released at once.
 *
 * Access by peers.  A slab's registration has all rights.  Where each operation registers for
 * itself (rme_pin_alone), slabs have local rights only.
 *
 * Failure.  If a registration is refused, a smaller slab is tried.  At the limit a block of a
 * larger class is used if one is free.  Else the block is plain memory without a registration:
 * a slab of its own, unmapped when the block is freed.
 *
 * Free blocks are poisoned for AddressSanitizer, so that a use is reported.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/itree.h"
#include "base/list.h"
#include "memory/zone.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif

#if __has_feature(address_sanitizer) || defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
/* Children inherit the memory, too: with MADV_DONTFORK a later mapping at the same addresses
 * would still be poisoned. */
#define NOT_FOR_CHILDREN MADV_DOFORK
#else
#define NOT_FOR_CHILDREN                           MADV_DONTFORK
#define ASAN_POISON_MEMORY_REGION(address, size)   ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#define HUGE_PAGE  ((size_t)2 << 20)
#define MIN_SHIFT  12 /* 4 KiB */
#define MAX_SHIFT  22 /* 4 MiB */
#define CLASSES    (MAX_SHIFT - MIN_SHIFT + 1)
#define LARGE      CLASSES /* class of slabs with one block of any size */
#define BLOCKS     64      /* limit for one slab: the bits of `free` */
#define MAX_SLAB   ((size_t)4 << 20)
#define MIN_SLAB   ((size_t)8 << 10) /* only under a small limit of locked memory */
#define SLAB_SHARE 16                /* a slab is at most this fraction of the limit */
#define REST_BYTES ((size_t)1 << 20) /* idle memory that is never released */

struct slab {
    struct list_head link;
    struct rme_inode place; /* the mapping, in the tree of the zone */
    char *base;
    size_t size;
    size_t block; /* bytes of a block */
    int class;
    uint64_t all;        /* one bit for each block */
    uint64_t free;       /* one bit for each free block */
    uint64_t idle_since; /* check before which the slab became idle */
    bool registered;     /* false: plain memory, one block */
    struct rme_mr mr;
};

struct rme_zone {
    struct rme_pin *pin;
    uint64_t max_bytes, idle_ms;       /* of rme_zone_new */
    pthread_mutex_t lock;              /* guards the fields below; a leaf in the lock order */
    size_t max_slab;                   /* reduced when a registration of that size is refused */
    struct list_head partial[CLASSES]; /* some blocks free, some used */
    struct list_head idle;             /* all blocks free; most recent first */
    struct list_head full;             /* all blocks used */
    struct rme_itree places;           /* slabs by address */
    uint64_t idle_bytes;               /* of idle slabs */
    uint64_t checks;                   /* checks so far */
    uint64_t checked_at;               /* ms of rme_now(), of the last check */
};

/* ---- memory of a slab ---- */

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* Maps memory.  The kernel may use huge pages where the size is a multiple of theirs. */
static char *map_memory(size_t size)
{
    size_t alignment = size % HUGE_PAGE == 0 ? HUGE_PAGE : RME_ZONE_MIN_BLOCK;
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
    if (alignment == HUGE_PAGE)
        (void)madvise(base, size, MADV_HUGEPAGE); /* advisory; small pages work as well */
    (void)madvise(base, size, NOT_FOR_CHILDREN);
    return base;
}

/* Is a slab registered, and is a refusal logged? */
enum use { PLAIN, QUIET, LOUD };

/* Maps a slab, not yet cut into blocks, and registers it, unless PLAIN.  No lock is needed.
 * NULL: no memory, or refused. */
static struct slab *slab_new(struct rme_pin *pin, size_t size, enum use use)
{
    unsigned access =
        RME_ACCESS_LOCAL_WRITE | (pin->caps->register_each ? 0 : RME_ACCESS_REMOTE);
    struct slab *slab = calloc(1, sizeof(*slab));
    char *base = slab != NULL ? map_memory(size) : NULL;

    if (base == NULL ||
        (use != PLAIN && rme_pin_reg(pin, base, size, access, use == LOUD, &slab->mr) != 0)) {
        if (base != NULL)
            munmap(base, size);
        free(slab);
        return NULL;
    }
    slab->registered = use != PLAIN;
    slab->base = base;
    slab->size = size;
    slab->place.start = (uintptr_t)base;
    slab->place.end = slab->place.start + size;
    ASAN_POISON_MEMORY_REGION(base, size);
    return slab;
}

/* Unmaps a slab.  No lock is needed: the zone does not list the slab. */
static void slab_free(struct rme_pin *pin, struct slab *slab)
{
    if (slab->registered)
        rme_pin_dereg(pin, &slab->mr);
    ASAN_UNPOISON_MEMORY_REGION(slab->base, slab->size);
    munmap(slab->base, slab->size);
    free(slab);
}

/* ---- sizes ---- */

/* The slab for a request: its class, the bytes of a block, and those of a new slab. */
struct shape {
    int class;
    size_t block, size;
};

static bool fits(const struct rme_zone *zone, size_t size)
{
    return size <= zone->max_bytes &&
           rme_pin_counted(zone->pin, RME_C_ZONE_BYTES) <= zone->max_bytes - size;
}

/* A new slab is up to half as large as all others: a process that needs few blocks pins little,
 * and one that needs many registers few slabs.  The last ones before the limit are smaller. */
static struct shape shape_for(const struct rme_zone *zone, size_t size)
{
    size_t large = round_up(size, RME_ZONE_SLAB);
    struct shape shape = {.block = RME_ZONE_MIN_BLOCK, .size = RME_ZONE_SLAB};

    if (size > zone->max_slab)
        return (struct shape){.class = LARGE, .block = large, .size = large};
    for (; shape.block < size; shape.block *= 2)
        shape.class ++;
    while (shape.size < MAX_SLAB &&
           4 * shape.size <= rme_pin_counted(zone->pin, RME_C_ZONE_BYTES))
        shape.size *= 2;
    while (shape.size > zone->max_slab || shape.size > BLOCKS * shape.block ||
           (shape.size > RME_ZONE_SLAB && !fits(zone, shape.size)))
        shape.size /= 2;
    if (shape.size < shape.block)
        shape.size = shape.block;
    return shape;
}

/* ---- lists ---- */

static bool is_idle(const struct slab *slab)
{
    return slab->free == slab->all;
}

/* Returns the list that a slab with its free blocks belongs to. */
static struct list_head *list_of(struct rme_zone *zone, const struct slab *slab)
{
    if (is_idle(slab))
        return &zone->idle;
    return slab->free == 0 ? &zone->full : &zone->partial[slab->class];
}

static void enlist(struct rme_zone *zone, struct slab *slab)
{
    list_add_head(&slab->link, list_of(zone, slab));
    if (is_idle(slab)) {
        slab->idle_since = zone->checks;
        zone->idle_bytes += slab->size;
    }
}

static void delist(struct rme_zone *zone, struct slab *slab)
{
    list_del_init(&slab->link);
    if (is_idle(slab))
        zone->idle_bytes -= slab->size;
}

/* Cuts an unlisted slab, all of it free, into blocks for a request, and lists the slab. */
static void cut(struct rme_zone *zone, struct slab *slab, const struct shape *shape)
{
    size_t blocks;

    slab->class = shape->class;
    slab->block = shape->class == LARGE ? slab->size : shape->block;
    blocks = slab->size / slab->block;
    slab->free = slab->all = UINT64_MAX >> (BLOCKS - (blocks < BLOCKS ? blocks : BLOCKS));
    enlist(zone, slab);
}

/* ---- allocation: the lock is held ---- */

static void *take_block(struct rme_zone *zone, struct slab *slab)
{
    char *block = slab->base + (size_t)__builtin_ctzll(slab->free) * slab->block;

    delist(zone, slab);
    slab->free &= slab->free - 1;
    enlist(zone, slab);
    ASAN_UNPOISON_MEMORY_REGION(block, slab->block);
    return block;
}

/* Takes a block of a partly used slab of a class; NULL: none. */
static void *take_partial(struct rme_zone *zone, int class)
{
    struct slab *slab =
        class != LARGE ? list_first(&zone->partial[class], struct slab, link) : NULL;

    return slab != NULL ? take_block(zone, slab) : NULL;
}

/* Takes a block of the smallest sufficient idle slab; NULL: none.  A large request gets a slab
 * of at most twice its size, others one that their blocks can fill. */
static void *take_idle(struct rme_zone *zone, const struct shape *shape)
{
    size_t max = shape->block * (shape->class == LARGE ? 2 : BLOCKS);
    struct slab *slab, *best = NULL;

    if (shape->class != LARGE && max > MAX_SLAB)
        max = MAX_SLAB;
    list_for_each(slab, &zone->idle, link)
        if (slab->size >= shape->block && slab->size <= max &&
            (best == NULL || slab->size < best->size))
            best = slab;
    if (best == NULL)
        return NULL;
    delist(zone, best);
    cut(zone, best, shape);
    return take_block(zone, best);
}

/* Releases an idle slab.  The lock is dropped meanwhile. */
static void slab_release(struct rme_zone *zone, struct slab *slab)
{
    uint64_t bytes = slab->registered ? slab->size : 0;

    delist(zone, slab);
    rme_itree_remove(&zone->places, &slab->place);
    pthread_mutex_unlock(&zone->lock);
    slab_free(zone->pin, slab);
    pthread_mutex_lock(&zone->lock);
    rme_pin_count(zone->pin, RME_C_ZONE_BYTES, -bytes);
}

/* Maps a new slab, registered unless PLAIN, and takes its first block.  The lock is dropped
 * meanwhile. */
static void *take_new(struct rme_zone *zone, const struct shape *shape, enum use use)
{
    uint64_t counted = use != PLAIN ? shape->size : 0;
    struct slab *slab;

    rme_pin_count(zone->pin, RME_C_ZONE_BYTES, counted);
    pthread_mutex_unlock(&zone->lock);
    slab = slab_new(zone->pin, shape->size, use);
    pthread_mutex_lock(&zone->lock);
    if (slab == NULL) {
        rme_pin_count(zone->pin, RME_C_ZONE_BYTES, -counted);
        return NULL;
    }
    rme_itree_insert(&zone->places, &slab->place);
    cut(zone, slab, shape);
    return take_block(zone, slab);
}

/*
 * Takes a block of a new registered slab.  If the limit is reached, idle slabs are released
 * first.  A refused slab may exceed a limit that rme_pin_budget() does not know: half its size
 * is tried, down to the usual minimum, or to the smallest slab if nothing is registered yet.
 * The lock is dropped meanwhile.
 */
static void *extend(struct rme_zone *zone, size_t size)
{
    size_t smallest =
        rme_pin_counted(zone->pin, RME_C_ZONE_BYTES) > 0 ? RME_ZONE_SLAB : MIN_SLAB;
    struct shape shape = shape_for(zone, size);

    while (!fits(zone, shape.size) && !list_empty(&zone->idle))
        slab_release(zone, list_last(&zone->idle, struct slab, link));
    while (fits(zone, shape.size)) {
        bool last = shape.class == LARGE || shape.size <= smallest;
        void *block = take_new(zone, &shape, last ? LOUD : QUIET);

        if (block != NULL || last)
            return block;
        if (zone->max_slab >= shape.size)
            zone->max_slab = shape.size / 2;
        shape = shape_for(zone, size);
    }
    return NULL;
}

/* Allocates a block: of an existing slab for its size, with `grow` of a new one, of a larger
 * class [000 5.2], and with `grow` of plain memory. */
void *rme_zone_alloc(struct rme_zone *zone, size_t size, bool grow)
{
    struct shape shape, plain = {.class = LARGE};
    void *block;

    if (size > SIZE_MAX / 4) /* larger than any address space */
        return NULL;
    plain.block = plain.size = round_up(size > 0 ? size : 1, RME_ZONE_MIN_BLOCK);
    pthread_mutex_lock(&zone->lock);
    shape = shape_for(zone, size);
    block = take_partial(zone, shape.class);
    if (block == NULL)
        block = take_idle(zone, &shape);
    if (block == NULL && grow)
        block = extend(zone, size);
    while (block == NULL && ++shape.class < CLASSES)
        block = take_partial(zone, shape.class);
    if (block == NULL && grow)
        block = take_new(zone, &plain, PLAIN);
    pthread_mutex_unlock(&zone->lock);
    return block;
}

/* ---- start and end ---- */

int rme_zone_new(struct rme_pin *pin, uint64_t max_bytes, uint64_t idle_ms,
                 struct rme_zone **out)
{
    struct rme_zone *zone = calloc(1, sizeof(*zone));

    if (zone == NULL)
        return -ENOMEM;
    zone->pin = pin;
    zone->max_bytes = max_bytes;
    zone->idle_ms = idle_ms;
    zone->max_slab = MAX_SLAB;
    while (zone->max_slab > MIN_SLAB &&
           zone->max_slab > max_bytes / (zone->max_slab > RME_ZONE_SLAB ? SLAB_SHARE : 2))
        zone->max_slab /= 2;
    pthread_mutex_init(&zone->lock, NULL);
    for (int class = 0; class < CLASSES; class ++)
        list_init(&zone->partial[class]);
    list_init(&zone->idle);
    list_init(&zone->full);
    *out = zone;
    return 0;
}

void rme_zone_free(struct rme_zone *zone)
{
    if (zone == NULL)
        return;
    pthread_mutex_lock(&zone->lock);
    while (zone->places.root != NULL)
        slab_release(zone, container_of(zone->places.root, struct slab, place));
    pthread_mutex_unlock(&zone->lock);
    pthread_mutex_destroy(&zone->lock);
    free(zone);
}

/* ---- blocks in use ---- */

/* Returns the slab that has the range in a used block, or NULL.  The lock is held. */
static struct slab *slab_of(const struct rme_zone *zone, const void *start, size_t length)
{
    uintptr_t at = (uintptr_t)start;
    struct rme_inode *node = rme_itree_overlap(&zone->places, at, at + 1);
    struct slab *slab;
    size_t index;

    if (node == NULL)
        return NULL;
    slab = container_of(node, struct slab, place);
    index = (at - node->start) / slab->block;
    if (index >= BLOCKS || ((slab->all & ~slab->free) >> index & 1) == 0)
        return NULL; /* no block, or a free one */
    return length <= node->start + (index + 1) * slab->block - at ? slab : NULL;
}

int rme_zone_release(struct rme_zone *zone, void *block)
{
    struct slab *slab;
    size_t offset;
    int ret = -EINVAL;

    pthread_mutex_lock(&zone->lock);
    slab = slab_of(zone, block, 0);
    offset = slab != NULL ? (size_t)((char *)block - slab->base) : 0;
    if (slab != NULL && offset % slab->block == 0) {
        delist(zone, slab);
        ASAN_POISON_MEMORY_REGION(block, slab->block);
        slab->free |= (uint64_t)1 << offset / slab->block;
        enlist(zone, slab);
        if (!slab->registered)
            slab_release(zone, slab);
        ret = 0;
    }
    pthread_mutex_unlock(&zone->lock);
    return ret;
}

/* ---- release of idle memory ---- */

/* Returns the slab that was idle longest if it is to be released, or NULL. */
static struct slab *find_surplus(struct rme_zone *zone)
{
    struct slab *last = list_last(&zone->idle, struct slab, link);

    return zone->idle_bytes > REST_BYTES && zone->checks - last->idle_since > 1 ? last : NULL;
}

void rme_zone_trim(struct rme_zone *zone)
{
    struct slab *slab;

    pthread_mutex_lock(&zone->lock);
    while ((slab = find_surplus(zone)) != NULL)
        slab_release(zone, slab);
    pthread_mutex_unlock(&zone->lock);
}

uint64_t rme_zone_trim_due(struct rme_zone *zone, uint64_t now)
{
    uint64_t next = UINT64_MAX;

    if (zone->idle_ms == 0)
        return next;
    pthread_mutex_lock(&zone->lock);
    if (now - zone->checked_at >= zone->idle_ms) {
        zone->checks++;
        zone->checked_at = now;
        if (find_surplus(zone) != NULL)
            atomic_store(&zone->pin->chores, true);
    }
    if (zone->idle_bytes > REST_BYTES &&
        zone->checks - list_first(&zone->idle, struct slab, link)->idle_since <= 1)
        next = zone->checked_at + zone->idle_ms;
    pthread_mutex_unlock(&zone->lock);
    return next;
}

/* ---- registrations ---- */

const struct rme_mr *rme_zone_find(struct rme_zone *zone, const void *start, size_t length,
                                   unsigned access)
{
    struct slab *slab;

    if (rme_pin_alone(zone->pin, access))
        return NULL;
    pthread_mutex_lock(&zone->lock);
    slab = slab_of(zone, start, length);
    pthread_mutex_unlock(&zone->lock);
    return slab != NULL && slab->registered ? &slab->mr : NULL;
}
