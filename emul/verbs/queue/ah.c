/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Address handles, and the 40 bytes before a datagram.
 *
 * A request copies the contents of its address handle when posted, so the handle may be
 * destroyed while requests are queued. Creation checks whether the address belongs to this
 * machine.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PROTOCOL_UDP 17
#define GRH_NEXT     0x1b

static bool is_v4(const union ibv_gid *gid)
{
    static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(gid, prefix, sizeof(prefix)) == 0;
}

bool emu_gid_is_group(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xff || (is_v4(gid) && gid->raw[12] >> 4 == 0xe);
}

static enum emu_av_where where(const struct emu_dev *d, const struct ibv_ah_attr *a)
{
    if (a->is_global && emu_gid_is_group(&a->grh.dgid))
        return AV_GROUP;
    return emu_reachable(d, a) ? AV_HERE : AV_NOWHERE;
}

EMU_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct emu_dev *d = emu_dev_for(pd->context);
    struct emu_ah *ah = NULL;
    int err = 0;

    if (emu_call(CALL_ibv_create_ah))
        err = ENOMEM;
    else if (d == NULL)
        err = EIO;
    else if (!emu_port_there(d, attr->port_num) ||
             (attr->is_global && attr->grh.sgid_index >= emu_gids(d)) ||
             (d->knobs.ethernet && !attr->is_global))
        err = EINVAL;
    else if ((ah = calloc(1, sizeof(*ah))) == NULL)
        err = ENOMEM;
    if (err) {
        errno = err;
        return NULL;
    }
    ah->ah.context = pd->context;
    ah->ah.pd = pd;
    uint32_t device = emu_hca_of(pd->context)->index;
    ah->av.where = where(d, attr);
    ah->av.source = (uint8_t)EMU_PORT(device, attr->port_num);
    ah->av.pd = pd->handle;
    ah->av.sl = attr->sl & 15;
    ah->av.global = attr->is_global != 0;
    if (attr->is_global) {
        ah->av.dgid = attr->grh.dgid;
        ah->av.flow = attr->grh.flow_label & 0xfffff;
        ah->av.tclass = attr->grh.traffic_class;
        ah->av.hop = attr->grh.hop_limit;
        ah->av.sgid = attr->grh.sgid_index;
    }
    atomic_fetch_add(&((struct emu_pd *)pd)->users, 1);
    emu_count(COUNT_live_ah, 1);
    return &ah->ah;
}

EMU_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
    if (emu_call(CALL_ibv_destroy_ah) || emu_dev_for(ah->context) == NULL)
        return EIO;
    atomic_fetch_sub(&((struct emu_pd *)ah->pd)->users, 1);
    emu_uncount(COUNT_live_ah, 1);
    free(ah);
    return 0;
}

/* Returns the index of the GID to which a datagram was sent, by the kind of its header. */
static uint8_t index_of(struct ibv_context *context, uint8_t port, const union ibv_gid *to,
                        bool udp)
{
    const struct emu_dev *d = emu_dev_base();
    uint32_t i = emu_gids(d);
    union ibv_gid own;

    while (--i > 0) {
        emu_gid_at(d, EMU_PORT(emu_hca_of(context)->index, port), i, &own);
        if (memcmp(&own, to, sizeof(own)) == 0 &&
            (emu_gid_type(d, i) == IBV_GID_TYPE_ROCE_V2) == udp)
            break;
    }
    return (uint8_t)i;
}

/* Composes the sender's address from a received datagram. */
EMU_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
                                   struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
    const unsigned char *h = (const unsigned char *)grh;
    union ibv_gid to = {.raw = {[10] = 0xff, [11] = 0xff}};

    memset(attr, 0, sizeof(*attr));
    attr->dlid = wc->slid;
    attr->sl = wc->sl;
    attr->src_path_bits = wc->dlid_path_bits;
    attr->port_num = port;
    if (!(wc->wc_flags & IBV_WC_GRH))
        return 0;
    attr->is_global = 1;
    attr->grh.hop_limit = 0xff;
    if (emu_dev_base()->knobs.ethernet && h[20] == 0x45) {
        attr->grh.dgid.raw[10] = attr->grh.dgid.raw[11] = 0xff;
        memcpy(attr->grh.dgid.raw + 12, h + 32, 4);
        attr->grh.traffic_class = h[21];
        memcpy(to.raw + 12, h + 36, 4);
        attr->grh.sgid_index = index_of(context, port, &to, true);
        return 0;
    }
    memcpy(&attr->grh.dgid, h + 8, sizeof(attr->grh.dgid));
    memcpy(&to, h + 24, sizeof(to));
    attr->grh.sgid_index = index_of(context, port, &to, h[6] == PROTOCOL_UDP);
    attr->grh.traffic_class = (uint8_t)(h[0] << 4 | h[1] >> 4);
    attr->grh.flow_label = (uint32_t)(h[1] & 15) << 16 | (uint32_t)h[2] << 8 | h[3];
    return 0;
}

EMU_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
                                                struct ibv_grh *grh, uint8_t port)
{
    struct ibv_ah_attr attr;

    ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr);
    return ibv_create_ah(pd, &attr);
}

int emu_ah_fill(struct emu_wr *w, const struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
    if (ah == NULL || qpn >= 1u << 24)
        return EINVAL;
    w->av = ((const struct emu_ah *)ah)->av;
    w->av.qpn = qpn;
    w->av.qkey = qkey;
    return 0;
}

static void put16(unsigned char *to, uint32_t v)
{
    to[0] = (unsigned char)(v >> 8);
    to[1] = (unsigned char)v;
}

/* On Ethernet with IPv4 the header occupies the last 20 bytes. */
static void ipv4_header(const struct emu_av *av, const union ibv_gid *own, uint32_t rest,
                        unsigned char h[20])
{
    uint32_t sum = 0;

    h[0] = 0x45;
    h[1] = av->tclass;
    put16(h + 2, rest + 20 + 8);
    put16(h + 6, 0x4000); /* don't fragment */
    h[8] = av->hop;
    h[9] = PROTOCOL_UDP;
    memcpy(h + 12, own->raw + 12, 4);
    memcpy(h + 16, av->dgid.raw + 12, 4);
    for (unsigned i = 0; i < 20; i += 2)
        sum += (uint32_t)h[i] << 8 | h[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    put16(h + 10, ~sum & 0xffff);
}

void emu_ah_header(struct emu_dev *d, const struct emu_av *av, uint32_t payload,
                   unsigned char header[EMU_GRH])
{
    union ibv_gid own;
    uint32_t rest = payload + 12 + 8 + 4; /* two headers and the checksum */

    memset(header, 0, EMU_GRH);
    if (!av->global)
        return;
    emu_gid_at(d, av->source, av->sgid, &own);
    bool udp = emu_gid_type(d, av->sgid) == IBV_GID_TYPE_ROCE_V2;
    if (udp && is_v4(&av->dgid)) {
        ipv4_header(av, &own, rest, header + 20);
        return;
    }
    header[0] = (unsigned char)(6 << 4 | av->tclass >> 4);
    header[1] = (unsigned char)(av->tclass << 4 | av->flow >> 16);
    put16(header + 2, av->flow);
    put16(header + 4, udp ? rest + 8 : rest);
    header[6] = udp ? PROTOCOL_UDP : GRH_NEXT;
    header[7] = av->hop;
    memcpy(header + 8, &own, 16);
    memcpy(header + 24, &av->dgid, 16);
}
