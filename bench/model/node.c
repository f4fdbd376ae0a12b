/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bench/model/node.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "bench/model/events.h"
#include "bench/model/net.h"
#include "memory/mreg.h"
#include "tests/lib/clock.h"

#define BEGIN_NS   (CLOCK_BEGIN_NS + UINT64_C(1000000000)) /* of virtual time */
#define IDLE_TURNS 3
#define SPIN_NS    200000 /* option poll_us: a longer sleep ends with an interrupt */
#define STEP_NS    1e6    /* for timers, when nothing else is left */
#define STEPS      1000
#define LARGE_FILL 4096

static struct node *running;
static uint64_t present;
static uint64_t filled; /* bytes of zeros written since the last charge */
static struct node *const *all;
static int count;

/* ---- What a process has that would differ from run to run ---- */

/* Hash tables have the same factor in each run. */
ssize_t getrandom(void *buffer, size_t length, unsigned flags)
{
    static const uint64_t golden = 0x9e3779b97f4a7c15;

    (void)flags;
    memcpy(buffer, &golden, length < sizeof golden ? length : sizeof golden);
    return (ssize_t)length;
}

void *__real_memset(void *at, int byte, size_t length);
void *__wrap_memset(void *at, int byte, size_t length);
/* Counts the clearing of bounce buffers, which bytes_copied leaves out. */
void *__wrap_memset(void *at, int byte, size_t length)
{
    if (byte == 0 && length >= LARGE_FILL)
        filled += length;
    return __real_memset(at, byte, length);
}

/* ---- Time ---- */

uint64_t node_now(void)
{
    return running != NULL ? (uint64_t)(running->clock + 0.5) : present;
}

void node_set_now(uint64_t now)
{
    present = now;
}

void node_charge(double ns)
{
    if (running == NULL)
        return;
    running->clock += ns;
    clock_put_ns(node_now());
}

static void charge_bytes(const struct host *h, uint64_t bytes)
{
    node_charge((double)bytes * (bytes <= h->cache ? h->copy_cached : h->copy_far));
}

void node_charge_copies(struct node *n)
{
    uint64_t copied = n->stats->value[RME_C_BYTES_COPIED];

    if (n != running)
        return;
    charge_bytes(n->host, copied - n->copied);
    charge_bytes(n->host, filled / 2); /* writes nothing but zeros: half the traffic */
    n->copied = copied;
    filled = 0;
}

void node_call(struct node *n)
{
    node_charge(n->host->instructions / n->host->per_ns);
}

typedef int try_fn(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t segments,
                   unsigned access, struct rme_mreg_hold **out);
try_fn __real_rme_mreg_try, __wrap_rme_mreg_try;
/* Looks memory up in the registration cache, which takes the processor's time. */
int __wrap_rme_mreg_try(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t segments,
                        unsigned access, struct rme_mreg_hold **out)
{
    if (running != NULL)
        node_charge(running->host->lookup.call + running->host->lookup.page * segments);
    return __real_rme_mreg_try(mreg, seg, segments, access, out);
}

/* ---- Turns ---- */

static void take_turn(void *arg, uint64_t now)
{
    struct node *n = arg;

    running = n;
    filled = 0;
    if (n->clock < (double)now)
        n->clock = (double)now;
    clock_put_ns(node_now());
    n->idle++;
    if (n->turn(n))
        n->idle = 0;
    node_charge_copies(n);
    running = NULL;
    present = now;
    n->asleep = n->idle >= IDLE_TURNS;
    n->slept = n->clock;
    if (!n->asleep)
        events_add((uint64_t)(n->clock + 0.5), take_turn, n);
}

void node_wake(struct node *n)
{
    n->idle = 0;
    if (!n->asleep)
        return;
    n->asleep = false;
    if (n->clock < (double)node_now())
        n->clock = (double)node_now();
    if (n->clock - n->slept > SPIN_NS)
        n->clock += n->device->wakeup;
    events_add((uint64_t)(n->clock + 0.5), take_turn, n);
}

void nodes_start(struct node *const *nodes, int n)
{
    all = nodes;
    count = n;
    present = BEGIN_NS;
    clock_tick_ns(0);
    clock_put_ns(BEGIN_NS);
    net_start();
    for (int i = 0; i < n; i++) {
        nodes[i]->adapter = (struct adapter){.device = nodes[i]->device};
        nodes[i]->clock = nodes[i]->slept = BEGIN_NS;
        nodes[i]->copied = nodes[i]->stats->value[RME_C_BYTES_COPIED];
        nodes[i]->asleep = true;
        node_wake(nodes[i]);
    }
}

bool nodes_run(bool (*done)(void *arg), void *arg)
{
    for (int steps = 0; !done(arg);) {
        if (events_next() != NEVER) {
            events_run();
            continue;
        }
        if (steps++ == STEPS)
            return false;
        for (int i = 0; i < count; i++) {
            all[i]->clock += STEP_NS;
            node_wake(all[i]);
        }
    }
    return true;
}

void nodes_stop(void)
{
    double last = 0;

    while (events_next() != NEVER)
        events_run();
    events_clear();
    for (int i = 0; i < count; i++)
        last = all[i]->clock > last ? all[i]->clock : last;
    clock_put_ns((uint64_t)last + 1);
    clock_tick_ns(CLOCK_TICK_NS);
    net_stop();
}

/* ---- Life ---- */

static void log_line(void *arg, enum rme_log_level level, const char *line)
{
    const struct node *n = arg;

    if (level <= RME_LOG_WARN)
        fprintf(stderr, "model: %s: %s\n", n->name, line);
}

int node_open(struct node *n, const char *options)
{
    char text[1024];
    struct rme_config config = {
        .fabric = net_fabric(), .options = text, .log = log_line, .log_arg = n};

    n->host = model_host(n->device->host);
    if (n->uri != NULL && rme_addr_parse("loop", n->uri, &n->listen))
        return -1;
    config.listen = n->listen;
    snprintf(text, sizeof text,
             "loop_name=%s,loop_max_sge=%u,loop_max_read_sge=%u,loop_read_depth=%u%s%s",
             n->name, n->device->max_sge, n->device->max_sge, n->device->reads,
             *options ? "," : "", options);
    net_opens(n);
    int rc = rme_open(&config, &n->rme);
    if (rc == 0)
        rc = rme_context_open(n->rme, 0);
    if (rc && n->listen != NULL)
        rme_addr_free(n->listen);
    return rc;
}

void node_close(struct node *n)
{
    rme_close(n->rme);
    if (n->listen != NULL)
        rme_addr_free(n->listen);
}
