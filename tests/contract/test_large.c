/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages of sizes beyond 31 or 32 bits, and addresses with a scope. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "contract.h"

#define GIB (INT64_C(1) << 30)

enum { TAG = 3, BETWEEN = 1 << 22, MARK = 1 << 16 };

/* A large range of little memory: own pages where a size could be truncated or a sign could
 * change, and in between the same 4 MiB of a file repeatedly. */
static const int64_t marks[] = {0, 2 * GIB - MARK, 2 * GIB, 4 * GIB - MARK, 4 * GIB};

enum { MARKS = sizeof(marks) / sizeof(marks[0]) };

static void *map_at(char *at, size_t size, int flags, int fd)
{
    return mmap(at, size, PROT_READ | PROT_WRITE, MAP_FIXED | flags, fd, 0);
}

static size_t mapped(int64_t size)
{
    return ((size_t)size / BETWEEN + 1) * BETWEEN;
}

static void *map_message(int64_t size)
{
    int fd = memfd_create("between", MFD_CLOEXEC);
    char *base =
        mmap(NULL, mapped(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(fd >= 0 && ftruncate(fd, BETWEEN) == 0);
    CHECK(base != MAP_FAILED);
    for (size_t at = 0; at < mapped(size); at += BETWEEN)
        CHECK(map_at(base + at, BETWEEN, MAP_SHARED, fd) != MAP_FAILED);
    for (int i = 0; i < MARKS; i++)
        if (marks[i] <= size)
            CHECK(map_at(base + marks[i], MARK, MAP_PRIVATE | MAP_ANONYMOUS, -1) != MAP_FAILED);
    close(fd);
    return base;
}

/* Returns the number of the message's bytes in the pages of mark i. */
static int64_t at_mark(int i, int64_t size)
{
    int64_t left = size - marks[i];

    return left < 0 ? 0 : left < MARK ? left : MARK;
}

static void fill_message(void *memory, int64_t size, int tag, int number)
{
    (void)number;
    for (int i = 0; i < MARKS; i++)
        fill((char *)memory + marks[i], at_mark(i, size), tag, i);
    if (size > BETWEEN)
        fill((char *)memory + MARK, MARK, tag, MARKS);
}

static bool is_message(const void *base, int64_t size, int tag, int number)
{
    static const char zeros[MARK];
    const char *memory = base;
    bool good = size <= BETWEEN || is_filled(memory + MARK, MARK, tag, MARKS);

    (void)number;
    for (int i = 0; i < MARKS; i++) {
        int64_t here = at_mark(i, size);

        good = good && is_filled(memory + marks[i], here, tag, i);
        if (marks[i] <= size) /* unchanged behind the message */
            good = good && memcmp(memory + marks[i] + here, zeros, (size_t)(MARK - here)) == 0;
    }
    return good;
}

static void unmap_message(void *memory, int64_t size)
{
    CHECK(munmap(memory, mapped(size)) == 0);
}

static void message(struct client *c, enum ask what, int64_t size)
{
    char *memory = map_message(size);
    struct flight f;

    if (what == ASK_GIVE) {
        post_recv(&f, c->server, memory, size, TAG, c->context);
    } else {
        fill_message(memory, size, TAG, 0);
        post_send(&f, c->server, memory, size, TAG, c->context);
    }
    ask(c, (struct request){
               .ask = (int32_t)what, .tag = TAG, .count = 1, .size = size, .expect = size});
    CHECK_EQUAL(c->reply.errors + c->reply.bad, 0);
    wait_for(c->context, &f);
    CHECK_EQUAL(f.error, 0);
    CHECK_EQUAL(f.actual, size);
    CHECK(what == ASK_TAKE || is_message(memory, size, TAG, 0));
    unmap_message(memory, size);
}

static void sizes_around_31_bits_arrive(struct client *c)
{
    message(c, ASK_TAKE, 2 * GIB - 1);
    message(c, ASK_GIVE, 2 * GIB + 1);
}

static void size_beyond_32_bits_arrives(struct client *c)
{
    message(c, ASK_TAKE, 4 * GIB + 5);
}

/* ---- IPv6 link-local addresses ---- */

/* Stores a link-local address of this machine as text; returns false if there is none. */
static bool link_local(char *text, size_t room)
{
    char host[INET6_ADDRSTRLEN];
    struct ifaddrs *all, *at;
    bool found = false;

    assert_int_equal(getifaddrs(&all), 0);
    for (at = all; at != NULL && !found; at = at->ifa_next) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)(const void *)at->ifa_addr;

        if (a == NULL || a->sin6_family != AF_INET6 || !(at->ifa_flags & IFF_UP) ||
            !IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr))
            continue;
        assert_non_null(inet_ntop(AF_INET6, &a->sin6_addr, host, sizeof(host)));
        snprintf(text, room, "[%s%%%s]", host, at->ifa_name);
        found = true;
    }
    freeifaddrs(all);
    return found;
}

static void client_of_small(struct client *c)
{
    message(c, ASK_TAKE, 100);
    message(c, ASK_GIVE, MIXED_MAX);
}

/* Listens and connects at it, with the interface's name. */
static void link_local_address_is_reached(void **state)
{
    static char host[100];

    (void)state;
    if (!link_local(host, sizeof(host)))
        skip();
    test_host = host;
    run_clients(client_of_small, 1);
    test_host = "127.0.0.1";
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ONE_CLIENT(sizes_around_31_bits_arrive),
        ONE_CLIENT(size_beyond_32_bits_arrives),
        cmocka_unit_test(link_local_address_is_reached),
    };

    server_memory =
        (struct server_memory){map_message, fill_message, is_message, unmap_message};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
