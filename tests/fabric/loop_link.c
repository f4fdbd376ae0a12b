/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The loop fabric: links, their buffers and queues.
 *
 * A link never ends another one directly. The link marks its peer (`ending`), and the device
 * ends the peer at a later step, because the two ends of a real connection notice its end at
 * different times.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/addr.h"
#include "loop_int.h"

#define POISON   0xdd
#define PATIENCE 100 /* polls until a lost Elan4 link with work is detected */
#define DRAIN    16  /* most steps for which an ending Elan4 link drains */

/* ---- The list of links with work ---- */

void loop_busy(struct rme_link *link)
{
    if (link->busy_at != NULL)
        return;
    link->busy_next = loop_net.busy;
    link->busy_at = &loop_net.busy;
    if (link->busy_next != NULL)
        link->busy_next->busy_at = &link->busy_next;
    loop_net.busy = link;
}

void loop_idle(struct rme_link *link)
{
    if (link->busy_at == NULL)
        return;
    *link->busy_at = link->busy_next;
    if (link->busy_next != NULL)
        link->busy_next->busy_at = link->busy_at;
    link->busy_at = NULL;
}

/* ---- Life ---- */

struct rme_link *loop_link_new(struct loop_fabric *f)
{
    struct rme_link *link = calloc(1, sizeof *link);

    if (link == NULL)
        return NULL;
    link->fabric = f;
    link->patience = PATIENCE;
    link->drain = f->elan4 ? 1 + (uint32_t)loop_random(f, DRAIN) : 0;
    link->queued_tail = &link->queued;
    link->work_tail = &link->work;
    LOOP_PUT(f->links, link);
    return link;
}

static void tx_free(struct rme_link *link, struct loop_tx *tx)
{
    memset(tx->data, POISON, link->fabric->config.rx_size);
    free(tx);
    link->tx_used--;
    loop_net.census.tx_held--;
}

void loop_work_free(struct rme_link *link, struct loop_work *w)
{
    if (w->tx != NULL)
        tx_free(link, w->tx);
    free(w->order);
    free(w->keys);
    free(w);
}

static void work_drop(struct rme_link *link)
{
    struct loop_work *lists[] = {link->work, link->queued};

    for (int i = 0; i < 2; i++) {
        while (lists[i] != NULL) {
            struct loop_work *next = lists[i]->next;
            loop_work_free(link, lists[i]);
            lists[i] = next;
        }
    }
    link->work = link->queued = NULL;
    link->work_tail = &link->work;
    link->queued_tail = &link->queued;
}

static void detach(struct rme_link *link)
{
    struct rme_link *peer = link->peer;

    if (peer == NULL)
        return;
    link->peer = NULL;
    peer->peer = NULL;
    if (peer->state == LOOP_STATE_ENDED || peer->lost)
        return;
    if (!peer->ending)
        peer->ending = -ECONNRESET;
    loop_busy(peer);
    loop_kick(peer->fabric);
}

void loop_link_end(struct rme_link *link, int error, const void *hello, size_t length)
{
    if (link->state == LOOP_STATE_ENDED)
        return;
    link->state = LOOP_STATE_ENDED;
    work_drop(link);
    loop_mws_invalidate(link, NULL);
    loop_idle(link);
    detach(link);
    struct loop_event *e = loop_event_new(RME_EV_LINK_DOWN, link);
    e->event.error = error;
    if (hello != NULL)
        loop_event_hello(link->fabric, e, hello, length);
    loop_event_push(link->fabric, e);
}

void loop_link_fail(struct rme_link *link, int error)
{
    if (link->fabric->elan4) {
        link->lost = true;
        if (link->peer != NULL)
            link->peer->lost = true;
    } else {
        loop_link_end(link, error, NULL, 0);
    }
}

void loop_link_delete(struct rme_link *link)
{
    struct loop_fabric *f = link->fabric;

    loop_events_drop(f, link);
    work_drop(link);
    loop_idle(link);
    detach(link);
    while (link->tx_lent != NULL) {
        struct loop_tx *tx = link->tx_lent;
        link->tx_lent = tx->next;
        tx_free(link, tx);
    }
    while (link->rx_lent != NULL) {
        struct loop_rx *rx = link->rx_lent;
        link->rx_lent = rx->next;
        rx->link = NULL;
        LOOP_PUT(f->rx_orphans, rx);
    }
    f->rx_total -= link->rx_advertised;
    LOOP_TAKE(link);
    free(link);
}

static int reserve(struct rme_link *link, uint32_t n)
{
    struct loop_fabric *f = link->fabric;
    int error = 0;

    if (loop_faulty(f, LOOP_RX_RESERVE, &error))
        return error;
    if (n > LOOP_RX_MAX - f->rx_total)
        return -ENOSPC;
    f->rx_total += n;
    link->rx_advertised += n;
    loop_rx_give(link, n);
    return 0;
}

static void check_hello(const struct loop_fabric *f, size_t length)
{
    if (length > f->hello_max)
        loop_violation("%s: hello data of %zu bytes", f->name, length);
}

int loop_op_connect(struct rme_fabric *rf, const struct rme_addr *addr, int part,
                    const void *hello, size_t length, uint32_t rx, void *owner,
                    struct rme_link **out)
{
    struct loop_fabric *f = (struct loop_fabric *)rf;
    const struct rme_addr_part *to = rme_addr_part(addr, part);
    int error = 0;

    pthread_mutex_lock(&loop_net.lock);
    if (loop_faulty(f, LOOP_CONNECT, &error)) {
        pthread_mutex_unlock(&loop_net.lock);
        return error;
    }
    check_hello(f, length);
    struct rme_link *link = loop_link_new(f);
    error = link != NULL ? reserve(link, rx) : -ENOMEM;
    if (error) {
        if (link != NULL)
            loop_link_delete(link);
        pthread_mutex_unlock(&loop_net.lock);
        return error;
    }
    link->state = LOOP_STATE_CONNECTING;
    link->owner = owner;
    snprintf(link->target, sizeof link->target, "%s:%s", to->host, to->port);
    snprintf(link->peer_name, sizeof link->peer_name, "%s", link->target);
    memcpy(link->hello, hello, length < LOOP_HELLO_MAX ? length : LOOP_HELLO_MAX);
    loop_busy(link);
    loop_kick(f);
    *out = link;
    pthread_mutex_unlock(&loop_net.lock);
    return 0;
}

static void link_up(struct rme_link *link, const void *hello, size_t length)
{
    struct loop_event *e = loop_event_new(RME_EV_LINK_UP, link);

    link->state = LOOP_STATE_UP;
    if (hello != NULL)
        loop_event_hello(link->fabric, e, hello, length);
    loop_event_push(link->fabric, e);
}

int loop_op_accept(struct rme_link *link, const void *hello, size_t length, uint32_t rx,
                   void *owner)
{
    struct loop_fabric *f = link->fabric;
    int error = 0;

    pthread_mutex_lock(&loop_net.lock);
    if (link->state != LOOP_STATE_REQUESTED)
        loop_violation("%s: accept of a link that was not requested", f->name);
    check_hello(f, length);
    if (!loop_faulty(f, LOOP_ACCEPT, &error))
        error = reserve(link, rx);
    if (!error) {
        link->owner = owner;
        link->state = LOOP_STATE_UP;
        if (link->peer != NULL) {
            link_up(link, NULL, 0);
            link_up(link->peer, hello, length);
        } else {
            loop_busy(link); /* the peer is gone: LINK_DOWN follows */
        }
    }
    pthread_mutex_unlock(&loop_net.lock);
    return error;
}

void loop_op_reject(struct rme_link *link, const void *hello, size_t length)
{
    pthread_mutex_lock(&loop_net.lock);
    struct rme_link *peer = link->peer;

    if (link->state != LOOP_STATE_REQUESTED)
        loop_violation("%s: reject of a link that was not requested", link->fabric->name);
    check_hello(link->fabric, length);
    if (peer != NULL) {
        link->peer = NULL;
        peer->peer = NULL;
        loop_link_end(peer, -EACCES, hello, length);
    }
    loop_link_delete(link);
    pthread_mutex_unlock(&loop_net.lock);
}

void loop_op_disconnect(struct rme_link *link, int error)
{
    pthread_mutex_lock(&loop_net.lock);
    if (link->state == LOOP_STATE_REQUESTED)
        loop_violation("%s: disconnect of a link that was neither accepted nor rejected",
                       link->fabric->name);
    if (link->state != LOOP_STATE_ENDED && !link->ending) {
        link->ending = error ? error : -ESHUTDOWN;
        loop_busy(link);
        loop_kick(link->fabric);
    }
    pthread_mutex_unlock(&loop_net.lock);
}

void loop_link_found_lost(struct rme_link *link)
{
    if (!link->lost || link->state != LOOP_STATE_UP || link->ending)
        return;
    link->ending = -ECONNRESET;
    loop_busy(link);
    loop_kick(link->fabric);
}

void loop_op_probe(struct rme_link *link)
{
    pthread_mutex_lock(&loop_net.lock);
    loop_link_found_lost(link);
    pthread_mutex_unlock(&loop_net.lock);
}

void loop_op_link_free(struct rme_link *link)
{
    pthread_mutex_lock(&loop_net.lock);
    if (!link->down_taken)
        loop_violation("%s: link to %s freed before LINK_DOWN", link->fabric->name,
                       link->peer_name);
    loop_link_delete(link);
    pthread_mutex_unlock(&loop_net.lock);
}

const char *loop_op_peer(const struct rme_link *link)
{
    return link->peer_name;
}

/* ---- Receive buffers: only counted until a message needs one ---- */

void loop_rx_give(struct rme_link *link, uint32_t n)
{
    uint32_t owed = n < link->rx_debt ? n : link->rx_debt;

    link->rx_debt -= owed;
    link->rx_ready += n - owed;
}

int loop_op_rx_reserve(struct rme_link *link, uint32_t n)
{
    pthread_mutex_lock(&loop_net.lock);
    int error = reserve(link, n);
    pthread_mutex_unlock(&loop_net.lock);
    return error;
}

void loop_op_rx_release(struct rme_link *link, uint32_t n)
{
    pthread_mutex_lock(&loop_net.lock);
    if (n > link->rx_advertised) {
        loop_violation("%s: %u receive buffers released, %u promised", link->fabric->name, n,
                       link->rx_advertised);
        n = link->rx_advertised;
    }
    uint32_t now = n < link->rx_ready ? n : link->rx_ready;
    link->rx_advertised -= n;
    link->fabric->rx_total -= n;
    link->rx_ready -= now;
    link->rx_debt += n - now;
    pthread_mutex_unlock(&loop_net.lock);
}

bool loop_op_rx_return(struct rme_fabric *rf, void *token)
{
    struct loop_fabric *f = (struct loop_fabric *)rf;
    struct loop_rx *rx = token;

    pthread_mutex_lock(&loop_net.lock);
    f->rx_unflushed++;
    LOOP_TAKE(rx);
    if (rx->link != NULL)
        loop_rx_give(rx->link, 1);
    loop_net.census.rx_held--;
    memset(rx->data, POISON, f->config.rx_size);
    pthread_mutex_unlock(&loop_net.lock);
    free(rx->data);
    free(rx);
    return true;
}

/* ---- Send buffers and queues ---- */

static struct loop_tx *tx_of(void *data)
{
    return (struct loop_tx *)((char *)data - offsetof(struct loop_tx, data));
}

void *loop_op_tx_get(struct rme_link *link)
{
    struct loop_fabric *f = link->fabric;
    size_t size = (sizeof(struct loop_tx) + f->config.rx_size + 63) & ~(size_t)63;
    struct loop_tx *tx = NULL;
    int error;

    pthread_mutex_lock(&loop_net.lock);
    if (!loop_faulty(f, LOOP_TX_GET, &error) && link->tx_used < f->sq_depth)
        tx = aligned_alloc(64, size);
    if (tx != NULL) {
        memset(tx, POISON, size);
        link->tx_used++;
        loop_net.census.tx_held++;
        LOOP_PUT(link->tx_lent, tx);
    } else if (link->state != LOOP_STATE_ENDED) {
        link->tx_wanted = true;
        loop_busy(link);
    }
    pthread_mutex_unlock(&loop_net.lock);
    return tx != NULL ? tx->data : NULL;
}

static struct loop_tx *tx_take(void *data)
{
    struct loop_tx *tx = tx_of(data);

    LOOP_TAKE(tx);
    return tx;
}

void loop_op_tx_put(struct rme_link *link, void *data)
{
    pthread_mutex_lock(&loop_net.lock);
    tx_free(link, tx_take(data));
    pthread_mutex_unlock(&loop_net.lock);
}

static struct loop_work *work_new(struct loop_tx *tx, struct rme_rdma_op *x)
{
    struct loop_work *w = calloc(1, sizeof *w);

    if (w == NULL)
        abort(); /* a failure of the test's memory */
    w->tx = tx;
    w->rdma_op = x;
    return w;
}

/* Handles a failed call: the device ends the link, or loses it. */
static void mark(struct rme_link *link, int error)
{
    if (link->fabric->elan4) {
        loop_link_fail(link, error);
    } else if (!link->ending) {
        link->ending = error;
        loop_busy(link);
    }
}

/* Queues work; on a link that is over the work is dropped, like flushed requests of
 * hardware. */
static void queue_work(struct rme_link *link, struct loop_work *w, enum loop_call call)
{
    int error = 0;

    if (call != LOOP_CALL_COUNT && loop_faulty(link->fabric, call, &error))
        mark(link, error);
    if (link->state == LOOP_STATE_ENDED) {
        loop_work_free(link, w);
        return;
    }
    if (link->state != LOOP_STATE_UP)
        loop_violation("%s: work queued on a link that is not up", link->fabric->name);
    w->number = ++link->numbered;
    *link->queued_tail = w;
    link->queued_tail = &w->next;
}

static void check_length(struct rme_link *link, size_t length)
{
    if (length > link->fabric->config.rx_size)
        loop_violation("%s: message of %zu bytes in a buffer of %u", link->fabric->name, length,
                       link->fabric->config.rx_size);
}

void loop_op_tx_send(struct rme_link *link, void *data, size_t length)
{
    loop_op_tx_send_closing(link, data, length, 0);
}

void loop_op_tx_send_closing(struct rme_link *link, void *data, size_t length, uint64_t key)
{
    pthread_mutex_lock(&loop_net.lock);
    struct loop_tx *tx = tx_take(data);
    tx->length = length;
    tx->closes = key;
    check_length(link, length);
    if (link->fabric->config.stats != NULL)
        link->fabric->config.stats->value[RME_C_SEND_REQUESTS]++;
    queue_work(link, work_new(tx, NULL), LOOP_TX_SEND);
    pthread_mutex_unlock(&loop_net.lock);
}

static uint64_t piece_bytes(const struct rme_rdma_seg *p)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < p->nseg; i++)
        bytes += p->seg[i].length;
    return bytes;
}

static void check_rdma_op(const struct loop_fabric *f, const struct rme_rdma_op *x)
{
    uint32_t max_sge = x->read ? f->caps.max_read_sge : f->caps.max_sge;
    uint64_t total = 0;

    if (x->read && (!f->caps.has_read || x->notify == RME_NOTIFY_IMM))
        loop_violation("%s: a read that the fabric cannot do", f->name);
    if (x->unsignalled && (x->read || !f->caps.unsignalled))
        loop_violation("%s: a transfer that is unsignalled and must not be", f->name);
    for (uint32_t i = 0; i < x->npiece; i++) {
        const struct rme_rdma_seg *p = &x->piece[i];
        uint64_t bytes = piece_bytes(p);
        if (!p->nseg || p->nseg > max_sge)
            loop_violation("%s: a piece with %u segments, %u allowed", f->name, p->nseg,
                           max_sge);
        if (!bytes || bytes > f->caps.max_piece)
            loop_violation("%s: a piece of %llu bytes", f->name, (unsigned long long)bytes);
        for (uint32_t s = 0; s < p->nseg; s++)
            if (!p->seg[s].length)
                loop_violation("%s: a segment without bytes, which hardware may take for 2 GiB",
                               f->name);
        total += bytes;
    }
    if (x->read && x->notify != RME_NOTIFY_NONE && !f->caps.chains_reads)
        loop_violation("%s: a message behind a read", f->name);
    if (total != x->bytes)
        loop_violation("%s: a transfer of %llu bytes that claims %llu", f->name,
                       (unsigned long long)total, (unsigned long long)x->bytes);
}

void loop_op_rdma(struct rme_link *link, struct rme_rdma_op *x)
{
    struct rme_stats *stats = link->fabric->config.stats;
    struct loop_tx *tx = NULL;

    pthread_mutex_lock(&loop_net.lock);
    check_rdma_op(link->fabric, x);
    if (x->notify == RME_NOTIFY_MSG) {
        check_length(link, x->tx_length);
        tx = tx_take(x->tx);
        tx->length = x->tx_length;
        tx->closes = x->closes;
    }
    if (stats != NULL) {
        stats->value[x->read ? RME_C_RDMA_READS : RME_C_RDMA_WRITES] += x->npiece;
        stats->value[RME_C_SEND_REQUESTS] += x->notify == RME_NOTIFY_MSG;
        stats->value[RME_C_SIGNALLED] += !x->unsignalled;
    }
    struct loop_work *w = work_new(tx, x);
    w->imm = x->imm;
    queue_work(link, w, LOOP_RDMA_OP);
    pthread_mutex_unlock(&loop_net.lock);
}

/* Closes windows by the device, in queueing order: until then their keys work. */
bool loop_op_mw_invalidate(struct rme_link *link, struct rme_range *range, uint32_t n,
                           void *owner)
{
    struct loop_work *w = work_new(NULL, NULL);
    uint32_t given = 0;

    w->keys = calloc(n, sizeof *w->keys);
    if (w->keys == NULL)
        abort();
    pthread_mutex_lock(&loop_net.lock);
    for (uint32_t i = 0; i < n; i++) {
        given += range[i].length != 0;
        if (range[i].length && loop_mw_is_open(link, range[i].key))
            w->keys[w->nkeys++] = range[i].key;
    }
    w->owner = owner;
    if (!given)
        loop_violation("%s: nothing is closed", link->fabric->name);
    if (!w->nkeys) {
        pthread_mutex_unlock(&loop_net.lock);
        free(w->keys);
        free(w);
        return true;
    }
    if (link->fabric->config.stats != NULL)
        link->fabric->config.stats->value[RME_C_SEND_REQUESTS] += w->nkeys;
    queue_work(link, w, LOOP_MW_INVALIDATE);
    pthread_mutex_unlock(&loop_net.lock);
    return false;
}

void loop_bind_later(struct rme_link *link, uint32_t binds)
{
    struct loop_work *w = work_new(NULL, NULL);

    w->binds = binds;
    queue_work(link, w, LOOP_CALL_COUNT);
}

static void flush_link(struct loop_fabric *f, struct rme_link *link)
{
    struct loop_work *first = link->queued;
    int error = 0;

    if (f->config.stats != NULL)
        f->config.stats->value[RME_C_DOORBELLS]++;
    if (loop_faulty(f, LOOP_FLUSH, &error))
        mark(link, error);
    *link->work_tail = link->queued;
    link->work_tail = link->queued_tail;
    link->queued = NULL;
    link->queued_tail = &link->queued;
    if (loop_net.timing != NULL) {
        for (struct loop_work *w = first; w; w = w->next)
            w->awaits = LOOP_AWAITS_DATA | LOOP_AWAITS_END;
        loop_net.timing->flushed(link, first);
        return;
    }
    loop_busy(link);
    loop_kick(f);
    if (link->peer != NULL)
        loop_kick(link->peer->fabric);
}

void loop_op_flush(struct rme_fabric *rf)
{
    struct loop_fabric *f = (struct loop_fabric *)rf;

    pthread_mutex_lock(&loop_net.lock);
    f->rx_unflushed = 0;
    for (struct rme_link *link = f->links; link; link = link->next)
        if (link->queued != NULL)
            flush_link(f, link);
    pthread_mutex_unlock(&loop_net.lock);
}
