/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* links.h - connections: setup, events and end.
 *
 * All functions run with the engine's lock unless stated otherwise.  An int result is 0 or a
 * negative errno.  A *_close function undoes a *_open function, also a failed one.  fabric.h
 * describes the functions of the fabric's table. */
#ifndef BMI_IB_LINKS_H
#define BMI_IB_LINKS_H

#include "bmi_ib/queue/queue.h"

/* ---- link.c ---- */
extern const char *const ib_link_state_name[];
/* Functions that queue/ calls (struct ib_link_ops, link.h), and their table. */
extern const struct ib_link_ops ib_link_ops;
void ib_link_fail(struct rme_link *l, int error, bool deliver);
void ib_link_fail_all(struct ib_rail *rail, int error, const char *why);
void ib_link_drained(struct rme_link *l, unsigned parts);
void ib_link_established(struct rme_link *l);
/* Allocates a link with a handle, in the state DOWN; NULL: no memory. */
struct rme_link *ib_link_new(struct ib_rail *rail);
/* Makes a link one of this rail, with a new handle. */
void ib_link_enter(struct rme_link *l, struct ib_rail *rail);
/* Moves a link without a QP to another rail. */
void ib_link_move(struct rme_link *l, struct ib_rail *to);
/* Sets the state of a link; logs and probes a change. */
void ib_link_state_set(struct rme_link *l, enum ib_link_state state);
/* Starts the timeout of a route (IB_ROUTE_TIMEOUT_MS) if another way exists, else stops it. */
void ib_link_route(struct rme_link *l);
/* Delivers the events of links; LINK_DOWN only after all messages and completed transfers. */
void ib_emit_links(struct ib_rail *rail);
/* Starts the next route that does not fail at once.  Returns false if none is left. */
bool ib_link_next(struct rme_link *l);
/* Maps a failure to find a path to the errno of fabric.h. */
int ib_no_route(int status);
/* Creates the QP of a link with its CQ space. */
int ib_qp_create(struct rme_link *l);
void ib_link_free_drained(struct ib_rail *rail);
void ib_link_destroy(struct rme_link *l);
void ib_link_timers(struct rme_fabric *f);
/* Returns ms until the next timeout; 0: poll now, -1: none. */
int ib_link_deadline(struct rme_fabric *f);
/* Marks a device as failed or removed, and fails all its links. */
void ib_link_device_lost(struct ib_rail *rail, const char *why);
/* Frees all links of a rail and their table. */
void ib_links_release(struct ib_rail *rail);

/* ---- cm.c ---- */
int ib_link_connect(struct rme_fabric *f, const struct rme_addr *addr, int part,
                    const void *hello, size_t length, uint32_t rx, void *owner,
                    struct rme_link **out);
int ib_link_accept(struct rme_link *l, const void *hello, size_t length, uint32_t rx,
                   void *owner);
void ib_link_reject(struct rme_link *l, const void *hello, size_t length);
void ib_link_disconnect(struct rme_link *l, int error);
void ib_link_free(struct rme_link *l);
void ib_link_names(struct rme_fabric *f);
int ib_cm_open(struct rme_fabric *f);
void ib_cm_close(struct rme_fabric *f);
void ib_cm_events(struct rme_fabric *f);

/* ---- rails.c ---- */
/* Returns the rail of a device; NULL: none. */
struct ib_rail *ib_rail_of(const struct rme_fabric *f, const struct ibv_context *ctx);
/* Sets the next route to the peer.  Returns its rail; NULL: none is left. */
struct ib_rail *ib_rail_next(struct rme_link *l);
/* Returns true if ib_rail_next() would find a route. */
bool ib_rail_more(const struct rme_link *l);
/* Returns the rail's own address in the network of `peer`; NULL: none. */
struct sockaddr *ib_rail_source(const struct ib_rail *rail, const struct sockaddr *peer);
/* Finds the addresses of each rail, once the rails are chosen, and when they have changed. */
int ib_rails_addresses(struct rme_fabric *f);

/* ---- path.c ---- */
/* Finds the GID that the option names, once the device is known. */
int ib_path_open(struct ib_rail *rail);
/* Reads the GIDs of all ports into an array that the caller frees.  Returns their number or a
 * negative errno. */
int ib_path_gids(const struct ib_device *d, struct ibv_gid_entry **out);
/* Converts a GID to an address.  Returns false for InfiniBand, whose GIDs are none. */
bool ib_path_address(const struct ibv_gid_entry *e, struct sockaddr_storage *sa);
/* Finds the source of a connection to `peer`: *out is `own`, filled in; NULL: routing decides.
 * Returns -EAFNOSUPPORT if the chosen source has the other family. */
int ib_path_source(const struct ib_rail *rail, const struct sockaddr *peer,
                   struct sockaddr_storage *own, struct sockaddr **out);
/* Formats the path of a link; "" if it is not up.  `all`: with rate, NUMA node and PKey, which
 * the kernel is asked for. */
void ib_path_text(const struct rme_link *l, bool all, char *text, size_t size);
/* link_path() of fabric.h. */
void ib_link_path(const struct rme_link *l, char *text, size_t size);

/* ---- listen.c ---- */
int ib_listen_bind(struct rme_fabric *f);
struct ibv_context *ib_listen_device(const struct rme_fabric *f);
/* Returns the port of the first listener; 0: none. */
uint16_t ib_listen_port(const struct rme_fabric *f);
/* Starts to listen at all bound addresses. */
int ib_listen_start(struct rme_fabric *f);
/* Ends the listeners on addresses of a device; they are to listen again. */
void ib_listen_drop_device(struct rme_fabric *f, const struct ibv_context *ctx);
/* The same for one, whose address may have moved to another device. */
void ib_listen_drop(struct rme_fabric *f, const struct rdma_cm_id *id);
/* Tries to listen again at all addresses that lost their listener.  Returns true if none is
 * left. */
bool ib_listen_retry(struct rme_fabric *f);
void ib_listen_close(struct rme_fabric *f);

/* ---- resolve.c ---- */
/* Result of a lookup. */
struct ib_name {
    uint32_t handle; /* of the link */
    int error;
    const char *why; /* the resolver's message; NULL: `error` applies */
    struct addrinfo *found;
};
int ib_resolver_open(struct rme_fabric *f);
void ib_resolver_close(struct rme_fabric *f);
static inline socklen_t ib_sockaddr_size(const struct sockaddr *sa)
{
    return sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}
static inline in_port_t *ib_sockaddr_port(struct sockaddr *sa)
{
    return sa->sa_family == AF_INET6 ? &((struct sockaddr_in6 *)sa)->sin6_port
                                     : &((struct sockaddr_in *)sa)->sin_port;
}
/* Formats "host:port" or "[host]:port". */
void ib_sockaddr_text(const void *sa, char *text, size_t size);
/* Converts a numeric address; *out is freed by freeaddrinfo(). */
int ib_resolve_numeric(const char *host, const char *port, struct addrinfo **out);
/* Queues the lookup of a host name for a link of the first rail; see ib_resolve_result(). */
int ib_resolve_later(struct rme_fabric *f, const char *host, const char *port, uint32_t handle);
/* Cancels the lookup of a link's name, unless the lookup is running. */
void ib_resolve_cancel(const struct rme_fabric *f, uint32_t handle);
/* Takes one result.  Returns false if there is none.  The caller frees out->found. */
bool ib_resolve_result(struct rme_fabric *f, struct ib_name *out);

/* ---- async.c ---- */
int ib_async_open(struct ib_rail *rail);
void ib_async_close(struct ib_rail *rail);
/* Reads the device's events, and handles those of this engine. */
void ib_async_events(struct ib_rail *rail);

#endif
