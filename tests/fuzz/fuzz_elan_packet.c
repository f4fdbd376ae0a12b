/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any bytes in slots of an input queue: a header, and connection information if the kind has
 * some. Accepted packets stay inside the slot, and encode to the same bytes. */
#include <errno.h>

#include "bmi_elan4/conn_info.h"
#include "bmi_elan4/packet.h"
#include "fuzz.h"

static void conn_info(const uint8_t *bytes)
{
    static const struct bmi_elan4_range range = {0, 63, 2, 65};
    static const unsigned key[4] = {1, 2, 3, 4};
    struct bmi_elan4_conn_info got, again, mine;
    uint8_t out[BMI_ELAN4_CONN_INFO_BYTES];
    int node, context;

    if (bmi_elan4_conn_info_decode(bytes, &got) != 0)
        return;
    memcpy(out, &got, sizeof(got));
    FUZZ_CHECK(memcmp(out, bytes, sizeof(out)) == 0);
    FUZZ_CHECK(bmi_elan4_conn_info_decode(out, &again) == 0);
    bmi_elan4_conn_info_fill(&mine, &range, key, 0, 2, 0x40, 1);
    enum bmi_elan4_verdict verdict = bmi_elan4_conn_info_judge(&mine, &got);
    FUZZ_CHECK(bmi_elan4_verdict_text(verdict) != NULL);
    FUZZ_CHECK(bmi_elan4_verdict_text(got.unused) != NULL);
    if (verdict != BMI_ELAN4_WELCOME)
        return;
    /* an accepted process has a valid context and is the process of that context */
    FUZZ_CHECK(bmi_elan4_place(&range, (int)got.vp, &node, &context) == 0);
    FUZZ_CHECK(bmi_elan4_vp(&range, node, context) == (int)got.vp);
}

#define PART 104 /* of a slot, that an input gives: header, information, and more */

static void packet(const uint8_t *data, size_t size)
{
    uint8_t *slot = calloc(1, BMI_ELAN4_SLOT), out[ELAN_HEADER];
    struct elan_packet p, again;

    FUZZ_CHECK(slot != NULL);
    memcpy(slot, data, size);
    int ret = elan_packet_decode(slot, &p);
    FUZZ_CHECK(ret == 0 || ret == -EPROTO);
    if (ret == 0) {
        FUZZ_CHECK(p.kind < ELAN_KIND_COUNT && p.bytes <= ELAN_BODY);
        if (p.kind == ELAN_MESSAGE)
            FUZZ_CHECK(p.offset <= p.arg && p.bytes <= p.arg - p.offset);
        elan_packet_encode(&p, out);
        FUZZ_CHECK(memcmp(out, slot, sizeof(out)) == 0);
        FUZZ_CHECK(elan_packet_decode(out, &again) == 0);
        if (p.bytes >= BMI_ELAN4_CONN_INFO_BYTES)
            conn_info(slot + ELAN_HEADER);
    }
    free(slot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t n; size > 0; data += n, size -= n) {
        n = size < PART ? size : PART;
        packet(data, n);
    }
    return 0;
}
