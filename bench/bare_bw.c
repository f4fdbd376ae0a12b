/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures the bandwidth of RDMA writes or reads on plain verbs, as perftest does, but over
 * several buffers in turn, as a program would: perftest uses a single buffer, which stays in
 * the processor's caches.
 *
 *   bare_bw write|read BYTES COUNT WINDOW BUFFERS
 *
 * prints MB/s (10^6 bytes). Both sides have the same number of buffers, each request is
 * signalled, and a tenth of the requests precedes as a warm-up.
 */
#include <stdio.h>
#include <string.h>

#include "bench/bare_pair.h"

enum { MAX_WINDOW = 128, MAX_BUFFERS = 1024, MAX_COUNT = 10000000, STEP = 4096 };

struct job {
    bool read;
    size_t bytes, step;
    unsigned count, window, buffers;
};

static void start(struct bare *b, const struct job *j, unsigned n)
{
    uint64_t at = (uint64_t)j->step * (n % j->buffers);
    struct ibv_sge sge = {(uintptr_t)b->memory + at, (uint32_t)j->bytes, b->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = n,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = j->read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    wr.wr.rdma.remote_addr = bare_peer_memory(b) + at;
    wr.wr.rdma.rkey = bare_peer_rkey(b);
    if (ibv_post_send(b->qp, &wr, &bad))
        bare_die(b, "posting a request");
}

/* Runs `count` requests; returns the nanoseconds. */
static uint64_t stream(struct bare *b, const struct job *j, unsigned count)
{
    uint64_t begin = bare_now_ns(), since = 0;
    unsigned started = 0, polls = 0;

    for (unsigned ended = 0; ended < count;) {
        struct ibv_wc wc;

        while (started < count && started - ended < j->window)
            start(b, j, started++);
        if (bare_poll(b, &wc)) {
            ended++;
            polls = 0;
            since = 0;
        } else {
            bare_rest(b, &polls, &since);
        }
    }
    return bare_now_ns() - begin;
}

static bool read_arguments(int argc, char **argv, struct job *j)
{
    if (argc != 6)
        return false;
    j->read = strcmp(argv[1], "read") == 0;
    j->bytes = bare_number(argv[2], 1, 1 << 30);
    j->count = (unsigned)bare_number(argv[3], 1, MAX_COUNT);
    j->window = (unsigned)bare_number(argv[4], 1, MAX_WINDOW);
    j->buffers = (unsigned)bare_number(argv[5], 1, MAX_BUFFERS);
    j->step = (j->bytes + STEP - 1) / STEP * STEP;
    return (j->read || strcmp(argv[1], "write") == 0) && j->bytes && j->count && j->window &&
           j->buffers;
}

int main(int argc, char **argv)
{
    struct job j;
    struct bare b;
    uint64_t ns = 0;

    if (!read_arguments(argc, argv, &j)) {
        fprintf(stderr,
                "Usage: bare_bw write|read BYTES COUNT WINDOW BUFFERS\n"
                "(at most %d requests, %d under way, %d buffers)\n",
                MAX_COUNT, MAX_WINDOW, MAX_BUFFERS);
        return 2;
    }
    pid_t child = bare_fork(&b, "bare_bw");

    bare_open(&b, &(struct bare_want){
                      .length = j.step * j.buffers, .sends = j.window, .reads = j.window});
    bare_connect(&b);
    if (b.side == 0) {
        stream(&b, &j, j.count / 10 + j.buffers);
        ns = stream(&b, &j, j.count);
    }
    bare_barrier(&b);
    bare_close(&b);
    if (b.side == 1)
        return 0;
    if (!bare_wait(&b, child))
        return 1;
    printf("%.1f\n", (double)j.bytes * j.count * 1e3 / (double)ns);
    return 0;
}
