/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Attacks on Elan4 only: packets in a server's input queue, connection information, unmapped
 * addresses, and resources shared by all links. Elan4 does not identify senders: a process that
 * may write to the queue can claim to be another one and end its links, and can write to all
 * memory of the process, with any key. These attacks cannot be prevented, so they are not
 * tried.
 */
#include "attack.h"
#include "link_elan4.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TAG 0x40000000

/* GONE: the server ends the link and sends nothing. */
enum then { ENDS, GONE, LIVES };

/* ---- Packets ---- */

/* Sends a packet of an ordered kind, `ahead` of its sequence number. */
static void out_of_turn(struct link *link, enum elan_kind kind, uint32_t ahead)
{
    struct elan_packet p;

    elan4_packet(link, kind, 0, &p);
    p.seq += ahead;
    elan4_say(link, &p, NULL);
}

/* Sends a part of a message: `bytes` of `all`, from `offset`. */
static void part(struct link *link, uint32_t bytes, uint32_t offset, uint32_t all)
{
    static const uint8_t body[ELAN_BODY];
    struct elan_packet p;

    elan4_packet(link, ELAN_MESSAGE, bytes, &p);
    p.offset = offset;
    p.arg = all;
    elan4_say(link, &p, body);
}

static void alone(struct link *link, enum elan_kind kind, uint32_t arg, size_t length)
{
    static const uint8_t body[ELAN_BODY] = {1, 2, 3};
    struct elan_packet p;

    elan4_packet(link, kind, length, &p);
    p.arg = arg;
    elan4_say(link, &p, body);
}

static void accept_again(struct link *link, const struct target *target)
{
    struct bmi_elan4_conn_info card;
    struct elan_packet p;
    uint8_t body[BMI_ELAN4_CONN_INFO_BYTES];

    elan4_card(target, &card);
    memcpy(body, &card, sizeof(card));
    elan4_packet(link, ELAN_ACCEPT, sizeof body, &p);
    elan4_say(link, &p, body);
}

/* Sends a header with one wrong byte. */
static void twisted(struct link *link, const struct target *target, unsigned at, uint8_t value)
{
    struct elan_packet p;
    uint8_t head[ELAN_HEADER];

    elan4_packet(link, ELAN_MESSAGE, 0, &p);
    elan_packet_encode(&p, head);
    head[at] = value;
    elan4_throw(target, head, sizeof head);
}

/* Sends invalid packet `n`; returns its description, NULL if there is none with this number.
 * Stores in *then the expected effect on the link. */
static const char *say_wrong(struct attack *a, struct link *link, unsigned n, enum then *then)
{
    struct elan_packet p;

    *then = n < 9 ? ENDS : LIVES;
    switch (n) {
    case 0:
        out_of_turn(link, ELAN_IMM, 64);
        return "a packet that is too far ahead";
    case 1:
        out_of_turn(link, ELAN_IMM, UINT32_MAX);
        return "a packet whose turn is over";
    case 2:
        out_of_turn(link, ELAN_IMM, 3);
        out_of_turn(link, ELAN_IMM, 3);
        return "the same packet twice, before its turn";
    case 3:
        part(link, 100, 0, 1 << 20);
        return "a message larger than the receive buffers";
    case 4:
        part(link, 100, 100, 300);
        return "a message without its beginning";
    case 5:
        part(link, 0, 0, 300);
        return "no bytes of a message that has some";
    case 6:
        accept_again(link, &a->target);
        return "an answer that nobody waits for";
    case 7:
        alone(link, ELAN_BREAK, 0, 0);
        return "BREAK";
    case 8:
        alone(link, ELAN_LEFT, 0, 0);
        return "LEFT";
    case 9:
        part(link, 200, 200, 300);
        return "a part that is beyond its message";
    case 10:
        twisted(link, &a->target, 0, 0xff);
        return "a packet of another version";
    case 11:
        twisted(link, &a->target, 1, 200);
        return "a packet of an unknown kind";
    case 12:
        twisted(link, &a->target, 3, 0xff);
        return "a packet of more bytes than a slot has";
    case 13:
        for (uint32_t i = 0; i < 64; i++)
            alone(link, ELAN_DONE, i, 0);
        return "ends of transfers that there are not";
    case 14:
        for (uint32_t i = 0; i < 5; i++)
            alone(link, ELAN_REFUSED, i, 8 * i + i % 2);
        alone(link, ELAN_REFUSED, 1, ELAN_BODY);
        return "refusals of nothing";
    case 15:
        elan4_packet(link, ELAN_BREAK, 0, &p);
        p.to--;
        elan4_say(link, &p, NULL);
        return "BREAK for a former owner";
    case 16:
        elan4_packet(link, ELAN_BREAK, 0, &p);
        p.link += 4096;
        elan4_say(link, &p, NULL);
        return "BREAK of the next link at this place";
    case 17:
        elan4_packet(link, ELAN_BREAK, 0, &p);
        p.from++;
        elan4_say(link, &p, NULL);
        return "BREAK by somebody else";
    case 18:
        alone(link, ELAN_ACCEPT, 7, 40);
        elan4_skip(link, 1);
        return "an answer without a card";
    case 19:
        *then = GONE;
        alone(link, ELAN_REJECT, 3, 40);
        return "a late REJECT";
    default:
        return NULL;
    }
}

/* Returns whether the link still answers. */
static bool lives(struct link *link)
{
    static struct arrival arrival;
    struct rme_wire_message ping = {.type = RME_WIRE_PING};

    if (link_say(link, &ping, NULL, NULL, 0) != 0)
        return false;
    while (link_receive(link, &arrival, 5000) == 1)
        if (!arrival.is_imm && arrival.message.type == RME_WIRE_PONG)
            return true;
    return false;
}

void attack_packets(struct attack *a)
{
    enum then then;
    const char *what = "";

    for (unsigned n = 0; what != NULL && !attack_over(a) && a->failures == 0; n++) {
        struct link *link = attack_open(a, &(struct link_plan){0});

        if (link == NULL)
            continue;
        what = say_wrong(a, link, n, &then);
        a->messages++;
        if (what != NULL && then == ENDS)
            attack_must_end(a, link, what);
        else if (what != NULL && lives(link) != (then == LIVES))
            complain(a, "the link %s after %s", then == LIVES ? "ends" : "goes on", what);
        link_close(link);
    }
}

/* ---- Connection information ---- */

/* Makes handshake `n`, which is invalid or must be refused; returns false if there is none with
 * this number. */
static bool wrong_card(const struct target *target, unsigned n, struct elan_packet *p,
                       uint8_t body[ELAN_BODY])
{
    struct bmi_elan4_conn_info card;
    struct rme_hello hello;

    elan4_card(target, &card);
    link_hello(&(struct link_plan){0}, &hello);
    *p = (struct elan_packet){.kind = ELAN_HELLO,
                              .bytes = BMI_ELAN4_CONN_INFO_BYTES + RME_HELLO_SIZE,
                              .from = card.vp,
                              .arg = 77};
    switch (n) {
    case 0:
        p->bytes = 10;
        break;
    case 1:
        p->bytes = ELAN_BODY; /* longer than a hello */
        break;
    case 2:
        card.version++;
        break;
    case 3:
        card.range.high_node++;
        break;
    case 4:
        card.vp = UINT32_MAX;
        p->from = card.vp;
        break;
    case 5:
        card.key++;
        break;
    case 6:
        card.wanted++;
        break;
    case 7:
        p->from++; /* another process's number */
        break;
    case 8:
        card.queue = 0x10; /* an address without a queue */
        break;
    case 9:
        card.generation = 0;
        break;
    case 10:
        break; /* no connection information: see below */
    default:
        return false;
    }
    memcpy(body, &card, sizeof(card));
    rme_hello_encode(&hello, body + BMI_ELAN4_CONN_INFO_BYTES);
    if (n == 10)
        memset(body, 0xa7, BMI_ELAN4_CONN_INFO_BYTES);
    return true;
}

/* Answers reach no process, or a link that this process does not have. The test therefore only
 * sees that others are served and that no memory is lost. */
void attack_cards(struct attack *a)
{
    static uint8_t body[ELAN_BODY];
    struct elan_packet p;

    for (unsigned n = 0; wrong_card(&a->target, n, &p, body); n++) {
        if (n == 8 && a->round >= 8)
            /* the buffer of a packet to an unmapped address is never returned: send only a
             * few */
            continue;
        elan4_tell(&a->target, &p, body);
        a->messages++;
    }
    link_close(attack_open(a, &(struct link_plan){0}));
}

/* Sends handshakes as other generations of this process, then opens a link as itself. */
void attack_generations(struct attack *a)
{
    static const uint64_t lies[] = {1, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63};
    static uint8_t body[ELAN_BODY];
    struct bmi_elan4_conn_info card;
    struct elan_packet p;

    for (unsigned n = 0; n < sizeof lies / sizeof lies[0]; n++) {
        wrong_card(&a->target, 9, &p, body);
        elan4_card(&a->target, &card);
        card.generation = lies[n];
        memcpy(body, &card, sizeof(card));
        elan4_tell(&a->target, &p, body);
        a->messages++;
    }
    link_close(attack_enter(a));
}

/* ---- The queue ---- */

/* Sends random bytes as fast as the queue accepts them. */
void attack_rubbish(struct attack *a)
{
    static uint8_t bytes[BMI_ELAN4_SLOT];
    uint64_t state = clock_us() | 1;

    for (unsigned i = 0; i < 1000; i++) {
        for (unsigned k = 0; k < sizeof bytes / 8; k++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            memcpy(bytes + 8 * k, &state, 8);
        }
        if (i % 2 == 0) { /* half of them start like a packet of some link */
            bytes[0] = 0xb1;
            bytes[1] %= ELAN_KIND_COUNT;
            bytes[3] %= 8;
            memcpy(bytes + 8, &a->target.generation, 8);
        }
        if (elan4_throw(&a->target, bytes, 32 + state % (sizeof bytes - 32)) == 0)
            a->messages++;
    }
    link_close(attack_open(a, &(struct link_plan){0}));
}

/* ---- Unmapped addresses ---- */

/* Announces an unexpected message at an unmapped address: the server's read never completes. */
static bool fetch_nowhere(struct attack *a, struct link *link, uint32_t n)
{
    static const struct rme_wire_segment nowhere = {
        .address = 0x10, .key = UINT64_C(0x7000000000000), .length = 64};
    struct rme_wire_message m = {.type = RME_WIRE_RTS,
                                 .flags = RME_WIRE_F_UNEXPECTED,
                                 .tag = TAG,
                                 .from = n,
                                 .shape = 1,
                                 .nsegment = 1,
                                 .total = 64};

    if (!link_wait_credits(link, 2, 100) || link_say(link, &m, &nowhere, NULL, 0) != 0)
        return false;
    a->messages++;
    return true;
}

void attack_nowhere(struct attack *a)
{
    enum { AT_ONCE = 16, EACH = 60 };
    struct link *link[AT_ONCE];

    for (unsigned i = 0; i < AT_ONCE; i++) {
        link[i] = attack_open(a, &(struct link_plan){0});
        for (uint32_t n = 1; link[i] != NULL && n <= EACH && fetch_nowhere(a, link[i], n); n++)
            ;
    }
    for (unsigned i = 0; i < 64; i++)
        elan4_poke(&a->target, UINT64_C(0x7000000000000) + 8 * i, 8, i % 2 == 0);
    while (!attack_over(a)) {
        for (unsigned i = 0; i < AT_ONCE; i++)
            if (link[i] != NULL)
                link_idle(link[i]);
        usleep(10000);
    }
    for (unsigned i = 0; i < AT_ONCE; i++) {
        if (link[i] != NULL && link_ended(link[i], 0))
            a->ended++;
        link_close(link[i]);
    }
}

/* ---- The bootstrap server ---- */

/* Connects without sending a query; later queries must be answered. */
void attack_visitors(struct attack *a)
{
    enum { VISITORS = 100 };
    struct target target;
    int fd[VISITORS];

    for (unsigned i = 0; i < VISITORS; i++) {
        fd[i] = elan4_visit();
        if (fd[i] >= 0)
            a->links++;
    }
    if (!target_parse(a->address, &target))
        complain(a, "the desk answers nobody beside %u silent visitors", a->links);
    for (unsigned i = 0; i < 100 && !attack_over(a); i++)
        usleep(10000);
    for (unsigned i = 0; i < VISITORS; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

/* ---- Connection slots ---- */

/* Opens as many links as the server accepts, and more, while other clients need some. The round
 * ends by number, not by time. */
void attack_places(struct attack *a)
{
    enum { MANY = 5000 };
    struct link **link = calloc(MANY, sizeof(*link)), *last;
    unsigned rounds = 0;

    for (unsigned i = 0; link != NULL && i < MANY; i++)
        link[i] = attack_open(a, &(struct link_plan){0});
    for (unsigned i = 0; i < 100; i++)
        usleep(10000); /* other clients connect meanwhile */
    for (unsigned i = 0; link != NULL && i < MANY; i++)
        link_close(link[i]);
    while ((last = attack_open(a, &(struct link_plan){0})) == NULL && rounds++ < 100)
        usleep(10000);
    link_close(last);
    if (last == NULL)
        complain(a, "the places are not had again");
    free(link);
    if (a->refused == 0)
        complain(a, "one process was given %u links", a->links);
    a->deadline = 0;
}
