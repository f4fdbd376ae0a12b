/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attacks against the protocol: the server must end the attacker's link and no other. */
#include "attack.h"
#include "medium.h"

#include <stdio.h>
#include <string.h>

/* messages that return 65535 credits each: more than a peer may have */
#define CREDITS_MANY 20u
#define TAG          0x40000000

/* ---- Messages ---- */

/* Sends invalid message `n`; returns its description, NULL if there is none with this
 * number. */
static const char *say_wrong(struct attack *a, struct link *link, unsigned n)
{
    static const struct rme_wire_segment wrap = {
        .address = UINT64_MAX - 10, .key = 1, .length = 100};
    static const struct rme_wire_segment huge[2] = {
        {.address = 0, .key = 1, .length = UINT64_MAX / 2 + 9},
        {.address = 0, .key = 1, .length = UINT64_MAX / 2 + 9}};
    static const struct rme_wire_segment small = {.address = 0x10000, .key = 1, .length = 100};
    struct rme_wire_message m = {.type = RME_WIRE_CTS, .to = 0x12345, .from = 1};
    uint8_t bytes[LINK_MESSAGE] = {RME_WIRE_EAGER};

    switch (n) {
    case 0:
        link_send_bytes(link, bytes, 0);
        return "a message of no bytes";
    case 1:
        link_send_bytes(link, bytes, 15);
        return "a message of 15 bytes";
    case 2:
        bytes[0] = 0;
        link_send_bytes(link, bytes, 16);
        return "a message of type 0";
    case 3:
        bytes[0] = 99;
        link_send_bytes(link, bytes, 16);
        return "a message of a type that nobody knows";
    case 4:
        m = (struct rme_wire_message){
            .type = RME_WIRE_RTS, .from = 1, .total = 100, .nsegment = 1};
        link_say(link, &m, &wrap, NULL, 0);
        return "a segment that wraps around";
    case 5:
        m = (struct rme_wire_message){
            .type = RME_WIRE_RTS, .from = 1, .total = 100, .nsegment = 2};
        link_say(link, &m, huge, NULL, 0);
        return "segments of more than 2^64 bytes";
    case 6: /* 2^32 - 1 segments announced, none present */
        bytes[0] = RME_WIRE_RTS;
        memset(bytes + rme_wire_length(RME_WIRE_RTS, 0) - 4, 0xff, 4);
        link_send_bytes(link, bytes, rme_wire_length(RME_WIRE_RTS, 0));
        return "segments that are not there";
    case 7:
        m.nsegment = 1;
        link_say(link, &m, &small, NULL, 0);
        return "CTS for nothing";
    case 8:
        m = (struct rme_wire_message){
            .type = RME_WIRE_RTS, .from = 1, .total = 101, .nsegment = 1};
        link_say(link, &m, &small, NULL, 0);
        return "an offer of a part";
    case 9:
        m.type = RME_WIRE_FIN;
        attack_say(a, link, &m);
        return "FIN for nothing";
    case 10:
        m = (struct rme_wire_message){
            .type = RME_WIRE_FIN, .flags = RME_WIRE_F_EAGER, .to = 0, .status = 0};
        attack_say(a, link, &m);
        return "a refusal with status 0";
    case 11:
        m = (struct rme_wire_message){
            .type = RME_WIRE_FIN, .flags = RME_WIRE_F_EAGER, .to = 1u << 20, .status = 1};
        attack_say(a, link, &m);
        return "a refusal of what was not sent";
    case 12:
        m = (struct rme_wire_message){.type = RME_WIRE_CTS,
                                      .flags = RME_WIRE_F_UNSOLICITED,
                                      .to = 1000,
                                      .from = 1,
                                      .nsegment = 1};
        link_say(link, &m, &small, NULL, 0);
        return "an invitation that has seen what was not sent";
    case 13:
        m = (struct rme_wire_message){
            .type = RME_WIRE_RTS, .flags = RME_WIRE_F_UNEXPECTED, .from = 1, .total = 16385};
        attack_say(a, link, &m);
        return "an unexpected message of 16385 bytes";
    case 14:
        link_send_imm(link, 0x12345);
        return "an immediate for nothing";
    case 15:
        m = (struct rme_wire_message){.type = RME_WIRE_PING, .eager_consumed = 1};
        attack_say(a, link, &m);
        return "a window that was never used";
    case 16:
        m = (struct rme_wire_message){.type = RME_WIRE_PING, .unexpected_consumed = 0x80000000};
        attack_say(a, link, &m);
        return "the other window, never used";
    case 17:
        m = (struct rme_wire_message){.type = RME_WIRE_PONG, .credits = UINT16_MAX};
        for (unsigned i = 0; i < CREDITS_MANY && link_wait_credits(link, 1, 2000); i++)
            attack_say(a, link, &m);
        return "more credits than anybody has";
    case 18:
        bytes[0] = RME_WIRE_CANCEL;
        memset(bytes + rme_wire_length(RME_WIRE_CANCEL, 0) - 4, 0xff, 4);
        link_send_bytes(link, bytes, rme_wire_length(RME_WIRE_CANCEL, 0));
        return "a field that the type does not use";
    default:
        break;
    }
    /* each type, a byte shorter than its minimum */
    n -= 19;
    bytes[0] = (uint8_t)(RME_WIRE_EAGER + n);
    if (bytes[0] > RME_WIRE_PONG)
        return NULL;
    link_send_bytes(link, bytes, rme_wire_length(bytes[0], 0) - 1);
    return rme_wire_type_name(bytes[0]);
}

void attack_malformed(struct attack *a)
{
    const char *what = "";

    for (unsigned n = 0; what != NULL && !attack_over(a) && a->failures == 0; n++) {
        struct link *link = attack_open(a, &(struct link_plan){0});

        if (link == NULL)
            continue;
        what = say_wrong(a, link, n);
        a->messages++;
        if (what != NULL)
            attack_must_end(a, link, what);
        link_close(link);
    }
}

/* ---- Connection data ---- */

/* Makes invalid hello `n`; returns false if there is none with this number. */
static bool wrong_hello(unsigned n, uint8_t out[RME_HELLO_MAX], size_t *length,
                        const char **what)
{
    static const char *const names[] = {"a magic number of something else",
                                        "a version of the future",
                                        "a hello that is 39 bytes long",
                                        "receive buffers of 100 bytes",
                                        "3 credits",
                                        "16 random bytes"};
    struct link_plan plan = {0};
    struct rme_hello hello;

    if (n >= sizeof names / sizeof names[0])
        return false;
    *what = names[n];
    *length = RME_HELLO_SIZE;
    link_hello(&plan, &hello);
    if (n == 1)
        hello.version = hello.version_min = 200;
    else if (n == 3)
        hello.rx_size = 100;
    else if (n == 4)
        hello.credits = 3;
    rme_hello_encode(&hello, out);
    if (n == 0)
        out[0] ^= 1;
    else if (n == 2)
        out[6] = RME_HELLO_SIZE - 1;
    else if (n == 5)
        *length = 16;
    if (n == 5)
        memset(out, 0xa7, *length);
    return true;
}

static void must_be_refused(struct attack *a, const struct link_plan *plan, const char *what)
{
    int error;
    struct link *link = link_open(&a->target, plan, &error);

    a->messages++;
    if (link != NULL)
        complain(a, "a link was given for %s", what);
    else
        a->refused++;
    link_close(link);
}

void attack_hellos(struct attack *a)
{
    uint8_t hello[RME_HELLO_MAX] = {0};
    struct link_plan plan = {.hello = hello};
    const char *what;

    must_be_refused(a, &(struct link_plan){.no_hello = true}, "no connection data");
    for (unsigned n = 0; wrong_hello(n, hello, &plan.hello_length, &what) && !attack_over(a);
         n++)
        must_be_refused(a, &plan, what);
}

/* ---- Credits and windows ---- */

/*
 * Sends regardless of credits and returns none, so the server can advertise more only a few
 * times. Any further message is too much. On a network that does not detect this, excess
 * messages wait for buffers, and the link ends only when as many wait as the network holds.
 */
void attack_credits(struct attack *a)
{
    struct link_plan plan = {.credits = 4, .returns = LINK_RETURNS_NONE};
    struct rme_wire_message m = {.type = RME_WIRE_PONG};
    struct link *link[4];

    for (unsigned i = 0; i < 4; i++)
        link[i] = attack_open(a, &plan);
    for (unsigned n = 0; n < 1000; n++)
        for (unsigned i = 0; i < 4; i++)
            if (link[i] != NULL && link_say(link[i], &m, NULL, NULL, 0) == 0)
                a->messages++;
    for (unsigned i = 0; i < 4; i++) {
        if (link[i] != NULL && a->target.medium->strict)
            attack_must_end(a, link[i], "1,000 messages without credit");
        else if (link[i] != NULL && link_ended(link[i], 100))
            a->ended++;
        link_close(link[i]);
    }
}

/* Sends messages within the credits until the link ends; the server must end it within `most`
 * messages. */
static void too_much(struct attack *a, const struct rme_wire_message *first, size_t payload,
                     uint64_t most, const char *what)
{
    static const uint8_t zeros[LINK_MESSAGE];
    struct link *link = attack_open(a, &(struct link_plan){0});
    struct rme_wire_message m = *first;
    uint64_t n = 0;

    if (link == NULL)
        return;
    for (; n < most && !attack_over(a) && link_wait_credits(link, 1, 5000); n++) {
        m.tag++;
        m.from++;
        if (link_say(link, &m, NULL, zeros, payload) != 0)
            break;
        a->messages++;
    }
    if (n == most)
        attack_must_end(a, link, what);
    else if (link_ended(link, 0))
        a->ended++;
    link_close(link);
}

void attack_windows(struct attack *a)
{
    struct link *link = attack_open(a, &(struct link_plan){0});
    struct rme_hello peer;

    if (link == NULL)
        return;
    peer = *link_peer(link);
    link_close(link);
    too_much(a, &(struct rme_wire_message){.type = RME_WIRE_EAGER, .tag = TAG}, 4000,
             peer.eager_window / 4064 + 10, "more eager messages than its window");
    too_much(a, &(struct rme_wire_message){.type = RME_WIRE_EAGER, .tag = TAG}, 0,
             peer.eager_window / 64 + 10, "more empty messages than its window");
    too_much(a, &(struct rme_wire_message){.type = RME_WIRE_RTS, .tag = TAG, .total = 1 << 20},
             0, peer.rts_max + 10, "more RTS than were granted");
}
