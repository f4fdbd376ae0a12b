/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * listen.c - listening addresses.
 *
 * Each part of the listening address gets an rdma_cm id, bound to this address if the host
 * asked for that, else to the wildcard of its family (of both families for a name).  Binding
 * precedes the choice of the device, which may depend on the address; listening comes last,
 * when connections can be served.  Host names are looked up here, blocking, which is acceptable
 * while a server starts.
 *
 * If a part names port 0, the system chooses a port for its first id, and its other ids are
 * bound to the same port.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "bmi_ib/link/links.h"

uint16_t ib_listen_port(const struct rme_fabric *f)
{
    return f->port;
}

/* Binds one more id.  Returns 0 also if the address is bound already.  Replaces port 0 by the
 * chosen one. */
static int bind_one(struct rme_fabric *f, struct sockaddr *sa, socklen_t length)
{
    struct rdma_cm_id *id, **more;
    for (unsigned i = 0; i < f->listeners; i++)
        if (memcmp(rdma_get_local_addr(f->listener[i]), sa, length) == 0)
            return 0;
    more = realloc(f->listener, (f->listeners + 1) * sizeof(*more));
    if (more == NULL)
        return -ENOMEM;
    f->listener = more;
    if (rdma_create_id(f->cm, &id, NULL, RDMA_PS_TCP))
        return ib_errno();
    if (sa->sa_family == AF_INET6) {
        int only = 1; /* the wildcard leaves IPv4 to its own id; harmless if unknown */
        rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only));
    }
    if (rdma_bind_addr(id, sa)) {
        int error = ib_errno();
        rdma_destroy_id(id);
        return error;
    }
    *ib_sockaddr_port(sa) = rdma_get_src_port(id);
    f->listener[f->listeners++] = id;
    return 0;
}

/* Binds the addresses of a part, or the wildcard of its family, of both families for a name.
 * One of the addresses suffices; of both wildcards, the one of IPv4 is necessary. */
static int bind_part(struct rme_fabric *f, const struct rme_addr_part *part, const char **why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | AI_PASSIVE},
                    *list;
    bool specific = f->config.bind_specific;
    int error;
    in_port_t port = 0; /* chosen for the first address, if the part has none */
    if (!specific && ib_resolve_numeric(part->host, part->port, &list) == 0) {
        hints.ai_family = list->ai_family;
        freeaddrinfo(list);
    }
    error = getaddrinfo(specific ? part->host : NULL, part->port, &hints, &list);
    if (error) {
        *why = error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error);
        return -EADDRNOTAVAIL;
    }
    error = -EADDRNOTAVAIL;
    for (struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        bool needed = specific || hints.ai_family != AF_UNSPEC || a->ai_family == AF_INET;
        int ret;
        if (*ib_sockaddr_port(a->ai_addr) == 0)
            *ib_sockaddr_port(a->ai_addr) = port;
        ret = bind_one(f, a->ai_addr, a->ai_addrlen);
        port = *ib_sockaddr_port(a->ai_addr);
        /* the kernel reports EADDRNOTAVAIL for a taken port if one of both addresses is a
         * wildcard */
        if (ret == -EADDRNOTAVAIL && !specific)
            ret = -EADDRINUSE;
        if (error && needed)
            error = ret;
        if (ret && !needed)
            ib_log(f, RME_LOG_INFO, "not listening on [::]:%s: %s", part->port, strerror(-ret));
    }
    freeaddrinfo(list);
    return error;
}

/* Logs a failure to bind.  `why`: the resolver's message; NULL: `error` applies. */
static void log_refusal(struct rme_fabric *f, const char *host, const char *port, int error,
                        const char *why)
{
    const char *remedy =
        rme_remedy(error, why != NULL ? "check the host name" : "give an address of this host");
    if (error == -EADDRINUSE)
        remedy = "choose another port, or stop the process that listens there";
    else if (error == -EACCES)
        remedy = "choose a port from 1024 on, or run with CAP_NET_BIND_SERVICE";
    ib_log(f, RME_LOG_ERROR, "cannot listen on ib://%s:%s: %s; %s", host, port,
           why != NULL ? why : strerror(-error), remedy);
}

/* Binds all parts of the listening address.  On failure the caller calls ib_listen_close(). */
int ib_listen_bind(struct rme_fabric *f)
{
    const struct rme_addr *addr = f->config.listen;
    for (int i = 0; addr != NULL && i < rme_addr_parts(addr); i++) {
        const struct rme_addr_part *part = rme_addr_part(addr, i);
        const char *why = NULL;
        int error = bind_part(f, part, &why);
        if (error) {
            log_refusal(f, part->host, part->port, error, why);
            return error;
        }
    }
    f->port = f->listeners ? ntohs(rdma_get_src_port(f->listener[0])) : 0;
    return 0;
}

/* Returns the device of a listening address; NULL: none. */
struct ibv_context *ib_listen_device(const struct rme_fabric *f)
{
    for (unsigned i = 0; i < f->listeners; i++)
        if (f->listener[i]->verbs != NULL)
            return f->listener[i]->verbs;
    return NULL;
}

int ib_listen_start(struct rme_fabric *f)
{
    for (unsigned i = 0; i < f->listeners; i++) {
        struct rdma_cm_id *id = f->listener[i];
        char text[IB_PEER_MAX];
        const struct ib_rail *rail;
        ib_sockaddr_text(rdma_get_local_addr(id), text, sizeof(text));
        rail = ib_rail_of(f, id->verbs);
        if (id->verbs != NULL && rail == NULL)
            ib_log(f, RME_LOG_WARN,
                   "%s belongs to device %s, but %s is used: connections there are refused",
                   text, ibv_get_device_name(id->verbs->device), f->rail[0]->dev.name);
        if (rdma_listen(id, 0)) { /* the kernel's limit, net.rdma_ucm.max_backlog */
            int error = ib_errno();
            ib_log(f, RME_LOG_ERROR, "cannot listen on %s: %s%s", text, strerror(-error),
                   error == -EADDRINUSE ? "; another process listens there" : "");
            return error;
        }
        ib_log(f, RME_LOG_INFO, "listening on %s, device %s", text,
               (rail != NULL ? rail : f->rail[0])->dev.name);
    }
    return 0;
}

/* ---- Listeners of a lost device ---- */

/* Ends a listener, and keeps its address for the next attempt. */
static void drop_listener(struct rme_fabric *f, unsigned i)
{
    struct rdma_cm_id *id = f->listener[i];
    const struct sockaddr *sa = rdma_get_local_addr(id);
    struct ib_lost *more = realloc(f->lost, (f->nlost + 1) * sizeof(*more));
    if (more != NULL) {
        f->lost = more;
        memset(&more[f->nlost], 0, sizeof(*more));
        memcpy(&more[f->nlost++].sa, sa, ib_sockaddr_size(sa));
    } else {
        ib_log(f, RME_LOG_ERROR, "a listening address is lost: out of memory; restart");
    }
    rdma_destroy_id(id);
    f->listener[i] = f->listener[--f->listeners];
}

void ib_listen_drop_device(struct rme_fabric *f, const struct ibv_context *ctx)
{
    for (unsigned i = f->listeners; i-- > 0;)
        if (f->listener[i]->verbs == ctx)
            drop_listener(f, i);
}

void ib_listen_drop(struct rme_fabric *f, const struct rdma_cm_id *id)
{
    for (unsigned i = f->listeners; i-- > 0;)
        if (f->listener[i] == id)
            drop_listener(f, i);
    f->reopen_at = 1;
}

/* Listens at one address again.  Returns 0 or a negative errno. */
static int listen_again(struct rme_fabric *f, struct sockaddr *sa)
{
    unsigned before = f->listeners;
    int error = bind_one(f, sa, ib_sockaddr_size(sa));
    struct rdma_cm_id *id;
    if (error || f->listeners == before)
        return error;
    id = f->listener[before];
    if (!rdma_listen(id, 0))
        return 0;
    error = ib_errno();
    f->listeners--;
    rdma_destroy_id(id);
    return error;
}

bool ib_listen_retry(struct rme_fabric *f)
{
    for (unsigned i = f->nlost; i-- > 0;) {
        struct ib_lost *lost = &f->lost[i];
        char text[IB_PEER_MAX];
        int error = listen_again(f, (struct sockaddr *)&lost->sa);
        ib_sockaddr_text(&lost->sa, text, sizeof(text));
        if (!error) {
            ib_log(f, RME_LOG_WARN, "listening on %s again", text);
            *lost = f->lost[--f->nlost];
        } else if (error != lost->error) {
            ib_log(f, RME_LOG_WARN, "cannot listen on %s again: %s; trying on", text,
                   strerror(-error));
            lost->error = error;
        }
    }
    return f->nlost == 0;
}

void ib_listen_close(struct rme_fabric *f)
{
    free(f->lost);
    f->lost = NULL;
    f->nlost = 0;
    for (unsigned i = 0; i < f->listeners; i++)
        rdma_destroy_id(f->listener[i]);
    free(f->listener);
    f->listener = NULL;
    f->listeners = 0;
}
