/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Closed contexts, calls of a child after fork, and an engine without a fork handler. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine.h"
#include "scripted.h"

#define COMMON "regcache_entries=0,poll_us=0,keepalive_ms=0"

/* ---- contexts ---- */

static char sink[64];

/* Lets the engine work without taking reports. */
static void look(void)
{
    struct rme_done done;

    while (!script_is_quiet())
        assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 0), 0);
    assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 0), 0);
}

/* Closing a context frees each of its operations once, when it is over, without a report. */
static void dropped_with_their_context(void **state)
{
    void *base = sink;
    int64_t length = sizeof(sink);
    struct rme_list list = {.base = &base, .length = &length, .count = 1};
    struct rme_hello hello = scripted_hello();
    struct rme_done done;
    rme_id id[3];

    (void)state;
    scripted_open(COMMON, &hello);
    assert_int_equal(rme_context_open(scripted.rme, 1), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            rme_post_recv(scripted.rme, scripted.peer, &list, 7, 1, &id[i], NULL, &id[i]), 0);
    assert_int_equal(rme_cancel(scripted.rme, id[0]), 0);
    assert_int_equal(rme_cancel(scripted.rme, id[1]), 0);
    look();
    assert_int_equal(rme_test_some(scripted.rme, &id[0], 1, NULL, &done, 0), 1);
    assert_int_equal(scripted.rme->operations->table.live, 2);
    rme_context_close(scripted.rme, 1);
    assert_int_equal(scripted.rme->operations->table.live, 1);
    assert_int_equal(*(rme_id *)(uintptr_t)id[1], 0);
    script_cut();
    look();
    assert_int_equal(scripted.rme->operations->table.live, 0);
    assert_int_equal(*(rme_id *)(uintptr_t)id[2], 0);
    assert_int_equal(rme_test_some(scripted.rme, &id[1], 1, NULL, &done, 0), 0);
    assert_int_equal(rme_test_some(scripted.rme, &id[2], 1, NULL, &done, 0), 0);
}

/* Operations of a closed context are not reported in the next context with its number. */
static void of_a_context_before(void **state)
{
    void *base = sink;
    int64_t length = sizeof(sink);
    struct rme_list list = {.base = &base, .length = &length, .count = 1};
    struct rme_hello hello = scripted_hello();
    struct rme_done done;
    rme_id id;
    int ended = 0;

    (void)state;
    scripted_open(COMMON, &hello);
    assert_int_equal(rme_context_open(scripted.rme, 1), 0);
    assert_int_equal(rme_post_recv(scripted.rme, scripted.peer, &list, 7, 1, &id, NULL, &id),
                     0);
    rme_context_close(scripted.rme, 1);
    assert_int_equal(rme_context_open(scripted.rme, 1), 0);
    assert_int_equal(
        rme_post_recv(scripted.rme, scripted.peer, &list, 8, 1, &length, NULL, &id), 0);
    script_cut();
    for (int i = 0; i < 4; i++)
        ended += rme_test_context(scripted.rme, 1, &done, 1, 0);
    assert_int_equal(ended, 1);
    assert_ptr_equal(done.user, &length);
}

/* ---- calls of a child ---- */

static struct {
    struct rme_addr *other; /* without a link */
    rme_id id;              /* of a receive in progress */
    struct rme_unexpected got;
    void *alloc;
} of_parent;

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
    X(rme_close, (rme_close(scripted.rme), true))                                              \
    X(rme_listen_port, rme_listen_port(scripted.rme) < 0)                                      \
    X(rme_addr_parse, rme_addr_parse("ib", "ib://a:1", &(struct rme_addr *){NULL}) == 0)       \
    X(rme_addr_any_port, !rme_addr_any_port(scripted.peer))                                    \
    X(rme_addr_free, (rme_addr_free(scripted.peer), true))                                     \
    X(rme_addr_name, strcmp(rme_addr_name(scripted.peer), "ib://other:1") == 0)                \
    X(rme_addr_is_dead, !rme_addr_is_dead(scripted.peer))                                      \
    X(rme_addr_is_over, !rme_addr_is_over(scripted.peer))                                      \
    X(rme_addr_match, rme_addr_match(scripted.peer, "other", 0) == 0)                          \
    X(rme_addr_reach, rme_addr_reach(scripted.rme, of_parent.other, 10) == -ENODEV)            \
    X(rme_addr_set_host, (rme_addr_set_host(scripted.peer, sink), true))                       \
    X(rme_addr_host, rme_addr_host(scripted.peer) == NULL)                                     \
    X(rme_context_open, rme_context_open(scripted.rme, 2) == -ENODEV)                          \
    X(rme_context_close, (rme_context_close(scripted.rme, 0), true))                           \
    X(rme_post_send,                                                                           \
      rme_post_send(scripted.rme, scripted.peer, &list, 5, 0, NULL, &id) == -ENODEV)           \
    X(rme_post_unexpected,                                                                     \
      rme_post_unexpected(scripted.rme, scripted.peer, &list, 5, 0, NULL, &id) == -ENODEV)     \
    X(rme_post_recv,                                                                           \
      rme_post_recv(scripted.rme, scripted.peer, &list, 5, 0, NULL, &actual, &id) == -ENODEV)  \
    X(rme_test_some, rme_test_some(scripted.rme, &of_parent.id, 1, &at, &done, 10) == -ENODEV) \
    X(rme_test_context, rme_test_context(scripted.rme, 0, &done, 1, 10) == -ENODEV)            \
    X(rme_test_unexpected, rme_test_unexpected(scripted.rme, &got, 1, 10) == -ENODEV)          \
    X(rme_unexpected_free, rme_unexpected_free(scripted.rme, of_parent.got.buffer) <= 0)       \
    X(rme_cancel, rme_cancel(scripted.rme, of_parent.id) <= 0)                                 \
    X(rme_set_forceful_cancel, (rme_set_forceful_cancel(scripted.rme), true))                  \
    X(rme_memory_alloc, rme_memory_alloc(scripted.rme, 4096) == NULL)                          \
    X(rme_memory_free, rme_memory_free(scripted.rme, of_parent.alloc) == -ENODEV)              \
    X(rme_memory_hint, (rme_memory_hint(scripted.rme, sink, sizeof(sink), RME_TO_SEND), true)) \
    X(rme_counter_get, rme_counter_get(scripted.rme, 0, &counter) <= 0)                        \
    X(rme_counter_value, rme_counter_value(scripted.rme, "peers") == 0)                        \
    X(rme_session_get, rme_session_get(scripted.rme, scripted.peer, 0, &counter) < 0)          \
    X(rme_print_peers, (rme_print_peers(scripted.rme, write_nothing, NULL), true))             \
    X(rme_print_options, (rme_print_options(to_nowhere(), NULL), true))                        \
    X(rme_option_get, rme_option_get(scripted.rme, "poll_us", &actual) == 0)                   \
    X(rme_option_known, rme_option_known(&script_ops, "poll_us"))                              \
    X(rme_key_opens, rme_key_opens(scripted.rme) != NULL)                                      \
    X(rme_explain, (rme_explain(scripted.rme, 4096, 1, to_nowhere()), true))

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

    rme_lock(scripted.rme);
    child = fork();
    if (child == 0) {
        alarm(60); /* ends a wait for a lock that is never released */
        _exit(holds_in_a_child(function) ? 0 : 1);
    }
    pthread_mutex_unlock(&scripted.rme->lock);
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
    struct rme_hello hello = scripted_hello();
    FILE *header;

    (void)state;
    snprintf(path, sizeof(path), "%s/common/rme.h", top != NULL ? top : ".");
    header = fopen(path, "r");
    if (header == NULL)
        fail_msg("%s: %s; say where the sources are: srcdir=DIRECTORY", path, strerror(errno));
    scripted_connect(COMMON, &hello);
    assert_int_equal(rme_addr_parse("ib", "ib://nobody:1", &of_parent.other), 0);
    assert_int_equal(rme_post_recv(scripted.rme, scripted.peer, &list, 4, 0, NULL,
                                   &(int64_t){0}, &of_parent.id),
                     0);
    scripted_put(
        (struct rme_wire_message){.type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED},
        NULL);
    assert_int_equal(rme_test_unexpected(scripted.rme, &of_parent.got, 1, 0), 1);
    of_parent.alloc = rme_memory_alloc(scripted.rme, 4096);
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
    assert_int_equal(rme_unexpected_free(scripted.rme, of_parent.got.buffer), 0);
    assert_int_equal(rme_memory_free(scripted.rme, of_parent.alloc), 0);
    assert_int_equal(rme_cancel(scripted.rme, of_parent.id), 0);
    assert_int_equal(rme_test_context(scripted.rme, 0, &(struct rme_done){0}, 1, 0), 1);
    rme_addr_free(of_parent.other);
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
        _exit(rme_open(&config, &scripted.rme) == -ENOMEM &&
                      strstr(logged, "pthread_atfork") != NULL
                  ? 0
                  : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_engine_without_a_fork_handler),
        SCRIPTED_TEST(dropped_with_their_context),
        SCRIPTED_TEST(of_a_context_before),
        SCRIPTED_TEST(forked_child_cannot_use_engine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
