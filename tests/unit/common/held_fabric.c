/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "held_fabric.h"

#define MAX_HELD  4096
#define MAX_BYTES ((size_t)1 << 20) /* of one registration, and so of one transfer */

struct held {
    uintptr_t base;
    size_t length;
    unsigned index; /* io_uring: index in the buffer table */
    int out, in;    /* else: the pipe that holds the pages */
};

/* Limits of its own: mechanisms are tested, not what an adapter is taken to cost. */
static const struct rme_limits held_limits = {
    .once = {256u << 10, 2u << 10, 1u << 10},
    .list = {16u << 10, 768, 1u << 10},
    .read = 1,
};
static struct rme_caps held_caps = {.limits = &held_limits,
                                    .max_sge = 1,
                                    .max_read_sge = 1,
                                    .max_regs = MAX_HELD,
                                    .has_read = true,
                                    .mws = 1};
static atomic_int live, ever;

/* ---- the ring ---- */

static struct {
    int fd;   /* -1: none */
    int file; /* the device's end of a transfer */
    pthread_mutex_t lock;
    struct io_uring_params params;
    char *sq, *cq;
    size_t sq_size, cq_size;
    struct io_uring_sqe *sqe;
    unsigned free[MAX_HELD], nfree;
} ring = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static void *map_ring(size_t size, uint64_t offset)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd,
                (off_t)offset);
}

/* Registers a buffer table with empty entries. */
static bool make_table(void)
{
    struct io_uring_rsrc_register table = {.nr = MAX_HELD, .flags = 1 /* sparse, Linux 5.19 */};

    return syscall(SYS_io_uring_register, ring.fd, 15 /* IORING_REGISTER_BUFFERS2 */, &table,
                   sizeof(table)) == 0;
}

void held_open(void)
{
    const struct io_uring_params *p = &ring.params;

    ring.params = (struct io_uring_params){0};
    ring.nfree = 0;
    ring.fd = (int)syscall(SYS_io_uring_setup, 4, &ring.params);
    if (ring.fd < 0)
        return;
    ring.file = memfd_create("held", MFD_CLOEXEC);
    ring.sq_size = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    ring.cq_size = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    ring.sq = map_ring(ring.sq_size, IORING_OFF_SQ_RING);
    ring.cq = map_ring(ring.cq_size, IORING_OFF_CQ_RING);
    ring.sqe = map_ring(p->sq_entries * sizeof(*ring.sqe), IORING_OFF_SQES);
    if (ring.file < 0 || ring.sq == MAP_FAILED || ring.cq == MAP_FAILED ||
        (void *)ring.sqe == MAP_FAILED || !make_table()) {
        close(ring.fd);
        ring.fd = -1;
        return;
    }
    for (unsigned i = 0; i < MAX_HELD; i++)
        ring.free[ring.nfree++] = i;
}

void held_close(void)
{
    if (ring.fd < 0)
        return;
    munmap(ring.sqe, ring.params.sq_entries * sizeof(*ring.sqe));
    munmap(ring.cq, ring.cq_size);
    munmap(ring.sq, ring.sq_size);
    close(ring.file);
    close(ring.fd);
    ring.fd = -1;
}

bool held_pins(void)
{
    return ring.fd >= 0;
}

/* Puts a buffer into the table, or removes it (length 0). */
static bool set_buffer(unsigned index, void *base, size_t length)
{
    struct iovec part = {.iov_base = base, .iov_len = length};
    struct io_uring_rsrc_update2 update = {
        .offset = index, .data = (uint64_t)(uintptr_t)&part, .nr = 1};

    return syscall(SYS_io_uring_register, ring.fd, 16 /* IORING_REGISTER_BUFFERS_UPDATE */,
                   &update, sizeof(update)) == 1;
}

static unsigned *at(char *map, uint32_t offset)
{
    return (unsigned *)(void *)(map + offset);
}

/* Submits the request in the ring and waits for its completion. The call that submits may
 * return before the completion. */
static bool enter(unsigned head)
{
    unsigned left = 1;

    while (__atomic_load_n(at(ring.cq, ring.params.cq_off.tail), __ATOMIC_ACQUIRE) == head) {
        long taken =
            syscall(SYS_io_uring_enter, ring.fd, left, 1, IORING_ENTER_GETEVENTS, NULL, 0);

        if (taken < 0 && errno != EINTR)
            return false;
        if (taken > 0)
            left = 0;
    }
    return true;
}

/* Makes one transfer between a buffer and the start of the file. The ring's lock is held. */
static bool move(uint8_t opcode, const struct held *held, uintptr_t start, size_t length)
{
    const struct io_uring_params *p = &ring.params;
    unsigned tail = *at(ring.sq, p->sq_off.tail), mask = *at(ring.sq, p->sq_off.ring_mask);
    unsigned head = *at(ring.cq, p->cq_off.head);
    const struct io_uring_cqe *cqe;
    bool good;

    ring.sqe[tail & mask] = (struct io_uring_sqe){.opcode = opcode,
                                                  .fd = ring.file,
                                                  .addr = start,
                                                  .len = (uint32_t)length,
                                                  .buf_index = (uint16_t)held->index};
    at(ring.sq, p->sq_off.array)[tail & mask] = tail & mask;
    __atomic_store_n(at(ring.sq, p->sq_off.tail), tail + 1, __ATOMIC_RELEASE);
    if (!enter(head))
        return false;
    cqe = (const struct io_uring_cqe *)(const void *)(ring.cq + p->cq_off.cqes) +
          (head & *at(ring.cq, p->cq_off.ring_mask));
    good = cqe->res == (int)length;
    __atomic_store_n(at(ring.cq, p->cq_off.head), head + 1, __ATOMIC_RELEASE);
    return good;
}

/* ---- registration ---- */

static const struct rme_caps *caps(const struct rme_fabric *f)
{
    (void)f;
    return &held_caps;
}

static int hold_by_ring(struct held *held)
{
    int ret = 0;

    pthread_mutex_lock(&ring.lock);
    if (ring.nfree == 0) {
        ret = -ENOMEM;
    } else {
        held->index = ring.free[ring.nfree - 1];
        if (set_buffer(held->index, (void *)held->base, held->length))
            ring.nfree--;
        else
            ret = -errno;
    }
    pthread_mutex_unlock(&ring.lock);
    return ret;
}

static int hold_by_pipe(struct held *held)
{
    struct iovec part = {.iov_base = (void *)held->base, .iov_len = held->length};
    int fds[2];

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return -ENOMEM;
    if (vmsplice(fds[1], &part, 1, 0) != (ssize_t)held->length) {
        close(fds[0]);
        close(fds[1]);
        return -EFAULT;
    }
    held->out = fds[0];
    held->in = fds[1];
    return 0;
}

static int reg(struct rme_fabric *f, void *base, size_t length, unsigned access,
               struct rme_mr *mr)
{
    struct held *held = calloc(1, sizeof(*held));
    int ret;

    (void)f;
    (void)access;
    if (held == NULL || length > MAX_BYTES) {
        free(held);
        return -ENOMEM;
    }
    held->base = (uintptr_t)base;
    held->length = length;
    ret = held_pins() ? hold_by_ring(held) : hold_by_pipe(held);
    if (ret != 0) {
        free(held);
        return ret;
    }
    *mr = (struct rme_mr){.handle = held,
                          .base = held->base,
                          .length = length,
                          .lkey = (uintptr_t)held,
                          .rkey = (uintptr_t)held};
    atomic_fetch_add(&live, 1);
    atomic_fetch_add(&ever, 1);
    return 0;
}

static void dereg(struct rme_fabric *f, struct rme_mr *mr)
{
    struct held *held = mr->handle;

    (void)f;
    if (held_pins()) {
        pthread_mutex_lock(&ring.lock);
        if (set_buffer(held->index, NULL, 0))
            ring.free[ring.nfree++] = held->index;
        pthread_mutex_unlock(&ring.lock);
    } else {
        close(held->out);
        close(held->in);
    }
    free(held);
    atomic_fetch_sub(&live, 1);
}

const struct rme_fabric_ops held_ops = {
    .scheme = "held", .caps = caps, .reg = reg, .dereg = dereg};

int held_live(void)
{
    return atomic_load(&live);
}

int held_ever(void)
{
    return atomic_load(&ever);
}

/* ---- transfers ---- */

static bool covers(const struct held *held, const void *start, size_t length)
{
    return (uintptr_t)start >= held->base &&
           (uintptr_t)start + length <= held->base + held->length;
}

static bool read_pipe(const struct held *held, const void *start, size_t length, void *out)
{
    char *whole = malloc(held->length);
    int copy[2];
    bool good;

    if (whole == NULL || pipe2(copy, O_CLOEXEC | O_NONBLOCK) != 0) {
        free(whole);
        return false;
    }
    good = tee(held->out, copy[1], held->length, 0) == (ssize_t)held->length &&
           read(copy[0], whole, held->length) == (ssize_t)held->length;
    close(copy[0]);
    close(copy[1]);
    if (good)
        memcpy(out, whole + ((uintptr_t)start - held->base), length);
    free(whole);
    return good;
}

bool held_read(uint64_t key, const void *start, size_t length, void *out)
{
    const struct held *held = (const struct held *)(uintptr_t)key;
    bool good;

    if (!covers(held, start, length))
        return false;
    if (!held_pins())
        return read_pipe(held, start, length, out);
    pthread_mutex_lock(&ring.lock);
    good = move(IORING_OP_WRITE_FIXED, held, (uintptr_t)start, length) &&
           pread(ring.file, out, length, 0) == (ssize_t)length;
    pthread_mutex_unlock(&ring.lock);
    return good;
}

bool held_write(uint64_t key, void *start, size_t length, const void *in)
{
    const struct held *held = (const struct held *)(uintptr_t)key;
    bool good;

    if (!held_pins() || !covers(held, start, length))
        return false;
    pthread_mutex_lock(&ring.lock);
    good = pwrite(ring.file, in, length, 0) == (ssize_t)length &&
           move(IORING_OP_READ_FIXED, held, (uintptr_t)start, length);
    pthread_mutex_unlock(&ring.lock);
    return good;
}
