/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages between one client and one server: sizes, order, contexts, cancels, threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "contract.h"
#include "patches/orangefs/shim/shim-engine.h"

#define EAGER 64
#define LARGE (1024 * 1024)

/* Posts the receive of a reply, and a large one, on an address that is not connected yet. */
static void receive_before_connect(struct client *c)
{
    struct flight large;
    char *memory = malloc(LARGE);

    post_recv(&large, c->server, memory, LARGE, 5, c->context);
    ask(c, (struct request){.ask = ASK_GIVE, .tag = 5, .count = 1, .size = LARGE});
    wait_for(c->context, &large);
    CHECK_EQUAL(large.error, 0);
    CHECK_EQUAL(large.actual, LARGE);
    CHECK(is_filled(memory, LARGE, 5, 0));
    free(memory);
}

/* Posts an unexpected message; the tests use BMI's limit, and one byte more. */
static int post_unexpected(struct client *c, char *memory, int64_t size, struct flight *f)
{
    struct request ask = {.ask = ASK_PING, .reply_tag = REPLY_TAG + c->calls, .tag = 9};
    memcpy(memory, &ask, sizeof(ask));
    fill(memory + sizeof(ask), size - (int64_t)sizeof(ask), ask.tag, 0);
    *f = (struct flight){0};
    int ret = BMI_post_sendunexpected(&f->id, c->server, memory, size, BMI_EXT_ALLOC, 1, f,
                                      c->context, NULL);
    f->reports = ret == 1;
    return ret;
}

static void unexpected_of_16384_bytes(struct client *c)
{
    static char memory[16384];
    struct flight sent, answer;
    int value = 0;

    CHECK_EQUAL(BMI_get_info(c->server, BMI_GET_UNEXP_SIZE, &value), 0);
    CHECK_EQUAL(value, 16384);
    for (int i = 0; i < 100; i++) {
        post_recv(&answer, c->server, &c->reply, sizeof(c->reply), REPLY_TAG + c->calls,
                  c->context);
        CHECK(post_unexpected(c, memory, 16384 - i, &sent) >= 0);
        wait_for(c->context, &sent);
        CHECK_EQUAL(sent.error, 0);
        wait_for(c->context, &answer);
        CHECK_EQUAL(answer.error, 0);
        c->calls++;
    }
}

static void unexpected_of_16385_bytes(struct client *c)
{
    static char memory[16385];
    struct flight sent;

    CHECK_EQUAL(post_unexpected(c, memory, 16385, &sent), -BMI_EMSGSIZE);
    CHECK_EQUAL(sent.id, 0);
    ping(c);
    CHECK_EQUAL(post_unexpected(c, memory, 16385, &sent), -BMI_EMSGSIZE);
    settle(c->context);
    CHECK_EQUAL(sent.reports, 0);
    ping(c);
}

static void zero_length(struct client *c)
{
    struct flight f[3];
    char guard[8] = "guarded";
    void *const pieces[2] = {guard, guard + 4};
    const bmi_size_t none[2] = {0, 0};

    ask_begin(c, (struct request){.ask = ASK_TAKE, .tag = 3, .count = 3, .size = 0});
    post_send(&f[0], c->server, NULL, 0, 3, c->context);
    post_send(&f[1], c->server, guard, 0, 3, c->context);
    f[2] = (struct flight){0};
    int ret = BMI_post_send_list(&f[2].id, c->server, (const void *const *)pieces, none, 2, 0,
                                 BMI_EXT_ALLOC, 3, &f[2], c->context, NULL);
    CHECK(ret >= 0);
    f[2].reports = ret;
    ask_end(c);
    CHECK_EQUAL(c->reply.errors + c->reply.bad, 0);
    for (int i = 0; i < 3; i++) {
        wait_for(c->context, &f[i]);
        CHECK_EQUAL(f[i].error, 0);
    }
    /* Receive into no memory, into a buffer, and into an empty list. */
    post_recv(&f[0], c->server, NULL, 0, 4, c->context);
    post_recv(&f[1], c->server, guard, sizeof(guard), 4, c->context);
    f[2] = (struct flight){0};
    CHECK_EQUAL(BMI_post_recv_list(&f[2].id, c->server, NULL, NULL, 0, 0, NULL, BMI_EXT_ALLOC,
                                   4, &f[2], c->context, NULL),
                0);
    ask(c, (struct request){.ask = ASK_GIVE, .tag = 4, .count = 3, .size = 0});
    CHECK_EQUAL(c->reply.errors, 0);
    for (int i = 0; i < 3; i++) {
        wait_for(c->context, &f[i]);
        CHECK_EQUAL(f[i].error, 0);
        CHECK_EQUAL(f[i].actual, 0);
    }
    CHECK(strcmp(guard, "guarded") == 0);
}

/*
 * Returns whether a send of that size always fails if its receive is too small. Without the
 * option a short send has left with its data before the receiver refuses it, and may be
 * reported first.
 */
static bool is_told(int64_t size)
{
    return method_options != NULL || size > 16384;
}

/* Checks that both sides get an error, nothing is written behind the buffer, and the next
 * message is right. */
static void too_large(struct client *c, int64_t send, int64_t room)
{
    struct flight f;
    char *memory = malloc((size_t)send + 64);

    /* The server's receive is too small. */
    fill(memory, send, 20, 0);
    ask_begin(c, (struct request){
                     .ask = ASK_TAKE, .tag = 20, .count = 1, .size = room, .expect = send});
    post_send(&f, c->server, memory, send, 20, c->context);
    ask_end(c);
    CHECK_EQUAL(c->reply.errors, 1);
    CHECK_EQUAL(c->reply.error, -BMI_EMSGSIZE);
    wait_for(c->context, &f);
    if (is_told(send))
        CHECK_EQUAL(f.error, -BMI_EMSGSIZE);
    ping(c);
    /* The client's receive is too small; posted before and after the message arrives. */
    for (int late = 0; late < 2; late++) {
        memset(memory, 0x77, (size_t)send + 64);
        if (late) {
            ask_begin(c,
                      (struct request){.ask = ASK_GIVE, .tag = 21, .count = 1, .size = send});
            settle(c->context);
            post_recv(&f, c->server, memory, room, 21, c->context);
        } else {
            post_recv(&f, c->server, memory, room, 21, c->context);
            ask_begin(c,
                      (struct request){.ask = ASK_GIVE, .tag = 21, .count = 1, .size = send});
        }
        wait_for(c->context, &f);
        CHECK_EQUAL(f.error, -BMI_EMSGSIZE);
        ask_end(c);
        if (is_told(send)) {
            CHECK_EQUAL(c->reply.errors, 1);
            CHECK_EQUAL(c->reply.error, -BMI_EMSGSIZE);
        }
        for (int64_t i = room; i < send + 64; i++)
            CHECK(memory[i] == 0x77);
        ping(c);
    }
    free(memory);
}

static void send_larger_client(struct client *c)
{
    struct rme *engine;

    too_large(c, 9, 8);
    too_large(c, 1, 0);
    too_large(c, 2000, 100);
    too_large(c, LARGE, LARGE - 1);
    too_large(c, LARGE, 10);
    too_large(c, LARGE, 0);
    /* Counts short sends that the server has refused; its messages are in order. */
    CHECK_EQUAL(BMI_get_info(c->server, SHIM_GET_ENGINE, &engine), 0);
    CHECK_EQUAL(rme_counter_value(engine, "eager_refused"), method_options ? 0 : 3);
}

static void send_larger_than_the_receive(void **state)
{
    static char strict[] = "eager_max=0";

    (void)state;
    run_clients(send_larger_client, 1);
    method_options = strict;
    run_clients(send_larger_client, 1);
    method_options = NULL;
}

static void receive_larger_than_the_send(struct client *c)
{
    static const int64_t sizes[] = {1, 100, 5000, 16384, 65536, LARGE};
    char *memory = malloc(2 * LARGE);
    struct flight f;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        ask_begin(
            c,
            (struct request){
                .ask = ASK_TAKE, .tag = 30, .count = 1, .size = 2 * LARGE, .expect = sizes[i]});
        fill(memory, sizes[i], 30, 0);
        post_send(&f, c->server, memory, sizes[i], 30, c->context);
        ask_end(c);
        CHECK_EQUAL(c->reply.errors + c->reply.bad, 0);
        wait_for(c->context, &f);
        CHECK_EQUAL(f.error, 0);
        post_recv(&f, c->server, memory, 2 * LARGE, 31, c->context);
        ask(c, (struct request){.ask = ASK_GIVE, .tag = 31, .count = 1, .size = sizes[i]});
        wait_for(c->context, &f);
        CHECK_EQUAL(f.error, 0);
        CHECK_EQUAL(f.actual, sizes[i]);
        CHECK(is_filled(memory, sizes[i], 31, 0));
    }
    free(memory);
}

/* Eight messages of one tag, eager and large mixed, in both directions at once, repeatedly. */
static void same_tag_fifo(struct client *c)
{
    enum { COUNT = 8 };
    char *out[COUNT], *in[COUNT];
    struct flight sent[COUNT], got[COUNT];

    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < COUNT; i++) {
            out[i] = malloc((size_t)mixed_size(i) + 1);
            in[i] = malloc(MIXED_MAX);
            fill(out[i], mixed_size(i), 40, i);
        }
        ask_begin(c, (struct request){
                         .ask = ASK_TAKE, .tag = 40, .count = COUNT, .size = MIXED_SIZES});
        for (int i = 0; i < COUNT; i++)
            post_send(&sent[i], c->server, out[i], mixed_size(i), 40, c->context);
        ask_end(c);
        CHECK_EQUAL(c->reply.errors, 0);
        CHECK_EQUAL(c->reply.bad, 0);
        ask_begin(c, (struct request){
                         .ask = ASK_GIVE, .tag = 41, .count = COUNT, .size = MIXED_SIZES});
        if (round % 2) /* all have arrived before the first receive is posted */
            settle(c->context);
        for (int i = 0; i < COUNT; i++)
            post_recv(&got[i], c->server, in[i], MIXED_MAX, 41, c->context);
        ask_end(c);
        for (int i = 0; i < COUNT; i++) {
            wait_for(c->context, &sent[i]);
            CHECK_EQUAL(sent[i].error, 0);
            wait_for(c->context, &got[i]);
            CHECK_EQUAL(got[i].error, 0);
            CHECK_EQUAL(got[i].actual, mixed_size(i));
            CHECK(is_filled(in[i], mixed_size(i), 41, i));
            free(out[i]);
            free(in[i]);
        }
    }
}

/* Cancels receives and sends: before the connection is up, while they wait for the peer, and
 * when complete. (tests/conformance cancels in the middle of transfers.) */
static void cancel_is_reported_exactly_once(struct client *c)
{
    enum { OPS = 6 };
    struct flight f[OPS], done;
    char *memory = malloc(OPS * LARGE);

    for (int connected = 0; connected < 2; connected++) {
        for (int i = 0; i < 3; i++)
            post_recv(&f[i], c->server, memory + i * LARGE, LARGE, 50 + i, c->context);
        for (int i = 3; i < OPS; i++) /* sends without a receive: they wait for the peer */
            post_send(&f[i], c->server, memory + i * LARGE, LARGE, 50 + i, c->context);
        if (connected) {
            ping(c);
            settle(c->context);
        }
        for (int i = 0; i < OPS; i++) {
            CHECK_EQUAL(f[i].reports, 0);
            CHECK_EQUAL(BMI_cancel(f[i].id, c->context), 0);
            CHECK_EQUAL(BMI_cancel(f[i].id, c->context), 0);
        }
        for (int i = 0; i < OPS; i++) {
            wait_for(c->context, &f[i]);
            CHECK_EQUAL(f[i].error, -BMI_ECANCEL);
        }
        settle(c->context);
        for (int i = 0; i < OPS; i++) {
            CHECK_EQUAL(f[i].reports, 1);
            CHECK_EQUAL(BMI_cancel(f[i].id, c->context), 0);
        }
        ping(c);
    }
    /* A message for a cancelled receive does not reach its memory and meets the next
     * receive. */
    memset(memory, 0x33, LARGE);
    post_recv(&f[0], c->server, memory, LARGE, 70, c->context);
    ping(c);
    CHECK_EQUAL(BMI_cancel(f[0].id, c->context), 0);
    wait_for(c->context, &f[0]);
    CHECK_EQUAL(f[0].error, -BMI_ECANCEL);
    ask_begin(c, (struct request){.ask = ASK_GIVE, .tag = 70, .count = 1, .size = LARGE});
    settle(c->context);
    for (int i = 0; i < LARGE; i++)
        CHECK(memory[i] == 0x33);
    post_recv(&done, c->server, memory + LARGE, LARGE, 70, c->context);
    ask_end(c);
    wait_for(c->context, &done);
    CHECK_EQUAL(done.error, 0);
    CHECK(is_filled(memory + LARGE, LARGE, 70, 0));
    CHECK_EQUAL(BMI_cancel(done.id, c->context), 0);
    settle(c->context);
    CHECK_EQUAL(done.reports, 1);
    ping(c);
    free(memory);
}

/* Operations of three contexts are reported in their own context, one at a time. */
static void several_contexts_and_small_incount(struct client *c)
{
    enum { CONTEXTS = 3, EACH = 10 };
    bmi_context_id context[CONTEXTS];
    struct flight f[CONTEXTS][EACH];
    char in[CONTEXTS][EACH][EAGER];

    for (int k = 0; k < CONTEXTS; k++) {
        CHECK_EQUAL(BMI_open_context(&context[k]), 0);
        for (int i = 0; i < EACH; i++)
            post_recv(&f[k][i], c->server, in[k][i], EAGER, 200 + k, context[k]);
        ask(c, (struct request){.ask = ASK_GIVE, .tag = 200 + k, .count = EACH, .size = EAGER});
    }
    for (int k = 0; k < CONTEXTS; k++) {
        for (int got = 0; got < EACH;) {
            bmi_op_id_t id[3] = {0, 77, 77};
            bmi_error_code_t error[3] = {0, 77, 77};
            bmi_size_t actual[3];
            void *user[3];
            int n;
            CHECK(BMI_testcontext(1, id, &n, error, actual, user, 10, context[k]) >= 0);
            CHECK(n <= 1 && id[1] == 77 && error[1] == 77);
            if (n == 0)
                continue;
            struct flight *of = user[0];
            CHECK(of >= f[k] && of < f[k] + EACH && of->id == id[0] && of->reports++ == 0 &&
                  error[0] == 0);
            got++;
        }
        for (int i = 0; i < EACH; i++)
            CHECK(is_filled(in[k][i], EAGER, 200 + k, i));
    }
    for (int k = 0; k < CONTEXTS; k++)
        BMI_close_context(context[k]);
    ping(c);
}

/* Uses BMI_test and BMI_testsome without user pointers. */
static void test_and_testsome(struct client *c)
{
    enum { COUNT = 6 };
    struct flight f[COUNT];
    char in[COUNT][EAGER];
    bmi_op_id_t ids[COUNT + 2] = {0};
    int index[COUNT + 2], n, left = COUNT - 1;
    bmi_error_code_t error[COUNT + 2];
    bmi_size_t actual[COUNT + 2];
    bmi_context_id context;

    CHECK_EQUAL(BMI_open_context(&context), 0);
    for (int i = 0; i < COUNT; i++) {
        post_recv(&f[i], c->server, in[i], EAGER, 300, context);
        ids[i + 1] = f[i].id;
    }
    ask(c, (struct request){.ask = ASK_GIVE, .tag = 300, .count = COUNT, .size = EAGER});
    for (n = 0; n == 0;)
        CHECK(BMI_test(ids[1], &n, error, actual, NULL, 10, context) >= 0);
    CHECK(error[0] == 0 && actual[0] == EAGER);
    while (left > 0) {
        CHECK(BMI_testsome(COUNT + 2, ids, &n, index, error, actual, NULL, 10, context) >= 0);
        for (int i = 0; i < n; i++) {
            CHECK(index[i] >= 2 && index[i] <= COUNT && error[i] == 0 && ids[index[i]] != 0);
            ids[index[i]] = 0;
        }
        left -= n;
    }
    CHECK_EQUAL(left, 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(is_filled(in[i], EAGER, 300, i));
    BMI_close_context(context);
}

static void memfree_with_another_size(struct client *c)
{
    static const int64_t sizes[] = {1, 4096, 9000, 16385, 65536, 139304, 262144, 2066424};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    struct flight f;
    char *memory[SIZES];

    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < SIZES; i++) {
            memory[i] = BMI_memalloc(c->server, sizes[i], BMI_SEND);
            CHECK(memory[i] != NULL);
            for (int64_t k = 0; k < sizes[i]; k++)
                CHECK(memory[i][k] == 0);
            fill(memory[i], sizes[i], 400, 0);
            if (round > 0)
                continue;
            ask_begin(c, (struct request){.ask = ASK_TAKE,
                                          .tag = 400,
                                          .count = 1,
                                          .size = sizes[i],
                                          .expect = sizes[i]});
            post_send(&f, c->server, memory[i], sizes[i], 400, c->context);
            ask_end(c);
            wait_for(c->context, &f);
            CHECK_EQUAL(c->reply.errors + c->reply.bad + f.error, 0);
        }
        for (int i = 0; i < SIZES; i++)
            CHECK_EQUAL(BMI_memfree(c->server, memory[i], sizes[(i + round) % SIZES], BMI_RECV),
                        0);
    }
    CHECK(BMI_memfree(c->server, &f, 10, BMI_SEND) < 0);
}

/* Moves 64 pieces into 64 others, every alignment, eager and large. */
static void lists_of_64_pieces(struct client *c)
{
    enum { PIECES = 64, MOST = 5000 };
    static char area[2][PIECES][MOST + 64];
    const void *from[PIECES];
    void *to[PIECES];
    bmi_size_t from_size[PIECES], to_size[PIECES];
    struct flight sent, got;

    for (int step = 1; step <= 4096; step = step * 3 + 1) {
        bmi_size_t total = 0;
        for (int i = 0; i < PIECES; i++) {
            from[i] = to[PIECES - 1 - i] = NULL;
            from_size[i] = to_size[PIECES - 1 - i] = step + i % 5;
            total += from_size[i];
        }
        char *flat = malloc((size_t)total);
        /* To the server from a list. */
        fill(flat, total, 500, 0);
        bmi_size_t at = 0;
        for (int i = 0; i < PIECES; at += from_size[i++]) {
            from[i] = area[0][i] + i;
            memcpy(area[0][i] + i, flat + at, (size_t)from_size[i]);
        }
        ask_begin(c,
                  (struct request){
                      .ask = ASK_TAKE, .tag = 500, .count = 1, .size = total, .expect = total});
        sent = (struct flight){0};
        int ret = BMI_post_send_list(&sent.id, c->server, from, from_size, PIECES, total,
                                     BMI_EXT_ALLOC, 500, &sent, c->context, NULL);
        CHECK(ret >= 0);
        sent.reports = ret;
        ask_end(c);
        CHECK_EQUAL(c->reply.errors + c->reply.bad, 0);
        wait_for(c->context, &sent);
        CHECK_EQUAL(sent.error, 0);
        /* From the server into a list. */
        for (int i = 0; i < PIECES; i++)
            to[i] = area[1][i] + (63 - i);
        got = (struct flight){0};
        CHECK_EQUAL(BMI_post_recv_list(&got.id, c->server, to, to_size, PIECES, total, NULL,
                                       BMI_EXT_ALLOC, 501, &got, c->context, NULL),
                    0);
        ask(c, (struct request){.ask = ASK_GIVE, .tag = 501, .count = 1, .size = total});
        wait_for(c->context, &got);
        CHECK_EQUAL(got.error, 0);
        CHECK_EQUAL(got.actual, total);
        at = 0;
        for (int i = 0; i < PIECES; at += to_size[i++])
            memcpy(flat + at, to[i], (size_t)to_size[i]);
        CHECK(is_filled(flat, total, 501, 0));
        free(flat);
    }
}

/* ---- Threads ---- */

enum { POSTERS = 2, THREAD_ROUNDS = 300 };

struct poster {
    pthread_t thread;
    struct client *client;
    int number;
};

/* Completion that the testing thread passes to the posting ones. */
struct signal {
    atomic_int reports;
    int error;
};

static void await(struct signal *s)
{
    while (atomic_load(&s->reports) == 0)
        sched_yield();
    CHECK_EQUAL(s->error, 0);
}

/* Makes complete calls without testing. */
static void *post_calls(void *arg)
{
    struct poster *p = arg;
    struct client *c = p->client;
    char *memory = malloc(LARGE);

    for (int round = 0; round < THREAD_ROUNDS; round++) {
        int64_t size = round % 10 ? EAGER * (round % 50) : LARGE;
        int tag = 1000 + 2 * round + p->number;
        struct request ask = {.ask = ASK_TAKE,
                              .reply_tag = 100000 + tag,
                              .tag = tag,
                              .count = 1,
                              .size = size,
                              .expect = size};
        struct reply reply;
        struct signal answer = {0}, request = {0}, data = {0};
        bmi_op_id_t id;
        fill(memory, size, tag, 0);
        CHECK_EQUAL(BMI_post_recv(&id, c->server, &reply, sizeof(reply), NULL, BMI_EXT_ALLOC,
                                  ask.reply_tag, &answer, c->context, NULL),
                    0);
        int ret = BMI_post_sendunexpected(&id, c->server, &ask, sizeof(ask), BMI_EXT_ALLOC, 1,
                                          &request, c->context, NULL);
        CHECK(ret >= 0);
        if (ret == 1)
            atomic_store(&request.reports, 1);
        ret = BMI_post_send(&id, c->server, memory, size, BMI_EXT_ALLOC, tag, &data, c->context,
                            NULL);
        CHECK(ret >= 0);
        if (ret == 1)
            atomic_store(&data.reports, 1);
        await(&request);
        await(&data);
        await(&answer);
        CHECK_EQUAL(reply.errors, 0);
        CHECK_EQUAL(reply.bad, 0);
    }
    free(memory);
    return NULL;
}

struct tester {
    pthread_t thread;
    bmi_context_id context;
    atomic_bool enough;
};

static void *test_until_enough(void *arg)
{
    struct tester *t = arg;
    bmi_op_id_t ids[3];
    bmi_error_code_t error[3];
    bmi_size_t actual[3];
    void *user[3];
    int n;

    while (!atomic_load(&t->enough)) {
        CHECK(BMI_testcontext(3, ids, &n, error, actual, user, 5, t->context) >= 0);
        for (int i = 0; i < n; i++) {
            struct signal *s = user[i];
            s->error = error[i];
            CHECK_EQUAL(atomic_fetch_add(&s->reports, 1), 0);
        }
    }
    return NULL;
}

static void two_threads_post_while_one_tests(struct client *c)
{
    struct poster poster[POSTERS];
    struct tester tester = {.context = c->context};

    CHECK(pthread_create(&tester.thread, NULL, test_until_enough, &tester) == 0);
    for (int i = 0; i < POSTERS; i++) {
        poster[i] = (struct poster){.client = c, .number = i};
        CHECK(pthread_create(&poster[i].thread, NULL, post_calls, &poster[i]) == 0);
    }
    for (int i = 0; i < POSTERS; i++)
        CHECK(pthread_join(poster[i].thread, NULL) == 0);
    atomic_store(&tester.enough, true);
    CHECK(pthread_join(tester.thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ONE_CLIENT(receive_before_connect),
        ONE_CLIENT(unexpected_of_16384_bytes),
        ONE_CLIENT(unexpected_of_16385_bytes),
        ONE_CLIENT(zero_length),
        cmocka_unit_test(send_larger_than_the_receive),
        ONE_CLIENT(receive_larger_than_the_send),
        ONE_CLIENT(same_tag_fifo),
        ONE_CLIENT(lists_of_64_pieces),
        ONE_CLIENT(cancel_is_reported_exactly_once),
        ONE_CLIENT(several_contexts_and_small_incount),
        ONE_CLIENT(test_and_testsome),
        ONE_CLIENT(memfree_with_another_size),
        ONE_CLIENT(two_threads_post_while_one_tests),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
