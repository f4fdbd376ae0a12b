/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * measure.c - measures the cost of one more SGE of an RDMA write, one more write of a chain,
 * and one more read of a chain.  A QP connected to itself transfers the same bytes as one
 * write, a gathered write, a chain of writes, one read and a chain of reads; the differences
 * are the costs.
 *
 * The QP, its CQ and its memory exist during the measurement only.  Any failure (no path to
 * itself, no QP, a late CQE) ends the measurement silently, and the presets apply.
 */
#include <netinet/in.h>
#include <sys/mman.h>

#include "base/timer.h"
#include "base/trial.h"
#include "bmi_ib/device/device.h"

#define PIECES    16u
#define PIECE     2048u
#define APART     4096u
#define AREA      ((size_t)PIECES * APART)
#define BUDGET_NS 5000000u
#define LATE_NS   50000000u /* a CQE later than this counts as lost */

enum shape { PLAIN, GATHERED, CHAINED, READ, READ_CHAINED, SHAPES };

struct probe {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char *memory; /* local pieces, followed by AREA bytes of remote memory */
    uint32_t pieces;
};

/* Rates a GID for a connection to itself.  RoCE v2 over IPv4 is best, because IPv4 addresses do
 * not wait for duplicate address detection. */
static int worth(const struct ibv_gid_entry *entry)
{
    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
        return 1;
    return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)entry->gid.raw) ? 3 : 2;
}

/* Finds the best GID of an Ethernet port. */
static bool own_gid(struct rme_fabric *f, uint8_t port, int most,
                    struct ibv_global_route *route)
{
    struct ibv_gid_entry entry;
    int best = 0;
    for (int i = 0; i < most && i <= UINT8_MAX; i++) {
        if (ibv_query_gid_ex(f->dev.ctx, port, (uint32_t)i, &entry, 0) || worth(&entry) <= best)
            continue;
        best = worth(&entry);
        route->dgid = entry.gid;
        route->sgid_index = (uint8_t)i;
    }
    return best > 0;
}

/* Fills in the address of an active port.  Returns the port, 0 if none. */
static uint8_t own_address(struct rme_fabric *f, struct ibv_ah_attr *ah, enum ibv_mtu *mtu)
{
    for (unsigned port = 1; port <= f->dev.attr.phys_port_cnt; port++) {
        struct ibv_port_attr attr;
        if (ibv_query_port(f->dev.ctx, (uint8_t)port, &attr) || attr.state != IBV_PORT_ACTIVE)
            continue;
        *ah = (struct ibv_ah_attr){.dlid = attr.lid, .port_num = (uint8_t)port};
        ah->is_global = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
        ah->grh.hop_limit = 1;
        *mtu = attr.active_mtu;
        if (!ah->is_global || own_gid(f, (uint8_t)port, attr.gid_tbl_len, &ah->grh))
            return (uint8_t)port;
    }
    return 0;
}

static bool connect_to_itself(struct rme_fabric *f, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .qp_access_flags =
                                   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
                               .max_rd_atomic = f->dev.read_depth,
                               .max_dest_rd_atomic = f->dev.read_depth,
                               .dest_qp_num = qp->qp_num,
                               .min_rnr_timer = 12,
                               .timeout = 14,
                               .retry_cnt = 2,
                               .rnr_retry = 2};
    attr.port_num = own_address(f, &attr.ah_attr, &attr.path_mtu);
    if (!attr.port_num ||
        ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        return false;
    attr.qp_state = IBV_QPS_RTR;
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        return false;
    attr.qp_state = IBV_QPS_RTS;
    return !ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* On failure the caller calls probe_close(). */
static bool probe_open(struct rme_fabric *f, struct probe *p)
{
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = PIECES,
                                            .max_recv_wr = 1,
                                            .max_send_sge = PIECES,
                                            .max_recv_sge = 1}};
    if (attr.cap.max_send_sge > f->caps.max_sge)
        attr.cap.max_send_sge = f->caps.max_sge;
    if (attr.cap.max_send_wr > f->dev.sq_depth)
        attr.cap.max_send_wr = f->dev.sq_depth;
    p->pieces = attr.cap.max_send_sge < attr.cap.max_send_wr ? attr.cap.max_send_sge
                                                             : attr.cap.max_send_wr;
    p->memory = mmap(NULL, 2 * AREA, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p->pieces < 2 || p->memory == MAP_FAILED)
        return false;
    p->mr =
        ibv_reg_mr(f->dev.pd, p->memory, 2 * AREA,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    p->cq = p->mr ? ibv_create_cq(f->dev.ctx, PIECES, NULL, NULL, 0) : NULL;
    attr.send_cq = attr.recv_cq = p->cq;
    p->qp = p->cq ? ibv_create_qp(f->dev.pd, &attr) : NULL;
    return p->qp && connect_to_itself(f, p->qp);
}

static void probe_close(struct probe *p)
{
    if (p->qp)
        ibv_destroy_qp(p->qp);
    if (p->cq)
        ibv_destroy_cq(p->cq);
    if (p->mr)
        ibv_dereg_mr(p->mr);
    if (p->memory != MAP_FAILED)
        munmap(p->memory, 2 * AREA);
}

/* Builds one WR for all pieces, or one WR per piece. */
static void prepare(const struct probe *p, enum shape shape, struct ibv_send_wr *wr,
                    struct ibv_sge *sge)
{
    bool chained = shape == CHAINED || shape == READ_CHAINED;
    bool reads = shape == READ || shape == READ_CHAINED;
    uint32_t requests = chained ? p->pieces : 1;
    uintptr_t near = (uintptr_t)p->memory, far = near + AREA;
    for (uint32_t i = 0; i < p->pieces; i++)
        sge[i] =
            (struct ibv_sge){.addr = near + (uintptr_t)i * (shape == GATHERED ? APART : PIECE),
                             .length = PIECE,
                             .lkey = p->mr->lkey};
    if (shape == PLAIN || shape == READ)
        sge[0].length = p->pieces * PIECE;
    for (uint32_t i = 0; i < requests; i++) {
        wr[i] = (struct ibv_send_wr){.next = i + 1 < requests ? &wr[i + 1] : NULL,
                                     .sg_list = &sge[i],
                                     .num_sge = shape == GATHERED ? (int)p->pieces : 1,
                                     .opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                                     .send_flags = i + 1 < requests ? 0 : IBV_SEND_SIGNALED};
        wr[i].wr.rdma.remote_addr = far + (uintptr_t)i * APART;
        wr[i].wr.rdma.rkey = p->mr->rkey;
    }
}

/* Posts one shape and polls for its CQE.  Returns ns, 0 on failure. */
static uint64_t run(void *arg, uint32_t shape)
{
    struct probe *p = arg;
    struct ibv_send_wr wr[PIECES], *bad;
    struct ibv_sge sge[PIECES];
    struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
    int n;
    prepare(p, shape, wr, sge);
    uint64_t begin = rme_now_ns();
    if (ibv_post_send(p->qp, wr, &bad))
        return 0;
    do
        n = ibv_poll_cq(p->cq, 1, &wc);
    while (n == 0 && rme_now_ns() - begin < LATE_NS);
    return n == 1 && wc.status == IBV_WC_SUCCESS ? rme_now_ns() - begin + 1 : 0;
}

/* Returns the extra ns of each piece after the first. */
static uint32_t each(const struct probe *p, uint64_t longer, uint64_t plain)
{
    return longer > plain ? (uint32_t)((longer - plain) / (p->pieces - 1)) : 0;
}

bool ib_measure(struct rme_fabric *f, struct rme_rdma_seg_costs *out)
{
    struct probe p = {.memory = MAP_FAILED};
    uint64_t best[SHAPES] = {0};
    bool done = probe_open(f, &p);
    struct rme_trial trial = {f->dev.read_depth ? SHAPES : READ, 1, 2, 8,
                              rme_now_ns() + BUDGET_NS};
    done = done && rme_trial(&trial, run, &p, best);
    if (done) {
        uint32_t writes = each(&p, best[CHAINED], best[PLAIN]);
        uint32_t reads = each(&p, best[READ_CHAINED], best[READ]);
        *out = (struct rme_rdma_seg_costs){.segment_ns = each(&p, best[GATHERED], best[PLAIN]),
                                           .request_ns = writes,
                                           .read_ns = reads > writes ? reads - writes : 0};
    }
    probe_close(&p);
    return done;
}
