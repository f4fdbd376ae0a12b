/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bench/model/cells.h"

#include <stddef.h>
#include <stdio.h>

#include "bench/model/events.h"
#include "bench/model/stream.h"

/* The papers' keys open whole registrations. */
#define COMMON     "loop_windows=0,connect_timeout_ms=600000,keepalive_ms=600000"
#define NOT_CACHED "list_mode=group,pack_threshold=1,regcache_entries=1"
#define FENCES     256 /* blocks */

/* ---- A block that is read, and a message behind it ---- */

struct fence {
    const struct cell *cell;
    struct adapter adapter[2];
    struct queue queue;
    struct request read[8], message[8];
    int awaited[8]; /* ends of a slot's two requests */
    uint32_t posted;
    uint64_t end;
};

static void post_message(struct fence *f, struct request *read, uint64_t now)
{
    queue_post(&f->queue, &f->message[read - f->read], now + (uint64_t)f->cell->d->doorbell);
}

static void post_block(struct fence *f, uint32_t slot, uint64_t now)
{
    f->posted++;
    f->awaited[slot] = 2;
    queue_post(&f->queue, &f->read[slot], now + (uint64_t)f->cell->d->doorbell);
    if (f->cell->order != ORDER_WAIT)
        post_message(f, &f->read[slot], now);
}

static void block_done(struct fence *f, uint32_t slot, uint64_t now)
{
    f->end = now;
    if (--f->awaited[slot] == 0 && f->posted < FENCES)
        post_block(f, slot, now);
}

static void read_done(struct request *r, uint64_t now)
{
    struct fence *f = r->arg;

    if (f->cell->order == ORDER_WAIT)
        post_message(f, r, now + (uint64_t)f->cell->d->cqe);
    block_done(f, (uint32_t)(r - f->read), now);
}

static void message_done(struct request *r, uint64_t now)
{
    struct fence *f = r->arg;

    block_done(f, (uint32_t)(r - f->message), now);
}

static double fence_ns(const struct cell *c)
{
    struct fence f = {.cell = c, .adapter = {{.device = c->d}, {.device = c->d}}};

    queue_init(&f.queue, &f.adapter[0], &f.adapter[1], 2 * FENCES);
    for (int i = 0; i < c->in_flight; i++) {
        f.read[i] = (struct request){
            .kind = c->kind, .bytes = c->bytes, .segments = 1, .done = read_done, .arg = &f};
        f.message[i] = (struct request){.kind = REQUEST_SEND,
                                        .bytes = 64,
                                        .segments = 1,
                                        .fenced = c->order == ORDER_FENCE,
                                        .notifies = true,
                                        .done = message_done,
                                        .arg = &f};
    }
    for (int i = 0; i < c->in_flight; i++)
        post_block(&f, (uint32_t)i, 0);
    while (events_next() != NEVER)
        events_run();
    events_clear();
    return (double)f.end / FENCES;
}

/* ---- The engine ---- */

static int at_least_1(int n)
{
    return n ? n : 1;
}

static int message(const struct cell *c, double *ns)
{
    char both[512];
    const struct stream_options options = {both, "", ""};
    const struct shape shape = {c->bytes, (uint32_t)at_least_1(c->pieces),
                                (uint32_t)at_least_1(c->recv_pieces),
                                (uint32_t)at_least_1(c->in_flight)};
    struct outcome out;

    snprintf(both, sizeof both, COMMON "%s%s", c->options != NULL ? "," : "",
             c->options != NULL ? c->options : "");
    int rc = stream_run(c->d, &shape, &options, &out);
    *ns = out.ns;
    return rc;
}

static int access_cost(const struct cell *c, const char *client, const struct tcp *tcp,
                       struct access_cost *out)
{
    char options[512];
    const struct access a = {.tcp = tcp,
                             .device = c->d,
                             .clients = at_least_1(c->clients),
                             .servers = at_least_1(c->servers),
                             .bytes = c->bytes,
                             .unit = c->unit    ? c->unit
                                     : c->bytes ? c->bytes
                                                : 64,
                             .pieces = at_least_1(c->pieces),
                             .stride = c->stride,
                             .in_flight = c->in_flight ? c->in_flight : 2,
                             .read = c->read,
                             .store = {1e3 * c->store.request, c->store.byte},
                             .options = options,
                             .client_options = client};

    snprintf(options, sizeof options, COMMON "%s%s", c->options != NULL ? "," : "",
             c->options != NULL ? c->options : "");
    return access_run(&a, out);
}

/* A share of accesses finds its memory registered. */
static int mixed(const struct cell *c, struct access_cost *out)
{
    struct access_cost miss;

    if (access_cost(c, c->client, NULL, out))
        return -1;
    if (c->hits > 0) {
        if (access_cost(c, NOT_CACHED, NULL, &miss))
            return -1;
        out->ns = c->hits * out->ns + (1 - c->hits) * miss.ns;
    }
    return 0;
}

static double bytes_of(const struct cell *c)
{
    return (double)c->bytes * at_least_1(c->servers) * at_least_1(c->clients) *
           at_least_1(c->groups);
}

/* ---- Figures ---- */

const char *cell_unit(const struct cell *cell)
{
    switch (cell->of) {
    case RAW_RATE:
    case RATE:
    case ACCESS_RATE:
        return " MB/s";
    case BUSY:
        return " %";
    case RAW_LATENCY:
    case FENCE:
    case MESSAGE:
    case ACCESS:
    case REGISTERING:
    case REGISTER:
        return " us";
    default:
        return "";
    }
}

static int engine_value(const struct cell *c, double *value)
{
    struct access_cost cost = {0};
    double ns = 0;
    int rc = c->of == MESSAGE || c->of == RATE ? message(c, &ns) : mixed(c, &cost);

    switch (c->of) {
    case MESSAGE:
        *value = ns / 1e3;
        break;
    case RATE:
        *value = (double)c->bytes / ns * 1e3;
        break;
    case ACCESS_RATE:
        *value = bytes_of(c) / cost.ns * 1e3;
        break;
    case BUSY:
        *value = 100 * cost.busy;
        break;
    case REGISTERING:
        *value = cost.register_ns / 1e3;
        break;
    case REGISTERED:
        *value = cost.registrations;
        break;
    default:
        *value = cost.ns / 1e3;
        break;
    }
    return rc;
}

int cell_value(const struct cell *c, const struct cell *shape, double *value)
{
    struct access_cost cost;

    switch (c->of) {
    case RAW_LATENCY:
        *value = raw_latency(c->d, c->kind, c->bytes) / 1e3;
        return 0;
    case RAW_RATE:
        *value = (double)c->bytes / raw_interval(c->d, c->kind, c->bytes) * 1e3;
        return 0;
    case FENCE:
        *value = fence_ns(c) / 1e3;
        return 0;
    case REGISTER:
        *value = cost_of_pages(&c->d->reg, c->bytes) / 1e3;
        return 0;
    case TCP_LATENCY:
        *value = c->tcp->latency / 1e3;
        return 0;
    case TCP_RATE:
        *value = 1e3 / c->tcp->byte;
        return 0;
    case TCP_ACCESS:
        if (access_cost(shape, NULL, c->tcp, &cost))
            return -1;
        *value = cost.ns / 1e3;
        if (shape->of == ACCESS_RATE)
            *value = bytes_of(shape) / *value;
        return 0;
    case NOTHING:
    case GIVEN:
        *value = c->given;
        return 0;
    default:
        return engine_value(c, value);
    }
}
