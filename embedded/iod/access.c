/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/access.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_MAX   256
#define IMAGE_BITS 96 /* bits before the IPv4 address in a mapped address */
#define NODE_BITS  -1 /* the rule is a node number */

/* Network; IPv4 as IPv4-mapped IPv6, so that both compare alike. */
struct rule {
    unsigned char network[16];
    int bits;
    char node[12];
};

struct access {
    int count;
    struct rule rule[];
};

static bool numeric(const char *text, unsigned char *out)
{
    static const unsigned char image[12] = {[10] = 0xff, [11] = 0xff};
    char plain[INET6_ADDRSTRLEN];
    size_t length = strcspn(text, "%"); /* a scope follows */

    if (length >= sizeof plain)
        return false;
    memcpy(plain, text, length);
    plain[length] = 0;
    if (inet_pton(AF_INET6, plain, out) == 1)
        return true;
    memcpy(out, image, sizeof image);
    return inet_pton(AF_INET, plain, out + sizeof image) == 1;
}

static bool same_network(const unsigned char *a, const unsigned char *b, int bits)
{
    return memcmp(a, b, (size_t)bits / 8) == 0 &&
           (bits % 8 == 0 || (a[bits / 8] ^ b[bits / 8]) >> (8 - bits % 8) == 0);
}

/* ---- construction ---- */

/* Parses a prefix length, counted for the mapped address. */
static bool read_bits(const char *text, bool v4, int *bits)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);

    *bits = (int)value + (v4 ? IMAGE_BITS : 0);
    return end != text && *end == 0 && value >= 0 && value <= (v4 ? 32 : 128);
}

/* Reads one item, which is modified.  Returns the fault; NULL: none. */
static const char *read_item(char *item, struct rule *rule)
{
    char *slash = strchr(item, '/');
    size_t length;

    rule->bits = 128;
    if (slash != NULL)
        *slash++ = 0;
    length = strlen(item);
    if (length > 1 && item[0] == '[' && item[length - 1] == ']') {
        item[length - 1] = 0;
        item++;
    }
    if (numeric(item, rule->network))
        return slash == NULL || read_bits(slash, strchr(item, ':') == NULL, &rule->bits)
                   ? NULL
                   : "invalid prefix length; give a network like 10.1.0.0/16";
    if (slash != NULL || !*item || strspn(item, "0123456789") != length ||
        length >= sizeof rule->node)
        return "names are not looked up; give an address, or a network like 10.1.0.0/16";
    rule->bits = NODE_BITS;
    memcpy(rule->node, item, length + 1);
    return NULL;
}

struct access *access_new(const char *text, char *why, size_t size)
{
    char *copy = strdup(text);
    const char *fault = NULL;
    struct access *access;
    size_t count = 1;

    for (const char *at = text; *at; at++)
        count += *at == ',';
    access = calloc(1, sizeof *access + count * sizeof access->rule[0]);
    if (copy == NULL || access == NULL) {
        fault = "no memory";
        snprintf(why, size, "%s", fault);
    }
    for (char *at = copy, *next; at != NULL && fault == NULL; at = next) {
        char item[HOST_MAX];

        next = strchr(at, ',');
        if (next != NULL)
            *next++ = 0;
        snprintf(item, sizeof item, "%s", at);
        fault = read_item(at, &access->rule[access->count++]);
        if (fault != NULL)
            snprintf(why, size, "'%s': %s", item, fault);
    }
    free(copy);
    if (fault == NULL)
        return access;
    free(access);
    return NULL;
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
    const char *at = scheme != NULL ? scheme + 3 : uri;
    size_t length = *at == '[' ? strcspn(++at, "]") : strcspn(at, ":/,");

    if (length == 0 || length >= size)
        return false;
    memcpy(host, at, length);
    host[length] = 0;
    return true;
}

bool access_admits(const struct access *access, const char *host)
{
    unsigned char address[16];
    bool is_address = numeric(host, address);

    for (int i = 0; i < access->count; i++) {
        const struct rule *rule = &access->rule[i];

        if (rule->bits == NODE_BITS
                ? strcmp(rule->node, host) == 0
                : is_address && same_network(address, rule->network, rule->bits))
            return true;
    }
    return false;
}
