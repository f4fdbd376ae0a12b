/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Eager messages that are larger than their receives: the receive ends when FIN was sent to the
 * peer, which this program plays (played.h). */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_to_refuse),
        cmocka_unit_test(refusal_that_waits_is_cancelled),
        cmocka_unit_test(refusal_that_waits_is_lost),
    };

    return cmocka_run_group_tests_name("too small", tests, NULL, NULL);
}
