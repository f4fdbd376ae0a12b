/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rails.c - selection of the rail of a connection.
 *
 * A link is one QP, on one rail.  The connecting side chooses: connections start with the rails
 * in turn, and processes with different ones.  The passive side uses the rail of the request.
 *
 * Routes: a route is a rail and one of the peer's addresses.  A connection uses a rail if its
 * source address is one of the rail's.  A route is near if the peer's address is in a network
 * of the rail.  All near routes are tried, and each rail begins with another address of the
 * peer, to use all of the peer's rails.  If no rail is near, the system's routing decides, as
 * with one device, and the link moves to the routed rail.
 *
 * Dead rails and rails without an active port are skipped, so a failed link comes up over
 * another rail.  A dead device of the peer is not reported: requests are not answered, and
 * rdma_cm retries for a minute.  A route is therefore abandoned after IB_ROUTE_TIMEOUT_MS,
 * while another exists.
 *
 * At open, rdma_cm reports the device of each local address that is bound.  The addresses in
 * the GID tables of RoCE are added.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/link/links.h"

struct ib_rail *ib_rail_of(const struct rme_fabric *f, const struct ibv_context *ctx)
{
    for (unsigned i = 0; i < f->rails; i++)
        if (ctx != NULL && f->rail[i]->dev.ctx == ctx)
            return f->rail[i];
    return NULL;
}

/* ---- Addresses ---- */

/* Returns the bytes of an address: 4 or 16; 0 for another family. */
static size_t bytes_of(const struct sockaddr *sa, const uint8_t **out)
{
    if (sa->sa_family == AF_INET) {
        *out = (const uint8_t *)&((const struct sockaddr_in *)sa)->sin_addr;
        return 4;
    }
    *out = (const uint8_t *)&((const struct sockaddr_in6 *)sa)->sin6_addr;
    return sa->sa_family == AF_INET6 ? 16 : 0;
}

static bool in_network(const struct sockaddr *x, const struct sockaddr *y, const uint8_t *mask)
{
    const uint8_t *a, *b;
    size_t n = bytes_of(x, &a);

    if (n == 0 || bytes_of(y, &b) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((a[i] ^ b[i]) & mask[i])
            return false;
    return true;
}

static const uint8_t exactly[16] = {255, 255, 255, 255, 255, 255, 255, 255,
                                    255, 255, 255, 255, 255, 255, 255, 255};

/*
 * Finds the mask of the network of an address.  An interface with this address has it; of
 * several the widest mask counts.  Otherwise the narrowest network of an interface counts, as
 * in routing; without one, the address alone.
 */
static void mask_of(const struct ifaddrs *all, const struct sockaddr *sa, uint8_t *mask)
{
    bool own = false, found = false;
    memcpy(mask, exactly, sizeof(exactly));
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        const uint8_t *m;
        size_t n;
        bool same;
        int wider;
        if (i->ifa_addr == NULL || i->ifa_netmask == NULL ||
            i->ifa_addr->sa_family != sa->sa_family)
            continue;
        n = i->ifa_addr->sa_family == AF_INET ? 4 : 16;
        /* the family of a mask is not always set */
        m = n == 4 ? (const uint8_t *)&((const struct sockaddr_in *)i->ifa_netmask)->sin_addr
                   : (const uint8_t *)&((const struct sockaddr_in6 *)i->ifa_netmask)->sin6_addr;
        same = in_network(i->ifa_addr, sa, exactly);
        if (!in_network(i->ifa_addr, sa, m) || (own && !same))
            continue;
        wider = memcmp(m, mask, n);
        if (!found || (same && !own) || (same ? wider < 0 : wider > 0))
            memcpy(mask, m, n);
        own = same;
        found = true;
    }
}

static int own_add(struct ib_rail *rail, const struct ifaddrs *all, const struct sockaddr *sa)
{
    char text[IB_PEER_MAX];
    struct ib_own *more, *own;
    for (unsigned i = 0; i < rail->owns; i++)
        if (in_network((struct sockaddr *)&rail->own[i].sa, sa, exactly))
            return 0;
    more = realloc(rail->own, (rail->owns + 1) * sizeof(*more));
    if (more == NULL)
        return -ENOMEM;
    rail->own = more;
    own = &more[rail->owns++];
    memset(own, 0, sizeof(*own));
    memcpy(&own->sa, sa, ib_sockaddr_size(sa));
    mask_of(all, sa, own->mask);
    ib_sockaddr_text(&own->sa, text, sizeof(text));
    ib_log(rail, RME_LOG_DEBUG, "rail %s has %s", rail->dev.name, text);
    return 0;
}

/* Returns the rail of a local address; NULL: none. */
static struct ib_rail *owner_of(struct rme_fabric *f, const struct sockaddr *sa)
{
    struct sockaddr_storage copy = {0};
    struct rdma_cm_id *id;
    struct ib_rail *rail = NULL;
    memcpy(&copy, sa, ib_sockaddr_size(sa));
    if (rdma_create_id(f->cm, &id, NULL, RDMA_PS_TCP))
        return NULL;
    if (rdma_bind_addr(id, (struct sockaddr *)&copy) == 0)
        rail = ib_rail_of(f, id->verbs);
    rdma_destroy_id(id);
    return rail;
}

static bool usable_address(const struct sockaddr *sa)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;
    return sa != NULL && (sa->sa_family == AF_INET || (sa->sa_family == AF_INET6 &&
                                                       !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)));
}

static int find_addresses(struct rme_fabric *f, const struct ifaddrs *all)
{
    int error = 0;
    for (const struct ifaddrs *i = all; i != NULL && !error; i = i->ifa_next) {
        struct ib_rail *rail = usable_address(i->ifa_addr) ? owner_of(f, i->ifa_addr) : NULL;
        if (rail != NULL && !rail->source.ss_family)
            error = own_add(rail, all, i->ifa_addr);
    }
    for (unsigned i = 0; i < f->rails && !error; i++) {
        struct ib_rail *rail = f->rail[i];
        struct ibv_gid_entry *gid = NULL;
        struct sockaddr_storage sa;
        int n;
        if (rail->dev.ctx == NULL) /* not opened again */
            continue;
        sa = rail->source;
        n = sa.ss_family ? 0 : ib_path_gids(&rail->dev, &gid);
        if (sa.ss_family)
            error = own_add(rail, all, (struct sockaddr *)&sa);
        for (int k = 0; k < n && !error; k++)
            if (ib_path_address(&gid[k], &sa) && usable_address((struct sockaddr *)&sa))
                error = own_add(rail, all, (struct sockaddr *)&sa);
        free(gid);
    }
    return error;
}

int ib_rails_addresses(struct rme_fabric *f)
{
    struct ifaddrs *all = NULL;
    bool chosen = !rme_option_string(f->config.options, "gid")[0];
    int error;
    if (f->rails == 1)
        return 0;
    for (unsigned i = 0; i < f->rails; i++)
        chosen = chosen || f->rail[i]->source.ss_family;
    if (!chosen) {
        ib_log(f, RME_LOG_ERROR, "option gid: no device has this GID");
        return -ENODEV;
    }
    if (getifaddrs(&all))
        return ib_errno();
    for (unsigned i = 0; i < f->rails; i++)
        f->rail[i]->owns = 0;
    error = find_addresses(f, all);
    freeifaddrs(all);
    for (unsigned i = 0; i < f->rails && !error; i++)
        if (!f->rail[i]->owns && !f->rail[i]->dev.dead)
            ib_log(f, RME_LOG_WARN,
                   "device %s: no IP address: used for outgoing connections only where a route "
                   "leads to the device",
                   f->rail[i]->dev.name);
    return error;
}

struct sockaddr *ib_rail_source(const struct ib_rail *rail, const struct sockaddr *peer)
{
    for (unsigned i = 0; i < rail->owns; i++)
        if (in_network((struct sockaddr *)&rail->own[i].sa, peer, rail->own[i].mask))
            return (struct sockaddr *)&rail->own[i].sa;
    return NULL;
}

/* ---- Routes ---- */

static struct addrinfo *address_at(const struct rme_link *l, unsigned n)
{
    struct addrinfo *a = l->addresses;
    while (n--)
        a = a->ai_next;
    return a;
}

static unsigned addresses_of(const struct rme_link *l)
{
    unsigned n = 0;
    for (const struct addrinfo *a = l->addresses; a != NULL; a = a->ai_next)
        n++;
    return n;
}

/* Returns the rail of the first route from number *at on, with its address and whether it is
 * near; NULL: none.  Numbers of near routes precede those of routed ones. */
static struct ib_rail *find(const struct rme_link *l, unsigned *at, struct addrinfo **a,
                            bool *near)
{
    const struct rme_fabric *fabric = l->rail->fabric;
    struct ib_rail *any = NULL;
    unsigned addresses = addresses_of(l), pairs = fabric->rails * addresses;
    *near = false;
    for (unsigned i = 0; i < pairs; i++) {
        unsigned r = i / addresses;
        struct ib_rail *rail = fabric->rail[(l->first + r) % fabric->rails];
        *a = address_at(l, (i + r) % addresses);
        if (!rail->dev.dead && (any == NULL || (any->dev.down && !rail->dev.down)))
            any = rail;
        if (rail->dev.dead || rail->dev.down || ib_rail_source(rail, (*a)->ai_addr) == NULL)
            continue;
        *near = true;
        if (i < *at)
            continue;
        *at = i;
        return rail;
    }
    *at = *at > pairs ? *at : pairs;
    if (*near || *at >= pairs + addresses)
        return NULL;
    *a = address_at(l, *at - pairs);
    return any;
}

bool ib_rail_more(const struct rme_link *l)
{
    unsigned at = l->route_at;
    struct addrinfo *a;
    bool near;
    return l->address != NULL && find(l, &at, &a, &near) != NULL;
}

struct ib_rail *ib_rail_next(struct rme_link *l)
{
    struct ib_rail *rail = find(l, &l->route_at, &l->address, &l->bound);
    l->route_at += rail != NULL;
    return rail;
}
