/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The reserve block: when a zone has no block for a message the engine's last block is used, in
 * turn. An operation that cannot use the block now does not hold it. Two peers are played here,
 * which have used up their quotas of small zones.
 */
#include "played.h"

#define PIECE   1000u
#define MOST    200u
#define SMALL   40000u /* a list that fits into a block of the reserve, */
#define LESS    39000u
#define MEDIUM  100000u /* and one that needs two */
#define BLOCK   65536u
#define RTS_MAX 2
#define OPTIONS ",pool_bytes=512K,list_mode=pack,pack_threshold=1M"

static char from[2 * MOST * PIECE], to[2 * MOST * PIECE];
static struct rme_addr *first;

/* Posts a send of a list to the peer, or a receive from it. */
static void post_list(bool sends, uint32_t bytes, int32_t tag)
{
    void *base[MOST];
    int64_t length[MOST];
    struct rme_list list = {.base = base, .length = length, .count = bytes / PIECE};
    rme_id id;

    for (int i = 0; i < list.count; i++) {
        base[i] = (sends ? from : to) + 2 * i * PIECE;
        length[i] = PIECE;
    }
    if (sends)
        assert_int_equal(rme_post_send(rme, peer, &list, tag, 0, NULL, &id), 0);
    else
        assert_int_equal(rme_post_recv(rme, peer, &list, tag, 0, NULL, NULL, &id), 0);
    run();
}

static void send_list(uint32_t bytes, int32_t tag)
{
    post_list(true, bytes, tag);
}

static uint64_t count(const char *name)
{
    return (uint64_t)rme_counter_value(rme, name);
}

static void on_first(void)
{
    struct rme_addr *second = peer;

    peer = first;
    first = second;
}

/* Starts a receive from the peer that holds the peer's whole quota of the zones. */
static void use_up_share(unsigned link)
{
    uint64_t before;

    post_list(false, 2 * MEDIUM, 90);
    before = count("pack_bytes");
    SAYS_ON(link, RTS, 0, .tag = 90, .from = 90, .total = 2 * MEDIUM, .shape = 1);
    assert_true(count("pack_bytes") > before);
}

/* Posts a send to the second peer, which waits for CTS and can be moved only through the
 * reserve. Returns the send's handle. */
static uint32_t open_two(const char *more, struct rme_hello hello)
{
    char options[200];

    snprintf(options, sizeof(options), "%s%s", OPTIONS, more);
    begin(&hello, options);
    first = meet_another(&usual);
    use_up_share(1);
    send_list(SMALL, 4);
    assert_int_equal(count("pack_reserve"), 0);
    return LAST;
}

static void close_two(void)
{
    leave_another(first);
    end();
}

/* Checks that the second peer's send gets the reserve and completes. */
static void second_goes_on(uint32_t handle)
{
    unsigned rdma_ops = script.rdma_ops;
    int before = ended;

    SAYS_ON(1, CTS, SMALL, .to = handle, .from = 91);
    assert_int_equal(script.rdma_ops, rdma_ops + 1);
    script_finish(0); /* the newest */
    run();
    assert_int_equal(ended, before + 1);
    assert_int_equal(done_.error, 0);
    assert_int_equal(done_.actual, SMALL);
}

/* Invites a send of the first peer's while an acknowledgement to it cannot be sent. */
static void invite_and_owe(void)
{
    send_(plain, LARGE, 2);
    script.no_tx = true;
    refuses(LAST);
    assert_int_equal(done_.error, -EMSGSIZE);
    SAYS(CTS, SMALL, .flags = RME_WIRE_F_UNSOLICITED, .tag = 3, .to = 1, .from = 9);
    send_list(SMALL, 3);
    assert_int_equal(script.rdma_ops, 0);
}

static void blocked_early_cts_send_passes_reserve(void **state)
{
    uint32_t handle;

    (void)state;
    handle = open_two(",rndv=write", usual);
    on_first();
    use_up_share(0);
    invite_and_owe();
    second_goes_on(handle);
    room();
    assert_int_equal(count("invites_taken"), 1);
    assert_int_equal(script.rdma_ops, 1);
    script_finish(0);
    run();
    assert_int_equal(done_.error, 0);
    assert_int_equal(done_.actual, SMALL);
    assert_int_equal(errors(), 0);
    on_first();
    close_two();
}

/* RTS was sent and may be answered much later; its message was copied for an invitation that
 * was cancelled. */
static void no_copy_waits_for_an_answer(void **state)
{
    (void)state;
    begin(&usual, ",list_mode=pack,pack_threshold=1M,rndv=write");
    invite_and_owe();
    assert_int_equal(count("pack_bytes"), BLOCK);
    SAYS(CANCEL, 0, .from = 9);
    room();
    assert_int_equal(count("invites_taken"), 0);
    assert_int_equal(count("pack_bytes"), 0);
    SAYS(CTS, SMALL, .to = LAST, .from = 10);
    assert_int_equal(script.rdma_ops, 1);
    script_finish(0);
    run();
    assert_int_equal(done_.error, 0);
    assert_int_equal(done_.actual, SMALL);
    assert_int_equal(errors(), 0);
    end();
}

/* The peer holds its maximum of RTS and has invited the next send, which does not fit into the
 * block. */
static void send_without_room_passes_reserve_on(void **state)
{
    struct rme_hello few = usual;
    uint32_t handle;

    (void)state;
    few.rts_max = RTS_MAX;
    handle = open_two("", few);
    on_first();
    for (int32_t tag = 10; tag < 10 + RTS_MAX; tag++)
        send_list(MEDIUM, tag);
    SAYS(CTS, MEDIUM, .flags = RME_WIRE_F_UNSOLICITED, .tag = 3, .to = RTS_MAX, .from = 9);
    send_list(MEDIUM, 3);
    assert_int_equal(script.rdma_ops, 0);
    second_goes_on(handle);
    on_first();
    close_two();
}

/* ---- Transfers ---- */

/* Uses up the first peer's last credit but one. */
static void use_up_credits(void)
{
    SAYS(CANCEL, 0, .from = 50); /* of an invitation: it is answered */
}

/* Completes the first peer's message, which is being moved. */
static void first_goes_on_with(uint32_t bytes)
{
    int before = ended;

    assert_int_equal(script.rdma_ops, 1);
    script_finish(0);
    run();
    assert_int_equal(ended, before + 1);
    assert_int_equal(done_.error, 0);
    assert_int_equal(done_.actual, bytes);
    assert_int_equal(errors(), 0);
}

/* Returns credits to the first peer's message and completes it. */
static void first_goes_on(void)
{
    assert_int_equal(script.rdma_ops, 0);
    SAYS(PONG, 0, .credits = 2);
    first_goes_on_with(SMALL);
}

static void write_without_credits_passes_reserve_on(void **state)
{
    struct rme_hello poor = usual;
    uint32_t handle;

    (void)state;
    poor.credits = 6;
    handle = open_two(",rndv=write", poor);
    on_first();
    use_up_share(0);
    send_list(SMALL, 3);
    use_up_credits();
    SAYS(CTS, SMALL, .to = LAST, .from = 9);
    assert_int_equal(script.rdma_ops, 0);
    second_goes_on(handle);
    first_goes_on();
    on_first();
    close_two();
}

/* The fragments of a message go one after the other, each when the block is free.  A message
 * that needs no block stays behind those of its peer that need it, and other peers pass. */
static void reserve_waiter_blocks_no_other_peer(void **state)
{
    void *ready, *others;
    uint32_t handle;

    (void)state;
    handle = open_two(",rndv=write", usual);
    on_first();
    use_up_share(0);
    send_list(SMALL, 3);
    SAYS(CTS, SMALL, .to = LAST, .from = 9);
    assert_int_equal(script.rdma_ops, 1); /* holds the block */
    on_first();
    SAYS_ON(1, CTS, SMALL, .to = handle, .from = 91);
    send_list(MEDIUM, 5);
    SAYS_ON(1, CTS, MEDIUM, .to = LAST, .from = 92);
    assert_int_equal(script.rdma_ops, 1);
    ready = rme_memory_alloc(rme, SMALL);
    assert_non_null(ready);
    send_(ready, SMALL, 6);
    SAYS_ON(1, CTS, SMALL, .to = LAST, .from = 93);
    assert_int_equal(script.rdma_ops, 1);
    on_first();
    others = rme_memory_alloc(rme, LESS);
    assert_non_null(others);
    send_(others, LESS, 7);
    SAYS(CTS, LESS, .to = LAST, .from = 10);
    on_first();
    assert_int_equal(script.rdma_ops, 2);
    script_finish(0); /* the newest */
    run();
    assert_int_equal(ended, 1);
    assert_int_equal(done_.actual, LESS);
    for (int left = 4; left > 1; left--) { /* transfers from the block */
        assert_int_equal(script.rdma_ops, 1);
        script_finish(0);
        run();
    }
    assert_int_equal(ended, 3);
    assert_int_equal(script.rdma_ops, 2); /* the last one, and the message behind it */
    script_finish(0);
    run();
    assert_int_equal(ended, 4);
    assert_int_equal(done_.actual, SMALL);
    assert_int_equal(rme_memory_free(rme, ready), 0);
    assert_int_equal(rme_memory_free(rme, others), 0);
    script_finish(0);
    run();
    assert_int_equal(script.rdma_ops, 0);
    assert_int_equal(ended, 5);
    assert_int_equal(done_.error, 0);
    assert_int_equal(done_.actual, MEDIUM);
    assert_int_equal(errors(), 0);
    close_two();
}

/* A send that had its turn and could not be posted lacks a resource that later sends of its
 * peer might take. */
static void blocked_send_keeps_its_turn(void **state)
{
    struct rme_hello poor = usual;
    uint32_t handle, of_list;
    void *ready;

    (void)state;
    poor.credits = 7;
    handle = open_two(",rndv=write", poor);
    on_first();
    use_up_share(0);
    send_list(SMALL, 3);
    of_list = LAST;
    ready = rme_memory_alloc(rme, LESS);
    assert_non_null(ready);
    send_(ready, LESS, 6);
    use_up_credits();
    SAYS(CTS, SMALL, .to = of_list, .from = 9);
    assert_int_equal(script.rdma_ops, 0);
    SAYS_ON(1, CTS, SMALL, .to = handle, .from = 91);
    assert_int_equal(script.rdma_ops, 1); /* the other peer's message holds the block */
    SAYS(CTS, LESS, .to = LAST, .from = 10);
    SAYS(PONG, 0, .credits = 1);
    assert_int_equal(script.rdma_ops, 1);
    script_finish(0);
    run();
    first_goes_on_with(SMALL);
    SAYS(PONG, 0, .credits = 1);
    first_goes_on_with(LESS);
    assert_int_equal(ended, 3);
    assert_int_equal(rme_memory_free(rme, ready), 0);
    on_first();
    close_two();
}

/* The peer that has used the block requests it again while the other one is queued. */
static void first_waiter_gets_reserve_first(void **state)
{
    const uint32_t less = SMALL - PIECE;
    uint32_t handle;

    (void)state;
    handle = open_two(",rndv=write", usual);
    on_first();
    use_up_share(0);
    send_list(SMALL, 3);
    SAYS(CTS, SMALL, .to = LAST, .from = 9);
    SAYS_ON(1, CTS, SMALL, .to = handle, .from = 91);
    send_list(less, 5);
    SAYS(CTS, less, .to = LAST, .from = 10);
    for (int64_t n = 1; n <= 3; n++) {
        assert_int_equal(script.rdma_ops, 1);
        script_finish(0);
        run();
        assert_int_equal(ended, n);
        assert_int_equal(done_.actual, n < 3 ? SMALL : less);
    }
    assert_int_equal(errors(), 0);
    on_first();
    close_two();
}

/* The first fragment waits for the block; a zone block becomes free for the second. */
static void fragments_keep_their_order(void **state)
{
    uint32_t handle, share;

    (void)state;
    (void)open_two(",rndv=write", usual);
    on_first();
    use_up_share(0);
    share = LAST;
    send_list(MEDIUM, 3);
    handle = LAST;
    on_first();
    send_list(SMALL, 5);
    SAYS_ON(1, CTS, SMALL, .to = LAST, .from = 91);
    assert_int_equal(script.rdma_ops, 1); /* holds the block */
    on_first();
    SAYS(CTS, SMALL, .to = handle, .from = 9);
    for (uint32_t at = 0; at < 2 * MEDIUM; at += BLOCK) {
        script_imm(0, share);
        run();
    }
    assert_int_equal(ended, 1);
    SAYS(CTS, MEDIUM - SMALL, .to = handle, .from = 9, .offset = SMALL);
    assert_int_equal(script.rdma_ops, 1);
    script_finish(0);
    run();
    assert_int_equal(ended, 2);
    assert_int_equal(script.rdma_ops, 2);
    script_finish(0);
    script_finish(0);
    run();
    assert_int_equal(ended, 3);
    assert_int_equal(done_.error, 0);
    assert_int_equal(done_.actual, MEDIUM);
    assert_int_equal(errors(), 0);
    on_first();
    close_two();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocked_early_cts_send_passes_reserve),
        cmocka_unit_test(no_copy_waits_for_an_answer),
        cmocka_unit_test(send_without_room_passes_reserve_on),
        cmocka_unit_test(write_without_credits_passes_reserve_on),
        cmocka_unit_test(reserve_waiter_blocks_no_other_peer),
        cmocka_unit_test(blocked_send_keeps_its_turn),
        cmocka_unit_test(first_waiter_gets_reserve_first),
        cmocka_unit_test(fragments_keep_their_order),
    };

    return cmocka_run_group_tests_name("reserve", tests, NULL, NULL);
}
