/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages of sizes beyond 31 or 32 bits, and addresses with a scope. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/contract/contract.h"

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

static char *map_message(int64_t size)
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

static void fill_message(char *memory, int64_t size)
{
    for (int i = 0; i < MARKS; i++)
        fill(memory + marks[i], at_mark(i, size), TAG, i);
    if (size > BETWEEN)
        fill(memory + MARK, MARK, TAG, MARKS);
}

static void check_message(const char *memory, int64_t size)
{
    static const char zeros[MARK];

    for (int i = 0; i < MARKS; i++) {
        int64_t here = at_mark(i, size);

        CHECK(is_filled(memory + marks[i], here, TAG, i));
        if (marks[i] <= size) /* unchanged behind the message */
            CHECK(memcmp(memory + marks[i] + here, zeros, (size_t)(MARK - here)) == 0);
    }
    if (size > BETWEEN)
        CHECK(is_filled(memory + MARK, MARK, TAG, MARKS));
}

/* ---- A server for one message at a time ---- */

static const char *uri;

static void serve_message(const struct BMI_unexpected_info *info, bmi_context_id context)
{
    struct reply reply = {.pid = (int32_t)getpid()};
    struct request ask;
    struct flight f, answer;

    memcpy(&ask, info->buffer, sizeof(ask));
    CHECK_EQUAL(BMI_unexpected_free(info->addr, info->buffer), 0);
    char *memory = map_message(ask.size);
    if (ask.ask == ASK_TAKE) {
        post_recv(&f, info->addr, memory, ask.size, ask.tag, context);
    } else {
        fill_message(memory, ask.size);
        post_send(&f, info->addr, memory, ask.size, ask.tag, context);
    }
    wait_for(context, &f);
    CHECK_EQUAL(f.error, 0);
    CHECK_EQUAL(f.actual, ask.size);
    if (ask.ask == ASK_TAKE)
        check_message(memory, ask.size);
    CHECK(munmap(memory, mapped(ask.size)) == 0);
    post_send(&answer, info->addr, &reply, sizeof(reply), ask.reply_tag, context);
    wait_for(context, &answer);
    CHECK_EQUAL(answer.error, 0);
}

static void server_of(int messages, int ready)
{
    struct BMI_unexpected_info info;
    bmi_context_id context;
    int n;

    CHECK_EQUAL(BMI_initialize(test_network()->method, uri, BMI_INIT_SERVER, NULL), 0);
    CHECK_EQUAL(BMI_open_context(&context), 0);
    CHECK(write(ready, "r", 1) == 1);
    while (messages > 0) {
        CHECK(BMI_testunexpected(1, &n, &info, 10) >= 0);
        if (n > 0) {
            serve_message(&info, context);
            messages--;
        }
    }
    BMI_close_context(context);
    CHECK_EQUAL(BMI_finalize(), 0);
}

static void message(struct client *c, enum ask what, int64_t size)
{
    char *memory = map_message(size);
    struct flight f;

    if (what == ASK_GIVE) {
        post_recv(&f, c->server, memory, size, TAG, c->context);
    } else {
        fill_message(memory, size);
        post_send(&f, c->server, memory, size, TAG, c->context);
    }
    ask_begin(c, (struct request){.ask = (int32_t)what, .tag = TAG, .count = 1, .size = size});
    wait_for(c->context, &f);
    CHECK_EQUAL(f.error, 0);
    CHECK_EQUAL(f.actual, size);
    ask_end(c);
    if (what == ASK_GIVE)
        check_message(memory, size);
    CHECK(munmap(memory, mapped(size)) == 0);
}

static void client_body(void (*client)(struct client *c))
{
    struct client c = {.number = 0};

    CHECK_EQUAL(BMI_initialize(NULL, NULL, 0, NULL), 0);
    CHECK_EQUAL(BMI_open_context(&c.context), 0);
    CHECK_EQUAL(BMI_addr_lookup(&c.server, uri, NULL), 0);
    client(&c);
    client_stop(&c);
}

static void run_messages(void (*client)(struct client *c), int messages)
{
    int ready[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(3 * PATIENCE_S);
        server_of(messages, ready[1]);
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(3 * PATIENCE_S);
        client_body(client);
        _exit(0);
    }
    wait_client(pid);
    wait_client(server);
}

/* ---- Sizes ---- */

static void client_of_31_bits(struct client *c)
{
    message(c, ASK_TAKE, 2 * GIB - 1);
    message(c, ASK_GIVE, 2 * GIB + 1);
}

static void sizes_around_31_bits_arrive(void **state)
{
    (void)state;
    new_test();
    uri = test_uri();
    run_messages(client_of_31_bits, 2);
}

static void client_of_32_bits(struct client *c)
{
    message(c, ASK_TAKE, 4 * GIB + 5);
}

static void size_beyond_32_bits_arrives(void **state)
{
    (void)state;
    new_test();
    uri = test_uri();
    run_messages(client_of_32_bits, 1);
}

/* ---- IPv6 link-local addresses ---- */

/* Stores a link-local address of this machine as text; returns false if there is none. */
static bool link_local(char *text, size_t room)
{
    char host[INET6_ADDRSTRLEN];
    struct ifaddrs *all, *at;
    bool found = false;

    assert_int_equal(getifaddrs(&all), 0);
    for (at = all; at && !found; at = at->ifa_next) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)(const void *)at->ifa_addr;

        if (!a || a->sin6_family != AF_INET6 || !(at->ifa_flags & IFF_UP) ||
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
    char host[100], text[150];
    const char *port;

    (void)state;
    if (!link_local(host, sizeof(host)))
        skip();
    new_test();
    if (strcmp(test_network()->scheme, "ib") == 0) {
        port = strrchr(test_uri(), ':');
        snprintf(text, sizeof(text), "ib://%s%s", host, port);
        uri = text;
    } else {
        port = strrchr(getenv("BMI_ELAN4_SERVER_ADDR"), ':');
        snprintf(text, sizeof(text), "%s%s", host, port);
        setenv("BMI_ELAN4_SERVER_ADDR", text, 1);
        uri = test_uri();
    }
    run_messages(client_of_small, 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_around_31_bits_arrive),
        cmocka_unit_test(size_beyond_32_bits_arrives),
        cmocka_unit_test(link_local_address_is_reached),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
