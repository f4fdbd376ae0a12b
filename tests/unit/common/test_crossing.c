/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the peer and the host do about one message crosses in flight: all orders of up to three
 * events, each with the messages that the engine sends and the result of the operation.
 *
 * The peer is scripted (play.h).  It knows a handle as soon as a message with it was
 * sent.  When nothing else is left to happen it answers CANCEL, or writes.  An event that the
 * protocol does not permit after those before it ends the link.  In every order the operation
 * is reported once, and not before the devices have left its memory, and nothing is left when
 * the engine is closed.  A wrong order is printed as the row that would be right.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "play.h"

#define LARGE   200000 /* one fragment */
#define NONE    -1
#define IN_RING 20000 /* payload of a message in the ring */
#define OPTIONS "pack_threshold=0,fragment_bytes=1M"

static bool is_posted, stopped;
static uint32_t ring_windows; /* open to the peer as long as the ring is granted */
static const struct scene *scene;

/* ---- Names of messages ---- */

/* Returns the name of a message of the engine; NULL: the message is not about the operation. */
static const char *name_of(const struct rme_wire_message *message)
{
    switch (message->type) {
    case RME_WIRE_RTS:
        return "rts";
    case RME_WIRE_CTS:
        return message->flags & RME_WIRE_F_UNSOLICITED ? "invite" : "cts";
    case RME_WIRE_CANCEL:
        return "cancel";
    case RME_WIRE_FIN:
        return message->status == RME_WIRE_OK         ? "fin"
               : message->status == RME_WIRE_CANCELED ? "fin=canceled"
                                                      : "fin=refused";
    default:
        return NULL;
    }
}

static unsigned told(const char *name)
{
    unsigned n = 0;

    for (unsigned i = 0; i < scripted.words; i++) {
        const char *each = name_of(&scripted.word[i].message);

        n += each != NULL && strcmp(each, name) == 0;
    }
    return n;
}

/* ---- Events ---- */

struct event {
    const char *name, *steps; /* play.h */
};

#define POST          "recv a 200000 3"
#define SEND          "send a 200000 3 zone"
#define STOP          "cancel a"
#define DONE          "done"
#define WRITTEN       "imm @"
#define CTS           "CTS to=@ from=77 window=200000"
#define INVITE        "CTS UNSOLICITED tag=3 from=77 window=200000"
#define HAS_READ      "FIN tag=3 to=@ from=77 offset=200000"
#define REFUSE        "FIN tag=3 to=@ from=77 status=1"
#define LEAVE         "CANCEL tag=3 to=@ from=77"
#define SENDER_LEAVES LEAVE " FROM_SENDER"
#define RTS           "RTS tag=3 from=77 total=200000"
#define TOO_LARGE     "RTS tag=3 from=77 total=200001"
#define OFFER         RTS " window=200000"
#define EAGER         "EAGER tag=3"
#define RING          "ring 0 20000"
#define RELEASE       "CREDIT RELEASE"

/* Returns false if the event is impossible now: a post needs a link, a cancel an operation, a
 * completion a transfer, a write a handle. */
static bool happens(const char *steps)
{
    bool posts = strncmp(steps, "recv", 4) == 0 || strncmp(steps, "send", 4) == 0;
    bool stops = strcmp(steps, STOP) == 0;

    if ((posts && script.links == 0) || (stops && !is_posted) ||
        (strcmp(steps, DONE) == 0 && script.rdma_ops == 0) ||
        (strcmp(steps, WRITTEN) == 0 && play_handle() == 0))
        return false;
    is_posted |= posts;
    stopped |= stops;
    play_steps(steps);
    return true;
}

/* ---- Scenes ---- */

/* An outcome: of this order, and of all longer ones that have no row of their own. */
struct row {
    const char *order, *says;
    int result;      /* bytes of the operation, its error, or NONE was posted */
    unsigned errors; /* of the peer: the link ends */
};

#define EVENTS 6 /* at most */

struct scene {
    const char *options, *hello;
    const char *begin; /* steps */
    struct event event[EVENTS];
    const struct row *row;
    size_t rows;
};

static bool is_over(void)
{
    return !is_posted || play_operation('a')->reports > 0;
}

/* The memory of an operation that was reported is used by no device, and open to no peer. */
static void check_memory(void)
{
    if (is_posted && is_over())
        assert_in_range(script.rdma_ops + script.open, 0, ring_windows);
}

/* Lets the rest happen: transfers complete, the peer answers CANCEL, or writes, or the host
 * gives up. */
static void settle(void)
{
    unsigned answered = 0;

    for (int i = 0; i < 8 && !is_over(); i++) {
        if (scripted_counter("protocol_errors") != 0)
            script_cut();
        else if (script.rdma_ops > 0)
            script_finish(0);
        else if (told("cancel") > answered)
            answered += happens("FIN tag=3 to=@ from=77 status=2");
        else if (told("cts") + told("invite") > 0 && !stopped)
            happens(WRITTEN);
        else
            happens(STOP);
        play_steps("");
        check_memory();
    }
    assert_true(is_over());
}

static void begin_scene(void)
{
    char options[300];

    snprintf(options, sizeof(options), "%s%s%s", OPTIONS, *scene->options ? "," : "",
             scene->options);
    is_posted = stopped = false;
    ring_windows = 0;
    play_begin(options, scene->hello);
    scripted.keeps = true; /* nothing is acknowledged */
    happens(scene->begin);
    if (scripted_counter("eager_ring_bytes") > 0)
        ring_windows = script.open;
}

/* Returns whether `order` is or begins with the events of `first`. */
static bool begins_with(const char *order, const char *first)
{
    size_t length = strlen(first);

    return strncmp(order, first, length) == 0 &&
           (order[length] == '\0' || order[length] == ' ');
}

/* Returns the longest row with which the order begins. */
static const struct row *row_of(const char *order)
{
    const struct row *best = NULL;

    for (size_t i = 0; i < scene->rows; i++)
        if (begins_with(order, scene->row[i].order) &&
            (best == NULL || strlen(scene->row[i].order) > strlen(best->order)))
            best = &scene->row[i];
    return best;
}

static unsigned wrong, orders;
static size_t rows_played; /* rows whose own order is possible */

static void compare(const char *order, const char *says, int result, unsigned errors)
{
    const struct row *row = row_of(order);

    rows_played += row != NULL && strcmp(row->order, order) == 0;
    if (row != NULL && strcmp(row->says, says) == 0 && row->result == result &&
        row->errors == errors)
        return;
    wrong++;
    print_error("{\"%s\", \"%s\", %d, %u},\n", order, says, result, errors);
}

/* Plays an order of events.  Returns false if the last one is impossible. */
static bool play_order(const unsigned *at, unsigned n)
{
    char order[100] = "", says[100] = "";
    unsigned errors;
    const struct posted *op = play_operation('a');
    bool possible = true;

    begin_scene();
    for (unsigned i = 0; i < n && possible; i++) {
        strcat(order, i > 0 ? " " : "");
        strcat(order, scene->event[at[i]].name);
        possible = happens(scene->event[at[i]].steps);
        check_memory();
    }
    if (possible) {
        errors = (unsigned)scripted_counter("protocol_errors");
        settle();
        for (unsigned i = 0; i < scripted.words; i++) {
            const char *name = name_of(&scripted.word[i].message);

            if (name != NULL) {
                strcat(says, *says ? " " : "");
                strcat(says, name);
            }
        }
        assert_int_equal(scripted_counter("protocol_errors"), errors);
        compare(order, says,
                !is_posted       ? NONE
                : op->error != 0 ? op->error
                                 : (int)op->actual,
                errors);
        orders++;
    }
    if (!possible)
        happens(STOP);
    play_end();
    return possible;
}

static void play_orders(unsigned *at, unsigned n)
{
    if (n > 0 && !play_order(at, n))
        return;
    if (n == 3)
        return;
    for (unsigned i = 0; i < EVENTS && scene->event[i].name != NULL; i++) {
        bool again = false;

        for (unsigned k = 0; k < n; k++)
            again |= at[k] == i;
        at[n] = i;
        if (!again)
            play_orders(at, n + 1);
    }
}

static void crossing(const struct scene *played, unsigned expected_orders)
{
    unsigned at[3];

    scene = played;
    wrong = orders = 0;
    rows_played = 0;
    play_orders(at, 0);
    assert_int_equal(wrong, 0);
    assert_int_equal(orders, expected_orders);
    assert_int_equal(rows_played, scene->rows);
}

/* ---- Tables ---- */

#define SCENE(rows_, ...)                                                                      \
    (&(const struct scene){.row = rows_, .rows = sizeof(rows_) / sizeof(rows_[0]), __VA_ARGS__})

static const struct row sends[] = {
    {"cts", "rts", LARGE, 0},
    {"cts read", "rts", -EPROTO, 1},
    {"cts refuse read", "rts", -EPROTO, 1},
    {"cts leave read", "rts", -EPROTO, 1},
    {"cts stop read", "rts", -ECANCELED, 1},
    {"cts done read", "rts", LARGE, 1},
    {"read", "rts", LARGE, 0},
    {"read cts", "rts", LARGE, 1},
    {"read refuse cts", "rts", LARGE, 1},
    {"read leave cts", "rts", LARGE, 1},
    {"read stop cts", "rts", LARGE, 1},
    {"refuse", "rts", -EMSGSIZE, 0},
    {"refuse cts", "rts", -EMSGSIZE, 1},
    {"refuse read", "rts", -EMSGSIZE, 1},
    {"refuse leave cts", "rts", -EMSGSIZE, 1},
    {"refuse leave read", "rts", -EMSGSIZE, 1},
    {"refuse stop cts", "rts", -EMSGSIZE, 1},
    {"refuse stop read", "rts", -EMSGSIZE, 1},
    {"leave", "rts fin=canceled", -ECANCELED, 0},
    {"leave cts", "rts fin=canceled", -ECANCELED, 1},
    {"leave read", "rts fin=canceled", -ECANCELED, 1},
    {"leave refuse cts", "rts fin=canceled", -ECANCELED, 1},
    {"leave refuse read", "rts fin=canceled", -ECANCELED, 1},
    {"leave stop cts", "rts fin=canceled", -ECANCELED, 1},
    {"leave stop read", "rts fin=canceled", -ECANCELED, 1},
    {"stop", "rts cancel", -ECANCELED, 0},
    {"stop cts read", "rts cancel", LARGE, 0},
    {"stop cts refuse", "rts cancel", -EMSGSIZE, 0},
    {"stop cts leave", "rts cancel fin=canceled", -ECANCELED, 0},
    {"stop read", "rts cancel", LARGE, 0},
    {"stop read cts", "rts cancel", LARGE, 1},
    {"stop refuse", "rts cancel", -EMSGSIZE, 0},
    {"stop refuse cts", "rts cancel", -EMSGSIZE, 1},
    {"stop refuse read", "rts cancel", -EMSGSIZE, 1},
    {"stop leave", "rts cancel fin=canceled", -ECANCELED, 0},
    {"stop leave cts", "rts cancel fin=canceled", -ECANCELED, 1},
    {"stop leave read", "rts cancel fin=canceled", -ECANCELED, 1},
};

static void send_of_registered_memory(void **state)
{
    (void)state;
    crossing(SCENE(sends, .options = "", .hello = "windows=16", .begin = SEND,
                   .event = {{"cts", CTS},
                             {"read", HAS_READ},
                             {"refuse", REFUSE},
                             {"leave", LEAVE},
                             {"stop", STOP},
                             {"done", DONE}}),
             93);
}

static const struct row receives[] = {
    {"post", "", -ECANCELED, 0},
    {"post rts", "cts", LARGE, 0},
    {"post rts leave", "cts fin=canceled", -ECANCELED, 0},
    {"post rts stop", "cts cancel", -ECANCELED, 0},
    {"post leave rts", "cts", LARGE, 0},
    {"rts", "", NONE, 0},
    {"rts post", "cts", LARGE, 0},
    {"rts post leave", "cts fin=canceled", -ECANCELED, 0},
    {"rts post stop", "cts cancel", -ECANCELED, 0},
    {"rts leave", "fin=canceled", NONE, 0},
    {"rts leave post", "fin=canceled", -ECANCELED, 0},
    {"leave", "", NONE, 0},
    {"leave post", "", -ECANCELED, 0},
    {"leave post rts", "cts", LARGE, 0},
    {"leave rts post", "cts", LARGE, 0},
};

static void receive_in_all_event_orders(void **state)
{
    (void)state;
    crossing(SCENE(receives, .options = "early_cts=0", .hello = "windows=16", .begin = "",
                   .event = {{"post", POST},
                             {"rts", RTS},
                             {"written", WRITTEN},
                             {"leave", SENDER_LEAVES},
                             {"stop", STOP}}),
             24);
}

static const struct row small_receives[] = {
    {"post", "", -ECANCELED, 0},
    {"post rts", "fin=refused", -EMSGSIZE, 0},
    {"post leave rts", "fin=refused", -EMSGSIZE, 0},
    {"rts", "", NONE, 0},
    {"rts post", "fin=refused", -EMSGSIZE, 0},
    {"rts leave", "fin=canceled", NONE, 0},
    {"rts leave post", "fin=canceled", -ECANCELED, 0},
    {"leave", "", NONE, 0},
    {"leave post", "", -ECANCELED, 0},
    {"leave post rts", "fin=refused", -EMSGSIZE, 0},
    {"leave rts post", "fin=refused", -EMSGSIZE, 0},
};

static void receive_that_is_too_small(void **state)
{
    (void)state;
    crossing(SCENE(small_receives, .options = "early_cts=0", .hello = "windows=16", .begin = "",
                   .event = {{"post", POST},
                             {"rts", TOO_LARGE},
                             {"leave", SENDER_LEAVES},
                             {"stop", STOP}}),
             22);
}

static const struct row inviting[] = {
    {"rts", "invite cts", LARGE, 0},
    {"rts eager leave", "invite cts fin=canceled", -ECANCELED, 0},
    {"rts eager stop", "invite cts cancel", -ECANCELED, 0},
    {"rts leave", "invite cts fin=canceled", -ECANCELED, 0},
    {"rts leave written", "invite cts fin=canceled", -ECANCELED, 1},
    {"rts stop", "invite cts cancel", -ECANCELED, 0},
    {"rts stop written", "invite cts cancel", LARGE, 0},
    {"rts stop leave", "invite cts cancel fin=canceled", -ECANCELED, 0},
    {"written", "invite", LARGE, 0},
    {"eager", "invite", 0, 0},
    {"eager rts written", "invite", 0, 1},
    {"eager written", "invite", 0, 1},
    {"eager leave written", "invite", 0, 1},
    {"eager stop written", "invite", 0, 1},
    {"leave", "invite fin=canceled", -ECANCELED, 0},
    {"leave rts written", "invite fin=canceled", -ECANCELED, 1},
    {"leave written", "invite fin=canceled", -ECANCELED, 1},
    {"leave eager written", "invite fin=canceled", -ECANCELED, 1},
    {"leave stop written", "invite fin=canceled", -ECANCELED, 1},
    {"stop", "invite cancel", -ECANCELED, 0},
    {"stop rts written", "invite cancel", LARGE, 0},
    {"stop rts leave", "invite cancel fin=canceled", -ECANCELED, 0},
    {"stop written", "invite cancel", LARGE, 0},
    {"stop eager written", "invite cancel", LARGE, 0},
    {"stop eager leave", "invite cancel fin=canceled", -ECANCELED, 0},
    {"stop leave", "invite cancel fin=canceled", -ECANCELED, 0},
    {"stop leave written", "invite cancel fin=canceled", -ECANCELED, 1},
};

static void receive_that_invites(void **state)
{
    (void)state;
    crossing(SCENE(inviting, .options = "rndv=write", .hello = "windows=16",
                   .begin = "recv a 200000 3 zone",
                   .event = {{"rts", RTS},
                             {"written", WRITTEN},
                             {"eager", EAGER},
                             {"leave", SENDER_LEAVES},
                             {"stop", STOP}}),
             85);
}

static const struct row reading[] = {
    {"post", "", -ECANCELED, 0},
    {"post offer", "fin", LARGE, 0},
    {"post leave offer", "fin", LARGE, 0},
    {"offer", "", NONE, 0},
    {"offer post", "fin", LARGE, 0},
    {"offer leave", "fin=canceled", NONE, 0},
    {"offer leave post", "fin=canceled", -ECANCELED, 0},
    {"leave", "", NONE, 0},
    {"leave post", "", -ECANCELED, 0},
    {"leave post offer", "fin", LARGE, 0},
    {"leave offer post", "fin", LARGE, 0},
};

static void receive_that_reads(void **state)
{
    (void)state;
    crossing(SCENE(reading, .options = "rndv=read,early_cts=0", .hello = "windows=16",
                   .begin = "",
                   .event = {{"post", POST},
                             {"offer", OFFER},
                             {"leave", SENDER_LEAVES},
                             {"stop", STOP},
                             {"done", DONE}}),
             24);
}

static const struct row in_ring[] = {
    {"post", "", -ECANCELED, 0},
    {"post ring", "", IN_RING, 0},
    {"post eager", "", 0, 0},
    {"post rts", "cts", LARGE, 0},
    {"post rts stop", "cts cancel", -ECANCELED, 0},
    {"post release ring", "", -ECONNRESET, 0},
    {"post release eager", "", 0, 0},
    {"post release rts", "cts", LARGE, 0},
    {"ring", "", NONE, 0},
    {"ring post", "", IN_RING, 0},
    {"ring eager post", "", IN_RING, 0},
    {"ring rts post", "", IN_RING, 0},
    {"ring release post", "", IN_RING, 0},
    {"eager", "", NONE, 0},
    {"eager post", "", 0, 0},
    {"eager ring post", "", 0, 0},
    {"eager rts post", "", 0, 0},
    {"eager release post", "", 0, 0},
    {"rts", "", NONE, 0},
    {"rts post", "cts", LARGE, 0},
    {"rts post stop", "cts cancel", -ECANCELED, 0},
    {"rts ring post", "cts", LARGE, 0},
    {"rts eager post", "cts", LARGE, 0},
    {"rts release post", "cts", LARGE, 0},
    {"release", "", NONE, 0},
    {"release post", "", -ECANCELED, 0},
    {"release post ring", "", -ECONNRESET, 0},
    {"release post eager", "", 0, 0},
    {"release post rts", "cts", LARGE, 0},
    {"release eager post", "", 0, 0},
    {"release rts post", "cts", LARGE, 0},
};

static void receive_with_a_ring(void **state)
{
    (void)state;
    crossing(
        SCENE(in_ring,
              .options = "rndv=write,early_cts=0,eager_ring_bytes=128K,eager_ring_pool=256K",
              .hello = "windows=16 ring",
              .begin = "RTS tag=4 from=77 total=20000; RTS tag=4 from=77 total=20000",
              .event = {{"post", POST},
                        {"ring", RING},
                        {"eager", EAGER},
                        {"rts", RTS},
                        {"release", RELEASE},
                        {"stop", STOP}}),
        97);
}

static const struct row invited[] = {
    {"send", "rts cancel", -ECANCELED, 0},
    {"send invite leave", "rts fin=canceled", -ECANCELED, 0},
    {"send leave", "rts fin=canceled", -ECANCELED, 0},
    {"send stop leave", "rts cancel fin=canceled", -ECANCELED, 0},
    {"invite", "", NONE, 0},
    {"invite send", "", LARGE, 0},
    {"invite leave", "fin=canceled", NONE, 0},
    {"invite leave send", "fin=canceled rts cancel", -ECANCELED, 0},
    {"leave", "fin=canceled", NONE, 0},
    {"leave send", "fin=canceled rts cancel", -ECANCELED, 0},
    {"leave invite send", "fin=canceled", LARGE, 0},
};

static void send_that_is_invited(void **state)
{
    (void)state;
    crossing(SCENE(invited, .options = "", .hello = "windows=16", .begin = "",
                   .event = {{"send", SEND},
                             {"invite", INVITE},
                             {"leave", LEAVE},
                             {"stop", STOP},
                             {"done", DONE}}),
             23);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(send_of_registered_memory),
        cmocka_unit_test(send_that_is_invited),
        cmocka_unit_test(receive_in_all_event_orders),
        cmocka_unit_test(receive_that_is_too_small),
        cmocka_unit_test(receive_that_invites),
        cmocka_unit_test(receive_that_reads),
        cmocka_unit_test(receive_with_a_ring),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
