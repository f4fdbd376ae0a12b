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

/* An address of either family. */
struct bytes {
    unsigned char at[16];
    int length; /* 4 or 16; 0: none */
};

static void from_sockaddr(const struct sockaddr *sa, struct bytes *out)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    const unsigned char *v6;

    out->length = 0;
    if (sa != NULL && sa->sa_family == AF_INET) {
        memcpy(out->at, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
        out->length = 4;
    } else if (sa != NULL && sa->sa_family == AF_INET6) {
        v6 = ((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr.s6_addr;
        out->length = memcmp(v6, mapped, sizeof(mapped)) == 0 ? 4 : 16;
        memcpy(out->at, v6 + 16 - out->length, (size_t)out->length);
    }
}

static void from_text(const char *text, struct bytes *out)
{
    out->length = inet_pton(AF_INET, text, out->at) == 1    ? 4
                  : inet_pton(AF_INET6, text, out->at) == 1 ? 16
                                                            : 0;
}

static bool same_network(const struct bytes *a, const struct bytes *b, int bits)
{
    if (a->length != b->length)
        return false;
    if (bits < 0 || bits > 8 * a->length)
        bits = 8 * a->length;
    if (memcmp(a->at, b->at, (size_t)bits / 8) != 0)
        return false;
    return bits % 8 == 0 || (a->at[bits / 8] ^ b->at[bits / 8]) >> (8 - bits % 8) == 0;
}

/* Matches "10.1.*": numbers and stars between dots; a last star stands for the rest.  -1: not
 * of this form. */
static int match_stars(const struct bytes *peer, const char *text)
{
    bool same = peer->length == 4;

    if (strchr(text, '*') == NULL)
        return -1;
    for (int i = 0; i < 4; i++) {
        char *end = (char *)text + 1;
        long number = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : -1;

        if (*text == '*') {
            if (*end == '\0')
                return same;
        } else if (number < 0 || number > 255) {
            return -1;
        } else {
            same = same && peer->at[i] == number;
        }
        if (*end != '.')
            return *end == '\0' && i == 3 ? same : -1;
        text = end + 1;
    }
    return -1;
}

/* Copies the host of "scheme://host:port/anything", where all but the host is optional.  NULL:
 * too long or malformed. */
static const char *host_of(const char *pattern, char *store, size_t size)
{
    const char *scheme = strstr(pattern, "://");
    char *port;

    if (scheme != NULL)
        pattern = scheme + 3;
    if (strcspn(pattern, "/") >= size)
        return NULL;
    snprintf(store, size, "%s", pattern);
    return rme_addr_split(store, &port);
}

int rme_addr_match_sockaddr(const struct sockaddr *sa, const char *name, const char *pattern,
                            int netmask)
{
    char room[2][256];
    const char *wanted = pattern != NULL ? host_of(pattern, room[0], sizeof(room[0])) : NULL;
    const char *have = name != NULL ? host_of(name, room[1], sizeof(room[1])) : NULL;
    struct bytes peer, network;
    int stars;

    if (wanted == NULL || *wanted == '\0')
        return 0;
    from_sockaddr(sa, &peer);
    if (peer.length != 0) {
        from_text(wanted, &network);
        if (network.length != 0)
            return same_network(&peer, &network, netmask);
        stars = match_stars(&peer, wanted);
        if (stars >= 0)
            return stars;
    }
    return have != NULL && strcasecmp(wanted, have) == 0;
}

int rme_addr_match(const struct rme_addr *addr, const char *pattern, int netmask)
{
    return addr->nparts == 0 &&
           rme_addr_match_sockaddr(&addr->from.sa, addr->name, pattern, netmask);
}
