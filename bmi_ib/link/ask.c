/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ask.c - the engine's calls on connections, and the resolver's results. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "bmi_ib/link/links.h"

/* Starts the first way to the peer. */
static int begin(struct rme_link *l)
{
    return ib_rail_next(l) ? ib_link_start(l) : -EHOSTUNREACH;
}

/* Handles results of the resolver. */
void ib_link_names(struct rme_fabric *f)
{
    struct rme_fabric *rail;
    uint32_t handle;
    struct addrinfo *found;
    int error;
    const char *why;
    while (ib_resolve_result(f, &rail, &handle, &found, &error, &why)) {
        struct rme_link *l = ib_link_by_handle(rail, handle);
        if (!l || l->state != IB_NAMING) { /* the link was abandoned meanwhile */
            if (found)
                freeaddrinfo(found);
            continue;
        }
        if (error) {
            ib_log(f, RME_LOG_NOTICE, "%s: cannot resolve the host name: %s", l->peer,
                   why ? why : strerror(-error));
        } else {
            l->addresses = found;
            error = begin(l);
        }
        if (error)
            ib_link_fail(l, error, false);
    }
}

int ib_link_connect(struct rme_fabric *f, const struct rme_addr *addr, int part,
                    const void *hello, size_t length, uint32_t rx, void *owner,
                    struct rme_link **out)
{
    const struct rme_addr_part *p =
        part >= 0 && part < rme_addr_parts(addr) ? rme_addr_part(addr, part) : NULL;
    if (!p || length > IB_HELLO_MAX)
        return -EINVAL;
    unsigned first;
    struct rme_fabric *rail = ib_rail_first(f, &first);
    if (!rail)
        return -ENODEV;
    struct rme_link *l = ib_link_new(rail);
    if (!l)
        return -ENOMEM;
    l->first = first;
    l->owner = owner;
    memcpy(l->hello, hello, length);
    l->hello_length = length;
    snprintf(l->peer, sizeof(l->peer), strchr(p->host, ':') ? "[%s]:%s" : "%s:%s", p->host,
             p->port);
    int error = ib_rx_reserve(l, rx);
    if (error) {
        ib_link_destroy(l);
        return error;
    }
    ib_link_state_set(l, IB_NAMING);
    if (ib_resolve_numeric(p->host, p->port, &l->addresses) == 0) {
        error = begin(l);
        if (error)
            ib_link_fail(l, error, false);
    } else {
        error = ib_resolve_later(rail, p->host, p->port, l->handle);
        if (error) {
            ib_link_destroy(l);
            return error;
        }
    }
    *out = l;
    return 0;
}

/* On failure the link stays in REQUESTED, and the engine rejects the request. */
int ib_link_accept(struct rme_link *l, const void *hello, size_t length, uint32_t rx,
                   void *owner)
{
    if (l->state != IB_REQUESTED)
        return -ECONNRESET;
    if (length > IB_HELLO_MAX)
        return -EINVAL;
    int error = ib_rx_reserve(l, rx);
    if (error)
        return error;
    error = ib_cm_accept(l, hello, length);
    if (error)
        ib_rx_release(l, rx);
    else
        l->owner = owner;
    return error;
}

void ib_link_reject(struct rme_link *l, const void *hello, size_t length)
{
    if (l->id && rdma_reject(l->id, hello, (uint8_t)length))
        ib_log(l->f, RME_LOG_DEBUG, "%s: rdma_reject: %s", l->peer, strerror(errno));
    ib_link_destroy(l);
}

void ib_link_disconnect(struct rme_link *l, int error)
{
    l->asked = true;
    ib_link_fail(l, error ? error : -ESHUTDOWN, false);
}

void ib_link_free(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    ib_link_destroy(l);
    ib_rx_renew(f);
}
