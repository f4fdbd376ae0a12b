/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "played.h"

struct rme *rme;
struct rme_addr *peer;
void *memory[4];
char plain[LARGE];
int ended;
struct rme_done done_;
size_t no_malloc, no_calloc;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_malloc(size_t size)
{
    return no_malloc != 0 && (no_malloc == ANY || size == no_malloc) ? NULL
                                                                     : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return no_calloc != 0 && count * size == no_calloc ? NULL : __real_calloc(count, size);
}

/* ---- the engine and its peer ---- */

void run(void)
{
    struct rme_done done;
    bool quiet;
    int count;

    do {
        quiet = script_is_quiet();
        count = rme_test_context(rme, 0, &done, 1, 0);
        assert_in_range(count, 0, 1);
        if (count == 1)
            done_ = done;
        ended += count;
    } while (!quiet || count > 0);
}

const struct rme_hello usual = {.version = RME_WIRE_VERSION,
                                .version_min = RME_WIRE_VERSION_MIN,
                                .flags = RME_HELLO_F_READ | RME_HELLO_F_EARLY_CTS,
                                .incarnation = 5,
                                .rx_size = 4096,
                                .credits = 64,
                                .eager_window = 1 << 20,
                                .unexpected_window = 1 << 20,
                                .rts_max = 64};

void begin(const struct rme_hello *hello, const char *more)
{
    struct rme_config config = {.fabric = &script_ops};
    uint8_t out[RME_HELLO_MAX] = {0};
    struct rme_list nothing = {0};
    char options[300];
    rme_id id;

    snprintf(options, sizeof(options),
             "regcache_entries=0,poll_us=0,keepalive_ms=0,credits=8,fragment_bytes=64K,"
             "pool_bytes=64M%s",
             more);
    config.options = options;
    ended = 0;
    memset(script.handle, 0, sizeof(script.handle));
    script.no_tx = script.no_regs = false;
    script.mws = 1024; /* so that a zone's memory is ready for any receiver */
    assert_int_equal(rme_open(&config, &rme), 0);
    assert_int_equal(rme_context_open(rme, 0), 0);
    assert_int_equal(rme_addr_parse("ib", "ib://peer:1", &peer), 0);
    assert_int_equal(rme_post_unexpected(rme, peer, &nothing, 1, 0, NULL, &id), 0);
    rme_hello_encode(hello, out);
    script_up(0, out, sizeof(out));
    run();
    assert_int_equal(ended, 1);
    ended = 0;
}

void end(void)
{
    no_malloc = no_calloc = 0;
    script.no_tx = script.no_regs = false;
    script_cut();
    run();
    for (unsigned i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
        if (memory[i] != NULL)
            assert_int_equal(rme_memory_free(rme, memory[i]), 0);
    memset(memory, 0, sizeof(memory));
    rme_addr_free(peer);
    rme_close(rme);
}

struct rme_addr *meet_another(const struct rme_hello *hello)
{
    uint8_t out[RME_HELLO_MAX] = {0};
    struct rme_addr *first = peer;
    struct rme_list nothing = {0};
    rme_id id;

    assert_int_equal(rme_addr_parse("ib", "ib://other:1", &peer), 0);
    assert_int_equal(rme_post_unexpected(rme, peer, &nothing, 1, 0, NULL, &id), 0);
    rme_hello_encode(hello, out);
    script_up(1, out, sizeof(out));
    run();
    ended = 0;
    return first;
}

void leave_another(struct rme_addr *first)
{
    script_cut();
    run();
    rme_addr_free(peer);
    peer = first;
}

static struct rme_list list_of(void *const *base, const int64_t *length)
{
    return (struct rme_list){.base = base, .length = length, .count = 1};
}

rme_id send_(void *base, int64_t length, int32_t tag)
{
    struct rme_list list = list_of(&base, &length);
    rme_id id = 0;

    assert_in_range(rme_post_send(rme, peer, &list, tag, 0, NULL, &id), 0, 1);
    run();
    return id;
}

rme_id receive(void *base, int64_t length, int32_t tag)
{
    struct rme_list list = list_of(&base, &length);
    rme_id id = 0;

    assert_int_equal(rme_post_recv(rme, peer, &list, tag, 0, NULL, NULL, &id), 0);
    run();
    return id;
}

void *zone(unsigned which)
{
    memory[which] = rme_memory_alloc(rme, LARGE);
    assert_non_null(memory[which]);
    return memory[which];
}

void says_on(unsigned link, struct rme_wire_message message, uint64_t window)
{
    struct rme_wire_segment segment = {.address = 0x1000, .key = 7, .length = window};
    uint8_t buffer[4096] = {0};

    message.nsegment = window != 0;
    rme_wire_encode(&message, buffer);
    if (window != 0)
        rme_wire_put_segment(buffer, message.type, 0, &segment);
    script_message(link, buffer, rme_wire_length(message.type, message.nsegment));
    run();
}

void says(struct rme_wire_message message, uint64_t window)
{
    says_on(0, message, window);
}

void room(void)
{
    script_tx_room();
    run();
}

uint64_t errors(void)
{
    return (uint64_t)rme_counter_value(rme, "protocol_errors");
}

void refuses(uint32_t handle)
{
    SAYS(FIN, 0, .to = handle, .from = 9, .status = RME_WIRE_TOO_LARGE);
}
