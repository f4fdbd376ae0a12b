/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * side.c - the secondary QP of a link: setup and teardown.
 *
 * An accepting side with several rails offers a secondary QP: the reply has, behind the
 * engine's hello, the addresses of its other rails and a secret.  The connecting side keeps the
 * offer until a transfer is large enough, which most connections never have.  If another rail
 * is near one of the addresses, this rail connects; the request names the link and the secret,
 * and is answered at once.  The request is validated like all input of a peer: a link has one
 * secondary QP, on another rail, and the secret must match.
 *
 * A secondary QP has no receives, so a peer that sends over it blocks only itself.
 *
 * Without a secondary QP, all transfers use the link's own rail.  A secondary QP that failed is
 * connected again when a transfer is large enough, with exponential back-off (stripe_retry_ms)
 * and from the next address on; the offer is valid as long as the link.  The accepting side may
 * not notice a loss, because the rail is lost.  A request for a secondary QP proves the loss of
 * the old one, which is then closed; this request is refused, and the next one succeeds.
 * queue/stripe.c describes which losses fail the link; both QPs are drained like any link.
 * LINK_DOWN of a link waits for its secondary QP.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "bmi_ib/link/links.h"

/* Offer, behind IB_HELLO_MAX bytes for the engine: magic (4 bytes), handle (4), secret (8),
 * number of addresses (1), 0 (1), port (2), and for each address its family, 4 or 6, and 16
 * bytes.  Request: its first 16 bytes, with another magic.  See also doc/wire-protocol.md. */
#define OFFER   0x4f454d52u /* "RMEO" */
#define REQUEST 0x53454d52u /* "RMES" */
#define HEAD    20          /* bytes of an offer without addresses */
#define NAME    16          /* bytes of an offer that a request repeats */
#define ADDRESS 17
#define MOST    ((IB_ANSWER_MAX - IB_HELLO_MAX - HEAD) / ADDRESS)
#define COUNT   16 /* offsets of these fields in an offer */
#define PORT    18

#define MOST_DOUBLED 6 /* maximum doublings of stripe_retry_ms */

static uint32_t get32(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof(v));
    return le32toh(v);
}

static uint64_t get64(const uint8_t *at)
{
    return (uint64_t)get32(at + 4) << 32 | get32(at);
}

static void put32(uint8_t *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof(v));
}

static void put_name(uint8_t *at, uint32_t magic, uint32_t handle, uint64_t secret)
{
    put32(at, magic);
    put32(at + 4, handle);
    put32(at + 8, (uint32_t)secret);
    put32(at + 12, (uint32_t)(secret >> 32));
}

/* ---- The offer ---- */

static void put_address(uint8_t *at, const struct sockaddr *sa)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;
    memset(at, 0, ADDRESS);
    at[0] = sa->sa_family == AF_INET ? 4 : 6;
    if (at[0] == 4)
        memcpy(at + 1, &v4->sin_addr, 4);
    else
        memcpy(at + 1, &v6->sin6_addr, 16);
}

/* Returns the port of this address, if the host listens at all addresses or at this one; else a
 * negative number. */
static int served_at(const struct rme_fabric *head, const struct sockaddr *sa)
{
    uint8_t wanted[ADDRESS], have[ADDRESS];
    if (!head->config.bind_specific)
        return ib_listen_port(head);
    put_address(wanted, sa);
    for (unsigned i = 0; i < head->listeners; i++) {
        put_address(have, (struct sockaddr *)&head->listener[i].sa);
        if (memcmp(have, wanted, ADDRESS) == 0)
            return ntohs(rdma_get_src_port(head->listener[i].id));
    }
    return -1;
}

size_t ib_side_offer(struct rme_link *l, uint8_t *at)
{
    const struct rme_fabric *head = l->f->head;
    int port = -1; /* of the first address; addresses with another port are omitted */
    uint8_t count = 0;
    if (!head->railed || !head->stripe_bytes)
        return 0;
    for (unsigned r = 0; r < head->rails; r++)
        for (unsigned i = 0; i < head->rail[r]->owns && count < MOST; i++) {
            const struct sockaddr *sa = (struct sockaddr *)&head->rail[r]->own[i].sa;
            int there = head->rail[r] != l->f && ib_rail_usable(head->rail[r])
                            ? served_at(head, sa)
                            : -1;
            if (there < 0 || (count && there != port))
                continue;
            port = there;
            put_address(at + HEAD + ADDRESS * count++, sa);
        }
    if (!count ||
        getrandom(&l->secret, sizeof(l->secret), GRND_NONBLOCK) != (ssize_t)sizeof(l->secret))
        return 0;
    uint16_t number = htole16((uint16_t)port);
    put_name(at, OFFER, l->handle, l->secret);
    at[COUNT] = count;
    memcpy(at + PORT, &number, sizeof(number));
    return HEAD + ADDRESS * (size_t)count;
}

/* ---- Active side ---- */

static bool get_address(const uint8_t *at, const uint8_t *port, struct sockaddr_storage *out)
{
    uint16_t number;
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    memcpy(&number, port, sizeof(number));
    number = htons(le16toh(number));
    memset(out, 0, sizeof(*out));
    if (at[0] == 4) {
        v4->sin_family = AF_INET;
        memcpy(&v4->sin_addr, at + 1, 4);
        v4->sin_port = number;
    } else if (at[0] == 6) {
        v6->sin6_family = AF_INET6;
        memcpy(&v6->sin6_addr, at + 1, 16);
        v6->sin6_port = number;
    }
    return out->ss_family != 0;
}

/*
 * Returns true if the keys that the peer may hold for a secondary QP are valid on this rail.
 *
 * The keys are valid on one device.  Without memory windows a link survives the loss of a
 * secondary QP although the peer may hold such keys.  Once a key was given, later secondary QPs
 * of the link therefore use the same rail, or there is none.
 */
static bool fits(const struct rme_link *l, const struct rme_fabric *rail)
{
    return !l->keyed || l->keyed == rail->number + 1;
}

/* Returns another rail than the link's in the network of this address; NULL: none. */
static struct rme_fabric *near_rail(const struct rme_link *l, const struct sockaddr *sa)
{
    const struct rme_fabric *head = l->f->head;
    for (unsigned i = 1; i < head->rails; i++) {
        struct rme_fabric *rail = head->rail[(l->f->number + i) % head->rails];
        if (ib_rail_usable(rail) && fits(l, rail) && ib_rail_source(rail, sa))
            return rail;
    }
    return NULL;
}

void ib_side_join(struct rme_link *l, struct rme_link *side)
{
    side->is_side = true;
    side->main = l;
    l->side = side;
    l->may_stripe = true;
    l->gate = 0;
}

static void connect_side(struct rme_link *l, struct rme_fabric *rail,
                         const struct sockaddr_storage *sa, const uint8_t *name)
{
    char host[INET6_ADDRSTRLEN] = "", port[8];
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;
    struct rme_link *side = ib_link_new(rail);
    if (!side)
        return;
    ib_side_join(l, side);
    inet_ntop(sa->ss_family,
              sa->ss_family == AF_INET ? (const void *)&v4->sin_addr
                                       : (const void *)&v6->sin6_addr,
              host, sizeof(host));
    snprintf(port, sizeof(port), "%u",
             ntohs(sa->ss_family == AF_INET ? v4->sin_port : v6->sin6_port));
    ib_sockaddr_text(sa, side->peer, sizeof(side->peer));
    memcpy(side->hello, name, NAME);
    put32(side->hello, REQUEST);
    side->hello_length = NAME;
    side->bound = true;
    int error = ib_resolve_numeric(host, port, &side->addresses);
    side->address = side->addresses;
    if (!error)
        error = ib_link_start(side);
    if (!error)
        return;
    ib_log(rail, RME_LOG_INFO, "%s: no second device for transfers to %s: %s", side->peer,
           l->peer, strerror(-error));
    ib_link_destroy(side);
}

void ib_side_keep(struct rme_link *l, const uint8_t *offer, size_t length)
{
    if (!l->f->railed || !l->f->stripe_bytes || l->is_side || l->state != IB_UP ||
        length < HEAD || get32(offer) != OFFER)
        return;
    l->offer = malloc(length);
    if (!l->offer)
        return;
    memcpy(l->offer, offer, length);
    l->offer_length = length;
    l->may_stripe = true;
}

/* Connects to the first address that is near a rail, starting with another address each
 * time. */
static void seek(struct rme_link *l)
{
    const uint8_t *offer = l->offer;
    struct sockaddr_storage sa;
    size_t count = (l->offer_length - HEAD) / ADDRESS;
    if (offer[COUNT] < count)
        count = offer[COUNT];
    for (size_t i = 0; i < count; i++) {
        size_t at = (l->side_tries + i) % count;
        if (!get_address(offer + HEAD + ADDRESS * at, offer + PORT, &sa))
            continue;
        struct rme_fabric *rail = near_rail(l, (struct sockaddr *)&sa);
        if (rail) {
            connect_side(l, rail, &sa, offer);
            return;
        }
    }
}

void ib_side_wanted(struct rme_link *l)
{
    if (!l->offer || l->state != IB_UP || ib_now_ms() < l->side_at)
        return;
    uint64_t wait = (uint64_t)ib_option(l->f, "stripe_retry_ms");
    if (l->side_tries && wait && ib_now_ms() - l->side_at >= wait << MOST_DOUBLED)
        l->side_tries = 0; /* the last attempt is long ago */
    unsigned doubled = l->side_tries < MOST_DOUBLED ? l->side_tries : MOST_DOUBLED;
    l->side_at = wait ? ib_now_ms() + (wait << doubled) : UINT64_MAX;
    seek(l);
    l->side_tries++;
}

/* ---- Passive side ---- */

bool ib_side_is(const uint8_t *data, size_t length)
{
    return length >= NAME && get32(data) == REQUEST;
}

/* Returns the link that a request names, on another rail; NULL: none, or a wrong secret. */
static struct rme_link *named(const struct rme_fabric *rail, const uint8_t *request)
{
    const struct rme_fabric *head = rail->head;
    for (unsigned r = 0; r < head->rails; r++) {
        struct rme_link *l = ib_link_by_handle(head->rail[r], get32(request + 4));
        if (head->rail[r] != rail && l && l->secret && l->secret == get64(request + 8) &&
            (l->state == IB_UP || l->state == IB_ACCEPTING))
            return l;
    }
    return NULL;
}

struct rme_link *ib_side_asked(const struct rme_fabric *rail, const uint8_t *request)
{
    struct rme_link *l = named(rail, request);
    if (!l || !l->side)
        return l && fits(l, rail) ? l : NULL;
    ib_log(l->f, RME_LOG_INFO, "%s: connection of the second device closed: lost by the peer",
           l->peer);
    ib_link_fail(l->side, -ECONNRESET, false);
    return NULL;
}
