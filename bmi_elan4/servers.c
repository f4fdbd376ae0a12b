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
    struct bmi_elan4_where where;
    char host[ENTRY_MAX];
};

struct entry {
    int node, context; /* -1: any */
    int port;          /* of the first process */
    uint64_t queue;
    struct lookup *lookup; /* NULL: `queue` is known */
};

struct bmi_elan4_servers {
    size_t count;
    char why[2 * ENTRY_MAX]; /* last unresolved name, and the reason */
    struct entry entry[];
};

static bool read_who(char *at, struct entry *e)
{
    e->node = e->context = -1;
    if (at == NULL || strcmp(at, "*") == 0)
        return true;
    e->node = bmi_elan4_decimal(at, &at);
    if (e->node < 0 || !*at)
        return e->node >= 0;
    e->context = bmi_elan4_decimal(at + 1, NULL);
    return *at == ':' && e->context >= 0;
}

static void leave(struct lookup *l)
{
    if (l != NULL && atomic_fetch_sub(&l->users, 1) == 1)
        free(l);
}

static void look_up(struct lookup *l)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;

    l->gai = getaddrinfo(l->host, NULL, &hints, &list);
    l->error = errno;
    if (l->gai == 0) {
        memcpy(&l->where.tcp, list->ai_addr, list->ai_addrlen);
        l->where.tcp_length = list->ai_addrlen;
        freeaddrinfo(list);
    }
    atomic_store(&l->over, true);
}

static void *look_up_again(void *arg)
{
    look_up(arg);
    leave(arg);
    return NULL;
}

/* Returns true if a complete lookup has resolved the name; else sets the reason. */
static bool resolved(struct bmi_elan4_servers *s, const struct lookup *l)
{
    if (l->gai != 0)
        snprintf(s->why, sizeof(s->why), "host %s of elan_servers: %s", l->host,
                 l->gai == EAI_SYSTEM ? strerror(l->error) : gai_strerror(l->gai));
    return l->gai == 0;
}

/* Returns 0 if resolved, -EAGAIN during a lookup, or the error of starting one. */
static int know(struct bmi_elan4_servers *s, struct lookup *l)
{
    pthread_t thread;
    int rc;

    if (!atomic_load(&l->over))
        return -EAGAIN;
    if (resolved(s, l))
        return 0;
    atomic_store(&l->over, false);
    atomic_fetch_add(&l->users, 1);
    rc = rme_thread_start(&thread, look_up_again, l);
    if (rc < 0) {
        atomic_store(&l->over, true);
        leave(l);
        return rc;
    }
    pthread_detach(thread);
    return -EAGAIN;
}

/* Resolves a name when the table is read, where waiting is allowed.  An unresolved name is not
 * an error yet; the reason is in `why`. */
static int look_up_first(struct bmi_elan4_servers *s, char *host, struct entry *e)
{
    size_t n = strlen(host);

    if (n > 1 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = 0;
        host++;
    }
    if (!*host)
        return -EINVAL;
    e->lookup = calloc(1, sizeof(*e->lookup));
    if (e->lookup == NULL)
        return -ENOMEM;
    atomic_init(&e->lookup->users, 1);
    snprintf(e->lookup->host, sizeof(e->lookup->host), "%s", host);
    look_up(e->lookup);
    resolved(s, e->lookup);
    return 0;
}

static int read_entry(struct bmi_elan4_servers *s, char *text, struct entry *e)
{
    char *equals = strchr(text, '='), *where = equals != NULL ? equals + 1 : text, *end;
    char *colon = strrchr(where, ':');

    if (equals != NULL)
        *equals = 0;
    if (!read_who(equals != NULL ? text : NULL, e))
        return -EINVAL;
    if (strncmp(where, "0x", 2) == 0) {
        errno = 0;
        e->queue = strtoull(where + 2, &end, 16);
        return errno || *end || end == where + 2 || !e->queue ? -EINVAL : 0;
    }
    if (colon == NULL || (e->port = bmi_elan4_decimal(colon + 1, NULL)) < 1 || e->port > 65535)
        return -EINVAL;
    *colon = 0;
    return look_up_first(s, where, e);
}

int bmi_elan4_servers_new(const char *text, struct bmi_elan4_servers **out, char *why,
                          size_t size)
{
    size_t count = *text ? 1 : 0;
    char *copy = strdup(text), *rest = copy;
    struct bmi_elan4_servers *s;
    int rc;

    for (const char *at = text; *at; at++)
        count += *at == ',';
    s = calloc(1, sizeof(*s) + count * sizeof(s->entry[0]));
    rc = s != NULL && copy != NULL ? 0 : -ENOMEM;
    while (rc == 0 && s->count < count) {
        char *entry = strsep(&rest, ",");
        int length = (int)strlen(entry);
        rc = length < ENTRY_MAX ? read_entry(s, entry, &s->entry[s->count++]) : -EINVAL;
        if (rc == -EINVAL)
            snprintf(why, size,
                     "%.*s: expected [SERVER=]WHERE, of at most %d bytes, with SERVER *, NODE "
                     "or NODE:CONTEXT, and WHERE 0xADDRESS or HOST:PORT",
                     length, text + (entry - copy), ENTRY_MAX - 1);
    }
    if (rc == -ENOMEM)
        snprintf(why, size, "no memory");
    free(copy);
    if (rc == 0)
        *out = s;
    else if (s != NULL)
        bmi_elan4_servers_free(s);
    return rc;
}

void bmi_elan4_servers_free(struct bmi_elan4_servers *s)
{
    for (size_t i = 0; i < s->count; i++)
        leave(s->entry[i].lookup);
    free(s);
}

const char *bmi_elan4_servers_why(const struct bmi_elan4_servers *s)
{
    return s->why;
}

int bmi_elan4_servers_find(struct bmi_elan4_servers *s, const struct bmi_elan4_range *r,
                           int node, int context, struct bmi_elan4_where *where)
{
    struct entry *best = NULL;
    int best_rank = -1, vp = bmi_elan4_vp(r, node, context);
    int rc, port;

    if (vp < 0)
        return -EINVAL;
    for (size_t i = 0; i < s->count; i++) {
        struct entry *e = &s->entry[i];
        int rank = (e->node >= 0) + (e->context >= 0);
        if ((e->node < 0 || e->node == node) && (e->context < 0 || e->context == context) &&
            rank > best_rank) {
            best = e;
            best_rank = rank;
        }
    }
    if (best == NULL)
        return -ENOENT;
    *where = (struct bmi_elan4_where){.queue = best->queue};
    if (best->lookup == NULL)
        return 0;
    rc = know(s, best->lookup);
    if (rc < 0)
        return rc;
    *where = best->lookup->where;
    port = best->port + (best_rank == 2 ? 0 : best_rank == 1 ? context - r->low_context : vp);
    /* at the same place in an IPv6 address */
    ((struct sockaddr_in *)&where->tcp)->sin_port = htons((uint16_t)port);
    return port > 65535 ? -EINVAL : 0;
}
