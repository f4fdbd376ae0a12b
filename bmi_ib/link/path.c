/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * path.c - source, traffic class and resulting path of a connection.
 *
 * Class: a connection has one service level and one traffic class for all messages of its QP.
 * rdma_cm takes a type of service (option traffic_class) before the route is resolved.  On
 * Ethernet this is the traffic class of the packets, which the host maps to a priority.  On
 * InfiniBand, between IPv4 addresses, this is the QoS class of the query to the subnet manager,
 * whose reply has the service level; for other addresses Linux uses sin6_flowinfo, which is not
 * set here.  Service levels are not set directly, because only the subnet manager knows those
 * without deadlocks.  The request carries both, and the peer's kernel adopts them, so the
 * connecting side decides for both directions.
 *
 * Source: an Ethernet port has a GID for each address of its interface and each version of
 * RoCE.  rdma_cm uses the one of the source address, in the port's version from
 * /sys/kernel/config/rdma_cm.  The option gid therefore selects a source address.  The GID in
 * use is queried from the QP once its path is set.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/device/port.h"
#include "bmi_ib/link/links.h"

static const char *type_name(uint32_t type)
{
    return type == IBV_GID_TYPE_ROCE_V2   ? "RoCE v2"
           : type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1"
                                          : "InfiniBand";
}

bool ib_path_address(const struct ibv_gid_entry *e, struct sockaddr_storage *sa)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)sa;
    struct in6_addr a;

    memset(sa, 0, sizeof(*sa));
    memcpy(&a, e->gid.raw, sizeof(a));
    if (IN6_IS_ADDR_V4MAPPED(&a)) {
        sa->ss_family = AF_INET;
        memcpy(&((struct sockaddr_in *)sa)->sin_addr, a.s6_addr + 12, 4);
    } else {
        v6->sin6_family = AF_INET6;
        v6->sin6_addr = a;
        if (IN6_IS_ADDR_LINKLOCAL(&a))
            v6->sin6_scope_id = e->ndev_ifindex;
    }
    return e->gid_type != IBV_GID_TYPE_IB;
}

/* ---- Choice ---- */

int ib_path_gids(const struct ib_device *d, struct ibv_gid_entry **out)
{
    size_t most = 0;

    for (unsigned p = 1; p <= d->attr.phys_port_cnt; p++) {
        struct ibv_port_attr port;
        if (!ibv_query_port(d->ctx, (uint8_t)p, &port))
            most += (size_t)port.gid_tbl_len;
    }
    *out = calloc(most + 1, sizeof(**out));
    return *out != NULL ? (int)ibv_query_gid_table(d->ctx, *out, most + 1, 0) : -ENOMEM;
}

/* Lists the GIDs that connections may use, as many as fit. */
static void usable_text(const struct ibv_gid_entry *entry, int n, char *text, size_t size)
{
    char name[INET6_ADDRSTRLEN];
    size_t len = 0;

    snprintf(text, size, "no IP address");
    for (int i = 0; i < n; i++) {
        if (entry[i].gid_type == IBV_GID_TYPE_IB)
            continue;
        if (len + sizeof(name) + 16 > size) {
            snprintf(text + len, size - len, ", and more");
            return;
        }
        inet_ntop(AF_INET6, entry[i].gid.raw, name, sizeof(name));
        len += (size_t)snprintf(text + len, size - len, "%s%s", len ? ", " : "", name);
    }
}

int ib_path_open(struct ib_rail *rail)
{
    const char *all = rme_option_string(rail->config.options, "gid");
    bool several = rail->fabric->rails > 1;
    bool one = strchr(all, '+') == NULL; /* applies to each rail that has the GID */
    char text[64] = "";                  /* a longer value is not an address */
    union ibv_gid wanted = {.raw = {[10] = 0xff, [11] = 0xff}};
    struct ibv_gid_entry *entry = NULL;
    int n;
    bool found = false;

    ib_part(all, one ? 0 : rail->place, text, sizeof(text));
    if (!text[0])
        return 0;
    if (inet_pton(AF_INET, text, wanted.raw + 12) != 1 &&
        inet_pton(AF_INET6, text, wanted.raw) != 1) {
        ib_log(rail, RME_LOG_ERROR, "option gid=%s: not an IP address", text);
        return -EINVAL;
    }
    n = ib_path_gids(&rail->dev, &entry);
    for (int i = 0; i < n && !found; i++)
        if (entry[i].gid_type != IBV_GID_TYPE_IB &&
            memcmp(&entry[i].gid, &wanted, sizeof(wanted)) == 0) {
            found = ib_path_address(&entry[i], &rail->source);
            ib_log(rail, RME_LOG_INFO, "outgoing connections use %s of port %u", text,
                   entry[i].port_num);
        }
    if (!found) {
        char has[320];
        usable_text(entry, n, has, sizeof(has));
        ib_log(rail, one && several ? RME_LOG_INFO : RME_LOG_ERROR,
               "option gid=%s: no port of device %s has this address; available: %s; on "
               "InfiniBand use the option device",
               text, rail->dev.name, has);
    }
    free(entry);
    return found || (one && several) ? 0 : -ENODEV;
}

/*
 * Finds the source address.  If the host asked to listen on certain addresses only, connections
 * leave from the one of the peer's family, so that they use its device instead of the routed
 * one.
 */
int ib_path_source(const struct ib_rail *rail, const struct sockaddr *peer,
                   struct sockaddr_storage *own, struct sockaddr **out)
{
    const struct rme_fabric *fabric = rail->fabric;
    *out = NULL;
    if (rail->source.ss_family) {
        *own = rail->source;
        *out = (struct sockaddr *)own;
        return own->ss_family == peer->sa_family ? 0 : -EAFNOSUPPORT;
    }
    for (unsigned i = 0; rail->config.bind_specific && i < fabric->listeners; i++) {
        const struct sockaddr *sa = rdma_get_local_addr(fabric->listener[i]);
        if (sa->sa_family != peer->sa_family)
            continue;
        memcpy(own, sa, ib_sockaddr_size(sa));
        *out = (struct sockaddr *)own;
        *ib_sockaddr_port(*out) = 0;
        break;
    }
    return 0;
}

/* ---- The resulting path ---- */

static const char *why(const struct rme_link *l)
{
    if (l->passive)
        return "chosen by the peer";
    if (l->rail->source.ss_family)
        return "address of the option gid";
    if (l->bound)
        return "address of this device in the peer's network";
    return l->rail->config.bind_specific ? "listening address"
                                         : "source address of the route to the peer";
}

static void rails_text(const struct rme_link *l, FILE *out)
{
    const struct rme_fabric *fabric = l->rail->fabric;
    for (unsigned i = 0; fabric->rails > 1 && i < fabric->rails; i++) {
        const struct ib_device *d = &fabric->rail[i]->dev;
        fprintf(out, "%s%s%s", i ? " + " : ", rails ", d->name,
                d->dead   ? " (failed)"
                : d->down ? " (down)"
                          : "");
    }
}

/* Appends rate and node of the device, and the partition.  Each is a call of the kernel. */
static void place_text(const struct rme_link *l, const struct ibv_qp_attr *attr, FILE *out)
{
    struct ibv_context *ctx = l->rail->dev.ctx;
    struct ibv_port_attr port = {0};
    uint8_t number = attr->ah_attr.port_num;
    int node = ib_numa_node(ctx->device);
    __be16 pkey;
    double rate = ibv_query_port(ctx, number, &port) ? 0 : ib_port_rate(&port);

    if (rate > 0)
        fprintf(out, "%g Gb/s, ", rate);
    if (node >= 0)
        fprintf(out, "NUMA node %d, ", node);
    else
        fputs("no NUMA node, ", out);
    if (!ibv_query_pkey(ctx, number, attr->pkey_index, &pkey))
        fprintf(out, "PKey 0x%04x, ", be16toh(pkey));
}

/* Without a global route header packets have LIDs only; the port's first GID is told then. */
static void gid_text(const struct rme_link *l, const struct ibv_ah_attr *a, bool all, FILE *out)
{
    unsigned index = a->is_global ? a->grh.sgid_index : 0;
    char gid[INET6_ADDRSTRLEN] = "";
    struct ibv_gid_entry e;

    if ((all || a->is_global) &&
        !ibv_query_gid_ex(l->rail->dev.ctx, a->port_num, index, &e, 0)) {
        inet_ntop(AF_INET6, e.gid.raw, gid, sizeof(gid));
        fprintf(out, "GID %u %s %s (%s), ", index, type_name(e.gid_type), gid,
                a->is_global ? why(l) : "not in the packets");
    }
    if (a->is_global)
        fprintf(out, "traffic class %u, ", a->grh.traffic_class);
    else
        fprintf(out, "to LID %u, ", a->dlid);
}

void ib_path_text(const struct rme_link *l, bool all, char *text, size_t size)
{
    const int mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_PKEY_INDEX;
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    FILE *out;

    text[0] = '\0';
    if (l->state != IB_UP || ibv_query_qp(l->qp, &attr, mask, &init))
        return; /* informational only */
    out = fmemopen(text, size, "w");
    if (out == NULL)
        return;
    fprintf(out, "%s port %u, ", l->rail->dev.name, attr.ah_attr.port_num);
    if (all)
        place_text(l, &attr, out);
    fprintf(out, "path MTU %u, ", 128u << attr.path_mtu);
    gid_text(l, &attr.ah_attr, all, out);
    fprintf(out, "service level %u", attr.ah_attr.sl);
    rails_text(l, out);
    fclose(out);
    text[size - 1] = '\0';
}

void ib_link_path(const struct rme_link *l, char *text, size_t size)
{
    ib_path_text(l, true, text, size);
}
