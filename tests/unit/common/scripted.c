/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>

#include "scripted.h"

struct scripted scripted;

struct rme_hello scripted_hello(void)
{
    return (struct rme_hello){.version = RME_WIRE_VERSION,
                              .version_min = RME_WIRE_VERSION_MIN,
                              .flags = RME_HELLO_F_READ | RME_HELLO_F_EARLY_CTS,
                              .incarnation = 5,
                              .rx_size = 4096,
                              .credits = 1024,
                              .eager_window = 1 << 20,
                              .unexpected_window = 1 << 20,
                              .rts_max = 1024};
}

static void write_down(const struct rme_wire_message *message)
{
    struct word *word = &scripted.word[scripted.words];

    assert_true(scripted.words < SCRIPTED_WORDS);
    scripted.words++;
    scripted.have += message->credits;
    if (message->type == RME_WIRE_CREDIT)
        scripted.have += (uint32_t)message->tag;
    word->message = *message;
    memset(word->head, 0, SCRIPTED_HEAD);
    if (message->payload_length > 0)
        memcpy(word->head, message->payload,
               message->payload_length < SCRIPTED_HEAD ? message->payload_length
                                                       : SCRIPTED_HEAD);
    word->message.payload = NULL;
}

static void report(const struct rme_done *done)
{
    struct posted *p = done->user;

    p->reports++;
    p->error = done->error;
    p->actual = done->actual;
    p->place = ++scripted.places;
}

void scripted_run(void)
{
    struct rme_done done[16];
    struct rme_unexpected got[4];
    bool quiet;
    int ended, count;

    do {
        quiet = script_is_quiet();
        ended = rme_test_context(scripted.rme, 0, done, 16, 0);
        assert_true(ended >= 0);
        for (int i = 0; i < ended; i++)
            report(&done[i]);
        count = rme_test_unexpected(scripted.rme, got, 4, 0);
        assert_true(count >= 0);
        for (int i = 0; i < count; i++) {
            assert_int_equal(rme_unexpected_free(scripted.rme, got[i].buffer), 0);
            if (got[i].first)
                scripted.peer = got[i].addr;
        }
    } while (!quiet || ended > 0 || count > 0);
}

void scripted_put(struct rme_wire_message message, const struct rme_wire_segment *segment)
{
    uint8_t buffer[4096] = {0};

    if (!scripted.keeps) {
        message.credits = (uint16_t)(script.spent - scripted.back);
        scripted.back = script.spent;
    }
    assert_true(scripted.have > 0);
    scripted.have--;
    message.eager_consumed = scripted.eager_consumed;
    rme_wire_encode(&message, buffer);
    for (uint32_t i = 0; i < message.nsegment; i++)
        rme_wire_put_segment(buffer, message.type, i, &segment[i]);
    script_message(0, buffer, rme_wire_length(message.type, message.nsegment));
}

void scripted_peer_sends(struct rme_wire_message message,
                         const struct rme_wire_segment *segment)
{
    scripted_put(message, segment);
    scripted_run();
}

void scripted_says(unsigned kind)
{
    scripted_peer_sends(
        (struct rme_wire_message){.type = (uint8_t)kind, .flags = (uint8_t)(kind >> 8)}, NULL);
}

void scripted_imm(uint32_t imm)
{
    assert_true(scripted.have > 0);
    scripted.have--;
    script_imm(0, imm);
    scripted_run();
}

void scripted_hush(void)
{
    scripted.words = 0;
}

static unsigned kind_of(const struct rme_wire_message *message)
{
    static const uint8_t flags[] = {
        [RME_WIRE_EAGER] = RME_WIRE_F_UNEXPECTED,
        [RME_WIRE_CTS] = RME_WIRE_F_UNSOLICITED,
        [RME_WIRE_FIN] = RME_WIRE_F_EAGER,
        [RME_WIRE_CREDIT] = RME_WIRE_F_GRANT | RME_WIRE_F_WITHDRAW | RME_WIRE_F_RELEASE,
        [RME_WIRE_PONG] = 0,
    };

    return message->type | (unsigned)(message->flags & flags[message->type]) << 8;
}

const struct word *scripted_word(unsigned kind, unsigned n)
{
    for (unsigned i = 0; i < scripted.words; i++)
        if (kind_of(&scripted.word[i].message) == kind && n-- == 0)
            return &scripted.word[i];
    return NULL;
}

unsigned scripted_count(unsigned kind)
{
    unsigned n = 0;

    for (unsigned i = 0; i < scripted.words; i++)
        n += kind_of(&scripted.word[i].message) == kind;
    return n;
}

static void open_engine(const char *options, bool listens)
{
    struct rme_addr *listen = NULL;
    struct rme_config config = {.fabric = &script_ops, .options = options};

    scripted.peer = NULL;
    scripted.words = 0;
    scripted.keeps = false;
    scripted.places = 0;
    scripted.eager_consumed = 0;
    scripted.have = 8;
    script.spent = scripted.back = 0;
    script.heard = write_down;
    if (listens)
        assert_int_equal(rme_addr_parse("ib", "ib://self:1", &listen), 0);
    config.listen = listen;
    assert_int_equal(rme_open(&config, &scripted.rme), 0);
    assert_int_equal(rme_context_open(scripted.rme, 0), 0);
    if (listens)
        rme_addr_free(listen);
}

void scripted_arrive(unsigned link, const struct rme_hello *hello)
{
    uint8_t out[RME_HELLO_MAX] = {0};

    rme_hello_encode(hello, out);
    script_request(out, sizeof(out));
    scripted_run();
    script_up(link, out, sizeof(out));
    scripted_run();
}

static void open_and_greet(const char *options, const struct rme_hello *hello, uint8_t flags)
{
    open_engine(options, true);
    scripted_arrive(0, hello);
    scripted.have = script.advertised;
    scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_EAGER,
                                                  .flags = RME_WIRE_F_UNEXPECTED | flags},
                        NULL);
    assert_non_null(scripted.peer);
    scripted_hush();
}

void scripted_open(const char *options, const struct rme_hello *hello)
{
    open_and_greet(options, hello, RME_WIRE_F_STALLED);
    if (script.spent != scripted.back) /* returns the credit of the engine's answer */
        scripted_says(RME_WIRE_PONG);
    scripted_hush();
}

void scripted_open_modest(const char *options, const struct rme_hello *hello)
{
    open_and_greet(options, hello, 0);
}

void scripted_connected(const struct rme_hello *answer)
{
    uint8_t out[RME_HELLO_MAX] = {0};

    rme_hello_encode(answer, out);
    script_up(0, out, sizeof(out));
    scripted.have = 8;
    scripted.back = script.spent;
}

void scripted_connect(const char *options, const struct rme_hello *answer)
{

    open_engine(options, false);
    assert_int_equal(rme_addr_parse("ib", "ib://other:1", &scripted.peer), 0);
    assert_int_equal(rme_addr_reach(scripted.rme, scripted.peer, 0), -EINPROGRESS);
    scripted_connected(answer);
    scripted_run();
}

/* A case whose operations outlive its stack is a fault of the case. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_stack_use_after_return=1";
}

void scripted_close(void)
{
    script.registering = script.deregistering = script.sleeping = script.waking = NULL;
    script.no_tx = script.no_regs = false;
    script.unsignalled = script.keeps_rx = script.own_rx = false;
    script_cut();
    scripted_run();
    rme_addr_free(scripted.peer);
    rme_close(scripted.rme);
    script.heard = NULL;
    script.mws = 0;
}

int scripted_teardown(void **state)
{
    (void)state;
    scripted_close();
    return 0;
}

uint64_t scripted_counter(const char *name)
{
    return rme_counter_value(scripted.rme, name);
}

void scripted_send(struct posted *p, const void *memory, size_t size, int32_t tag)
{
    void *base = (void *)(uintptr_t)memory;
    int64_t length = (int64_t)size;
    struct rme_list list = {&base, &length, 1};

    *p = (struct posted){.rc = 0};
    p->rc = rme_post_send(scripted.rme, scripted.peer, &list, tag, 0, p, &p->id);
    assert_in_range(p->rc, 0, 1);
    if (p->rc == 1) {
        p->reports = 1;
        p->actual = length;
        p->place = ++scripted.places;
    }
}

void scripted_recv(struct posted *p, void *memory, size_t size, int32_t tag)
{
    int64_t length = (int64_t)size;
    struct rme_list list = {&memory, &length, 1};

    *p = (struct posted){.rc = 0};
    p->rc = rme_post_recv(scripted.rme, scripted.peer, &list, tag, 0, p, NULL, &p->id);
    assert_int_equal(p->rc, 0);
}

void scripted_check(const struct posted *p, int error)
{
    assert_int_equal(p->reports, 1);
    assert_int_equal(p->error, error);
}
