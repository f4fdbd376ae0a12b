/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bmi_elan4/conn_info.h"

#include <errno.h>
#include <string.h>

#define MAGIC   UINT64_C(0x6472616334656d62) /* "bme4card" */
#define VERSION 2

/* Returns an FNV-1a hash of the key, so that the key itself is not sent. */
static uint64_t sum_of(const unsigned key[4])
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    for (int i = 0; i < 16; i++)
        sum = (sum ^ (key[i / 4] >> 8 * (i % 4) & 0xff)) * UINT64_C(0x100000001b3);
    return sum;
}

void bmi_elan4_conn_info_fill(struct bmi_elan4_conn_info *conn_info,
                              const struct bmi_elan4_range *r, const unsigned key[4], int node,
                              int context, uint64_t queue, uint64_t generation)
{
    *conn_info = (struct bmi_elan4_conn_info){.magic = MAGIC,
                                              .version = VERSION,
                                              .vp = (uint32_t)bmi_elan4_vp(r, node, context),
                                              .wanted = BMI_ELAN4_ANYBODY,
                                              .range = *r,
                                              .queue = queue,
                                              .generation = generation,
                                              .key = sum_of(key)};
}

void bmi_elan4_conn_info_encode(const struct bmi_elan4_conn_info *conn_info,
                                uint8_t out[BMI_ELAN4_CONN_INFO_BYTES])
{
    memcpy(out, conn_info, BMI_ELAN4_CONN_INFO_BYTES);
}

int bmi_elan4_conn_info_decode(const uint8_t in[BMI_ELAN4_CONN_INFO_BYTES],
                               struct bmi_elan4_conn_info *conn_info)
{
    memcpy(conn_info, in, BMI_ELAN4_CONN_INFO_BYTES);
    return conn_info->magic != MAGIC || (conn_info->version == VERSION &&
                                         (conn_info->queue == 0 || conn_info->generation == 0))
               ? -EPROTO
               : 0;
}

enum bmi_elan4_verdict bmi_elan4_conn_info_judge(const struct bmi_elan4_conn_info *mine,
                                                 const struct bmi_elan4_conn_info *theirs)
{
    const struct bmi_elan4_range *a = &mine->range, *b = &theirs->range;
    int node, context;

    if (theirs->version != mine->version)
        return BMI_ELAN4_VERSION;
    if (memcmp(a, b, sizeof(*a)) != 0 ||
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
