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

#include "base/addr_int.h"

#define HOST_MAX  255 /* longest host name in characters */
#define PORT_MAX  65535
#define SEPARATOR ", \t\n"

/* "fe80::1" or "fe80::1%eth0". */
static bool is_ipv6(const char *host)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr ignored;
    size_t length = strcspn(host, "%");

    if (length >= sizeof(text) || strcmp(host + length, "%") == 0)
        return false;
    memcpy(text, host, length);
    text[length] = '\0';
    return inet_pton(AF_INET6, text, &ignored) == 1;
}

static bool is_host_name(const char *host)
{
    size_t length = strlen(host);

    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)host[i]) && strchr("-._", host[i]) == NULL)
            return false;
    return length > 0 && length <= HOST_MAX;
}

static bool is_port(const char *port)
{
    size_t length = strlen(port);

    return length > 0 && length <= 5 && strspn(port, "0123456789") == length &&
           atoi(port) <= PORT_MAX;
}

char *rme_addr_split(char *text, char **port)
{
    char *end;

    text[strcspn(text, "/")] = '\0';
    *port = NULL;
    end = strchr(text, ':');
    if (text[0] == '[') {
        end = strchr(++text, ']');
        if (end == NULL)
            return NULL;
        *end++ = '\0';
    } else if (end != NULL && strchr(end + 1, ':') != NULL) {
        return text; /* an IPv6 address without brackets and port */
    }
    if (end != NULL && *end == ':') {
        *end = '\0';
        *port = end + 1;
    }
    return text;
}

/* Parses "host:port/anything" or "[v6]:port/anything" in place.  False: malformed. */
static bool parse_part(char *text, struct rme_addr_part *part)
{
    char *port, *host = rme_addr_split(text, &port);

    *part = (struct rme_addr_part){.host = host, .port = port};
    return host != NULL && (host != text ? is_ipv6(host) : is_host_name(host)) &&
           port != NULL && is_port(port);
}

/* Makes an address with room for `parts` parts and, in *store, for `characters` characters. */
static struct rme_addr *allocate(size_t parts, size_t characters, char **store)
{
    size_t head = sizeof(struct rme_addr) + parts * sizeof(struct rme_addr_part);
    struct rme_addr *addr = calloc(1, head + characters);

    if (addr == NULL)
        return NULL;
    atomic_init(&addr->refs, 1);
    *store = (char *)addr + head;
    return addr;
}

/* Parses `text` in place, and writes the name.  0 or a negative errno. */
static int parse(struct rme_addr *addr, const char *scheme, char *text)
{
    size_t prefix = strlen(scheme);
    char *name = addr->name, *rest;

    for (char *at = strtok_r(text, SEPARATOR, &rest); at != NULL;
         at = strtok_r(NULL, SEPARATOR, &rest)) {
        struct rme_addr_part *part = &addr->part[addr->nparts];
        bool bracket;

        if (strncmp(at, scheme, prefix) != 0 || strncmp(at + prefix, "://", 3) != 0 ||
            at[prefix + 3] == '\0')
            continue;
        if (!parse_part(at + prefix + 3, part))
            return -EDESTADDRREQ;
        bracket = strchr(part->host, ':') != NULL;
        name += sprintf(name, "%s%s://%s%s%s:%s", addr->nparts > 0 ? "," : "", scheme,
                        bracket ? "[" : "", part->host, bracket ? "]" : "", part->port);
        addr->nparts++;
    }
    return addr->nparts > 0 ? 0 : -EINVAL;
}

int rme_addr_parse(const char *scheme, const char *text, struct rme_addr **out)
{
    size_t length = strlen(text), parts = 0;
    struct rme_addr *addr;
    char *copy;
    int error;

    for (const char *at = text; (at = strstr(at, "://")) != NULL; at++)
        parts++;
    addr = allocate(parts, 2 * (length + 1), &copy);
    if (addr == NULL)
        return -ENOMEM;
    memcpy(copy, text, length);
    addr->name = copy + length + 1; /* never longer than the text */
    error = parse(addr, scheme, copy);
    if (error == 0 && length >= RME_MAX_URI)
        error = -EDESTADDRREQ;
    if (error != 0)
        free(addr);
    else
        *out = addr;
    return error;
}

bool rme_addr_any_port(const struct rme_addr *addr)
{
    for (int i = 0; i < addr->nparts; i++)
        if (atoi(addr->part[i].port) == 0)
            return true;
    return false;
}

struct rme_addr *rme_addr_new_passive(const char *name)
{
    size_t length = strlen(name);
    char *store;
    struct rme_addr *addr = allocate(0, length + 1, &store);

    if (addr == NULL)
        return NULL;
    addr->name = memcpy(store, name, length);
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
