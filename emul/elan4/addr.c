/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Elan addresses and data movement between them.
 *
 * An Elan address consists of a kind of memory, a tag that names its context, and an offset.
 * The tag keeps an address of one context from being valid in another. Pointers of a program
 * have neither kind nor tag.
 *
 * Memory of an allocator lies in a mapped segment and is accessed directly. All other memory,
 * including that of this process, is accessed through the kernel: process_vm_writev reports
 * unmapped pages, where memcpy would end the program with a signal.
 */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

bool emu4_place(const struct emu4_end *e, E4_Addr a, uint64_t len, struct emu4_place *out)
{
    const struct emu4_peer *p = e->peer;
    uint64_t off = ADDR_OFFSET(a);
    unsigned region = ADDR_REGION(a);

    if (ADDR_TAG(a) != (e->c->tag & 0xfff))
        return false;
    if (region == REGION_SDRAM) {
        if (off > p->arena_len || len > p->arena_len - off)
            return false;
        *out = (struct emu4_place){.ptr = (char *)p->seg + p->arena_off + off, .pid = p->pid};
        return true;
    }
    if (region != REGION_MAIN)
        return false;
    *out = (struct emu4_place){.va = off, .pid = p->pid};
    if (off >= p->arena_va && off - p->arena_va <= p->arena_len &&
        len <= p->arena_len - (off - p->arena_va))
        out->ptr = (char *)p->seg + p->arena_off + (off - p->arena_va);
    return true;
}

static bool readable(int pid, uint64_t va)
{
    char byte;
    struct iovec l = {&byte, 1}, r = {(void *)(uintptr_t)va, 1};

    return process_vm_readv(pid, &l, 1, &r, 1, 0) == 1;
}

/* Repeats process_vm_readv or process_vm_writev until all bytes have moved; `local` belongs to
 * this process. */
static int move_vm(int pid, bool to, void *local, uint64_t remote, uint64_t len)
{
    while (len) {
        struct iovec l = {local, len}, r = {(void *)(uintptr_t)remote, len};
        ssize_t n = to ? process_vm_writev(pid, &l, 1, &r, 1, 0)
                       : process_vm_readv(pid, &l, 1, &r, 1, 0);
        if (n > 0) {
            local = (char *)local + n;
            remote += (uint64_t)n;
            len -= (uint64_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == ESRCH || errno == EPERM))
            return -ESRCH;
        return (int)(readable(getpid(), (uint64_t)(uintptr_t)local) ? -EIO : -EFAULT);
    }
    return 0;
}

/* Copies whole words, so that a reader never sees a part of an aligned word. */
static void copy_words(uint64_t *dst, const uint64_t *src, uint64_t words)
{
    for (uint64_t i = 0; i < words; i++)
        __atomic_store_n(&dst[i], __atomic_load_n(&src[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

static bool short_words(const void *a, const void *b, uint64_t len)
{
    return len <= 256 && (((uintptr_t)a | (uintptr_t)b | len) & 7) == 0;
}

int emu4_move(const struct emu4_place *src, const struct emu4_place *dst, uint64_t len)
{
    if (src->ptr != NULL && dst->ptr != NULL) {
        if (short_words(dst->ptr, src->ptr, len))
            copy_words(dst->ptr, src->ptr, len / 8);
        else
            memmove(dst->ptr, src->ptr, len);
        return 0;
    }
    int self = getpid(); /* a system call, like the copies below */
    int rc;
    if (src->ptr != NULL || (dst->ptr == NULL && src->pid == self)) {
        void *local = src->ptr != NULL ? src->ptr : (void *)(uintptr_t)src->va;
        rc = move_vm(dst->pid, true, local, dst->va, len);
        return rc == -EIO ? -ENXIO : rc;
    }
    if (dst->ptr != NULL || dst->pid == self) {
        void *local = dst->ptr != NULL ? dst->ptr : (void *)(uintptr_t)dst->va;
        rc = move_vm(src->pid, false, local, src->va, len);
        return rc == -EIO ? -EFAULT : rc == -EFAULT ? -ENXIO : rc;
    }
    return -EFAULT; /* between two other processes */
}

int emu4_read(const struct emu4_end *e, E4_Addr a, void *buf, uint64_t len)
{
    struct emu4_place src, dst = {.ptr = buf, .pid = e->peer->pid};

    if (!emu4_place(e, a, len, &src))
        return -EFAULT;
    return emu4_move(&src, &dst, len);
}
