/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What it costs that a message waits for the data that it announces, on plain verbs, with
 * nothing of ours in between [003 4.2].  The client moves a block, then sends a message that
 * says so; the server, which is a process of its own, answers.  WINDOW blocks are under way.
 *
 *   fence SERIES BYTES COUNT WINDOW
 *
 * prints the microseconds of a block, from its request to its answer, divided by the blocks
 * that were under way, and how often a message was there before its block was.
 *
 *   read-none    the client reads; its message may overtake the data, as no rule of verbs
 *                keeps a send behind a read
 *   read-fence   the message carries a fence
 *   read-wait    the message is sent when the read is complete: how it is done without a fence
 *   write-none   the client writes; a send stays behind a write in any case
 *   write-fence  and with a fence that has nothing to wait for
 *
 * The server changes a block that was read as soon as it is told, so a read that comes later
 * has what must not be there.  It looks at one that was written, likewise.  A block that was
 * wrong fails the run, but for read-none, where that is counted.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum {
    MOST = 16,     /* blocks under way */
    SQ = 4 * MOST, /* a block has two requests, of which the first is signalled */
    LOOKS = 64,    /* before others may run */
    WAIT_S = 60,   /* nothing takes that long */
    STEP = 4096,   /* blocks begin at such places */
    MOST_COUNT = 1000000,
    MOST_BYTES = 16 << 20,
};

static const struct way {
    const char *name;
    bool read, fence, wait;
} ways[] = {{"read-none", true, false, false},
            {"read-fence", true, true, false},
            {"read-wait", true, false, true},
            {"write-none", false, false, false},
            {"write-fence", false, true, false}};

/* What both processes see. */
static struct board {
    struct {
        union ibv_gid gid;
        uint64_t memory;
        uint32_t qpn, rkey;
        uint16_t lid;
    } end[2];
    _Atomic unsigned arrived[2];
    _Atomic uint64_t wrong;
} * board;

struct run {
    const struct way *way;
    size_t bytes, step; /* of a block; from one to the next */
    unsigned count, window;
    unsigned side; /* 0: the client */
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char *memory;             /* blocks, then the numbers that arrive */
    unsigned answered, moved; /* blocks */
    uint64_t overtaken;
};

static void die(const char *what)
{
    fprintf(stderr, "fence: %s: %s\n", what, errno ? strerror(errno) : "it failed");
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* After a look that found nothing: the other process may need the processor. */
static void rest(unsigned *looks, uint64_t *since)
{
    if (++*looks % LOOKS)
        return;
    sched_yield();
    if (*since == 0)
        *since = now_ns();
    else if (now_ns() - *since > WAIT_S * UINT64_C(1000000000)) {
        errno = ETIMEDOUT;
        die("the other end");
    }
}

static void meet(const struct run *r)
{
    unsigned looks = 0, mine = atomic_fetch_add(&board->arrived[r->side], 1) + 1;
    uint64_t since = 0;

    while (atomic_load(&board->arrived[1 - r->side]) < mine)
        rest(&looks, &since);
}

/* ---- Setting up ---- */

/* Of an Ethernet port: the last that is an IPv4 address, which is that of RoCE 2. */
static uint8_t gid_index(const struct run *r, const struct ibv_port_attr *port)
{
    union ibv_gid gid;
    uint8_t index = 0;

    for (int i = 0; i < port->gid_tbl_len && i < 256; i++)
        if (ibv_query_gid(r->context, 1, i, &gid) == 0 && gid.raw[10] == 0xff &&
            gid.raw[11] == 0xff)
            index = (uint8_t)i;
    return index;
}

static void open_device(struct run *r, struct ibv_port_attr *port)
{
    int number = 0;
    struct ibv_device **list = ibv_get_device_list(&number);

    if (!list || number == 0) {
        errno = ENODEV;
        die("no RDMA device");
    }
    r->context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    r->pd = r->context ? ibv_alloc_pd(r->context) : NULL;
    r->cq = r->pd ? ibv_create_cq(r->context, SQ + 2 * MOST, NULL, NULL, 0) : NULL;
    if (!r->cq || ibv_query_port(r->context, 1, port) != 0)
        die("the first RDMA device");
}

/* Numbers arrive behind the blocks, each at its place. */
static uint64_t *number_place(const struct run *r, unsigned n)
{
    return (uint64_t *)(void *)(r->memory + r->step * MOST + n % (2 * MOST) * 8);
}

static void post_receive(struct run *r, unsigned n)
{
    struct ibv_sge sge = {(uintptr_t)number_place(r, n), 8, r->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;

    if (ibv_post_recv(r->qp, &wr, &bad))
        die("posting a receive");
}

static void make_end(struct run *r, const struct ibv_port_attr *port, uint8_t gid)
{
    size_t length = r->step * MOST + STEP;
    struct ibv_qp_init_attr init = {.send_cq = r->cq,
                                    .recv_cq = r->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = SQ,
                                            .max_recv_wr = 2 * MOST,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = 8}};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags =
                                   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};

    r->memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->memory == MAP_FAILED)
        die("memory");
    memset(r->memory, 0, length);
    r->mr =
        ibv_reg_mr(r->pd, r->memory, length,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    r->qp = r->mr ? ibv_create_qp(r->pd, &init) : NULL;
    if (!r->qp ||
        ibv_modify_qp(r->qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        die("memory, or a queue pair");
    if (ibv_query_gid(r->context, 1, gid, &board->end[r->side].gid))
        die("the address of the port");
    board->end[r->side].memory = (uintptr_t)r->memory;
    board->end[r->side].rkey = r->mr->rkey;
    board->end[r->side].qpn = r->qp->qp_num;
    board->end[r->side].lid = port->lid;
    for (unsigned n = 0; n < 2 * MOST; n++)
        post_receive(r, n);
}

static void connect_end(struct run *r, const struct ibv_port_attr *port, uint8_t gid)
{
    struct ibv_device_attr device;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = port->active_mtu,
        .min_rnr_timer = 1,
        .dest_qp_num = board->end[1 - r->side].qpn,
        .ah_attr = {.dlid = board->end[1 - r->side].lid,
                    .is_global = port->link_layer == IBV_LINK_LAYER_ETHERNET,
                    .grh = {.dgid = board->end[1 - r->side].gid,
                            .sgid_index = gid,
                            .hop_limit = 64},
                    .port_num = 1},
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7};

    if (ibv_query_device(r->context, &device))
        die("the device");
    attr.max_rd_atomic =
        (uint8_t)(device.max_qp_init_rd_atom < MOST ? device.max_qp_init_rd_atom : MOST);
    attr.max_dest_rd_atomic =
        (uint8_t)(device.max_qp_rd_atom < MOST ? device.max_qp_rd_atom : MOST);
    if (ibv_modify_qp(r->qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        die("connecting");
    attr.qp_state = IBV_QPS_RTS;
    if (ibv_modify_qp(r->qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        die("connecting");
}

/* ---- Blocks ---- */

/* A block has the number of its last change at its begin and at its end. */
static char *block(const struct run *r, unsigned n)
{
    return r->memory + r->step * (n % r->window);
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

    if (ibv_post_send(r->qp, wr, &bad))
        die("posting a request");
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

/* Block `n` and, but in read-wait, its message. */
static void start_block(struct run *r, unsigned n)
{
    struct ibv_sge sge = {(uintptr_t)block(r, n), (uint32_t)r->bytes, r->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = n,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = r->way->read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED};

    wr.wr.rdma.remote_addr = board->end[1].memory + (uint64_t)(block(r, n) - r->memory);
    wr.wr.rdma.rkey = board->end[1].rkey;
    if (!r->way->read)
        stamp(r, n, n + 1);
    post(r, &wr);
    if (!r->way->wait)
        send_number(r, n, r->way->fence ? IBV_SEND_FENCE : 0);
}

/* Block `n` is answered and here. */
static void end_block(struct run *r, unsigned n)
{
    if (r->way->read && !has(r, n, n < r->window ? 0 : n - r->window + 1))
        r->overtaken++;
}

/* The server is told of block `n`. */
static void told(struct run *r, unsigned n)
{
    if (r->way->read)
        stamp(r, n, n + 1);
    else if (!has(r, n, n + 1))
        atomic_fetch_add(&board->wrong, 1);
    send_number(r, n, n % MOST == MOST - 1 ? IBV_SEND_SIGNALED : 0);
}

/* Takes what has come next; false: nothing has. */
static bool look(struct run *r)
{
    struct ibv_wc wc;
    int n = ibv_poll_cq(r->cq, 1, &wc);

    if (n < 0)
        die("the completion queue");
    if (n == 0)
        return false;
    if (wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "fence: a request ended with %s\n", ibv_wc_status_str(wc.status));
        exit(1);
    }
    if (wc.opcode == IBV_WC_RECV) {
        if (*number_place(r, (unsigned)wc.wr_id) != r->answered)
            die("a message that was not its turn's");
        post_receive(r, (unsigned)wc.wr_id);
        if (r->side == 1)
            told(r, r->answered);
        r->answered++;
    } else if (r->side == 0) {
        if (r->way->wait)
            send_number(r, r->moved, 0);
        r->moved++;
    }
    return true;
}

/* Until so many blocks are answered, and are here. */
static void await(struct run *r, unsigned blocks)
{
    unsigned looks = 0;
    uint64_t since = 0;

    while (r->answered < blocks || (r->side == 0 && r->moved < blocks))
        if (look(r))
            looks = 0, since = 0;
        else
            rest(&looks, &since);
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
            begin = now_ns();
        start_block(r, n);
    }
    for (unsigned n = all - r->window; n < all; n++) {
        await(r, n + 1);
        end_block(r, n);
    }
    return (double)(now_ns() - begin) / 1e3 / r->count;
}

static double both(struct run *r)
{
    struct ibv_port_attr port;
    double us = 0;
    uint8_t gid;

    open_device(r, &port);
    gid = gid_index(r, &port);
    make_end(r, &port, gid);
    meet(r);
    connect_end(r, &port, gid);
    meet(r);
    if (r->side == 0)
        us = client(r);
    else
        await(r, r->count / 10 + r->window + r->count);
    meet(r);
    ibv_destroy_qp(r->qp);
    ibv_dereg_mr(r->mr);
    ibv_destroy_cq(r->cq);
    ibv_dealloc_pd(r->pd);
    ibv_close_device(r->context);
    return us;
}

/* A number from `least` to `most`, else 0. */
static size_t number(const char *text, size_t least, size_t most)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);

    return *text < '0' || *text > '9' || *end || n < least || n > most ? 0 : (size_t)n;
}

static bool read_arguments(int argc, char **argv, struct run *r)
{
    if (argc != 5)
        return false;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(argv[1], ways[i].name) == 0)
            r->way = &ways[i];
    r->bytes = number(argv[2], 16, MOST_BYTES);
    r->count = (unsigned)number(argv[3], 1, MOST_COUNT);
    r->window = (unsigned)number(argv[4], 1, MOST);
    r->step = (r->bytes + STEP - 1) / STEP * STEP;
    return r->way && r->bytes && r->count && r->window;
}

int main(int argc, char **argv)
{
    struct run r = {0};
    int status = 0;
    pid_t child;
    double us;

    if (!read_arguments(argc, argv, &r)) {
        fprintf(stderr,
                "Usage: fence read-none|read-fence|read-wait|write-none|write-fence "
                "BYTES COUNT WINDOW\n(16 to %d bytes, at most %d blocks, %d of them "
                "under way)\n",
                MOST_BYTES, MOST_COUNT, MOST);
        return 2;
    }
    board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        die("memory");
    child = fork();
    if (child < 0)
        die("a process");
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    r.side = child == 0;
    us = both(&r);
    if (child == 0)
        return 0;
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "fence: the server failed\n");
        return 1;
    }
    printf("%s %.3f overtaken %llu\n", r.way->name, us,
           (unsigned long long)(r.overtaken + atomic_load(&board->wrong)));
    if (atomic_load(&board->wrong) || (r.overtaken && (r.way->fence || r.way->wait))) {
        fprintf(stderr, "fence: a message was there before its block\n");
        return 1;
    }
    return 0;
}
