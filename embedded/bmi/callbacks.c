/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* callbacks.c - calls of methods to the core: address objects, new peers, lost peers. */
#include <stddef.h>
#include <stdlib.h>
#include "core.h"
#include "bmi-method-callback.h"
#include "gossip.h"
#include "pvfs2-debug.h"

bmi_method_addr_p bmi_alloc_method_addr(int method_type, bmi_size_t payload_size)
{
    struct {
        struct bmi_method_addr addr;
        _Alignas(max_align_t) char payload[];
    } * object;

    if (payload_size < 0)
        return NULL;
    object = calloc(1, sizeof(*object) + (size_t)payload_size);
    if (object == NULL)
        return NULL;
    object->addr.method_type = method_type;
    object->addr.method_data = object->payload;
    return &object->addr;
}

void bmi_dealloc_method_addr(bmi_method_addr_p addr)
{
    free(addr);
}

BMI_addr_t bmi_method_addr_reg_callback(bmi_method_addr_p map)
{
    bool found;

    if (map->method_type < 0 || map->method_type >= bmi_active_count()) {
        gossip_err("BMI: method %d: cannot register a peer: the method is not active\n",
                   map->method_type);
        return 0;
    }
    struct bmi_ref *ref =
        bmi_refs_add(&bmi_core.refs, bmi_core.active[map->method_type], map, NULL, &found);
    if (ref == NULL)
        return 0;
    BMI_addr_t id = ref->id;
    bmi_refs_unpin(&bmi_core.refs, ref);
    return id;
}

int bmi_method_addr_forget_callback(BMI_addr_t addr)
{
    struct bmi_ref *ref = bmi_refs_pin(&bmi_core.refs, addr);
    if (ref == NULL)
        return -BMI_EINVAL;
    bmi_refs_forget(&bmi_core.refs, ref);
    bmi_refs_unpin(&bmi_core.refs, ref);
    return 0;
}

/*
 * Drops an address if its method reports the peer as dead.  The query runs without a lock; a
 * reference taken in the meantime keeps the address.  A method that answers "dead" reports no
 * more messages of the peer.
 */
void bmi_drop_if_dead(struct bmi_ref *ref)
{
    struct method_drop_addr_query query = {.addr = ref->method_addr};

    if (ref->ops->get_info(BMI_DROP_ADDR_QUERY, &query) == 0 && query.response == 1) {
        gossip_debug(GOSSIP_BMI_DEBUG_CONTROL,
                     "BMI: address %lld: peer dead, address removed\n", (long long)ref->id);
        bmi_refs_kill_unused(&bmi_core.refs, ref);
    }
}

void bmi_check_forgotten(void)
{
    struct bmi_ref *ref;
    while ((ref = bmi_refs_next_forgotten(&bmi_core.refs)) != NULL) {
        if (bmi_refs_count(&bmi_core.refs, ref, 0) == 0)
            bmi_drop_if_dead(ref);
        bmi_refs_unpin(&bmi_core.refs, ref);
    }
}
