/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <sys/eventfd.h>
#include <unistd.h>
#include "rig.h"
#include "bmi_ib/bmi_ib.h"
#include "bmi_ib/rail.h"

#undef ibv_reg_mr
#undef ibv_query_port

struct rig rig;

static struct ibv_context context;
static struct ibv_device device = {.name = "fake0"};
static struct ibv_pd domain;
static struct ibv_comp_channel comp;
static struct rdma_event_channel channel;
static struct ibv_cq cq;
static struct ibv_wc waiting[64];
static unsigned nwaiting;

/* ---- The fake libraries ---- */

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp;
    (void)wr;
    (void)bad;
    return 0;
}

static struct ibv_mw *fake_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    static uint32_t key;
    struct ibv_mw *mw = calloc(1, sizeof(*mw));
    mw->context = pd->context;
    mw->pd = pd;
    mw->type = type;
    mw->rkey = (++key << 8) + 0xfe;
    rig.mws++;
    return mw;
}

static int fake_dealloc_mw(struct ibv_mw *mw)
{
    free(mw);
    rig.mws--;
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
    (void)c;
    return &domain;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return rig.fork;
}

static int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)qp;
    (void)bad;
    for (; wr; wr = wr->next)
        rig.nrecv++;
    return 0;
}

static int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                              struct ibv_recv_wr **bad)
{
    (void)srq;
    return fake_post_recv(NULL, wr, bad);
}

static int fake_poll(struct ibv_cq *q, int max, struct ibv_wc *wc)
{
    int n = 0;
    (void)q;
    while (n < max && (unsigned)n < nwaiting) {
        wc[n] = waiting[n];
        n++;
    }
    nwaiting -= (unsigned)n;
    memmove(waiting, waiting + n, nwaiting * sizeof(*waiting));
    return n;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    struct ibv_mr *mr = calloc(1, sizeof(*mr));
    (void)pd;
    rig.access = access;
    mr->addr = addr;
    mr->length = length;
    mr->lkey = 7;
    rig.mrs++;
    return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned int access)
{
    (void)iova;
    return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    free(mr);
    rig.mrs--;
    return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)qp;
    (void)attr;
    (void)mask;
    return rig.fail_modify ? EINVAL : 0;
}

/* Creates a QP without a connection. */
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp *qp = calloc(1, sizeof(*qp));
    qp->context = pd->context;
    qp->send_cq = attr->send_cq;
    rig.qps++;
    return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    free(qp);
    rig.qps_gone++;
    return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init)
{
    (void)qp;
    (void)mask;
    (void)init;
    *attr = rig.path;
    return rig.fail_query ? EINVAL : 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    (void)c;
    (void)port;
    struct ibv_port_attr *a = (struct ibv_port_attr *)(void *)attr;
    a->gid_tbl_len = sizeof(rig.gid) / sizeof(*rig.gid);
    a->state = IBV_PORT_ACTIVE;
    a->active_width = 2;
    a->active_speed = 32;
    return 0;
}

int ibv_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *pkey)
{
    (void)c;
    (void)port;
    *pkey = htobe16((uint16_t)(0x8000 + index));
    return 0;
}

int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    (void)c;
    (void)flags;
    for (unsigned i = 0; i < rig.ngid; i++)
        if (rig.gid[i].port_num == port && rig.gid[i].gid_index == index) {
            memcpy(entry, &rig.gid[i], size);
            return 0;
        }
    return ENODATA;
}

ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *entries, size_t max,
                             uint32_t flags, size_t size)
{
    (void)c;
    (void)flags;
    assert_true(max >= rig.ngid && size == sizeof(*entries));
    memcpy(entries, rig.gid, rig.ngid * sizeof(*entries));
    return rig.ngid;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *cq_context,
                             struct ibv_comp_channel *ch, int vector)
{
    struct ibv_cq *made = calloc(1, sizeof(*made));
    rig.vector = vector;
    made->context = c;
    made->cq_context = cq_context;
    made->channel = ch;
    made->cqe = rig.cqe = cqe;
    return made;
}

int ibv_destroy_cq(struct ibv_cq *q)
{
    free(q);
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
    comp.context = c;
    return &comp;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
    (void)ch;
    return 0;
}

static int fake_req_notify(struct ibv_cq *q, int solicited)
{
    (void)q;
    (void)solicited;
    rig.arms++;
    return rig.fail_arm ? EIO : 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **q, void **cq_context)
{
    (void)ch;
    if (rig.comp_events == 0)
        return -1;
    rig.comp_events--;
    *q = &cq;
    *cq_context = rig.f;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *q, unsigned int n)
{
    (void)q;
    (void)n;
}

int ibv_resize_cq(struct ibv_cq *q, int cqe)
{
    if (rig.fixed_cq)
        return EOPNOTSUPP;
    q->cqe = rig.cqe = cqe;
    return 0;
}

int rdma_create_id(struct rdma_event_channel *c, struct rdma_cm_id **id, void *ctx,
                   enum rdma_port_space ps)
{
    (void)ps;
    *id = calloc(1, sizeof(**id));
    (*id)->channel = c;
    (*id)->context = ctx;
    (*id)->verbs = &context;
    (*id)->port_num = 1;
    (*id)->route.addr.dst_sin.sin_family = AF_INET;
    rig.created++;
    return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
    assert_null(id->qp);
    free(id);
    rig.destroyed++;
    return 0;
}

/* Librdmacm's own reads behind the rig's ids.  A test of addresses has another one. */
__attribute__((weak)) int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *sa)
{
    (void)id;
    (void)sa;
    errno = ENODEV;
    return -1;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
                      int timeout)
{
    (void)id;
    (void)dst;
    (void)timeout;
    memset(&rig.source, 0, sizeof(rig.source));
    if (src != NULL)
        memcpy(&rig.source, src,
               src->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in));
    rig.resolved_addr++;
    errno = EINVAL;
    return rig.fail_resolve ? -1 : 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout)
{
    (void)id;
    (void)timeout;
    rig.resolved_route++;
    return 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    static uint32_t number;
    id->qp = calloc(1, sizeof(*id->qp));
    id->qp->context = pd->context;
    id->qp->qp_num = ++number;
    id->qp->qp_context = attr->qp_context;
    rig.qps++;
    return 0;
}

/* Drops the QP's unpolled completions, like devices do. */
void rdma_destroy_qp(struct rdma_cm_id *id)
{
    unsigned kept = 0;
    assert_int_equal(rig.mws, rig.rail->mws.nfree); /* soft-RoCE waits for open ones */
    for (unsigned i = 0; i < nwaiting; i++)
        if (waiting[i].qp_num != id->qp->qp_num)
            waiting[kept++] = waiting[i];
    nwaiting = kept;
    free(id->qp);
    id->qp = NULL;
    rig.qps_gone++;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
    (void)id;
    assert_int_equal(param->rnr_retry_count, 7);
    rig.connected++;
    return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
    (void)id;
    (void)param;
    return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t length)
{
    (void)id;
    (void)data;
    (void)length;
    rig.rejected++;
    return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
    (void)id;
    return 0;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t length)
{
    (void)id;
    if (level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_TOS) {
        assert_int_equal(length, 1);
        assert_int_equal(rig.resolved_route, 0); /* too late after the route was resolved */
        rig.tos = *(uint8_t *)value;
    }
    if (level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_ACK_TIMEOUT)
        rig.ack = *(uint8_t *)value;
    return 0;
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *e)
{
    (void)c;
    if (rig.async == NULL)
        return -1;
    *e = *rig.async;
    rig.async = NULL;
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
    (void)e;
    rig.acked++;
}

struct ibv_context **rdma_get_devices(int *n)
{
    static struct ibv_context *list[2];
    list[0] = rig.listed != NULL ? rig.listed : &context;
    *n = 1;
    return list;
}

void rdma_free_devices(struct ibv_context **list)
{
    (void)list;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
    (void)c;
    memset(attr, 0, sizeof(*attr));
    attr->phys_port_cnt = 1;
    return 0;
}

int rdma_get_cm_event(struct rdma_event_channel *c, struct rdma_cm_event **e)
{
    (void)c;
    if (rig.pending == NULL) {
        errno = EAGAIN;
        return -1;
    }
    *e = rig.pending;
    rig.pending = NULL;
    return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *e)
{
    (void)e;
    rig.acked++;
    return 0;
}

/* ---- The fabric ---- */

static void log_line(void *arg, enum rme_log_level level, const char *format, ...)
{
    char *line = rig.line;
    va_list list;
    (void)arg;
    (void)level;
    va_start(list, format); /* formatted, so that sanitizers check the arguments */
    vsnprintf(line, sizeof(rig.line), format, list);
    if (strlen(rig.lines) + strlen(line) < sizeof(rig.lines))
        strcat(rig.lines, line);
    va_end(list);
}

void rig_open(const char *options, uint32_t max_sge, uint32_t max_inline)
{
    const struct rme_option_row *tables[] = {ib_options};
    char why[256] = "";

    memset(&rig, 0, sizeof(rig));
    rig.tos = -1;
    rig.fork = IBV_FORK_UNNEEDED;
    nwaiting = 0;
    rig.options = rme_options_new(tables, 1);
    assert_int_equal(rme_options_parse(rig.options, options ? options : "", why, sizeof(why)),
                     0);

    context = (struct ibv_context){.device = &device};
    context.ops.post_send = fake_post_send;
    context.ops.post_recv = fake_post_recv;
    context.ops.post_srq_recv = fake_post_srq_recv;
    context.ops.alloc_mw = fake_alloc_mw;
    context.ops.dealloc_mw = fake_dealloc_mw;
    context.ops.poll_cq = fake_poll;
    context.ops.req_notify_cq = fake_req_notify;
    domain.context = &context;
    cq.context = &context;
    /* a descriptor that is never readable */
    channel.fd = context.async_fd = comp.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(channel.fd >= 0);
    rig.f = calloc(1, sizeof(*rig.f));
    struct rme_fabric *f = rig.f;
    f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(f->wake_fd >= 0);
    f->config = (struct rme_fabric_config){
        .rx_size = 4096, .options = rig.options, .stats = &rig.stats, .log = log_line};
    f->route_timeout_ms = f->drain_ms = 600000; /* long enough for a slow machine */
    f->cm = &channel;
    list_init(&f->regs.keys);
    struct ib_rail *rail = rig.rail = ib_rail_new(f);
    assert_non_null(rail);
    rail->slab = IB_SLAB;
    rail->dev = (struct ib_device){.ctx = &context,
                                   .pd = &domain,
                                   .read_depth = 16,
                                   .name = "fake0",
                                   .max_inline = max_inline,
                                   .inline_now = max_sge > 1 ? max_inline : 0,
                                   .sq_depth = (uint32_t)ib_option(rail, "sq_depth"),
                                   .rq_depth = 127};
    rail->caps =
        (struct rme_caps){.max_sge = max_sge, .max_read_sge = max_sge, .has_read = true};
    rail->comp = &comp;
    rail->cq = (struct ib_cq){.cq = &cq, .size = 65536};
    rail->dev.attr.max_cqe = 65536;
    assert_int_equal(ib_tx_open(rail), 0);
    assert_int_equal(ib_async_open(rail), 0);
}

/* Checks that everything was returned: buffers, QPs, ids, CQ space. */
void rig_close(void)
{
    struct rme_fabric *f = rig.f;
    struct ib_rail *rail = rig.rail;
    ib_links_release(rail);
    ib_async_close(rail);
    assert_int_equal(rail->tx.nfree, rail->tx.slabs * rail->slab);
    assert_int_equal(rail->tx.unsignalled, 0);
    assert_int_equal(rail->rx.nfree, rail->rx.nslab * rail->slab);
    assert_int_equal(rail->rx.unused, rail->rx.nslab);
    assert_int_equal(rail->cq.used, 0);
    assert_int_equal(f->unsettled, 0);
    assert_int_equal(rig.qps, rig.qps_gone);
    assert_int_equal(rig.created, rig.destroyed);
    ib_tx_close(rail);
    ib_rx_close(rail);
    ib_mws_close(rail);
    assert_int_equal(rig.mrs, 0);
    assert_int_equal(rig.mws, 0);
    assert_int_equal(rail->mws.made, 0);
    close(channel.fd);
    close(f->wake_fd);
    ib_rail_drop(f);
    free(f);
    rme_options_free(rig.options);
}

struct rme_link *rig_link_in(enum ib_link_state state)
{
    struct ib_rail *rail = rig.rail;
    struct rme_link *l = ib_link_new(rail);
    assert_non_null(l);
    l->rx_first = 8;
    l->passive = state == IB_REQUESTED || state == IB_ACCEPTING;
    strcpy(l->peer, "peer:1");
    if (state != IB_NAMING)
        rdma_create_id(rig.f->cm, &l->id, l, RDMA_PS_TCP);
    if (state == IB_CONNECTING || state == IB_ACCEPTING || state == IB_UP ||
        state >= IB_DRAINING) {
        ib_link_state_set(l, IB_ROUTING);
        assert_int_equal(ib_qp_create(l), 0);
        assert_int_equal(ib_rx_reserve(l, 8), 0);
        assert_int_equal(ib_rx_post(rail, l), 0);
        l->read_depth = 16;
    }
    if (state < IB_DRAINING) {
        ib_link_state_set(l, state);
        return l;
    }
    ib_link_state_set(l, IB_UP);
    ib_link_fail(l, -ECONNRESET, true);
    struct rme_event events[4];
    if (state > IB_DRAINING)
        ib_link_drained(l, IB_DRAIN_ALL);
    if (state > IB_DRAINED) {
        rail->out = events;
        rail->out_max = 4;
        ib_cq_poll(rail);
        ib_link_free_drained(rail);
        rail->out = NULL;
        rail->out_max = 0;
    }
    if (state == IB_DOWN)
        rig_poll(events, 4);
    assert_int_equal(l->state, state);
    return l;
}

struct rme_link *rig_link(void)
{
    return rig_link_in(IB_UP);
}

int rig_poll(struct rme_event *events, int max)
{
    rig.f->reopen_at = 0; /* no device comes back, see test_rails */
    return bmi_ib_fabric()->poll(rig.f, events, max);
}

int rig_count(enum rme_event_type type, struct rme_event *last)
{
    struct rme_event event[16];
    int found = 0, n;
    unsigned qp_ops; /* one per poll, which may return no event */
    do {
        qp_ops = rig.f->qp_ops;
        n = rig_poll(event, 16);
        for (int i = 0; i < n; i++)
            if (event[i].type == type) {
                found++;
                if (last != NULL)
                    *last = event[i];
            }
    } while (n || rig.f->qp_ops != qp_ops);
    return found;
}

void rig_drain(struct rme_link *l)
{
    rig_wc((struct ibv_wc){.wr_id = ib_wr_id(IB_WR_MARK_SEND, 0, l->handle),
                           .status = IBV_WC_WR_FLUSH_ERR});
    rig_wc((struct ibv_wc){.wr_id = ib_wr_id(IB_WR_MARK_RECV, 0, l->handle),
                           .status = IBV_WC_WR_FLUSH_ERR});
}

void rig_cm(struct rme_link *l, enum rdma_cm_event_type type, int status, const void *data,
            size_t length)
{
    struct rdma_cm_event e = {.id = l != NULL ? l->id : NULL, .event = type, .status = status};
    struct rdma_cm_id listening = {.context = NULL, .verbs = &context};
    if (e.id == NULL)
        e.id = &listening;
    e.param.conn.private_data = data;
    e.param.conn.private_data_len = (uint8_t)length;
    e.param.conn.initiator_depth = 4;
    e.param.conn.responder_resources = 4;
    rig.pending = &e;
    ib_cm_events(rig.f);
    assert_null(rig.pending);
}

void rig_wc(struct ibv_wc wc)
{
    waiting[nwaiting++] = wc;
}
