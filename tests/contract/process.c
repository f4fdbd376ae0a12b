/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Processes of a test: start, wait, and the functions of a client. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "bmi-method-support.h"
#include "contract.h"
#include "patches/orangefs/shim/shim-engine.h"
#include "tests/ports/ports.h"

static int first_port, port_offset;

static const struct network networks[] = {
    {"ib", "bmi_ib", "ib://[::1]:1/fs,tcp://x:1", 200},
    /* limited by the contexts of a node */
    {"elan4", "bmi_elan4", "elan4://1:2/fs,tcp://x:1", 60},
};

const struct network *test_network(void)
{
    const char *name = getenv("CONTRACT_NETWORK");

    return &networks[name != NULL && strcmp(name, "elan4") == 0];
}

struct bmi_method_ops *test_method(void)
{
    struct bmi_method_ops *const *ops = bmi_static_methods;

    while (*ops != NULL && strcmp((*ops)->method_name, test_network()->method) != 0)
        ops++;
    CHECK(*ops != NULL);
    return *ops;
}

static bool on_elan4(void)
{
    return test_network() == &networks[1];
}
static int stop_fd = -1;

char *method_options;
const char *test_host = "127.0.0.1";

_Noreturn void check_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "# %s:%d: process %d: not true: %s\n", file, line, (int)getpid(), what);
    _exit(1);
}

void check_equal(const char *file, int line, const char *what, int64_t a, int64_t b)
{
    if (a == b)
        return;
    fprintf(stderr, "# %s:%d: process %d: %s is %lld (%s), not %lld (%s)\n", file, line,
            (int)getpid(), what, (long long)a, bmi_status_string((int)a), (long long)b,
            bmi_status_string((int)b));
    _exit(1);
}

static time_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* A process that ends without running exit handlers asks AddressSanitizer itself for leaks. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

_Noreturn static void end_well(void)
{
    if (__lsan_do_recoverable_leak_check)
        CHECK(__lsan_do_recoverable_leak_check() == 0);
    _exit(0);
}

/* ---- Contents ---- */

int64_t mixed_size(int i)
{
    static const int64_t sizes[8] = {64, 256 * 1024, 0, 4096, 100000, 3, MIXED_MAX, 16384};
    return sizes[i % 8];
}

static uint64_t next_word(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (*state ^ (*state >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ (z >> 27);
}

void fill(void *memory, int64_t size, int tag, int i)
{
    uint64_t state = (uint64_t)tag << 32 ^ (uint64_t)i;
    unsigned char *at = memory;
    for (; size > 0; size -= 8, at += 8) {
        uint64_t word = next_word(&state);
        memcpy(at, &word, size < 8 ? (size_t)size : 8);
    }
}

bool is_filled(const void *memory, int64_t size, int tag, int i)
{
    uint64_t state = (uint64_t)tag << 32 ^ (uint64_t)i;
    const unsigned char *at = memory;
    for (; size > 0; size -= 8, at += 8) {
        uint64_t word = next_word(&state);
        if (memcmp(at, &word, size < 8 ? (size_t)size : 8) != 0)
            return false;
    }
    return true;
}

/* ---- Operations ---- */

void collect(bmi_context_id context, int idle_ms)
{
    bmi_op_id_t ids[8];
    bmi_error_code_t error[8];
    bmi_size_t actual[8];
    void *user[8];
    int n;

    CHECK(BMI_testcontext(8, ids, &n, error, actual, user, idle_ms, context) >= 0);
    for (int i = 0; i < n; i++) {
        struct flight *f = user[i];
        CHECK(f != NULL);
        f->id = ids[i];
        f->error = error[i];
        f->actual = actual[i];
        f->reports++;
    }
}

void wait_for(bmi_context_id context, struct flight *f)
{
    time_t end = now() + PATIENCE_S;
    while (f->reports == 0) {
        collect(context, 10);
        CHECK(now() < end);
    }
}

void settle(bmi_context_id context)
{
    for (int i = 0; i < 20; i++)
        collect(context, 5);
}

static void note_post(struct flight *f, int ret, int64_t actual)
{
    CHECK(ret >= 0);
    if (ret == 1) {
        f->reports = 1;
        f->actual = actual;
    }
}

void post_send(struct flight *f, BMI_addr_t to, const void *memory, int64_t size, int tag,
               bmi_context_id context)
{
    *f = (struct flight){0};
    note_post(f, BMI_post_send(&f->id, to, memory, size, BMI_EXT_ALLOC, tag, f, context, NULL),
              size);
}

void post_recv(struct flight *f, BMI_addr_t from, void *memory, int64_t size, int tag,
               bmi_context_id context)
{
    bmi_size_t actual = 0;
    *f = (struct flight){0};
    int ret = BMI_post_recv(&f->id, from, memory, size, &actual, BMI_EXT_ALLOC, tag, f, context,
                            NULL);
    CHECK(ret == 0); /* OrangeFS crashes on a receive that completes at once */
}

/* ---- Clients ---- */

void client_start(struct client *c)
{
    CHECK_EQUAL(BMI_initialize(NULL, NULL, 0, NULL), 0);
    CHECK_EQUAL(BMI_open_context(&c->context), 0);
    CHECK_EQUAL(BMI_addr_lookup(&c->server, test_uri(), method_options), 0);
}

void client_stop(struct client *c)
{
    check_engine(c->server);
    BMI_close_context(c->context);
    CHECK_EQUAL(BMI_finalize(), 0);
}

/* Posts the reply's receive first, on an address that may not be connected yet, like
 * OrangeFS. */
void ask_begin(struct client *c, struct request ask)
{
    c->ask = ask;
    c->ask.reply_tag = REPLY_TAG + c->calls++;
    post_recv(&c->answer, c->server, &c->reply, sizeof(c->reply), c->ask.reply_tag, c->context);
    c->request = (struct flight){0};
    note_post(&c->request,
              BMI_post_sendunexpected(&c->request.id, c->server, &c->ask, sizeof(c->ask),
                                      BMI_EXT_ALLOC, c->calls, &c->request, c->context, NULL),
              sizeof(c->ask));
}

void ask_end(struct client *c)
{
    wait_for(c->context, &c->request);
    CHECK_EQUAL(c->request.error, 0);
    wait_for(c->context, &c->answer);
    CHECK_EQUAL(c->answer.error, 0);
    CHECK_EQUAL(c->answer.actual, sizeof(c->reply));
}

void ask(struct client *c, struct request ask)
{
    ask_begin(c, ask);
    ask_end(c);
}

void ping(struct client *c)
{
    ask(c, (struct request){.ask = ASK_PING});
    CHECK_EQUAL(c->reply.errors, 0);
}

void check_engine(BMI_addr_t addr)
{
    struct rme *engine = NULL;
    CHECK_EQUAL(BMI_get_info(addr, SHIM_GET_ENGINE, &engine), 0);
    CHECK_EQUAL(rme_counter_value(engine, "rnr"), 0);
}

/* ---- Processes ---- */

#ifdef __SANITIZE_ADDRESS__
static bool sleeps(const char *thread)
{
    char path[64], state = 'S';
    FILE *stat;

    snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", thread);
    stat = fopen(path, "re");
    if (stat == NULL)
        return true; /* ended */
    (void)!fscanf(stat, "%*d (%*[^)]) %c", &state);
    fclose(stat);
    return state == 'S';
}

static bool others_sleep(void)
{
    DIR *threads = opendir("/proc/self/task");
    bool all = true;

    CHECK(threads != NULL);
    for (struct dirent *e; all && (e = readdir(threads)) != NULL;)
        if (atoi(e->d_name) != 0 && atoi(e->d_name) != (int)gettid())
            all = sleeps(e->d_name);
    closedir(threads);
    return all;
}
#endif

void before_fork(void)
{
#ifdef __SANITIZE_ADDRESS__
    while (!others_sleep())
        sched_yield();
#endif
}

const char *test_uri(void)
{
    static char uri[128];
    if (on_elan4())
        return "elan4://0:2";
    snprintf(uri, sizeof(uri), "ib://%s:%d", test_host, first_port + port_offset);
    return uri;
}

void new_test(void)
{
    if (first_port == 0)
        first_port = ports_take();
    assert_true(first_port > 0);
    port_offset = (port_offset + 1) % PORTS_IN_BLOCK;
    if (on_elan4()) {
        char where[128];
        snprintf(where, sizeof(where), "%s:%d", test_host, first_port + port_offset);
        setenv("BMI_ELAN4_SERVER_ADDR", where, 1);
    }
}

/* Forks a child that dies with its parent and does not write the parent's buffered output. */
static pid_t fork_child(void)
{
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(3 * PATIENCE_S);
    }
    return pid;
}

pid_t start_server(void)
{
    int ready[2], stop[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(stop), 0);
    pid_t pid = fork_child();
    if (pid == 0) {
        close(ready[0]);
        close(stop[1]);
        serve(ready[1], stop[0]);
        end_well();
    }
    close(ready[1]);
    close(stop[0]);
    ssize_t n = read(ready[0], &byte, 1);
    close(ready[0]);
    if (n != 1)
        fail_msg("the server did not start");
    if (stop_fd >= 0)
        close(stop_fd);
    stop_fd = stop[1];
    return pid;
}

static void wait_well(pid_t pid, const char *who)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("%s ended by signal %d", who, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        fail_msg("%s ended with status %d", who, WEXITSTATUS(status));
}

void stop_server(pid_t server)
{
    close(stop_fd);
    stop_fd = -1;
    wait_well(server, "the server");
}

pid_t start_client(client_fn client, int number)
{
    pid_t pid = fork_child();
    if (pid == 0) {
        struct client c = {.number = number};
        client_start(&c);
        client(&c);
        client_stop(&c);
        end_well();
    }
    return pid;
}

void wait_client(pid_t client)
{
    wait_well(client, "a client");
}

void run_clients(client_fn client, int clients)
{
    pid_t pid[clients];

    new_test();
    pid_t server = start_server();
    for (int i = 0; i < clients; i++)
        pid[i] = start_client(client, i);
    for (int i = 0; i < clients; i++)
        wait_client(pid[i]);
    stop_server(server);
}

void run_case(void **state)
{
    const struct contract_case *c = *state;
    pid_t pid;

    if (c->client != NULL) {
        run_clients(c->client, 1);
        return;
    }
    new_test();
    pid = fork_child();
    if (pid == 0) {
        c->alone();
        end_well();
    }
    wait_well(pid, "the process");
}
