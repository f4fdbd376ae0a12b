/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>

#include "unit.h"
#include "base/addr_int.h"

static void expect_part(const char *text, int index, const char *host, const char *port)
{
    struct rme_addr *addr = NULL;
    const struct rme_addr_part *part;

    assert_int_equal(rme_addr_parse("ib", text, &addr), 0);
    part = rme_addr_part(addr, index);
    assert_non_null(part);
    assert_string_equal(part->host, host);
    assert_string_equal(part->port, port);
    rme_addr_put(addr);
}

static void good_addresses(void **state)
{
    (void)state;
    expect_part("ib://host:3335", 0, "host", "3335");
    expect_part("ib://10.0.0.1:1", 0, "10.0.0.1", "1");
    expect_part("ib://a-b_c.d:65535/pvfs2-fs", 0, "a-b_c.d", "65535");
    expect_part("ib://[::1]:5", 0, "::1", "5");
    expect_part("ib://[fe80::1%eth0]:5/fs", 0, "fe80::1%eth0", "5");
    expect_part("tcp://x:1,ib://y:2", 0, "y", "2");
    expect_part("ib://x:1,tcp://bad,ib://y:2/a:b", 1, "y", "2");
    expect_part(" ib://x:1 \tib://y:2\n", 1, "y", "2");
}

static void bad_addresses(void **state)
{
    static const char *const malformed[] = {
        "ib://host",       "ib://host:",    "ib://:5",           "ib://host:x",
        "ib://host:65536", "ib://host:12x", "ib://host:-1",      "ib://::1:5",
        "ib://[::1]5",     "ib://[::1",     "ib://[::1]",        "ib://[::1]:",
        "ib://[host]:5",   "ib://[]:5",     "ib://[fe80::1%]:5", "ib://ho st:5",
        "ib://ho@st:5",    "ib://h:000001", "ib://ok:1,ib://h",  "ib:///fs",
        "ib://host:5:6",
    };
    static const char *const foreign[] = {
        "",         ",",       "tcp://h:1", "ib_exp://h:1", "ib-zone://h:1", "xib://h:1",
        "IB://h:1", "ib:/h:1", "ib//h:1",   "ib",           "ib://",         "elan4://0:1"};
    struct rme_addr *addr = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++)
        assert_int_equal(rme_addr_parse("ib", malformed[i], &addr), -EDESTADDRREQ);
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        assert_int_equal(rme_addr_parse("ib", foreign[i], &addr), -EINVAL);
    assert_null(addr);
}

static void length_is_limited(void **state)
{
    char text[RME_MAX_URI + 64] = "ib://h:1,";
    struct rme_addr *addr = NULL;

    (void)state;
    memset(text + 9, ',', sizeof(text) - 10);
    text[RME_MAX_URI - 1] = '\0';
    assert_int_equal(rme_addr_parse("ib", text, &addr), 0);
    rme_addr_put(addr);
    text[RME_MAX_URI - 1] = ',';
    assert_int_equal(rme_addr_parse("ib", text, &addr), -EDESTADDRREQ);
    memcpy(text, "tcp", 3);
    assert_int_equal(rme_addr_parse("ib", text, &addr), -EINVAL);

    memset(text, 'a', 300);
    memcpy(text, "ib://", 5);
    memcpy(text + 300, ":1", 3);
    assert_int_equal(rme_addr_parse("ib", text, &addr), -EDESTADDRREQ);
}

static void many_parts(void **state)
{
    struct rme_addr *addr = NULL;

    (void)state;
    assert_int_equal(rme_addr_parse("ib", "ib://a:1/fs,tcp://t:9,ib://[::2]:2,ib://c:3", &addr),
                     0);
    assert_int_equal(rme_addr_parts(addr), 3);
    assert_string_equal(rme_addr_name(addr), "ib://a:1,ib://[::2]:2,ib://c:3");
    assert_null(rme_addr_part(addr, 3));
    assert_null(rme_addr_part(addr, -1));
    rme_addr_put(addr);
}

static int match_peer(const char *name, const char *pattern, int netmask)
{
    struct rme_addr *addr = rme_addr_new_passive(name);
    int match;

    assert_non_null(addr);
    match = rme_addr_match(addr, pattern, netmask);
    rme_addr_put(addr);
    return match;
}

static void address_pattern_matching(void **state)
{
    static const struct {
        const char *peer, *pattern;
        int netmask, match;
    } cases[] = {
        {"10.1.2.3", "10.1.2.3", -1, 1},
        {"10.1.2.3", "10.1.2.4", -1, 0},
        {"10.1.2.3", "ib://10.1.2.3:3335/fs", -1, 1},
        {"10.1.2.3", "10.1.2.3:99", -1, 1},
        {"10.1.2.3", "10.1.0.0", 16, 1},
        {"10.1.2.3", "10.1.0.0", 22, 1},
        {"10.1.2.3", "10.1.0.0", 23, 0},
        {"10.1.2.3", "10.1.2.2", 31, 1},
        {"10.1.2.3", "10.1.2.2", 32, 0},
        {"10.1.2.3", "10.1.2.3", 99, 1},
        {"10.1.2.3", "99.0.0.0", 0, 1},
        {"10.1.2.3", "10.1.*", -1, 1},
        {"10.1.2.3", "10.2.*", -1, 0},
        {"10.1.2.3", "10.*.2.3", -1, 1},
        {"10.1.2.3", "*", -1, 1},
        {"10.1.2.3", "ib://10.1.*.*:3335", -1, 1},
        {"10.1.2.3", "10.300.*", -1, 0},
        {"10.1.2.3", "10.1x.*", -1, 0},
        {"10.1.2.3", "10.1.2.3.*", -1, 0},
        {"10.1.2.3", "10.1.2", -1, 0},
        {"10.1.2.3", "", -1, 0},
        {"10.1.2.3", "ib://", -1, 0},
        {"::ffff:10.1.2.3", "10.1.2.0", 24, 1},
        {"10.1.2.3", "::ffff:10.1.2.3", -1, 1},
        {"fe80::1", "::", 0, 1},
        {"10.1.2.3", "fe80::", 0, 0},
        {"fe80::1", "fe80::1", -1, 1},
        {"fe80::1", "[fe80::1]:5", -1, 1},
        {"fe80::1", "ib://[fe80::]:5/fs", 64, 1},
        {"fe80::1", "fe80:0:0:1::", 64, 0},
        {"fe80::1", "fe80::", 127, 1},
        {"fe80::1", "fe80::", 128, 0},
        {"fe80::1", "10.0.0.1", 0, 0},
        {"fe80::1", "10.*", -1, 0},
        {"fe80::1", "ib://*", -1, 1},
        {"fe80::1%eth0", "fe80::1", -1, 1},
        {"10.1.2.3", "node7", -1, -EINVAL},
        {"fe80::1", "ib://node7:3335", -1, -EINVAL},
        {"10.1.2.3", "fe80::1", -1, 0},
        {"node7", "node7", -1, 1},
        {"node7", "ib://NODE7:1", -1, 1},
        {"node7", "node8", -1, -EINVAL},
        {"node7", "ib://*:3335", -1, 1},
        {"node7", "10.1.2.3", -1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char name[64];

        snprintf(name, sizeof(name), strchr(cases[i].peer, ':') != NULL ? "[%s]:99" : "%s:99",
                 cases[i].peer);
        if (match_peer(name, cases[i].pattern, cases[i].netmask) != cases[i].match)
            fail_msg("%s against %s/%d", cases[i].peer, cases[i].pattern, cases[i].netmask);
    }
    assert_int_equal(match_peer("n:1", "n", -1), 1);
    assert_int_equal(match_peer("unknown address", "n", -1), -EINVAL);
    assert_int_equal(match_peer("unknown address", "*", -1), 1);
    assert_int_equal(match_peer("0:3", "elan4://*", -1), 1);
    assert_int_equal(match_peer("0:3", "elan4://node7", -1), -EINVAL);
    assert_int_equal(match_peer("n:1", NULL, -1), 0);
    assert_int_equal(match_peer("n:1", "0.*", -1), 0);
}

/* A passive peer's address matches by the remote address, without an engine or a connection. */

static void ports_to_choose(void **state)
{
    static const struct {
        const char *text;
        bool any;
    } cases[] = {{"ib://a:1", false}, {"ib://a:0", true}, {"ib://a:1,ib://b:0", true}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rme_addr *addr = NULL;

        assert_int_equal(rme_addr_parse("ib", cases[i].text, &addr), 0);
        assert_int_equal(rme_addr_any_port(addr), cases[i].any);
        rme_addr_free(addr);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_addresses),           cmocka_unit_test(bad_addresses),
        cmocka_unit_test(length_is_limited),        cmocka_unit_test(many_parts),
        cmocka_unit_test(address_pattern_matching), cmocka_unit_test(ports_to_choose),
    };

    return cmocka_run_group_tests_name("addr", tests, NULL, NULL);
}
