/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The connection manager's protocol: what messages, time-outs and the death of a peer do.
 *
 *   active                         passive
 *   REQ_SENT   --- REQ --------->  REQ_RCVD      CONNECT_REQUEST
 *   REP_RCVD   <-- REP ----------  REP_SENT      (rdma_accept)
 *   ESTABLISHED -- RTU --------->  ESTABLISHED   ESTABLISHED
 *   DREQ_SENT  --- DREQ -------->  DREQ_RCVD     DISCONNECTED
 *   TIMEWAIT   <-- DREP ----------  TIMEWAIT     (rdma_disconnect)
 *
 * For datagrams there is no connection, only the question where to send them:
 *
 *   REQ_SENT   --- SIDR_REQ ---->  REQ_RCVD      CONNECT_REQUEST
 *   ESTABLISHED <-- SIDR_REP ----  ESTABLISHED   (rdma_accept)
 *
 * Either side may disconnect. REJ answers REQ and REP. Messages are never lost once they are in
 * the peer's inbox; a REQ that does not find room, or whose listener has a full backlog, is
 * tried again until its time is over, which is what retransmission comes to here. One that
 * finds no listener at all is tried again for a short while: real devices need that long to
 * find the way, and programs rely on it when they tell each other to connect and to listen.
 *
 * A process that may not reach the memory of a requester cannot answer it either. It notes the
 * request in its own segment (shm_head.refused), where the requester looks while it waits.
 */
#include "emul/verbs/cm/cm.h"

#include <errno.h>
#include <string.h>

#define REQ_RETRY_MS    50
#define LISTEN_RETRY_MS 5
#define HOLD_LOOK       (EMU_NSEC / 1000)

/* Ends an attempt to connect. Under cm.lock. */
static void give_up(struct cm_id *id, enum rdma_cm_event_type type, int status,
                    const struct cm_msg *m)
{
    id->state = CM_CLOSED;
    cm_set_deadline(id, 0);
    /* datagrams have another word for it */
    if (cm_is_ud(id) && type == RDMA_CM_EVENT_REJECTED) {
        type = RDMA_CM_EVENT_UNREACHABLE;
        status = status == CM_REJ_NO_LISTENER ? CM_SIDR_UNSUPPORTED : CM_SIDR_REJECT;
    }
    cm_event_post(id, type, status, m,
                  type == RDMA_CM_EVENT_REJECTED && m ? CM_REJ_PRIVATE : 0);
}

/* A request found nobody who listens, or who says so in `rej`. Under cm.lock. */
static void no_listener(struct cm_id *id, const struct cm_msg *rej)
{
    struct emu_dev *d = emu_dev_peek();
    struct cm_msg none = {0};

    if (d && emu_now() < id->refuse_at) {
        emu_peer_put(d, id->peer); /* the next listener may be another process */
        id->peer = NULL;
        id->req_delivered = false;
        cm_timer_arm(emu_now() + LISTEN_RETRY_MS * (EMU_NSEC / 1000));
    } else {
        give_up(id, RDMA_CM_EVENT_REJECTED, CM_REJ_NO_LISTENER, rej ? rej : &none);
    }
}

/* Has the peer noted that it cannot answer? */
static bool refused(const struct emu_dev *d, const struct cm_id *id)
{
    for (uint32_t i = 0; id->peer && i < EMU_REFUSED; i++)
        if (atomic_load(&id->peer->seg->refused[i]) ==
            SHM_REFUSED(d->self.incarnation, id->num))
            return true;
    return false;
}

void cm_try_request(struct cm_id *id)
{
    struct emu_dev *d = emu_dev_peek();
    union cm_addr dst;

    if (!d)
        return;
    cm_addr_copy(&dst, &id->id.route.addr.dst_addr);
    if (d->knobs.silent || cm_addr_blackholed(&d->knobs, &dst.sa)) {
        id->req_delivered = true; /* it went out; nobody will answer */
        return;
    }
    if (!id->peer) {
        int pid = cm_addr_find(&dst, id->id.ps);
        if (pid == -ECONNREFUSED) {
            no_listener(id, NULL);
            return;
        }
        if (pid > 0)
            id->peer = emu_peer_by_pid(d, pid);
        if (!id->peer && pid > 0 && errno == EPERM) {
            give_up(id, RDMA_CM_EVENT_UNREACHABLE, -EPERM, NULL);
            return;
        }
    }
    if (id->peer && cm_send(id, &id->req, cm_is_ud(id) ? CM_SIDR_REQ : CM_REQ))
        id->req_delivered = true;
    cm_timer_arm(emu_now() + REQ_RETRY_MS * (EMU_NSEC / 1000));
}

static void expired(struct cm_id *id)
{
    switch (id->state) {
    case CM_REQ_SENT:
        cm_send_rej(id, CM_REJ_TIMEOUT, NULL, 0);
        give_up(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
        break;
    case CM_REP_SENT:
        give_up(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
        break;
    case CM_DREQ_SENT:
        cm_enter_timewait(id);
        cm_event_post(id, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT, NULL, 0);
        break;
    case CM_TIMEWAIT:
        id->state = CM_CLOSED;
        id->deadline = 0;
        cm_event_post(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL, 0);
        break;
    default:
        id->deadline = 0;
        break;
    }
}

static bool is_connected(const struct cm_id *id)
{
    return id->state == CM_ESTABLISHED || id->state == CM_REP_SENT || id->state == CM_REP_RCVD;
}

/* The peer has disconnected, and the program is told. */
static void disconnected(struct cm_id *id)
{
    id->state = CM_DREQ_RCVD;
    cm_set_deadline(id, 0);
    cm_event_post(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
}

/* The peer is dead, or has answered ours. */
static void gone(struct cm_id *id)
{
    cm_enter_timewait(id);
    cm_event_post(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
}

/*
 * Holds a disconnection back while something that came before it has not been polled. On a
 * network it comes through the connection managers of two kernels, long after the data, and
 * there are programs that destroy the queue pair when they hear of it. False when it need not.
 */
static bool hold(struct cm_id *id)
{
    struct emu_dev *d = emu_dev_peek();
    uint64_t now = emu_now();

    if (!d || !d->knobs.dreq_hold_ms || !emu_qp_unseen(d, id->local_qpn))
        return false;
    if (!id->held_until)
        id->held_until = now + d->knobs.dreq_hold_ms * (EMU_NSEC / 1000);
    cm_timer_arm(now + HOLD_LOOK);
    return true;
}

/* Looks whether what was held back can be told. */
static void release(struct cm_id *id, uint64_t now)
{
    struct emu_dev *d = emu_dev_peek();
    bool connected = is_connected(id);

    if (connected && d && now < id->held_until && emu_qp_unseen(d, id->local_qpn))
        return;
    id->held_until = 0;
    if (id->peer && atomic_load(&id->peer->dead)) { /* it answers no more; see peer_died */
        if (connected || id->state == CM_DREQ_SENT)
            gone(id);
    } else if (connected) {
        disconnected(id);
    }
}

static void on_timer(struct emu_timer *t)
{
    uint64_t now = emu_now(), next = UINT64_MAX;
    struct emu_dev *d = emu_dev_peek();
    (void)t;

    pthread_mutex_lock(&cm.lock);
    for (struct cm_id *id = cm.ids; id; id = id->next) {
        if (id->state == CM_REQ_SENT && !id->req_delivered) {
            cm_try_request(id);
        } else if (id->state == CM_REQ_SENT && d && refused(d, id)) {
            struct cm_msg none = {0};
            give_up(id, RDMA_CM_EVENT_REJECTED, CM_REJ_CONSUMER, &none);
        }
        if (id->state == CM_REQ_SENT && now + REQ_RETRY_MS * (EMU_NSEC / 1000) < next)
            next = now + REQ_RETRY_MS * (EMU_NSEC / 1000);
        if (id->held_until)
            release(id, now);
        if (id->held_until && now + HOLD_LOOK < next)
            next = now + HOLD_LOOK;
        if (id->deadline && id->deadline <= now)
            expired(id);
        if (id->deadline && id->deadline < next)
            next = id->deadline;
    }
    if (next != UINT64_MAX)
        cm_timer_arm(next);
    pthread_mutex_unlock(&cm.lock);
}

/* Answers a message for which there is no id. */
static void answer(struct emu_dev *d, struct emu_peer *p, const struct cm_msg *m,
                   enum cm_type type, uint16_t reason)
{
    struct cm_msg a = {.type = type,
                       .src_slot = d->slot,
                       .src_inc = d->self.incarnation,
                       .local_id = m->remote_id,
                       .remote_id = m->local_id,
                       .reason = reason};

    if (p)
        emu_peer_send(d, p, INBOX_CM, 0, 0, &a, sizeof(a));
}

/* The listener for a request: the exact address before a wildcard. Under cm.lock. */
static struct cm_id *find_listener(const struct cm_msg *m)
{
    struct cm_id *any = NULL;

    for (struct cm_id *id = cm.listeners; id; id = id->next_listener) {
        struct sockaddr *sa = &id->id.route.addr.src_addr;
        union cm_addr mine;
        if (id->state != CM_LISTEN || id->id.ps != m->ps ||
            cm_addr_port(sa) != cm_addr_port(&m->dst.sa))
            continue;
        cm_addr_copy(&mine, sa);
        if (cm_addr_equal(&mine, &m->dst))
            return id;
        bool v4 = m->dst.sa.sa_family == AF_INET;
        if (cm_addr_is_any(sa) && (sa->sa_family == m->dst.sa.sa_family ||
                                   (v4 && sa->sa_family == AF_INET6 && !id->afonly)))
            any = id;
    }
    return any;
}

static void on_req(struct emu_dev *d, struct emu_peer *p, const struct cm_msg *m)
{
    bool ud = m->type == CM_SIDR_REQ;

    if (ud != (m->ps == RDMA_PS_UDP))
        return; /* no program of ours asks so */
    uint8_t port = (uint8_t)emu_port_of_address(d, &m->dst.sa);
    if (d->hca[EMU_PORT_DEVICE(port)].failed)
        return; /* nobody answers */
    struct cm_id *l = find_listener(m);
    if (!l || !emu_port_meets(d, EMU_PORT_DEVICE(port), EMU_PORT_DEVICE(m->port))) {
        answer(d, p, m, ud ? CM_SIDR_REP : CM_REJ,
               ud ? CM_SIDR_UNSUPPORTED : CM_REJ_NO_LISTENER);
        return;
    }
    struct cm_id *c = l->pending < l->backlog
                          ? cm_id_new((struct cm_chan *)l->id.channel, l->id.context, l->id.ps)
                          : NULL;
    if (!c) {
        answer(d, p, m, ud ? CM_SIDR_REP : CM_REJ, ud ? CM_SIDR_REJECT : CM_REJ_CONSUMER);
        return;
    }
    struct rdma_addr *a = &c->id.route.addr;
    memcpy(&a->src_storage, &m->dst, cm_addr_len(&m->dst.sa));
    memcpy(&a->dst_storage, &m->src, cm_addr_len(&m->src.sa));
    c->state = CM_REQ_RCVD;
    c->sync = l->sync;
    c->peer = p;
    emu_peer_ref(d, p);
    c->remote_num = m->local_id;
    c->remote_qpn = m->qpn;
    c->responder_resources = m->initiator_depth;
    c->initiator_depth = m->responder_resources;
    c->retry_count = m->retry_count;
    c->rnr_retry = m->rnr_retry_count;
    c->sl = m->sl & 15;
    c->traffic_class = m->traffic_class;
    c->port = port;
    c->remote_port = m->port % (EMU_MAX_DEVICES * EMU_MAX_PORTS);
    emu_gid(d, c->port, &a->addr.ibaddr.sgid);
    emu_gid(d, c->remote_port, &a->addr.ibaddr.dgid);
    a->addr.ibaddr.pkey = htobe16(0xffff);
    cm_event_post_request(l, c, m);
}

static void on_rep(struct cm_id *id, const struct cm_msg *m)
{
    if (id->state != CM_REQ_SENT)
        return;
    id->state = CM_REP_RCVD;
    cm_set_deadline(id, 0);
    id->remote_num = m->local_id;
    id->remote_qpn = m->qpn;
    id->responder_resources = m->initiator_depth;
    id->initiator_depth = m->responder_resources;
    id->rnr_retry = m->rnr_retry_count;
    cm_event_post(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, m, CM_REP_PRIVATE);
}

static void on_sidr_rep(struct cm_id *id, const struct cm_msg *m)
{
    if (id->state != CM_REQ_SENT)
        return;
    if (m->reason == CM_SIDR_UNSUPPORTED) {
        no_listener(id, m);
    } else if (m->reason) {
        give_up(id, RDMA_CM_EVENT_UNREACHABLE, m->reason, NULL);
    } else {
        id->state = CM_ESTABLISHED;
        cm_set_deadline(id, 0);
        id->remote_qpn = m->qpn;
        cm_event_post(id, RDMA_CM_EVENT_ESTABLISHED, 0, m, CM_SIDR_REP_PRIVATE);
    }
}

static void on_dreq(struct cm_id *id)
{
    switch (id->state) {
    case CM_ESTABLISHED:
    case CM_REP_SENT:
    case CM_REP_RCVD:
        if (!hold(id))
            disconnected(id);
        break;
    case CM_DREQ_SENT: /* both at once */
        cm_send_simple(id, CM_DREP);
        cm_enter_timewait(id);
        cm_event_post(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
        break;
    default:
        cm_send_simple(id, CM_DREP);
        break;
    }
}

static bool from(const struct emu_peer *p, const struct cm_msg *m)
{
    return p->slot == m->src_slot && p->incarnation == m->src_inc;
}

static void told(struct emu_dev *d, const struct shm_msg *msg)
{
    struct cm_msg m;

    memcpy(&m, msg->payload, sizeof(m));
    if (msg->kind != INBOX_CM || d->knobs.silent ||
        !cm_addr_len(&m.dst.sa) != !cm_addr_len(&m.src.sa))
        return;
    pthread_mutex_lock(&cm.lock);
    bool asks = m.type == CM_REQ || m.type == CM_SIDR_REQ;
    struct cm_id *id = asks ? NULL : cm_id_by_num(m.remote_id);
    if (id && (id->state == CM_CLOSED || !id->peer || !from(id->peer, &m) ||
               cm_is_ud(id) != (m.type == CM_SIDR_REP)))
        id = NULL;
    /* an id knows its peer, also one that has died since it sent this */
    struct emu_peer *p = id ? id->peer : emu_peer_get(d, m.src_slot & (EMU_MAX_SLOTS - 1));
    if (id)
        emu_peer_ref(d, p);
    if (!p && errno == EPERM && asks) {
        uint32_t i = atomic_fetch_add(&d->seg->next_refused, 1) % EMU_REFUSED;
        atomic_store(&d->seg->refused[i], SHM_REFUSED(m.src_inc, m.local_id));
    }
    if (!p || !from(p, &m)) {
        pthread_mutex_unlock(&cm.lock);
        emu_peer_put(d, p);
        return; /* the sender is gone already */
    }
    switch ((enum cm_type)m.type) {
    case CM_REQ:
    case CM_SIDR_REQ:
        if (cm_addr_len(&m.dst.sa))
            on_req(d, p, &m);
        break;
    case CM_REP:
        if (id)
            on_rep(id, &m);
        else
            answer(d, p, &m, CM_REJ, CM_REJ_INVALID_COMM_ID);
        break;
    case CM_SIDR_REP:
        if (id)
            on_sidr_rep(id, &m);
        break;
    case CM_RTU:
        if (id && id->state == CM_REP_SENT) {
            id->state = CM_ESTABLISHED;
            cm_set_deadline(id, 0);
            cm_event_post(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
        }
        break;
    case CM_REJ:
        if (id && (id->state == CM_REQ_SENT || id->state == CM_REP_SENT ||
                   id->state == CM_REQ_RCVD)) {
            if (id->state == CM_REQ_SENT && m.reason == CM_REJ_NO_LISTENER)
                no_listener(id, &m);
            else
                give_up(id, RDMA_CM_EVENT_REJECTED, m.reason, &m);
        }
        break;
    case CM_DREQ:
        if (id)
            on_dreq(id);
        else
            answer(d, p, &m, CM_DREP, 0);
        break;
    case CM_DREP:
        if (id && id->state == CM_DREQ_SENT) {
            gone(id);
        }
        break;
    }
    pthread_mutex_unlock(&cm.lock);
    emu_peer_put(d, p);
}

static void peer_died(struct emu_dev *d, struct emu_peer *p)
{
    struct cm_msg none = {0};
    (void)d;

    pthread_mutex_lock(&cm.lock);
    for (struct cm_id *id = cm.ids; id; id = id->next) {
        if (id->peer != p || (cm_is_ud(id) && id->state != CM_REQ_SENT))
            continue; /* nobody tells a program that sends datagrams */
        switch (id->state) {
        case CM_ESTABLISHED:
        case CM_REP_SENT:
        case CM_REP_RCVD:
            if (hold(id))
                break;
            /* fall through */
        case CM_DREQ_SENT:
            gone(id);
            break;
        case CM_REQ_SENT:
            give_up(id, RDMA_CM_EVENT_REJECTED, CM_REJ_CONSUMER, &none);
            break;
        case CM_REQ_RCVD:
            give_up(id, RDMA_CM_EVENT_REJECTED, CM_REJ_TIMEOUT, &none);
            break;
        default:
            break;
        }
    }
    pthread_mutex_unlock(&cm.lock);
}

__attribute__((constructor)) static void loaded(void)
{
    static const struct emu_above row = {
        .told = told, .peer_died = peer_died, .forked = cm_forked};

    cm.timer.fn = on_timer;
    emu_above_is(EMU_ABOVE_CM, &row);
}
