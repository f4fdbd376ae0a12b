/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* buffers.c - receive buffers of links. */
#include <errno.h>
#include <stdlib.h>

#include "bmi_elan4/elan.h"

int elan_op_rx_reserve(struct rme_link *l, uint32_t n)
{
    struct elan_rx *made = NULL, *rx;

    for (uint32_t i = 0; i < n; i++) {
        rx = aligned_alloc(64, (sizeof(*rx) + l->f->config.rx_size + 63) & ~(size_t)63);
        if (!rx) {
            while ((rx = made) != NULL) {
                made = rx->next;
                free(rx);
            }
            return -ENOMEM;
        }
        rx->link = l;
        rx->next = made;
        made = rx;
    }
    while ((rx = made) != NULL) {
        made = rx->next;
        rx->next = l->rx_free;
        l->rx_free = rx;
    }
    return 0;
}

uint32_t elan_op_rx_release(struct rme_link *l, uint32_t n)
{
    struct elan_rx *rx;

    for (; n && (rx = l->rx_free) != NULL; n--) {
        l->rx_free = rx->next;
        free(rx);
    }
    l->rx_debt += n; /* deducted from the buffers that are returned */
    return 0;
}

bool elan_op_rx_return(struct rme_fabric *f, void *token)
{
    struct elan_rx *rx = token;
    struct rme_link *l = rx->link;

    (void)f;
    if (!l) {
        free(rx);
        return true;
    }
    LIST_REMOVE(rx, lent);
    if (l->state == ELAN_ENDING_STATE || l->state == ELAN_DOWN_STATE || l->rx_debt) {
        if (l->rx_debt)
            l->rx_debt--;
        free(rx);
        return true;
    }
    rx->next = l->rx_free;
    l->rx_free = rx;
    elan_link_ready(l);
    return true;
}

void elan_rx_rest(struct rme_link *l)
{
    struct elan_rx *rx;

    free(l->filling);
    l->filling = NULL;
    while ((rx = l->rx_free) != NULL) {
        l->rx_free = rx->next;
        free(rx);
    }
}

void elan_rx_close(struct rme_link *l)
{
    for (unsigned i = 0; i < ELAN_WINDOW; i++) {
        free(l->held[i].body);
        l->held[i].body = NULL;
    }
    if (l->ready) {
        l->ready = false;
        TAILQ_REMOVE(&l->f->ready, l, ready_next);
    }
    elan_rx_rest(l);
}

void elan_rx_forget(struct rme_link *l)
{
    struct elan_rx *rx;

    while ((rx = LIST_FIRST(&l->rx_lent)) != NULL) {
        LIST_REMOVE(rx, lent);
        rx->link = NULL;
    }
}
