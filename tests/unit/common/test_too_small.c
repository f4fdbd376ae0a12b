/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Eager messages that are larger than their receives: the receive ends when FIN was sent to the
 * peer, which this program plays (played.h).  A refusal needs no memory, because the engine
 * keeps rendezvous for them; other operations fail when these are used up. */
#include "proto/proto.h"
#include "played.h"

static uint64_t refused_bytes;
static uint32_t returned; /* cost of the messages consumed */

static void note_refusal(const struct rme_wire_message *message)
{
    if (message->type == RME_WIRE_FIN && (message->flags & RME_WIRE_F_EAGER) != 0)
        refused_bytes = message->total;
    returned = message->eager_consumed;
}

/* Lets an eager message of 100 bytes meet a receive of 10. */
static rme_id meets_too_small(void)
{
    uint8_t buffer[RME_WIRE_HEADER_SIZE + 100] = {0};
    struct rme_wire_message eager = {.type = RME_WIRE_EAGER, .tag = 3};
    rme_id id = receive(plain, 10, 3);

    rme_wire_encode(&eager, buffer);
    script_message(0, buffer, sizeof(buffer));
    run();
    return id;
}

/* FIN needs none. */
static void no_memory_to_refuse(void **state)
{
    (void)state;
    begin(&usual, "");
    no_malloc = ANY;
    script.heard = note_refusal;
    meets_too_small();
    script.heard = NULL;
    assert_int_equal(refused_bytes, 100);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -EMSGSIZE);
    assert_int_equal(script.links, 1);
    end();
}

/* The host gets the error when FIN was sent, or when it cancels the receive.  Either returns
 * the message's part of the window. */
static void refusal_that_waits_is_cancelled(void **state)
{
    const uint32_t cost = 100 + RME_HELD_COST;
    rme_id id;

    (void)state;
    begin(&usual, "");
    script.no_tx = true;
    script.heard = note_refusal;
    id = meets_too_small();
    assert_int_equal(ended, 0);
    rme_cancel(rme, id);
    run();
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -EMSGSIZE);
    refused_bytes = 0;
    room();
    assert_int_equal(refused_bytes, 0);

    script.no_tx = true;
    meets_too_small();
    assert_int_equal(ended, 1);
    room();
    script.heard = NULL;
    assert_int_equal(refused_bytes, 100);
    assert_int_equal(returned, 2 * cost);
    assert_int_equal(ended, 2);
    assert_int_equal(done_.error, -EMSGSIZE);
    end();
}

/* The link ends while FIN waits. */
static void refusal_that_waits_is_lost(void **state)
{
    (void)state;
    begin(&usual, "");
    script.no_tx = true;
    meets_too_small();
    assert_int_equal(ended, 0);
    script_cut();
    run();
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -EMSGSIZE);
    end();
}

/* ---- no rendezvous is left ---- */

/* Uses all rendezvous that need no allocation, and lets the next allocation of one fail. */
static void begin_without_rendezvous(void)
{
    struct rme_hello rich = usual;

    rich.credits = rich.rts_max = 4 * RME_RNDV_OWN;
    begin(&rich, ",rndv=write");
    for (unsigned i = 0; i < RME_RNDV_OWN; i++)
        send_(plain, LARGE, 2);
    assert_int_not_equal(LAST, 0);
    no_malloc = sizeof(struct rme_rndv);
}

static void send_without_memory_for_rendezvous_fails(void **state)
{
    (void)state;
    begin_without_rendezvous();
    send_(plain, LARGE, 3);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -ENOMEM);
    receive(zone(0), LARGE, 4);
    assert_int_equal(rme_counter_value(rme, "invites_sent"), 0);
    assert_int_equal(script.links, 1);
    end();
}

static void receive_without_memory_for_rendezvous_ends_link(void **state)
{
    (void)state;
    begin_without_rendezvous();
    no_malloc = 0;
    SAYS(RTS, 0, .tag = 3, .from = 9, .total = LARGE);
    no_malloc = sizeof(struct rme_rndv);
    receive(plain, LARGE, 3);
    no_malloc = 0;
    assert_int_equal(script.links, 0);
    assert_int_equal(ended, RME_RNDV_OWN + 1);
    assert_int_equal(done_.error, -ENOMEM);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_to_refuse),
        cmocka_unit_test(refusal_that_waits_is_cancelled),
        cmocka_unit_test(refusal_that_waits_is_lost),
        cmocka_unit_test(send_without_memory_for_rendezvous_fails),
        cmocka_unit_test(receive_without_memory_for_rendezvous_ends_link),
    };

    return cmocka_run_group_tests_name("too small", tests, NULL, NULL);
}
