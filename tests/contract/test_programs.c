/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Programs that fork, become daemons, get signals, or have little stack between their
 * messages. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "contract.h"

enum { LARGE = 1 << 20, TAG = 3, DAY_S = 86400 };

/* Four times PTHREAD_STACK_MIN: clang inlines more into one frame than gcc, for which twice is
 * enough; sanitizers need more stack. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK_OF_CALLER = 128 * 1024, STACK_OF_OURS = 256 * 1024 };
#else
enum { STACK_OF_CALLER = 64 * 1024, STACK_OF_OURS = 64 * 1024 };
#endif

static void take_begin(struct client *c, struct flight *f, const void *memory)
{
    ask_begin(c, (struct request){
                     .ask = ASK_TAKE, .tag = TAG, .count = 1, .size = LARGE, .expect = LARGE});
    post_send(f, c->server, memory, LARGE, TAG, c->context);
}

static void give_begin(struct client *c, struct flight *f, void *memory)
{
    post_recv(f, c->server, memory, LARGE, TAG, c->context);
    ask_begin(c, (struct request){.ask = ASK_GIVE, .tag = TAG, .count = 1, .size = LARGE});
}

static void transfer_end(struct client *c, struct flight *f)
{
    wait_for(c->context, f);
    CHECK_EQUAL(f->error, 0);
    CHECK_EQUAL(f->actual, LARGE);
    ask_end(c);
    CHECK_EQUAL(c->reply.errors + c->reply.bad, 0);
}

/* Exchanges messages of all sizes, in both directions. */
static void exchange(struct client *c)
{
    enum { COUNT = 8 };
    static char out[COUNT][MIXED_MAX], in[COUNT][MIXED_MAX];
    struct flight f[COUNT];

    for (int i = 0; i < COUNT; i++)
        fill(out[i], mixed_size(i), TAG, i);
    ask_begin(
        c, (struct request){.ask = ASK_TAKE, .tag = TAG, .count = COUNT, .size = MIXED_SIZES});
    for (int i = 0; i < COUNT; i++)
        post_send(&f[i], c->server, out[i], mixed_size(i), TAG, c->context);
    for (int i = 0; i < COUNT; i++) {
        wait_for(c->context, &f[i]);
        CHECK_EQUAL(f[i].error, 0);
    }
    ask_end(c);
    CHECK_EQUAL(c->reply.errors + c->reply.bad, 0);
    for (int i = 0; i < COUNT; i++)
        post_recv(&f[i], c->server, in[i], MIXED_MAX, TAG, c->context);
    ask(c, (struct request){.ask = ASK_GIVE, .tag = TAG, .count = COUNT, .size = MIXED_SIZES});
    for (int i = 0; i < COUNT; i++) {
        wait_for(c->context, &f[i]);
        CHECK_EQUAL(f[i].error, 0);
        CHECK_EQUAL(f[i].actual, mixed_size(i));
        CHECK(is_filled(in[i], mixed_size(i), TAG, i));
    }
}

/* ---- Fork with operations in progress ---- */

/* Forks a child that only writes to its own memory and lives until `hold` is closed. */
static pid_t fork_idle_child(char *memory, int hold[2])
{
    char byte;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid > 0)
        return pid;
    close(hold[1]);
    memset(memory, 0xee, LARGE);
    _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
}

static void transfer_with_child(struct client *c, bool take, int stage)
{
    char *memory = malloc(LARGE + 1), *after = memory + LARGE;
    struct flight f;
    int hold[2], status;

    CHECK(memory != NULL);
    CHECK(pipe(hold) == 0);
    memset(memory, 0, LARGE);
    if (take) {
        fill(memory, LARGE, TAG, 0);
        take_begin(c, &f, memory);
    } else {
        give_begin(c, &f, memory);
    }
    for (int i = 0; i < stage; i++)
        collect(c->context, 0);
    pid_t child = fork_idle_child(memory, hold);
    *after = 'a'; /* on the last page of memory in use: the kernel copies that page */
    transfer_end(c, &f);
    CHECK(is_filled(memory, LARGE, TAG, 0));
    close(hold[1]);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    close(hold[0]);
    free(memory);
}

static void fork_while_operations_fly_harms_none(struct client *c)
{
    enum { STAGES = 12 };

    /* the first stage is before the connection */
    for (int stage = 0; stage < STAGES; stage++) {
        transfer_with_child(c, stage % 2 == 0, stage);
        transfer_with_child(c, stage % 2 != 0, stage);
    }
    ping(c);
}

/* ---- daemon() ---- */

static int daemon_says[2];

/* As documented, the daemon initializes BMI again. Operations on its earlier objects are
 * refused. */
static void client_that_becomes_a_daemon(struct client *c)
{
    static char memory[LARGE];
    bmi_op_id_t id;
    struct flight f;

    ping(c);
    give_begin(c, &f, memory);
    before_fork();
    CHECK_EQUAL(daemon(1, 1), 0);
    alarm(PATIENCE_S);
    CHECK_EQUAL(
        BMI_post_send(&id, c->server, memory, LARGE, BMI_EXT_ALLOC, 1, c, c->context, NULL),
        -BMI_ENODEV);
    CHECK_EQUAL(BMI_finalize(), 0);
    client_start(c);
    exchange(c);
    client_stop(c);
    CHECK(write(daemon_says[1], "c", 1) == 1);
    _exit(0);
}

static void daemon_after_opening_opens_anew(void **state)
{
    char byte;

    (void)state;
    new_test();
    pid_t server = start_server();
    assert_int_equal(pipe(daemon_says), 0); /* closed when the daemon dies */
    pid_t client = start_client(client_that_becomes_a_daemon, 0);
    close(daemon_says[1]);
    wait_client(client); /* the client's former process */
    assert_int_equal(read(daemon_says[0], &byte, 1), 1);
    close(daemon_says[0]);
    stop_server(server);
}

/* The same with a server that becomes a daemon while listening: at the same address. */
static void server_daemon(int ready, int stop)
{
    pid_t before = getpid();

    CHECK_EQUAL(BMI_initialize(test_network()->method, test_uri(), BMI_INIT_SERVER, NULL), 0);
    before_fork();
    CHECK_EQUAL(daemon(1, 1), 0);
    alarm(PATIENCE_S);
    while (kill(before, 0) == 0) /* which holds the address until then */
        sched_yield();
    CHECK_EQUAL(BMI_finalize(), 0);
    serve(ready, stop);
    CHECK(write(daemon_says[1], "s", 1) == 1);
}

static void daemon_after_listening_listens_anew(void **state)
{
    int ready[2], stop[2], status;
    char byte;

    (void)state;
    assert_int_equal(pipe(daemon_says), 0);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(stop), 0);
    new_test();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(stop[1]);
        server_daemon(ready[1], stop[0]);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(ready[1]);
    close(daemon_says[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    wait_client(start_client(exchange, 0));
    close(stop[1]);
    assert_int_equal(read(daemon_says[0], &byte, 1), 1);
    close(daemon_says[0]);
    close(ready[0]);
    close(stop[0]);
}

/* ---- Signals ---- */

static _Atomic pid_t signalled_too; /* a process that gets each signal, too; 0: none */
static atomic_int signals;

static void on_timer(int signal)
{
    pid_t other = atomic_load(&signalled_too);

    (void)signal;
    atomic_fetch_add(&signals, 1);
    if (other > 0)
        kill(other, SIGUSR2);
}

static void on_signal(int signal)
{
    (void)signal;
}

/* A timer with 10,000 signals per second, from before the connection until after its end. The
 * machine decides how many arrive: the client continues until they are enough. */
static void client_with_a_timer(struct client *c)
{
    enum { ENOUGH = 2000 };
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec often = {.it_interval.tv_nsec = 100000, .it_value.tv_nsec = 100000};
    timer_t timer;

    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    for (int rounds = 0; rounds < 3 || atomic_load(&signals) < ENOUGH; rounds++) {
        exchange(c);
        atomic_store(&signalled_too, c->reply.pid);
        if (rounds % 2 == 0) {
            client_stop(c);
            client_start(c);
        }
    }
    atomic_store(&signalled_too, 0);
    timer_delete(timer);
}

static void signals_at_10_khz_disturb_nothing(void **state)
{
    struct sigaction timer = {.sa_handler = on_timer}, other = {.sa_handler = on_signal};

    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &timer, NULL), 0); /* no SA_RESTART; inherited */
    assert_int_equal(sigaction(SIGUSR2, &other, NULL), 0);
    run_clients(client_with_a_timer, 1);
}

/* ---- Clock jumps ---- */

static atomic_int jumps; /* readings of the time of day; none before `clock_jumps` */
static atomic_bool clock_jumps;

/* Shifts each reading of the time of day by a day, forwards and backwards in turn. */
static time_t jump(void)
{
    if (!atomic_load(&clock_jumps))
        return 0;
    return atomic_fetch_add(&jumps, 1) % 2 ? -DAY_S : DAY_S;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *t)
{
    int ret = (int)syscall(SYS_clock_gettime, clock, t);

    if (ret == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        t->tv_sec += jump();
    return ret;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict t,
                                                        void *restrict zone)
{
    int ret = (int)syscall(SYS_gettimeofday, t, zone);

    if (ret == 0)
        t->tv_sec += jump();
    return ret;
}

__attribute__((visibility("default"))) time_t time(time_t *out)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    if (out != NULL)
        *out = t.tv_sec;
    return t.tv_sec;
}

/* Works, sleeps in the engine, and reconnects, on a connection with keep-alives. */
static void client_with_a_clock(struct client *c)
{
    for (int round = 0; round < 3; round++) {
        exchange(c);
        collect(c->context, 50);
        client_stop(c);
        client_start(c);
    }
    ping(c);
}

static void clock_that_jumps_is_ignored(void **state)
{
    static char watched[] = "keepalive_ms=20";

    (void)state;
    method_options = watched;
    atomic_store(&clock_jumps, true); /* inherited by server and client */
    run_clients(client_with_a_clock, 1);
    atomic_store(&clock_jumps, false);
    method_options = NULL;
}

/* ---- Small stacks ---- */

static void *exchange_in_thread(void *arg)
{
    struct client *c = arg;

    client_start(c);
    exchange(c);
    client_stop(c);
    return NULL;
}

/* Runs everything in a thread with the smallest stack; threads of the library have little,
 * too. */
static void small_stacks_are_enough(struct client *c)
{
    pthread_attr_t attr;
    pthread_t thread;

    client_stop(c);
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setstacksize(&attr, STACK_OF_OURS) == 0);
    CHECK(pthread_setattr_default_np(&attr) == 0);
    CHECK(pthread_attr_setstacksize(&attr, STACK_OF_CALLER) == 0);
    CHECK(pthread_create(&thread, &attr, exchange_in_thread, c) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    client_start(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ONE_CLIENT(fork_while_operations_fly_harms_none),
        cmocka_unit_test(daemon_after_opening_opens_anew),
        cmocka_unit_test(daemon_after_listening_listens_anew),
        cmocka_unit_test(signals_at_10_khz_disturb_nothing),
        cmocka_unit_test(clock_that_jumps_is_ignored),
        ONE_CLIENT(small_stacks_are_enough),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
