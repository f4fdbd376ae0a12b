/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * refs.c - the address table.
 *
 * A BMI_addr_t has a slot number plus one in the low 32 bits and the slot's generation above.
 * One atomic word per slot holds its state:
 *
 *     bits 63...33  generation      bit 32  alive      bits 31...0  pins
 *
 * A pin adds one to the word if the generation matches and the slot is alive, by
 * compare-and-swap without a lock.  A drop clears the alive bit.  Exactly one thread then
 * removes the last pin; this thread calls the method (BMI_DROP_ADDR) and puts the slot, with
 * the next generation, on the free list.
 *
 * Slots are in chunks that double in size and do not move; a chunk pointer is set once, before
 * any of its numbers is used.  The lock protects everything else: names, counts, the free list,
 * the queue of forgotten addresses.
 */
#include <stdlib.h>
#include <string.h>
#include "common/base/hash.h"
#include "refs.h"

#define FIRST_CHUNK      64u
#define PIN_MASK         UINT64_C(0xffffffff)
#define ALIVE            (UINT64_C(1) << 32)
#define GENERATION_SHIFT 33
#define GENERATION_MASK  UINT32_C(0x7fffffff)

static struct bmi_ref *slot_at(struct bmi_refs *refs, uint32_t index)
{
    uint32_t scaled = index / FIRST_CHUNK + 1;
    int k = 31 - __builtin_clz(scaled);
    if (k >= BMI_REF_CHUNKS)
        return NULL;
    struct bmi_ref *chunk = atomic_load_explicit(&refs->chunk[k], memory_order_acquire);
    return chunk != NULL ? &chunk[index - FIRST_CHUNK * ((1u << k) - 1)] : NULL;
}

static bool pin(struct bmi_ref *ref, uint64_t generation)
{
    uint64_t word = atomic_load_explicit(&ref->word, memory_order_relaxed);
    do {
        if (word >> GENERATION_SHIFT != generation || !(word & ALIVE))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(
        &ref->word, &word, word + 1, memory_order_acquire, memory_order_relaxed));
    return true;
}

static struct bmi_ref **chain_of(struct bmi_refs *refs, const char *name)
{
    return &refs->named[rme_hash(RME_HASH_NONE, name, strlen(name)) % BMI_REF_CHAINS];
}

/* Finds a living address by name and pins it; the lock is held. */
static struct bmi_ref *pin_name_locked(struct bmi_refs *refs, const char *name)
{
    for (struct bmi_ref *r = *chain_of(refs, name); r != NULL; r = r->next)
        if (strcmp(r->name, name) == 0 && pin(r, (uint64_t)r->id >> 32))
            return r;
    return NULL;
}

static void unlink_name(struct bmi_refs *refs, struct bmi_ref *ref)
{
    struct bmi_ref **at = chain_of(refs, ref->name);
    while (*at != ref)
        at = &(*at)->next;
    *at = ref->next;
}

/* Returns a dead slot, from the free list or a new one; the lock is held. */
static struct bmi_ref *take_slot(struct bmi_refs *refs)
{
    struct bmi_ref *ref = refs->unused;
    if (ref != NULL) {
        refs->unused = ref->next;
        return ref;
    }
    uint32_t index = refs->used;
    int k = 31 - __builtin_clz(index / FIRST_CHUNK + 1);
    if (k >= BMI_REF_CHUNKS)
        return NULL;
    if (atomic_load_explicit(&refs->chunk[k], memory_order_relaxed) == NULL) {
        struct bmi_ref *chunk = calloc((size_t)FIRST_CHUNK << k, sizeof(*chunk));
        if (chunk == NULL)
            return NULL;
        atomic_store_explicit(&refs->chunk[k], chunk, memory_order_release);
    }
    refs->used++;
    ref = slot_at(refs, index);
    ref->id = (BMI_addr_t)((uint64_t)refs->generation << 32 | (index + 1));
    return ref;
}

/* Adds an address to the ring of `other`, another name of its method address, or NULL. */
static void link_same(struct bmi_ref *other, struct bmi_ref *ref)
{
    ref->same_prev = other != NULL ? other : ref;
    ref->same_next = other != NULL ? other->same_next : ref;
    ref->same_prev->same_next = ref->same_next->same_prev = ref;
}

struct bmi_ref *bmi_refs_add(struct bmi_refs *refs, struct bmi_method_ops *ops,
                             bmi_method_addr_p method_addr, const char *name, bool *found)
{
    struct bmi_ref *ref = NULL;
    char *copy = NULL;

    *found = false;
    if (name != NULL && (copy = strdup(name)) == NULL)
        return NULL;
    pthread_mutex_lock(&refs->lock);
    if (name != NULL && (ref = pin_name_locked(refs, name)) != NULL) {
        *found = true;
        goto out;
    }
    ref = take_slot(refs);
    if (ref == NULL)
        goto out;
    ref->ops = ops;
    ref->method_addr = method_addr;
    ref->name = copy;
    ref->count = 0;
    ref->forget = false;
    ref->next = NULL;
    if (name != NULL) {
        struct bmi_ref **head = chain_of(refs, name);
        ref->next = *head;
        *head = ref;
        copy = NULL;
    }
    link_same(method_addr->parent, ref);
    method_addr->parent = ref;
    uint64_t generation = (uint64_t)ref->id >> 32;
    atomic_store_explicit(&ref->word, generation << GENERATION_SHIFT | ALIVE | 1,
                          memory_order_release);
out:
    pthread_mutex_unlock(&refs->lock);
    free(copy);
    return ref;
}

struct bmi_ref *bmi_refs_pin(struct bmi_refs *refs, BMI_addr_t id)
{
    uint32_t number = (uint32_t)id;
    if (id <= 0 || number == 0)
        return NULL;
    struct bmi_ref *ref = slot_at(refs, number - 1);
    return ref != NULL && pin(ref, (uint64_t)id >> 32) ? ref : NULL;
}

struct bmi_ref *bmi_refs_pin_name(struct bmi_refs *refs, const char *name)
{
    pthread_mutex_lock(&refs->lock);
    struct bmi_ref *ref = pin_name_locked(refs, name);
    pthread_mutex_unlock(&refs->lock);
    return ref;
}

struct bmi_ref *bmi_refs_pin_method_addr(struct bmi_refs *refs, bmi_method_addr_p method_addr)
{
    pthread_mutex_lock(&refs->lock);
    struct bmi_ref *ref = method_addr->parent;
    if (ref != NULL && !pin(ref, (uint64_t)ref->id >> 32))
        ref = NULL;
    pthread_mutex_unlock(&refs->lock);
    return ref;
}

/*
 * Updates the parent of a method's address object, which may have several names.  When the
 * address that the object points to is dropped, another one replaces it.  The lock is held.
 */
static void hand_parent_over(struct bmi_ref *ref)
{
    struct bmi_ref *other = ref->same_next;

    while (other != ref && !(atomic_load(&other->word) & ALIVE))
        other = other->same_next;
    if (ref->method_addr->parent == ref)
        ref->method_addr->parent = other != ref ? other : NULL;
    ref->same_prev->same_next = ref->same_next;
    ref->same_next->same_prev = ref->same_prev;
}

/* Releases a dead address after its last unpin; no other thread can reach it. */
static void release(struct bmi_refs *refs, struct bmi_ref *ref)
{
    bmi_method_addr_p method_addr = ref->method_addr;
    char *name = ref->name;

    pthread_mutex_lock(&refs->lock);
    hand_parent_over(ref);
    if (name != NULL)
        unlink_name(refs, ref);
    ref->name = NULL;
    ref->method_addr = NULL;
    pthread_mutex_unlock(&refs->lock);

    ref->ops->set_info(BMI_DROP_ADDR, method_addr);
    free(name);

    pthread_mutex_lock(&refs->lock);
    uint64_t generation = ((uint64_t)ref->id >> 32) + 1;
    if (generation > GENERATION_MASK)
        generation = 1;
    ref->id = (BMI_addr_t)(generation << 32 | (uint32_t)ref->id);
    ref->next = refs->unused;
    refs->unused = ref;
    pthread_mutex_unlock(&refs->lock);
}

void bmi_refs_unpin(struct bmi_refs *refs, struct bmi_ref *ref)
{
    uint64_t word = atomic_fetch_sub_explicit(&ref->word, 1, memory_order_acq_rel);
    if (!(word & ALIVE) && (word & PIN_MASK) == 1)
        release(refs, ref);
}

int bmi_refs_count(struct bmi_refs *refs, struct bmi_ref *ref, int change)
{
    int count = -1;
    pthread_mutex_lock(&refs->lock);
    if (ref->count + change >= 0)
        count = ref->count += change;
    pthread_mutex_unlock(&refs->lock);
    return count;
}

void bmi_refs_kill_unused(struct bmi_refs *refs, struct bmi_ref *ref)
{
    pthread_mutex_lock(&refs->lock);
    if (ref->count == 0)
        atomic_fetch_and_explicit(&ref->word, ~ALIVE, memory_order_acq_rel);
    pthread_mutex_unlock(&refs->lock);
}

void bmi_refs_forget(struct bmi_refs *refs, struct bmi_ref *ref)
{
    pthread_mutex_lock(&refs->lock);
    if (!ref->forget && pin(ref, (uint64_t)ref->id >> 32)) {
        ref->forget = true;
        ref->next_forget = refs->forgotten;
        refs->forgotten = ref;
        atomic_fetch_add(&refs->forgotten_count, 1);
    }
    pthread_mutex_unlock(&refs->lock);
}

struct bmi_ref *bmi_refs_next_forgotten(struct bmi_refs *refs)
{
    if (atomic_load_explicit(&refs->forgotten_count, memory_order_relaxed) == 0)
        return NULL;
    pthread_mutex_lock(&refs->lock);
    struct bmi_ref *ref = refs->forgotten;
    if (ref != NULL) {
        refs->forgotten = ref->next_forget;
        ref->forget = false;
        atomic_fetch_sub(&refs->forgotten_count, 1);
    }
    pthread_mutex_unlock(&refs->lock);
    return ref;
}

void bmi_refs_clear(struct bmi_refs *refs)
{
    struct bmi_ref *ref;
    uint64_t newest = refs->generation;

    while ((ref = bmi_refs_next_forgotten(refs)) != NULL)
        bmi_refs_unpin(refs, ref);
    for (uint32_t i = 0; i < refs->used; i++) {
        ref = slot_at(refs, i);
        uint64_t generation = (uint64_t)ref->id >> 32;
        if (pin(ref, generation)) {
            atomic_fetch_and(&ref->word, ~ALIVE);
            bmi_refs_unpin(refs, ref);
        }
        if (ref->method_addr != NULL) /* pinned by a thread that did not survive a fork */
            ref->method_addr->parent = NULL;
        if (generation > newest)
            newest = generation;
    }
    for (int k = 0; k < BMI_REF_CHUNKS; k++)
        free(atomic_exchange(&refs->chunk[k], NULL));
    refs->used = 0;
    refs->unused = NULL;
    memset(refs->named, 0, sizeof(refs->named));
    refs->generation = (uint32_t)(newest + 1) & GENERATION_MASK;
    if (refs->generation == 0)
        refs->generation = 1;
}
