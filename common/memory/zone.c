/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Normal path.  A slab is a mapping with one registration, cut into 1 to 64 blocks of one size;
 * a bit for each block says whether it is free.  Slabs with free blocks wait in the list of
 * their class, registered ones in front; a slab without blocks in use that no transfer holds is
 * idle and can serve any class of its slab size.  Large requests are slabs of one block.
 * Allocation looks at list heads only: it takes constant time.  Release finds the slab in a
 * tree of their addresses.
 *
 * Growing.  The lock is dropped while a slab is mapped and registered, because both can take
 * long.  The bytes are counted against the bound before that, so threads that grow at the same
 * time stay below it together.
 *
 * Giving back.  Idle memory beyond keep_bytes goes at once, and what nobody needed for idle_ms
 * goes as well: that is the least that was idle at any moment between two looks.  A little
 * stays registered all the same (REST_BYTES), for a process that does something now and then.
 *
 * What peers are shown.  Where the key of a registration opens all of it (no windows), a slab
 * has one for each direction: its own, to be written, and one more, to be read, when a block of
 * it is to be read for the first time.  The bound counts memory, not registrations.  Where each
 * operation registers for itself, slabs have local rights only.
 *
 * Failure.  When the system refuses to register a slab, a smaller one is tried.  When the bound
 * is reached, a block of a bigger class is taken if there is one.  Else the slab stays plain
 * memory, and rme_zone_find says so.  Plain slabs go back to the system as soon as they are
 * idle, so that the next attempt can register again.
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
#define LARGE     CLASSES /* the class number of slabs with one block of any size */
#define BLOCKS    64      /* at most, in one slab: bits of `free` */
#define MAX_SLAB  ((size_t)4 << 20)
/* only where little may be locked; maps RME_SLAB_SMALLEST all the same */
#define MIN_SLAB   ((size_t)8 << 10)
#define SLAB_SHARE 16 /* a slab is at most this fraction of the bound */
#define IDLE_LARGE 5  /* idle lists: slabs of 256 KiB to 4 MiB, then large ones */
#define IDLE_LISTS (IDLE_LARGE + 1)
#define REST_BYTES ((size_t)1 << 20) /* idle memory that stays, however long nobody needs it */

TAILQ_HEAD(slab_list, rme_slab);

struct rme_zone {
    struct rme_zone_config config;
    pthread_mutex_t lock; /* guards the rest; a leaf in the lock order */
    size_t max_slab;      /* becomes smaller when the system refuses to register that much */
    struct slab_list partial[CLASSES]; /* some blocks free, some in use, or the slab held */
    struct slab_list
        idle[IDLE_LISTS];    /* all blocks free; a list for each slab size, most recent first */
    struct slab_list full;   /* all blocks in use, or a large slab that is held */
    struct rme_itree places; /* where the slabs are */
    uint64_t held;           /* bytes counted against the bound: registered or about to be */
    uint64_t cut[CLASSES + 1]; /* bytes of the slabs that are cut for a class, idle or not */
    uint64_t idle_bytes;       /* of registered idle slabs */
    uint64_t plain_idle;       /* of idle slabs that are not registered */
    /* of idle_bytes: keep_bytes, or less from a look until the next trim */
    uint64_t keep;
    uint64_t least_idle; /* idle_bytes, or what it was at the least since the last look */
    uint64_t looked_at;  /* ms of rme_now() */
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

/*
 * The largest slab of a class for now: as much as the class has already, so that a process that
 * needs few blocks pins little, and one that needs many registers few slabs.
 */
static size_t slab_for_now(const struct rme_zone *zone, int class)
{
    size_t size = RME_SLAB_SMALLEST;

    while (size < MAX_SLAB && 2 * size <= zone->cut[class])
        size *= 2;
    return size < zone->max_slab ? size : zone->max_slab;
}

/* Class and sizes of a fresh slab for a request.  False: larger than any address space. */
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

/* The list in which a slab belongs by its free blocks. */
static struct slab_list *list_of(struct rme_zone *zone, const struct rme_slab *slab)
{
    if (is_idle(slab))
        return idle_list(zone, slab);
    return slab->free == 0 || slab->class == LARGE ? &zone->full : &zone->partial[slab->class];
}

/* Is there anything to give back? */
static void judge_idle(struct rme_zone *zone)
{
    atomic_store_explicit(&zone->surplus, zone->idle_bytes > zone->keep || zone->plain_idle > 0,
                          memory_order_relaxed);
}

/* An idle slab came (its size) or went (minus its size). */
static void count_idle(struct rme_zone *zone, const struct rme_slab *slab, uint64_t change)
{
    *(slab->registered ? &zone->idle_bytes : &zone->plain_idle) += change;
    if (zone->idle_bytes < zone->least_idle)
        zone->least_idle = zone->idle_bytes;
    judge_idle(zone);
}

/* Registered slabs go to the front, so that they are used first. */
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

/* The first slab of a list if it may serve; registered ones come first. */
static struct rme_slab *head_of(struct slab_list *list, bool registered)
{
    struct rme_slab *slab = TAILQ_FIRST(list);

    return slab != NULL && (slab->registered || !registered) ? slab : NULL;
}

/* An idle mapping that is large enough for a large request and not more than twice as large. */
static struct rme_slab *idle_large(struct rme_zone *zone, size_t size)
{
    struct rme_slab *slab;

    TAILQ_FOREACH(slab, &zone->idle[IDLE_LARGE], link)
        if (slab->registered && slab->size >= size && slab->size / 2 <= size)
            return slab;
    return NULL;
}

/* An idle slab that can be cut for `shape`: of its size if there is one. */
static struct rme_slab *idle_for(struct rme_zone *zone, const struct rme_slab *shape,
                                 bool registered)
{
    struct rme_slab *slab = head_of(idle_list(zone, shape), registered);

    for (int i = 0; i < IDLE_LARGE && (slab == NULL || slab->size < shape->block); i++)
        slab = head_of(&zone->idle[i], registered);
    return slab != NULL && slab->size >= shape->block ? slab : NULL;
}

/* Cuts an idle slab anew, for the class of `shape`. */
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

/* A block from what is there: of the request's own class, or of a slab that is idle.  Lock
 * held. */
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

/* A registered block of a bigger class [000 5.2], or from a bigger slab.  Lock held. */
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
 * Gives one idle slab back to the system: a plain one, or a registered one when more than
 * `keep` bytes of them are idle, large ones first.  Lock held; dropped on the way.  False:
 * there was none.
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

/* Maps a new slab and takes its first block.  Lock held; dropped on the way. */
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
 * A block of a new registered slab.  A slab that the system refuses may be too large for what
 * is left of a limit that rme_pin_budget() does not know of: it is tried with half, down to the
 * usual smallest, or to the very smallest when nothing is registered yet.  Lock held; dropped
 * on the way.
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

/* A block for which something may have to be mapped.  Lock held; dropped on the way. */
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

/* `grow`: what is there need not do. */
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

/* The slab in whose mapping an address is, NULL if none.  Lock held. */
static struct rme_slab *slab_at(const struct rme_zone *zone, const void *start)
{
    uintptr_t at = (uintptr_t)start;
    struct rme_inode *node = rme_itree_overlap(&zone->places, at, at + 1);

    return node != NULL ? rme_entry(node, struct rme_slab, place) : NULL;
}

/* The slab in whose block in use the range lies, NULL if none.  Lock held. */
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
    /* else all that may go is on its way */
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

/* Lets peers read a slab, one of whose blocks the caller has.  No lock held. */
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
    if (late) /* another thread has done it */
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
