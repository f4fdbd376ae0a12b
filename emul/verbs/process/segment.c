/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * This process's segment: a sparse memfd, and an allocator for rings in it.
 *
 * The memfd is anonymous and disappears with the last process that maps it. The arena allocates
 * powers of two from free lists; its records are private memory, because only the owner
 * allocates.
 */
#include "emul/common/limits.h"
#include "emul/verbs/process/process.h"
#include "emul/verbs/base/sysio.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define REMEDY    "EMUVERBS_SEGMENT_MIB, 64"
#define MIN_CLASS 8 /* 256 bytes */
#define SHOWN     (UINT64_C(1) << 20)

struct arena_free {
    struct arena_free *next;
    uint64_t off;
};

static uint64_t align_up(uint64_t v, uint64_t a)
{
    return (v + a - 1) & ~(a - 1);
}

/* Sets the offsets of the parts of a segment; returns the offset of its inbox. */
static uint64_t lay_out(struct shm_head *seg)
{
    uint64_t off = align_up(sizeof(*seg), 4096);
    seg->off_mr = off;
    off = align_up(off + sizeof(struct shm_mr) * EMU_MR_PLACES, 4096);
    seg->off_qp = off;
    off = align_up(off + sizeof(struct shm_qp) * EMU_MAX_QPS, 4096);
    seg->off_cq = off;
    off = align_up(off + sizeof(struct shm_cq) * EMU_MAX_CQS, 4096);
    seg->off_srq = off;
    off = align_up(off + sizeof(struct shm_srq) * EMU_MAX_SRQS, 4096);
    seg->off_chan = off;
    off = align_up(off + sizeof(struct shm_chan) * EMU_MAX_CHANS, 4096);
    seg->off_mcast = off;
    off = align_up(off + sizeof(struct shm_mcast) * EMU_MAX_MCASTS, 4096);
    seg->off_bounce = off;
    off = align_up(off + sizeof(struct shm_bounce) * EMU_BOUNCE_SLOTS, 4096);
    uint64_t off_inbox = off;
    off = align_up(off + shm_ring_bytes(EMU_INBOX_ENTRIES, sizeof(struct shm_msg)), 4096);
    seg->off_arena = off;
    return off_inbox;
}

void *emu_segment_map(void *at, uint64_t size, int flags, int fd)
{
    void *seg = mmap(at, size, PROT_WRITE, flags, fd, 0);

    if (seg != MAP_FAILED)
        madvise(seg, size, MADV_DONTDUMP);
    return seg;
}

/* Shows leak checkers what is in use, as it has pointers of the program: wr_id. */
static void show(struct emu_dev *d)
{
    uint64_t to = align_up(d->arena_next, SHOWN);

    if (to <= d->arena_shown)
        return;
    if (to > d->seg->size)
        to = d->seg->size;
    mprotect(shm_at(d->seg, d->arena_shown), to - d->arena_shown, PROT_READ | PROT_WRITE);
    d->arena_shown = to;
}

int emu_segment_create(struct emu_dev *d)
{
    char name[64];
    uint64_t size = d->knobs.segment_mib << 20;
    uint64_t drawn[2]; /* incarnation and first serial */
    struct stat st;

    if (!emul_may_be_so_large("emuverbs", REMEDY, size))
        return -EFBIG;
    snprintf(name, sizeof(name), "emuverbs-%u", d->slot);
    int fd = sys_no_stream(memfd_create(name, MFD_CLOEXEC));
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)size) < 0 || fstat(fd, &st) < 0) {
        int err = errno;
        close(fd);
        return -err;
    }
    struct shm_head *seg = emu_segment_map(NULL, size, MAP_SHARED, fd);
    if (seg == MAP_FAILED) {
        int err = errno;
        close(fd);
        if (err == ENOMEM)
            emul_print_no_room("emuverbs", REMEDY, size);
        return -err;
    }
    if (getrandom(drawn, sizeof(drawn), GRND_NONBLOCK) != sizeof(drawn))
        drawn[0] = drawn[1] = ((uint64_t)d->pid << 32) ^ emu_now();
    seg->version = EMU_SHM_VERSION;
    seg->slot = d->slot;
    seg->pid = d->pid;
    seg->bell_fd = -1;
    seg->incarnation = drawn[0] | 1;
    atomic_store(&seg->serial, drawn[1] & SHM_SERIAL_FIRST);
    seg->size = size;
    atomic_store(&seg->silent, (uint32_t)d->knobs.silent);

    uint64_t off_inbox = lay_out(seg);

    for (uint32_t i = 0; i < EMU_BOUNCE_SLOTS / 64; i++)
        atomic_store(&seg->bounce_free[i], ~UINT64_C(0));
    shm_ring_init(seg, &seg->inbox, off_inbox, EMU_INBOX_ENTRIES, sizeof(struct shm_msg),
                  EMU_INBOX_ENTRIES);
    d->arena_next = d->arena_shown = seg->off_arena;
    d->seg = seg;
    d->seg_fd = fd;
    d->seg_dev = st.st_dev;
    d->seg_ino = st.st_ino;
    return 0;
}

bool emu_segment_fits(const struct shm_head *seg)
{
    struct shm_head own;
    uint64_t off_inbox = lay_out(&own);

    return memcmp(&seg->off_mr, &own.off_mr,
                  offsetof(struct shm_head, off_arena) - offsetof(struct shm_head, off_mr) +
                      sizeof(own.off_arena)) == 0 &&
           seg->size > own.off_arena &&
           shm_ring_is_at(&seg->inbox, off_inbox, EMU_INBOX_ENTRIES, sizeof(struct shm_msg));
}

uint64_t emu_segment_arena(const struct emu_dev *d)
{
    struct shm_head own;
    uint64_t size = d->knobs.segment_mib << 20;

    lay_out(&own);
    return size > own.off_arena ? size - own.off_arena : 0;
}

void emu_segment_destroy(struct emu_dev *d)
{
    munmap(d->seg, d->seg->size);
    close(d->seg_fd);
    d->seg = NULL;
}

void emu_segment_forked(struct emu_dev *d)
{
    struct stat st;
    bool own = fstat(d->seg_fd, &st) == 0 && st.st_dev == d->seg_dev && st.st_ino == d->seg_ino;

    /* without the file, as the program has closed the descriptor: empty memory */
    emu_segment_map(d->seg, d->seg->size, MAP_FIXED | MAP_PRIVATE | (own ? 0 : MAP_ANONYMOUS),
                    own ? d->seg_fd : -1);
    if (own)
        close(d->seg_fd);
}

static unsigned size_class(uint64_t bytes)
{
    unsigned c = MIN_CLASS;

    while ((UINT64_C(1) << c) < bytes)
        c++;
    return c;
}

uint64_t emu_arena_takes(uint64_t bytes)
{
    return UINT64_C(1) << size_class(bytes);
}

uint64_t emu_arena_alloc(struct emu_dev *d, uint64_t bytes)
{
    if (bytes == 0 || bytes > d->seg->size)
        return 0;
    unsigned c = size_class(bytes);
    uint64_t off = 0;

    pthread_mutex_lock(&d->lock);
    struct arena_free *f = d->arena_free[c];
    if (f != NULL) {
        d->arena_free[c] = f->next;
        off = f->off;
    } else if (d->arena_next + (UINT64_C(1) << c) <= d->seg->size) {
        off = d->arena_next;
        d->arena_next += UINT64_C(1) << c;
        show(d);
    }
    pthread_mutex_unlock(&d->lock);
    if (f != NULL) {
        free(f);
        memset(shm_at(d->seg, off), 0, bytes);
    }
    return off;
}

void emu_arena_free(struct emu_dev *d, uint64_t off, uint64_t bytes)
{
    struct arena_free *f = malloc(sizeof(*f));

    if (f == NULL)
        return; /* the range is lost until exit */
    f->off = off;
    unsigned c = size_class(bytes);
    pthread_mutex_lock(&d->lock);
    f->next = d->arena_free[c];
    d->arena_free[c] = f;
    pthread_mutex_unlock(&d->lock);
}
