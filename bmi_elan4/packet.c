/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bmi_elan4/packet.h"

#include <errno.h>

#define VERSION 0xb1

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

bool elan_kind_ordered(uint8_t kind)
{
    static const bool ordered[] = {
#define X(NAME, is_ordered, prose) is_ordered,
        ELAN_KINDS(X)
#undef X
    };

    return kind < ELAN_KIND_COUNT && ordered[kind];
}

void elan_packet_encode(const struct elan_packet *p, uint8_t out[ELAN_HEADER])
{
    put(out, VERSION, 1);
    put(out + 1, p->kind, 1);
    put(out + 2, p->bytes, 2);
    put(out + 4, p->link, 4);
    put(out + 8, p->to, 8);
    put(out + 16, p->seq, 4);
    put(out + 20, p->from, 4);
    put(out + 24, p->arg, 4);
    put(out + 28, p->offset, 4);
}

int elan_packet_decode(const uint8_t in[ELAN_HEADER], struct elan_packet *p)
{
    *p = (struct elan_packet){.kind = in[1],
                              .bytes = (uint16_t)get(in + 2, 2),
                              .link = (uint32_t)get(in + 4, 4),
                              .to = get(in + 8, 8),
                              .seq = (uint32_t)get(in + 16, 4),
                              .from = (uint32_t)get(in + 20, 4),
                              .arg = (uint32_t)get(in + 24, 4),
                              .offset = (uint32_t)get(in + 28, 4)};
    if (in[0] != VERSION || p->kind >= ELAN_KIND_COUNT || p->bytes > ELAN_BODY)
        return -EPROTO;
    if (p->kind == ELAN_MESSAGE && (p->offset > p->arg || p->bytes > p->arg - p->offset))
        return -EPROTO;
    return 0;
}
