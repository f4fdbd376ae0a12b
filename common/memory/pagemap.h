/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From address to owner in O(1), for address space that is given out in aligned pages of 256
 * KiB.  No lock of its own. */
#ifndef RME_PAGEMAP_H
#define RME_PAGEMAP_H

#include <stddef.h>
#include <stdint.h>

#define RME_PAGEMAP_PAGE ((size_t)256 << 10)

struct rme_pagemap {
    struct rme_pagemap_slot *slot;
    size_t capacity; /* a power of two, or 0 */
    size_t used;
};

/* Enters all pages of a range, which starts on a page, with an owner (not NULL).  -ENOMEM:
 * nothing was entered. */
int rme_pagemap_add(struct rme_pagemap *map, const void *base, size_t length, void *owner);

/* Removes what rme_pagemap_add entered. */
void rme_pagemap_remove(struct rme_pagemap *map, const void *base, size_t length);

/* The owner of the page with this address, NULL if there is none. */
void *rme_pagemap_find(const struct rme_pagemap *map, const void *address);

/* Frees the table; the map is empty then. */
void rme_pagemap_clear(struct rme_pagemap *map);

#endif
