/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The loop fabric (loop.h): hosts, events, sleeping and knobs. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/addr.h"
#include "loop_int.h"

struct loop_net loop_net = {.lock = PTHREAD_MUTEX_INITIALIZER, .next_port = 1};

static const struct rme_option_row loop_options[] = {
    {"loop_name", "name", 0, 0, 0, "client", "name of a host that does not listen"},
    {"loop_host", "count", 1, 1, 254, NULL, "the last byte of the address that peers see"},
    {"loop_seed", "count", 1, 0, INT64_MAX, NULL, "seed of the schedule"},
    {"loop_late_done", "count", 0, 0, 1000000, NULL,
     "polls by which local completions of transfers are late"},
    {"loop_chaos", "switch", 0, 0, 1, NULL, "work in small steps in any order that is allowed"},
    {"loop_elan4", "switch", 0, 0, 1, NULL, "the rules of Quadrics Elan4"},
    {"loop_max_sge", "count", 30, 1, 1024, NULL, "local segments of a piece"},
    {"loop_max_read_sge", "count", 30, 1, 1024, NULL, "local segments of a piece that is read"},
    {"loop_max_piece", "bytes", 1 << 30, 1, INT64_MAX, NULL, "bytes of a piece"},
    {"loop_read", "switch", 1, 0, 1, NULL, "transfers may be reads"},
    {"loop_shared_rx", "switch", 1, 0, 1, NULL, "receive buffers are shared by all links"},
    {"loop_each", "bool", 0, 0, 1, NULL,
     "without windows: what is open is registered for one operation alone"},
    {"loop_windows", "count", 256, 0, 1 << 16, NULL,
     "windows, 0: keys of registrations open them to everybody"},
    {"loop_closes", "bool", 1, 0, 1, NULL, "a message may close a window of its receiver"},
    {"loop_read_depth", "count", 16, 1, 255, NULL, "reads at work at one time on a link"},
    {"loop_sq_depth", "count", 64, 2, 65536, NULL, "send buffers of a link"},
    {0},
};

/* xorshift64*; the state is never 0. */
uint64_t loop_random(struct loop_fabric *f, uint64_t bound)
{
    f->random ^= f->random >> 12;
    f->random ^= f->random << 25;
    f->random ^= f->random >> 27;
    uint64_t value = (f->random * UINT64_C(2685821657736338717)) >> 11;
    return bound ? value % bound : value;
}

void loop_violation(const char *format, ...)
{
    struct loop_census *c = &loop_net.census;

    if (c->violations++)
        return;
    va_list list;
    va_start(list, format);
    vsnprintf(c->violation, sizeof c->violation, format, list);
    va_end(list);
}

bool loop_faulty(const struct loop_fabric *f, enum loop_call call, int *error)
{
    struct loop_fault_rule *rule = &loop_net.faults[call];

    loop_net.calls[call]++;
    if (!rule->times || (rule->name[0] && strcmp(rule->name, f->name)))
        return false;
    if (rule->k > 1) {
        rule->k--;
        return false;
    }
    rule->times--;
    *error = rule->error;
    return true;
}

/* ---- Events ---- */

struct loop_event *loop_event_new(enum rme_event_type type, struct rme_link *link)
{
    struct loop_event *e = calloc(1, sizeof *e);

    if (e == NULL)
        abort(); /* a failure of the test's memory, not of the engine */
    e->event.type = type;
    e->event.link = link;
    e->event.owner = link->owner;
    return e;
}

void loop_event_hello(const struct loop_fabric *receiver, struct loop_event *e,
                      const void *hello, size_t length)
{
    if (length)
        memcpy(e->hello, hello, length);
    e->event.hello = e->hello;
    e->event.hello_length = receiver->hello_max; /* transports pad */
}

void loop_kick(struct loop_fabric *f)
{
    pthread_mutex_lock(&f->nap);
    atomic_fetch_add(&f->kicks, 1);
    pthread_cond_broadcast(&f->wakeup);
    pthread_mutex_unlock(&f->nap);
}

void loop_event_push(struct loop_fabric *f, struct loop_event *e)
{
    e->next = NULL;
    e->not_before = e->event.type == RME_EV_RDMA_DONE ? f->polls + f->late_done : 0;
    *f->events_tail = e;
    f->events_tail = &e->next;
    f->nevents++;
    if (loop_net.timing != NULL)
        loop_net.timing->notified(f);
    if (f->armed) {
        f->armed = false;
        f->notified = true;
        loop_kick(f);
    }
}

static void event_unlink(struct loop_fabric *f, struct loop_event **at)
{
    struct loop_event *e = *at;

    *at = e->next;
    if (e->next == NULL)
        f->events_tail = at;
    e->next = NULL;
    f->nevents--;
}

void loop_events_drop(struct loop_fabric *f, const struct rme_link *link)
{
    for (struct loop_event **at = &f->events; *at;) {
        struct loop_event *e = *at;
        if (e->event.link != link) {
            at = &e->next;
            continue;
        }
        event_unlink(f, at);
        free(e);
    }
}

static void events_free(struct loop_event *e)
{
    while (e != NULL) {
        struct loop_event *next = e->next;
        free(e);
        e = next;
    }
}

/* Returns whether the event may be reordered: local completions may come at any time between
 * the beginning and the end of their link. */
static bool event_floats(const struct rme_event *e)
{
    return e->type == RME_EV_RDMA_DONE || e->type == RME_EV_TX_ROOM ||
           e->type == RME_EV_MW_INVALIDATED;
}

static bool event_is_bound(const struct rme_event *e)
{
    return e->type == RME_EV_LINK_UP || e->type == RME_EV_LINK_DOWN ||
           e->type == RME_EV_LINK_REQUEST;
}

static bool may_swap(const struct rme_event *first, const struct rme_event *second)
{
    if (first->link != second->link)
        return true;
    return !event_is_bound(first) && !event_is_bound(second) &&
           (event_floats(first) || event_floats(second));
}

static bool is_held(const struct loop_fabric *f, const struct loop_event *e)
{
    if (e->event.type == RME_EV_MW_INVALIDATED)
        return (loop_net.held & LOOP_HOLD_CLOSED) != 0;
    return e->event.type == RME_EV_RDMA_DONE &&
           (e->not_before > f->polls || e->behind > e->event.link->signalled ||
            loop_net.held & LOOP_HOLD_DONES);
}

/* Returns the place of the next event: the oldest, or in chaos any of the first few that may
 * overtake the older ones. Returns the end of the list if there is none. */
static struct loop_event **next_event(struct loop_fabric *f)
{
    struct loop_event **first = &f->events, **at;

    while (*first != NULL && is_held(f, *first))
        first = &(*first)->next;
    if (!f->chaos || f->nevents < 2)
        return first;
    at = &f->events;
    for (uint64_t skip = loop_random(f, f->nevents < 8 ? f->nevents : 8); skip; skip--)
        at = &(*at)->next;
    if (is_held(f, *at))
        return first;
    for (struct loop_event *older = f->events; older != *at; older = older->next)
        if (!may_swap(&older->event, &(*at)->event))
            return first;
    return at;
}

/* Returns whether late completions are queued: these need polls. */
static bool has_late(const struct loop_fabric *f)
{
    for (const struct loop_event *e = f->events; e; e = e->next)
        if (e->not_before > f->polls)
            return true;
    return false;
}

/* Updates the link's state when the engine gets an event. */
static void event_taken(struct rme_event *e)
{
    switch (e->type) {
    case RME_EV_LINK_REQUEST:
        e->link->request_taken = true;
        break;
    case RME_EV_LINK_DOWN:
        e->link->down_taken = true;
        break;
    default:
        break;
    }
    if (e->type != RME_EV_LINK_REQUEST)
        e->owner = e->link->owner;
}

/* Returns whether work of a lost link waits to time out: Elan4 reports such a loss only by a
 * timeout. */
static bool waits_in_vain(const struct rme_link *link)
{
    return link->lost && !link->ending && link->patience &&
           (link->work != NULL || link->tx_wanted);
}

static int loop_op_poll(struct rme_fabric *rf, struct rme_event *events, int max)
{
    struct loop_fabric *f = (struct loop_fabric *)rf;
    int count = 0;

    pthread_mutex_lock(&loop_net.lock);
    events_free(f->given);
    f->given = NULL;
    for (struct rme_link *l = f->links; l; l = l->next) {
        if (l->state == LOOP_STATE_REQUESTED && l->request_taken)
            loop_violation("%s: a connection request was not answered before the next poll",
                           f->name);
        if (waits_in_vain(l) && !--l->patience)
            loop_link_found_lost(l);
    }
    loop_device_step();
    f->polls++;
    while (count < max) {
        struct loop_event **at = next_event(f);
        struct loop_event *e = *at;
        if (e == NULL)
            break;
        event_unlink(f, at);
        event_taken(&e->event);
        if (e->event.type == RME_EV_LINK_DOWN)
            /* late completions: hardware flushes them */
            loop_events_drop(f, e->event.link);
        events[count++] = e->event;
        e->next = f->given;
        f->given = e;
    }
    if (f->config.stats != NULL) {
        f->config.stats->value[RME_C_RNR] += f->rnr;
        f->config.stats->value[RME_C_CQ_POLLS]++;
        f->config.stats->value[RME_C_CQ_ENTRIES] += (uint64_t)count;
        f->rnr = 0;
    }
    pthread_mutex_unlock(&loop_net.lock);
    return count;
}

/* ---- Sleeping ---- */

static int loop_op_arm(struct rme_fabric *rf)
{
    struct loop_fabric *f = (struct loop_fabric *)rf;
    int error = 0;

    pthread_mutex_lock(&loop_net.lock);
    if (f->rx_unflushed)
        loop_violation("%s: %u receive buffers returned without a flush()", f->name,
                       f->rx_unflushed);
    if (!loop_faulty(f, LOOP_ARM, &error))
        f->armed = true;
    pthread_mutex_unlock(&loop_net.lock);
    return error;
}

/* Sleeps until a kick after the first `kicks`, or until the time unless NULL. Returns false
 * after the time. */
static bool nap(struct loop_fabric *f, unsigned kicks, const struct timespec *until)
{
    int rc = 0;

    pthread_mutex_lock(&f->nap);
    while (f->kicks == kicks && rc != ETIMEDOUT)
        rc = until != NULL ? pthread_cond_timedwait(&f->wakeup, &f->nap, until)
                           : pthread_cond_wait(&f->wakeup, &f->nap);
    pthread_mutex_unlock(&f->nap);
    return rc != ETIMEDOUT;
}

/* Runs the device while the host sleeps: the sleeping thread is the device. */
static void loop_op_wait(struct rme_fabric *rf, int timeout_ms)
{
    struct loop_fabric *f = (struct loop_fabric *)rf;
    struct timespec until;
    bool in_time = true;

    clock_gettime(CLOCK_MONOTONIC, &until);
    if (timeout_ms > 0) {
        until.tv_sec += timeout_ms / 1000;
        until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
    }
    pthread_mutex_lock(&loop_net.lock);
    while (in_time) {
        unsigned kicks = f->kicks;
        if (f->notified || f->woken || has_late(f))
            break;
        if (loop_device_step())
            continue;
        pthread_mutex_unlock(&loop_net.lock);
        in_time = nap(f, kicks, timeout_ms < 0 ? NULL : &until);
        pthread_mutex_lock(&loop_net.lock);
    }
    f->notified = false;
    f->woken = false;
    pthread_mutex_unlock(&loop_net.lock);
}

static void loop_op_wake(struct rme_fabric *rf)
{
    struct loop_fabric *f = (struct loop_fabric *)rf;

    f->woken = true;
    loop_kick(f);
}

static int loop_op_deadline(struct rme_fabric *rf)
{
    const struct loop_fabric *f = (const struct loop_fabric *)rf;
    int ms = -1;

    pthread_mutex_lock(&loop_net.lock);
    for (const struct rme_link *l = f->links; l; l = l->next)
        if (waits_in_vain(l))
            ms = 1;
    pthread_mutex_unlock(&loop_net.lock);
    return ms;
}

/* ---- Hosts ---- */

struct loop_fabric *loop_find_listener(const char *target)
{
    for (struct loop_fabric *f = loop_net.fabrics; f; f = f->next)
        for (const struct loop_listener *l = f->listeners; l; l = l->next)
            if (!strcmp(l->name, target))
                return f;
    return NULL;
}

static int64_t option(const struct rme_fabric_config *config, const char *name)
{
    if (config->options != NULL)
        return rme_option(config->options, name);
    for (const struct rme_option_row *row = loop_options; row->name; row++)
        if (!strcmp(row->name, name))
            return row->preset;
    return 0;
}

/* Configures Elan4's rules as bmi_elan4 does. */
static void configure_elan4(struct loop_fabric *f)
{
    f->elan4 = f->chaos = true;
    f->hello_max = LOOP_HELLO_MAX;
    f->caps = (struct rme_caps){.max_sge = 64,
                                .max_read_sge = 64,
                                .max_piece = UINT64_C(1) << 40,
                                .max_regs = UINT32_MAX,
                                .has_read = true,
                                .chains_reads = true,
                                .open_memory = true};
}

/* Limits of the loop itself: cases do not depend on what an adapter is taken to cost. */
static const struct rme_limits loop_limits = {
    .once = {256u << 10, 2u << 10, 1u << 10},
    .list = {16u << 10, 768, 1u << 10},
    .read = 1,
};

static void fabric_configure(struct loop_fabric *f, const struct rme_fabric_config *config)
{
    uint64_t seed = (uint64_t)option(config, "loop_seed");
    const char *name =
        config->options != NULL ? rme_option_string(config->options, "loop_name") : "client";

    f->config = *config;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    f->chaos = option(config, "loop_chaos");
    f->host = (uint32_t)option(config, "loop_host");
    f->late_done = (uint64_t)option(config, "loop_late_done");
    f->read_depth = (uint32_t)option(config, "loop_read_depth");
    f->sq_depth = (uint32_t)option(config, "loop_sq_depth");
    f->hello_max = 56;
    if (option(config, "loop_elan4")) {
        configure_elan4(f);
        return;
    }
    f->caps = (struct rme_caps){
        .unsignalled = true,
        .max_sge = (uint32_t)option(config, "loop_max_sge"),
        .max_read_sge = (uint32_t)option(config, "loop_max_read_sge"),
        .max_piece = (uint64_t)option(config, "loop_max_piece"),
        .max_regs = 1 << 18,
        .has_read = option(config, "loop_read"),
        .shared_rx = option(config, "loop_shared_rx") ? LOOP_RX_MAX : 0,
        .mws = (uint32_t)option(config, "loop_windows"),
        .closes = option(config, "loop_closes") != 0,
        .register_each = option(config, "loop_each") && !option(config, "loop_windows"),
        .limits = &loop_limits,
    };
}

static int listen_part(struct loop_fabric *f, const struct rme_addr_part *part)
{
    struct loop_listener *l = calloc(1, sizeof *l);

    if (l == NULL)
        return -ENOMEM;
    snprintf(l->name, sizeof l->name, "%s:%s", part->host, part->port);
    if (loop_find_listener(l->name) != NULL) {
        if (f->config.log != NULL)
            f->config.log(f->config.log_arg, RME_LOG_ERROR,
                          "loop: %s is in use; choose another port", l->name);
        free(l);
        return -EADDRINUSE;
    }
    l->next = f->listeners;
    f->listeners = l;
    snprintf(f->name, sizeof f->name, "%s", part->host);
    return 0;
}

static void listeners_free(struct loop_fabric *f)
{
    while (f->listeners != NULL) {
        struct loop_listener *l = f->listeners;
        f->listeners = l->next;
        free(l);
    }
}

static void fabric_free(struct loop_fabric *f)
{
    listeners_free(f);
    pthread_cond_destroy(&f->wakeup);
    pthread_mutex_destroy(&f->nap);
    free(f->mrs);
    free(f);
}

static struct loop_fabric *fabric_new(const struct rme_fabric_config *config)
{
    struct loop_fabric *f = calloc(1, sizeof *f);
    pthread_condattr_t attr;

    if (f == NULL)
        return NULL;
    pthread_mutex_init(&f->nap, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f->wakeup, &attr);
    pthread_condattr_destroy(&attr);
    f->events_tail = &f->events;
    fabric_configure(f, config);
    return f;
}

static int loop_op_open(const struct rme_fabric_config *config, struct rme_fabric **out)
{
    struct loop_fabric *f = fabric_new(config);
    int error = 0;

    if (f == NULL)
        return -ENOMEM;
    pthread_mutex_lock(&loop_net.lock);
    loop_faulty(f, LOOP_OPEN, &error);
    for (int i = 0; !error && config->listen != NULL && i < rme_addr_parts(config->listen); i++)
        error = listen_part(f, rme_addr_part(config->listen, i));
    if (!error) {
        f->port = loop_net.next_port++;
        LOOP_PUT(loop_net.fabrics, f);
    }
    pthread_mutex_unlock(&loop_net.lock);
    if (error)
        fabric_free(f);
    else
        *out = (struct rme_fabric *)f;
    return error;
}

static void loop_op_close(struct rme_fabric *rf)
{
    struct loop_fabric *f = (struct loop_fabric *)rf;

    pthread_mutex_lock(&loop_net.lock);
    listeners_free(f);
    /* Requests that the engine has not seen end with the listener. */
    for (struct rme_link *l = f->links, *next; l; l = next) {
        next = l->next;
        if (l->state == LOOP_STATE_REQUESTED && !l->request_taken) {
            l->request_taken = true;
            loop_link_end(l, -ECONNREFUSED, NULL, 0);
            l->down_taken = true;
            loop_link_delete(l);
            continue;
        }
        loop_violation("%s: closed with a link to %s", f->name, l->peer_name);
        loop_link_end(l, -ESHUTDOWN, NULL, 0);
        loop_link_delete(l);
    }
    if (f->mrs_used)
        loop_violation("%s: closed with %u registrations", f->name, f->mrs_used);
    while (f->rx_orphans != NULL) {
        struct loop_rx *rx = f->rx_orphans;
        f->rx_orphans = rx->next;
        loop_net.census.rx_held--;
        free(rx->data);
        free(rx);
    }
    events_free(f->events);
    events_free(f->given);
    LOOP_TAKE(f);
    loop_net.census.registrations -= f->mrs_used;
    for (uint32_t i = 0; i < f->nmrs; i++)
        if (f->mrs[i].lkey)
            loop_net.census.shown -= loop_is_shown(f, &f->mrs[i]);
    pthread_mutex_unlock(&loop_net.lock);
    fabric_free(f);
}

static const struct rme_caps *loop_op_caps(const struct rme_fabric *rf)
{
    return &((const struct loop_fabric *)rf)->caps;
}

/* ---- Knobs ---- */

void loop_fault(const char *name, enum loop_call call, uint64_t k, uint64_t times, int error)
{
    struct loop_fault_rule *rule = &loop_net.faults[call];

    pthread_mutex_lock(&loop_net.lock);
    snprintf(rule->name, sizeof rule->name, "%s", name != NULL ? name : "");
    rule->k = k;
    rule->times = times;
    rule->error = error;
    pthread_mutex_unlock(&loop_net.lock);
}

uint64_t loop_calls(enum loop_call call)
{
    pthread_mutex_lock(&loop_net.lock);
    uint64_t n = loop_net.calls[call];
    pthread_mutex_unlock(&loop_net.lock);
    return n;
}

void loop_kill_at_message(uint64_t n)
{
    pthread_mutex_lock(&loop_net.lock);
    loop_net.kill_at = n;
    pthread_mutex_unlock(&loop_net.lock);
}

void loop_kill_at_step(uint64_t n)
{
    pthread_mutex_lock(&loop_net.lock);
    loop_net.kill_at_step = n;
    pthread_mutex_unlock(&loop_net.lock);
}

void loop_cut(struct loop_fabric *f)
{
    for (struct rme_link *l = f->links, *next; l; l = next) {
        next = l->next;
        if (l->state == LOOP_STATE_UP)
            loop_link_fail(l, -ECONNRESET);
        else if (l->state == LOOP_STATE_CONNECTING && l->request_sent)
            loop_link_end(l, -ECONNRESET, NULL, 0);
    }
}

void loop_kill_links(const char *name)
{
    pthread_mutex_lock(&loop_net.lock);
    for (struct loop_fabric *f = loop_net.fabrics; f; f = f->next)
        if (!strcmp(f->name, name))
            loop_cut(f);
    pthread_mutex_unlock(&loop_net.lock);
}

void loop_hold(unsigned what)
{
    pthread_mutex_lock(&loop_net.lock);
    loop_net.held = what;
    for (struct loop_fabric *f = loop_net.fabrics; f; f = f->next)
        loop_kick(f);
    pthread_mutex_unlock(&loop_net.lock);
}

void loop_census(struct loop_census *out)
{
    pthread_mutex_lock(&loop_net.lock);
    *out = loop_net.census;
    out->fabrics = out->links = 0;
    for (const struct loop_fabric *f = loop_net.fabrics; f; f = f->next) {
        out->fabrics++;
        for (const struct rme_link *l = f->links; l; l = l->next)
            out->links++;
    }
    pthread_mutex_unlock(&loop_net.lock);
}

void loop_clear(void)
{
    pthread_mutex_lock(&loop_net.lock);
    struct loop_census now = loop_net.census;
    memset(&loop_net.census, 0, sizeof loop_net.census);
    loop_net.census.registrations = now.registrations;
    loop_net.census.shown = now.shown;
    loop_net.census.rx_held = now.rx_held;
    loop_net.census.tx_held = now.tx_held;
    memset(loop_net.faults, 0, sizeof loop_net.faults);
    memset(loop_net.calls, 0, sizeof loop_net.calls);
    loop_net.kill_at = 0;
    loop_net.kill_at_step = 0;
    loop_net.held = 0;
    pthread_mutex_unlock(&loop_net.lock);
}

static const struct rme_fabric_ops loop_ops = {
    .release = RME_RELEASE,
    .size = sizeof(struct rme_fabric_ops),
    .scheme = "loop",
    .options = loop_options,
    .open = loop_op_open,
    .close = loop_op_close,
    .caps = loop_op_caps,
    .reg = loop_op_reg,
    .dereg = loop_op_dereg,
    .link_connect = loop_op_connect,
    .link_accept = loop_op_accept,
    .link_reject = loop_op_reject,
    .link_disconnect = loop_op_disconnect,
    .link_probe = loop_op_probe,
    .link_free = loop_op_link_free,
    .link_peer = loop_op_peer,
    .rx_reserve = loop_op_rx_reserve,
    .rx_release = loop_op_rx_release,
    .rx_return = loop_op_rx_return,
    .tx_get = loop_op_tx_get,
    .tx_put = loop_op_tx_put,
    .tx_send = loop_op_tx_send,
    .tx_send_closing = loop_op_tx_send_closing,
    .rdma_op = loop_op_rdma,
    .mw_bind = loop_op_mw_bind,
    .mw_invalidate = loop_op_mw_invalidate,
    .flush = loop_op_flush,
    .poll = loop_op_poll,
    .arm = loop_op_arm,
    .wait = loop_op_wait,
    .wake = loop_op_wake,
    .deadline = loop_op_deadline,
};

const struct rme_fabric_ops *loop_fabric(void)
{
    return &loop_ops;
}
