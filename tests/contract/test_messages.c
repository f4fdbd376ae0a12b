/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages between one client and one server: sizes, lists, contexts, cancels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "contract.h"
#include "patches/orangefs/shim/shim-engine.h"

#define EAGER 64
#define LARGE (1024 * 1024)

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

static void unexpected_of_the_largest_size(struct client *c)
{
    static char memory[16385];
    struct flight sent, answer;
    int value = 0;

    CHECK_EQUAL(BMI_get_info(c->server, BMI_GET_UNEXP_SIZE, &value), 0);
    CHECK_EQUAL(value, 16384);
    for (int i = 0; i < 100; i++) {
        CHECK_EQUAL(post_unexpected(c, memory, 16385, &sent), -BMI_EMSGSIZE);
        CHECK_EQUAL(sent.id, 0);
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

/* Moves a message into a receive of `room` bytes, which the client or the server posts, first
 * or when the message has been sent. One that does not fit gives both an error and changes
 * nothing behind the receive. Without the option a short send has left with its data before the
 * receiver refuses it, and may be reported first. */
static void message(struct client *c, enum ask way, int64_t size, int64_t room, bool late)
{
    struct request ask = {.ask = (int32_t)way,
                          .tag = 20,
                          .count = 1,
                          .size = way == ASK_TAKE ? room : size,
                          .expect = size};
    int64_t most = size > room ? size : room;
    int error = size > room ? -BMI_EMSGSIZE : 0;
    bool is_told = error == 0 || method_options != NULL || size > 16384;
    char *memory = malloc((size_t)most + 64), *at = most > 0 ? memory : NULL;
    struct flight f;

    memset(memory, 0x77, (size_t)most + 64);
    if (way == ASK_TAKE)
        fill(memory, size, 20, 0);
    else if (!late)
        post_recv(&f, c->server, at, room, 20, c->context);
    ask_begin(c, ask);
    if (late)
        settle(c->context);
    if (way == ASK_TAKE)
        post_send(&f, c->server, at, size, 20, c->context);
    else if (late)
        post_recv(&f, c->server, at, room, 20, c->context);
    ask_end(c);
    CHECK_EQUAL(c->reply.bad, 0);
    wait_for(c->context, &f);
    if (way == ASK_GIVE || is_told)
        CHECK_EQUAL(f.error, error);
    if (way == ASK_TAKE || is_told)
        CHECK_EQUAL(c->reply.error, error);
    CHECK(error || (f.actual == size && is_filled(memory, size, 20, 0)));
    for (int64_t i = error ? room : size; way == ASK_GIVE && i < most + 64; i++)
        CHECK(memory[i] == 0x77);
    free(memory);
    ping(c);
}

static void client_of_all_sizes(struct client *c)
{
    static const struct {
        int64_t size, room;
    } row[] = {{0, 0},         {0, 8},         {1, 0},
               {9, 8},         {2000, 100},    {100, LARGE},
               {16384, 65536}, {65536, LARGE}, {LARGE, LARGE - 1},
               {LARGE, 0}};
    struct rme *engine;

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        for (int k = 0; k < 3; k++)
            message(c, k ? ASK_GIVE : ASK_TAKE, row[i].size, row[i].room, k == 2);
    /* Counts short sends that the server has refused; its messages are in order. */
    CHECK_EQUAL(BMI_get_info(c->server, SHIM_GET_ENGINE, &engine), 0);
    CHECK_EQUAL(rme_counter_value(engine, "eager_refused"), method_options ? 0 : 3);
}

static void message_meets_receive_of_any_size(void **state)
{
    static char strict[] = "eager_max=0";

    (void)state;
    run_clients(client_of_all_sizes, 1);
    method_options = strict;
    run_clients(client_of_all_sizes, 1);
    method_options = NULL;
}

/* Cancels receives and sends: before the connection is up, while they wait for the peer, and
 * when complete. (tests/conformance cancels in the middle of transfers.) */
static void cancel_is_reported_exactly_once(struct client *c)
{
    enum { OPS = 6 };
    struct flight f[OPS];
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ONE_CLIENT(unexpected_of_the_largest_size),
        cmocka_unit_test(message_meets_receive_of_any_size),
        ONE_CLIENT(lists_of_64_pieces),
        ONE_CLIENT(cancel_is_reported_exactly_once),
        ONE_CLIENT(several_contexts_and_small_incount),
        ONE_CLIENT(memfree_with_another_size),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
