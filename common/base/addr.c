/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Parser of addresses.  A string is a list of parts "scheme://host:port/anything" separated by
 * commas or white space; parts with our scheme are kept.  No engine is involved here: see
 * addr_int.h.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/addr_int.h"

#define HOST_MAX  255 /* longest host name in characters */
#define PORT_MAX  65535
#define SEPARATOR ", \t\n"

/* A substring of the text. */
struct span {
    const char *at;
    size_t length;
};

/* "fe80::1" or "fe80::1%eth0". */
static bool is_ipv6(struct span host)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr ignored;
    const char *zone = memchr(host.at, '%', host.length);
    size_t length = zone != NULL ? (size_t)(zone - host.at) : host.length;

    if (length >= sizeof(text) || (zone != NULL && length + 1 == host.length))
        return false;
    memcpy(text, host.at, length);
    text[length] = '\0';
    return inet_pton(AF_INET6, text, &ignored) == 1;
}

static bool is_host_name(struct span host)
{
    if (host.length == 0 || host.length > HOST_MAX)
        return false;
    for (size_t i = 0; i < host.length; i++)
        if (!isalnum((unsigned char)host.at[i]) && strchr("-._", host.at[i]) == NULL)
            return false;
    return true;
}

static bool is_port(struct span port)
{
    unsigned number = 0;

    if (port.length == 0 || port.length > 5)
        return false;
    for (size_t i = 0; i < port.length; i++) {
        if (!isdigit((unsigned char)port.at[i]))
            return false;
        number = number * 10 + (unsigned)(port.at[i] - '0');
    }
    return number <= PORT_MAX;
}

/* Splits "host:port" or "[v6]:port".  False: malformed. */
static bool split(struct span text, struct span *host, struct span *port, bool *bracket)
{
    const char *end = text.at + text.length;
    const char *colon;

    *bracket = text.length > 0 && text.at[0] == '[';
    if (*bracket) {
        const char *close = memchr(text.at, ']', text.length);

        if (close == NULL)
            return false;
        *host = (struct span){text.at + 1, (size_t)(close - text.at - 1)};
        colon = close + 1;
        if (colon == end || *colon != ':' || !is_ipv6(*host))
            return false;
    } else {
        colon = memchr(text.at, ':', text.length);
        if (colon == NULL)
            return false;
        *host = (struct span){text.at, (size_t)(colon - text.at)};
        if (!is_host_name(*host))
            return false;
    }
    *port = (struct span){colon + 1, (size_t)(end - colon - 1)};
    return is_port(*port);
}

/* Finds the next part with our scheme at or behind *cursor, as "host:port".  False: none. */
static bool next_part(const char **cursor, const char *scheme, struct span *out)
{
    size_t prefix = strlen(scheme);
    const char *at = *cursor;

    for (;;) {
        size_t length;

        at += strspn(at, SEPARATOR);
        length = strcspn(at, SEPARATOR);
        if (length == 0)
            return false;
        if (length > prefix + 3 && strncmp(at, scheme, prefix) == 0 &&
            strncmp(at + prefix, "://", 3) == 0) {
            const char *rest = at + prefix + 3;
            const char *slash = memchr(rest, '/', length - prefix - 3);

            *out = (struct span){rest,
                                 slash != NULL ? (size_t)(slash - rest) : length - prefix - 3};
            *cursor = at + length;
            return true;
        }
        at += length;
    }
}

/* Counts our parts and the characters of their texts and of the name; a negative errno if a
 * part is malformed. */
static int measure(const char *scheme, const char *text, size_t *characters)
{
    struct span part, host, port;
    bool bracket;
    int count = 0;

    *characters = 1;
    while (next_part(&text, scheme, &part)) {
        if (!split(part, &host, &port, &bracket))
            return -EDESTADDRREQ;
        *characters += host.length + 1 + port.length + 1; /* host and port of the part */
        *characters +=
            1 + strlen(scheme) + strlen("://") + part.length; /* the part in the name */
        count++;
    }
    return count > 0 ? count : -EINVAL;
}

static char *append(char **store, struct span text)
{
    char *start = *store;

    memcpy(start, text.at, text.length);
    start[text.length] = '\0';
    *store += text.length + 1;
    return start;
}

static struct rme_addr *allocate(int nparts, size_t characters, char **store)
{
    size_t head = sizeof(struct rme_addr) + (size_t)nparts * sizeof(struct rme_addr_part);
    struct rme_addr *addr = calloc(1, head + characters);

    if (addr == NULL)
        return NULL;
    addr->part = (struct rme_addr_part *)(addr + 1);
    addr->nparts = nparts;
    atomic_init(&addr->refs, 1);
    *store = (char *)addr + head;
    return addr;
}

int rme_addr_parse(const char *scheme, const char *text, struct rme_addr **out)
{
    struct span part, host = {0}, port = {0};
    struct rme_addr *addr;
    size_t characters;
    char *store, *name;
    bool bracket;
    int count;

    if (strnlen(text, RME_MAX_URI) == RME_MAX_URI)
        return next_part(&text, scheme, &part) ? -EDESTADDRREQ : -EINVAL;
    count = measure(scheme, text, &characters);
    if (count < 0)
        return count;
    addr = allocate(count, characters, &store);
    if (addr == NULL)
        return -ENOMEM;

    for (int i = 0; next_part(&text, scheme, &part); i++) {
        (void)split(part, &host, &port, &bracket);
        addr->part[i].host = append(&store, host);
        addr->part[i].port = append(&store, port);
    }
    name = addr->name = store;
    for (int i = 0; i < count; i++) {
        bracket = strchr(addr->part[i].host, ':') != NULL;
        name += sprintf(name, "%s%s://%s%s%s:%s", i > 0 ? "," : "", scheme, bracket ? "[" : "",
                        addr->part[i].host, bracket ? "]" : "", addr->part[i].port);
    }
    *out = addr;
    return 0;
}

bool rme_addr_any_port(const struct rme_addr *addr)
{
    for (int i = 0; i < addr->nparts; i++)
        if (atoi(addr->part[i].port) == 0)
            return true;
    return false;
}

struct rme_addr *rme_addr_new_passive(const char *name, const struct sockaddr *from)
{
    struct span text = {name, strlen(name)};
    char *store;
    struct rme_addr *addr = allocate(0, text.length + 1, &store);

    if (addr == NULL)
        return NULL;
    addr->name = append(&store, text);
    if (from != NULL && from->sa_family == AF_INET)
        memcpy(&addr->from, from, sizeof(addr->from.v4));
    else if (from != NULL && from->sa_family == AF_INET6)
        memcpy(&addr->from, from, sizeof(addr->from.v6));
    return addr;
}

void rme_addr_get(struct rme_addr *addr)
{
    atomic_fetch_add(&addr->refs, 1);
}

void rme_addr_put(struct rme_addr *addr)
{
    if (atomic_fetch_sub(&addr->refs, 1) == 1)
        free(addr);
}

int rme_addr_parts(const struct rme_addr *addr)
{
    return addr->nparts;
}

const struct rme_addr_part *rme_addr_part(const struct rme_addr *addr, int part)
{
    return part >= 0 && part < addr->nparts ? &addr->part[part] : NULL;
}

const char *rme_addr_name(const struct rme_addr *addr)
{
    return addr->name;
}

bool rme_addr_is_dead(const struct rme_addr *addr)
{
    return atomic_load(&addr->dead);
}

void rme_addr_set_host(struct rme_addr *addr, void *host)
{
    atomic_store(&addr->host, host);
}

void *rme_addr_host(const struct rme_addr *addr)
{
    return atomic_load(&addr->host);
}
