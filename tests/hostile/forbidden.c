/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attacks against the protocol: the server must end the attacker's link and no other. */
#include "attack.h"
#include "medium.h"

#include <stdio.h>
#include <string.h>

/* messages that return 65535 credits each: more than a peer may have */
#define CREDITS_MANY 20u
#define TAG          0x40000000
#define WHOLE        255 /* bytes without a segment */

/* ---- Messages ---- */

static const struct rme_wire_segment wrap = {
    .address = UINT64_MAX - 10, .key = 1, .length = 100};
static const struct rme_wire_segment huge[2] = {
    {.address = 0, .key = 1, .length = UINT64_MAX / 2 + 9},
    {.address = 0, .key = 1, .length = UINT64_MAX / 2 + 9}};
static const struct rme_wire_segment small = {.address = 0x10000, .key = 1, .length = 100};

/* Messages that end the link. Those without `m` are `raw` bytes of type `first`, with `ones`
 * the last four all ones. */
static const struct wrong {
    const char *what;
    struct rme_wire_message m;
    const struct rme_wire_segment *segment;
    uint8_t first, raw;
    bool ones;
    unsigned times;
} wrongs[] = {
    {.what = "a message of no bytes", .first = RME_WIRE_EAGER},
    {.what = "a message of 15 bytes", .first = RME_WIRE_EAGER, .raw = 15},
    {.what = "a message of type 0", .raw = 16},
    {.what = "a message of a type that nobody knows", .first = 99, .raw = 16},
    {.what = "a segment that wraps around",
     .m = {.type = RME_WIRE_RTS, .from = 1, .total = 100, .nsegment = 1},
     .segment = &wrap},
    {.what = "segments of more than 2^64 bytes",
     .m = {.type = RME_WIRE_RTS, .from = 1, .total = 100, .nsegment = 2},
     .segment = huge},
    {.what = "segments that are not there", .first = RME_WIRE_RTS, .raw = WHOLE, .ones = true},
    {.what = "CTS for nothing",
     .m = {.type = RME_WIRE_CTS, .to = 0x12345, .from = 1, .nsegment = 1},
     .segment = &small},
    {.what = "an offer of a part",
     .m = {.type = RME_WIRE_RTS, .from = 1, .total = 101, .nsegment = 1},
     .segment = &small},
    {.what = "FIN for nothing", .m = {.type = RME_WIRE_FIN, .to = 0x12345, .from = 1}},
    {.what = "a refusal with status 0", .m = {.type = RME_WIRE_FIN, .flags = RME_WIRE_F_EAGER}},
    {.what = "a refusal of what was not sent",
     .m = {.type = RME_WIRE_FIN, .flags = RME_WIRE_F_EAGER, .to = 1u << 20, .status = 1}},
    {.what = "an invitation that has seen what was not sent",
     .m = {.type = RME_WIRE_CTS,
           .flags = RME_WIRE_F_UNSOLICITED,
           .to = 1000,
           .from = 1,
           .nsegment = 1},
     .segment = &small},
    {.what = "an unexpected message of 16385 bytes",
     .m = {.type = RME_WIRE_RTS, .flags = RME_WIRE_F_UNEXPECTED, .from = 1, .total = 16385}},
    {.what = "a window that was never used", .m = {.type = RME_WIRE_PING, .eager_consumed = 1}},
    {.what = "the other window, never used",
     .m = {.type = RME_WIRE_PING, .unexpected_consumed = 0x80000000}},
    {.what = "more credits than anybody has",
     .m = {.type = RME_WIRE_PONG, .credits = UINT16_MAX},
     .times = CREDITS_MANY},
    {.what = "a field that the type does not use",
     .first = RME_WIRE_CANCEL,
     .raw = WHOLE,
     .ones = true},
};

static void say_wrong(struct attack *a, struct link *link, const struct wrong *w)
{
    uint8_t bytes[LINK_MESSAGE] = {w->first};
    size_t length = w->raw == WHOLE ? rme_wire_length(w->first, 0) : w->raw;

    if (w->ones)
        memset(bytes + length - 4, 0xff, 4);
    if (w->m.type == 0)
        link_send_bytes(link, bytes, length);
    else
        link_say(link, &w->m, w->segment, NULL, 0);
    for (unsigned i = 1; i < w->times && link_wait_credits(link, 1, 2000); i++)
        attack_say(a, link, &w->m);
}

/* An immediate for nothing, then each type, a byte shorter than its minimum. */
static const char *say_other(struct link *link, unsigned n)
{
    uint8_t bytes[LINK_MESSAGE] = {(uint8_t)(RME_WIRE_EAGER + n - 1)};

    if (n == 0) {
        link_send_imm(link, 0x12345);
        return "an immediate for nothing";
    }
    if (bytes[0] > RME_WIRE_PONG)
        return NULL;
    link_send_bytes(link, bytes, rme_wire_length(bytes[0], 0) - 1);
    return rme_wire_type_name(bytes[0]);
}

void attack_malformed(struct attack *a)
{
    enum { WRONGS = sizeof wrongs / sizeof wrongs[0] };
    const char *what = "";

    for (unsigned n = 0; what != NULL && !attack_over(a) && a->failures == 0; n++) {
        struct link *link = attack_open(a, &(struct link_plan){0});

        if (link == NULL)
            continue;
        if (n < WRONGS)
            say_wrong(a, link, &wrongs[n]);
        what = n < WRONGS ? wrongs[n].what : say_other(link, n - WRONGS);
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
