/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Parser of addresses, and comparison of a peer's address with a pattern of an export rule.  A
 * string is a list of parts "scheme://host:port/anything" separated by commas or white space;
 * parts with our scheme are kept.  No name is resolved, and no engine is involved: see
 * addr_int.h.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/addr_int.h"

#define HOST_MAX  255 /* longest host name in characters */
#define PORT_MAX  65535
#define SEPARATOR ", \t\n"

static const struct in6_addr mapped = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

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
    static const char allowed[] =
        "-._0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    size_t length = strlen(host);

    return length > 0 && length <= HOST_MAX && strspn(host, allowed) == length;
}

static bool is_port(const char *port)
{
    size_t length = strlen(port);

    return length > 0 && length <= 5 && strspn(port, "0123456789") == length &&
           atoi(port) <= PORT_MAX;
}

/* Splits "host:port/anything" or "[v6]:port/anything" in place.  Returns the host; NULL: a
 * bracket is missing.  *port: NULL if there is none, as in "v6" without brackets. */
static char *split(char *text, char **port)
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
    char *port, *host = split(text, &port);

    *part = (struct rme_addr_part){.host = host, .port = port};
    return host != NULL && (host != text ? is_ipv6(host) : is_host_name(host)) &&
           port != NULL && is_port(port);
}

/* Makes an address with room for `parts` parts.  Its name is `text`, and room for as many more
 * characters follows. */
static struct rme_addr *allocate(size_t parts, const char *text)
{
    size_t head = sizeof(struct rme_addr) + parts * sizeof(struct rme_addr_part);
    size_t size = strlen(text) + 1;
    struct rme_addr *addr = calloc(1, head + 2 * size);

    if (addr == NULL)
        return NULL;
    atomic_init(&addr->refs, 1);
    addr->name = memcpy((char *)addr + head, text, size);
    return addr;
}

/* Parses `text` in place, and writes the name.  0 or a negative errno. */
static int parse(struct rme_addr *addr, const char *scheme, char *text)
{
    size_t prefix = strlen(scheme);
    char *name = addr->name, *rest;

    for (char *at = strtok_r(text, SEPARATOR, &rest); at != NULL;
         at = strtok_r(NULL, SEPARATOR, &rest)) {
        char *host = at + prefix + 3;

        if (strncmp(at, scheme, prefix) != 0 || strncmp(at + prefix, "://", 3) != 0 ||
            *host == '\0')
            continue;
        name += sprintf(name, "%s%.*s", addr->nparts > 0 ? "," : "",
                        (int)(prefix + 3 + strcspn(host, "/")), at);
        if (!parse_part(host, &addr->part[addr->nparts++]))
            return -EDESTADDRREQ;
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
    addr = allocate(parts, text);
    if (addr == NULL)
        return -ENOMEM;
    copy = addr->name;
    addr->name += length + 1; /* never longer than the text */
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

/* Copies the host of "scheme://host:port/anything", where all but the host is optional.  NULL:
 * none, too long or malformed. */
static char *host_of(const char *pattern, char *store, size_t size)
{
    const char *scheme = pattern != NULL ? strstr(pattern, "://") : NULL;
    char *port;

    if (scheme != NULL)
        pattern = scheme + 3;
    if (pattern == NULL || strcspn(pattern, "/") >= size)
        return NULL;
    snprintf(store, size, "%s", pattern);
    return split(store, &port);
}

static bool from_text(const char *text, struct in6_addr *out)
{
    *out = mapped;
    return inet_pton(AF_INET, text, &out->s6_addr[12]) == 1 ||
           inet_pton(AF_INET6, text, out) == 1;
}

struct rme_addr *rme_addr_new_passive(const char *name)
{
    struct rme_addr *addr = allocate(0, name);
    char room[256], *host;

    if (addr == NULL)
        return NULL;
    host = host_of(name, room, sizeof(room));
    if (host != NULL)
        host[strcspn(host, "%")] = '\0'; /* the scope */
    addr->has_from = host != NULL && from_text(host, &addr->from);
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

/* ---- Patterns ---- */

static bool same_network(const struct in6_addr *a, const struct in6_addr *b, int bits)
{
    const unsigned char *x = a->s6_addr, *y = b->s6_addr;
    int before = IN6_IS_ADDR_V4MAPPED(a) ? 96 : 0;

    if (IN6_IS_ADDR_V4MAPPED(a) != IN6_IS_ADDR_V4MAPPED(b))
        return false;
    bits = bits < 0 || bits > 128 - before ? 128 : before + bits;
    return memcmp(x, y, (size_t)bits / 8) == 0 &&
           (bits % 8 == 0 || (x[bits / 8] ^ y[bits / 8]) >> (8 - bits % 8) == 0);
}

/* Matches "10.1.*": numbers and stars between dots; a last star stands for the rest. */
static bool match_stars(const struct in6_addr *peer, const char *text)
{
    for (int i = 12; IN6_IS_ADDR_V4MAPPED(peer) && i < 16; i++) {
        char *end = (char *)text + 1;

        if (strcmp(text, "*") == 0)
            return true;
        if (*text != '*' &&
            (!isdigit((unsigned char)*text) || strtol(text, &end, 10) != peer->s6_addr[i]))
            return false;
        if (*end != '.')
            return *end == '\0' && i == 15;
        text = end + 1;
    }
    return false;
}

int rme_addr_match(const struct rme_addr *addr, const char *pattern, int netmask)
{
    char room[2][256];
    const char *wanted = host_of(pattern, room[0], sizeof(room[0]));
    const char *have = host_of(addr->name, room[1], sizeof(room[1]));
    struct in6_addr network;

    if (addr->nparts != 0 || wanted == NULL || *wanted == '\0')
        return 0;
    if (strcmp(wanted, "*") == 0)
        return 1;
    if (addr->has_from && from_text(wanted, &network))
        return same_network(&addr->from, &network, netmask);
    if (strchr(wanted, '*') != NULL)
        return addr->has_from && match_stars(&addr->from, wanted);
    if (have != NULL && strcasecmp(wanted, have) == 0)
        return 1;
    return isalpha((unsigned char)*wanted) ? -EINVAL : 0;
}
