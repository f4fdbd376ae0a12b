/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bench/model/tcp.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/model/events.h"
#include "bench/model/net.h"

#define CHUNK 8192 /* bytes that the kernel processes at a time */

struct tcp_chunk {
    struct tcp_chunk *next;
    struct tcp_pipe *pipe;
    uint64_t bytes;
    int kind;  /* of the message, at its last chunk; else -1 */
    bool here; /* arrived */
};

static void arrive(void *arg, uint64_t now)
{
    struct tcp_chunk *c = arg;

    node_set_now(now);
    c->here = true;
    node_wake(c->pipe->to);
}

void tcp_send(const struct tcp *t, struct tcp_pipe *p, uint64_t bytes, int kind)
{
    node_charge(t->latency / 2);
    do {
        struct tcp_chunk *c = calloc(1, sizeof *c);
        if (c == NULL) {
            fputs("model: tcp: out of memory\n", stderr);
            exit(1);
        }
        c->pipe = p;
        c->bytes = bytes < CHUNK ? bytes : CHUNK;
        bytes -= c->bytes;
        c->kind = bytes ? -1 : kind;
        node_charge(t->byte * (double)c->bytes);
        if (p->first == NULL)
            p->last = &p->first;
        *p->last = c;
        p->last = &c->next;
        events_add(node_now(), arrive, c);
    } while (bytes);
}

bool tcp_take(const struct tcp *t, struct tcp_pipe *p, int *kind)
{
    struct tcp_chunk *c = p->first;

    if (c == NULL || !c->here)
        return false;
    node_charge(t->byte * (double)c->bytes + (c->kind < 0 ? 0 : t->latency / 2));
    *kind = c->kind;
    p->first = c->next;
    free(c);
    return true;
}

void tcp_clear(struct tcp_pipe *p)
{
    while (p->first != NULL) {
        struct tcp_chunk *c = p->first;
        p->first = c->next;
        free(c);
    }
}
