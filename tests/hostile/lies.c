/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * False messages after a valid handshake: a good client up to the point where the server has
 * sent its keys, then one false message; and a ring whose contents change while the
 * server reads them. A good client runs in between.
 */
#include "medium.h"
#include "visit.h"

#include <string.h>

#define SIZE 65536u

static void say(struct visit *v, uint8_t type, uint64_t offset)
{
    struct rme_wire_message m = {.type = type, .to = v->op, .from = VISIT_NAME};

    m.offset = offset;
    attack_say(v->attack, v->link, &m);
}

/* ---- During a put ---- */

static void written_twice(struct visit *v)
{
    link_send_imm(v->link, v->op);
    link_send_imm(v->link, v->op);
}

static void written_elsewhere(struct visit *v)
{
    link_send_imm(v->link, v->op + 1);
}

static void moved_too_much(struct visit *v)
{
    say(v, RME_WIRE_FIN, SIZE + 1);
}

static void announced_again(struct visit *v)
{
    struct rme_wire_message rts = {.type = RME_WIRE_RTS,
                                   .from = VISIT_NAME,
                                   .tag = v->data_tag,
                                   .total = SIZE,
                                   .shape = 1};

    attack_say(v->attack, v->link, &rts);
    link_send_imm(v->link, v->op);
}

static void withdrawn_and_written(struct visit *v)
{
    struct rme_wire_message m = {.type = RME_WIRE_CANCEL,
                                 .flags = RME_WIRE_F_FROM_SENDER,
                                 .tag = v->data_tag,
                                 .to = v->op,
                                 .from = VISIT_NAME};

    attack_say(v->attack, v->link, &m);
    link_send_imm(v->link, v->op);
}

/* ---- During a get ---- */

static void read_nothing(struct visit *v)
{
    say(v, RME_WIRE_FIN, 0);
}

static void read_twice(struct visit *v)
{
    say(v, RME_WIRE_FIN, SIZE);
    say(v, RME_WIRE_FIN, SIZE);
}

static void written_to_nowhere(struct visit *v)
{
    static const struct rme_wire_segment nowhere = {.address = 0x10, .key = 7, .length = SIZE};
    struct rme_wire_message cts = {
        .type = RME_WIRE_CTS, .to = v->op, .from = VISIT_NAME, .nsegment = 1};

    link_say(v->link, &cts, &nowhere, NULL, 0);
}

static void opened_too_much(struct visit *v)
{
    static const struct rme_wire_segment all = {
        .address = 1u << 20, .key = 7, .length = UINT64_C(1) << 40};
    struct rme_wire_message cts = {
        .type = RME_WIRE_CTS, .to = v->op, .from = VISIT_NAME, .nsegment = 1};

    link_say(v->link, &cts, &all, NULL, 0);
}

static void left_and_read(struct visit *v)
{
    struct rme_wire_message m = {.type = RME_WIRE_CANCEL, .to = v->op, .from = VISIT_NAME};

    attack_say(v->attack, v->link, &m);
    read_twice(v);
}

static const struct {
    const char *what;
    bool put, ends;
    void (*tell)(struct visit *v);
} lies[] = {
    {"a message written twice", true, true, written_twice},
    {"a report of another message", true, true, written_elsewhere},
    {"a report of writing more than was opened", true, true, moved_too_much},
    {"the same announcement again", true, false, announced_again},
    {"a report of what was withdrawn", true, false, withdrawn_and_written},
    {"a report of more bytes than there are", false, true, moved_too_much},
    {"a report of nothing", false, false, read_nothing},
    {"two reports of one message", false, true, read_twice},
    {"memory that is none", false, true, written_to_nowhere},
    {"more memory than the message has", false, true, opened_too_much},
    {"a report of what was left", false, false, left_and_read},
};

static void good_client(struct attack *a)
{
    struct visit v = {.attack = a,
                      .link = attack_enter(a),
                      .object = "lies",
                      .put = true,
                      .size = SIZE,
                      .reply_tag = 100};

    if (v.link == NULL || !visit_begin(&v) || !visit_finish(&v))
        complain(a, "a good client is not served");
    link_close(v.link);
}

void attack_lies(struct attack *a)
{
    good_client(a); /* creates an object to get */
    for (unsigned i = 0; i < sizeof lies / sizeof lies[0] && a->failures == 0; i++) {
        struct visit v = {.attack = a,
                          .link = attack_enter(a),
                          .object = "lies",
                          .put = lies[i].put,
                          .size = SIZE,
                          .reply_tag = 100};

        /* over Elan4 a write to an unmapped address completes only when its writer gives up */
        bool ends =
            lies[i].ends && (lies[i].tell != written_to_nowhere || a->target.medium->strict);

        if (v.link == NULL || !visit_begin(&v)) {
            complain(a, "no key was told before %s", lies[i].what);
        } else {
            lies[i].tell(&v);
            if (ends)
                attack_must_end(a, v.link, lies[i].what);
        }
        link_drop(v.link);
        good_client(a);
    }
}

/* ---- Ring ---- */

/* Waits for GRANT: the server grants a ring to a client that announces messages that would fit,
 * before it answers PING. */
static bool borrow(struct visit *v, struct rme_wire_segment *lent)
{
    static struct arrival arrival;
    struct rme_wire_message rts = {.type = RME_WIRE_RTS, .tag = 0x40000000, .total = 8192};
    struct rme_wire_message ping = {.type = RME_WIRE_PING};

    for (rts.from = 1; rts.from <= 4; rts.from++)
        if (!attack_say(v->attack, v->link, &rts))
            return false;
    if (!attack_say(v->attack, v->link, &ping))
        return false;
    while (link_receive(v->link, &arrival, 20000) == 1 &&
           (arrival.is_imm || arrival.message.type != RME_WIRE_PONG))
        if (!arrival.is_imm && arrival.message.type == RME_WIRE_CREDIT &&
            arrival.message.nsegment == 1) {
            rme_wire_segment_at(&arrival.message, 0, lent);
            return true;
        }
    return false;
}

/* Writes messages to the ring, and overwrites them as soon as they are reported. */
static void write_and_change(struct visit *v, const struct rme_wire_segment *lent)
{
    enum { ROUNDS = 64, PLACE = 4096 };
    static uint8_t good[PLACE], bad[PLACE];
    static const struct iod_message list = {.op = IOD_OP_LIST};
    struct rme_wire_message m = {
        .type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED, .tag = 1000};
    int64_t length = iod_request_encode(&list, good + RME_WIRE_RING_SIZE, sizeof good / 2);

    memset(bad, 0xa7, sizeof bad);
    for (unsigned i = 0; i < ROUNDS && link_wait_credits(v->link, 2, 5000); i++) {
        uint64_t at = i * (uint64_t)PLACE % (lent->length / 2);

        m.tag++;
        rme_wire_encode_ring(&m, (uint32_t)length, good);
        if (link_write(v->link, lent->address + at, lent->key, good, sizeof good) != 0 ||
            link_send_imm(v->link, RME_WIRE_RING_NAME + (uint32_t)(at / RME_WIRE_RING_ALIGN)) !=
                0)
            return;
        v->attack->messages++;
        for (unsigned k = 0; k < 4; k++)
            link_write(v->link, lent->address + at, lent->key, k % 2 == 0 ? bad : good,
                       sizeof bad);
    }
}

/* Over Elan4 the rings of ended links stay mapped until the quarantine of the links is over.
 * Mapped rings count in the share of the host: half of eager_ring_pool, 16 rings. */
void attack_lent(struct attack *a)
{
    enum { SHARE = 16 };
    static unsigned granted;
    struct visit v = {.attack = a,
                      .link = attack_open(a, &(struct link_plan){.borrows = true})};
    struct rme_wire_segment lent;

    if (v.link == NULL)
        return;
    if (borrow(&v, &lent)) {
        granted++;
        write_and_change(&v, &lent);
    } else if (a->target.medium->strict || granted < SHARE) {
        complain(a, "no memory was lent");
    }
    if (link_ended(v.link, 100))
        a->ended++;
    link_drop(v.link);
}
