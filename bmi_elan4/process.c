/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bmi_elan4/process.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int contexts(const struct bmi_elan4_range *r)
{
    return r->high_context - r->low_context + 1;
}

int bmi_elan4_range_check(const struct bmi_elan4_range *r, char *why, size_t size)
{
    long nodes;
    if (r->low_node < 0 || r->high_node < r->low_node)
        return BMI_ELAN4_WHY(-EINVAL, "nodes %d to %d: not a range; give FIRST-LAST",
                             r->low_node, r->high_node);
    if (r->low_context < BMI_ELAN4_FIRST_CONTEXT || r->high_context < r->low_context ||
        r->high_context > BMI_ELAN4_LAST_CONTEXT)
        return BMI_ELAN4_WHY(-EINVAL, "contexts %d to %d: not a range within %d to %d",
                             r->low_context, r->high_context, BMI_ELAN4_FIRST_CONTEXT,
                             BMI_ELAN4_LAST_CONTEXT);
    nodes = (long)r->high_node - r->low_node + 1;
    if (nodes * contexts(r) > BMI_ELAN4_MAX_VPS)
        return BMI_ELAN4_WHY(
            -EINVAL,
            "%ld nodes with %d contexts each: more than %d processes; use at most %ld contexts",
            nodes, contexts(r), BMI_ELAN4_MAX_VPS, BMI_ELAN4_MAX_VPS / nodes);
    return 0;
}

int bmi_elan4_vp(const struct bmi_elan4_range *r, int node, int context)
{
    if (node < r->low_node || node > r->high_node || context < r->low_context ||
        context > r->high_context)
        return -1;
    return (node - r->low_node) * contexts(r) + (context - r->low_context);
}

int bmi_elan4_place(const struct bmi_elan4_range *r, int vp, int *node, int *context)
{
    if (vp < 0 || vp / contexts(r) > r->high_node - r->low_node)
        return -EINVAL;
    *node = r->low_node + vp / contexts(r);
    *context = r->low_context + vp % contexts(r);
    return 0;
}

int bmi_elan4_decimal(const char *text, char **end)
{
    size_t digits = strspn(text, "0123456789");
    int v = digits < 1 || digits > 5 || (end == NULL && text[digits]) ? -1 : atoi(text);

    if (end != NULL)
        *end = (char *)(uintptr_t)text + digits;
    return v;
}

void bmi_elan4_capability(const struct bmi_elan4_range *r, const unsigned key[4], int context,
                          ELAN_CAPABILITY *cap)
{
    elan_nullcap(cap);
    for (int i = 0; i < 4; i++)
        cap->cap_userkey.key_values[i] = key[i];
    cap->cap_type = ELAN_CAP_TYPE_BLOCK | ELAN_CAP_TYPE_NO_BITMAP | ELAN_CAP_TYPE_MULTI_RAIL;
    cap->cap_railmask = 1;
    cap->cap_lownode = r->low_node;
    cap->cap_highnode = r->high_node;
    cap->cap_lowcontext = r->low_context;
    cap->cap_highcontext = r->high_context;
    cap->cap_mycontext = context;
}
