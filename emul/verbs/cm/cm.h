/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The connection manager: what rdma_cm's library and kernel part do together.
 *
 * Messages (REQ, REP, RTU, REJ, DREQ, DREP, and SIDR_REQ and SIDR_REP for datagrams) travel
 * through inboxes in shared memory and are handled by the service thread of the process they
 * are for; so a stopped process answers nothing, and a killed one is noticed by its pidfd. A
 * listener is found by the abstract unix socket that carries its address in its name.
 */
#ifndef EMUL_VERBS_CM_H
#define EMUL_VERBS_CM_H

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include "emul/verbs/device/device.h"
#include "emul/verbs/queue/queue.h"

/* Sizes of private data, as InfiniBand's CM has them for RDMA_PS_TCP. */
#define CM_REQ_PRIVATE 56
#define CM_REP_PRIVATE 196
#define CM_REJ_PRIVATE 148
/* And for RDMA_PS_UDP. */
#define CM_SIDR_REQ_PRIVATE 180
#define CM_SIDR_REP_PRIVATE 136

#define CM_GROUP_LID 0xc001 /* of all multicast groups */

/* What a SIDR_REP says, as programs see it; 0 is success. */
#define CM_SIDR_UNSUPPORTED 1 /* nobody listens */
#define CM_SIDR_REJECT      2

/* Reasons in a REJ that programs see. */
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
    uint32_t local_id;  /* the sender's number for the connection */
    uint32_t remote_id; /* the receiver's; 0 in a REQ, and in a REJ that takes it back */
    uint32_t qpn;
    uint32_t qkey;
    uint16_t ps;
    uint16_t reason;
    uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count,
        srq;
    uint8_t private_len, port; /* number of the sender's port */
    uint8_t sl, traffic_class; /* of a REQ, for both directions */
    union cm_addr src, dst;
    unsigned char private_data[224];
};
_Static_assert(sizeof(struct cm_msg) <= EMU_INBOX_PAYLOAD, "a CM message fits an inbox entry");

/* A multicast group, as joined by an id. */
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
    const struct emu_dev *dev; /* in a forked child: its parent's */
    struct cm_event *head, **tail;
    unsigned readers; /* threads in rdma_get_cm_event; under cm.lock */
    bool gone;        /* destroyed: its memory may go when there are none */
};

struct cm_event {
    struct rdma_cm_event ev;
    struct cm_event *next;
    struct cm_id *owner;    /* whose destruction waits for the acknowledgement */
    struct cm_group *group; /* of a join, whose end waits for it, too */
    unsigned char private_data[256];
};

struct cm_id {
    struct rdma_cm_id id;
    struct emu_dev *owner;     /* in a forked child: its parent's */
    struct cm_id *next, *prev; /* cm.ids */
    struct cm_id *next_listener;
    struct cm_id *of; /* the listener it belongs to until its request is fetched, or NULL */
    uint32_t num;
    enum cm_state state;
    bool sync; /* made without a channel: calls wait for their events */
    bool own_channel;
    bool bound, reuse, afonly;
    int claim;            /* abstract socket that claims the address, or -1 */
    int backlog, pending; /* listener: requests not yet fetched */
    uint64_t deadline;    /* 0: none */
    uint64_t held_until;  /* a disconnection is not told before this time; 0: there is none */
    uint64_t refuse_at;   /* before this time a request that finds no listener tries again */
    uint64_t refuse_seen; /* when that was last looked at */
    uint64_t refuse_by;   /* at this time it is refused all the same */
    enum { CM_PUNCTUAL, CM_LOOKED, CM_LATE } late; /* what is known of those who may listen */
    struct emu_turns turns;                        /* of these */
    struct emu_peer *peer;
    uint32_t remote_num, remote_qpn, local_qpn;
    uint8_t responder_resources, initiator_depth, retry_count, rnr_retry;
    uint8_t ack_timeout; /* code for the QP */
    struct cm_msg req;   /* active: kept for another try while the peer's inbox is full */
    bool req_delivered;
    uint32_t fetched, acked;
    pthread_cond_t acked_cond;
    struct ibv_qp_init_attr ep_attr;
    bool has_ep_attr;
    bool own_cqs;
    uint8_t tos; /* RDMA_OPTION_ID_TOS, for the path that is looked up next */
    uint8_t sl,
        traffic_class; /* of the path: ours when we ask, the asker's when we are asked */
    struct ibv_sa_path_rec path;
    struct cm_group *groups;   /* multicast groups that it joined; under cm.lock */
    uint8_t port, remote_port; /* numbers of the ports of both ends */
};

struct cm_state_all {
    pthread_mutex_t lock;
    struct cm_id *ids;
    struct cm_id
        *listeners;       /* those of them that have listened: a request looks at no others */
    struct cm_id **table; /* by number */
    uint32_t table_size, next_num;
    struct emu_timer timer;
    struct cm_waiting *waiting; /* messages that found no room: cm_send.c */
    struct cm_unmet *unmet;     /* requests of who could not be looked up: cm_proto.c */
    uint16_t next_port;
    struct ibv_pd *pd[EMU_MAX_DEVICES]; /* default protection domains */
    struct cm_chan *destroyed;          /* the last one */
};
extern struct cm_state_all cm;

/* In a forked child the ids of its parent are in no list of its own. */
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
/* The group that rdma_cm uses for a multicast address. */
void cm_addr_group(const struct emu_knobs *k, const union cm_addr *a, union ibv_gid *gid);
size_t cm_addr_len(const struct sockaddr *sa); /* 0 for families we do not know */
bool cm_addr_copy(union cm_addr *to, const struct sockaddr *from);
uint16_t cm_addr_port(const struct sockaddr *sa); /* host order */
void cm_addr_set_port(struct sockaddr *sa, uint16_t port);
bool cm_addr_is_any(const struct sockaddr *sa);
bool cm_addr_equal(const union cm_addr *a, const union cm_addr *b); /* ports not compared */
/* 0 if an interface of this machine has it, -EADDRNOTAVAIL if none has, or why that cannot be
 * known. */
int cm_addr_local(const struct sockaddr *sa);
/* The address this machine would use to reach `dst`, with port 0; 0 or -errno. */
int cm_addr_source(const union cm_addr *dst, union cm_addr *src);
bool cm_addr_blackholed(const struct emu_knobs *k, const struct sockaddr *dst);
/* Claims an address for listening: a socket or -errno. */
int cm_addr_claim(const struct sockaddr *sa, int ps, bool reuse, bool afonly);
/* The process that claims the address, or -errno (ECONNREFUSED: nobody). */
int cm_addr_find(const union cm_addr *dst, int ps);

/* cm_table.c */
struct cm_id *cm_id_new(struct cm_chan *chan, void *context, enum rdma_port_space ps);
void cm_id_free(struct cm_id *id); /* under cm.lock */
struct cm_id *cm_id_by_num(uint32_t num);
/* The protection domain of ids whose program brought none. It stays for good. */
struct ibv_pd *cm_default_pd(struct ibv_context *verbs);
/* Gives an id whose address is known its device and default domain. 0; or -errno, and it has no
 * device. Not under cm.lock. */
int cm_set_verbs(struct cm_id *id);
/* Forgets the groups of an id. Under cm.lock. */
void cm_groups_free(struct cm_id *id);
/* The path between two ports, given by their numbers. */
void cm_path(const struct emu_dev *d, const struct cm_id *id, struct ibv_ah_attr *a);
/* In a forked child: the ids are its parent's. */
void cm_forked(struct emu_dev *d);

/* cm_send.c */
/* The timer runs at this time or before (cm_proto.c says what it does). Under cm.lock. */
void cm_timer_arm(uint64_t due);
void cm_set_deadline(struct cm_id *id, uint64_t ms); /* 0 ms: none */
#define CM_RETRY (EMU_NSEC / 20) /* after it what found no room is sent again */
/* for so long a request waits for processes without a processor */
#define CM_LATE_MOST (2 * EMU_NSEC)
/* Fills the header of a message from `id` to its peer and sends it. Under cm.lock. False for a
 * request that found no room: the caller sends it again. */
bool cm_send(struct cm_id *id, struct cm_msg *m, enum cm_type type);
/* Sends a message to a peer, or keeps it until there is room. Under cm.lock. */
void cm_say(struct emu_dev *d, struct emu_peer *p, const struct cm_msg *m);
/* Sends what was kept; false when nothing is left. Under cm.lock. */
bool cm_say_again(struct emu_dev *d);
void cm_unsent_forked(void); /* in the child: that was its parent's */
void cm_send_simple(struct cm_id *id, enum cm_type type); /* one that says nothing else */
/* Answers a request for the address of datagrams; `status` is 0 or a CM_SIDR_... */
bool cm_send_sidr(struct cm_id *id, struct cm_msg *m, uint16_t status);
void cm_send_rej(struct cm_id *id, uint16_t reason, const void *data, uint8_t len);
void cm_enter_timewait(struct cm_id *id);
/* What destroying an id tells its peer. Under cm.lock. */
void cm_farewell(struct cm_id *id);

/* cm_event.c */
struct cm_chan *cm_chan_new(void);
void cm_chan_free(struct cm_chan *c);
/* A thread is about to read, under cm.lock. False: the channel is destroyed. */
bool cm_chan_enter(struct cm_chan *c);
/* A thread has read, under cm.lock. False: the channel was destroyed meanwhile, as rping
 * does. */
bool cm_chan_leave(struct cm_chan *c);
void cm_chan_put(struct cm_chan *c, struct cm_event *e); /* under cm.lock */
/* Queues an event for `id` on its channel. Under cm.lock. `m` may be NULL. */
void cm_event_post(struct cm_id *id, enum rdma_cm_event_type type, int status,
                   const struct cm_msg *m, size_t private_len);
void cm_event_post_request(struct cm_id *listener, struct cm_id *child, const struct cm_msg *m);
/* Tells the id that it has joined a group. Under cm.lock. */
void cm_event_post_join(struct cm_id *id, struct cm_group *g);
/*
 * Is the event one of `id`, or of a request to it that nobody has fetched?  Such a request is
 * the listener's, with all that has happened to it since.
 */
static inline bool cm_event_is_of(const struct cm_event *e, const struct cm_id *id)
{
    return e->owner == id || e->owner->of == id;
}
/* Drops the events of a group, or of an id, that have not been fetched; with an id the requests
 * to it, too. Under cm.lock. */
void cm_event_purge(struct cm_id *id, struct cm_group *g);
/* Takes leave of its peer, waits until its fetched events are acknowledged, and frees it with
 * its own channel if it has one. Not under cm.lock. */
void cm_id_end(struct cm_id *id);

/* cm_proto.c */
/* Sends a prepared REQ, or arranges that it is tried again. Under cm.lock. */
void cm_try_request(struct cm_id *id);

/* cm_qp.c */
int cm_qp_rtr(struct cm_id *id, int responder_resources); /* -1 with errno */
int cm_qp_rts(struct cm_id *id, int initiator_depth);
void cm_qp_err(struct cm_id *id);
int cm_qp_init(struct cm_id *id);
/* All the way to RTS: datagrams need no other side. */
int cm_qp_datagrams(struct cm_id *id);
/* Sends RTU; the connection is up on this side. Under cm.lock. */
int cm_ready_to_use(struct cm_id *id);
/* Active side, when the program fetches the response: QP to RTS, RTU. 0 or -1 with errno. */
int cm_process_response(struct cm_id *id);
/* Attaches the id's queue pair, when the program fetches the event; 0 or a positive errno. */
int cm_group_attach(struct cm_id *id, struct cm_group *g);
void cm_group_detach(struct cm_id *id, struct cm_group *g);

/* cm_fetch.c */
/* For ids made without a channel: waits for the call's event; 0 or -1 with errno. */
int cm_complete(struct cm_id *id);

#endif
