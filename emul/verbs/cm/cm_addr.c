/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Addresses of the connection manager: local addresses, and processes listening on them.
 *
 * A claim is the name emuverbs/cm/PS/PORT/ADDRESS (claim.c). Wildcard addresses
 * claim "4:0" or "6:0" ("6:0o" for IPv6 only). The names of a wildcard and of a specific
 * address differ, so collisions between them are searched in /proc/net/unix.
 * Where several network namespaces share the names, each is a host: names of wildcards and of
 * loopback addresses end in its number, and a wildcard has the names of the host's addresses.
 */
#include "emul/verbs/cm/cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

size_t cm_addr_len(const struct sockaddr *sa)
{
    return sa == NULL                  ? 0
           : sa->sa_family == AF_INET  ? sizeof(struct sockaddr_in)
           : sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                       : 0;
}

bool cm_addr_copy(union cm_addr *to, const struct sockaddr *from)
{
    size_t len = cm_addr_len(from);

    memset(to, 0, sizeof(*to));
    if (len)
        memcpy(to, from, len);
    return len != 0;
}

uint16_t cm_addr_port(const struct sockaddr *sa)
{
    const union cm_addr *a = (const union cm_addr *)(const void *)sa;

    return ntohs(sa->sa_family == AF_INET6 ? a->in6.sin6_port : a->in.sin_port);
}

void cm_addr_set_port(struct sockaddr *sa, uint16_t port)
{
    union cm_addr *a = (union cm_addr *)(void *)sa;

    if (sa->sa_family == AF_INET6)
        a->in6.sin6_port = htons(port);
    else
        a->in.sin_port = htons(port);
}

bool cm_addr_is_any(const struct sockaddr *sa)
{
    const union cm_addr *a = (const union cm_addr *)(const void *)sa;

    return sa->sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr)
                                     : a->in.sin_addr.s_addr == 0;
}

bool cm_addr_is_multicast(const struct sockaddr *sa)
{
    const union cm_addr *a = (const union cm_addr *)(const void *)sa;

    return sa->sa_family == AF_INET6  ? IN6_IS_ADDR_MULTICAST(&a->in6.sin6_addr)
           : sa->sa_family == AF_INET ? IN_MULTICAST(ntohl(a->in.sin_addr.s_addr))
                                      : false;
}

/* Maps addresses as the kernel's rdma_cm does, for InfiniBand (default partition) and RoCE. */
void cm_addr_group(const struct emu_knobs *k, const union cm_addr *a, union ibv_gid *gid)
{
    bool v6 = a->sa.sa_family == AF_INET6;
    uint32_t v4 = ntohl(a->in.sin_addr.s_addr);

    memset(gid, 0, sizeof(*gid));
    if (v6 && k->ethernet) {
        memcpy(gid->raw, &a->in6.sin6_addr, 16);
        return;
    }
    if (k->ethernet) {
        gid->raw[10] = gid->raw[11] = 0xff;
    } else {
        gid->raw[0] = 0xff;
        gid->raw[1] = v6 ? (unsigned char)(0x10 | (a->in6.sin6_addr.s6_addr[1] & 15)) : 0x12;
        gid->raw[2] = v6 ? 0x60 : 0x40;
        gid->raw[3] = 1; /* reserved for rdma_cm */
        gid->raw[4] = gid->raw[5] = 0xff;
        v4 &= 0x0fffffff;
    }
    if (v6)
        memcpy(gid->raw + 6, a->in6.sin6_addr.s6_addr + 6, 10);
    for (int i = 0; !v6 && i < 4; i++)
        gid->raw[12 + i] = (unsigned char)(v4 >> (24 - 8 * i));
}

/* Converts an IPv4-mapped IPv6 address to IPv4. */
static union cm_addr plain(const union cm_addr *a)
{
    union cm_addr p = *a;

    if (a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr)) {
        memset(&p, 0, sizeof(p));
        p.in.sin_family = AF_INET;
        p.in.sin_port = a->in6.sin6_port;
        memcpy(&p.in.sin_addr, &a->in6.sin6_addr.s6_addr[12], 4);
    }
    return p;
}

bool cm_addr_equal(const union cm_addr *x, const union cm_addr *y)
{
    union cm_addr a = plain(x), b = plain(y);

    if (a.sa.sa_family != b.sa.sa_family)
        return false;
    if (a.sa.sa_family == AF_INET)
        return a.in.sin_addr.s_addr == b.in.sin_addr.s_addr;
    return memcmp(&a.in6.sin6_addr, &b.in6.sin6_addr, 16) == 0;
}

int cm_addr_local(const struct sockaddr *sa)
{
    union cm_addr a;
    int err = 0;

    cm_addr_copy(&a, sa);
    cm_addr_set_port(&a.sa, 0);
    int s = socket(a.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return errno == EAFNOSUPPORT ? -EADDRNOTAVAIL : -errno;
    if (bind(s, &a.sa, (socklen_t)cm_addr_len(&a.sa)) < 0)
        err = -EADDRNOTAVAIL;
    close(s);
    return err;
}

int cm_addr_source(const union cm_addr *dst, union cm_addr *src)
{
    union cm_addr a = *dst;
    socklen_t len = (socklen_t)cm_addr_len(&dst->sa);
    int s = socket(dst->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int err = 0;

    if (s < 0)
        return -errno;
    if (cm_addr_port(&a.sa) == 0)
        cm_addr_set_port(&a.sa, 1);
    memset(src, 0, sizeof(*src));
    if (connect(s, &a.sa, len) < 0 || getsockname(s, &src->sa, &len) < 0)
        err = -errno;
    close(s);
    cm_addr_set_port(&src->sa, 0);
    return err;
}

bool cm_addr_blackholed(const struct emu_knobs *k, const struct sockaddr *dst)
{
    union cm_addr d, a;
    char one[128];

    cm_addr_copy(&d, dst);
    for (const char *p = k->blackhole; *p;) {
        size_t len = strcspn(p, ",");
        const char *host = one;
        unsigned port = 0;
        snprintf(one, sizeof(one), "%.*s", (int)len, p);
        p += len + (p[len] == ',');
        memset(&a, 0, sizeof(a));
        char *close = one[0] == '[' ? strchr(one, ']') : NULL;
        char *colon = strrchr(one, ':');
        if (close != NULL) {
            host = one + 1;
            if (colon < close)
                colon = NULL;
        } else if (colon != NULL && strchr(one, ':') != colon) {
            colon = NULL; /* an IPv6 address without port */
        }
        if (colon != NULL)
            port = (unsigned)strtoul(colon + 1, NULL, 10);
        if (close != NULL)
            *close = 0;
        else if (colon != NULL)
            *colon = 0;
        if (inet_pton(AF_INET, host, &a.in.sin_addr) == 1)
            a.sa.sa_family = AF_INET;
        else if (inet_pton(AF_INET6, host, &a.in6.sin6_addr) == 1)
            a.sa.sa_family = AF_INET6;
        else
            continue;
        if (cm_addr_equal(&a, &d) && (port == 0 || port == cm_addr_port(dst)))
            return true;
    }
    return false;
}

static bool is_loopback(const union cm_addr *a)
{
    return a->sa.sa_family == AF_INET ? ntohl(a->in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
                                      : IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

/* Returns a number of this process's network namespace; 0: unknown. */
static unsigned long namespace_number(void)
{
    struct stat st;

    return stat("/proc/self/ns/net", &st) == 0 ? (unsigned long)st.st_ino : 0;
}

static void name_of(char *name, size_t size, const union cm_addr *addr, int ps, bool afonly)
{
    union cm_addr a = plain(addr);
    char text[48] = "", where[24] = "";

    if (cm_addr_is_any(&a.sa))
        snprintf(text, sizeof(text),
                 a.sa.sa_family == AF_INET ? "4:0"
                 : afonly                  ? "6:0o"
                                           : "6:0");
    else if (a.sa.sa_family == AF_INET)
        snprintf(text, sizeof(text), "4:%08x", ntohl(a.in.sin_addr.s_addr));
    else
        inet_ntop(AF_INET6, &a.in6.sin6_addr, text, sizeof(text));
    if (emu_names_are_files() && (cm_addr_is_any(&a.sa) || is_loopback(&a)))
        snprintf(where, sizeof(where), "@%lx", namespace_number());
    snprintf(name, size, "emuverbs/cm/%x/%u/%s%s", (unsigned)ps, cm_addr_port(&a.sa), text,
             where);
}

/* Adds the names of this host's addresses to that of a wildcard, for other hosts. */
static void add_addresses(const char *name, const union cm_addr *any, int ps, bool afonly)
{
    struct ifaddrs *all, *i;
    char other[100];
    union cm_addr a;

    if (getifaddrs(&all) < 0)
        return;
    for (i = all; i != NULL; i = i->ifa_next) {
        bool suits =
            i->ifa_addr != NULL && cm_addr_copy(&a, i->ifa_addr) && !is_loopback(&a) &&
            (a.sa.sa_family == any->sa.sa_family || (any->sa.sa_family == AF_INET6 && !afonly));
        if (!suits)
            continue;
        cm_addr_set_port(&a.sa, cm_addr_port(&any->sa));
        name_of(other, sizeof(other), &a, ps, false);
        emu_name_add(name, other);
    }
    freeifaddrs(all);
}

/* Returns 0, or the error if a claimed address overlaps `mine`: as in the kernel, EADDRINUSE
 * for equal addresses, EADDRNOTAVAIL if either is a wildcard. */
static int collision(const char *mine, int ps, uint16_t port)
{
    char prefix[64], line[512];
    int error = 0;
    FILE *f = fopen("/proc/net/unix", "re");

    if (f == NULL)
        return 0;
    snprintf(prefix, sizeof(prefix), "@emuverbs/cm/%x/%u/", (unsigned)ps, port);
    const char *my = mine + strlen(prefix) - 1; /* the name has no @ */
    bool my_any = strcmp(my, "4:0") == 0 || strncmp(my, "6:0", 3) == 0;
    while (!error && fgets(line, sizeof(line), f) != NULL) {
        char *at = strstr(line, prefix);
        if (at == NULL)
            continue;
        char *other = at + strlen(prefix);
        other[strcspn(other, "\n")] = 0;
        bool other_any = strcmp(other, "4:0") == 0 || strncmp(other, "6:0", 3) == 0;
        bool v4only = my[0] == '4' && other[0] == '4';
        bool both6 = my[0] != '4' && other[0] != '4';
        bool dual =
            (my_any && strcmp(my, "6:0") == 0) || (other_any && strcmp(other, "6:0") == 0);
        if ((my_any || other_any) && (v4only || both6 || dual))
            error = -EADDRNOTAVAIL;
        else if (strcmp(my, other) == 0)
            error = -EADDRINUSE;
    }
    fclose(f);
    return error;
}

int cm_addr_claim(const struct sockaddr *sa, int ps, bool reuse, bool afonly)
{
    char name[100];
    union cm_addr a;

    cm_addr_copy(&a, sa);
    name_of(name, sizeof(name), &a, ps, afonly);
    int error = reuse ? 0 : collision(name, ps, cm_addr_port(sa));
    int claimed = error ? error : emu_name_hold(name);
    if (claimed >= 0 && cm_addr_is_any(sa) && emu_names_are_files())
        add_addresses(name, &a, ps, afonly);
    return claimed;
}

int cm_addr_find(const union cm_addr *dst, int ps)
{
    char name[100];
    union cm_addr d = plain(dst), any = {0};
    int pid;

    name_of(name, sizeof(name), &d, ps, false);
    pid = emu_name_holder(name);
    if (pid != -ECONNREFUSED || (emu_names_are_files() && cm_addr_local(&d.sa) != 0))
        return pid;
    any.sa.sa_family = d.sa.sa_family;
    cm_addr_set_port(&any.sa, cm_addr_port(&d.sa));
    name_of(name, sizeof(name), &any, ps, d.sa.sa_family == AF_INET6);
    pid = emu_name_holder(name);
    if (pid != -ECONNREFUSED)
        return pid;
    memset(&any, 0, sizeof(any));
    any.sa.sa_family = AF_INET6;
    cm_addr_set_port(&any.sa, cm_addr_port(&d.sa));
    name_of(name, sizeof(name), &any, ps, false);
    return emu_name_holder(name);
}
