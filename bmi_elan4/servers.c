/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * servers.c - the table of servers.
 *
 * A host name that cannot be resolved when the table is read is resolved again when its server
 * is requested: by a thread, because this may take long and the caller must not wait.  The next
 * request takes the result.  A lookup belongs to its entry and to its thread; the last one
 * frees it, so a table may be freed during a lookup.
 */
#include "bmi_elan4/servers.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

#define ENTRY_MAX 300

struct lookup {
    atomic_int users;
    atomic_bool over; /* the following fields are valid */
    int gai, error;   /* error: errno of EAI_SYSTEM */
    struct sockaddr_storage tcp;
    socklen_t tcp_length;
    char host[ENTRY_MAX], port[8];
};

struct entry {
    int node, context; /* -1: any */
    unsigned port;
    struct bmi_elan4_where where; /* with the port of the first process */
    struct lookup *lookup;        /* NULL: `where` is resolved */
    bool asked;                   /* a thread resolves it */
    int gai, error;               /* of the last complete lookup */
};

struct bmi_elan4_servers {
    size_t count;
    char why[2 * ENTRY_MAX]; /* last unresolved name, and the reason */
    struct entry entry[];
};

/* Parses a number of up to five digits that ends at `stop`; -1: invalid. */
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

static void leave(struct lookup *l)
{
    if (atomic_fetch_sub(&l->users, 1) == 1)
        free(l);
}

static void look_up(struct lookup *l)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;

    l->gai = getaddrinfo(l->host, l->port, &hints, &list);
    l->error = errno;
    if (l->gai != 0)
        return;
    memcpy(&l->tcp, list->ai_addr, list->ai_addrlen);
    l->tcp_length = list->ai_addrlen;
    freeaddrinfo(list);
}

static void *look_up_again(void *arg)
{
    struct lookup *l = arg;

    look_up(l);
    atomic_store(&l->over, true);
    leave(l);
    return NULL;
}

/* Takes the result of a complete lookup.  Returns true if the entry is resolved; else sets the
 * reason. */
static bool take(struct entry *e)
{
    struct lookup *l = e->lookup;

    e->gai = l->gai;
    e->error = l->error;
    if (l->gai != 0)
        return false;
    e->where.tcp = l->tcp;
    e->where.tcp_length = l->tcp_length;
    e->lookup = NULL;
    leave(l);
    return true;
}

static void say_why(const struct entry *e, char *why, size_t size)
{
    snprintf(why, size, "host %s of elan_servers: %s", e->lookup->host,
             e->gai == EAI_SYSTEM ? strerror(e->error) : gai_strerror(e->gai));
}

/* Returns 0 if resolved, -EAGAIN during a lookup, or the error of starting one. */
static int know(struct bmi_elan4_servers *s, struct entry *e)
{
    struct lookup *l = e->lookup;
    pthread_t thread;

    if (l && e->asked && atomic_load(&l->over)) {
        e->asked = false;
        if (take(e))
            return 0;
    }
    if (!l)
        return 0;
    say_why(e, s->why, sizeof(s->why));
    if (e->asked)
        return -EAGAIN;
    atomic_store(&l->over, false);
    atomic_fetch_add(&l->users, 1);
    int rc = rme_thread_start(&thread, look_up_again, l);
    if (rc < 0) {
        leave(l);
        return rc;
    }
    pthread_detach(thread);
    e->asked = true;
    return -EAGAIN;
}

/* Resolves a name when the table is read, where waiting is allowed.  An unresolved name is not
 * an error yet; the reason is in `why`. */
static int look_up_first(char *host, const char *port, struct entry *e, char *why, size_t size)
{
    size_t n = strlen(host);

    if (n > 1 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = 0;
        host++;
    }
    if (!*host)
        return -EINVAL;
    e->lookup = calloc(1, sizeof(*e->lookup));
    if (!e->lookup) {
        snprintf(why, size, "no memory");
        return -ENOMEM;
    }
    atomic_init(&e->lookup->users, 1);
    snprintf(e->lookup->host, sizeof(e->lookup->host), "%s", host);
    snprintf(e->lookup->port, sizeof(e->lookup->port), "%s", port);
    look_up(e->lookup);
    if (!take(e))
        say_why(e, why, size);
    return 0;
}

static int read_where(char *text, struct entry *e, char *why, size_t size)
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
    return look_up_first(text, colon + 1, e, why, size);
}

static int read_entry(const char *at, size_t length, struct entry *e, char *why, size_t size)
{
    static const char anybody[] = "*";
    char text[ENTRY_MAX];

    if (length >= sizeof(text)) {
        snprintf(why, size, "entry of %zu bytes; at most %d are allowed", length,
                 ENTRY_MAX - 1);
        return -EINVAL;
    }
    memcpy(text, at, length);
    text[length] = 0;
    char *equals = strchr(text, '='), *where = equals ? equals + 1 : text;
    const char *who = equals ? text : anybody, *end = equals ? equals : &anybody[1];
    int rc = read_who(who, end, e) ? read_where(where, e, why, size) : -EINVAL;
    if (rc == -EINVAL)
        snprintf(why, size,
                 "%.*s: expected [SERVER=]WHERE with SERVER *, NODE or NODE:CONTEXT, and WHERE "
                 "0xADDRESS or HOST:PORT",
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
        int rc = read_entry(text, length, &s->entry[s->count], s->why, sizeof(s->why));
        if (rc < 0) {
            snprintf(why, size, "%s", s->why);
            bmi_elan4_servers_free(s);
            return rc;
        }
        text += length + 1;
    }
    *out = s;
    return 0;
}

void bmi_elan4_servers_free(struct bmi_elan4_servers *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->entry[i].lookup)
            leave(s->entry[i].lookup);
    free(s);
}

const char *bmi_elan4_servers_why(const struct bmi_elan4_servers *s)
{
    return s->why;
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

int bmi_elan4_servers_find(struct bmi_elan4_servers *s, const struct bmi_elan4_range *r,
                           int node, int context, struct bmi_elan4_where *where)
{
    struct entry *best = NULL;
    int best_rank = -1, vp = bmi_elan4_vp(r, node, context);

    if (vp < 0)
        return -EINVAL;
    for (size_t i = 0; i < s->count; i++) {
        struct entry *e = &s->entry[i];
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
    int rc = know(s, best);
    if (rc < 0)
        return rc;
    *where = best->where;
    if (where->queue)
        return 0;
    unsigned more =
        best_rank == 2 ? 0 : (unsigned)(best_rank == 1 ? context - r->low_context : vp);
    return set_port(where, best->port + more);
}
