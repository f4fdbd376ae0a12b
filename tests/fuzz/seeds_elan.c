/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Seeds of Elan4: packets of each kind, valid and foreign connection information, intact and
 * damaged logs. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "bmi_elan4/conn_info.h"
#include "bmi_elan4/packet.h"
#include "seeds.h"

static const struct bmi_elan4_range range = {0, 63, 2, 65};
static const unsigned key[4] = {1, 2, 3, 4};

static struct bmi_elan4_conn_info card_of(int context)
{
    struct bmi_elan4_conn_info c;

    bmi_elan4_conn_info_fill(&c, &range, key, 0, context, 0x12340, 1700000000000000);
    c.wanted = 0;
    return c;
}

static void packets(void)
{
    for (uint8_t kind = 0; kind < ELAN_KIND_COUNT; kind++) {
        uint8_t slot[ELAN_HEADER + BMI_ELAN4_CONN_INFO_BYTES + 8] = {0};
        struct elan_packet p = {.kind = kind,
                                .link = 4097,
                                .to = 1700000000000000,
                                .seq = 3,
                                .from = 1,
                                .arg = kind == ELAN_MESSAGE ? 200 : 1};
        struct bmi_elan4_conn_info c = card_of(3);
        char name[32];

        p.bytes = sizeof(slot) - ELAN_HEADER;
        elan_packet_encode(&p, slot);
        memcpy(slot + ELAN_HEADER, &c, sizeof(c));
        snprintf(name, sizeof(name), "kind-%u", kind);
        put("elan_packet", name, slot, sizeof(slot));
    }
}

/* `head`: see fuzz_elan_desk.c */
static void bootstrap(const char *name, uint8_t head, const struct bmi_elan4_conn_info *c,
                      size_t size)
{
    uint8_t data[1 + 2 * BMI_ELAN4_CONN_INFO_BYTES] = {head};

    memcpy(data + 1, c, sizeof(*c));
    put("elan_desk", name, data, 1 + size);
}

static void desks(void)
{
    struct bmi_elan4_conn_info c = card_of(3);

    bootstrap("visit", 0, &c, BMI_ELAN4_CONN_INFO_BYTES);
    bootstrap("visit-in-parts", 14, &c, BMI_ELAN4_CONN_INFO_BYTES);
    bootstrap("visit-cut", 0, &c, 40);
    bootstrap("visit-long", 0, &c, 100);
    bootstrap("answer", 1, &c, BMI_ELAN4_CONN_INFO_BYTES);
    bootstrap("answer-in-parts", 15, &c, BMI_ELAN4_CONN_INFO_BYTES);
    bootstrap("answer-cut", 1, &c, 63);
    c.version++;
    bootstrap("answer-version", 1, &c, BMI_ELAN4_CONN_INFO_BYTES);
    c = card_of(3);
    c.generation = 0;
    bootstrap("answer-no", 1, &c, BMI_ELAN4_CONN_INFO_BYTES);
}

/* Writes a record of a log like context_log.c on such a machine; `wrong` changes its
 * check word. */
static void record(uint8_t *log, int context, uint64_t generation, uint64_t wrong)
{
    uint64_t words[2] = {generation, ~generation ^ wrong};

    memcpy(log + context * 64, words, sizeof(words));
}

static void logs(void)
{
    uint8_t log[6 * 64] = {0};

    put("elan_log", "empty", log, 0);
    put("elan_log", "zeros", log, sizeof(log));
    record(log, 2, 1700000000000000, 0);
    record(log, 3, UINT64_MAX, 0);        /* far ahead of any clock */
    record(log, 4, 1700000000000000, 64); /* check word wrong */
    record(log, 5, UINT64_C(1) << 63, 0);
    put("elan_log", "whole", log, sizeof(log));
    put("elan_log", "cut", log, 3 * 64 + 20);
}

/* ---- A fabric: see fuzz_elan_link.c ---- */

#define LOOK  5, 0
#define LAND  8, 0
#define LATER 14, 30
/* packets of the first link: kind, order; error in the connection information; bytes, arg */
#define HELLO        0, 0, ELAN_HELLO, 1, 0, 10, 7
#define ACCEPT       0, 0, ELAN_ACCEPT, 0, 0, 10, 7
#define MESSAGE(n)   0, 0, ELAN_MESSAGE, 0, n, 0, LOOK
#define PART(n)      0, 0, ELAN_MESSAGE, 0, n, 0xc1, LOOK
#define OTHER(k, n)  0, 0, k, 0, n, 1
#define OVERTAKES(k) 0, 0, k, 0xf1, 0, 0

static void link_seed(const char *name, const uint8_t *bytes, size_t size)
{
    put("elan_link", name, bytes, size);
}

#define LINK(name, ...)                                                                        \
    do {                                                                                       \
        static const uint8_t bytes[] = {__VA_ARGS__};                                          \
        link_seed(name, bytes, sizeof(bytes));                                                 \
    } while (0)

static void links(void)
{
    LINK("called", HELLO, LOOK, LAND, LOOK, MESSAGE(40), MESSAGE(200), OTHER(ELAN_BYE, 0), LOOK,
         LAND, LOOK);
    LINK("calls", 4, 1, LAND, ACCEPT, LOOK, 10, 0, 20, LAND, LOOK, 10, 0, 240, LAND, LOOK, 12,
         0, LOOK, LAND, OTHER(ELAN_BYE, 0), LOOK);
    /* an answer, and an immediate behind it, in one poll; found by fuzzing */
    LINK("answer-and-message", 0x40, 0, 0, 0, 1, 0, 0x0a, 7, 5, 0, 0xff, 0xff, 0xff, 0xff, 0xff,
         0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0x0a, 7, 5, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
         0xff, 0xff, 0xff, 0x11, 0, 0, 0, 5, 0xf1, 0, 0, 5, 0, 0, 0, 6, 0, 0x0a, 7, 5, 0, 8, 0,
         0, 1, 5, 0);
    LINK("asked-for-and-left", HELLO);
    LINK("transfers", HELLO, LOOK, 11, 0, 8, 11, 0, 8 + 2, 11, 0, 16 + 1, 11, 0, 16 + 4, 11, 0,
         8 + 1 + 4, LOOK, LAND, LOOK, LAND, LOOK);
    LINK("refused", HELLO, LOOK, 11, 0, 16 + 1, LOOK, 9, 0, 15, 1, LOOK, 0, 0, ELAN_REFUSED, 0,
         4, 0, 0, 0, 16, 0, 0, 0, 0, 0, LOOK, LATER, LOOK, LAND, LOOK);
    LINK("order", HELLO, LOOK, OVERTAKES(ELAN_IMM), LOOK, OTHER(ELAN_IMM, 0), LOOK,
         OVERTAKES(ELAN_BYE), OTHER(ELAN_IMM, 0), LOOK);
    LINK("dead", HELLO, LOOK, 10, 0, 20, LATER, 16, 0, LOOK, LATER, LOOK, HELLO, LOOK);
    LINK("silent", HELLO, LOOK, 11, 0, 8 + 1, 12, 0, LATER, LOOK, LATER, LOOK, LATER, LOOK);
    LINK("left", HELLO, LOOK, OTHER(ELAN_LEFT, 0), LOOK, LATER, LOOK, HELLO, LOOK,
         OTHER(ELAN_BREAK, 0), LOOK, HELLO, LOOK, OTHER(ELAN_REJECT, 0), LOOK);
    LINK("forged-done", HELLO, LOOK, 11, 0, 8 + 1, 11, 0, 8 + 4, LOOK, OTHER(ELAN_DONE, 0),
         LOOK, LAND, LOOK);
    LINK("rejected", 4, 0, LAND, OTHER(ELAN_REJECT, 4), LOOK, 18, 1, HELLO, LOOK, LAND, LOOK);
    LINK("no-memory", HELLO, LOOK, 17, 0, OVERTAKES(ELAN_IMM), LOOK, OTHER(ELAN_BYE, 0), LOOK);
    LINK("too-long", HELLO, LOOK, PART(255), PART(255), PART(255), PART(255));
    LINK("kept", HELLO, LOOK, MESSAGE(30), MESSAGE(30), MESSAGE(30), MESSAGE(30), MESSAGE(30),
         5, 1, 13, 0, LOOK, 12, 0, LOOK, 13, 0);
}

void elan(void)
{
    packets();
    desks();
    logs();
    links();
}
