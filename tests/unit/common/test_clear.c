/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory reused by a later message: if a peer reports a write that it never made, the receiver
 * reads zeros, not the former message. */
#include "scripted.h"

#define OPTIONS                                                                                \
    "regcache_entries=0,poll_us=0,pool_bytes=64M,list_mode=pack,pack_threshold=1M,"            \
    "fragment_bytes=1M,rndv=write,credits=8,keepalive_ms=0,early_cts=0,"
#define PIECE 1000u
#define MOST  200u /* pieces */

static char memory[2 * MOST * PIECE];
static struct rme_wire_segment shown[MOST]; /* memory that the engine has advertised */
static unsigned nshown;

static void (*write_down)(const struct rme_wire_message *message);

static void heard(const struct rme_wire_message *message)
{
    write_down(message);
    if (message->type == RME_WIRE_CTS && message->nsegment > 0)
        rme_wire_segment_at(message, 0, &shown[nshown++]);
}

static void post_list(struct posted *p, uint32_t bytes)
{
    void *base[MOST];
    int64_t length[MOST];
    struct rme_list list = {.base = base, .length = length, .count = (int)(bytes / PIECE)};

    for (int i = 0; i < list.count; i++) {
        base[i] = memory + 2 * i * PIECE;
        length[i] = PIECE;
    }
    *p = (struct posted){0};
    p->rc = rme_post_recv(scripted.rme, scripted.peer, &list, 1, 0, p, NULL, &p->id);
    assert_int_equal(p->rc, 0);
    scripted_run();
}

/* Receives a list whose sender fills the advertised memory with the byte, or leaves it. */
static void receive(uint32_t bytes, uint32_t name, char byte)
{
    struct posted p;
    uint64_t moved = 0;

    memset(memory, 'm', sizeof(memory));
    nshown = 0;
    post_list(&p, bytes);
    scripted_peer_sends(
        (struct rme_wire_message){
            .type = RME_WIRE_RTS, .tag = 1, .from = name, .total = bytes, .shape = 1},
        NULL);
    for (unsigned n = 0; moved < bytes; n++) {
        const struct word *cts = scripted_word(RME_WIRE_CTS, n);

        assert_non_null(cts);
        assert_in_range(shown[n].length, 1, bytes - moved);
        if (byte)
            memset((void *)(uintptr_t)shown[n].address, byte, shown[n].length);
        moved += shown[n].length;
        scripted_imm(cts->message.from);
    }
    scripted_check(&p, 0);
    for (uint32_t at = 0; at < bytes; at++)
        assert_int_equal(memory[at / PIECE * 2 * PIECE + at % PIECE], byte);
    scripted_hush();
}

static void nothing_of_the_last_is_left(uint32_t bytes)
{
    receive(bytes, 1, 's');
    receive(bytes, 2, 0);
    receive(bytes, 3, 't');
    receive(bytes, 4, 0);
}

static void begin(void)
{
    struct rme_hello hello = scripted_hello();

    scripted_open(OPTIONS, &hello);
    write_down = script.heard;
    script.heard = heard;
}

static void unwritten_bounce_blocks_are_zeros(void **state)
{
    (void)state;
    begin();
    nothing_of_the_last_is_left(20 * PIECE);
    nothing_of_the_last_is_left(MOST * PIECE);
    assert_int_equal(scripted_counter("pack_reserve"), 0);
}

static void unwritten_reserve_block_is_zeros(void **state)
{
    (void)state;
    begin();
    script.no_regs = true;
    for (size_t size = 4096; size <= 256 * 1024; size *= 2)
        /* allocate from existing registrations; closing frees them */
        for (int i = 0; i < 64; i++)
            assert_non_null(rme_memory_alloc(scripted.rme, size));
    nothing_of_the_last_is_left(20 * PIECE);
    assert_true(scripted_counter("pack_reserve") > 0);
}

static void memory_handed_out_again_is_zeros(void **state)
{
    char *first, *again;

    (void)state;
    begin();
    for (size_t size = 4096; size <= (8u << 20); size *= 2) {
        first = rme_memory_alloc(scripted.rme, size);
        assert_non_null(first);
        memset(first, 's', size);
        assert_int_equal(rme_memory_free(scripted.rme, first), 0);
        again = rme_memory_alloc(scripted.rme, size);
        assert_non_null(again);
        for (size_t at = 0; at < size; at++)
            assert_int_equal(again[at], 0);
        assert_int_equal(rme_memory_free(scripted.rme, again), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(unwritten_bounce_blocks_are_zeros),
        SCRIPTED_TEST(unwritten_reserve_block_is_zeros),
        SCRIPTED_TEST(memory_handed_out_again_is_zeros),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
