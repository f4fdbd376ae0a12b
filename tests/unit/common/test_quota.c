/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Quotas (quota.c): what peers and hosts may hold, and which peers have the same host. */
#include <stdio.h>
#include <stdlib.h>

#include "plan/split.h"
#include "transport/peer.h"
#include "unit.h"

enum { LIMIT = 1200, MOST = 1000 };

static struct rme rme;
static struct rme_host host[MOST];
static struct rme_peer peer[MOST];

/* Makes `hosts` hosts with `each` peers, which hold nothing: peer i is on host i / each. */
static void make(unsigned hosts, unsigned each, uint64_t limit)
{
    memset(&rme, 0, sizeof(rme));
    memset(host, 0, sizeof(host));
    memset(peer, 0, sizeof(peer));
    rme.quota[RME_QUOTA_RINGS].limit = limit;
    rme.npeer = hosts * each;
    for (unsigned i = 0; i < hosts * each; i++) {
        peer[i].rme = &rme;
        peer[i].host = &host[i / each];
        peer[i].host->npeer++;
    }
}

static uint64_t room(unsigned i)
{
    return rme_quota_room(&peer[i], RME_QUOTA_RINGS);
}

static void hold(unsigned i, uint64_t bytes)
{
    rme_quota_add(&peer[i], RME_QUOTA_RINGS, bytes);
}

static uint64_t left(void)
{
    return rme_quota_left(&rme.quota[RME_QUOTA_RINGS]);
}

/* Holds all that the peer may, and returns that. */
static uint64_t fill(unsigned i)
{
    uint64_t bytes = min_u64(room(i), left());

    hold(i, bytes);
    return bytes;
}

static void half_is_free(void **state)
{
    (void)state;
    make(3, 1, LIMIT);
    assert_int_equal(room(0), LIMIT / 2);
    hold(0, 400);
    assert_int_equal(room(0), 200);
    assert_int_equal(room(1), 200); /* its share and what is free are equal */
    hold(1, 10);
    assert_int_equal(room(1), 190);
    hold(0, 400); /* nothing prevents a user from holding more */
    assert_int_equal(room(0), 0);
    assert_int_equal(room(1), LIMIT / 2 / 3 - 10);
    assert_int_equal(room(2), LIMIT / 2 / 4);
    assert_int_equal(rme.stats.value[RME_C_RING_BYTES], 810);
    hold(0, -(uint64_t)800);
    assert_int_equal(room(2), LIMIT / 2 - 10);
    hold(0, 490);
    assert_int_equal(room(2), LIMIT / 2 / 4); /* more than is free */
    hold(0, 400);
    hold(1, -(uint64_t)10); /* holds nothing any more */
    assert_int_equal(room(2), LIMIT / 2 / 3);
}

/* The share of a host does not depend on its peers. */
static void peers_share_what_their_host_may_hold(void **state)
{
    (void)state;
    make(2, 4, LIMIT);
    assert_int_equal(room(0), 300); /* the other half is for the next peer */
    hold(0, 300);
    assert_int_equal(fill(1), 200);
    assert_false(rme_quota_is_over(&peer[0], RME_QUOTA_RINGS)); /* half is not used */
    assert_int_equal(fill(2), 100);                             /* not 150: the host's share */
    assert_int_equal(fill(3), 0);
    assert_int_equal(rme_quota_host_room(&peer[3], RME_QUOTA_RINGS), 0);
    assert_true(rme_quota_is_over(&peer[0], RME_QUOTA_RINGS));
    assert_false(rme_quota_is_over(&peer[2], RME_QUOTA_RINGS));
    assert_int_equal(rme_quota_host_room(&peer[4], RME_QUOTA_RINGS), 200);
    assert_int_equal(room(4), 100);
    hold(2, -(uint64_t)100);
    assert_int_equal(rme_quota_host_room(&peer[3], RME_QUOTA_RINGS), 100);
    make(2, 100, LIMIT); /* many peers with little do not limit one that needs more */
    for (unsigned i = 1; i < 100; i++)
        hold(i, 1);
    assert_int_equal(room(0), 300 - 99);
    make(1, 4, LIMIT); /* without other hosts */
    assert_int_equal(fill(0), 300);
    assert_int_equal(fill(1), 200);
    assert_int_equal(fill(2), 150);
    assert_int_equal(fill(3), 120);
}

/* ---- Hosts ---- */

/* Returns the host of a peer with this address, at one port more each time.  NULL: without
 * one. */
static struct rme_host *host_at(const char *text)
{
    static unsigned port;
    struct rme_host *found;
    char name[64];

    snprintf(name, sizeof(name), "%s:%u", text != NULL ? text : "", ++port);
    found = rme_host_get(&rme, text != NULL ? name : NULL);
    assert_non_null(found);
    return found;
}

static void peers_of_an_address_have_one_host(void **state)
{
    static const char *const text[] = {"10.0.0.1",  "10.0.0.2",           "0.0.0.0",
                                       "[fe80::1]", "[fe80::2]",          "[fe80:0:0:8000::1]",
                                       "0",         "[fe80::8000:0:0:1]", "1"};
    enum { N = sizeof(text) / sizeof(text[0]) };
    struct rme_host *first[N], *unknown[2];

    (void)state;
    memset(&rme, 0, sizeof(rme));
    assert_int_equal(rme_table_init(&rme.table, 4), 0);
    for (unsigned i = 0; i < N; i++) {
        first[i] = host_at(text[i]);
        for (unsigned k = 0; k < i; k++)
            assert_ptr_not_equal(first[k], first[i]);
    }
    for (unsigned i = 0; i < N; i++) {
        assert_ptr_equal(host_at(text[i]), first[i]);
        assert_int_equal(first[i]->npeer, 2);
    }
    for (unsigned i = 0; i < 2; i++)
        unknown[i] = host_at(NULL);
    assert_ptr_not_equal(unknown[0], unknown[1]);
    for (unsigned i = 0; i < 2; i++)
        rme_host_put(&rme, unknown[i]);
    rme_host_put(&rme, rme_host_get(&rme, NULL));
    rme_host_put(&rme, rme_host_get(&rme, "unknown address"));
    for (unsigned i = 0; i < 2 * N; i++)
        rme_host_put(&rme, first[i / 2]);
    assert_int_equal(rme.table.used, 0);
    rme_table_clear(&rme.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_is_free),
        cmocka_unit_test(peers_share_what_their_host_may_hold),
        cmocka_unit_test(peers_of_an_address_have_one_host),
    };

    return cmocka_run_group_tests_name("quota", tests, NULL, NULL);
}
