/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A peer that exceeds its share of receive-side memory gets no credits beyond its reserve
 * (rx_account.c). Consumed messages are acknowledged later: in order, completely, and once less
 * is held.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>

#include "engine/engine.h"
#include "scripted.h"
#include "tests/lib/clock.h"

#define OPTIONS                                                                                \
    "regcache_entries=0,poll_us=0,pool_bytes=64M,keepalive_ms=0,early_cts=0,"                  \
    "credits=64,eager_window=1M,rx_buffered_bytes="
/* of rx_buffered_bytes: from here on the only peer is throttled */
#define HALF         (512u << 10)
#define PAYLOAD      2000
#define TIMEOUT_MS   300
#define TIMEOUT_TEXT "300"
#define TAG          1

static char memory[PAYLOAD];
static unsigned long allocations; /* by the engine: the script calls calloc() */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

static void send_one(void)
{
    struct posted send;

    scripted_send(&send, memory, 8, TAG);
    scripted_run();
    assert_int_equal(send.reports, 1);
}

static void open_with(const char *options, unsigned credits)
{
    struct rme_hello hello = scripted_hello();

    hello.credits = (uint16_t)credits;
    scripted_open(options, &hello);
    send_one(); /* acknowledges earlier messages */
    scripted_hush();
}

static void open_it(void)
{
    open_with(OPTIONS "1M", 1024);
}

static uint64_t rx_buffered(void)
{
    return scripted_counter("rx_buffered_bytes");
}

/* Delivers a message without a receive. */
static void say_eager(void)
{
    static uint8_t buffer[4096];
    struct rme_wire_message message = {.type = RME_WIRE_EAGER,
                                       .tag = TAG,
                                       .credits = (uint16_t)(script.spent - scripted.back)};

    assert_true(scripted.have > 0);
    scripted.have--;
    scripted.back = script.spent;
    rme_wire_encode(&message, buffer);
    script_message(0, buffer, rme_wire_length(RME_WIRE_EAGER, 0) + PAYLOAD);
    scripted_run();
}

/* Returns the number of credits returned since scripted_hush(). */
static unsigned told(void)
{
    unsigned sum = 0;

    for (unsigned i = 0; i < scripted.words; i++)
        sum += scripted.word[i].message.credits;
    return sum;
}

/* Delivers messages until the engine holds that many bytes; returns their number. */
static unsigned keep_until(uint64_t bytes)
{
    unsigned n = 0;

    for (; rx_buffered() < bytes; n++)
        say_eager();
    return n;
}

static void take_until(uint64_t bytes)
{
    struct posted recv;

    while (rx_buffered() >= bytes) {
        scripted_recv(&recv, memory, PAYLOAD, TAG);
        scripted_run();
        scripted_check(&recv, 0);
    }
}

/* A peer that spends the reserve on messages that must be held finally gets no credits. */
static void peer_without_reserve_stops_sending(void **state)
{
    unsigned more = 0;

    (void)state;
    open_it();
    keep_until(HALF);
    for (; scripted.have > 0 && more < 200; more++)
        say_eager();
    assert_in_range(more, 1, 64 + RME_CREDITS_RESERVE + 1 + RME_CREDIT_CONTROL);
    assert_int_equal(scripted.have, 0);
    scripted_hush();
    take_until(1);
    assert_true(told() > 32);
}

/* Lets several times TIMEOUT_MS pass, or until the link is given up. */
static void be_silent(void)
{
    for (int i = 0; i < 3 * TIMEOUT_MS && scripted_counter("peers") != 0; i++) {
        clock_step_ms(1);
        scripted_run();
    }
}

/* The peer is probed but cannot answer: it has spent its reserve and gets no credits. */
static void silent_peer_without_credits_stays(void **state)
{
    (void)state;
    open_with(OPTIONS "1M,keepalive_ms=2,peer_timeout_ms=" TIMEOUT_TEXT, 1024);
    keep_until(HALF);
    while (scripted.have > 0)
        say_eager();
    scripted_hush();
    be_silent();
    assert_true(scripted_count(RME_WIRE_PING) > 1);
    assert_int_equal(told(), 0);
    assert_int_equal(scripted_counter("peers"), 1);
    take_until(1);
    assert_true(told() > 0);
    for (int i = 0; i < TIMEOUT_MS / 2; i++) { /* its whole timeout starts here */
        clock_step_ms(1);
        scripted_run();
        assert_int_equal(scripted_counter("peers"), 1);
    }
    be_silent(); /* now the peer has a credit to answer */
    assert_int_equal(scripted_counter("peers"), 0);
}

/*
 * Empty unexpected messages that must be pulled, from a peer that returns no credits: each
 * waits for its FIN. Their operations are charged until the host has the messages and the peer
 * its answers.
 */
static void unacknowledged_operations_are_charged(void **state)
{
    enum { N = 7000 };
    const struct rme_op_table *table;

    (void)state;
    open_with(OPTIONS "10M,eager_window=4M", 8);
    table = &scripted.rme->operations->table;
    scripted.keeps = true;
    for (uint32_t i = 0; i < N; i++) {
        /* so that the engine can return credits, and send nothing else */
        bool gives = scripted.have < 8;

        scripted.back += gives;
        scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_RTS,
                                                      .flags = RME_WIRE_F_UNEXPECTED,
                                                      .credits = gives,
                                                      .tag = TAG,
                                                      .from = 1 + i},
                            NULL);
    }
    assert_true(table->live > N / 2 && rx_buffered() >= table->live * sizeof(struct rme_op));
    scripted.keeps = false;
    for (unsigned turn = 0; rx_buffered() > 0 && turn < 2 * N; turn++)
        scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_CREDIT}, NULL);
    assert_int_equal(rx_buffered(), 0);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

/* ---- Number of peers examined ---- */

enum { WAITERS = 1024, LOOKS = 64, HOSTS = 16 };

static struct {
    struct rme_peer *peer[WAITERS]; /* each in its own pages */
    size_t size;                    /* of one peer's pages */
    unsigned looked_at;
} crowd;

static struct rme_peer *new_waiter(struct rme *rme, struct rme_host *host)
{
    struct rme_peer *peer =
        mmap(NULL, crowd.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(peer != MAP_FAILED);
    peer->rme = rme;
    peer->host = host;
    host->npeer++;
    list_init(&peer->scheduled);
    list_init(&peer->throttled);
    return peer;
}

/* Counts the first access to a peer's protected pages. */
static void touched(int signal, siginfo_t *info, void *context)
{
    (void)context;
    for (unsigned i = 0; i < WAITERS; i++) {
        if ((uintptr_t)info->si_addr - (uintptr_t)crowd.peer[i] >= crowd.size)
            continue;
        mprotect(crowd.peer[i], crowd.size, PROT_READ | PROT_WRITE);
        crowd.looked_at++;
        return;
    }
    sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

/* Returns how many peers the engine accesses while some bytes of this one are released. */
static unsigned looks(struct rme_peer *peer, uint64_t bytes)
{
    crowd.looked_at = 0;
    for (unsigned i = 0; i < WAITERS; i++)
        assert_int_equal(mprotect(crowd.peer[i], crowd.size, PROT_NONE), 0);
    rme_rx_uncharge(peer, bytes);
    for (unsigned i = 0; i < WAITERS; i++)
        assert_int_equal(mprotect(crowd.peer[i], crowd.size, PROT_READ | PROT_WRITE), 0);
    return crowd.looked_at;
}

static unsigned scheduled(const struct rme *rme)
{
    unsigned n = 0;

    for (struct list_head *node = rme->scheduled.next; node != &rme->scheduled;
         node = node->next)
        n++;
    return n;
}

/*
 * A thousand throttled peers of several hosts, each holding a different amount. A release by
 * one of them examines a few peers; so does one by another host, which raises all shares. A
 * peer continues when it holds at most its share, whichever peer released memory.
 */
static void release_examines_few_waiting_peers(void **state)
{
    struct sigaction before, action = {.sa_sigaction = touched, .sa_flags = SA_SIGINFO};
    struct rme rme = {.ops = NULL};
    struct rme_host host[HOSTS + 1] = {{.npeer = 0}};
    struct rme_peer *stranger;

    (void)state;
    rme.quota[RME_QUOTA_RX].limit = 124u << 20;
    list_init(&rme.scheduled);
    list_init(&rme.throttled);
    crowd.size = (sizeof(*stranger) + 4095) / 4096 * 4096;
    stranger = new_waiter(&rme, &host[HOSTS]);
    for (unsigned i = 0; i < WAITERS; i++) {
        crowd.peer[i] = new_waiter(&rme, &host[i % HOSTS]);
        rme_quota_add(crowd.peer[i], RME_QUOTA_RX, 65536 + i);
    }
    for (unsigned i = 0; i < WAITERS; i++)
        rme_rx_account_check(crowd.peer[i]);
    assert_int_equal(scheduled(&rme), WAITERS); /* scheduled to be sent a reserve */
    while (list_pop(&rme.scheduled) != NULL)
        continue;
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    for (unsigned i = 0; i < WAITERS; i++)
        assert_in_range(looks(crowd.peer[i], 1), 1, LOOKS);
    rme_quota_add(stranger, RME_QUOTA_RX, 1);
    assert_in_range(looks(stranger, 1), 0, LOOKS);
    assert_int_equal(scheduled(&rme), 0);
    /* holds less than its share of its host's, and continues alone */
    assert_in_range(looks(crowd.peer[7], 65536), 1, LOOKS);
    assert_int_equal(scheduled(&rme), 1);
    assert_ptr_equal(container_of(rme.scheduled.next, struct rme_peer, scheduled),
                     crowd.peer[7]);
    for (unsigned i = 0; i < WAITERS; i += HOSTS) /* little is left: all go on */
        rme_rx_uncharge(crowd.peer[i], crowd.peer[i]->quota[RME_QUOTA_RX]);
    sigaction(SIGSEGV, &before, NULL);
    assert_int_equal(scheduled(&rme), WAITERS);
    for (unsigned i = 0; i < WAITERS; i++) {
        assert_false(crowd.peer[i]->credit.throttled);
        munmap(crowd.peer[i], crowd.size);
    }
    munmap(stranger, crowd.size);
}

/* ---- Peers that are dropped ---- */

/* Delivers an unexpected message, which waits for the host. */
static void say_unexpected(unsigned link)
{
    static const struct rme_wire_message message = {.type = RME_WIRE_EAGER,
                                                    .flags = RME_WIRE_F_UNEXPECTED};
    uint8_t buffer[256] = {0};

    rme_wire_encode(&message, buffer);
    script_message(link, buffer, rme_wire_length(RME_WIRE_EAGER, 0));
}

/* Connects another peer as link 1, which sends a message; returns its address. */
static struct rme_addr *another(void)
{
    struct rme_hello hello = scripted_hello();
    struct rme_addr *first = scripted.peer, *other;

    scripted_arrive(1, &hello);
    say_unexpected(1);
    scripted_run();
    other = scripted.peer;
    scripted.peer = first;
    assert_ptr_not_equal(other, first);
    return other;
}

/* ---- memory of early messages ---- */

enum { EARLY = 4000, BURST = 16 }; /* as many as the smallest window has room for */

/* Delivers messages without receives, or unexpected ones, which the test takes at once; returns
 * the number of allocations. */
static unsigned long early(unsigned link, uint8_t flags, int count, size_t size)
{
    struct rme_wire_message message = {.type = RME_WIRE_EAGER, .flags = flags, .tag = TAG};
    static uint8_t buffer[RME_WIRE_HEADER_SIZE + EARLY];
    unsigned long before;

    rme_wire_encode(&message, buffer);
    before = allocations;
    for (int i = 0; i < count; i++) {
        script_message(link, buffer, RME_WIRE_HEADER_SIZE + size);
        scripted_run();
    }
    return allocations - before;
}

static unsigned long burst(unsigned link, uint8_t flags)
{
    return early(link, flags, BURST, EARLY);
}

static void take_burst(struct rme_addr *from)
{
    struct rme_addr *usual = scripted.peer;
    static char into[EARLY];
    struct posted recv;

    scripted.peer = from;
    for (int i = 0; i < BURST; i++) {
        scripted_recv(&recv, into, EARLY, TAG);
        scripted_run();
        scripted_check(&recv, 0);
        assert_int_equal(recv.actual, EARLY);
    }
    scripted.peer = usual;
}

/* The memory is kept, unaccounted, up to one window. */
static void no_memory_for_what_is_early_again(void **state)
{
    struct rme_addr *other;
    uint64_t before;

    (void)state;
    open_with("regcache_entries=0,poll_us=0,pool_bytes=64M,keepalive_ms=0,credits=64,"
              "eager_window=64K",
              1024);
    other = another();
    before = rx_buffered();
    for (int i = 0; i < 2; i++) { /* one window is kept for the second time */
        assert_int_equal(burst(0, 0), i == 0 ? BURST : 0);
        assert_int_equal(burst(1, 0), BURST);
        take_burst(scripted.peer);
        take_burst(other);
        assert_int_equal(rx_buffered(), before);
        assert_int_equal(burst(0, RME_WIRE_F_UNEXPECTED), 0);
    }
    assert_int_equal(scripted_counter("protocol_errors"), 0);
    rme_addr_free(other);
    script_down(1, -ECONNRESET);
    scripted_run();
}

/* A message in kept memory counts with the room of that. */
static void kept_memory_counts_in_full(void **state)
{
    static char into[EARLY];
    uint64_t before, full;
    struct posted recv;

    (void)state;
    open_it();
    before = rx_buffered();
    early(0, 0, 1, EARLY);
    full = rx_buffered() - before;
    scripted_recv(&recv, into, EARLY, TAG);
    scripted_run();
    scripted_check(&recv, 0);
    assert_int_equal(early(0, 0, 1, EARLY * 3 / 5), 0);
    assert_int_equal(rx_buffered() - before, full);
    scripted_recv(&recv, into, EARLY, TAG);
    scripted_run();
    scripted_check(&recv, 0);
    assert_int_equal(rx_buffered(), before);
}

/* The dropped peer's messages are freed, those of others stay. */
static void dropped_peers_messages_are_freed(void **state)
{
    struct rme_unexpected got[8];
    struct rme_addr *other;
    struct rme_done done;
    uint64_t before;
    int count;

    (void)state;
    open_it();
    other = another();
    before = rx_buffered();
    for (int i = 0; i < 3; i++) {
        say_unexpected(0);
        say_unexpected(1);
    }
    while (!script_is_quiet())
        assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 0), 0);
    assert_true(rx_buffered() > before);
    rme_addr_free(other);
    count = rme_test_unexpected(scripted.rme, got, 8, 0);
    assert_int_equal(count, 3);
    for (int i = 0; i < count; i++) {
        assert_ptr_equal(got[i].addr, scripted.peer);
        assert_int_equal(rme_unexpected_free(scripted.rme, got[i].buffer), 0);
    }
    script_down(1, -ECONNRESET);
    scripted_run();
    assert_int_equal(rx_buffered(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(unacknowledged_operations_are_charged),
        cmocka_unit_test(release_examines_few_waiting_peers),
        SCRIPTED_TEST(dropped_peers_messages_are_freed),
        SCRIPTED_TEST(no_memory_for_what_is_early_again),
        SCRIPTED_TEST(kept_memory_counts_in_full),
        SCRIPTED_TEST(peer_without_reserve_stops_sending),
        SCRIPTED_TEST(silent_peer_without_credits_stays),
    };

    return cmocka_run_group_tests_name("rx_account", tests, clock_setup, NULL);
}
