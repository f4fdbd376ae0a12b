/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The connection manager: librdmacm and its kernel part.
 *
 * Messages (REQ, REP, RTU, REJ, DREQ, DREP, and SIDR_REQ and SIDR_REP for datagrams) pass
 * through inboxes in shared memory and are handled by the service thread of the receiver. A
 * stopped process therefore does not answer; a killed one is noticed by its pidfd. A listener
 * is found by an abstract unix socket whose name contains the address.
 */
#ifndef EMUL_VERBS_CM_H
#define EMUL_VERBS_CM_H

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include "emul/verbs/device/device.h"
#include "emul/verbs/queue/queue.h"

/* Sizes of private data in bytes, as in InfiniBand's CM for RDMA_PS_TCP. */
#define CM_REQ_PRIVATE 56
#define CM_REP_PRIVATE 196
#define CM_REJ_PRIVATE 148
/* Sizes for RDMA_PS_UDP. */
#define CM_SIDR_REQ_PRIVATE 180
#define CM_SIDR_REP_PRIVATE 136

#define CM_GROUP_LID 0xc001 /* LID of all multicast groups */

/* Status of a SIDR_REP as reported to programs; 0: success. */
#define CM_SIDR_UNSUPPORTED 1 /* no listener */
#define CM_SIDR_REJECT      2

/* Reasons of a REJ as reported to programs. */
#define CM_REJ_TIMEOUT         4
#define CM_REJ_INVALID_COMM_ID 6
#define CM_REJ_NO_LISTENER     8
#define CM_REJ_CONSUMER        28

#define CM_STATES(X)                                                                           \
    X(IDLE)                                                                                    \
    X(BOUND)                                                                                   \
    X(ADDR_RESOLVED)                                                                           \
    X(ROUTE_RESOLVED)                                                                          \
    X(LISTEN)                                                                                  \
    X(REQ_SENT)                                                                                \
    X(REQ_RCVD)                                                                                \
    X(REP_SENT)                                                                                \
    X(REP_RCVD)                                                                                \
    X(ESTABLISHED)                                                                             \
    X(DREQ_SENT)                                                                               \
    X(DREQ_RCVD)                                                                               \
    X(TIMEWAIT)                                                                                \
    X(CLOSED)

enum cm_state {
#define X(name) CM_##name,
    CM_STATES(X)
#undef X
};

enum cm_type { CM_REQ = 1, CM_REP, CM_RTU, CM_REJ, CM_DREQ, CM_DREP, CM_SIDR_REQ, CM_SIDR_REP };

union cm_addr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

struct cm_msg {
    uint32_t type; /* enum cm_type */
    uint32_t src_slot;
    uint64_t src_inc;
    uint32_t local_id;  /* the sender's number of the connection */
    uint32_t remote_id; /* the receiver's number; 0 in a REQ, and in a REJ that cancels a REQ */
    uint32_t qpn;
    uint32_t qkey;
    uint16_t ps;
    uint16_t reason;
    uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count,
        srq;
    uint8_t private_len, port; /* port: number of the sender's port */
    uint8_t sl, traffic_class; /* of a REQ, for both directions */
    union cm_addr src, dst;
    unsigned char private_data[224];
};
_Static_assert(sizeof(struct cm_msg) <= EMU_INBOX_PAYLOAD, "a CM message fits an inbox entry");

/* A multicast group that an id has joined. */
struct cm_group {
    struct cm_group *next;
    union cm_addr addr;
    union ibv_gid gid;
    void *context;
    bool send_only;
    uint32_t fetched, acked; /* events */
    pthread_cond_t acked_cond;
};

struct cm_chan {
    struct rdma_event_channel ch;
    int counter;               /* of its events; see emu_events_open() */
    const struct emu_dev *dev; /* in a forked child: the parent's */
    struct cm_event *head, **tail;
    unsigned readers; /* threads in rdma_get_cm_event; under cm.lock */
    bool gone;        /* destroyed; freed when there are no readers */
};

struct cm_event {
    struct rdma_cm_event ev;
    struct cm_event *next;
    struct cm_id *owner;    /* its destruction waits for the acknowledgement */
    struct cm_group *group; /* group of a join, whose destruction also waits; or NULL */
    unsigned char private_data[256];
};

struct cm_id {
    struct rdma_cm_id id;
    struct emu_dev *owner;     /* in a forked child: the parent's */
    struct cm_id *next, *prev; /* cm.ids */
    struct cm_id *next_listener;
    struct cm_id *of;    /* listener until the request is fetched, else NULL */
    struct emu_hca *hca; /* of its address; NULL: none yet, or all */
    uint32_t num;
    enum cm_state state;
    bool sync; /* created without a channel: calls wait for their events */
    bool own_channel;
    bool bound, reuse, afonly;
    int claim;            /* abstract socket that claims the address, or -1 */
    int backlog, pending; /* listener: requests not yet fetched */
    uint64_t deadline;    /* ns; 0: none */
    uint64_t hold_left;   /* ns a disconnection may still be held back; 0: none is held */
    uint64_t hold_seen;   /* time of the last look at the held disconnection */
    uint64_t refuse_at;   /* until this time a request without a listener is retried */
    uint64_t refuse_seen; /* time of the last look at the processes */
    uint64_t refuse_by;   /* at this time the request is refused in any case */
    /* CM_LATE: processes without a processor may still listen */
    enum { CM_PUNCTUAL, CM_CHECKED, CM_LATE } late;
    struct emu_turns turns; /* of these processes */
    struct emu_peer *peer;
    uint32_t remote_num, remote_qpn, local_qpn;
    uint8_t responder_resources, initiator_depth, retry_count, rnr_retry;
    uint8_t ack_timeout; /* code for the QP */
    struct cm_msg req;   /* active: kept for retries while the peer's inbox is full */
    bool req_delivered;
    uint32_t fetched, acked;
    pthread_cond_t acked_cond;
    struct ibv_qp_init_attr ep_attr;
    bool has_ep_attr;
    bool own_cqs;
    uint8_t tos;               /* RDMA_OPTION_ID_TOS, for the next route lookup */
    uint8_t sl, traffic_class; /* of the path, as set by the active side */
    struct ibv_sa_path_rec path;
    struct cm_group *groups;   /* joined multicast groups; under cm.lock */
    uint8_t port, remote_port; /* port numbers of both ends */
};

struct cm_state_all {
    pthread_mutex_t lock;
    struct cm_id *ids;
    struct cm_id *listeners; /* ids that have listened; requests search only these */
    struct cm_id **table;    /* by number */
    uint32_t table_size, next_num;
    struct emu_timer timer;
    struct cm_waiting *waiting; /* unsent messages, see cm_send.c */
    struct cm_unmet *unmet;     /* requests with unknown senders, see cm_proto.c */
    uint16_t next_port;
    struct cm_chan *destroyed; /* the last destroyed channel */
};
extern struct cm_state_all cm;

/* Returns whether the id belongs to this process: a forked child has ids of its parent, which
 * are in none of its lists. */
static inline bool cm_is_ours(const struct cm_id *id)
{
    return id->owner == emu_dev_peek();
}

static inline bool cm_is_ud(const struct cm_id *id)
{
    return id->id.qp_type == IBV_QPT_UD;
}

/* cm_addr.c */
bool cm_addr_is_multicast(const struct sockaddr *sa);
/* Returns the group that rdma_cm uses for a multicast address. */
void cm_addr_group(const struct emu_knobs *k, const union cm_addr *a, union ibv_gid *gid);
size_t cm_addr_len(const struct sockaddr *sa); /* 0 for an unknown family */
bool cm_addr_copy(union cm_addr *to, const struct sockaddr *from);
uint16_t cm_addr_port(const struct sockaddr *sa); /* host byte order */
void cm_addr_set_port(struct sockaddr *sa, uint16_t port);
bool cm_addr_is_any(const struct sockaddr *sa);
bool cm_addr_equal(const union cm_addr *a, const union cm_addr *b); /* ports not compared */
/* Returns 0 if an interface of this machine has the address, -EADDRNOTAVAIL if none has, or
 * another error. */
int cm_addr_local(const struct sockaddr *sa);
/* Finds the local address for reaching `dst`, with port 0; returns 0 or -errno. */
int cm_addr_source(const union cm_addr *dst, union cm_addr *src);
bool cm_addr_blackholed(const struct emu_knobs *k, const struct sockaddr *dst);
/* Claims an address for listening; returns a socket or -errno. */
int cm_addr_claim(const struct sockaddr *sa, int ps, bool reuse, bool afonly);
/* Returns the process that claims the address, or -errno (ECONNREFUSED: none). */
int cm_addr_find(const union cm_addr *dst, int ps);

/* cm_table.c */
struct cm_id *cm_id_new(struct cm_chan *chan, void *context, enum rdma_port_space ps);
void cm_id_free(struct cm_id *id); /* under cm.lock */
struct cm_id *cm_id_by_num(uint32_t num);
/* Returns the default protection domain for ids without one of the program's; never freed. */
struct ibv_pd *cm_default_pd(struct ibv_context *verbs);
/* Assigns a port, and with it the device of now. Under cm.lock. */
void cm_set_port(struct cm_id *id, uint32_t port);
/* Assigns context and default domain to an id with a known address. Returns 0; or -errno, and
 * none is assigned. Not under cm.lock. */
int cm_set_verbs(struct cm_id *id);
/* Frees the groups of an id. Under cm.lock. */
void cm_groups_free(struct cm_id *id);
/* Fills in the path between the id's ports. */
void cm_path(const struct emu_dev *d, const struct cm_id *id, struct ibv_ah_attr *a);
/* In a forked child: drops the ids, which belong to the parent. */
void cm_forked(struct emu_dev *d);

/* cm_send.c */
/* Runs the timer at `due` or earlier; cm_proto.c has its function. Under cm.lock. */
void cm_timer_arm(uint64_t due);
void cm_set_deadline(struct cm_id *id, uint64_t ms); /* 0 ms: none */
#define CM_RETRY (EMU_NSEC / 20) /* pause before unsent messages are retried */
/* limit of the time that a request waits for processes without a processor */
#define CM_LATE_MAX (2 * EMU_NSEC)
/* Fills in the header of a message from `id` to its peer and sends the message. Under cm.lock.
 * False for a request that found the inbox full: the caller retries. */
bool cm_send(struct cm_id *id, struct cm_msg *m, enum cm_type type);
/* Sends a message to a peer, or keeps it until the inbox has room. Under cm.lock. */
void cm_send_message(struct emu_dev *d, struct emu_peer *p, const struct cm_msg *m);
/* Sends kept messages; false when none is left. Under cm.lock. */
bool cm_send_unsent(struct emu_dev *d);
void cm_unsent_forked(void); /* in a forked child: drops the parent's messages */
void cm_send_simple(struct cm_id *id, enum cm_type type); /* sends a message without data */
/* Answers a SIDR_REQ; `status` is 0 or a CM_SIDR_... value. */
bool cm_send_sidr(struct cm_id *id, struct cm_msg *m, uint16_t status);
void cm_send_rej(struct cm_id *id, uint16_t reason, const void *data, uint8_t len);
void cm_enter_timewait(struct cm_id *id);
/* Sends the peer the message due when an id is destroyed. Under cm.lock. */
void cm_farewell(struct cm_id *id);

/* cm_event.c */
struct cm_chan *cm_chan_new(void);
void cm_chan_free(struct cm_chan *c);
/* Registers a reading thread; under cm.lock. False: the channel is destroyed. */
bool cm_chan_enter(struct cm_chan *c);
/* Unregisters a reading thread; under cm.lock. False: the channel was destroyed during the
 * call, as rping does; the thread had waited on, as in the kernel. */
bool cm_chan_leave(struct cm_chan *c);
void cm_chan_put(struct cm_chan *c, struct cm_event *e); /* under cm.lock */
/* Queues an event for `id` on its channel. Under cm.lock. `m` may be NULL. */
void cm_event_post(struct cm_id *id, enum rdma_cm_event_type type, int status,
                   const struct cm_msg *m, size_t private_len);
void cm_event_post_request(struct cm_id *listener, struct cm_id *child, const struct cm_msg *m);
/* Queues the event of a joined group. Under cm.lock. */
void cm_event_post_join(struct cm_id *id, struct cm_group *g);
/* Returns whether the event belongs to `id`, or to an unfetched request to it. Such a request,
 * with all later events, belongs to the listener. */
static inline bool cm_event_is_of(const struct cm_event *e, const struct cm_id *id)
{
    return e->owner == id || e->owner->of == id;
}
/* Drops the unfetched events of a group or of an id; with an id also the requests to it. Under
 * cm.lock. */
void cm_event_purge(struct cm_id *id, struct cm_group *g);
/* Disconnects an id, waits until its fetched events are acknowledged, and frees it with its own
 * channel, if any. Not under cm.lock. */
void cm_id_end(struct cm_id *id);

/* cm_life.c */
/* Does the change of a device that another process has asked for. */
void cm_device_asked(struct emu_dev *d);

/* cm_proto.c */
/* Sends a prepared REQ, or schedules a retry. Under cm.lock. */
void cm_try_request(struct cm_id *id);

/* cm_qp.c */
int cm_qp_rtr(struct cm_id *id, int responder_resources); /* -1 with errno */
int cm_qp_rts(struct cm_id *id, int initiator_depth);
void cm_qp_err(struct cm_id *id);
int cm_qp_init(struct cm_id *id);
/* Changes a UD QP up to RTS. */
int cm_qp_datagrams(struct cm_id *id);
/* Sends RTU; the connection is established on this side. Under cm.lock. */
int cm_ready_to_use(struct cm_id *id);
/* Active side, when the program fetches the response: changes the QP to RTS and sends RTU.
 * Returns 0, or -1 with errno. */
int cm_process_response(struct cm_id *id);
/* Attaches the id's QP when the program fetches the event; returns 0 or a positive errno. */
int cm_group_attach(struct cm_id *id, struct cm_group *g);
void cm_group_detach(struct cm_id *id, struct cm_group *g);

/* cm_fetch.c */
/* Waits for the event of a call on an id without a channel; returns 0, or -1 with errno. */
int cm_complete(struct cm_id *id);

#endif
