/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory: SDRAM of the network interface, allocators of SDRAM and main memory, Elan addresses
 * of all memory. Both kinds are allocated from the segment. The allocators' records are in
 * private memory, because other processes can write to the segment.
 */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct span {
    struct span *next;
    uint64_t off, len;
};

#define BUCKETS 1024u
struct heap {
    uint64_t base, len;          /* range of the arena */
    struct span *free;           /* sorted by address */
    struct span *taken[BUCKETS]; /* hashed by address */
};

struct elan4_sdram {
    uint64_t off, size;
};

struct elan4_alloc {
    pthread_mutex_t lock;
    struct heap main, elan;
};

/* One byte per page of the arena: whether the page is SDRAM. */
static struct {
    pthread_mutex_t lock;
    uint8_t *page;
} kinds = {.lock = PTHREAD_MUTEX_INITIALIZER};

void emu4_memory_forked(void)
{
    pthread_mutex_init(&kinds.lock, NULL);
    free(kinds.page);
    kinds.page = NULL;
}

static bool mark_pages(struct emu4_proc *p, uint64_t off, uint64_t len, uint8_t kind)
{
    pthread_mutex_lock(&kinds.lock);
    if (kinds.page == NULL)
        __atomic_store_n(&kinds.page, calloc(p->self.arena_len / 4096 + 1, 1),
                         __ATOMIC_RELEASE);
    for (uint64_t i = off / 4096; kinds.page != NULL && i < (off + len + 4095) / 4096; i++)
        __atomic_store_n(&kinds.page[i], kind, __ATOMIC_RELAXED);
    bool ok = kinds.page != NULL;
    pthread_mutex_unlock(&kinds.lock);
    return ok;
}

static bool is_sdram(uint64_t off)
{
    const uint8_t *page = __atomic_load_n(&kinds.page, __ATOMIC_ACQUIRE);

    return page != NULL && __atomic_load_n(&page[off / 4096], __ATOMIC_RELAXED);
}

EMU4_EXPORT ELAN4_SDRAM *elan4_open_sdram(int rail, E4_Addr base, size_t size)
{
    if (emu4_call(EMU4_CALL_elan4_open_sdram))
        return NULL;
    struct emu4_proc *p = emu4_proc();
    if (p == NULL)
        return NULL;
    if (rail != 0 || base != 0 || size == 0) {
        errno = rail ? ENODEV : EINVAL;
        return NULL;
    }
    size = (size + 4095) & ~(size_t)4095;
    pthread_mutex_lock(&p->lock);
    bool fits = size <= (p->knobs.sdram_mib << 20) - p->sdram_used;
    if (fits)
        p->sdram_used += size;
    pthread_mutex_unlock(&p->lock);
    struct elan4_sdram *s = fits ? calloc(1, sizeof(*s)) : NULL;
    int64_t off = s != NULL ? emu4_arena_take(p, size) : -1;
    if (off >= 0 && mark_pages(p, (uint64_t)off, size, 1)) {
        *s = (struct elan4_sdram){(uint64_t)off, size};
        return s;
    }
    if (off >= 0)
        emu4_arena_give(p, (uint64_t)off, size);
    if (fits) {
        pthread_mutex_lock(&p->lock);
        p->sdram_used -= size;
        pthread_mutex_unlock(&p->lock);
    }
    free(s);
    errno = ENOMEM;
    return NULL;
}

EMU4_EXPORT void elan4_close_sdram(ELAN4_SDRAM *sdram)
{
    struct emu4_proc *p = emu4_proc_peek();

    mark_pages(p, sdram->off, sdram->size, 0);
    emu4_arena_give(p, sdram->off, sdram->size);
    pthread_mutex_lock(&p->lock);
    p->sdram_used -= sdram->size;
    pthread_mutex_unlock(&p->lock);
    free(sdram);
}

static bool heap_init(struct heap *h, uint64_t base, uint64_t len)
{
    h->base = base;
    h->len = len;
    if (!len)
        return true;
    h->free = calloc(1, sizeof(*h->free));
    if (h->free != NULL)
        *h->free = (struct span){NULL, base, len};
    return h->free != NULL;
}

static void heap_fini(struct heap *h)
{
    for (struct span *s; (s = h->free) != NULL; free(s))
        h->free = s->next;
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct span *s; (s = h->taken[i]) != NULL; free(s))
            h->taken[i] = s->next;
}

static struct span **bucket(struct heap *h, uint64_t off)
{
    return &h->taken[(off >> 5 ^ off >> 15) % BUCKETS];
}

/* Allocates first-fit. The part of the span skipped for alignment stays free. Returns -1 if no
 * span fits. */
static int64_t heap_take(struct heap *h, uint64_t align, uint64_t len)
{
    for (struct span **at = &h->free; *at; at = &(*at)->next) {
        struct span *s = *at;
        uint64_t off = (s->off + align - 1) & ~(align - 1);
        if (off - s->off > s->len || s->len - (off - s->off) < len)
            continue;
        struct span *taken = calloc(1, sizeof(*taken));
        struct span *rest = calloc(1, sizeof(*rest));
        if (taken == NULL || rest == NULL) {
            free(taken);
            free(rest);
            return -1;
        }
        *rest = (struct span){s->next, off + len, s->off + s->len - off - len};
        s->len = off - s->off;
        if (rest->len)
            s->next = rest;
        else
            free(rest);
        if (!s->len) {
            *at = s->next;
            free(s);
        }
        struct span **b = bucket(h, off);
        *taken = (struct span){*b, off, len};
        *b = taken;
        return (int64_t)off;
    }
    return -1;
}

/* Frees; false if nothing was allocated at `off`. */
static bool heap_give(struct heap *h, uint64_t off)
{
    struct span **b = bucket(h, off), *s;

    while (*b != NULL && (*b)->off != off)
        b = &(*b)->next;
    if ((s = *b) == NULL)
        return false;
    *b = s->next;
    struct span **at = &h->free, *before = NULL;
    while (*at != NULL && (*at)->off < off) {
        before = *at;
        at = &(*at)->next;
    }
    s->next = *at;
    *at = s;
    if (s->next != NULL && s->off + s->len == s->next->off) {
        struct span *n = s->next;
        s->len += n->len;
        s->next = n->next;
        free(n);
    }
    if (before != NULL && before->off + before->len == s->off) {
        before->len += s->len;
        before->next = s->next;
        free(s);
    }
    return true;
}

EMU4_EXPORT ELAN4_ALLOC *elan4_createAllocator(size_t mainSize, ELAN4_SDRAM *sdram,
                                               E4_Addr base, size_t elanSize)
{
    if (emu4_call(EMU4_CALL_elan4_createAllocator))
        return NULL;
    struct emu4_proc *p = emu4_proc();
    if (p == NULL)
        return NULL;
    if (sdram != NULL ? base > sdram->size || elanSize > sdram->size - base : elanSize != 0) {
        errno = EINVAL;
        return NULL;
    }
    mainSize = (mainSize + 4095) & ~(size_t)4095;
    struct elan4_alloc *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return NULL;
    int64_t off = mainSize ? emu4_arena_take(p, mainSize) : 0;
    if (off < 0)
        goto err;
    pthread_mutex_init(&a->lock, NULL);
    if (heap_init(&a->main, (uint64_t)off, mainSize) &&
        heap_init(&a->elan, sdram != NULL ? sdram->off + base : 0, elanSize))
        return a;
    heap_fini(&a->main);
    if (mainSize)
        emu4_arena_give(p, (uint64_t)off, mainSize);
err:
    free(a);
    errno = ENOMEM;
    return NULL;
}

EMU4_EXPORT void elan4_destroyAllocator(ELAN4_ALLOC *alloc)
{
    struct emu4_proc *p = emu4_proc_peek();

    if (alloc->main.len)
        emu4_arena_give(p, alloc->main.base, alloc->main.len);
    heap_fini(&alloc->main);
    heap_fini(&alloc->elan);
    pthread_mutex_destroy(&alloc->lock);
    free(alloc);
}

static void *take(ELAN4_ALLOC *alloc, struct heap *h, size_t align, size_t size)
{
    if (align < 8)
        align = 8;
    if ((align & (align - 1)) || size == 0 || size > h->len) {
        errno = size > h->len ? ENOMEM : EINVAL;
        return NULL;
    }
    pthread_mutex_lock(&alloc->lock);
    int64_t off = heap_take(h, align, (size + 7) & ~(size_t)7);
    pthread_mutex_unlock(&alloc->lock);
    if (off < 0) {
        errno = ENOMEM;
        return NULL;
    }
    return emu4_proc_peek()->arena + off;
}

static void give(ELAN4_ALLOC *alloc, struct heap *h, void *ptr)
{
    if (ptr == NULL)
        return;
    pthread_mutex_lock(&alloc->lock);
    bool known = heap_give(h, (uint64_t)((char *)ptr - emu4_proc_peek()->arena));
    pthread_mutex_unlock(&alloc->lock);
    if (!known)
        emu4_print("%p: freed, but not allocated by this allocator", ptr);
}

EMU4_EXPORT void *elan4_allocMain(ELAN4_ALLOC *alloc, size_t align, size_t size)
{
    return emu4_call(EMU4_CALL_elan4_allocMain) ? NULL : take(alloc, &alloc->main, align, size);
}

EMU4_EXPORT void elan4_freeMain(ELAN4_ALLOC *alloc, void *ptr)
{
    give(alloc, &alloc->main, ptr);
}

EMU4_EXPORT void *elan4_allocElan(ELAN4_ALLOC *alloc, size_t align, size_t size)
{
    return emu4_call(EMU4_CALL_elan4_allocElan) ? NULL : take(alloc, &alloc->elan, align, size);
}

EMU4_EXPORT void elan4_freeElan(ELAN4_ALLOC *alloc, void *ptr)
{
    give(alloc, &alloc->elan, ptr);
}

EMU4_EXPORT E4_Addr elan4_main2elan(ELAN4_CTX *ctx, const volatile void *ptr)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    const struct emu4_peer *self = x->end.peer;
    uint64_t va = (uint64_t)(uintptr_t)ptr, tag = x->end.c->tag & 0xfff;
    uint64_t port = va - (uint64_t)(uintptr_t)x->ports;

    if (!x->standard || ptr == NULL || va >> 47)
        return ELAN_BAD_ADDR;
    if (va - self->arena_va < self->arena_len) {
        if (is_sdram(va - self->arena_va))
            return ADDR(REGION_SDRAM, tag, va - self->arena_va);
        return ADDR(REGION_MAIN, tag, va);
    }
    if (port < (uint64_t)EMU4_CQS * PORT_BYTES)
        return x->end.c->cq[port / PORT_BYTES].in_use ? ADDR(REGION_PORT, tag, port)
                                                      : ELAN_BAD_ADDR;
    return ADDR(REGION_MAIN, tag, va);
}
