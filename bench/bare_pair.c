/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bench/bare_pair.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    POLLS = 64,  /* polls before yielding */
    WAIT_S = 60, /* time-out */
};

struct bare_board {
    struct {
        union ibv_gid gid;
        uint64_t memory;
        uint32_t qpn, rkey;
        uint16_t lid;
        uint8_t reads;
    } end[2];
    _Atomic unsigned arrived[2];
    _Atomic uint64_t count;
};

void bare_die(const struct bare *b, const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", b->program, what, errno ? strerror(errno) : "it failed");
    exit(1);
}

uint64_t bare_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void bare_rest(const struct bare *b, unsigned *polls, uint64_t *since)
{
    if (++*polls % POLLS)
        return;
    sched_yield();
    if (*since == 0) {
        *since = bare_now_ns();
    } else if (bare_now_ns() - *since > WAIT_S * UINT64_C(1000000000)) {
        errno = ETIMEDOUT;
        bare_die(b, "the other end");
    }
}

void bare_barrier(const struct bare *b)
{
    unsigned polls = 0, mine = atomic_fetch_add(&b->board->arrived[b->side], 1) + 1;
    uint64_t since = 0;

    while (atomic_load(&b->board->arrived[1 - b->side]) < mine)
        bare_rest(b, &polls, &since);
}

uint64_t bare_add(const struct bare *b, uint64_t n)
{
    return atomic_fetch_add(&b->board->count, n) + n;
}

uint64_t bare_peer_memory(const struct bare *b)
{
    return b->board->end[1 - b->side].memory;
}

uint32_t bare_peer_rkey(const struct bare *b)
{
    return b->board->end[1 - b->side].rkey;
}

size_t bare_number(const char *text, size_t least, size_t most)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);

    return *text < '0' || *text > '9' || *end || n < least || n > most ? 0 : (size_t)n;
}

pid_t bare_fork(struct bare *b, const char *program)
{
    pid_t child;

    *b = (struct bare){.program = program};
    b->board = mmap(NULL, sizeof(*b->board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                    -1, 0);
    if (b->board == MAP_FAILED)
        bare_die(b, "memory");
    child = fork();
    if (child < 0)
        bare_die(b, "a process");
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    b->side = child == 0;
    return child;
}

bool bare_wait(const struct bare *b, pid_t child)
{
    int status = 0;

    if (waitpid(child, &status, 0) == child && status == 0)
        return true;
    fprintf(stderr, "%s: the child failed\n", b->program);
    return false;
}

/* Returns the last IPv4 GID of an Ethernet port, which is that of RoCE v2. */
static uint8_t gid_index(const struct bare *b)
{
    union ibv_gid gid;
    uint8_t index = 0;

    for (int i = 0; i < b->port.gid_tbl_len && i < 256; i++)
        if (ibv_query_gid(b->context, 1, i, &gid) == 0 && gid.raw[10] == 0xff &&
            gid.raw[11] == 0xff)
            index = (uint8_t)i;
    return index;
}

static void open_device(struct bare *b, int cqe)
{
    int number = 0;
    struct ibv_device **list = ibv_get_device_list(&number);

    if (!list || number == 0) {
        errno = ENODEV;
        bare_die(b, "no RDMA device");
    }
    b->context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    b->pd = b->context ? ibv_alloc_pd(b->context) : NULL;
    b->cq = b->pd ? ibv_create_cq(b->context, cqe, NULL, NULL, 0) : NULL;
    if (!b->cq || ibv_query_port(b->context, 1, &b->port) != 0)
        bare_die(b, "the first RDMA device");
    b->gid = gid_index(b);
}

/* Limits the number of RDMA reads to the device's. */
static uint8_t reads_of(const struct bare *b, unsigned wanted)
{
    struct ibv_device_attr device;
    unsigned n = wanted;

    if (ibv_query_device(b->context, &device))
        bare_die(b, "the device");
    if (n > (unsigned)device.max_qp_init_rd_atom)
        n = (unsigned)device.max_qp_init_rd_atom;
    if (n > (unsigned)device.max_qp_rd_atom)
        n = (unsigned)device.max_qp_rd_atom;
    return (uint8_t)n;
}

void bare_open(struct bare *b, const struct bare_want *want)
{
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = want->sends,
                                            .max_recv_wr = want->receives,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = want->inlined}};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags =
                                   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};

    open_device(b, (int)(want->sends + want->receives));
    init.send_cq = init.recv_cq = b->cq;
    b->length = want->length;
    b->memory =
        mmap(NULL, b->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->memory == MAP_FAILED)
        bare_die(b, "memory");
    memset(b->memory, 0, b->length);
    b->mr =
        ibv_reg_mr(b->pd, b->memory, b->length,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    b->qp = b->mr ? ibv_create_qp(b->pd, &init) : NULL;
    if (!b->qp ||
        ibv_modify_qp(b->qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        bare_die(b, "memory, or a queue pair");
    if (ibv_query_gid(b->context, 1, b->gid, &b->board->end[b->side].gid))
        bare_die(b, "the address of the port");
    b->board->end[b->side].memory = (uintptr_t)b->memory;
    b->board->end[b->side].rkey = b->mr->rkey;
    b->board->end[b->side].qpn = b->qp->qp_num;
    b->board->end[b->side].lid = b->port.lid;
    b->board->end[b->side].reads = reads_of(b, want->reads);
}

void bare_connect(struct bare *b)
{
    unsigned peer = 1 - b->side;

    bare_barrier(b);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = b->port.active_mtu,
        .min_rnr_timer = 1,
        .dest_qp_num = b->board->end[peer].qpn,
        .ah_attr = {.dlid = b->board->end[peer].lid,
                    .is_global = b->port.link_layer == IBV_LINK_LAYER_ETHERNET,
                    .grh = {.dgid = b->board->end[peer].gid,
                            .sgid_index = b->gid,
                            .hop_limit = 64},
                    .port_num = 1},
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .max_rd_atomic = b->board->end[b->side].reads,
        .max_dest_rd_atomic = b->board->end[peer].reads,
    };

    if (ibv_modify_qp(b->qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        bare_die(b, "connecting");
    attr.qp_state = IBV_QPS_RTS;
    if (ibv_modify_qp(b->qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        bare_die(b, "connecting");
    bare_barrier(b);
}

void bare_close(struct bare *b)
{
    ibv_destroy_qp(b->qp);
    ibv_dereg_mr(b->mr);
    ibv_destroy_cq(b->cq);
    ibv_dealloc_pd(b->pd);
    ibv_close_device(b->context);
    munmap(b->memory, b->length);
}

bool bare_poll(const struct bare *b, struct ibv_wc *wc)
{
    int n = ibv_poll_cq(b->cq, 1, wc);

    if (n < 0)
        bare_die(b, "the completion queue");
    if (n == 0)
        return false;
    if (wc->status != IBV_WC_SUCCESS) {
        fprintf(stderr, "%s: a request ended with %s\n", b->program,
                ibv_wc_status_str(wc->status));
        exit(1);
    }
    return true;
}
