/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures the cost of a message that waits for the data that it announces, on plain verbs [003
 * 4.2]. The client moves a block, then sends a message that announces the block. The server,
 * another process, answers. WINDOW blocks are in flight.
 *
 *   fence SERIES BYTES COUNT WINDOW
 *
 * prints the microseconds of a block, from its request to its answer, divided by the blocks in
 * flight, and the number of messages that arrived before their block.
 *
 *   read-none    the client reads; the message may overtake the data, because verbs do not
 *                order a send behind a read
 *   read-fence   the message carries a fence
 *   read-wait    the message is sent when the read has completed: the alternative to a fence
 *   write-none   the client writes; a send is ordered behind a write in any case
 *   write-fence  and with a fence that has nothing to wait for
 *
 * The server changes a block that was read when the message arrives, so a late read gets wrong
 * contents. A block that was written is checked. Wrong contents fail the run, except for
 * read-none, where they are counted.
 */
#include <stdio.h>
#include <string.h>

#include "bench/bare_pair.h"

enum {
    MAX_BLOCKS = 16,     /* blocks in flight */
    SQ = 4 * MAX_BLOCKS, /* a block has two requests, the first of which is signalled */
    STEP = 4096,         /* alignment of blocks */
    MAX_COUNT = 1000000,
    MAX_BYTES = 16 << 20,
};

static const struct way {
    const char *name;
    bool read, fence, wait;
} ways[] = {{"read-none", true, false, false},
            {"read-fence", true, true, false},
            {"read-wait", true, false, true},
            {"write-none", false, false, false},
            {"write-fence", false, true, false}};

struct run {
    const struct way *way;
    size_t bytes, step; /* bytes of a block; distance between blocks */
    unsigned count, window;
    struct bare b;            /* side 0 is the client; memory: blocks, then received numbers */
    unsigned answered, moved; /* blocks */
    uint64_t overtaken;
};

/* Returns the place of a received number, behind the blocks. */
static uint64_t *number_place(const struct run *r, unsigned n)
{
    return (uint64_t *)(void *)(r->b.memory + r->step * MAX_BLOCKS + n % (2 * MAX_BLOCKS) * 8);
}

static void post_receive(struct run *r, unsigned n)
{
    struct ibv_sge sge = {(uintptr_t)number_place(r, n), 8, r->b.mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;

    if (ibv_post_recv(r->b.qp, &wr, &bad))
        bare_die(&r->b, "posting a receive");
}

/* ---- Blocks ---- */

/* Returns a block, which has the number of its last change at its begin and end. */
static char *block(const struct run *r, unsigned n)
{
    return r->b.memory + r->step * (n % r->window);
}

static void stamp(const struct run *r, unsigned n, uint64_t number)
{
    memcpy(block(r, n), &number, 8);
    memcpy(block(r, n) + r->bytes - 8, &number, 8);
}

static bool has(const struct run *r, unsigned n, uint64_t number)
{
    return memcmp(block(r, n), &number, 8) == 0 &&
           memcmp(block(r, n) + r->bytes - 8, &number, 8) == 0;
}

static void post(struct run *r, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;

    if (ibv_post_send(r->b.qp, wr, &bad))
        bare_die(&r->b, "posting a request");
}

static void send_number(struct run *r, uint64_t number, int flags)
{
    struct ibv_sge sge = {(uintptr_t)&number, sizeof(number), 0};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_INLINE | (unsigned)flags};

    post(r, &wr);
}

/* Posts block `n` and, except for read-wait, its message. */
static void start_block(struct run *r, unsigned n)
{
    struct ibv_sge sge = {(uintptr_t)block(r, n), (uint32_t)r->bytes, r->b.mr->lkey};
    struct ibv_send_wr wr = {.wr_id = n,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = r->way->read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED};

    wr.wr.rdma.remote_addr = bare_peer_memory(&r->b) + (uint64_t)(block(r, n) - r->b.memory);
    wr.wr.rdma.rkey = bare_peer_rkey(&r->b);
    if (!r->way->read)
        stamp(r, n, n + 1);
    post(r, &wr);
    if (!r->way->wait)
        send_number(r, n, r->way->fence ? IBV_SEND_FENCE : 0);
}

/* Checks block `n`, which has arrived and been answered. */
static void end_block(struct run *r, unsigned n)
{
    if (r->way->read && !has(r, n, n < r->window ? 0 : n - r->window + 1))
        r->overtaken++;
}

/* Handles the message of block `n` on the server. */
static void on_message(struct run *r, unsigned n)
{
    if (r->way->read)
        stamp(r, n, n + 1);
    else if (!has(r, n, n + 1))
        bare_add(&r->b, 1);
    send_number(r, n, n % MAX_BLOCKS == MAX_BLOCKS - 1 ? IBV_SEND_SIGNALED : 0);
}

/* Handles one completion; false if there is none. */
static bool poll_one(struct run *r)
{
    struct ibv_wc wc;

    if (!bare_poll(&r->b, &wc))
        return false;
    if (wc.opcode == IBV_WC_RECV) {
        if (*number_place(r, (unsigned)wc.wr_id) != r->answered)
            bare_die(&r->b, "a message out of order");
        post_receive(r, (unsigned)wc.wr_id);
        if (r->b.side == 1)
            on_message(r, r->answered);
        r->answered++;
    } else if (r->b.side == 0) {
        if (r->way->wait)
            send_number(r, r->moved, 0);
        r->moved++;
    }
    return true;
}

/* Waits until `blocks` blocks are answered and have arrived. */
static void await(struct run *r, unsigned blocks)
{
    unsigned polls = 0;
    uint64_t since = 0;

    while (r->answered < blocks || (r->b.side == 0 && r->moved < blocks))
        if (poll_one(r))
            polls = 0, since = 0;
        else
            bare_rest(&r->b, &polls, &since);
}

static double client(struct run *r)
{
    unsigned warm = r->count / 10 + r->window, all = warm + r->count;
    uint64_t begin = 0;

    for (unsigned n = 0; n < all; n++) {
        if (n >= r->window) {
            await(r, n - r->window + 1);
            end_block(r, n - r->window);
        }
        if (n == warm)
            begin = bare_now_ns();
        start_block(r, n);
    }
    for (unsigned n = all - r->window; n < all; n++) {
        await(r, n + 1);
        end_block(r, n);
    }
    return (double)(bare_now_ns() - begin) / 1e3 / r->count;
}

static double both(struct run *r)
{
    double us = 0;

    bare_open(&r->b, &(struct bare_want){.length = r->step * MAX_BLOCKS + STEP,
                                         .sends = SQ,
                                         .receives = 2 * MAX_BLOCKS,
                                         .inlined = 8,
                                         .reads = MAX_BLOCKS});
    for (unsigned n = 0; n < 2 * MAX_BLOCKS; n++)
        post_receive(r, n);
    bare_connect(&r->b);
    if (r->b.side == 0)
        us = client(r);
    else
        await(r, r->count / 10 + r->window + r->count);
    bare_barrier(&r->b);
    bare_close(&r->b);
    return us;
}

static bool read_arguments(int argc, char **argv, struct run *r)
{
    if (argc != 5)
        return false;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(argv[1], ways[i].name) == 0)
            r->way = &ways[i];
    r->bytes = bare_number(argv[2], 16, MAX_BYTES);
    r->count = (unsigned)bare_number(argv[3], 1, MAX_COUNT);
    r->window = (unsigned)bare_number(argv[4], 1, MAX_BLOCKS);
    r->step = (r->bytes + STEP - 1) / STEP * STEP;
    return r->way && r->bytes && r->count && r->window;
}

int main(int argc, char **argv)
{
    struct run r = {0};
    pid_t child;
    double us;

    if (!read_arguments(argc, argv, &r)) {
        fprintf(stderr,
                "Usage: fence read-none|read-fence|read-wait|write-none|write-fence "
                "BYTES COUNT WINDOW\n(16 to %d bytes, at most %d blocks, %d of them "
                "under way)\n",
                MAX_BYTES, MAX_COUNT, MAX_BLOCKS);
        return 2;
    }
    child = bare_fork(&r.b, "fence");
    us = both(&r);
    if (child == 0)
        return 0;
    if (!bare_wait(&r.b, child))
        return 1;
    uint64_t wrong = bare_add(&r.b, 0);

    printf("%s %.3f overtaken %llu\n", r.way->name, us,
           (unsigned long long)(r.overtaken + wrong));
    if (wrong || (r.overtaken && (r.way->fence || r.way->wait))) {
        fprintf(stderr, "fence: a message was there before its block\n");
        return 1;
    }
    return 0;
}
