/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Raw packet QPs on Ethernet: programs send whole frames and receive frames selected by their
 * flows.
 *
 * A frame is visible to all ports, as with a hub. Delivery is to the matching
 * flows of the best priority in all processes; a frame without a matching flow is lost. Nothing
 * is sent on a real network.
 *
 * The flows of a process are in its segment, for senders to read. Processes with flows are
 * announced as for multicast groups (mcast.c), by a name that is no group's. A flow replaced
 * while a sender reads it may be taken for its predecessor, as if the frame had arrived
 * earlier.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_PROCESSES 256u              /* most processes whose flows are searched */
#define HEAD          (14 + 4 + 60 + 4) /* most bytes of a frame examined by flows */

#define TYPE_VLAN 0x8100
#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd
#define PROTO_TCP 6
#define PROTO_UDP 17

struct emu_flow {
    struct ibv_flow flow;
    struct emu_qp *qp;
    struct shm_flow *s;
};

static const union ibv_gid flows; /* not a group */

bool emu_raw_permitted(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2];

    return syscall(SYS_capget, &head, caps) == 0 &&
           (caps[CAP_NET_RAW / 32].effective >> (CAP_NET_RAW % 32) & 1);
}

static unsigned get16(const unsigned char *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

/* Reads the ports behind an IP header, if present. */
static void read_ports(unsigned proto, const unsigned char *p, uint32_t n, struct shm_frame *f)
{
    if ((proto != PROTO_TCP && proto != PROTO_UDP) || n < 4)
        return;
    f->kinds |= proto == PROTO_TCP ? SHM_FRAME_TCP : SHM_FRAME_UDP;
    memcpy(&f->src_port, p, 2);
    memcpy(&f->dst_port, p + 2, 2);
}

static void read_ipv4(const unsigned char *p, uint32_t n, struct shm_frame *f)
{
    if (n < 20 || p[0] >> 4 != 4)
        return;
    uint32_t length = (p[0] & 15u) * 4;
    f->kinds |= SHM_FRAME_IPV4;
    f->tos = p[1];
    f->ttl = p[8];
    f->proto = p[9];
    memcpy(&f->src_v4, p + 12, 4);
    memcpy(&f->dst_v4, p + 16, 4);
    if (length >= 20 && n > length && !(get16(p + 6) & 0x1fff)) /* not a later fragment */
        read_ports(f->proto, p + length, n - length, f);
}

static void read_ipv6(const unsigned char *p, uint32_t n, struct shm_frame *f)
{
    if (n < 40 || p[0] >> 4 != 6)
        return;
    f->kinds |= SHM_FRAME_IPV6;
    f->tclass = (uint8_t)(p[0] << 4 | p[1] >> 4);
    f->flow_label = htobe32((uint32_t)(p[1] & 15) << 16 | get16(p + 2));
    f->next_hdr = p[6];
    f->hop = p[7];
    memcpy(f->src_v6, p + 8, 16);
    memcpy(f->dst_v6, p + 24, 16);
    read_ports(f->next_hdr, p + 40, n - 40, f);
}

/* Parses the head of a frame; false if invalid. */
static bool read_frame(const unsigned char *p, uint32_t n, struct shm_frame *f)
{
    uint32_t at = 14;

    memset(f, 0, sizeof(*f));
    if (n < at)
        return false;
    memcpy(f->dst_mac, p, 6);
    memcpy(f->src_mac, p + 6, 6);
    unsigned type = get16(p + 12);
    if (type == TYPE_VLAN && n >= 18) {
        f->kinds |= SHM_FRAME_VLAN;
        memcpy(&f->vlan_tag, p + 14, 2);
        type = get16(p + 16);
        at = 18;
    }
    f->ether_type = htobe16((uint16_t)type);
    if (type == TYPE_IPV4)
        read_ipv4(p + at, n - at, f);
    else if (type == TYPE_IPV6)
        read_ipv6(p + at, n - at, f);
    return true;
}

static bool fits(const struct shm_flow *s, const struct shm_frame *f)
{
    const unsigned char *v = (const unsigned char *)&s->value, *frame = (const void *)f;
    const unsigned char *m = (const unsigned char *)&s->mask;

    for (size_t i = 0; i < sizeof(*f); i++)
        if ((frame[i] ^ v[i]) & m[i])
            return false;
    return true;
}

/* Matching QPs so far, all of one priority. */
struct found {
    uint32_t priority, n, max, *qpn;
};

static void find_in(const struct shm_head *seg, const struct shm_frame *f, struct found *to)
{
    for (uint32_t i = 0; i < EMU_MAX_FLOWS; i++) {
        const struct shm_flow *s = shm_flow(seg, i);
        uint32_t qpn = atomic_load(&s->qpn), priority = s->priority;
        bool known = false;
        /* a process may request frames for its own QPs only */
        if (!qpn || qpn >> EMU_QP_BITS != seg->slot || (to->n && priority > to->priority) ||
            !fits(s, f))
            continue;
        if (to->n && priority < to->priority)
            to->n = 0;
        to->priority = priority;
        for (uint32_t k = 0; k < to->n && !known; k++)
            known = to->qpn[k] == qpn; /* a QP gets a frame once */
        if (!known && to->n < to->max)
            to->qpn[to->n++] = qpn;
    }
}

uint32_t emu_flow_find(struct emu_dev *d, const struct iovec *frame, unsigned n,
                       uint32_t length, uint32_t *qpn, uint32_t max)
{
    unsigned char head[HEAD];
    struct iovec part[EMU_MAX_SGE];
    uint32_t slots[MAX_PROCESSES], left = length < HEAD ? length : HEAD;
    struct found to = {.max = max, .qpn = qpn};
    struct shm_frame f;
    unsigned parts = 0;

    for (unsigned i = 0; i < n && left; i++, parts++) {
        part[i] = frame[i];
        if (part[i].iov_len > left)
            part[i].iov_len = left;
        left -= (uint32_t)part[i].iov_len;
    }
    length = length < HEAD ? length : HEAD;
    if (left || emu_copy_own(head, part, parts, length) || !read_frame(head, length, &f))
        return 0;
    if (atomic_load(&d->flows))
        find_in(d->seg, &f, &to);
    unsigned others = emu_mcast_slots(d, &flows, slots, MAX_PROCESSES);
    for (unsigned i = 0; i < others; i++) {
        struct emu_peer *p = emu_peer_get(d, slots[i]);
        if (p != NULL)
            find_in(p->seg, &f, &to);
        emu_peer_put(d, p);
    }
    return to.n;
}

#define FIELD(to, member)                                                                      \
    do {                                                                                       \
        _Static_assert(sizeof(s->value.to) == sizeof(spec.val.member), "as wide");             \
        memcpy(&s->value.to, &spec.val.member, sizeof(s->value.to));                           \
        memcpy(&s->mask.to, &spec.mask.member, sizeof(s->mask.to));                            \
    } while (0)

/* Adds the fields of one specification of checked size; returns 0 or a positive errno. */
static int add_eth(struct shm_flow *s, const void *at)
{
    struct ibv_flow_spec_eth spec;

    memcpy(&spec, at, sizeof(spec));
    FIELD(dst_mac, dst_mac);
    FIELD(src_mac, src_mac);
    FIELD(ether_type, ether_type);
    FIELD(vlan_tag, vlan_tag);
    if (spec.mask.vlan_tag)
        s->value.kinds |= SHM_FRAME_VLAN;
    return 0;
}

static int add_ipv4(struct shm_flow *s, const void *at)
{
    struct ibv_flow_spec_ipv4 spec;

    memcpy(&spec, at, sizeof(spec));
    FIELD(src_v4, src_ip);
    FIELD(dst_v4, dst_ip);
    s->value.kinds |= SHM_FRAME_IPV4;
    return 0;
}

static int add_ipv4_ext(struct shm_flow *s, const void *at)
{
    struct ibv_flow_spec_ipv4_ext spec;

    memcpy(&spec, at, sizeof(spec));
    if (spec.mask.flags)
        return EOPNOTSUPP;
    FIELD(src_v4, src_ip);
    FIELD(dst_v4, dst_ip);
    FIELD(proto, proto);
    FIELD(tos, tos);
    FIELD(ttl, ttl);
    s->value.kinds |= SHM_FRAME_IPV4;
    return 0;
}

static int add_ipv6(struct shm_flow *s, const void *at)
{
    struct ibv_flow_spec_ipv6 spec;

    memcpy(&spec, at, sizeof(spec));
    FIELD(src_v6, src_ip);
    FIELD(dst_v6, dst_ip);
    FIELD(flow_label, flow_label);
    FIELD(next_hdr, next_hdr);
    FIELD(tclass, traffic_class);
    FIELD(hop, hop_limit);
    s->value.kinds |= SHM_FRAME_IPV6;
    return 0;
}

static int add_ports(struct shm_flow *s, const void *at)
{
    struct ibv_flow_spec_tcp_udp spec;

    memcpy(&spec, at, sizeof(spec));
    FIELD(src_port, src_port);
    FIELD(dst_port, dst_port);
    s->value.kinds |= spec.type == IBV_FLOW_SPEC_TCP ? SHM_FRAME_TCP : SHM_FRAME_UDP;
    return 0;
}

static const struct kind {
    enum ibv_flow_spec_type type;
    uint16_t size;
    int (*add)(struct shm_flow *s, const void *at);
} kinds[] = {
    {IBV_FLOW_SPEC_ETH, sizeof(struct ibv_flow_spec_eth), add_eth},
    {IBV_FLOW_SPEC_IPV4, sizeof(struct ibv_flow_spec_ipv4), add_ipv4},
    {IBV_FLOW_SPEC_IPV4_EXT, sizeof(struct ibv_flow_spec_ipv4_ext), add_ipv4_ext},
    {IBV_FLOW_SPEC_IPV6, sizeof(struct ibv_flow_spec_ipv6), add_ipv6},
    {IBV_FLOW_SPEC_TCP, sizeof(struct ibv_flow_spec_tcp_udp), add_ports},
    {IBV_FLOW_SPEC_UDP, sizeof(struct ibv_flow_spec_tcp_udp), add_ports},
};

static const struct kind *kind_of(enum ibv_flow_spec_type type)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (kinds[i].type == type)
            return &kinds[i];
    return NULL;
}

/* Parses the specifications of a flow; returns 0 or a positive errno. */
static int read_flow(struct shm_flow *s, const struct ibv_flow_attr *a)
{
    const char *at = (const char *)(a + 1);
    int err = 0;

    if (a->comp_mask || a->flags || a->type != IBV_FLOW_ATTR_NORMAL)
        return EOPNOTSUPP;
    if (!a->num_of_specs)
        return EINVAL;
    for (unsigned i = 0; i < a->num_of_specs && !err; i++) {
        struct ibv_flow_spec_action_drop head; /* common head of all specifications */
        memcpy(&head, at, sizeof(head));
        const struct kind *k = kind_of(head.type);
        if (k == NULL)
            return EOPNOTSUPP;
        err = head.size == k->size ? k->add(s, at) : EINVAL;
        at += k->size;
    }
    s->mask.kinds = s->value.kinds;
    s->priority = a->priority;
    return err;
}

/* Puts the flow into the table searched by senders; returns 0 or a positive errno. */
static int publish(struct emu_dev *d, struct emu_flow *f, const struct shm_flow *s)
{
    int err = ENOMEM;

    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < EMU_MAX_FLOWS && f->s == NULL; i++)
        if (!atomic_load(&shm_flow(d->seg, i)->qpn))
            f->s = shm_flow(d->seg, i);
    if (f->s != NULL)
        err = emu_mcast_hold(d, &flows);
    if (!err) {
        f->s->priority = s->priority;
        f->s->value = s->value;
        f->s->mask = s->mask;
        atomic_store(&f->s->qpn, f->qp->qp.qp_num);
        f->qp->groups++;
        atomic_fetch_add(&d->flows, 1);
    }
    pthread_mutex_unlock(&d->lock);
    return err;
}

struct ibv_flow *emu_create_flow(struct ibv_qp *ibqp, struct ibv_flow_attr *attr)
{
    struct emu_dev *d = emu_dev_for(ibqp->context);
    struct emu_flow *f = NULL;
    struct shm_flow s = {0};
    int err;

    if (emu_call(CALL_ibv_create_flow))
        err = ENOMEM;
    else if (d == NULL)
        err = EIO;
    else if (ibqp->qp_type != IBV_QPT_RAW_PACKET || !emu_port_there(d, attr->port))
        err = EINVAL;
    else
        err = read_flow(&s, attr);
    if (!err && (f = calloc(1, sizeof(*f))) == NULL)
        err = ENOMEM;
    if (!err) {
        f->qp = (struct emu_qp *)ibqp;
        f->flow.context = ibqp->context;
        err = publish(d, f, &s);
    }
    if (err) {
        free(f);
        errno = err;
        return NULL;
    }
    emu_count(COUNT_live_flow, 1);
    return &f->flow;
}

int emu_destroy_flow(struct ibv_flow *flow)
{
    struct emu_flow *f = (struct emu_flow *)flow;
    struct emu_dev *d = emu_dev_for(flow->context);

    if (emu_call(CALL_ibv_destroy_flow) || d == NULL)
        return EIO;
    pthread_mutex_lock(&d->lock);
    atomic_store(&f->s->qpn, 0);
    f->qp->groups--;
    atomic_fetch_sub(&d->flows, 1);
    emu_mcast_drop(d, &flows);
    pthread_mutex_unlock(&d->lock);
    free(f);
    emu_uncount(COUNT_live_flow, 1);
    return 0;
}
