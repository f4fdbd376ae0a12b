/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Calls from several threads, and sleeping.
 *
 * Threads do not use cmocka: they count failures, and the test checks the count. A sleeper that
 * is not woken fails the test after BED_PATIENCE_MS.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cases.h"
#include "tests/lib/asleep.h"

enum { LONG_MS = INT_MAX };

/* Disables timers of links and of idle memory, so that only the test ends a sleep. */
#define SLEEPY "poll_us=0,keepalive_ms=0,pool_idle_ms=0"

/* A host in its own thread: tests for completions until told to stop. */
struct tester {
    pthread_t thread;
    struct node *node;
    int ctx;
    int wait_ms;
    atomic_bool stop;
    atomic_int seen, wrong;
    bool unexpected; /* fetches and frees unexpected messages */
    atomic_int taken;
};

static void take_unexpected(struct tester *t)
{
    struct rme_unexpected u;

    while (rme_test_unexpected(t->node->rme, &u, 1, 0) == 1) {
        t->taken++;
        t->wrong += rme_unexpected_free(t->node->rme, u.buffer) != 0;
    }
}

static void *test_in_thread(void *arg)
{
    struct tester *t = arg;

    while (!t->stop) {
        struct rme_done done[4];
        int n = rme_test_context(t->node->rme, t->ctx, done, 4, t->wait_ms);
        if (n < 0 || n > 4)
            t->wrong++;
        for (int i = 0; i < n; i++) {
            struct op *op = done[i].user;
            t->wrong += op->reports++ != 0;
            op->error = done[i].error;
            op->actual = done[i].actual;
            t->seen++;
        }
        if (t->unexpected)
            take_unexpected(t);
    }
    return NULL;
}

static void tester_start(struct tester *t, struct node *n, int ctx, int wait_ms)
{
    *t = (struct tester){.node = n, .ctx = ctx, .wait_ms = wait_ms};
    n->asleep = true;
    assert_int_equal(pthread_create(&t->thread, NULL, test_in_thread, t), 0);
}

static void tester_stop(struct tester *t)
{
    t->stop = true;
    pthread_join(t->thread, NULL);
    t->node->asleep = false;
    assert_int_equal(t->wrong, 0);
}

static bool wait_for(atomic_int *count, int value)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    while (*count < value && lane_now() < end)
        usleep(500);
    return *count >= value;
}

enum { POSTS = 400, POSTERS = 2 };

struct poster {
    pthread_t thread;
    struct pair *pair;
    int number;
    int wrong;
    struct op send[POSTS], recv[POSTS];
    struct blob out, in[POSTS];
};

/* Sends with tags of thread k and receives the replies of the server's host thread. */
static void *post_in_thread(void *arg)
{
    struct poster *p = arg;
    struct rme_list out = blob_list(&p->out);

    for (int i = 0; i < POSTS; i++) {
        struct rme_list in = blob_list(&p->in[i]);
        struct op *send = &p->send[i], *recv = &p->recv[i];
        int tag = p->number * POSTS + i;
        recv->rc = rme_post_recv(p->pair->client->rme, p->pair->to_server, &in, tag, 0, recv,
                                 NULL, &recv->id);
        send->rc = rme_post_send(p->pair->client->rme, p->pair->to_server, &out, tag, 0, send,
                                 &send->id);
        p->wrong += recv->rc != 0 || send->rc < 0;
        if (send->rc == 1)
            send->reports = 1;
    }
    return NULL;
}

static int completed_at_once(const struct op *ops)
{
    int n = 0;

    for (int i = 0; i < POSTS; i++)
        n += ops[i].rc == 1;
    return n;
}

CASE(two_threads_post_one_tests)
{
    static struct poster posters[POSTERS];
    static struct op answers[POSTERS * POSTS], taken[POSTERS * POSTS];
    struct tester client, server;
    /* of eager messages, and of others: their writers share no lock */
    struct blob sink[POSTERS];
    struct pair p;

    bed_real_time();
    pair_open(&p);
    for (int k = 0; k < POSTERS; k++) {
        struct poster *q = &posters[k];
        blob_flat(&sink[k], 20000);
        memset(q, 0, sizeof *q);
        q->pair = &p;
        q->number = k;
        blob_flat(&q->out, k ? 20000 : 700);
        blob_fill(&q->out, (uint64_t)k);
        for (int i = 0; i < POSTS; i++)
            blob_flat(&q->in[i], k ? 700 : 20000);
    }
    tester_start(&client, p.client, 0, 10);
    tester_start(&server, p.server, 0, 10);
    for (int k = 0; k < POSTERS; k++)
        assert_int_equal(pthread_create(&posters[k].thread, NULL, post_in_thread, &posters[k]),
                         0);
    int at_once = 0;
    for (int i = 0; i < POSTERS * POSTS; i++) {
        int k = i % POSTERS, tag = k * POSTS + i / POSTERS;
        post_recv(&taken[i], p.server, p.to_client, &sink[k], tag);
        post_send(&answers[i], p.server, p.to_client, &posters[1 - k].out, tag);
        at_once += answers[i].rc == 1;
    }
    for (int k = 0; k < POSTERS; k++)
        pthread_join(posters[k].thread, NULL);
    int client_at_once =
        completed_at_once(posters[0].send) + completed_at_once(posters[1].send);
    bool all = wait_for(&client.seen, POSTERS * POSTS * 2 - client_at_once) &&
               wait_for(&server.seen, POSTERS * POSTS * 2 - at_once);
    tester_stop(&client);
    tester_stop(&server);
    assert_true(all);
    for (int k = 0; k < POSTERS; k++) {
        assert_int_equal(posters[k].wrong, 0);
        for (int i = 0; i < POSTS; i++) {
            assert_int_equal(posters[k].send[i].reports, 1);
            assert_int_equal(posters[k].recv[i].reports, 1);
            assert_int_equal(posters[k].recv[i].error, 0);
            blob_check(&posters[k].in[i], (uint64_t)(1 - k), posters[k].in[i].total);
            blob_free(&posters[k].in[i]);
        }
    }
}

/* A call of test_context that sleeps. */
struct sleeper {
    pthread_t thread;
    struct node *node;
    int ctx;
    atomic_int tid, woken;
    int count;
    struct rme_done done;
};

static void *sleep_in_thread(void *arg)
{
    struct sleeper *s = arg;

    asleep_announce(&s->tid);
    s->count = rme_test_context(s->node->rme, s->ctx, &s->done, 1, LONG_MS);
    s->woken = 1;
    return NULL;
}

/* Starts the thread and returns when it sleeps: behind another one, or in the fabric. */
static void sleeper_start(struct sleeper *s, struct node *n, int ctx)
{
    uint64_t sleeps = node_counter(n, "sleeps");
    bool leads = !n->asleep;

    *s = (struct sleeper){.node = n, .ctx = ctx};
    n->asleep = true;
    n->no_unexpected = true;
    assert_int_equal(pthread_create(&s->thread, NULL, sleep_in_thread, s), 0);
    while (leads && node_counter(n, "sleeps") == sleeps)
        usleep(500);
    asleep_await(&s->tid);
}

/* Polls the other nodes until the sleeper is awake. */
static void sleeper_await(struct sleeper *s)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    while (!s->woken && lane_now() < end)
        pump();
    if (!s->woken) {
        print_error("nothing wakes the sleeper of context %d\n", s->ctx);
        abort(); /* the thread would use objects that the fixture closes */
    }
}

static void sleeper_check(struct sleeper *s, const struct op *op, int error)
{
    sleeper_await(s);
    pthread_join(s->thread, NULL);
    s->node->asleep = false;
    assert_int_equal(s->count, 1);
    assert_ptr_equal(s->done.user, op);
    assert_int_equal(s->done.error, error);
}

/* Events that end a sleep. A thread cancelled in its sleep ends after its call. */
enum event { MESSAGE, POST, CANCEL, THREAD_CANCELLED };

static void sleeper_wakes_by(enum event event, size_t size)
{
    struct pair p;
    struct op send, recv;
    struct blob out, in;

    bed_real_time();
    pair_open_with(&p, SLEEPY);
    blobs_flat(&out, &in, size, 1);
    for (int round = 0; round < 4; round++) {
        struct node *to = event == POST ? p.server : p.client;
        struct sleeper s;

        post_recv(&recv, to, event == POST ? p.to_client : p.to_server, &in, 1);
        sleeper_start(&s, p.client, 0);
        if (event == THREAD_CANCELLED)
            assert_int_equal(pthread_cancel(s.thread), 0);
        if (event == CANCEL)
            op_cancel(&recv);
        else if (event == POST) /* the sleeping thread moves it */
            post_send(&send, p.client, p.to_server, &out, 1);
        else
            post_send(&send, p.server, p.to_client, &out, 1);
        if (event != CANCEL)
            pump_until_reported(event == POST ? &recv : &send);
        sleeper_check(&s, event == POST ? &send : &recv, event == CANCEL ? -ECANCELED : 0);
    }
    bed_again();
}

CASE(sleeper_wakes)
{
    sleeper_wakes_by(MESSAGE, 64);
    sleeper_wakes_by(MESSAGE, 100000);
    sleeper_wakes_by(POST, 1000000);
    sleeper_wakes_by(CANCEL, 1000);
}

/* The engine goes on, and completions that it had found are kept. */
CASE(cancelled_sleeper_leaves_nothing_behind)
{
    sleeper_wakes_by(THREAD_CANCELLED, 100000);
}

/* A fabric that reports the end of a registration at `base`, and the real one below. */
static struct {
    struct rme_fabric_ops ops;
    const struct rme_fabric_ops *real;
    uintptr_t base;
    sem_t gone;
    atomic_int wakes;
} watch;

static void *map_fresh(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static void dereg_watched(struct rme_fabric *f, struct rme_mr *mr)
{
    bool watched = mr->base == watch.base;

    watch.real->dereg(f, mr);
    if (watched)
        sem_post(&watch.gone);
}

static void wake_counted(struct rme_fabric *f)
{
    watch.wakes++;
    watch.real->wake(f);
}

/* A thread that sleeps deregisters memory that another thread unmaps, and is not woken for
 * memory without a registration. */
CASE(unmapped_memory_is_unpinned_by_sleeper)
{
    enum { SIZE = 1 << 20, OTHERS = 32 };
    struct sleeper s;
    struct pair p;
    struct op send, recv, last;
    struct blob in, out = {.count = 1, .length = {SIZE}, .total = SIZE};
    void *other[OTHERS];

    watch.real = lane.ops;
    watch.ops = *lane.ops;
    watch.ops.dereg = dereg_watched;
    watch.ops.wake = wake_counted;
    lane.ops = &watch.ops;
    bed_real_time();
    pair_open_with(&p, SLEEPY);
    lane.ops = watch.real;
    blob_flat(&in, SIZE);
    sem_init(&watch.gone, 0, 0);
    for (int i = 0; i < OTHERS; i++)
        other[i] = map_fresh(SIZE);
    out.base[0] = map_fresh(SIZE);
    watch.base = (uintptr_t)out.base[0];
    uint64_t before = node_counter(p.client, "registered_bytes");
    post_recv(&recv, p.server, p.to_client, &in, 1);
    post_send(&send, p.client, p.to_server, &out, 1);
    pump_until_both(&send, &recv);
    bool pinned = node_counter(p.client, "registered_bytes") >= before + SIZE &&
                  node_counter(p.client, "demand_bytes") == 0;
    post_recv(&last, p.client, p.to_server, &in, 2);
    sleeper_start(&s, p.client, 0);
    watch.wakes = 0;
    for (int i = 0; i < OTHERS; i++)
        munmap(other[i], SIZE);
    munmap(out.base[0], SIZE);
    if (pinned)
        sem_wait(&watch.gone); /* the alarm ends a case that hangs */
    assert_int_equal(watch.wakes, pinned);
    op_cancel(&last);
    sleeper_check(&s, &last, -ECANCELED);
    if (!pinned)
        skip();
}

/* Several threads sleep on different contexts: each gets its own completions. */
CASE(sleepers_of_several_contexts)
{
    enum { N = 3 };
    struct pair p;
    struct sleeper s[N];
    struct op send, recv[N];
    struct blob b, in[N];

    bed_real_time();
    pair_open_with(&p, SLEEPY);
    for (int c = 1; c < N; c++)
        assert_int_equal(rme_context_open(p.client->rme, c), 0);
    blob_flat(&b, 100);
    for (int c = 0; c < N; c++) {
        blob_flat(&in[c], 100);
        post_recv_ctx(&recv[c], p.client, p.to_server, &in[c], c, c);
        sleeper_start(&s[c], p.client, c);
    }
    static const int order[N] = {1, 2, 0};
    for (int i = 0; i < N; i++) {
        int c = order[i];
        post_send(&send, p.server, p.to_client, &b, c);
        pump_until_reported(&send);
        sleeper_await(&s[c]);
        for (int k = i + 1; k < N; k++)
            assert_int_equal(s[order[k]].woken, 0);
    }
    for (int c = 0; c < N; c++)
        sleeper_check(&s[c], &recv[c], 0);
}

/* Threads that post, cancel, test and allocate at once, for the sanitizers. */
struct mixer {
    pthread_t thread;
    struct pair *pair;
    int number;
    int wrong;
};

static void mix_once(struct mixer *m, struct op *recv, struct op *send, struct blob *in,
                     struct blob *out, int i)
{
    struct rme_list in_list = blob_list(in), out_list = blob_list(out);
    struct rme *rme = m->pair->client->rme;
    void *memory = rme_memory_alloc(rme, 1000 + (size_t)i * 10);

    *recv = (struct op){.node = m->pair->client};
    *send = (struct op){.node = m->pair->client};
    recv->rc = rme_post_recv(rme, m->pair->to_server, &in_list, m->number, m->number, recv,
                             NULL, &recv->id);
    send->rc = rme_post_send(rme, m->pair->to_server, &out_list, m->number, m->number, send,
                             &send->id);
    m->wrong += recv->rc != 0 || send->rc < 0 || memory == NULL;
    rme_cancel(rme, recv->id);
    if (i % 2)
        rme_cancel(rme, send->id);
    int64_t end = lane_now() + BED_PATIENCE_MS;
    int want = send->rc == 0 ? 2 : 1;
    for (int got = 0; got < want && lane_now() < end;) {
        struct rme_done done;
        int n = rme_test_context(rme, m->number, &done, 1, 50);
        if (n == 1) {
            struct op *op = done.user;
            op->reports++;
            got++;
        }
    }
    m->wrong += recv->reports != 1 || (send->rc == 0 && send->reports != 1);
    m->wrong += rme_memory_free(rme, memory) != 0;
}

static void *mix_in_thread(void *arg)
{
    struct mixer *m = arg;
    struct blob in, out;
    struct op recv, send;

    blob_flat(&in, 200);
    blob_flat(&out, m->number == 2 ? 40000 : 200);
    for (int i = 0; i < 100; i++)
        mix_once(m, &recv, &send, &in, &out, i);
    blob_free(&in);
    blob_free(&out);
    return NULL;
}

CASE(threads_of_every_kind)
{
    enum { N = 4 };
    static struct op sinks[100];
    struct mixer m[N];
    struct tester server;
    struct pair p;
    struct blob sink;

    bed_real_time();
    pair_open(&p);
    blob_flat(&sink, 40000);
    for (int c = 1; c < N; c++)
        assert_int_equal(rme_context_open(p.client->rme, c), 0);
    for (int i = 0; i < 100; i++)
        post_recv(&sinks[i], p.server, p.to_client, &sink, 2);
    p.client->asleep = true;
    tester_start(&server, p.server, 0, 10);
    for (int k = 0; k < N; k++) {
        m[k] = (struct mixer){.pair = &p, .number = k};
        assert_int_equal(pthread_create(&m[k].thread, NULL, mix_in_thread, &m[k]), 0);
    }
    for (int k = 0; k < N; k++)
        pthread_join(m[k].thread, NULL);
    tester_stop(&server);
    p.client->asleep = false;
    for (int k = 0; k < N; k++)
        assert_int_equal(m[k].wrong, 0);
    node_close(p.client);
    node_close(p.server);
}
