/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * On-demand paging of user memory (odp=on): memory is not pinned, a registration covers all
 * pages mapped at its addresses at the time, and the engine refuses unmapped memory before the
 * device faults.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cases.h"

enum { SIZE = 300000, MAPPED = 1 << 20 };

/* No copies, and no other registered memory. */
#define ON "odp=on,pack_threshold=1,list_mode=group,eager_ring_bytes=0"

/* Opens two engines with on-demand paging; skips if the device has none. */
static void open_on_demand(struct pair *p, const char *options)
{
    struct node *n;
    int rc;

    if (strcmp(lane.ops->scheme, "ib") != 0)
        skip();
    bed_options(options);
    rc = node_try("asks", NULL, &n);
    if (rc == -EOPNOTSUPP)
        skip();
    assert_int_equal(rc, 0);
    if (strstr(n->warning, "PROCMAP_QUERY") != NULL)
        skip();
    node_close(n);
    pair_open(p);
}

/* Moves one large message and checks both ends. */
static void move(struct pair *p, struct blob *out, struct blob *in, uint64_t seed)
{
    struct op send, recv;

    blob_fill(out, seed);
    blob_canary(in);
    post_recv(&recv, p->server, p->to_client, in, 3);
    post_send(&send, p->client, p->to_server, out, 3);
    pump_until_both(&send, &recv);
    op_check(&send, SIZE);
    op_check_blob(&recv, in, seed, SIZE);
}

/* Maps fresh memory, at `at` unless NULL; fd -1: anonymous. The kernel does not choose these
 * addresses by itself, so no other mapping takes them while a test has them unmapped. */
static void map(struct blob *b, void *at, int fd)
{
    enum { LOW = 0x30000000, PLACES = 256 };
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;

    memset(b, 0, sizeof *b);
    b->size = MAPPED;
    b->arena = MAP_FAILED;
    if (at != NULL)
        b->arena = mmap(at, MAPPED, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
    for (uintptr_t i = 0; at == NULL && b->arena == MAP_FAILED && i < PLACES; i++)
        b->arena = mmap((void *)(LOW + i * 2 * MAPPED), MAPPED, PROT_READ | PROT_WRITE,
                        flags | MAP_FIXED_NOREPLACE, fd, 0);
    assert_ptr_not_equal(b->arena, MAP_FAILED);
    b->count = 1;
    b->base[0] = b->arena + 100;
    b->length[0] = b->total = SIZE;
}

static uint64_t pinned(const struct node *n)
{
    return node_counter(n, "registered_bytes") - node_counter(n, "demand_bytes");
}

static uint64_t registrations(const struct pair *p)
{
    return node_counter(p->client, "registrations") + node_counter(p->server, "registrations");
}

static uint64_t links_lost(const struct pair *p)
{
    return node_counter(p->client, "link_failures") + node_counter(p->server, "link_failures");
}

/* On a device without on-demand paging, opening with `on` fails, and `auto` pins. */
CASE(demand_is_an_option)
{
    const char *knob = getenv("EMUVERBS_ODP");
    bool has = knob == NULL || strcmp(knob, "0") != 0;
    struct node *n;

    if (strcmp(lane.ops->scheme, "ib") != 0)
        skip();
    bed_options("odp=perhaps");
    assert_int_equal(node_try("wrong", NULL, &n), -EINVAL);
    bed_options("odp=on,rkey_scope=region"); /* keys that stay valid after unmapping */
    assert_int_equal(node_try("open", NULL, &n), -EOPNOTSUPP);
    if (!lane_is_emuverbs())
        return;
    bed_options("odp=on,rkey_scope=operation");
    if (has) {
        assert_int_equal(node_try("on", NULL, &n), 0);
        node_close(n);
    } else {
        assert_int_equal(node_try("on", NULL, &n), -EOPNOTSUPP);
    }
    bed_options("odp=auto");
    assert_int_equal(node_try("auto", NULL, &n), 0);
    node_close(n);
}

CASE(demand_pins_nothing)
{
    enum { BUFFERS = 16 };
    struct blob out[BUFFERS], in[BUFFERS];
    struct pair p;
    uint64_t client, server, before;
    int64_t device;

    open_on_demand(&p, ON ",regcache_entries=1024");
    for (int i = 0; i < BUFFERS; i++) {
        map(&out[i], NULL, -1);
        map(&in[i], NULL, -1);
    }
    for (int i = 0; i < 20; i++) /* let the link get all its buffers */
        move(&p, &out[0], &in[0], 1);
    client = pinned(p.client);
    server = pinned(p.server);
    device = lane_counter("pinned_bytes");
    before = registrations(&p);
    for (int i = 1; i < BUFFERS; i++)
        move(&p, &out[i], &in[i], (uint64_t)i);
    assert_int_equal(pinned(p.client), client);
    assert_int_equal(pinned(p.server), server);
    assert_int_equal(lane_counter("pinned_bytes"), device);
    if (!registers_each(p.server)) { /* one registration each, for all uses */
        assert_true(node_counter(p.client, "demand_bytes") >= (uint64_t)BUFFERS * SIZE);
        assert_true(node_counter(p.server, "demand_bytes") >= (uint64_t)BUFFERS * SIZE);
        assert_int_equal(registrations(&p) - before, 2 * (BUFFERS - 1));
        for (int i = 1; i < BUFFERS; i++)
            move(&p, &out[i], &in[i], (uint64_t)i);
        assert_int_equal(registrations(&p) - before, 2 * (BUFFERS - 1));
    }
    for (int i = 0; i < BUFFERS; i++) {
        munmap(out[i].arena, MAPPED);
        munmap(in[i].arena, MAPPED);
    }
    pair_exchange(&p, SIZE, 4);
}

/* A message moves the pages mapped at its time, without a new registration: after remapping,
 * discarding, mapping a file, and fork. */
CASE(demand_follows_mappings)
{
    char name[] = "/tmp/demand-XXXXXX";
    int fd = mkstemp(name);
    struct blob out, in;
    struct pair p;
    uint64_t before;
    pid_t child;

    assert_true(fd >= 0);
    unlink(name);
    assert_int_equal(ftruncate(fd, MAPPED), 0);
    open_on_demand(&p, ON ",regcache_entries=1024");
    map(&out, NULL, -1);
    map(&in, NULL, -1);
    for (int i = 0; i < 20; i++)
        move(&p, &out, &in, 1);
    before = registrations(&p);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(munmap(out.arena, MAPPED), 0);
        map(&out, out.arena, -1);
        move(&p, &out, &in, 2);
        assert_int_equal(munmap(in.arena, MAPPED), 0);
        map(&in, in.arena, i == 1 ? fd : -1);
        move(&p, &out, &in, 3);
        assert_int_equal(madvise(out.arena, MAPPED, MADV_DONTNEED), 0);
        move(&p, &out, &in, 4);
        map(&out, out.arena, i == 0 ? fd : -1);
        move(&p, &out, &in, 5);
        fflush(NULL);
        child = fork(); /* make all pages copy-on-write */
        if (child == 0) {
            memset(out.base[0], 0, SIZE);
            _exit(0);
        }
        assert_int_equal(waitpid(child, NULL, 0), child);
        move(&p, &out, &in, 6);
    }
    if (!registers_each(p.server))
        assert_int_equal(registrations(&p), before);
    munmap(out.arena, MAPPED);
    munmap(in.arena, MAPPED);
    close(fd);
}

/* Unreadable or unwritable memory is reported as usual, even if cached, and the link stays
 * up. */
CASE(demand_is_looked_at)
{
    struct blob out, in;
    struct op send, recv;
    struct pair p;
    uint64_t lost;

    open_on_demand(&p, ON ",regcache_entries=1024");
    map(&out, NULL, -1);
    map(&in, NULL, -1);
    for (int i = 0; i < 2; i++) {
        move(&p, &out, &in, 1);
        lost = links_lost(&p);
        /* a read-only source is sent, by a copy or in place */
        blob_fill(&out, 2);
        assert_int_equal(mprotect(out.arena, MAPPED, PROT_READ), 0);
        blob_canary(&in);
        post_recv(&recv, p.server, p.to_client, &in, 3);
        post_send(&send, p.client, p.to_server, &out, 3);
        pump_until_both(&send, &recv);
        op_check_blob(&recv, &in, 2, SIZE);
        assert_int_equal(mprotect(out.arena, MAPPED, PROT_READ | PROT_WRITE), 0);
        /* a read-only sink, and an unmapped one */
        for (int gone = 0; gone < 2; gone++) {
            if (gone)
                assert_int_equal(munmap(in.arena, MAPPED), 0);
            else
                assert_int_equal(mprotect(in.arena, MAPPED, PROT_READ), 0);
            post_recv(&recv, p.server, p.to_client, &in, 3);
            post_send(&send, p.client, p.to_server, &out, 3);
            pump_until_both(&send, &recv);
            op_check_error(&recv, -EFAULT, -EFAULT);
            if (!gone)
                assert_int_equal(mprotect(in.arena, MAPPED, PROT_READ | PROT_WRITE), 0);
        }
        assert_int_equal(links_lost(&p), lost);
        map(&in, in.arena, -1);
    }
    move(&p, &out, &in, 7);
    munmap(out.arena, MAPPED);
    munmap(in.arena, MAPPED);
}

/* Unmapping memory in the middle of its operation fails the operation and perhaps the link,
 * nothing else. */
CASE(demand_is_lost_in_the_middle)
{
    struct blob out, in;
    struct op send, recv;
    struct pair p;

    open_on_demand(&p, ON ",regcache_entries=1024,backoff_max_ms=5");
    for (int i = 0; i < 24; i++) {
        struct blob *victim = i & 1 ? &out : &in;

        map(&out, NULL, -1);
        map(&in, NULL, -1);
        blob_fill(&out, 1);
        blob_canary(&in);
        if (i & 2)
            post_recv(&recv, p.server, p.to_client, &in, 3);
        post_send(&send, p.client, p.to_server, &out, 3);
        if (!(i & 2))
            post_recv(&recv, p.server, p.to_client, &in, 3);
        pump_times(i / 4);
        assert_int_equal(munmap(victim->arena, MAPPED), 0);
        pump_times(100);
        op_cancel(&recv);
        op_cancel(&send);
        pump_until_both(&send, &recv);
        assert_int_equal(send.reports, 1);
        assert_int_equal(recv.reports, 1);
        if (victim == &out && recv.error == 0) /* read before the unmapping */
            blob_check(&in, 1, SIZE);
        munmap(victim == &out ? in.arena : out.arena, MAPPED);
        pair_reconnect(&p);
        pair_exchange(&p, SIZE, 100 + i);
    }
}
