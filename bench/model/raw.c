/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two hosts without an engine, as ib_write_lat, ib_send_lat, ib_read_lat and their _bw have
 * them: one thread posts and polls without a pause.
 */
#include "bench/model/raw.h"

#include <stddef.h>

#include "bench/model/events.h"

enum { TURNS = 64, IN_FLIGHT = 128, WARM = 256, MESSAGES = 2048 };

struct run {
    const struct device *d;
    struct adapter adapter[2];
    struct queue queue[2];
    struct request request[IN_FLIGHT];
    double clock; /* of the host that posts */
    uint32_t posted, ended;
    uint64_t begin, end;
    /* by depth: slots of the queue; requests for a completion, which frees their slots;
     * requests ended at `begin` */
    uint32_t depth, group, first;
};

static void begin_run(struct run *r, const struct device *d, enum request_kind kind,
                      uint64_t bytes)
{
    *r = (struct run){.d = d, .adapter = {{.device = d}, {.device = d}}};
    for (int i = 0; i < 2; i++)
        queue_init(&r->queue[i], &r->adapter[i], &r->adapter[!i], IN_FLIGHT);
    for (int i = 0; i < IN_FLIGHT; i++)
        r->request[i] = (struct request){.kind = kind,
                                         .bytes = bytes,
                                         .segments = 1,
                                         .prompt = kind <= REQUEST_WRITE && bytes <= d->inlined,
                                         .notifies = kind == REQUEST_SEND,
                                         .arg = r};
}

/* Posts from queue `side` when its host is free, which takes the host's time. */
static void post(struct run *r, int side, struct request *request, uint64_t now)
{
    if (r->clock < (double)now)
        r->clock = (double)now;
    r->clock += r->d->wqe + r->d->doorbell;
    r->posted++;
    queue_post(&r->queue[side], request, (uint64_t)(r->clock + 0.5));
}

static void finish(void)
{
    while (events_next() != NEVER)
        events_run();
    events_clear();
}

/* ---- Latency ---- */

static void turn(struct request *request, uint64_t now)
{
    struct run *r = request->arg;

    /* a send and a read are seen in the CQ, a write in memory */
    if (request->kind != REQUEST_WRITE)
        now += (uint64_t)r->d->cqe;
    r->end = now;
    if (r->posted == TURNS)
        return;
    int side = request->kind == REQUEST_READ ? 0 : (int)(r->posted & 1);
    post(r, side, &r->request[r->posted % IN_FLIGHT], now);
}

double raw_latency(const struct device *d, enum request_kind kind, uint64_t bytes)
{
    struct run r;

    begin_run(&r, d, kind, bytes);
    for (int i = 0; i < IN_FLIGHT; i++)
        r.request[i].arrived = turn;
    post(&r, 0, &r.request[0], 0);
    finish();
    return (double)r.end / TURNS;
}

/* ---- Bandwidth ---- */

static void again(struct request *request, uint64_t now)
{
    struct run *r = request->arg;

    r->ended++;
    if (r->ended == WARM)
        r->begin = now;
    r->end = now;
    if (r->clock < (double)now)
        r->clock = (double)now;
    r->clock += r->d->cqe;
    if (r->posted < WARM + MESSAGES)
        post(r, 0, request, now);
}

double raw_interval(const struct device *d, enum request_kind kind, uint64_t bytes)
{
    struct run r;

    begin_run(&r, d, kind, bytes);
    for (int i = 0; i < IN_FLIGHT; i++)
        r.request[i].done = again;
    for (int i = 0; i < IN_FLIGHT; i++)
        post(&r, 0, &r.request[i], 0);
    finish();
    return (double)(r.end - r.begin) / MESSAGES;
}

/* ---- A queue of bmi_ib ---- */

static void group_ended(struct request *request, uint64_t now)
{
    struct run *r = request->arg;

    if (++r->ended % r->group)
        return;
    if (!r->first && r->ended >= WARM) {
        r->first = r->ended;
        r->begin = now;
    }
    r->end = now;
    if (r->clock < (double)now)
        r->clock = (double)now;
    r->clock += r->d->cqe;
    for (uint32_t i = 0; i < r->group && r->posted < WARM + MESSAGES; i++)
        post(r, 0, &r->request[r->posted % r->depth], now);
}

double raw_interval_depth(const struct device *d, uint64_t bytes, uint32_t depth)
{
    struct run r;

    begin_run(&r, d, REQUEST_SEND, bytes);
    r.depth = depth;
    r.group = (depth + 1) / 2;
    for (uint32_t i = 0; i < depth; i++)
        r.request[i].done = group_ended;
    for (uint32_t i = 0; i < depth; i++)
        post(&r, 0, &r.request[i], 0);
    finish();
    return (double)(r.end - r.begin) / (r.ended / r.group * r.group - r.first);
}
