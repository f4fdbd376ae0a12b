/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* buffers.c - receive buffers of links. */
#include <errno.h>
#include <stdlib.h>

#include "bmi_elan4/elan.h"

/* Frees up to n buffers.  Returns how many there were less. */
static uint32_t free_some(struct rme_link *l, uint32_t n)
{
    struct elan_rx *rx;

    for (; n && (rx = LIST_FIRST(&l->rx_free)) != NULL; n--) {
        LIST_REMOVE(rx, next);
        free(rx);
    }
    return n;
}

int elan_op_rx_reserve(struct rme_link *l, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct elan_rx *rx =
            aligned_alloc(64, (sizeof(*rx) + l->f->config.rx_size + 63) & ~(size_t)63);
        if (!rx) {
            free_some(l, i);
            return -ENOMEM;
        }
        rx->link = l;
        LIST_INSERT_HEAD(&l->rx_free, rx, next);
    }
    return 0;
}

void elan_op_rx_release(struct rme_link *l, uint32_t n)
{
    l->rx_debt += free_some(l, n); /* deducted from the buffers that are returned */
}

bool elan_op_rx_return(struct rme_fabric *f, void *token)
{
    struct elan_rx *rx = token;
    struct rme_link *l = rx->link;

    (void)f;
    if (l)
        LIST_REMOVE(rx, next);
    if (!l || l->state == ELAN_ENDING_STATE || l->state == ELAN_DOWN_STATE || l->rx_debt) {
        if (l && l->rx_debt)
            l->rx_debt--;
        free(rx);
        return true;
    }
    LIST_INSERT_HEAD(&l->rx_free, rx, next);
    if (l->held[l->expected % ELAN_WINDOW])
        ELAN_ADD(l, ready);
    return true;
}

void elan_rx_close(struct rme_link *l)
{
    for (unsigned i = 0; i < ELAN_WINDOW; i++) {
        l->bye_in |= l->held[i] && l->held[i]->p.kind == ELAN_BYE;
        free(l->held[i]);
        l->held[i] = NULL;
    }
    ELAN_REMOVE(l, ready);
    free(l->filling);
    l->filling = NULL;
    free_some(l, UINT32_MAX);
}

void elan_rx_forget(struct rme_link *l)
{
    struct elan_rx *rx;

    while ((rx = LIST_FIRST(&l->rx_lent)) != NULL) {
        LIST_REMOVE(rx, next);
        rx->link = NULL;
    }
}
