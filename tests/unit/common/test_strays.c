/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What transcripts (test_peer.c) do not express: late messages for thousands of ended
 * operations, copies and threads, freed addresses.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/engine.h"
#include "scripted.h"
#include "steps.h"

#define LARGE 200000 /* one fragment, by write and by read */
#define COMMON                                                                                 \
    "regcache_entries=0,poll_us=0,keepalive_ms=0,credits=8,pool_bytes=64M,"                    \
    "connect_timeout_ms=600000,"
#define NO_INVITE COMMON "pack_threshold=0,fragment_bytes=1M,rndv=write,early_cts=0,"

static char memory[LARGE];
static int ended; /* operations reported so far */
static struct rme_done done_;

static void open_usual(const char *options)
{
    struct rme_hello hello = scripted_hello();

    scripted_open(options, &hello);
    ended = 0;
}

/* Polls until no event is left; unexpected messages wait. */
static void run(void)
{
    struct rme_done done;
    bool quiet;
    int count;

    do {
        quiet = script_is_quiet();
        count = rme_test_context(scripted.rme, 0, &done, 1, 0);
        assert_in_range(count, 0, 1);
        if (count == 1)
            done_ = done;
        ended += count;
    } while (!quiet || count > 0);
}

/* ---- CANCEL for ended operations ---- */

#define OLD_MAX 16
#define LIVES   8300 /* enough operations to reuse slots and names */

/* An ended operation: our handle of it, and the peer's handle of its other end. */
static struct name {
    uint32_t ours, theirs;
} old[OLD_MAX];
static unsigned nold;

static void remember(uint32_t n, uint32_t ours, uint32_t theirs)
{
    if ((n & (n - 1)) == 0 && nold < OLD_MAX)
        old[nold++] = (struct name){ours, theirs};
}

/* Returns whether the distance to a remembered handle is 0 or a power of two. */
static bool is_time(uint32_t ours)
{
    for (unsigned i = 0; i < nold; i++)
        if (((ours - old[i].ours) & (ours - old[i].ours - 1)) == 0)
            return true;
    return false;
}

static void cancel(uint32_t to, uint32_t from, bool by_sender)
{
    scripted_peer_sends(
        (struct rme_wire_message){.type = RME_WIRE_CANCEL,
                                  .flags = by_sender ? RME_WIRE_F_FROM_SENDER : 0,
                                  .to = to,
                                  .from = from},
        NULL);
}

/* Delivers every CANCEL that a peer may have sent for ended operations, while the operation
 * with these handles is in progress. */
static void cancel_old_ones(uint32_t ours, uint32_t theirs, bool by_sender)
{
    for (unsigned i = 0; i < nold; i++) {
        cancel(old[i].ours, old[i].theirs, by_sender);
        cancel(old[i].ours, theirs, by_sender);
        cancel(ours, old[i].theirs, by_sender); /* as if the handle were reused */
        if (by_sender)
            cancel(0, old[i].theirs, true);
        scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_FIN,
                                                      .status = RME_WIRE_CANCELED,
                                                      .to = old[i].ours},
                            NULL);
    }
    cancel(ours, theirs, !by_sender); /* of the other end */
    scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_FIN,
                                                  .status = RME_WIRE_CANCELED,
                                                  .to = ours},
                        NULL);
}

static uint32_t received_from(struct posted *recv, uint32_t theirs)
{
    scripted_hush();
    scripted_recv(recv, memory, LARGE, 1);
    scripted_peer_sends(
        (struct rme_wire_message){
            .type = RME_WIRE_RTS, .tag = 1, .from = theirs, .total = LARGE, .shape = 1},
        NULL);
    assert_int_equal(scripted_count(RME_WIRE_CTS), 1);
    assert_int_equal(scripted_word(RME_WIRE_CTS, 0)->message.to, theirs);
    return scripted_word(RME_WIRE_CTS, 0)->message.from;
}

static void late_cancel_meets_no_other_receive(void **state)
{
    struct posted recv;
    uint32_t ours = 0, n;

    (void)state;
    nold = 0;
    open_usual(NO_INVITE);
    for (n = 1; n <= LIVES; n++) {
        ours = received_from(&recv, n);
        if (is_time(ours))
            cancel_old_ones(ours, n, true);
        assert_int_equal(recv.reports, 0);
        scripted_imm(ours);
        scripted_check(&recv, 0);
        remember(n, ours, n);
    }
    assert_true(nold > 12); /* 1 to 4,096, and later ones */
    ours = received_from(&recv, n);
    cancel(ours, n, true); /* not late */
    scripted_check(&recv, -ECANCELED);
    assert_int_equal(scripted_count(RME_WIRE_FIN), 1);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

/* Handles repeat after 2^32, but skip 0 and those in use. */
static void handles_in_use_are_not_reused(void **state)
{
    struct posted long_one, recv;
    uint32_t in_use;

    (void)state;
    open_usual(NO_INVITE);
    in_use = received_from(&long_one, 1000000);
    scripted.peer->peer->last_handle = UINT32_MAX - 3;
    for (uint32_t n = 1; n < 20; n++) {
        uint32_t ours = received_from(&recv, n);

        assert_int_not_equal(ours, 0);
        assert_int_not_equal(ours, in_use);
        scripted_imm(ours);
        scripted_check(&recv, 0);
    }
    assert_int_equal(long_one.reports, 0);
    scripted_imm(in_use);
    scripted_check(&long_one, 0);
}

/* ---- Long copies ---- */

static char *guarded;
static size_t guarded_bytes;
static unsigned touched, touched_without_the_lock;

/* Counts an access to guarded memory, in the accessing thread. */
static void is_touched(int number)
{
    (void)number;
    touched++;
    if (pthread_mutex_trylock(&scripted.rme->lock) == 0) {
        touched_without_the_lock++;
        pthread_mutex_unlock(&scripted.rme->lock);
    }
    if (mprotect(guarded, guarded_bytes, PROT_READ | PROT_WRITE) != 0)
        abort();
}

/* Sends a list in guarded memory, which is packed; for the second a block is available at
 * once. */
static void long_lists_are_packed_without_the_lock(void **state)
{
    enum { PIECE = 1000, PIECES = 100 };
    struct sigaction act = {.sa_handler = is_touched}, before;
    struct posted send[2] = {{.rc = 0}};
    void *base[PIECES];
    int64_t length[PIECES];
    struct rme_list list = {base, length, PIECES};

    (void)state;
    open_usual(COMMON "rndv=read,fragment_bytes=256K,list_mode=pack");
    if (under_valgrind())
        skip();
    touched = touched_without_the_lock = 0;
    guarded_bytes = 1 << 18;
    guarded = mmap(NULL, guarded_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(guarded, MAP_FAILED);
    for (int i = 0; i < PIECES; i++) {
        base[i] = guarded + 2 * i * PIECE;
        length[i] = PIECE;
    }
    assert_int_equal(sigaction(SIGSEGV, &act, &before), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mprotect(guarded, guarded_bytes, PROT_NONE), 0);
        assert_int_equal(
            rme_post_send(scripted.rme, scripted.peer, &list, 2 + i, 0, &send[i], &send[i].id),
            0);
        scripted_run();
    }
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_int_equal(touched, 2);
    assert_int_equal(touched_without_the_lock, 2);
    assert_int_equal(scripted_counter("bytes_copied"), 2 * PIECES * PIECE);
    script_cut();
    scripted_run();
    munmap(guarded, guarded_bytes);
}

/* ---- links and addresses that end ---- */

/* Closes an engine whose address the test has freed. */
static void close_engine(void)
{
    script_cut();
    run();
    rme_close(scripted.rme);
    script.heard = NULL;
    script.mws = 0;
}

static void say_unexpected(int32_t tag)
{
    scripted_put((struct rme_wire_message){.type = RME_WIRE_EAGER,
                                           .flags = RME_WIRE_F_UNEXPECTED,
                                           .tag = tag},
                 NULL);
    run();
}

/* The host keeps messages, and never fetches others: closing frees both. */
static void closing_frees_unexpected_messages(void **state)
{
    enum { SENT = 120, TAKEN = 100, FREED = 80 };
    struct rme_unexpected got[TAKEN];

    (void)state;
    open_usual(COMMON);
    for (int i = 0; i < SENT; i++)
        say_unexpected(i);
    for (int n = 0; n < TAKEN; n++) {
        assert_int_equal(rme_test_unexpected(scripted.rme, &got[n], 1, 0), 1);
        assert_int_equal(got[n].tag, n);
    }
    for (int i = 0; i < FREED; i++)
        assert_int_equal(rme_unexpected_free(scripted.rme, got[i].buffer), 0);
    assert_int_equal(rme_unexpected_free(scripted.rme, memory), -EINVAL);
    rme_addr_free(scripted.peer);
    close_engine();
}

/* The pull of a message from a freed address completes and is dropped. */
static void unexpected_of_freed_address_is_dropped(void **state)
{
    (void)state;
    open_usual(COMMON);
    scripted_put((struct rme_wire_message){.type = RME_WIRE_RTS,
                                           .flags = RME_WIRE_F_UNEXPECTED,
                                           .from = 9,
                                           .total = 10000,
                                           .shape = 1},
                 NULL);
    run();
    rme_addr_free(scripted.peer);
    run();
    script_cut();
    run();
    assert_int_equal(scripted_counter("ops_live"), 0);
    assert_int_equal(rme_test_unexpected(scripted.rme, &(struct rme_unexpected){0}, 1, 0), 0);
    close_engine();
}

static bool freed;

static void *free_it(void *arg)
{
    struct rme_done done;

    (void)arg;
    rme_addr_free(scripted.peer);
    for (int i = 0; i < 20; i++)
        ended += rme_test_context(scripted.rme, 0, &done, 1, 0);
    return NULL;
}

/* Runs when a thread is about to register, without the lock: another thread frees the address,
 * whose link goes down. */
static void free_meanwhile(void)
{
    pthread_t thread;

    if (freed)
        return;
    freed = true;
    assert_int_equal(pthread_create(&thread, NULL, free_it, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(ended, 0); /* its memory is still in use */
}

#define BLOCK 65536u /* bounce buffer of a part of a list: option unit */
#define MOST  1000u

static unsigned grown;

static void count_growth(void)
{
    grown++;
}

/* Allocates blocks until the zone has grown, or `most`; returns their number. */
static unsigned take_blocks(void **block, unsigned most)
{
    unsigned n = 0;

    grown = 0;
    script.registering = count_growth;
    while (n < most && grown == 0) {
        block[n] = rme_memory_alloc(scripted.rme, BLOCK);
        assert_non_null(block[n++]);
    }
    script.registering = NULL;
    return n;
}

/* A list is copied into a zone that has to grow for it, while its address is freed. */
static void freed_while_it_is_copied(void **state)
{
    void *base[2] = {memory, memory + BLOCK}, *block[MOST];
    int64_t length[2] = {BLOCK / 2, BLOCK / 2};
    struct rme_list list = {.base = base, .length = length, .count = 2};
    struct rme_done done;
    unsigned blocks;
    rme_id id = 0;

    (void)state;
    open_usual(COMMON "fragment_bytes=64K,list_mode=pack");
    blocks = take_blocks(block, MOST);
    assert_in_range(blocks, 1, MOST - 1);
    for (unsigned i = 0; i < blocks; i++)
        assert_int_equal(rme_memory_free(scripted.rme, block[i]), 0);
    scripted_close();

    open_usual(COMMON "fragment_bytes=64K,list_mode=pack");
    take_blocks(block, --blocks); /* allocate all free blocks */
    freed = false;
    script.registering = free_meanwhile;
    assert_in_range(rme_post_send(scripted.rme, scripted.peer, &list, 3, 0, NULL, &id), 0, 1);
    for (int i = 0; i < 20; i++)
        if (rme_test_context(scripted.rme, 0, &done, 1, 0) == 1)
            ended++;
    script.registering = NULL;
    assert_true(freed);
    assert_int_equal(ended, 1);
    assert_int_equal(done.error, -ECONNRESET);
    while (blocks > 0)
        assert_int_equal(rme_memory_free(scripted.rme, block[--blocks]), 0);
    close_engine();
}

/* A send posted while the old link ends gets the result of the next attempt, and no other
 * error. */
static void reached_while_its_link_ends(void **state)
{
    struct rme_hello hello = scripted_hello();

    (void)state;
    for (int closing = 0; closing < 2; closing++) {
        unsigned before;

        scripted_connect(COMMON, &hello);
        before = script.asked[0];
        if (closing) {
            rme_lock(scripted.rme);
            rme_peer_fail(scripted.peer->peer, -ECONNRESET, NULL);
            rme_unlock(scripted.rme);
        } else {
            script_cut();
        }
        assert_int_equal(rme_addr_reach(scripted.rme, scripted.peer, 0), -EINPROGRESS);
        assert_int_equal(script.asked[0], before + 1);
        script_refuse(0, -ECONNREFUSED, NULL, 0);
        assert_int_equal(rme_addr_reach(scripted.rme, scripted.peer, 0), -ECONNREFUSED);
        assert_int_equal(script.asked[0], before + 1);
        if (!closing)
            scripted_close();
    }
}

/* ---- the last credit ---- */

static unsigned slept, byes_at_first;

/* Events while the engine closes: the peer consumes the message, BYE arrives, the link ends. */
static void take_the_last(void)
{
    switch (slept++) {
    case 0:
        byes_at_first = scripted_count(RME_WIRE_BYE);
        scripted_put((struct rme_wire_message){.type = RME_WIRE_CREDIT}, NULL);
        break;
    case 1:
        script_finish(0);
        break;
    default:
        script_cut();
    }
}

/* The engine's message may not have arrived yet: the link ends only after a credit for the BYE
 * that follows it. */
static void close_waits_for_bye_credit(void **state)
{
    struct posted send;
    unsigned byes;
    struct rme_hello hello = scripted_hello();

    (void)state;
    hello.credits = 1;
    scripted_connect(COMMON, &hello);
    slept = 0;
    scripted_send(&send, memory, 8, 1);
    scripted_run();
    scripted_check(&send, 0);
    assert_int_equal(scripted.peer->peer->credit.have, 0);
    script.sleeping = take_the_last;
    rme_close(scripted.rme);
    byes = scripted_count(RME_WIRE_BYE);
    script.sleeping = NULL;
    rme_addr_free(scripted.peer);
    scripted_connect(COMMON, &hello); /* the teardown closes one */
    assert_int_equal(byes_at_first, 0);
    assert_int_equal(byes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(late_cancel_meets_no_other_receive),
        SCRIPTED_TEST(handles_in_use_are_not_reused),
        SCRIPTED_TEST(long_lists_are_packed_without_the_lock),
        cmocka_unit_test(closing_frees_unexpected_messages),
        cmocka_unit_test(unexpected_of_freed_address_is_dropped),
        cmocka_unit_test(freed_while_it_is_copied),
        SCRIPTED_TEST(reached_while_its_link_ends),
        SCRIPTED_TEST(close_waits_for_bye_credit),
    };

    return cmocka_run_group_tests_name("strays", tests, NULL, NULL);
}
