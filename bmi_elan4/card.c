/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bmi_elan4/card.h"

#include <errno.h>

#define MAGIC   UINT64_C(0x6472616334656d62) /* "bme4card" */
#define VERSION 1

static void put(uint8_t *at, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *at, unsigned bytes)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)at[i] << 8 * i;
    return v;
}

/* Returns an FNV-1a hash of the key, so that the key itself is not sent. */
static uint64_t sum_of(const unsigned key[4])
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    for (int i = 0; i < 16; i++)
        sum = (sum ^ (key[i / 4] >> 8 * (i % 4) & 0xff)) * UINT64_C(0x100000001b3);
    return sum;
}

void bmi_elan4_card_fill(struct bmi_elan4_card *card, const struct bmi_elan4_range *r,
                         const unsigned key[4], int node, int context, uint64_t queue,
                         uint64_t generation)
{
    *card = (struct bmi_elan4_card){.version = VERSION,
                                    .vp = (uint32_t)bmi_elan4_vp(r, node, context),
                                    .wanted = BMI_ELAN4_ANYBODY,
                                    .range = *r,
                                    .queue = queue,
                                    .generation = generation,
                                    .key = sum_of(key)};
}

void bmi_elan4_card_encode(const struct bmi_elan4_card *card, uint8_t out[BMI_ELAN4_CARD_BYTES])
{
    put(out, MAGIC, 8);
    put(out + 8, card->version, 4);
    put(out + 12, card->verdict, 4);
    put(out + 16, card->vp, 4);
    put(out + 20, card->wanted, 4);
    put(out + 24, (uint32_t)card->range.low_node, 4);
    put(out + 28, (uint32_t)card->range.high_node, 4);
    put(out + 32, (uint32_t)card->range.low_context, 4);
    put(out + 36, (uint32_t)card->range.high_context, 4);
    put(out + 40, card->queue, 8);
    put(out + 48, card->generation, 8);
    put(out + 56, card->key, 8);
}

int bmi_elan4_card_decode(const uint8_t in[BMI_ELAN4_CARD_BYTES], struct bmi_elan4_card *card)
{
    if (get(in, 8) != MAGIC)
        return -EPROTO;
    *card = (struct bmi_elan4_card){
        .version = (uint32_t)get(in + 8, 4),
        .verdict = (uint32_t)get(in + 12, 4),
        .vp = (uint32_t)get(in + 16, 4),
        .wanted = (uint32_t)get(in + 20, 4),
        .range = {(int)(uint32_t)get(in + 24, 4), (int)(uint32_t)get(in + 28, 4),
                  (int)(uint32_t)get(in + 32, 4), (int)(uint32_t)get(in + 36, 4)},
        .queue = get(in + 40, 8),
        .generation = get(in + 48, 8),
        .key = get(in + 56, 8)};
    return card->version == VERSION && (card->queue == 0 || card->generation == 0) ? -EPROTO
                                                                                   : 0;
}

enum bmi_elan4_verdict bmi_elan4_card_judge(const struct bmi_elan4_card *mine,
                                            const struct bmi_elan4_card *theirs)
{
    const struct bmi_elan4_range *a = &mine->range, *b = &theirs->range;
    int node, context;

    if (theirs->version != mine->version)
        return BMI_ELAN4_VERSION;
    if (a->low_node != b->low_node || a->high_node != b->high_node ||
        a->low_context != b->low_context || a->high_context != b->high_context ||
        bmi_elan4_place(a, (int)theirs->vp, &node, &context) < 0)
        return BMI_ELAN4_RANGE;
    if (theirs->key != mine->key)
        return BMI_ELAN4_KEY;
    if (theirs->wanted != BMI_ELAN4_ANYBODY && theirs->wanted != mine->vp)
        return BMI_ELAN4_OTHER;
    return BMI_ELAN4_WELCOME;
}

const char *bmi_elan4_verdict_text(uint32_t verdict)
{
    static const char *const text[] = {
#define X(NAME, prose) prose,
        BMI_ELAN4_VERDICTS(X)
#undef X
    };

    return verdict < BMI_ELAN4_VERDICT_COUNT ? text[verdict]
                                             : "refused for a reason unknown to this release";
}
