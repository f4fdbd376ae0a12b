/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lists of hosts and networks. */
#include "config.h"
#include "tests/unit/common/unit.h"
#include "embedded/iod/access.h"

static struct access *made(const char *text)
{
    char why[300] = "";
    struct access *access = access_new(text, why, sizeof why);

    assert_non_null(access);
    assert_string_equal(why, "");
    return access;
}

static bool admits(const char *list, const char *host)
{
    struct access *access = made(list);
    bool yes = access_admits(access, host);

    access_free(access);
    return yes;
}

static void networks_admitted_by_prefix(void **state)
{
    (void)state;
    assert_true(admits("10.1.0.0/16", "10.1.255.255"));
    assert_false(admits("10.1.0.0/16", "10.2.0.0"));
    assert_true(admits("10.1.2.128/25", "10.1.2.129"));
    assert_false(admits("10.1.2.128/25", "10.1.2.127"));
    assert_true(admits("0.0.0.0/0", "192.0.2.77"));
    assert_false(admits("0.0.0.0/0", "2001:db8::1"));
    assert_true(admits("::/0", "192.0.2.77"));
    assert_true(admits("2001:db8::/33", "2001:db8:7fff::1"));
    assert_false(admits("2001:db8::/33", "2001:db8:8000::1"));
    assert_true(admits("10.0.0.1", "10.0.0.1"));
    assert_true(admits("10.0.0.1", "::ffff:10.0.0.1"));
    assert_false(admits("10.0.0.1", "10.0.0.2"));
    assert_true(admits("[::1],10.0.0.1", "::1"));
    assert_true(admits("10.0.0.1/32,10.0.0.3", "10.0.0.3"));
    assert_false(admits("10.0.0.1", "node7"));
    assert_true(admits("fe80::/10", "fe80::1%eth0"));
}

/* Names are not compared: a node of Elan4 is a number. */
static void nodes_admitted_by_number(void **state)
{
    struct access *access = made("7,192.0.2.9,127.0.0.0/8,::1");

    (void)state;
    assert_true(access_admits(access, "7"));
    assert_false(access_admits(access, "77"));
    assert_false(access_admits(access, "localhost"));
    access_free(access);
}

static void invalid_rules_are_described(void **state)
{
    static const char *const wrong[] = {
        "",        "10.0.0.0/33",        "10.0.0.0/", "host/8",
        "::1/129", "10.0.0.1,,10.0.0.2", "1.2.3.4/x", "no.such.host.invalid"};
    char why[300];

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        why[0] = 0;
        assert_null(access_new(wrong[i], why, sizeof why));
        assert_true(strstr(why, ": ") && why[0] == '\'');
    }
}

static void host_of_address(void **state)
{
    char host[20];

    (void)state;
    assert_true(access_host_of("ib://10.0.0.1:3335", host, sizeof host));
    assert_string_equal(host, "10.0.0.1");
    assert_true(access_host_of("ib://[::1]:3335/x", host, sizeof host));
    assert_string_equal(host, "::1");
    assert_true(access_host_of("elan4://node7", host, sizeof host));
    assert_string_equal(host, "node7");
    assert_true(access_host_of("10.0.0.1:77", host, sizeof host));
    assert_string_equal(host, "10.0.0.1");
    assert_true(access_host_of("[fe80::1%eth0]:77", host, sizeof host));
    assert_string_equal(host, "fe80::1%eth0");
    assert_false(access_host_of("", host, sizeof host));
    assert_false(access_host_of("ib://:5", host, sizeof host));
    assert_false(access_host_of("ib://a.name.that.is.too.long:5", host, sizeof host));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_admitted_by_prefix),
        cmocka_unit_test(nodes_admitted_by_number),
        cmocka_unit_test(invalid_rules_are_described),
        cmocka_unit_test(host_of_address),
    };

    return cmocka_run_group_tests_name("iod/access", tests, NULL, NULL);
}
