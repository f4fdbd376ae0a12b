/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures the one-way time of RDMA writes with immediate on plain verbs, including copies to
 * the program's memory: perftest's ib_write_lat ends when the last byte is in registered
 * memory, before a processor has read the others.
 *
 *   bare_lat BYTES COUNT COPIES
 *
 * prints microseconds. COPIES 0: no copy; 1: the receiver copies the data to its own memory; 2:
 * the sender also copies, to registered memory. A tenth of the messages precedes as a warm-up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bare_pair.h"

enum { MAX_BYTES = 16 << 20, MAX_COUNT = 10000000, RECEIVES = 16, STEP = 4096, TURNS = 64 };

struct job {
    size_t bytes, step;
    unsigned count, copies;
    char *own; /* unregistered memory */
};

static void post_receive(struct bare *b)
{
    struct ibv_recv_wr wr = {0}, *bad;

    if (ibv_post_recv(b->qp, &wr, &bad))
        bare_die(b, "posting a receive");
}

static void send_it(struct bare *b, const struct job *j)
{
    struct ibv_sge sge = {(uintptr_t)b->memory, (uint32_t)j->bytes, b->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    if (j->copies > 1)
        memcpy(b->memory, j->own, j->bytes);
    wr.wr.rdma.remote_addr = bare_peer_memory(b) + j->step;
    wr.wr.rdma.rkey = bare_peer_rkey(b);
    if (ibv_post_send(b->qp, &wr, &bad))
        bare_die(b, "posting a request");
}

/* Waits for a message; also takes the completion of the own send. Yields rarely, because
 * yielding takes as long as a message. */
static void receive(struct bare *b, const struct job *j)
{
    unsigned polls = 0, turns = 0;
    uint64_t since = 0;
    struct ibv_wc wc;

    for (;;) {
        if (!bare_poll(b, &wc)) {
            if (++turns % TURNS == 0)
                bare_rest(b, &polls, &since);
        } else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
            break;
        }
    }
    post_receive(b);
    if (j->copies > 0)
        memcpy(j->own, b->memory + j->step, j->bytes);
}

static void play(struct bare *b, const struct job *j, unsigned count)
{
    for (unsigned n = 0; n < count; n++) {
        if (b->side == 0)
            send_it(b, j);
        receive(b, j);
        if (b->side == 1)
            send_it(b, j);
    }
}

static bool read_arguments(int argc, char **argv, struct job *j)
{
    if (argc != 4 || strlen(argv[3]) != 1 || argv[3][0] < '0' || argv[3][0] > '2')
        return false;
    j->bytes = bare_number(argv[1], 1, MAX_BYTES);
    j->step = (j->bytes + STEP - 1) / STEP * STEP;
    j->count = (unsigned)bare_number(argv[2], 1, MAX_COUNT);
    j->copies = (unsigned)(argv[3][0] - '0');
    return j->bytes && j->count;
}

int main(int argc, char **argv)
{
    struct job j;
    struct bare b;
    uint64_t begin;
    double us;

    if (!read_arguments(argc, argv, &j)) {
        fprintf(stderr,
                "Usage: bare_lat BYTES COUNT COPIES\n"
                "(at most %d bytes, %d messages, 2 copies)\n",
                MAX_BYTES, MAX_COUNT);
        return 2;
    }
    j.own = calloc(1, j.bytes);
    if (j.own == NULL) {
        fprintf(stderr, "bare_lat: no memory for %zu bytes\n", j.bytes);
        return 1;
    }
    pid_t child = bare_fork(&b, "bare_lat");

    bare_open(
        &b, &(struct bare_want){.length = 2 * j.step, .sends = RECEIVES, .receives = RECEIVES});
    for (unsigned n = 0; n < RECEIVES; n++)
        post_receive(&b);
    bare_connect(&b);
    play(&b, &j, j.count / 10 + 1);
    begin = bare_now_ns();
    play(&b, &j, j.count);
    us = (double)(bare_now_ns() - begin) / 1e3 / j.count / 2;
    bare_barrier(&b);
    bare_close(&b);
    free(j.own);
    if (b.side == 1)
        return 0;
    if (!bare_wait(&b, child))
        return 1;
    printf("%.3f\n", us);
    return 0;
}
