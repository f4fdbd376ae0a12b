/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Normal path.  A slab is a mapping with one registration, cut into 1 to 64 blocks of one size,
 * with a bit for each free block.  Slabs with free blocks are listed by class, registered ones
 * in front.  A slab without used blocks and holds is idle, and may serve any class of its slab
 * size. Large requests are slabs of one block.  Allocation takes the head of a list, in
 * constant time. Release finds the slab in a tree of addresses.
 *
 * Growth.  The lock is dropped while a slab is mapped and registered, which may take long.  The
 * bytes are counted against the limit before that, so concurrent growth stays below it.
 *
 * Release.  Idle memory above keep_bytes is released at once.  Memory that was idle during the
 * whole interval between two checks (idle_ms) is released as well, except REST_BYTES, for a
 * process that is active now and then.
 *
 * Access by peers.  Without windows a slab has a registration for each direction: its own for
 * writes, and one for reads, made when a block is read for the first time.  The limit counts
 * memory, not registrations.  Where each operation registers for itself, slabs have local
 * rights only.
 *
 * Failure.  If a registration is refused, a smaller slab is tried.  At the limit a block of a
 * larger class is used if one is free.  Else the slab is plain memory, and rme_zone_find
 * returns -ENOENT.  Plain slabs are released as soon as they are idle, so that the next attempt
 * can register again.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/list.h"
#include "memory/slab.h"

#define MIN_SHIFT 12 /* 4 KiB */
#define MAX_SHIFT 22 /* 4 MiB */
#define CLASSES   (MAX_SHIFT - MIN_SHIFT + 1)
#define LARGE     CLASSES /* class of slabs with one block of any size */
#define BLOCKS    64      /* limit for one slab: the bits of `free` */
#define MAX_SLAB  ((size_t)4 << 20)
/* only under a small limit of locked memory; the mapping is RME_SLAB_SMALLEST anyway */
#define MIN_SLAB   ((size_t)8 << 10)
#define SLAB_SHARE 16 /* a slab is at most this fraction of the limit */
#define IDLE_LARGE 5  /* idle lists: slabs of 256 KiB to 4 MiB, then large ones */
#define IDLE_LISTS (IDLE_LARGE + 1)
#define REST_BYTES ((size_t)1 << 20) /* idle memory that is never released */

TAILQ_HEAD(slab_list, rme_slab);

struct rme_zone {
    struct rme_zone_config config;
    pthread_mutex_t lock;              /* guards the fields below; a leaf in the lock order */
    size_t max_slab;                   /* reduced when a registration of that size is refused */
    struct slab_list partial[CLASSES]; /* some blocks free, some used, or the slab held */
    struct slab_list
        idle[IDLE_LISTS];    /* all blocks free; a list for each slab size, most recent first */
    struct slab_list full;   /* all blocks used, or a large slab that is held */
    struct rme_itree places; /* slabs by address */
    uint64_t held;           /* bytes counted against the limit: registered, or about to be */
    uint64_t cut[CLASSES + 1]; /* bytes of the slabs of each class, idle or not */
    uint64_t idle_bytes;       /* of registered idle slabs */
    uint64_t plain_idle;       /* of unregistered idle slabs */
    /* target of idle_bytes: keep_bytes, or less from a check until the next trim */
    uint64_t keep;
    uint64_t least_idle; /* the minimum of idle_bytes since the last check */
    uint64_t looked_at;  /* ms of rme_now(), of the last check */
    atomic_bool surplus; /* more is idle than is kept; also read without the lock */
};

/* ---- sizes ---- */

static int class_of(size_t size)
{
    int shift = MIN_SHIFT;

    while (shift <= MAX_SHIFT && (size_t)1 << shift < size)
        shift++;
    return shift - MIN_SHIFT;
}

static size_t class_block(int class)
{
    return (size_t)1 << (class + MIN_SHIFT);
}

/* Returns the size of the next slab of a class: as much as the class has already.  A process
 * that needs few blocks pins little, and one that needs many registers few slabs. */
static size_t slab_for_now(const struct rme_zone *zone, int class)
{
    size_t size = RME_SLAB_SMALLEST;

    while (size < MAX_SLAB && 2 * size <= zone->cut[class])
        size *= 2;
    return size < zone->max_slab ? size : zone->max_slab;
}

/* Sets class and sizes of a new slab for a request.  False: larger than any address space. */
static bool shape_for(const struct rme_zone *zone, size_t size, struct rme_slab *shape)
{
    if (size > SIZE_MAX / 4)
        return false;
    shape->class = size <= zone->max_slab ? class_of(size) : LARGE;
    if (shape->class == LARGE) {
        shape->block = shape->size = rme_slab_mapped(size);
        shape->all = 1;
        return true;
    }
    size_t most = slab_for_now(zone, shape->class);
    shape->block = class_block(shape->class);
    shape->size = BLOCKS * shape->block < most ? BLOCKS * shape->block
                  : shape->block < most        ? most
                                               : shape->block;
    shape->all = UINT64_MAX >> (BLOCKS - shape->size / shape->block);
    return true;
}

static bool is_idle(const struct rme_slab *slab)
{
    return slab->free == slab->all && slab->holds == 0;
}

static struct slab_list *idle_list(struct rme_zone *zone, const struct rme_slab *shape)
{
    return &zone->idle[shape->class == LARGE ? IDLE_LARGE
                                             : class_of(rme_slab_mapped(shape->size)) -
                                                   class_of(RME_SLAB_SMALLEST)];
}

/* Returns the list that a slab with its free blocks belongs to. */
static struct slab_list *list_of(struct rme_zone *zone, const struct rme_slab *slab)
{
    if (is_idle(slab))
        return idle_list(zone, slab);
    return slab->free == 0 || slab->class == LARGE ? &zone->full : &zone->partial[slab->class];
}

/* Updates `surplus`. */
static void judge_idle(struct rme_zone *zone)
{
    bool surplus = zone->idle_bytes > zone->keep || zone->plain_idle > 0;

    atomic_store(&zone->surplus, surplus);
    if (surplus)
        atomic_store(&zone->config.pin->chores, true);
}

/* Counts a slab that became idle (its size) or was reused (minus its size). */
static void count_idle(struct rme_zone *zone, const struct rme_slab *slab, uint64_t change)
{
    *(slab->registered ? &zone->idle_bytes : &zone->plain_idle) += change;
    if (zone->idle_bytes < zone->least_idle)
        zone->least_idle = zone->idle_bytes;
    judge_idle(zone);
}

/* Inserts a slab into its list, registered ones at the front, so that they are used first. */
static void enlist(struct rme_zone *zone, struct rme_slab *slab)
{
    if (slab->registered)
        TAILQ_INSERT_HEAD(list_of(zone, slab), slab, link);
    else
        TAILQ_INSERT_TAIL(list_of(zone, slab), slab, link);
    if (is_idle(slab))
        count_idle(zone, slab, slab->size);
}

static void delist(struct rme_zone *zone, struct rme_slab *slab)
{
    TAILQ_REMOVE(list_of(zone, slab), slab, link);
    if (is_idle(slab))
        count_idle(zone, slab, -(uint64_t)slab->size);
}

static void *take_block(struct rme_zone *zone, struct rme_slab *slab)
{
    void *block;

    delist(zone, slab);
    block = rme_slab_take(slab);
    enlist(zone, slab);
    atomic_fetch_add(&zone->config.pin->zone_allocs, 1);
    return block;
}

/* Returns the first slab of a list; with `registered` only if it is registered. */
static struct rme_slab *head_of(struct slab_list *list, bool registered)
{
    struct rme_slab *slab = TAILQ_FIRST(list);

    return slab != NULL && (slab->registered || !registered) ? slab : NULL;
}

/* Finds an idle mapping for a large request: large enough, and at most twice as large. */
static struct rme_slab *idle_large(struct rme_zone *zone, size_t size)
{
    struct rme_slab *slab;

    TAILQ_FOREACH(slab, &zone->idle[IDLE_LARGE], link)
        if (slab->registered && slab->size >= size && slab->size / 2 <= size)
            return slab;
    return NULL;
}

/* Finds an idle slab that can be cut for `shape`, preferably of the same size. */
static struct rme_slab *idle_for(struct rme_zone *zone, const struct rme_slab *shape,
                                 bool registered)
{
    struct rme_slab *slab = head_of(idle_list(zone, shape), registered);

    for (int i = 0; i < IDLE_LARGE && (slab == NULL || slab->size < shape->block); i++)
        slab = head_of(&zone->idle[i], registered);
    return slab != NULL && slab->size >= shape->block ? slab : NULL;
}

/* Cuts an idle slab again, for the class of `shape`. */
static void recut(struct rme_zone *zone, struct rme_slab *slab, const struct rme_slab *shape)
{
    size_t blocks = slab->size / shape->block;

    delist(zone, slab);
    zone->cut[slab->class] -= slab->size;
    zone->cut[shape->class] += slab->size;
    slab->class = shape->class;
    slab->block = shape->block;
    slab->free = slab->all = UINT64_MAX >> (BLOCKS - (blocks < BLOCKS ? blocks : BLOCKS));
    enlist(zone, slab);
}

/* Takes a block of the request's class, or of an idle slab.  The lock is held. */
static void *take_existing(struct rme_zone *zone, const struct rme_slab *shape, bool registered)
{
    struct rme_slab *slab;

    if (shape->class == LARGE) {
        slab = idle_large(zone, shape->size);
        return slab != NULL ? take_block(zone, slab) : NULL;
    }
    slab = head_of(&zone->partial[shape->class], registered);
    if (slab == NULL) {
        slab = idle_for(zone, shape, registered);
        if (slab == NULL)
            return NULL;
        recut(zone, slab, shape);
    }
    return take_block(zone, slab);
}

/* Takes a registered block of a larger class [000 5.2], or of a larger slab.  The lock is
 * held. */
static void *take_bigger(struct rme_zone *zone, const struct rme_slab *shape)
{
    if (shape->class == LARGE)
        return NULL;
    for (int class = shape->class + 1; class < CLASSES; class ++) {
        struct rme_slab *slab = head_of(&zone->partial[class], true);

        if (slab != NULL)
            return take_block(zone, slab);
    }
    for (int i = 0; i < IDLE_LARGE; i++) {
        struct rme_slab *slab = head_of(&zone->idle[i], true);

        if (slab != NULL && slab->size >= shape->size) {
            recut(zone, slab, shape);
            return take_block(zone, slab);
        }
    }
    return NULL;
}

/*
 * Releases one idle slab to the system: a plain one, or a registered one if more than `keep`
 * bytes of those are idle, large ones first.  The lock is held, and dropped meanwhile.  False:
 * none was found.
 */
static bool give_back(struct rme_zone *zone, uint64_t keep)
{
    for (int i = IDLE_LISTS - 1; i >= 0; i--) {
        struct rme_slab *slab = TAILQ_LAST(&zone->idle[i], slab_list);
        uint64_t bytes;

        if (slab == NULL || (slab->registered && zone->idle_bytes <= keep))
            continue;
        delist(zone, slab);
        zone->cut[slab->class] -= slab->size;
        rme_itree_remove(&zone->places, &slab->place);
        bytes = slab->registered ? slab->size : 0;
        pthread_mutex_unlock(&zone->lock);
        rme_slab_free(&zone->config, slab);
        pthread_mutex_lock(&zone->lock);
        zone->held -= bytes;
        return true;
    }
    return false;
}

/* Maps a new slab and takes its first block.  The lock is held, and dropped meanwhile. */
static void *take_new(struct rme_zone *zone, const struct rme_slab *shape,
                      enum rme_slab_effort effort)
{
    struct rme_slab *slab;

    if (effort != RME_SLAB_PLAIN)
        zone->held += shape->size;
    pthread_mutex_unlock(&zone->lock);
    slab = rme_slab_new(&zone->config, shape, effort);
    pthread_mutex_lock(&zone->lock);

    if (effort != RME_SLAB_PLAIN && (slab == NULL || !slab->registered))
        zone->held -= shape->size;
    if (slab == NULL)
        return NULL;
    rme_itree_insert(&zone->places, &slab->place);
    zone->cut[slab->class] += slab->size;
    enlist(zone, slab);
    return take_block(zone, slab);
}

/*
 * Takes a block of a new registered slab.  A refused slab may exceed a limit that
 * rme_pin_budget() does not know: half its size is tried, down to the usual minimum, or to the
 * smallest slab if nothing is registered yet.  The lock is held, and dropped meanwhile.
 */
static void *take_new_registered(struct rme_zone *zone, size_t size, struct rme_slab *shape)
{
    size_t smallest = zone->held > 0 ? RME_SLAB_SMALLEST : MIN_SLAB;

    while (shape->class != LARGE && shape->size > smallest) {
        void *block = take_new(zone, shape, RME_SLAB_QUIET);

        if (block != NULL)
            return block;
        if (zone->max_slab >= shape->size)
            zone->max_slab = shape->size / 2;
        (void)shape_for(zone, size, shape);
    }
    return take_new(zone, shape, RME_SLAB_LAST);
}

/* ---- the interface ---- */

int rme_zone_new(const struct rme_zone_config *config, struct rme_zone **out)
{
    struct rme_zone *zone = calloc(1, sizeof(*zone));

    if (zone == NULL)
        return -ENOMEM;
    zone->config = *config;
    if (config->max_bytes == UINT64_MAX)
        zone->config.max_bytes = rme_pin_budget() / 2;
    zone->keep = config->keep_bytes;
    zone->max_slab = MAX_SLAB;
    while (zone->max_slab > RME_SLAB_SMALLEST &&
           zone->max_slab > zone->config.max_bytes / SLAB_SHARE)
        zone->max_slab /= 2;
    while (zone->max_slab > MIN_SLAB && zone->max_slab > zone->config.max_bytes / 2)
        zone->max_slab /= 2;
    pthread_mutex_init(&zone->lock, NULL);
    for (int class = 0; class < CLASSES; class ++)
        TAILQ_INIT(&zone->partial[class]);
    for (int i = 0; i < IDLE_LISTS; i++)
        TAILQ_INIT(&zone->idle[i]);
    TAILQ_INIT(&zone->full);
    *out = zone;
    return 0;
}

static void destroy_list(struct rme_zone *zone, struct slab_list *list)
{
    struct rme_slab *slab;

    while ((slab = TAILQ_FIRST(list)) != NULL) {
        TAILQ_REMOVE(list, slab, link);
        rme_slab_free(&zone->config, slab);
    }
}

void rme_zone_free(struct rme_zone *zone)
{
    if (zone == NULL)
        return;
    for (int class = 0; class < CLASSES; class ++)
        destroy_list(zone, &zone->partial[class]);
    for (int i = 0; i < IDLE_LISTS; i++)
        destroy_list(zone, &zone->idle[i]);
    destroy_list(zone, &zone->full);
    pthread_mutex_destroy(&zone->lock);
    free(zone);
}

static bool fits(const struct rme_zone *zone, size_t size)
{
    return size <= zone->config.max_bytes && zone->held <= zone->config.max_bytes - size;
}

/* Allocates a block for which a slab may have to be mapped.  The lock is held, and dropped
 * meanwhile. */
static void *make_room(struct rme_zone *zone, size_t size, struct rme_slab *shape)
{
    void *block = NULL;

    while (!fits(zone, shape->size) && give_back(zone, 0))
        ;
    if (fits(zone, shape->size))
        block = take_new_registered(zone, size, shape);
    if (block == NULL)
        block = take_existing(zone, shape, false);
    return block != NULL ? block : take_new(zone, shape, RME_SLAB_PLAIN);
}

/* Allocates a block; without `grow` from existing slabs only. */
static void *alloc(struct rme_zone *zone, size_t size, bool grow)
{
    struct rme_slab shape = {0};
    void *block = NULL;

    pthread_mutex_lock(&zone->lock);
    if (shape_for(zone, size, &shape)) {
        block = take_existing(zone, &shape, true);
        if (block == NULL && !(grow && fits(zone, shape.size)))
            block = take_bigger(zone, &shape);
        if (block == NULL && grow)
            block = make_room(zone, size, &shape);
    }
    pthread_mutex_unlock(&zone->lock);
    return block;
}

void *rme_zone_alloc(struct rme_zone *zone, size_t size)
{
    return alloc(zone, size, true);
}

void *rme_zone_try(struct rme_zone *zone, size_t size)
{
    return alloc(zone, size, false);
}

/* Returns the slab whose mapping has the address, or NULL.  The lock is held. */
static struct rme_slab *slab_at(const struct rme_zone *zone, const void *start)
{
    uintptr_t at = (uintptr_t)start;
    struct rme_inode *node = rme_itree_overlap(&zone->places, at, at + 1);

    return node != NULL ? container_of(node, struct rme_slab, place) : NULL;
}

/* Returns the slab that has the range in a used block, or NULL.  The lock is held. */
static struct rme_slab *slab_of(const struct rme_zone *zone, const void *start, size_t length)
{
    struct rme_slab *slab = slab_at(zone, start);

    return slab != NULL && rme_slab_in_use(slab, start, length) ? slab : NULL;
}

int rme_zone_put(struct rme_zone *zone, void *block)
{
    struct rme_slab *slab;
    int ret = -EINVAL;

    pthread_mutex_lock(&zone->lock);
    slab = slab_of(zone, block, 0);
    if (slab != NULL && (size_t)((char *)block - slab->base) % slab->block == 0) {
        delist(zone, slab);
        rme_slab_put(slab, block);
        enlist(zone, slab);
        ret = 0;
    }
    pthread_mutex_unlock(&zone->lock);
    return ret;
}

bool rme_zone_wants_trim(const struct rme_zone *zone)
{
    return atomic_load_explicit(&zone->surplus, memory_order_relaxed);
}

void rme_zone_trim(struct rme_zone *zone)
{
    pthread_mutex_lock(&zone->lock);
    while (give_back(zone, zone->keep))
        ;
    zone->keep = zone->config.keep_bytes;
    judge_idle(zone);
    pthread_mutex_unlock(&zone->lock);
}

uint64_t rme_zone_look(struct rme_zone *zone, uint64_t now)
{
    uint64_t unused, next = UINT64_MAX;

    if (zone->config.idle_ms == 0)
        return next;
    pthread_mutex_lock(&zone->lock);
    if (now - zone->looked_at >= zone->config.idle_ms) {
        unused = zone->least_idle > REST_BYTES ? zone->least_idle - REST_BYTES : 0;
        if (unused > 0 && zone->idle_bytes - unused < zone->keep)
            zone->keep = zone->idle_bytes - unused;
        zone->least_idle = zone->idle_bytes;
        zone->looked_at = now;
        judge_idle(zone);
    }
    /* otherwise everything that may be released is being released */
    if (zone->idle_bytes > REST_BYTES && zone->keep > REST_BYTES)
        next = zone->looked_at + zone->config.idle_ms;
    pthread_mutex_unlock(&zone->lock);
    return next;
}

int rme_zone_release(struct rme_zone *zone, void *block)
{
    int ret = rme_zone_put(zone, block);

    if (ret == 0)
        rme_zone_trim(zone);
    return ret;
}

int rme_zone_find(struct rme_zone *zone, const void *start, size_t length,
                  const struct rme_mr **mr)
{
    const struct rme_slab *slab;

    pthread_mutex_lock(&zone->lock);
    slab = slab_of(zone, start, length);
    pthread_mutex_unlock(&zone->lock);
    if (slab == NULL || !slab->registered)
        return -ENOENT;
    *mr = &slab->mr;
    return 0;
}

/* Lets peers read a slab of which the caller has a block.  No lock held. */
static int make_readable(struct rme_zone *zone, struct rme_slab *slab)
{
    struct rme_pin *pin = zone->config.pin;
    struct rme_mr mr;
    bool late;

    if (rme_pin_try(pin, slab->base, slab->size, RME_ACCESS_REMOTE_READ, &mr) != 0)
        return -ENOMEM;
    pthread_mutex_lock(&zone->lock);
    late = slab->readable;
    if (!late) {
        slab->to_read = mr;
        slab->readable = true;
    }
    pthread_mutex_unlock(&zone->lock);
    if (late) /* another thread has made it */
        rme_pin_dereg(pin, &mr);
    return 0;
}

int rme_zone_show(struct rme_zone *zone, const void *start, size_t length, unsigned access,
                  bool now, const struct rme_mr **mr)
{
    struct rme_slab *slab;
    bool ready;

    if (rme_pin_alone(zone->config.pin, access))
        return -EPERM;
    if ((access & RME_ACCESS_REMOTE_READ) == 0 || !zone->config.pin->keys_open)
        return rme_zone_find(zone, start, length, mr);
    pthread_mutex_lock(&zone->lock);
    slab = slab_of(zone, start, length);
    ready = slab != NULL && slab->readable;
    pthread_mutex_unlock(&zone->lock);
    if (slab == NULL || !slab->registered)
        return -ENOENT;
    if (!ready && !now)
        return -EAGAIN;
    if (!ready && make_readable(zone, slab) != 0)
        return -ENOMEM;
    *mr = &slab->to_read;
    return 0;
}

bool rme_zone_owns(struct rme_zone *zone, const void *start, size_t length)
{
    bool owns;

    pthread_mutex_lock(&zone->lock);
    owns = slab_of(zone, start, length) != NULL;
    pthread_mutex_unlock(&zone->lock);
    return owns;
}

bool rme_zone_hold(struct rme_zone *zone, const void *start, size_t length)
{
    struct rme_slab *slab;

    pthread_mutex_lock(&zone->lock);
    slab = slab_of(zone, start, length);
    if (slab != NULL)
        slab->holds++;
    pthread_mutex_unlock(&zone->lock);
    return slab != NULL;
}

void rme_zone_drop(struct rme_zone *zone, const void *start)
{
    struct rme_slab *slab;

    pthread_mutex_lock(&zone->lock);
    slab = slab_at(zone, start);
    delist(zone, slab);
    slab->holds--;
    enlist(zone, slab);
    pthread_mutex_unlock(&zone->lock);
}
