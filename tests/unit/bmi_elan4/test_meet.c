/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Bootstrap: connection information, server tables, the query over TCP, and the handshake to a
 * queue. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "bmi_elan4/conn_info.h"
#include "bmi_elan4/packet.h"
#include "bmi_elan4/servers.h"

static const struct bmi_elan4_range range = {0, 7, 2, 17};
static const unsigned key[4] = {1, 2, 3, 4};

static struct bmi_elan4_conn_info card_of(int node, int context, int wanted)
{
    struct bmi_elan4_conn_info c;

    bmi_elan4_conn_info_fill(&c, &range, key, node, context, 0x1122334455667788, 99);
    if (wanted >= 0)
        c.wanted = (uint32_t)wanted;
    return c;
}

static void conn_info_encoding(void **state)
{
    static const uint8_t golden[BMI_ELAN4_CONN_INFO_BYTES] = {
        'b', 'm',  'e',  '4',  'c',  'a',  'r',  'd',  2,    0,    0,  0, 0, 0, 0, 0, 50, 0,  0,
        0,   0xff, 0xff, 0xff, 0xff, 0,    0,    0,    0,    7,    0,  0, 0, 2, 0, 0, 0,  17, 0,
        0,   0,    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 99, 0, 0, 0, 0, 0, 0,  0};
    uint8_t bytes[BMI_ELAN4_CONN_INFO_BYTES];
    struct bmi_elan4_conn_info c = card_of(3, 4, -1), back;
    (void)state;
    memcpy(bytes, &c, sizeof(c));
    assert_memory_equal(bytes, golden, 56);
    assert_int_equal(bmi_elan4_conn_info_decode(bytes, &back), 0);
    assert_memory_equal(&back, &c, sizeof(c));
    bytes[0] ^= 1;
    assert_int_equal(bmi_elan4_conn_info_decode(bytes, &back), -EPROTO);
    c.generation = 0;
    memcpy(bytes, &c, sizeof(c));
    assert_int_equal(bmi_elan4_conn_info_decode(bytes, &back), -EPROTO);
}

/* The header of a packet in a slot. */
static void packet_encoding(void **state)
{
    static const uint8_t golden[ELAN_HEADER] = {0xb1, 4, 0x34, 0x02, 5, 0, 0,    0, 8, 7, 6,
                                                5,    4, 3,    2,    1, 9, 0,    0, 0, 3, 0,
                                                0,    0, 0x00, 0x10, 0, 0, 0x60, 7, 0, 0};
    const struct elan_packet p = {.kind = ELAN_MESSAGE,
                                  .bytes = 0x234,
                                  .link = 5,
                                  .to = 0x0102030405060708,
                                  .seq = 9,
                                  .from = 3,
                                  .arg = 4096,
                                  .offset = 0x760};
    uint8_t bytes[ELAN_HEADER];
    (void)state;
    elan_packet_encode(&p, bytes);
    assert_memory_equal(bytes, golden, sizeof(bytes));
}

static void conn_info_is_judged(void **state)
{
    const struct bmi_elan4_conn_info mine = card_of(0, 2, -1);
    struct bmi_elan4_conn_info c = card_of(1, 3, 0);
    (void)state;
    assert_int_equal(bmi_elan4_conn_info_judge(&mine, &c), BMI_ELAN4_WELCOME);
    c.wanted = 1;
    assert_int_equal(bmi_elan4_conn_info_judge(&mine, &c), BMI_ELAN4_OTHER);
    c.wanted = BMI_ELAN4_ANY_PROCESS;
    assert_int_equal(bmi_elan4_conn_info_judge(&mine, &c), BMI_ELAN4_WELCOME);
    c.key ^= 1;
    assert_int_equal(bmi_elan4_conn_info_judge(&mine, &c), BMI_ELAN4_KEY);
    c.range.high_context++;
    assert_int_equal(bmi_elan4_conn_info_judge(&mine, &c), BMI_ELAN4_RANGE);
    c.version++;
    assert_int_equal(bmi_elan4_conn_info_judge(&mine, &c), BMI_ELAN4_VERSION);
    c = card_of(1, 3, 0);
    c.vp = 128; /* of 0 to 127 */
    assert_int_equal(bmi_elan4_conn_info_judge(&mine, &c), BMI_ELAN4_RANGE);
    c.vp = 0x80000001;
    assert_int_equal(bmi_elan4_conn_info_judge(&mine, &c), BMI_ELAN4_RANGE);
    for (uint32_t v = 0; v <= BMI_ELAN4_VERDICT_COUNT; v++)
        assert_non_null(bmi_elan4_verdict_text(v));
}

static int port_of(const struct bmi_elan4_where *w)
{
    return ntohs(((const struct sockaddr_in *)&w->tcp)->sin_port);
}

static void server_table_is_parsed(void **state)
{
    static const char *const bad[] = {"x",
                                      "0x",
                                      "0x0",
                                      "0xg",
                                      "1=",
                                      "=0x5",
                                      "a=0x5",
                                      "1:=0x5",
                                      ":2=0x5",
                                      "0x5,",
                                      "127.0.0.1",
                                      "127.0.0.1:0",
                                      ",0x5",
                                      ":3340",
                                      "127.0.0.1:x",
                                      "1=2=0x5",
                                      "127.0.0.1:65536",
                                      "0x10000000000000000",
                                      "1:2:3=0x5"};
    struct bmi_elan4_servers *s;
    struct bmi_elan4_where w;
    char why[200];
    (void)state;
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        why[0] = 0;
        assert_int_equal(bmi_elan4_servers_new(bad[i], &s, why, sizeof(why)), -EINVAL);
        assert_true(why[0]);
    }
    char *long_one = malloc(500);
    assert_non_null(long_one);
    memset(long_one, '1', 499);
    long_one[499] = 0;
    assert_int_equal(bmi_elan4_servers_new(long_one, &s, why, sizeof(why)), -EINVAL);
    free(long_one);
    assert_int_equal(bmi_elan4_servers_new("", &s, why, sizeof(why)), 0);
    assert_int_equal(bmi_elan4_servers_find(s, &range, 0, 2, &w), -ENOENT);
    bmi_elan4_servers_free(s);

    assert_int_equal(bmi_elan4_servers_new("0xabc0", &s, why, sizeof(why)), 0);
    assert_int_equal(bmi_elan4_servers_find(s, &range, 5, 2, &w), 0);
    assert_true(w.queue == 0xabc0 && w.tcp_length == 0);
    assert_int_equal(bmi_elan4_servers_find(s, &range, 8, 2, &w), -EINVAL);
    bmi_elan4_servers_free(s);

    const char *text = "3:4=0x10,*=127.0.0.1:1000,3=127.0.0.1:2000,4:4=127.0.0.1:3000,"
                       "5=127.0.0.1:65535,6=[127.0.0.1]:7";
    assert_int_equal(bmi_elan4_servers_new(text, &s, why, sizeof(why)), 0);
    assert_int_equal(bmi_elan4_servers_find(s, &range, 3, 4, &w), 0);
    assert_true(w.queue == 0x10);
    assert_int_equal(bmi_elan4_servers_find(s, &range, 3, 5, &w), 0);
    assert_true(w.queue == 0 && w.tcp_length == sizeof(struct sockaddr_in));
    assert_int_equal(port_of(&w), 2003);
    assert_int_equal(bmi_elan4_servers_find(s, &range, 4, 4, &w), 0);
    assert_int_equal(port_of(&w), 3000);
    assert_int_equal(bmi_elan4_servers_find(s, &range, 4, 3, &w), 0);
    assert_int_equal(port_of(&w), 1000 + 4 * 16 + 1);
    assert_int_equal(bmi_elan4_servers_find(s, &range, 5, 2, &w), 0);
    assert_int_equal(bmi_elan4_servers_find(s, &range, 5, 3, &w), -EINVAL);
    bmi_elan4_servers_free(s);
}

/* ---- Unresolved hosts ---- */

static atomic_bool silent; /* lookups fail without an answer, */
static atomic_bool hangs;  /* or hang */
static atomic_int lookups;

int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list)
{
    bool late = strncmp(name, "late", 4) == 0;

    while (late && hangs)
        usleep(1000);
    lookups += late;
    if (late && silent)
        return EAI_AGAIN;
    return __real_getaddrinfo(late ? "127.0.0.1" : name, service, hints, list);
}

/* Queries until a running lookup has ended, for 5 s at most. */
static int find_at_last(struct bmi_elan4_servers *s, int node, struct bmi_elan4_where *w)
{
    int before = lookups, rc = -EAGAIN;

    for (int i = 0; i < 5000 && rc == -EAGAIN && lookups - before < 3; i++) {
        rc = bmi_elan4_servers_find(s, &range, node, 2, w);
        usleep(1000);
    }
    return rc;
}

/* An unresolvable host affects only its own server, and is found later. */
static void unresolved_host_is_found_later(void **state)
{
    struct bmi_elan4_servers *s;
    struct bmi_elan4_where w;
    char why[200] = "";
    (void)state;
    silent = true;
    hangs = false;
    lookups = 0;
    assert_int_equal(bmi_elan4_servers_new("1=late-one:20,2=127.0.0.1:30,3=late-two:40,4=0x10",
                                           &s, why, sizeof(why)),
                     0);
    assert_int_equal(lookups, 2);
    assert_non_null(strstr(bmi_elan4_servers_why(s), "late-two"));
    assert_non_null(strstr(bmi_elan4_servers_why(s), gai_strerror(EAI_AGAIN)));
    assert_int_equal(bmi_elan4_servers_find(s, &range, 2, 2, &w), 0);
    assert_int_equal(port_of(&w), 30);
    assert_int_equal(bmi_elan4_servers_find(s, &range, 4, 2, &w), 0);
    assert_int_equal(lookups, 2);
    assert_int_equal(find_at_last(s, 1, &w), -EAGAIN);
    assert_true(lookups >= 5); /* repeatedly */
    assert_non_null(strstr(bmi_elan4_servers_why(s), "late-one"));
    silent = false;
    assert_int_equal(find_at_last(s, 1, &w), 0);
    assert_int_equal(port_of(&w), 20);
    assert_int_equal(find_at_last(s, 3, &w), 0);
    assert_int_equal(port_of(&w), 40);
    bmi_elan4_servers_free(s);
}

/* Neither a query nor freeing the table waits for a hanging lookup. */
static void hanging_lookup_delays_no_query(void **state)
{
    struct bmi_elan4_servers *s;
    struct bmi_elan4_where w;
    char why[200] = "";
    (void)state;
    silent = true;
    assert_int_equal(bmi_elan4_servers_new("1=late:20", &s, why, sizeof(why)), 0);
    lookups = 0;
    hangs = true;
    for (int i = 0; i < 3; i++)
        assert_int_equal(bmi_elan4_servers_find(s, &range, 1, 2, &w), -EAGAIN);
    assert_int_equal(lookups, 0);
    bmi_elan4_servers_free(s);
    hangs = false;
    for (int i = 0; i < 5000 && lookups < 1; i++)
        usleep(1000);
    usleep(20000); /* its thread frees it, which a sanitizer checks */
    assert_int_equal(lookups, 1);
}

/* ---- Bootstrap servers ---- */

static struct bmi_elan4_bootstrap *open_desk(struct sockaddr_in *at)
{
    const struct bmi_elan4_conn_info mine = card_of(0, 2, -1);
    static struct bmi_elan4_bootstrap bootstrap;
    socklen_t size = sizeof(*at);

    *at =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(
        bmi_elan4_bootstrap_open((struct sockaddr *)at, sizeof(*at), &mine, &bootstrap), 0);
    assert_int_equal(getsockname(bootstrap.listener, (struct sockaddr *)at, &size), 0);
    return &bootstrap;
}

/* Runs a query to its end, with the server, if any. */
static int call_out(struct bmi_elan4_bootstrap *bootstrap, const struct sockaddr_in *at,
                    struct bmi_elan4_conn_info *theirs)
{
    struct bmi_elan4_query call;
    int rc = bmi_elan4_query_begin((const struct sockaddr *)at, sizeof(*at), &call);

    if (rc < 0)
        return rc;
    for (int i = 0; i < 5000 && (rc = bmi_elan4_query_step(&call, theirs)) == -EAGAIN; i++) {
        struct pollfd p[2] = {{call.fd, POLLIN, 0},
                              {bootstrap != NULL ? bootstrap->listener : -1, POLLIN, 0}};
        poll(p, 2, 1000);
        if (bootstrap != NULL)
            bmi_elan4_bootstrap_serve(bootstrap);
    }
    bmi_elan4_query_end(&call);
    return rc;
}

static int connection_to(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)at, sizeof(*at)), 0);
    return fd;
}

/* Serves until a number of cards was sent. */
static void serve(struct bmi_elan4_bootstrap *bootstrap, int cards)
{
    while (cards > 0) {
        struct pollfd p = {bootstrap->listener, POLLIN, 0};
        assert_int_equal(poll(&p, 1, 5000), 1);
        cards -= bmi_elan4_bootstrap_serve(bootstrap);
    }
    assert_int_equal(cards, 0);
}

/* Clients that say nothing are served and disconnected like others. */
static void silent_visitors(void **state)
{
    enum { MANY = 100 };
    struct sockaddr_in at;
    struct bmi_elan4_bootstrap *bootstrap = open_desk(&at);
    struct bmi_elan4_conn_info theirs;
    int fd[MANY];
    (void)state;
    for (int i = 0; i < MANY; i++)
        fd[i] = connection_to(&at);
    assert_in_range(bmi_elan4_bootstrap_serve(bootstrap), 1, MANY - 1);
    assert_true(bootstrap->behind); /* others are served later */
    assert_int_equal(call_out(bootstrap, &at, &theirs), 0);
    for (int i = 0; i < MANY; i++) {
        uint8_t conn_info[2 * BMI_ELAN4_CONN_INFO_BYTES];
        assert_int_equal(recv(fd[i], conn_info, sizeof(conn_info), MSG_WAITALL),
                         BMI_ELAN4_CONN_INFO_BYTES);
        close(fd[i]);
    }
    assert_int_equal(bmi_elan4_bootstrap_serve(bootstrap), 0);
    assert_false(bootstrap->behind);
    bmi_elan4_bootstrap_close(bootstrap);
}

static bool no_more; /* out of descriptors */

/* Replaces libc's function for the server. A limit by setrlimit would do, but valgrind emulates
 * that and closes descriptors accepted beyond it. */
int accept4(int fd, struct sockaddr *addr, socklen_t *length, int flags)
{
    if (no_more) {
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_accept4, fd, addr, length, flags);
}

int accept(int fd, struct sockaddr *addr, socklen_t *length)
{
    return no_more ? (errno = EMFILE, -1) : (int)syscall(SYS_accept4, fd, addr, length, 0);
}

/* Without a free descriptor waiting clients are served when there is one. */
static void no_descriptor(void **state)
{
    struct sockaddr_in at;
    struct bmi_elan4_bootstrap *bootstrap = open_desk(&at);
    int fd[2] = {connection_to(&at), connection_to(&at)};
    (void)state;
    no_more = true;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(bmi_elan4_bootstrap_serve(bootstrap), 0);
        assert_true(bootstrap->behind);
    }
    no_more = false;
    serve(bootstrap, 2);
    assert_false(bootstrap->behind);
    for (int i = 0; i < 2; i++)
        close(fd[i]);
    bmi_elan4_bootstrap_close(bootstrap);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(conn_info_encoding),
        cmocka_unit_test(packet_encoding),
        cmocka_unit_test(conn_info_is_judged),
        cmocka_unit_test(server_table_is_parsed),
        cmocka_unit_test(unresolved_host_is_found_later),
        cmocka_unit_test(hanging_lookup_delays_no_query),
        cmocka_unit_test(silent_visitors),
        cmocka_unit_test(no_descriptor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
