/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Compares a peer's address with a pattern of an export rule.  Pure: resolves nothing, keeps no
 * state. */
#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/addr_int.h"

static const struct in6_addr mapped = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

/* Gets an address, IPv4 mapped into IPv6.  False: there is none. */
static bool from_sockaddr(const struct sockaddr *sa, struct in6_addr *out)
{
    *out = mapped;
    if (sa != NULL && sa->sa_family == AF_INET)
        memcpy(&out->s6_addr[12], &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    else if (sa != NULL && sa->sa_family == AF_INET6)
        *out = ((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
    else
        return false;
    return true;
}

static bool from_text(const char *text, struct in6_addr *out)
{
    *out = mapped;
    return inet_pton(AF_INET, text, &out->s6_addr[12]) == 1 ||
           inet_pton(AF_INET6, text, out) == 1;
}

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

/* Copies the host of "scheme://host:port/anything", where all but the host is optional.  NULL:
 * none, too long or malformed. */
static const char *host_of(const char *pattern, char *store, size_t size)
{
    const char *scheme = pattern != NULL ? strstr(pattern, "://") : NULL;
    char *port;

    if (scheme != NULL)
        pattern = scheme + 3;
    if (pattern == NULL || strcspn(pattern, "/") >= size)
        return NULL;
    snprintf(store, size, "%s", pattern);
    return rme_addr_split(store, &port);
}

int rme_addr_match_sockaddr(const struct sockaddr *sa, const char *name, const char *pattern,
                            int netmask)
{
    char room[2][256];
    const char *wanted = host_of(pattern, room[0], sizeof(room[0]));
    const char *have = host_of(name, room[1], sizeof(room[1]));
    struct in6_addr peer, network;
    bool known = from_sockaddr(sa, &peer);

    if (wanted == NULL || *wanted == '\0')
        return 0;
    if (known && from_text(wanted, &network))
        return same_network(&peer, &network, netmask);
    if (strchr(wanted, '*') != NULL)
        return known && match_stars(&peer, wanted);
    return have != NULL && strcasecmp(wanted, have) == 0;
}

int rme_addr_match(const struct rme_addr *addr, const char *pattern, int netmask)
{
    return addr->nparts == 0 &&
           rme_addr_match_sockaddr(&addr->from.sa, addr->name, pattern, netmask);
}
