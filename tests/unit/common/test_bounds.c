/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Bounds of the memory that a peer can occupy: an engine against a peer that is played here and
 * returns no credits for answers. */
#include <linux/capability.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/engine.h"
#include "scripted.h"

#define RTS_MAX 1024
#define MUCH    20000
#define BOUND   (4u << 20) /* limit of all of it in bytes */
#define POOLED  (1u << 20) /* of which may stay pooled */

static unsigned given; /* credits returned */

/* Connects a peer with 4 credits, so that the engine can send it little. */
static int set_up(void **state)
{
    struct rme_hello hello = scripted_hello();

    (void)state;
    hello.credits = 4;
    hello.rts_max = 64;
    script.credit_messages = 0;
    scripted_open("regcache_entries=0,poll_us=0,keepalive_ms=0,credits=8,pool_bytes=64M,"
                  "eager_window=256K",
                  &hello);
    scripted.rme->tuning.rts_max = RTS_MAX;
    given = script.credit_messages;
    return 0;
}

/* Delivers a message. A credit is returned for each CREDIT, and never for other messages. */
static void say(struct rme_wire_message message)
{
    uint8_t buffer[4096] = {0};

    message.credits = (uint16_t)(script.credit_messages - given);
    given = script.credit_messages;
    rme_wire_encode(&message, buffer);
    script_message(0, buffer, rme_wire_length(message.type, 0));
    scripted_run();
    scripted_hush();
}

static bool link_ended(void)
{
    return scripted_counter("protocol_errors") == 1;
}

/* Checks that the link ends before the peer occupies too much, and that all of it is freed. */
static void is_bounded(struct rme_wire_message (*next)(uint32_t n), uint32_t most)
{
    size_t before = mallinfo2().uordblks, now, peak = before;
    uint32_t n;

    for (n = 0; n < MUCH && !link_ended(); n++) {
        say(next(n));
        now = mallinfo2().uordblks;
        peak = now > peak ? now : peak;
    }
    assert_in_range(n, 1, most);
    assert_true(peak - before < BOUND);
    scripted_run();
    now = mallinfo2().uordblks;
    assert_true(now < before + POOLED);
}

static struct wire_pair {
    struct rme_wire_message rts, cancel;
} pair(uint32_t n, uint8_t flags, uint64_t size)
{
    return (struct wire_pair){
        .rts = {.type = RME_WIRE_RTS, .flags = flags, .tag = 7, .from = 1 + n, .total = size},
        .cancel = {.type = RME_WIRE_CANCEL,
                   .flags = flags | RME_WIRE_F_FROM_SENDER,
                   .tag = 7,
                   .from = 1 + n}};
}

static struct rme_wire_message cancelled_rts(uint32_t n)
{
    struct wire_pair p = pair(n / 2, 0, 1 << 20);

    return n % 2 == 0 ? p.rts : p.cancel;
}

static void cancels_of_what_was_not_matched(void **state)
{
    (void)state;
    is_bounded(cancelled_rts, 2 * RTS_MAX + 64);
}

static struct rme_wire_message cancelled_invitation(uint32_t n)
{
    return (struct rme_wire_message){.type = RME_WIRE_CANCEL, .from = 1 + n};
}

/* The last one alone waits for its answer. */
static void cancels_of_invitations(void **state)
{
    (void)state;
    is_bounded(cancelled_invitation, MUCH);
    assert_false(link_ended());
}

static struct rme_wire_message empty(uint32_t n)
{
    return pair(n, RME_WIRE_F_UNEXPECTED, 0).rts;
}

/* Their pulls need a FIN and count against the sender's window until FIN is sent. */
static void unexpected_messages_of_no_bytes(void **state)
{
    (void)state;
    is_bounded(empty, RTS_MAX + 65536 / 64 + 64);
}

/* ---- Locked memory ---- */

/* Sets or clears CAP_IPC_LOCK in the effective set; returns whether it was set. */
static bool set_lock_right(bool wanted)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    const uint32_t bit = 1u << CAP_IPC_LOCK;
    bool had;

    assert_int_equal(syscall(SYS_capget, &header, data), 0);
    had = (data[0].effective & bit) != 0;
    data[0].effective = wanted ? data[0].effective | bit : data[0].effective & ~bit;
    assert_int_equal(syscall(SYS_capset, &header, data), 0);
    return had;
}

static void keep_lines(void *arg, enum rme_log_level level, const char *line)
{
    char *all = arg;

    if (level <= RME_LOG_WARN)
        snprintf(all + strlen(all), 1000 - strlen(all), "%s\n", line);
}

/* Opens an engine with these options and checks its log and the resulting options. */
static void holds(const char *options, const char *says, int64_t rx_size,
                  int64_t eager_ring_pool)
{
    char said[1000] = "";
    struct rme_config config = {
        .fabric = &script_ops, .options = options, .log = keep_lines, .log_arg = said};
    struct rme *rme;
    int64_t value;

    assert_int_equal(rme_open(&config, &rme), 0);
    assert_int_equal(rme_option_get(rme, "rx_size", &value), 0);
    assert_int_equal(value, rx_size);
    assert_int_equal(rme_option_get(rme, "eager_ring_pool", &value), 0);
    assert_int_equal(value, eager_ring_pool);
    assert_string_equal(said, says);
    rme_close(rme);
}

/* Under a low memlock limit larger options are reduced, which is logged once, and the host
 * reads the reduced values. Reduced defaults are not logged. */
static void reduced_options_are_logged(void **state)
{
    static const char base[] = "regcache_entries=0,pool_bytes=64K";
    struct rlimit before, little;
    char options[200];
    bool had;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    little = (struct rlimit){512 << 10, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &little), 0);
    had = set_lock_right(false);
    snprintf(options, sizeof(options), "%s,rx_size=18K,eager_ring_pool=8M", base);
    holds(
        options,
        "option rx_size=18432: this process may lock less than 1 MiB, so 1008 is used; raise "
        "the memlock limit (ulimit -l)\n"
        "option eager_ring_pool=8388608: more than a sixteenth of the memory that this process "
        "may lock, so 32768 is used; raise the memlock limit (ulimit -l)\n",
        1008, 32768);
    holds(base, "", 1008, 32768);
    little.rlim_cur = 2 << 20;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &little), 0);
    snprintf(options, sizeof(options), "%s,rx_size=3000,eager_ring_pool=100K", base);
    holds(options, "", 3000, 100 << 10);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    if (had)
        (void)set_lock_right(true);
}

/* One line lists the old names of options. */
static void old_option_names_give_one_notice(void **state)
{
    (void)state;
    holds("regcache_entries=0,zone_bytes=64K,spin_us=0,rx_size=3000,eager_ring_pool=32K",
          "options: old names, accepted in this release only: zone_bytes is now pool_bytes, "
          "spin_us is now poll_us\n",
          3000, 32 << 10);
    holds("regcache_entries=0,pool_bytes=64K,poll_us=0,rx_size=3000,eager_ring_pool=32K", "",
          3000, 32 << 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cancels_of_what_was_not_matched, set_up,
                                        scripted_teardown),
        cmocka_unit_test_setup_teardown(cancels_of_invitations, set_up, scripted_teardown),
        cmocka_unit_test_setup_teardown(unexpected_messages_of_no_bytes, set_up,
                                        scripted_teardown),
        cmocka_unit_test(reduced_options_are_logged),
        cmocka_unit_test(old_option_names_give_one_notice),
    };

    return cmocka_run_group_tests_name("bounds", tests, NULL, NULL);
}
