/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/access.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define HOST_MAX 256

/* Address of either family; IPv4 as IPv4-mapped IPv6, so that both compare alike. */
struct bytes {
    unsigned char at[16];
};

struct rule {
    struct bytes network;
    int bits;            /* prefix length, 0 to 128 */
    char name[HOST_MAX]; /* host name or address that the rule was made from */
};

struct access {
    int count;
    struct rule rule[];
};

#define IMAGE_BITS 96 /* bits before the IPv4 address in a mapped address */

static bool numeric(const char *text, struct bytes *out)
{
    static const unsigned char image[12] = {[10] = 0xff, [11] = 0xff};
    char plain[INET6_ADDRSTRLEN];
    size_t length = strcspn(text, "%"); /* a scope follows */

    if (length >= sizeof plain)
        return false;
    memcpy(plain, text, length);
    plain[length] = 0;
    if (inet_pton(AF_INET6, plain, out->at) == 1)
        return true;
    memcpy(out->at, image, sizeof image);
    return inet_pton(AF_INET, plain, out->at + sizeof image) == 1;
}

static bool same_network(const struct bytes *a, const struct bytes *b, int bits)
{
    if (memcmp(a->at, b->at, (size_t)bits / 8) != 0)
        return false;
    return bits % 8 == 0 || (a->at[bits / 8] ^ b->at[bits / 8]) >> (8 - bits % 8) == 0;
}

static void from_sockaddr(const struct sockaddr *sa, struct bytes *out)
{
    char text[INET6_ADDRSTRLEN] = "";

    if (sa->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, text,
                  sizeof text);
    else
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, text,
                  sizeof text);
    numeric(text, out);
}

/* Returns all addresses of a name, to be freed by freeaddrinfo(); NULL: none. */
static struct addrinfo *resolve(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;

    return getaddrinfo(host, NULL, &hints, &list) == 0 ? list : NULL;
}

/* ---- construction ---- */

static struct access *add_rule(struct access *access, const struct bytes *network, int bits,
                               const char *name)
{
    size_t count = access ? (size_t)access->count : 0;
    struct access *grown =
        realloc(access, sizeof *access + (count + 1) * sizeof access->rule[0]);

    if (!grown) {
        free(access);
        return NULL;
    }
    grown->count = (int)count + 1;
    grown->rule[count].network = *network;
    grown->rule[count].bits = bits;
    snprintf(grown->rule[count].name, sizeof grown->rule[count].name, "%s", name);
    return grown;
}

/* Parses a prefix length, counted for the mapped address; -1: invalid. */
static int read_bits(const char *text, bool v4)
{
    int most = v4 ? 32 : 128;
    char *end = NULL;
    long bits = strtol(text, &end, 10);

    if (end == text || *end || bits < 0 || bits > most)
        return -1;
    return (int)bits + (v4 ? IMAGE_BITS : 0);
}

static struct access *add_names(struct access *access, const char *host, const char **fault)
{
    struct addrinfo *list = resolve(host);
    struct bytes address;

    *fault = list ? NULL : "unknown host; check the name, or give an address";
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
            continue;
        from_sockaddr(a->ai_addr, &address);
        access = add_rule(access, &address, 128, host);
        if (!access) {
            *fault = "no memory";
            break;
        }
    }
    if (list)
        freeaddrinfo(list);
    return access;
}

/* Adds one item, which is modified.  Returns the grown list; on failure sets *fault. */
static struct access *add_item(struct access *access, char *item, const char **fault)
{
    char *slash = strchr(item, '/');
    struct bytes network;
    size_t length;
    int bits = 128;

    *fault = NULL;
    if (slash)
        *slash++ = 0;
    length = strlen(item);
    if (length > 1 && item[0] == '[' && item[length - 1] == ']') {
        item[length - 1] = 0;
        item++;
    }
    if (!*item || length >= HOST_MAX) {
        *fault = "empty or too long; give a host or a network like 10.1.0.0/16";
    } else if (!numeric(item, &network)) {
        if (!slash)
            return add_names(access, item, fault);
        *fault = "a network must be numeric; give one like 10.1.0.0/16";
    } else if (slash && (bits = read_bits(slash, !strchr(item, ':'))) < 0) {
        *fault = "invalid prefix length; give a network like 10.1.0.0/16";
    } else {
        access = add_rule(access, &network, bits, item);
        if (!access)
            *fault = "no memory";
    }
    return access;
}

struct access *access_new(const char *text, char *why, size_t size)
{
    struct access *access = NULL;
    char *copy = strdup(text);
    const char *fault = copy ? NULL : "no memory";

    for (char *at = copy, *next; at && !fault; at = next) {
        char item[HOST_MAX + 8];

        next = strchr(at, ',');
        if (next)
            *next++ = 0;
        snprintf(item, sizeof item, "%s", at);
        access = add_item(access, at, &fault);
        if (fault)
            snprintf(why, size, "'%s': %s", item, fault);
    }
    if (!copy)
        snprintf(why, size, "%s", fault);
    free(copy);
    if (fault) {
        free(access);
        return NULL;
    }
    return access;
}

void access_free(struct access *access)
{
    free(access);
}

struct access *access_loopback(void)
{
    char why[100];

    return access_new("127.0.0.0/8,::1", why, sizeof why);
}

/* ---- queries ---- */

bool access_host_of(const char *uri, char *host, size_t size)
{
    const char *scheme = strstr(uri, "://");
    const char *at = scheme ? scheme + 3 : uri;
    size_t length;

    if (*at == '[') {
        at++;
        length = strcspn(at, "]");
    } else {
        length = strcspn(at, ":/,");
    }
    if (length == 0 || length >= size)
        return false;
    memcpy(host, at, length);
    host[length] = 0;
    return true;
}

static bool admits_bytes(const struct access *access, const struct bytes *address)
{
    for (int i = 0; i < access->count; i++)
        if (same_network(address, &access->rule[i].network, access->rule[i].bits))
            return true;
    return false;
}

bool access_admits(const struct access *access, const char *host)
{
    struct bytes address;

    if (numeric(host, &address))
        return admits_bytes(access, &address);
    for (int i = 0; i < access->count; i++)
        if (strcasecmp(access->rule[i].name, host) == 0)
            return true;
    return false;
}

bool access_admits_name(const struct access *access, const char *host)
{
    struct addrinfo *list;
    struct bytes address;
    bool good = true;

    if (access_admits(access, host))
        return true;
    if (numeric(host, &address))
        return false;
    list = resolve(host);
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        from_sockaddr(a->ai_addr, &address);
        good &= admits_bytes(access, &address);
    }
    if (!list)
        return false;
    freeaddrinfo(list);
    return good;
}
