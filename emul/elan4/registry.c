/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Registry of context owners: one file per node in the rendezvous folder, with a record for
 * each context number. The process that holds the record lock (fcntl) on the record's first
 * byte is the owner. The kernel releases the lock when the owner dies, so a record without a
 * lock is free, and no cleanup is needed.
 *
 * Closing any descriptor of the file drops such locks, so a node's file is opened once and
 * stays open. Forked children do not inherit the locks.
 *
 * The unused record of context 0 contains a counter, incremented by each attachment. A cached
 * owner is valid only while the counter has not changed: the death of an owner may be noticed
 * after its successor has attached.
 */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_BYTES 64
#define ATTACHES_AT  56
#define MAPPED       4096

_Static_assert(sizeof(struct emu4_record) <= ATTACHES_AT, "a record");

static int open_node(unsigned node)
{
    char path[300], name[32];

    snprintf(name, sizeof(name), "records-%u", node);
    if (emu4_path(path, sizeof(path), name) < 0)
        return -1;
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
}

static struct flock lock_of(unsigned context, short type)
{
    return (struct flock){.l_type = type,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)context * RECORD_BYTES,
                          .l_len = 1};
}

/* Returns whether the program has not closed the descriptor; otherwise false with EBADF. */
static bool is_open(const struct emu4_node *n)
{
    struct stat st;

    if (fstat(n->file, &st) == 0 && st.st_dev == n->dev && st.st_ino == n->ino)
        return true;
    errno = EBADF;
    return false;
}

/* NULL with errno: no memory, or no file. */
static struct emu4_node *node_of(struct emu4_proc *p, unsigned node)
{
    struct emu4_node *n = p->nodes;

    while (n != NULL && n->node != node)
        n = n->next;
    if (n != NULL)
        return n;
    int fd = open_node(node);
    if (fd < 0)
        return NULL;
    struct stat st;
    int err = posix_fallocate(fd, 0, MAPPED); /* never truncates the file */
    if (!err && fstat(fd, &st) < 0)
        err = errno;
    if (err) {
        errno = err;
        goto err_file;
    }
    char *page = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        goto err_file;
    n = malloc(sizeof(*n));
    if (n == NULL)
        goto err_page;
    *n = (struct emu4_node){p->nodes,  node,      fd,
                            st.st_dev, st.st_ino, (emu4_attaches *)(page + ATTACHES_AT)};
    p->nodes = n;
    return n;

err_page:
    munmap(page, MAPPED);
err_file:
    close(fd);
    return NULL;
}

emu4_attaches *emu4_registry_attaches(struct emu4_proc *p, unsigned node)
{
    struct emu4_node *n = node_of(p, node);

    return n != NULL ? n->attaches : NULL;
}

int emu4_registry_take(struct emu4_proc *p, unsigned node, unsigned context,
                       const struct emu4_record *r)
{
    struct emu4_node *n = node_of(p, node);
    if (n == NULL || !is_open(n))
        return -1;
    struct flock l = lock_of(context, F_WRLCK);
    if (fcntl(n->file, F_SETLK, &l) < 0) {
        if (errno == EAGAIN || errno == EACCES)
            errno = EBUSY;
        return -1;
    }
    emu4_step(EMU4_STEP_ATTACHING);
    if (pwrite(n->file, r, sizeof(*r), (off_t)context * RECORD_BYTES) != sizeof(*r)) {
        int err = errno ? errno : EIO;
        l = lock_of(context, F_UNLCK);
        fcntl(n->file, F_SETLK, &l);
        errno = err;
        return -1;
    }
    atomic_fetch_add(n->attaches, 1);
    return 0;
}

void emu4_registry_give(struct emu4_proc *p, unsigned node, unsigned context)
{
    struct emu4_node *n = node_of(p, node); /* exists since the context was taken */
    struct emu4_record none = {0};
    struct flock l = lock_of(context, F_UNLCK);

    if (!is_open(n) || pwrite(n->file, &none, sizeof(none), (off_t)context * RECORD_BYTES) < 0)
        emu4_print("cannot clear the record of context %u: %s", context, strerror(errno));
    else
        fcntl(n->file, F_SETLK, &l);
}

bool emu4_registry_find(struct emu4_proc *p, unsigned node, unsigned context,
                        struct emu4_record *r)
{
    struct emu4_node *n = node_of(p, node);

    if (n == NULL || !is_open(n) ||
        pread(n->file, r, sizeof(*r), (off_t)context * RECORD_BYTES) != sizeof(*r) ||
        r->magic != EMU4_MAGIC)
        return false;
    if (r->pid == p->pid)
        return r->incarnation == p->self.incarnation;
    struct flock l = lock_of(context, F_WRLCK);
    return fcntl(n->file, F_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}
