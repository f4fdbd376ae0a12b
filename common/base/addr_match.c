/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Compares a peer's address with a pattern of an export rule.  Pure: resolves nothing, keeps no
 * state. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/addr_int.h"

/* An address of either family. */
struct bytes {
    unsigned char at[16];
    int length; /* 4 or 16; 0: none */
};

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
static char *host_of(const char *pattern, char *store, size_t size)
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

/* Reads the peer's address, without its scope; IPv4 that is mapped into IPv6 as IPv4. */
static void peer_from_text(char *host, struct bytes *out)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

    host[strcspn(host, "%")] = '\0';
    from_text(host, out);
    if (out->length == 16 && memcmp(out->at, mapped, sizeof(mapped)) == 0) {
        memmove(out->at, out->at + sizeof(mapped), 4);
        out->length = 4;
    }
}

int rme_addr_match_name(const char *name, const char *pattern, int netmask)
{
    char room[2][256];
    const char *wanted = pattern != NULL ? host_of(pattern, room[0], sizeof(room[0])) : NULL;
    char *have = host_of(name, room[1], sizeof(room[1]));
    struct bytes peer, network;
    int stars;

    if (wanted == NULL || *wanted == '\0' || have == NULL)
        return 0;
    peer_from_text(have, &peer);
    if (peer.length != 0) {
        from_text(wanted, &network);
        if (network.length != 0)
            return same_network(&peer, &network, netmask);
        stars = match_stars(&peer, wanted);
        if (stars >= 0)
            return stars;
    }
    return strcasecmp(wanted, have) == 0;
}

int rme_addr_match(const struct rme_addr *addr, const char *pattern, int netmask)
{
    return addr->nparts == 0 && rme_addr_match_name(addr->name, pattern, netmask);
}
