/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bmi_elan4/servers.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_MAX 300

struct entry {
    int node, context; /* -1: any */
    unsigned port;
    struct bmi_elan4_where where; /* its port is that of the first process */
};

struct bmi_elan4_servers {
    size_t count;
    struct entry entry[];
};

/* A number of up to five digits that ends at `stop`, or -1. */
static int number(const char *at, const char *stop)
{
    int v = 0;

    if (at == stop || stop - at > 5)
        return -1;
    for (; at < stop; at++) {
        if (*at < '0' || *at > '9')
            return -1;
        v = 10 * v + (*at - '0');
    }
    return v;
}

static bool read_who(const char *at, const char *stop, struct entry *e)
{
    const char *colon = memchr(at, ':', (size_t)(stop - at));

    e->node = e->context = -1;
    if (stop - at == 1 && *at == '*')
        return true;
    e->node = number(at, colon ? colon : stop);
    if (colon)
        e->context = number(colon + 1, stop);
    return e->node >= 0 && (!colon || e->context >= 0);
}

static int look_up(char *host, const char *port, struct entry *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    size_t n = strlen(host);

    if (n > 1 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = 0;
        host++;
    }
    if (!*host || getaddrinfo(host, port, &hints, &list) != 0)
        return -ENOENT;
    memcpy(&e->where.tcp, list->ai_addr, list->ai_addrlen);
    e->where.tcp_length = list->ai_addrlen;
    freeaddrinfo(list);
    return 0;
}

static int read_where(char *text, struct entry *e)
{
    char *colon, *end;

    if (strncmp(text, "0x", 2) == 0) {
        errno = 0;
        e->where.queue = strtoull(text + 2, &end, 16);
        return errno || *end || end == text + 2 || !e->where.queue ? -EINVAL : 0;
    }
    colon = strrchr(text, ':');
    int port = colon ? number(colon + 1, colon + strlen(colon)) : -1;
    if (port < 1 || port > 65535)
        return -EINVAL;
    *colon = 0;
    e->port = (unsigned)port;
    return look_up(text, colon + 1, e);
}

static int read_entry(const char *at, size_t length, struct entry *e, char *why, size_t size)
{
    static const char anybody[] = "*";
    char text[ENTRY_MAX];

    if (length >= sizeof(text)) {
        snprintf(why, size, "an entry of %zu bytes; at most %d are allowed", length,
                 ENTRY_MAX - 1);
        return -EINVAL;
    }
    memcpy(text, at, length);
    text[length] = 0;
    char *equals = strchr(text, '='), *where = equals ? equals + 1 : text;
    const char *who = equals ? text : anybody, *end = equals ? equals : &anybody[1];
    int rc = read_who(who, end, e) ? read_where(where, e) : -EINVAL;
    if (rc == -ENOENT)
        snprintf(why, size, "%.*s: no such host", (int)length, at);
    else if (rc < 0)
        snprintf(why, size,
                 "%.*s: it must be [WHO=]WHERE, WHO *, NODE or NODE:CONTEXT, WHERE 0xADDRESS "
                 "or HOST:PORT",
                 (int)length, at);
    return rc;
}

int bmi_elan4_servers_new(const char *text, struct bmi_elan4_servers **out, char *why,
                          size_t size)
{
    size_t count = *text ? 1 : 0;

    for (const char *at = text; *at; at++)
        count += *at == ',';
    struct bmi_elan4_servers *s = calloc(1, sizeof(*s) + count * sizeof(s->entry[0]));
    if (!s) {
        snprintf(why, size, "no memory");
        return -ENOMEM;
    }
    for (; s->count < count; s->count++) {
        size_t length = strcspn(text, ",");
        int rc = read_entry(text, length, &s->entry[s->count], why, size);
        if (rc < 0) {
            free(s);
            return rc;
        }
        text += length + 1;
    }
    *out = s;
    return 0;
}

void bmi_elan4_servers_free(struct bmi_elan4_servers *s)
{
    free(s);
}

static int set_port(struct bmi_elan4_where *where, unsigned port)
{
    if (port > 65535)
        return -EINVAL;
    if (where->tcp.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&where->tcp)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&where->tcp)->sin_port = htons((uint16_t)port);
    return 0;
}

int bmi_elan4_servers_find(const struct bmi_elan4_servers *s, const struct bmi_elan4_range *r,
                           int node, int context, struct bmi_elan4_where *where)
{
    const struct entry *best = NULL;
    int best_rank = -1, vp = bmi_elan4_vp(r, node, context);

    if (vp < 0)
        return -EINVAL;
    for (size_t i = 0; i < s->count; i++) {
        const struct entry *e = &s->entry[i];
        int rank = (e->node >= 0) + (e->context >= 0);
        if ((e->node >= 0 && e->node != node) || (e->context >= 0 && e->context != context))
            continue;
        if (rank > best_rank) {
            best = e;
            best_rank = rank;
        }
    }
    if (!best)
        return -ENOENT;
    *where = best->where;
    if (where->queue)
        return 0;
    unsigned more =
        best_rank == 2 ? 0 : (unsigned)(best_rank == 1 ? context - r->low_context : vp);
    return set_port(where, best->port + more);
}
