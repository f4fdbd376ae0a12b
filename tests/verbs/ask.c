/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Shared by the questions: ends of connections, and names of results. */
#include "tests/verbs/ask.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *from_name, *to_name, *cm_address = "127.0.0.1";
int cm_port = 7471;

/* ---- Names ---- */

static bool answered;

void answer(const char *format, ...)
{
    va_list list;

    if (answered)
        fputs("; ", stdout);
    answered = true;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    fflush(stdout);
}

void need_failed(const char *what, const char *file, int line)
{
    const char *name = strrchr(file, '/');

    answer("could not be asked: %s (%s:%d, %s)", what, name != NULL ? name + 1 : file, line,
           strerror(errno));
    exit(1);
}

static const char *error_name(int error)
{
    const char *name = strerrorname_np(error);

    return name != NULL ? name : "an unknown error";
}

const char *result(int ret)
{
    return ret == 0 ? "ok" : error_name(ret == -1 ? errno : abs(ret));
}

const char *pointer_result(const void *p)
{
    return p != NULL ? "ok" : error_name(errno);
}

const char *status_name(enum ibv_wc_status status)
{
    return ibv_wc_status_str(status);
}

const char *state_name(enum ibv_qp_state state)
{
    static const char *const name[] = {
        [IBV_QPS_RESET] = "RESET", [IBV_QPS_INIT] = "INIT", [IBV_QPS_RTR] = "RTR",
        [IBV_QPS_RTS] = "RTS",     [IBV_QPS_SQD] = "SQD",   [IBV_QPS_SQE] = "SQE",
        [IBV_QPS_ERR] = "ERR",
    };

    return (unsigned)state < sizeof(name) / sizeof(name[0]) ? name[state] : "an unknown state";
}

/* ---- Ends ---- */

static int given(int value, int otherwise)
{
    return value == 0 ? otherwise : value < 0 ? 0 : value;
}

static void open_device(struct end *e, const char *name)
{
    int n;
    struct ibv_device **list = ibv_get_device_list(&n);

    NEED(list && n > 0);
    for (int i = 0; i < n && e->ctx == NULL; i++)
        if (name == NULL || strcmp(name, ibv_get_device_name(list[i])) == 0)
            e->ctx = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    NEED(e->ctx);
}

/* Finds a routable GID: an IPv4 address of RoCE v2, else any entry. */
static void find_gid(struct end *e)
{
    struct ibv_port_attr port;
    struct ibv_gid_entry entry;

    NEED(ibv_query_port(e->ctx, 1, &port) == 0);
    e->lid = port.lid;
    NEED(ibv_query_gid(e->ctx, 1, 0, &e->gid) == 0);
    for (int i = 0; i < port.gid_tbl_len; i++) {
        if (ibv_query_gid_ex(e->ctx, 1, (uint32_t)i, &entry, 0) ||
            entry.gid_type != IBV_GID_TYPE_ROCE_V2)
            continue;
        if (entry.gid.raw[10] != 0xff || entry.gid.raw[11] != 0xff || entry.gid.raw[0])
            continue;
        e->gid_index = (uint8_t)i;
        e->gid = entry.gid;
        return;
    }
}

static void datagrams_ready(struct end *e)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = END_QKEY};

    NEED(ibv_modify_qp(e->qp, &a,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    a.qp_state = IBV_QPS_RTR;
    NEED(ibv_modify_qp(e->qp, &a, IBV_QP_STATE) == 0);
    a.qp_state = IBV_QPS_RTS;
    NEED(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
}

int end_init(struct end *e, uint8_t port)
{
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_INIT,
        .port_num = port,
        .qp_access_flags =
            (unsigned)given(e->qp_rights, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)};

    return ibv_modify_qp(e->qp, &a,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

void end_open(struct end *e, bool passive)
{
    if (e->with != NULL)
        e->ctx = e->with->ctx;
    else
        open_device(e, passive ? to_name : from_name);
    find_gid(e);
    e->pd = e->with != NULL ? e->with->pd : ibv_alloc_pd(e->ctx);
    NEED(e->pd);
    if (e->with_channel) {
        e->channel = ibv_create_comp_channel(e->ctx);
        NEED(e->channel);
    }
    e->scq = ibv_create_cq(e->ctx, given(e->cqe, 256), NULL, e->channel, 0);
    e->rcq = ibv_create_cq(e->ctx, given(e->cqe, 256), NULL, e->channel, 0);
    NEED(e->scq && e->rcq);
    if (e->srq_wr) {
        struct ibv_srq_init_attr si = {.attr = {.max_wr = (uint32_t)e->srq_wr, .max_sge = 2}};
        e->srq = ibv_create_srq(e->pd, &si);
        NEED(e->srq);
    }
    struct ibv_qp_init_attr qi = {
        .send_cq = e->scq,
        .recv_cq = e->rcq,
        .srq = e->srq,
        .qp_type = e->datagrams ? IBV_QPT_UD : IBV_QPT_RC,
        .sq_sig_all = e->sig_all,
        .cap = {32, e->srq != NULL ? 0 : 32, 4, e->srq != NULL ? 0 : 4, 64}};
    e->qp = ibv_create_qp(e->pd, &qi);
    NEED(e->qp);
    e->cap = qi.cap;
    NEED(posix_memalign((void **)&e->buf, 4096, END_SIZE) == 0);
    memset(e->buf, 0, END_SIZE);
    e->mr = ibv_reg_mr(e->pd, e->buf, END_SIZE, given(e->rights, ALL_RIGHTS));
    NEED(e->mr);
    if (e->datagrams) {
        datagrams_ready(e);
        return;
    }
    NEED(end_init(e, 1) == 0);
}

int end_rtr(struct end *e, const struct end *peer, uint32_t qpn)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = qpn,
                            .max_dest_rd_atomic = (uint8_t)given(e->granted_reads, 4),
                            .min_rnr_timer = 12,
                            .ah_attr = {.dlid = peer->lid,
                                        .port_num = 1,
                                        .is_global = peer->lid == 0,
                                        .grh = {.dgid = peer->gid,
                                                .sgid_index = peer->lid ? 0 : e->gid_index,
                                                .hop_limit = 16}}};

    return ibv_modify_qp(e->qp, &a,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int end_rts(struct end *e)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
                            .timeout = (uint8_t)given(e->timeout, 18),
                            .retry_cnt = (uint8_t)given(e->retry, 6),
                            .rnr_retry = (uint8_t)given(e->rnr_retry, 7),
                            .max_rd_atomic = (uint8_t)given(e->reads, 4)};

    return ibv_modify_qp(e->qp, &a,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void ends_open(struct end *a, struct end *b)
{
    end_open(a, false);
    end_open(b, true);
    a->other = b;
    b->other = a;
    ends_connect(a, b);
}

void ends_connect(struct end *a, struct end *b)
{
    NEED(end_rtr(b, a, a->qp->qp_num) == 0);
    NEED(end_rtr(a, b, b->qp->qp_num) == 0);
    NEED(end_rts(b) == 0);
    NEED(end_rts(a) == 0);
}

int end_to(struct end *e, enum ibv_qp_state state)
{
    struct ibv_qp_attr a = {.qp_state = state};

    return ibv_modify_qp(e->qp, &a, IBV_QP_STATE);
}

const char *qp_state(struct ibv_qp *qp)
{
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;

    for (int n = 0; n < 50; n++) {
        NEED(ibv_query_qp(qp, &a, IBV_QP_STATE, &i) == 0);
        if (a.qp_state == IBV_QPS_ERR)
            break;
        pass_ms(10);
    }
    return state_name(a.qp_state);
}

/* ---- Requests ---- */

int send_to(struct end *e, uint64_t id, enum ibv_wr_opcode op, uint32_t length, unsigned flags,
            uint64_t raddr, uint32_t rkey)
{
    struct ibv_sge sge = {(uintptr_t)e->buf, length, e->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = op,
                             .send_flags = flags,
                             .imm_data = 0x01020304,
                             .wr.rdma = {raddr, rkey}},
                       *bad;

    if (op == IBV_WR_SEND_WITH_INV || op == IBV_WR_LOCAL_INV)
        wr.invalidate_rkey = rkey;
    if (op == IBV_WR_LOCAL_INV)
        wr.num_sge = 0;
    if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = raddr;
        wr.wr.atomic.compare_add = e->operand;
        wr.wr.atomic.swap = e->swap;
        wr.wr.atomic.rkey = rkey;
    }
    if (e->datagrams) {
        wr.wr.ud.ah = e->ah;
        wr.wr.ud.remote_qpn = e->to;
        wr.wr.ud.remote_qkey = e->qkey;
    }
    return ibv_post_send(e->qp, &wr, &bad);
}

int send_plain(struct end *e, enum ibv_wr_opcode op, uint32_t length, unsigned flags)
{
    return send_to(e, 1, op, length, flags, (uintptr_t)e->other->buf, e->other->mr->rkey);
}

int receive(struct end *e, uint64_t id, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)e->buf, length, e->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

    return e->srq != NULL ? ibv_post_srq_recv(e->srq, &wr, &bad)
                          : ibv_post_recv(e->qp, &wr, &bad);
}

/* ---- Time ---- */

#define STEP_MS 10 /* of a wait, with the software HCA's clock */

/* Returns the time in ms after `most` ms at most have passed, by the clock of the machine or of
 * the software HCA. */
static uint64_t clock_step(uint64_t most)
{
    static uint64_t (*step)(uint64_t);
    static void (*settle)(void);
    static bool looked;
    struct timespec ts;

    if (!looked) {
        step = (uint64_t(*)(uint64_t))(uintptr_t)dlsym(RTLD_DEFAULT, "emuverbs_clock");
        settle = (void (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "emuverbs_settle");
        looked = true;
    }
    if (step != NULL && settle != NULL) {
        uint64_t now = step(most * 1000000) / 1000000;
        settle();
        return now;
    }
    if (most)
        usleep(1000);
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void pass_ms(int ms)
{
    uint64_t end = clock_step(0) + (uint64_t)ms;

    while (clock_step(STEP_MS) < end)
        ;
}

/* ---- Completions and events ---- */

bool next_wc(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
    uint64_t end = clock_step(0) + (uint64_t)ms;
    bool over = false;

    for (;;) {
        int n = ibv_poll_cq(cq, 1, wc);
        NEED(n >= 0);
        if (n)
            return true;
        if (over)
            return false;
        over = clock_step(STEP_MS) > end; /* poll once more */
    }
}

void answer_wc(const char *who, struct ibv_cq *cq)
{
    struct ibv_wc wc;

    answer("%s: %s", who, next_wc(cq, &wc, WAIT_MS) ? status_name(wc.status) : "nothing");
}

void answer_wcs(const char *who, struct ibv_cq *cq)
{
    struct ibv_wc wc;
    unsigned run = 0;
    enum ibv_wc_status last = IBV_WC_SUCCESS;
    bool any = false;

    while (next_wc(cq, &wc, any ? NONE_MS : WAIT_MS / 5)) {
        if (run && wc.status != last) {
            answer("%s: %u %s", who, run, status_name(last));
            run = 0;
        }
        any = true;
        last = wc.status;
        run++;
    }
    if (any)
        answer("%s: %u %s", who, run, status_name(last));
    else
        answer("%s: nothing", who);
}

bool readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    if (ms < 0)
        return poll(&p, 1, -1) == 1;
    uint64_t end = clock_step(0) + (uint64_t)ms;

    while (poll(&p, 1, 0) == 0)
        if (clock_step(STEP_MS) > end)
            return poll(&p, 1, 0) == 1;
    return true;
}

void answer_async(const char *who, struct end *e)
{
    struct ibv_async_event event;

    if (!readable(e->ctx->async_fd, 1000)) {
        answer("%s: no event", who);
        return;
    }
    NEED(ibv_get_async_event(e->ctx, &event) == 0);
    answer("%s: %s", who, ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
}

/* ---- Questions ---- */

const struct question *asked;

bool posted(int ret)
{
    answer("posting: %s", result(ret));
    return ret == 0;
}

static bool is_untouched(const struct end *e)
{
    for (unsigned i = 0; i < END_SIZE; i++)
        if (e->buf[i] != 0x55)
            return false;
    return true;
}

void tell(struct end *a, struct end *b, const char *words)
{
    char text[128], *rest;
    struct ibv_wc wc;

    snprintf(text, sizeof(text), "%s", words);
    for (char *w = strtok_r(text, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        if (strcmp(w, "states") == 0)
            answer("states %s and %s", qp_state(a->qp), qp_state(b->qp));
        else if (strcmp(w, "state") == 0)
            answer("state %s", qp_state(a->qp));
        else if (strcmp(w, "memory") == 0)
            answer("memory %s", is_untouched(b) ? "untouched" : "changed");
        else if (strcmp(w, "responder") == 0)
            answer_async(w, b);
        else if (strcmp(w, "receiver?") == 0)
            answer("receiver: %s",
                   next_wc(b->rcq, &wc, NONE_MS) ? status_name(wc.status) : "nothing");
        else
            answer_wc(w, strcmp(w, "receiver") == 0 ? b->rcq : a->scq);
}

static void request(struct end *a, struct end *b)
{
    const struct request *r = &asked->request;
    struct ibv_mr *mr = a->mr;
    bool tells = strncmp(asked->tell, "posting", 7) == 0;

    memset(b->buf, 0x55, END_SIZE);
    memset(a->buf, 0xaa, END_SIZE);
    NEED(!r->receive || receive(b, 2, r->receive) == 0);
    struct ibv_mr other = {.lkey = mr->lkey ^ r->lkey_xor};
    struct end from = *a;
    from.mr = &other;
    from.buf += r->from;
    int ret = send_to(&from, 1, r->op, r->length, SIGNALED | r->flags,
                      (uintptr_t)b->buf + r->offset, b->mr->rkey ^ r->key_xor);
    NEED(tells || ret == 0);
    if (!tells || posted(ret))
        tell(a, b, asked->tell + (tells ? 7 : 0));
}

void question_put(const struct question *q)
{
    static struct end a, b;

    asked = q;
    a = q->a;
    b = q->b;
    a.other = &b;
    b.other = &a;
    if (q->setup == CONNECTED)
        ends_open(&a, &b);
    else if (q->setup != NOTHING)
        end_open(&a, false);
    if (q->setup == APART)
        end_open(&b, true);
    (q->ask != NULL ? q->ask : request)(&a, &b);
}
