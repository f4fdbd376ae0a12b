/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bmi_elan4/packet.h"

#include <errno.h>
#include <string.h>

#define VERSION 0xb1

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
    memcpy(out, p, ELAN_HEADER);
    out[0] = VERSION;
}

int elan_packet_decode(const uint8_t in[ELAN_HEADER], struct elan_packet *p)
{
    memcpy(p, in, ELAN_HEADER);
    if (p->version != VERSION || p->kind >= ELAN_KIND_COUNT || p->bytes > ELAN_BODY)
        return -EPROTO;
    if (p->kind == ELAN_MESSAGE && (p->offset > p->arg || p->bytes > p->arg - p->offset))
        return -EPROTO;
    return 0;
}
