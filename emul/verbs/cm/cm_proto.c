/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Protocol of the connection manager: effects of messages, time-outs and peer deaths.
 *
 *   active                         passive
 *   REQ_SENT   --- REQ --------->  REQ_RCVD      CONNECT_REQUEST
 *   REP_RCVD   <-- REP ----------  REP_SENT      (rdma_accept)
 *   ESTABLISHED -- RTU --------->  ESTABLISHED   ESTABLISHED
 *   DREQ_SENT  --- DREQ -------->  DREQ_RCVD     DISCONNECTED
 *   TIMEWAIT   <-- DREP ----------  TIMEWAIT     (rdma_disconnect)
 *
 * Datagrams have no connection; the peer only reports its QP:
 *
 *   REQ_SENT   --- SIDR_REQ ---->  REQ_RCVD      CONNECT_REQUEST
 *   ESTABLISHED <-- SIDR_REP ----  ESTABLISHED   (rdma_accept)
 *
 * Either side may disconnect. REJ answers REQ and REP; REJ also follows an unanswered REQ whose
 * sender gives up. Messages in the peer's inbox are never lost. A REQ that finds the inbox or
 * the listener's backlog full is retried until its time-out, in place of retransmission; other
 * messages are retried until there is room (cm_send.c). A REQ without a listener is retried for
 * a short time: programs that connect and listen at the same time rely on the time that real
 * devices need for path resolution.
 *
 * A request whose sender cannot be mapped, for lack of descriptors or memory, is kept until
 * that succeeds or the sender cancels the request.
 *
 * A process that may not access the memory of a requester cannot answer. The request is noted
 * in that process's own segment (shm_head.refused), which the requester checks while waiting.
 */
#include "emul/verbs/cm/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LISTEN_RETRY (EMU_NSEC / 200)
#define HOLD_CHECK   (EMU_NSEC / 1000)

/* Ends an attempt to connect. Under cm.lock. */
static void give_up(struct cm_id *id, enum rdma_cm_event_type type, int status,
                    const struct cm_msg *m)
{
    id->state = CM_CLOSED;
    cm_set_deadline(id, 0);
    /* datagrams have a different event */
    if (cm_is_ud(id) && type == RDMA_CM_EVENT_REJECTED) {
        type = RDMA_CM_EVENT_UNREACHABLE;
        status = status == CM_REJ_NO_LISTENER ? CM_SIDR_UNSUPPORTED : CM_SIDR_REJECT;
    }
    cm_event_post(id, type, status, m,
                  type == RDMA_CM_EVENT_REJECTED && m != NULL ? CM_REJ_PRIVATE : 0);
}

/*
 * Returns true while a listener may still appear. At the end of the wait the slots are searched
 * once for processes that want a processor: such a process may be about to listen. The wait
 * then continues until they have run, and as long again, counting only time in which they ran.
 * A busy machine always has such processes, so the wait ends after CM_LATE_MAX.
 */
static bool may_be_late(struct emu_dev *d, struct cm_id *id)
{
    uint64_t now = emu_now(), wait = d->knobs.listen_wait_ms * (EMU_NSEC / 1000);
    bool had;

    if (id->late == CM_PUNCTUAL) {
        if (now < id->refuse_at)
            return true;
        if (wait)
            emu_turns_begin(d, &id->turns);
        id->late = CM_CHECKED;
        id->refuse_seen = now;
        return wait && id->turns.n;
    }
    if (now >= id->refuse_by)
        return false;
    if (now - id->refuse_seen < LISTEN_RETRY)
        return true;
    had = emu_turns_had(&id->turns, id->late == CM_CHECKED);
    if (id->late == CM_CHECKED)
        id->refuse_at = had ? now : now + wait;
    else if (!had)
        id->refuse_at += now - id->refuse_seen;
    id->late = CM_LATE;
    id->refuse_seen = now;
    return now < id->refuse_at;
}

/* Handles a request without a listener, as reported by the peer in `rej`, or found locally.
 * Under cm.lock. */
static void no_listener(struct cm_id *id, const struct cm_msg *rej)
{
    struct emu_dev *d = emu_dev_peek();
    struct cm_msg none = {0};

    if (d != NULL && may_be_late(d, id)) {
        emu_peer_put(d, id->peer); /* the next listener may be another process */
        id->peer = NULL;
        id->req_delivered = false;
        cm_timer_arm(emu_now() + LISTEN_RETRY);
    } else {
        give_up(id, RDMA_CM_EVENT_REJECTED, CM_REJ_NO_LISTENER, rej != NULL ? rej : &none);
    }
}

/* Returns whether the peer has noted that it cannot answer. */
static bool refused(const struct emu_dev *d, const struct cm_id *id)
{
    for (uint32_t i = 0; id->peer != NULL && i < EMU_REFUSED; i++)
        if (atomic_load(&id->peer->seg->refused[i]) ==
            SHM_REFUSED(d->self.incarnation, id->num))
            return true;
    return false;
}

void cm_try_request(struct cm_id *id)
{
    struct emu_dev *d = emu_dev_peek();
    union cm_addr dst;

    if (d == NULL)
        return;
    cm_addr_copy(&dst, &id->id.route.addr.dst_addr);
    if (d->knobs.silent || cm_addr_blackholed(&d->knobs, &dst.sa)) {
        id->req_delivered = true; /* sent, but never answered */
        return;
    }
    if (id->peer == NULL) {
        int pid = cm_addr_find(&dst, id->id.ps);
        if (pid == -ECONNREFUSED) {
            no_listener(id, NULL);
            return;
        }
        if (pid > 0)
            id->peer = emu_peer_by_pid(d, pid);
        int err = id->peer != NULL ? 0 : pid > 0 ? errno : -pid;
        if (err == EPERM || err == EMFILE || err == ENFILE) {
            give_up(id, RDMA_CM_EVENT_UNREACHABLE, -err, NULL);
            return;
        }
    }
    if (id->peer != NULL && cm_send(id, &id->req, cm_is_ud(id) ? CM_SIDR_REQ : CM_REQ))
        id->req_delivered = true;
    cm_timer_arm(emu_now() + CM_RETRY);
}

static void expired(struct cm_id *id)
{
    switch (id->state) {
    case CM_REQ_SENT:
        if (id->req_delivered)
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

/* Reports that the peer has disconnected. */
static void disconnected(struct cm_id *id)
{
    id->state = CM_DREQ_RCVD;
    cm_set_deadline(id, 0);
    cm_event_post(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
}

/* Handles the death of the peer, or its answer to DREQ. */
static void gone(struct cm_id *id)
{
    cm_enter_timewait(id);
    cm_event_post(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
}

/*
 * Holds a disconnection back while earlier completions have not been polled. On a network the
 * disconnection passes through the connection managers of two kernels and arrives long after
 * the data; some programs destroy the QP immediately. False if not needed.
 *
 * Each look takes at most HOLD_CHECK from the time that is left: time in which this process had
 * no processor, and could not poll either, does not count.
 */
static bool hold(struct cm_id *id)
{
    struct emu_dev *d = emu_dev_peek();
    uint64_t now = emu_now();

    if (d == NULL || !d->knobs.dreq_hold_ms || !emu_qp_unseen(d, id->local_qpn))
        return false;
    if (!id->hold_left) {
        id->hold_left = d->knobs.dreq_hold_ms * HOLD_CHECK;
        id->hold_seen = now;
    }
    cm_timer_arm(now + HOLD_CHECK);
    return true;
}

/* Checks whether a held disconnection can be reported. */
static void release(struct cm_id *id, uint64_t now)
{
    struct emu_dev *d = emu_dev_peek();
    bool connected = is_connected(id);
    uint64_t passed = now - id->hold_seen;

    emu_count(COUNT_ends_checked, 1);
    id->hold_seen = now;
    passed = passed < HOLD_CHECK ? passed : HOLD_CHECK;
    id->hold_left -= passed < id->hold_left ? passed : id->hold_left;
    if (connected && d != NULL && id->hold_left && emu_qp_unseen(d, id->local_qpn))
        return;
    id->hold_left = 0;
    if (id->peer != NULL && atomic_load(&id->peer->dead)) { /* no answer, see peer_died() */
        if (connected || id->state == CM_DREQ_SENT)
            gone(id);
    } else if (connected) {
        disconnected(id);
    }
}

/* Answers a message to an unknown id. */
static void answer(struct emu_dev *d, struct emu_peer *p, const struct cm_msg *m,
                   enum cm_type type, uint16_t reason)
{
    struct cm_msg a = {.type = type,
                       .src_slot = d->slot,
                       .src_inc = d->self.incarnation,
                       .local_id = m->remote_id,
                       .remote_id = m->local_id,
                       .reason = reason};

    if (p != NULL)
        cm_send_message(d, p, &a);
}

/* Returns the listener for a request: the exact address before a wildcard. Under cm.lock. */
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
        return; /* not sent by programs of this library */
    uint8_t port = (uint8_t)emu_port_of_address(d, &m->dst.sa);
    struct cm_id *l = find_listener(m);
    if (l == NULL) {
        answer(d, p, m, ud ? CM_SIDR_REP : CM_REJ,
               ud ? CM_SIDR_UNSUPPORTED : CM_REJ_NO_LISTENER);
        return;
    }
    struct cm_id *c = l->pending < l->backlog
                          ? cm_id_new((struct cm_chan *)l->id.channel, l->id.context, l->id.ps)
                          : NULL;
    if (c == NULL) {
        answer(d, p, m, ud ? CM_SIDR_REP : CM_REJ, ud ? CM_SIDR_REJECT : CM_REJ_CONSUMER);
        return;
    }
    struct rdma_addr *a = &c->id.route.addr;
    memcpy(&a->src_storage, &m->dst, cm_addr_len(&m->dst.sa));
    memcpy(&a->dst_storage, &m->src, cm_addr_len(&m->src.sa));
    c->state = CM_REQ_RCVD;
    c->sync = l->sync;
    c->of = l;
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
    cm_set_port(c, port);
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
    case CM_DREQ_SENT: /* both sides disconnected simultaneously */
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

/* Returns the request that the active side cancels before an answer. This side's number is
 * unknown to the active side. */
static struct cm_id *asked_as(const struct cm_msg *m)
{
    struct cm_id *id = cm.ids;

    while (id != NULL &&
           (id->state != CM_REQ_RCVD || id->remote_num != m->local_id || !from(id->peer, m)))
        id = id->next;
    return id;
}

/* Returns the id that a message is for; NULL if there is none. Under cm.lock. */
static struct cm_id *addressee(const struct cm_msg *m)
{
    if (m->type == CM_REQ || m->type == CM_SIDR_REQ)
        return NULL;
    struct cm_id *id =
        m->type == CM_REJ && !m->remote_id ? asked_as(m) : cm_id_by_num(m->remote_id);
    bool is = id != NULL && id->state != CM_CLOSED && id->peer != NULL && from(id->peer, m) &&
              cm_is_ud(id) == (m->type == CM_SIDR_REP);
    return is ? id : NULL;
}

#define MAX_UNMET 4096u

/* A request of a process that could not be mapped yet, or to a port that is down. */
struct cm_unmet {
    struct cm_unmet *next;
    struct cm_msg m;
};

/* Returns whether the error is a temporary lack of resources. */
static bool is_lack(int err)
{
    return err == EMFILE || err == ENFILE || err == ENOMEM || err == EAGAIN;
}

static void keep(const struct cm_msg *m)
{
    struct cm_unmet *u = NULL, **at = &cm.unmet;
    uint32_t n = 0;

    for (; *at; at = &(*at)->next)
        n++;
    if (n < MAX_UNMET)
        u = malloc(sizeof(*u));
    if (u == NULL)
        return; /* as if lost by the network */
    u->next = NULL;
    u->m = *m;
    *at = u;
    cm_timer_arm(emu_now() + CM_RETRY);
}

/* Removes a kept request that its sender cancels. */
static void take_back(const struct cm_msg *m)
{
    for (struct cm_unmet *u, **at = &cm.unmet; (u = *at) != NULL; at = &u->next)
        if (u->m.src_slot == m->src_slot && u->m.src_inc == m->src_inc &&
            u->m.local_id == m->local_id) {
            *at = u->next;
            free(u);
            return;
        }
}

/* Notes a requester whose memory may not be accessed; the requester reads the note. */
static void note_refused(struct emu_dev *d, const struct cm_msg *m)
{
    uint32_t i = atomic_fetch_add(&d->seg->next_refused, 1) % EMU_REFUSED;

    atomic_store(&d->seg->refused[i], SHM_REFUSED(m->src_inc, m->local_id));
}

/* Returns whether a request is for a port that receives nothing now: its sender's connection
 * manager repeats the request. */
static bool is_cut_off(const struct emu_dev *d, const struct cm_msg *m)
{
    uint32_t port = emu_port_of_address(d, &m->dst.sa);

    return emu_port_is_down(atomic_load(&d->hca[EMU_PORT_DEVICE(port)]), EMU_PORT_OF(port));
}

/* Retries to map the senders of kept requests; false when none is left. Under cm.lock. */
static bool take_unmet(struct emu_dev *d)
{
    for (struct cm_unmet *u, **at = &cm.unmet; (u = *at) != NULL;) {
        if (is_cut_off(d, &u->m)) {
            at = &u->next;
            continue;
        }
        struct emu_peer *p = emu_peer_get(d, u->m.src_slot & (EMU_MAX_SLOTS - 1));
        if (p == NULL && is_lack(errno)) {
            at = &u->next;
            continue;
        }
        if (p == NULL && errno == EPERM)
            note_refused(d, &u->m);
        *at = u->next;
        if (p != NULL && from(p, &u->m))
            on_req(d, p, &u->m);
        emu_peer_put(d, p);
        free(u);
    }
    return cm.unmet != NULL;
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
        } else if (id->state == CM_REQ_SENT && d != NULL && refused(d, id)) {
            emu_explain_eperm(id->peer->pid);
            give_up(id, RDMA_CM_EVENT_UNREACHABLE, -EPERM, NULL);
        }
        if (id->state == CM_REQ_SENT && now + CM_RETRY < next)
            next = now + CM_RETRY;
        if (id->hold_left)
            release(id, now);
        if (id->hold_left && now + HOLD_CHECK < next)
            next = now + HOLD_CHECK;
        if (id->deadline && id->deadline <= now)
            expired(id);
        if (id->deadline && id->deadline < next)
            next = id->deadline;
    }
    bool unsent = d != NULL && cm_send_unsent(d), unmet = d != NULL && take_unmet(d);
    if ((unsent || unmet) && now + CM_RETRY < next)
        next = now + CM_RETRY;
    if (next != UINT64_MAX)
        cm_timer_arm(next);
    pthread_mutex_unlock(&cm.lock);
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
    struct cm_id *id = addressee(&m);
    /* an id knows its peer, even one that died after sending */
    struct emu_peer *p =
        id != NULL ? id->peer : emu_peer_get(d, m.src_slot & (EMU_MAX_SLOTS - 1));
    if (id != NULL)
        emu_peer_ref(d, p);
    if (p == NULL && errno == EPERM && asks) {
        note_refused(d, &m);
    } else if (p == NULL && is_lack(errno) && asks && cm_addr_len(&m.dst.sa)) {
        keep(&m);
    } else if (m.type == CM_REJ && !m.remote_id) {
        take_back(&m);
    }
    if (p == NULL || !from(p, &m)) {
        pthread_mutex_unlock(&cm.lock);
        emu_peer_put(d, p);
        return; /* the sender is dead */
    }
    switch ((enum cm_type)m.type) {
    case CM_REQ:
    case CM_SIDR_REQ:
        if (!cm_addr_len(&m.dst.sa))
            break;
        if (is_cut_off(d, &m))
            keep(&m);
        else
            on_req(d, p, &m);
        break;
    case CM_REP:
        if (id != NULL)
            on_rep(id, &m);
        else
            answer(d, p, &m, CM_REJ, CM_REJ_INVALID_COMM_ID);
        break;
    case CM_SIDR_REP:
        if (id != NULL)
            on_sidr_rep(id, &m);
        break;
    case CM_RTU:
        if (id != NULL && id->state == CM_REP_SENT) {
            id->state = CM_ESTABLISHED;
            cm_set_deadline(id, 0);
            cm_event_post(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
        }
        break;
    case CM_REJ:
        if (id != NULL && (id->state == CM_REQ_SENT || id->state == CM_REP_SENT ||
                           id->state == CM_REQ_RCVD)) {
            if (id->state == CM_REQ_SENT && m.reason == CM_REJ_NO_LISTENER)
                no_listener(id, &m);
            else
                give_up(id, RDMA_CM_EVENT_REJECTED, m.reason, &m);
        }
        break;
    case CM_DREQ:
        if (id != NULL)
            on_dreq(id);
        else
            answer(d, p, &m, CM_DREP, 0);
        break;
    case CM_DREP:
        if (id != NULL && id->state == CM_DREQ_SENT) {
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
            continue; /* datagram programs get no event */
        switch (id->state) {
        case CM_REP_SENT: /* not confirmed: no connection existed */
            give_up(id, RDMA_CM_EVENT_REJECTED, CM_REJ_CONSUMER, &none);
            break;
        case CM_ESTABLISHED:
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

static void forked(struct emu_dev *d)
{
    for (struct cm_unmet *u; (u = cm.unmet) != NULL;) { /* sent to the parent */
        cm.unmet = u->next;
        free(u);
    }
    cm_unsent_forked();
    cm_forked(d);
}

__attribute__((constructor)) static void loaded(void)
{
    static const struct emu_above row = {
        .told = told, .untold = cm_device_asked, .peer_died = peer_died, .forked = forked};

    cm.timer.fn = on_timer;
    emu_above_is(EMU_ABOVE_CM, &row);
}
