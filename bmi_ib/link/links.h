/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* links.h - connections: how they come, live and end. */
#ifndef BMI_IB_LINKS_H
#define BMI_IB_LINKS_H

#include "bmi_ib/queue/queue.h"

/* ---- link.c ---- */
extern const char *const ib_link_state_name[];
struct rme_link *ib_link_new(struct rme_fabric *f);
void ib_link_state_set(struct rme_link *l, enum ib_link_state state);
/* A way begins, which has way_timeout_ms if there is another one; or it has ended. */
void ib_link_way(struct rme_link *l, bool begins);
void ib_link_established(struct rme_link *l);
void ib_link_down(struct rme_link *l); /* LINK_DOWN is due */
void ib_emit_links(struct rme_fabric *f);
void ib_emit_downs(struct rme_fabric *f);

/* ---- reports.c ---- */
extern const struct ib_reports ib_link_reports;

/* ---- side.c ---- */
/* Behind an answer to a peer: what it needs for a side.  Up to IB_ANSWER_MAX - IB_HELLO_MAX
 * bytes; 0: there is none to be had. */
size_t ib_side_offer(struct rme_link *l, uint8_t *at);
/* The link is up, and this came behind the peer's answer. */
void ib_side_keep(struct rme_link *l, const uint8_t *offer, size_t length);
/* There is something for a side: it sets out where there is a way and it is time. */
void ib_side_wanted(struct rme_link *l);
/* Is a request for a side? */
bool ib_side_is(const uint8_t *data, size_t length);
/* A peer asks by this rail for the side of a link: that link.  NULL: there is none, or it gets
 * none now: it has one, which is over then, or had one by another rail and keys of that. */
struct rme_link *ib_side_asked(const struct rme_fabric *rail, const uint8_t *request);
/* They know each other from now on. */
void ib_side_join(struct rme_link *l, struct rme_link *side);

/* ---- start.c ---- */
/* Starts a link towards l->address.  The caller handles a failure. */
int ib_link_start(struct rme_link *l);
/* Failures to find a way, as the seam names them. */
int ib_no_way(int status);

/* ---- end.c ---- */
void ib_link_fail(struct rme_link *l, int error, bool deliver);
void ib_link_fail_all(struct rme_fabric *f, const struct ib_cq *cq, int error);
void ib_link_drained(struct rme_link *l);
void ib_link_reap(struct rme_fabric *f);
void ib_link_destroy(struct rme_link *l);
/* Frees the sides that the device is done with, once all that they completed is told. */
void ib_link_free_sides(struct rme_fabric *f);
void ib_link_timers(struct rme_fabric *f);
int ib_link_deadline(struct rme_fabric *f);
void ib_links_release(struct rme_fabric *f);

/* ---- ask.c ---- */
int ib_link_connect(struct rme_fabric *f, const struct rme_addr *addr, int part,
                    const void *hello, size_t length, uint32_t rx, void *owner,
                    struct rme_link **out);
int ib_link_accept(struct rme_link *l, const void *hello, size_t length, uint32_t rx,
                   void *owner);
void ib_link_reject(struct rme_link *l, const void *hello, size_t length);
void ib_link_disconnect(struct rme_link *l, int error);
void ib_link_free(struct rme_link *l);
void ib_link_names(struct rme_fabric *f);

/* ---- rails.c ---- */
/* The rail whose device this is; NULL: none. */
struct rme_fabric *ib_rail_of(const struct rme_fabric *f, const struct ibv_context *ctx);
/* Does it live, and has it a port for new connections? */
bool ib_rail_usable(const struct rme_fabric *rail);
/* The rail that a new connection begins with; NULL: all are dead. */
struct rme_fabric *ib_rail_first(struct rme_fabric *f, unsigned *first);
/* The next way to the link's peer: its address, and with several rails its rail.  False: there
 * is none left. */
bool ib_rail_next(struct rme_link *l);
/* Would it find one? */
bool ib_rail_more(const struct rme_link *l);
/* A link without a queue pair becomes another rail's. */
int ib_link_move(struct rme_link *l, struct rme_fabric *to);
/* The rail's own address in the network of this one; NULL: it is not there. */
struct sockaddr *ib_rail_source(const struct rme_fabric *f, const struct sockaddr *peer);
/* Finds out which addresses are whose, once the rails are chosen. */
int ib_rails_addresses(struct rme_fabric *f);

/* ---- probe.c ---- */
bool ib_probe_start(struct rme_link *l); /* false: LINK_DOWN has nothing to wait for */
void ib_probe_end(struct rme_link *l);
void ib_probe_look(struct rme_fabric *f);
uint64_t ib_probe_deadline(const struct rme_fabric *f); /* UINT64_MAX: none */

/* ---- qp.c ---- */
int ib_qp_create(struct rme_link *l);
void ib_qp_drain(struct rme_link *l);
void ib_qp_destroy(struct rme_link *l);

/* ---- cm.c ---- */
int ib_cm_open(struct rme_fabric *f);
void ib_cm_close(struct rme_fabric *f);
void ib_cm_events(struct rme_fabric *f);
int ib_cm_accept(struct rme_link *l, const void *hello, size_t length);
int ib_reject_error(int status, const void *data, size_t length);

/* ---- path.c ---- */
#define IB_PATH_TEXT 256 /* bytes that do for ib_path_text */
/* Finds the GID that the option names, once the device is known. */
int ib_path_open(struct rme_fabric *f);
/* The addresses of the rail's GIDs on Ethernet, in an array that the caller frees; their
 * number. */
int ib_path_addresses(const struct rme_fabric *f, struct sockaddr_storage **out);
/* The source of a connection to `peer`: *out is own, filled, or NULL: the routes decide.
 * -EAFNOSUPPORT: the one that was chosen has the other family. */
int ib_path_source(const struct rme_fabric *f, const struct sockaddr *peer,
                   struct sockaddr_storage *own, struct sockaddr **out);
/* Sets the class of a connection, before its route is resolved. */
void ib_path_class(struct rme_link *l);
/* The link is up: notes, and logs, which path it has. */
void ib_path_taken(struct rme_link *l);
void ib_path_text(const struct rme_link *l, char *text, size_t size);

/* ---- listen.c ---- */
int ib_listen_bind(struct rme_fabric *f);
struct ibv_context *ib_listen_device(const struct rme_fabric *f);
/* of its first listener; 0: there is none */
uint16_t ib_listen_port(const struct rme_fabric *f);
int ib_listen_start(struct rme_fabric *f);
void ib_listen_close(struct rme_fabric *f);

/* ---- resolve.c ---- */
int ib_resolver_open(struct rme_fabric *f);
void ib_resolver_close(struct rme_fabric *f);
void ib_sockaddr_text(const void *sa, char *text, size_t size);
int ib_resolve_numeric(const char *host, const char *port, struct addrinfo **out);
int ib_resolve_later(struct rme_fabric *f, const char *host, const char *port, uint32_t handle);
/* Its link needs no name any more: it is not looked up if nobody has begun to. */
void ib_resolve_forget(const struct rme_fabric *f, uint32_t handle);
/* Takes one result out: 1 and the link's rail and handle with either *out or *error, or 0.
 * *why: the resolver's words for an error of its own, else NULL. */
int ib_resolve_result(struct rme_fabric *f, struct rme_fabric **rail, uint32_t *handle,
                      struct addrinfo **out, int *error, const char **why);

/* ---- async.c ---- */
int ib_async_open(struct rme_fabric *f);
void ib_async_close(struct rme_fabric *f);
void ib_async_events(struct rme_fabric *f);

#endif
