/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Events that come late, or twice, for an operation that is over at one side: answers to a send
 * that was read, transfers and windows of an abandoned operation, unexpected messages behind a
 * cancelled one or of a lost link, operations of a freed address or a closed context, calls of
 * a child, and posts while a link ends.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "played.h"

/* ---- a send that the receiver reads ---- */

/* The receiver has read the memory offered by RTS, and then opens its own. */
static void read_and_then_written(void **state)
{
    uint32_t handle;

    (void)state;
    begin(&usual, "");
    send_(zone(0), LARGE, 3);
    handle = LAST;
    SAYS(FIN, 0, .to = handle, .from = 9, .offset = LARGE);
    assert_int_equal(errors(), 0);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, 0);
    SAYS(CTS, LARGE, .to = handle, .from = 9);
    assert_int_equal(errors(), 1);
    assert_int_equal(script.rdma_ops, 0);
    assert_int_equal(ended, 1);
    end();
}

/* An offer is read as a whole. */
static void read_in_part(void **state)
{
    (void)state;
    begin(&usual, "");
    send_(zone(0), LARGE, 3);
    SAYS(FIN, 0, .to = LAST, .from = 9, .offset = 65536);
    assert_int_equal(errors(), 1);
    assert_int_equal(ended, 1);
    assert_int_not_equal(done_.error, 0);
    end();
}

/* Nothing was offered: the first fragment is not the whole message. */
static void read_without_an_offer(void **state)
{
    (void)state;
    begin(&usual, "");
    send_(plain, LARGE, 3);
    SAYS(FIN, 0, .to = LAST, .from = 9, .offset = LARGE);
    assert_int_equal(errors(), 1);
    assert_int_equal(ended, 1);
    assert_int_not_equal(done_.error, 0);
    end();
}

/* RTS offers the whole message or nothing. */
static void offered_in_part(void **state)
{
    (void)state;
    begin(&usual, "");
    receive(plain, LARGE, 3);
    SAYS(RTS, 65536, .tag = 3, .from = 9, .total = LARGE, .shape = 1);
    assert_int_equal(errors(), 1);
    assert_int_equal(script.rdma_ops, 0);
    end();
}

/* A window begins where the last one ended, and ends within the message. */
static void window_out_of_order_is_refused(void **state)
{
    static const uint64_t wrong[][2] = {{0, 65536}, {131072, 65536}, {65536, LARGE}};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        begin(&usual, "");
        send_(plain, LARGE, 3);
        uint32_t handle = LAST;

        SAYS(CTS, 65536, .to = handle, .from = 9);
        assert_int_equal(errors(), 0);
        SAYS(CTS, wrong[i][1], .to = handle, .from = 9, .offset = wrong[i][0]);
        assert_int_equal(errors(), 1);
        end();
    }
}

/* ---- unmapped memory ---- */

static unsigned under_way; /* transfers in flight when the engine abandoned an operation */
static bool given_up;

static void notice(const struct rme_wire_message *message)
{
    if (message->type == RME_WIRE_CANCEL || message->type == RME_WIRE_FIN) {
        given_up = true;
        under_way = script.rdma_ops;
    }
    /* an abandoned operation opens nothing */
    assert_false(given_up && message->type == RME_WIRE_CTS);
}

/* Maps only 64 KiB of a larger message's memory; registration fails. */
static char *a_part(void)
{
    char *base =
        mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(base != MAP_FAILED);
    assert_int_equal(munmap(base + 65536, (1 << 20) - 65536), 0);
    script.no_regs = true;
    script.heard = notice;
    given_up = false;
    return base;
}

static void a_part_ends(char *base)
{
    end();
    script.heard = NULL;
    assert_int_equal(munmap(base, 65536), 0);
}

/* After CANCEL no write begins. */
static void cancel_starts_no_write(void **state)
{
    uint32_t handle;
    char *base;

    (void)state;
    begin(&usual, "");
    base = a_part();
    send_(base, LARGE, 3);
    handle = LAST;
    SAYS(CTS, LARGE, .to = handle, .from = 9);
    assert_true(given_up);
    assert_int_equal(under_way, 0);
    assert_int_equal(script.rdma_ops, 0);
    SAYS(FIN, 0, .status = RME_WIRE_CANCELED, .to = handle);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -EFAULT);
    a_part_ends(base);
}

/* After a FIN that refuses no read begins. */
static void fin_starts_no_read(void **state)
{
    char *base;

    (void)state;
    begin(&usual, ",rndv=read");
    base = a_part();
    receive(base, LARGE, 3);
    SAYS(RTS, LARGE, .from = 9, .tag = 3, .total = LARGE, .shape = 1);
    assert_true(given_up);
    assert_int_equal(script.rdma_ops, 0);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -EFAULT);
    a_part_ends(base);
}

/* After a FIN that refuses nothing is opened; the link goes down while FIN waits for a send
 * buffer. */
static void fin_opens_no_window(void **state)
{
    char *base;

    (void)state;
    begin(&usual, ",rndv=write");
    base = a_part();
    receive(base, LARGE, 3);
    script.no_tx = true;
    SAYS(RTS, 0, .from = 9, .tag = 3, .total = LARGE, .shape = 1);
    assert_int_equal(ended, 0);
    script_cut();
    run();
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -EFAULT);
    a_part_ends(base);
}

/* ---- unexpected messages ---- */

/* Fetches `count` messages with these tags, and checks that no others wait. */
static void fetches(const int32_t *tag, int count)
{
    struct rme_unexpected got;

    for (int i = 0; i < count; i++) {
        assert_int_equal(rme_test_unexpected(rme, &got, 1, 0), 1);
        assert_int_equal(got.tag, tag[i]);
        assert_int_equal(rme_unexpected_free(rme, got.buffer), 0);
    }
    assert_int_equal(rme_test_unexpected(rme, &got, 1, 0), 0);
}

/* Three large messages fill the window, so a fourth waits to be pulled; the complete one behind
 * it is delivered when the fourth is cancelled, or dropped with the link. */
static void unexpected_behind_one_that_goes(void **state)
{
    enum { SIZE = 16384, PULLED = 3 };
    static const int32_t tag[] = {0, 1, 2, 7};

    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        begin(&usual, ",eager_window=256K");
        for (uint32_t i = 0; i < PULLED; i++) {
            SAYS(RTS, 0, .flags = RME_WIRE_F_UNEXPECTED, .tag = tag[i], .from = 9 + i,
                 .total = SIZE);
            script_imm(0, LAST);
            run();
        }
        SAYS(RTS, 0, .flags = RME_WIRE_F_UNEXPECTED, .tag = 6, .from = 5, .total = SIZE);
        SAYS(EAGER, 0, .flags = RME_WIRE_F_UNEXPECTED, .tag = 7);
        if (lost) {
            script_cut();
            run();
        } else {
            SAYS(CANCEL, 0, .flags = RME_WIRE_F_FROM_SENDER | RME_WIRE_F_UNEXPECTED, .from = 5);
        }
        fetches(tag, PULLED + 1);
        end();
    }
}

static uint32_t consumed; /* unexpected messages consumed, as the engine last announced */

static void note_taken(const struct rme_wire_message *message)
{
    consumed = message->unexpected_consumed;
}

/* A message fetched after its link has ended does not count in the next link's window. */
static void unexpected_of_the_link_before(void **state)
{
    static const int32_t tag[] = {1, 2};
    uint8_t hello[RME_HELLO_MAX] = {0};

    (void)state;
    begin(&usual, "");
    SAYS(EAGER, 0, .flags = RME_WIRE_F_UNEXPECTED, .tag = tag[0]);
    script_cut();
    run();
    script.heard = note_taken;
    send_(plain, 1, 3);
    rme_hello_encode(&usual, hello);
    script_up(0, hello, sizeof(hello));
    run();
    fetches(tag, 1);
    consumed = UINT32_MAX;
    send_(plain, 1, 3);
    assert_int_equal(consumed, 0);
    SAYS(EAGER, 0, .flags = RME_WIRE_F_UNEXPECTED, .tag = tag[1]);
    fetches(&tag[1], 1);
    send_(plain, 1, 3);
    assert_int_equal(consumed, RME_HELD_COST);
    assert_int_equal(errors(), 0);
    script.heard = NULL;
    end();
}

/* ---- a freed address ---- */

static bool freed;

static void *free_it(void *arg)
{
    struct rme_done done;

    (void)arg;
    rme_addr_free(peer);
    for (int i = 0; i < 20; i++)
        ended += rme_test_context(rme, 0, &done, 1, 0);
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
        block[n] = rme_memory_alloc(rme, BLOCK);
        assert_non_null(block[n++]);
    }
    script.registering = NULL;
    return n;
}

/* A list is copied into a zone that has to grow for it, while its address is freed. */
static void freed_while_it_is_copied(void **state)
{
    void *base[2] = {plain, plain + BLOCK}, *block[MOST];
    int64_t length[2] = {BLOCK / 2, BLOCK / 2};
    struct rme_list list = {.base = base, .length = length, .count = 2};
    struct rme_done done;
    unsigned blocks;
    rme_id id = 0;

    (void)state;
    begin(&usual, ",list_mode=pack");
    blocks = take_blocks(block, MOST);
    assert_in_range(blocks, 1, MOST - 1);
    for (unsigned i = 0; i < blocks; i++)
        assert_int_equal(rme_memory_free(rme, block[i]), 0);
    end();

    begin(&usual, ",list_mode=pack");
    take_blocks(block, --blocks); /* allocate all free blocks */
    freed = false;
    script.registering = free_meanwhile;
    assert_in_range(rme_post_send(rme, peer, &list, 3, 0, NULL, &id), 0, 1);
    for (int i = 0; i < 20; i++)
        if (rme_test_context(rme, 0, &done, 1, 0) == 1)
            ended++;
    script.registering = NULL;
    assert_true(freed);
    assert_int_equal(ended, 1);
    assert_int_equal(done.error, -ECONNRESET);
    while (blocks > 0)
        assert_int_equal(rme_memory_free(rme, block[--blocks]), 0);
    rme_close(rme);
}

/* ---- a link that is ending ---- */

/* A send posted while the old link ends gets the result of the next attempt, and no other
 * error. */
static void reached_while_its_link_ends(void **state)
{
    (void)state;
    for (int closing = 0; closing < 2; closing++) {
        unsigned before;

        begin(&usual, "");
        before = script.asked[0];
        if (closing) {
            rme_lock(rme);
            rme_peer_fail(peer->peer, -ECONNRESET, NULL);
            rme_unlock(rme);
        } else {
            script_cut();
        }
        assert_int_equal(rme_addr_reach(rme, peer, 0), -EINPROGRESS);
        assert_int_equal(script.asked[0], before + 1);
        script_refuse(0, -ECONNREFUSED, NULL, 0);
        assert_int_equal(rme_addr_reach(rme, peer, 0), -ECONNREFUSED);
        assert_int_equal(script.asked[0], before + 1);
        end();
    }
}

/* ---- contexts, and children ---- */

/* Closing a context frees each of its operations once, when it is over, without a report. */
static void dropped_with_their_context(void **state)
{
    void *base = plain;
    int64_t length = 100;
    struct rme_list list = {.base = &base, .length = &length, .count = 1};
    struct rme_done done;
    rme_id id[3];

    (void)state;
    begin(&usual, "");
    assert_int_equal(rme_context_open(rme, 1), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rme_post_recv(rme, peer, &list, 7, 1, &id[i], NULL, &id[i]), 0);
    assert_int_equal(rme_cancel(rme, id[0]), 0);
    assert_int_equal(rme_cancel(rme, id[1]), 0);
    run();
    assert_int_equal(rme_test_some(rme, &id[0], 1, NULL, &done, 0), 1);
    assert_int_equal(rme->operations->table.live, 2);
    rme_context_close(rme, 1);
    assert_int_equal(rme->operations->table.live, 1);
    assert_int_equal(*(rme_id *)(uintptr_t)id[1], 0);
    script_cut();
    run();
    assert_int_equal(rme->operations->table.live, 0);
    assert_int_equal(*(rme_id *)(uintptr_t)id[2], 0);
    assert_int_equal(rme_test_some(rme, &id[1], 1, NULL, &done, 0), 0);
    assert_int_equal(rme_test_some(rme, &id[2], 1, NULL, &done, 0), 0);
    end();
}

/* Operations of a closed context are not reported in the next context with its number. */
static void of_a_context_before(void **state)
{
    void *base = plain;
    int64_t length = 100;
    struct rme_list list = {.base = &base, .length = &length, .count = 1};
    struct rme_done done;
    rme_id id;

    (void)state;
    begin(&usual, "");
    assert_int_equal(rme_context_open(rme, 1), 0);
    assert_int_equal(rme_post_recv(rme, peer, &list, 7, 1, &id, NULL, &id), 0);
    rme_context_close(rme, 1);
    assert_int_equal(rme_context_open(rme, 1), 0);
    assert_int_equal(rme_post_recv(rme, peer, &list, 8, 1, &length, NULL, &id), 0);
    script_cut();
    for (int i = 0; i < 4; i++)
        if (rme_test_context(rme, 1, &done, 1, 0) == 1)
            ended++;
    assert_int_equal(ended, 1);
    assert_ptr_equal(done.user, &length);
    end();
}

/* ---- calls of a child ---- */

static struct {
    struct rme_addr *other; /* without a link */
    rme_id id;              /* of a receive in progress */
    struct rme_unexpected got;
    void *alloc;
} of_parent;

static char sink[64];

static struct rme_list in_sink(void)
{
    static void *base = sink;
    static int64_t length = sizeof(sink);

    return (struct rme_list){.base = &base, .length = &length, .count = 1};
}

static void write_nothing(void *arg, const char *line)
{
    (void)arg;
    (void)line;
    _exit(3);
}

static FILE *to_nowhere(void)
{
    return fopen("/dev/null", "w");
}

/* Each public function of the engine, and its permitted result in a child. */
#define IN_A_CHILD(X)                                                                          \
    X(rme_open, child_opens())                                                                 \
    X(rme_close, (rme_close(rme), true))                                                       \
    X(rme_listen_port, rme_listen_port(rme) < 0)                                               \
    X(rme_addr_parse, rme_addr_parse("ib", "ib://a:1", &(struct rme_addr *){NULL}) == 0)       \
    X(rme_addr_any_port, !rme_addr_any_port(peer))                                             \
    X(rme_addr_free, (rme_addr_free(peer), true))                                              \
    X(rme_addr_name, strcmp(rme_addr_name(peer), "ib://peer:1") == 0)                          \
    X(rme_addr_is_dead, !rme_addr_is_dead(peer))                                               \
    X(rme_addr_is_over, !rme_addr_is_over(peer))                                               \
    X(rme_addr_match, rme_addr_match(peer, "peer", 0) == 0)                                    \
    X(rme_addr_reach, rme_addr_reach(rme, of_parent.other, 10) == -ENODEV)                     \
    X(rme_addr_set_host, (rme_addr_set_host(peer, sink), true))                                \
    X(rme_addr_host, rme_addr_host(peer) == NULL)                                              \
    X(rme_context_open, rme_context_open(rme, 2) == -ENODEV)                                   \
    X(rme_context_close, (rme_context_close(rme, 0), true))                                    \
    X(rme_post_send, rme_post_send(rme, peer, &list, 5, 0, NULL, &id) == -ENODEV)              \
    X(rme_post_unexpected, rme_post_unexpected(rme, peer, &list, 5, 0, NULL, &id) == -ENODEV)  \
    X(rme_post_recv, rme_post_recv(rme, peer, &list, 5, 0, NULL, &actual, &id) == -ENODEV)     \
    X(rme_test_some, rme_test_some(rme, &of_parent.id, 1, &at, &done, 10) == -ENODEV)          \
    X(rme_test_context, rme_test_context(rme, 0, &done, 1, 10) == -ENODEV)                     \
    X(rme_test_unexpected, rme_test_unexpected(rme, &got, 1, 10) == -ENODEV)                   \
    X(rme_unexpected_free, rme_unexpected_free(rme, of_parent.got.buffer) <= 0)                \
    X(rme_cancel, rme_cancel(rme, of_parent.id) <= 0)                                          \
    X(rme_set_forceful_cancel, (rme_set_forceful_cancel(rme), true))                           \
    X(rme_memory_alloc, rme_memory_alloc(rme, 4096) == NULL)                                   \
    X(rme_memory_free, rme_memory_free(rme, of_parent.alloc) == -ENODEV)                       \
    X(rme_memory_hint, (rme_memory_hint(rme, plain, LARGE, RME_TO_SEND), true))                \
    X(rme_counter_get, rme_counter_get(rme, 0, &counter) <= 0)                                 \
    X(rme_counter_value, rme_counter_value(rme, "peers") == 0)                                 \
    X(rme_session_get, rme_session_get(rme, peer, 0, &counter) < 0)                            \
    X(rme_print_peers, (rme_print_peers(rme, write_nothing, NULL), true))                      \
    X(rme_print_options, (rme_print_options(to_nowhere(), NULL), true))                        \
    X(rme_option_get, rme_option_get(rme, "poll_us", &actual) == 0)                            \
    X(rme_option_known, rme_option_known(&script_ops, "poll_us"))                              \
    X(rme_key_opens, rme_key_opens(rme) != NULL)                                               \
    X(rme_explain, (rme_explain(rme, 4096, 1, to_nowhere()), true))

/* Begins to open an engine of the child's own, up to the parsing of options. */
static bool child_opens(void)
{
    struct rme_config config = {.fabric = &script_ops, .options = "poll_us=many"};
    struct rme *own = NULL;

    return rme_open(&config, &own) == -EINVAL;
}

/* Returns whether the function's row holds in a child, without a call of the fabric. */
static bool holds_in_a_child(const char *function)
{
    struct script before = script;
    struct rme_list list = in_sink();
    struct rme_counter counter;
    struct rme_unexpected got;
    struct rme_done done;
    int64_t actual = 0;
    bool holds = false;
    rme_id id;
    int at;

#define RUN(name, row)                                                                         \
    if (strcmp(function, #name) == 0)                                                          \
        holds = row;
    IN_A_CHILD(RUN)
#undef RUN
    return holds && memcmp(&before, &script, sizeof(script)) == 0;
}

/* Runs the row in a child, while a thread that the child lacks holds the engine's lock. */
static int run_in_a_child(const char *function)
{
    int status;
    pid_t child;

    rme_lock(rme);
    child = fork();
    if (child == 0) {
        alarm(60); /* ends a wait for a lock that is never released */
        _exit(holds_in_a_child(function) ? 0 : 1);
    }
    pthread_mutex_unlock(&rme->lock);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* All functions of rme.h: a new one needs a row above. */
static void forked_child_cannot_use_engine(void **state)
{
    char path[4096], line[256], *name;
    const char *top = getenv("srcdir");
    struct rme_list list = in_sink();
    unsigned functions = 0;
    FILE *header;

    (void)state;
    snprintf(path, sizeof(path), "%s/common/rme.h", top != NULL ? top : ".");
    header = fopen(path, "r");
    if (header == NULL)
        fail_msg("%s: %s; say where the sources are: srcdir=DIRECTORY", path, strerror(errno));
    begin(&usual, "");
    assert_int_equal(rme_addr_parse("ib", "ib://nobody:1", &of_parent.other), 0);
    assert_int_equal(rme_post_recv(rme, peer, &list, 4, 0, NULL, &(int64_t){0}, &of_parent.id),
                     0);
    SAYS(EAGER, 0, .flags = RME_WIRE_F_UNEXPECTED);
    assert_int_equal(rme_test_unexpected(rme, &of_parent.got, 1, 0), 1);
    of_parent.alloc = rme_memory_alloc(rme, 4096);
    assert_non_null(of_parent.alloc);
    while (fgets(line, sizeof(line), header) != NULL) {
        int status;

        if (strncmp(line, "RME_API ", 8) != 0) /* a type, perhaps a star, the name */
            continue;
        line[strcspn(line, "(")] = '\0';
        name = strrchr(line, ' ') + 1;
        name += *name == '*';
        functions++;
        status = run_in_a_child(name);
        if (status != 0)
            print_error("%s in a child: status %#x\n", name, (unsigned)status);
        assert_int_equal(status, 0);
    }
    fclose(header);
    assert_true(functions > 0);
    assert_int_equal(rme_unexpected_free(rme, of_parent.got.buffer), 0);
    assert_int_equal(rme_memory_free(rme, of_parent.alloc), 0);
    assert_int_equal(rme_cancel(rme, of_parent.id), 0);
    run();
    assert_int_equal(ended, 1);
    rme_addr_free(of_parent.other);
    end();
}

/* ---- no fork handler ---- */

static bool no_handlers; /* no handler can be registered */
static char logged[300];

typedef void (*handler)(void);
int __real_pthread_atfork(handler prepare, handler parent, handler child);
int __wrap_pthread_atfork(handler prepare, handler parent, handler child);

int __wrap_pthread_atfork(handler prepare, handler parent, handler child)
{
    return no_handlers ? ENOMEM : __real_pthread_atfork(prepare, parent, child);
}

static void write_line(void *arg, enum rme_log_level level, const char *line)
{
    (void)arg;
    if (level == RME_LOG_ERROR)
        snprintf(logged, sizeof(logged), "%s", line);
}

/* Without a fork handler an engine would not notice that it is a parent's: it is not opened,
 * and the log says why. Runs before all other tests: a process registers the handler once. */
static void no_engine_without_a_fork_handler(void **state)
{
    struct rme_config config = {
        .fabric = &script_ops, .options = "regcache_entries=0", .log = write_line};
    int status = 1;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        no_handlers = true;
        _exit(rme_open(&config, &rme) == -ENOMEM && strstr(logged, "pthread_atfork") != NULL
                  ? 0
                  : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- memory that a peer may access ---- */

enum answer { PART, READ, REFUSED, LEFT, CANCELLED, WRITTEN, TAKEN_BACK, ANSWERS };

/* The peer answers a send whose memory RTS has offered, or, from WRITTEN on, a receive whose
 * memory an invitation has opened. */
static void answer_with(enum answer answer, uint32_t handle, rme_id id)
{
    switch (answer) {
    case PART: /* the send writes, and waits for more */
        SAYS(CTS, 65536, .to = handle, .from = 9);
        break;
    case READ:
        SAYS(FIN, 0, .to = handle, .from = 9, .offset = LARGE);
        break;
    case REFUSED:
        refuses(handle);
        break;
    case LEFT:
        SAYS(CANCEL, 0, .to = handle, .from = 9);
        break;
    case WRITTEN:
        script_imm(0, handle);
        run();
        break;
    default:
        assert_int_equal(rme_cancel(rme, id), 0);
        run();
        SAYS(FIN, 0, .to = handle, .from = 9, .status = RME_WIRE_CANCELED);
    }
}

static void write_all(void)
{
    while (script.rdma_ops > 0) {
        script_finish(0);
        run();
    }
}

/* Each answer closes the memory, whether or not the operation has ended. */
static void answered_memory_is_closed(void **state)
{
    (void)state;
    for (enum answer answer = PART; answer < ANSWERS; answer++) {
        begin(&usual, "");
        rme_id id = answer < WRITTEN ? send_(zone(0), LARGE, 3) : receive(zone(0), LARGE, 3);
        uint32_t handle = LAST;

        assert_int_equal(script.open, 1);
        answer_with(answer, handle, id);
        assert_int_equal(script.open, 0);
        assert_int_equal(ended, answer != PART);
        if (answer == PART) {
            write_all();
            SAYS(CTS, LARGE - 65536, .to = handle, .from = 9, .offset = 65536);
            write_all();
            assert_int_equal(ended, 1);
            assert_int_equal(done_.error, 0);
        }
        assert_int_equal(errors(), 0);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_engine_without_a_fork_handler),
        cmocka_unit_test(read_and_then_written),
        cmocka_unit_test(read_in_part),
        cmocka_unit_test(read_without_an_offer),
        cmocka_unit_test(offered_in_part),
        cmocka_unit_test(window_out_of_order_is_refused),
        cmocka_unit_test(cancel_starts_no_write),
        cmocka_unit_test(fin_starts_no_read),
        cmocka_unit_test(fin_opens_no_window),
        cmocka_unit_test(unexpected_behind_one_that_goes),
        cmocka_unit_test(unexpected_of_the_link_before),
        cmocka_unit_test(freed_while_it_is_copied),
        cmocka_unit_test(reached_while_its_link_ends),
        cmocka_unit_test(dropped_with_their_context),
        cmocka_unit_test(of_a_context_before),
        cmocka_unit_test(forked_child_cannot_use_engine),
        cmocka_unit_test(answered_memory_is_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
