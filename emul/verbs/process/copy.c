/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Data movement between address spaces, with one system call per work request.
 *
 * Also used within one process: process_vm_writev reports unmapped memory by EFAULT, where
 * memcpy would kill the program. A process is identified by one of its running threads, because
 * the memory of an exited main thread is not accessible.
 */
#include "emul/verbs/process/process.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* Drops the first n bytes of a vector. */
static void advance(struct iovec **v, unsigned *nv, size_t n)
{
    while (*nv && n >= (*v)->iov_len) {
        n -= (*v)->iov_len;
        ++*v;
        --*nv;
    }
    if (*nv && n) {
        (*v)->iov_base = (char *)(*v)->iov_base + n;
        (*v)->iov_len -= n;
    }
}

#define PAGE 4096u

/* Returns whether all pages of a process's vector can be read. */
static bool is_readable(int tid, const struct iovec *v, unsigned nv)
{
    char byte;
    struct iovec l = {&byte, 1};

    for (; nv; v++, nv--)
        for (uintptr_t at = (uintptr_t)v->iov_base, end = at + v->iov_len; at < end;
             at = (at | (PAGE - 1)) + 1) {
            struct iovec r = {(void *)at, 1};
            if (process_vm_readv(tid, &l, 1, &r, 1, 0) != 1)
                return false;
        }
    return true;
}

static int move(struct emu_peer *p, bool to, struct iovec *l, unsigned nl, struct iovec *r,
                unsigned nr, uint64_t total)
{
    while (total) {
        ssize_t n = to ? process_vm_writev(p->tid, l, nl, r, nr, 0)
                       : process_vm_readv(p->tid, l, nl, r, nr, 0);
        if (n > 0 && (uint64_t)n >= total)
            return 0;
        if (n > 0) {
            total -= (uint64_t)n;
            advance(&l, &nl, (size_t)n);
            advance(&r, &nr, (size_t)n);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        int err = n == 0 ? EFAULT : errno;
        if (err == EPERM || err == ENOSYS) {
            emu_explain_eperm(p->pid);
            return -EPERM;
        }
        if (err == ESRCH)
            return -ESRCH;
        /* find the cause: the source is readable or not */
        bool source_ok = to ? is_readable(gettid(), l, nl) : is_readable(p->tid, r, nr);
        return source_ok == to ? -EFAULT : -EINVAL;
    }
    return 0;
}

int emu_copy_to(struct emu_peer *p, struct iovec *local, unsigned nl, struct iovec *remote,
                unsigned nr, uint64_t total)
{
    return move(p, true, local, nl, remote, nr, total);
}

int emu_copy_from(struct emu_peer *p, struct iovec *local, unsigned nl, struct iovec *remote,
                  unsigned nr, uint64_t total)
{
    return move(p, false, local, nl, remote, nr, total);
}

/* Copies through a file: for write() the kernel reads memory as the program's instructions do,
 * including memory that process_vm_readv cannot access, such as pages of a device. */
static int copy_by_file(void *to, const struct iovec *from, unsigned n, size_t length)
{
    int fd = memfd_create("emuverbs-inline", MFD_CLOEXEC);

    if (fd < 0)
        return ENOMEM;
    ssize_t in = writev(fd, from, (int)n);
    ssize_t out = in == (ssize_t)length ? pread(fd, to, length, 0) : -1;
    int err = in < 0 && errno == ENOSPC ? ENOMEM : EFAULT;
    close(fd);
    return out == (ssize_t)length ? 0 : err;
}

int emu_copy_own(void *to, const struct iovec *from, unsigned n, size_t length)
{
    struct iovec local = {to, length};

    if (process_vm_readv(gettid(), &local, 1, from, n, 0) == (ssize_t)length)
        return 0;
    return copy_by_file(to, from, n, length);
}
