/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A binary heap of events by time and number. */
#include "bench/model/events.h"

#include <stdio.h>
#include <stdlib.h>

struct event {
    uint64_t at, number;
    event_fn run;
    void *arg;
};

static struct event *heap;
static uint32_t count, size;
static uint64_t numbered;

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

void events_add(uint64_t at, event_fn run, void *arg)
{
    if (count == size) {
        uint32_t wanted = size ? size * 2 : 256;
        struct event *grown = realloc(heap, wanted * sizeof *grown);
        if (grown == NULL) {
            fprintf(stderr, "model: %u events: out of memory\n", wanted);
            exit(1);
        }
        heap = grown;
        size = wanted;
    }
    struct event e = {at, numbered++, run, arg};
    uint32_t i = count++;
    for (uint32_t up; i > 0; i = up) {
        up = (i - 1) / 2;
        if (!is_before(&e, &heap[up]))
            break;
        heap[i] = heap[up];
    }
    heap[i] = e;
}

uint64_t events_next(void)
{
    return count ? heap[0].at : NEVER;
}

void events_run(void)
{
    if (!count)
        return;
    struct event first = heap[0], last = heap[--count];
    uint32_t i = 0;
    for (uint32_t down; (down = 2 * i + 1) < count; i = down) {
        if (down + 1 < count && is_before(&heap[down + 1], &heap[down]))
            down++;
        if (!is_before(&heap[down], &last))
            break;
        heap[i] = heap[down];
    }
    heap[i] = last;
    first.run(first.arg, first.at);
}

void events_clear(void)
{
    free(heap);
    heap = NULL;
    count = size = 0;
    numbered = 0;
}
