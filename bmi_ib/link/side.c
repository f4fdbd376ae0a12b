/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * side.c - the side of a link: how it comes, and how it goes.
 *
 * Who accepts a connection and has several rails offers a side: behind the engine's answer it
 * says the addresses of its other rails, and a secret.  Who connected keeps that until there is
 * something to stripe: of many connections most have nothing.  If it has another rail near to
 * one of the addresses, it connects that; the request names the link and the secret, and is
 * answered at once.  What the request says is looked up like all that comes from a peer: a link
 * has one side, over another rail than its own, and who does not know the secret gets none.
 *
 * The side has no receives, so a peer that sends over it waits for ever, and for itself alone.
 *
 * Without a side all goes over the link's own rail.  A side that does not come, or is lost, is
 * sought again when there is something for it, each time after twice as long (stripe_retry_ms)
 * and from the next of the addresses on; the offer is good as long as the link.  Who accepted
 * may not hear at all that a side is gone, as the rail it went by is what was lost.  But who
 * connected asks for a side when it has none: so one that is there still is over, and ends.
 * The request that says so is refused, as a link has one side at a time, and the next one finds
 * room.  How a side is lost, and when its link goes with it, is told in queue/stripe.c; both
 * are drained like any link.  LINK_DOWN of a link waits until its side is gone.
 *
 * A key that a peer has for a side is of the device that the side was on.  Without memory
 * windows a link does not end with a side that is lost, though the peer may hold such keys; so
 * once it was given one, later sides of the link are over the same rail.  Where that cannot be,
 * there is none.
 *
 * The offer, behind IB_HELLO_MAX bytes for the engine: magic (4 bytes), handle (4), secret
 * (8), addresses (1), 0 (1), port (2), and for each address its family, 4 or 6, and 16 bytes.
 * The request: its first 16 bytes, with a magic of its own.  See also doc/wire-protocol.md.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "bmi_ib/link/links.h"

#define OFFER   0x4f454d52u /* "RMEO" */
#define REQUEST 0x53454d52u /* "RMES" */
#define HEAD    20          /* bytes of an offer without addresses */
#define NAME    16          /* of them, those that a request repeats */
#define ADDRESS 17
#define MOST    ((IB_ANSWER_MAX - IB_HELLO_MAX - HEAD) / ADDRESS)
#define COUNT   16 /* where these are in an offer */
#define PORT    18

#define MOST_DOUBLED 6 /* times that stripe_retry_ms is doubled */

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

/* The port at which we listen there: at all addresses, or at those that the host asked for.
 * Below 0: we do not. */
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
    int port = -1; /* of the first one; others are said if theirs is the same */
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

/* ---- The side that connects ---- */

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

/* Do the keys that the peer may have for a side hold on this rail? */
static bool fits(const struct rme_link *l, const struct rme_fabric *rail)
{
    return !l->keyed || l->keyed == rail->number + 1;
}

/* Another rail than the link's that is in the network of this address. */
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

/* The first address that a rail is near to, from another one on each time. */
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
        l->side_tries = 0; /* the last one was wanted for long, or is long ago */
    unsigned doubled = l->side_tries < MOST_DOUBLED ? l->side_tries : MOST_DOUBLED;
    l->side_at = wait ? ib_now_ms() + (wait << doubled) : UINT64_MAX;
    seek(l);
    l->side_tries++;
}

/* ---- The side that is asked ---- */

bool ib_side_is(const uint8_t *data, size_t length)
{
    return length >= NAME && get32(data) == REQUEST;
}

/* The link that it names, of another rail. */
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
