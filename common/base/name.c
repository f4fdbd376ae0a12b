/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/list.h"
#include "base/name.h"

void rme_name_set(struct rme_table *names, struct rme_name *name, uint32_t peer,
                  enum rme_name_kind kind, uint32_t number)
{
    rme_name_drop(names, name);
    rme_table_put(names, &name->keyed, rme_name_key(peer, number), kind);
    name->set = true;
}

void rme_name_drop(struct rme_table *names, struct rme_name *name)
{
    if (name->set)
        rme_table_take(names, &name->keyed);
    name->set = false;
}

struct rme_name *rme_name_find(const struct rme_table *names, uint32_t peer,
                               enum rme_name_kind kind, uint32_t number)
{
    struct rme_keyed *keyed = rme_table_find(names, rme_name_key(peer, number), kind);

    return keyed != NULL ? container_of(keyed, struct rme_name, keyed) : NULL;
}
