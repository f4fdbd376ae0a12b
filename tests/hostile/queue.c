/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Attacks on Elan4 only: connection information, unmapped addresses, and resources shared by
 * all links; tests/fuzz/fuzz_elan_link has arbitrary packets. Elan4 does not identify senders:
 * a process that may write to the queue can claim to be another one and end its links, and can
 * write to all memory of the process, with any key. These attacks cannot be prevented, so they
 * are not tried.
 */
#include "attack.h"
#include "link_elan4.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TAG 0x40000000

/* Sends handshakes as other generations of this process, then opens a link as itself. */
void attack_generations(struct attack *a)
{
    static const uint64_t lies[] = {1, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63};
    static uint8_t body[ELAN_BODY];
    struct bmi_elan4_conn_info card;
    struct rme_hello hello;

    elan4_card(&a->target, &card);
    link_hello(&(struct link_plan){0}, &hello);
    rme_hello_encode(&hello, body + BMI_ELAN4_CONN_INFO_BYTES);
    for (unsigned n = 0; n < sizeof lies / sizeof lies[0]; n++) {
        struct elan_packet p = {.kind = ELAN_HELLO,
                                .bytes = BMI_ELAN4_CONN_INFO_BYTES + RME_HELLO_SIZE,
                                .from = card.vp,
                                .arg = 77};

        card.generation = lies[n];
        memcpy(body, &card, sizeof(card));
        elan4_tell(&a->target, &p, body);
        a->messages++;
    }
    link_close(attack_enter(a));
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
