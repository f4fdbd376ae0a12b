/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Life of addresses and connections: lookups, restarts, deaths, many clients. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "contract.h"
#include "bmi-method-support.h"

#define LARGE (512 * 1024)

/* Looks up an address, given without its scheme. */
static bmi_method_addr_p look_up(const char *rest)
{
    char text[100];

    snprintf(text, sizeof(text), "%s%s", test_network()->scheme, rest);
    return test_method()->method_addr_lookup(text);
}

static void method_addr_lookup_before_initialize(void)
{
    struct bmi_method_ops *ops = test_method();
    bmi_method_addr_p early = ops->method_addr_lookup(test_network()->another);

    CHECK(early != NULL);
    CHECK(ops->method_addr_lookup("tcp://127.0.0.1:1") == NULL);
    CHECK(look_up("_exp://127.0.0.1:1") == NULL);
    CHECK(look_up("://") == NULL);
    CHECK(look_up("://host") == NULL);
    CHECK_EQUAL(ops->set_info(BMI_FORCEFUL_CANCEL_MODE, NULL), 0);
    CHECK(ops->memalloc(100, BMI_SEND) == NULL);
    for (int round = 0; round < 3; round++) {
        bmi_method_addr_p listen = ops->method_addr_lookup(test_uri());
        CHECK(listen != NULL);
        CHECK_EQUAL(ops->initialize(listen, round, BMI_INIT_SERVER, NULL), 0);
        CHECK_EQUAL(early->method_type, round);
        /* The server's own address, which is never sent to. */
        bmi_method_addr_p self = ops->method_addr_lookup(test_uri());
        CHECK(self == listen && self->method_type == round);
        CHECK_EQUAL(ops->finalize(), 0);
        CHECK_EQUAL(ops->set_info(BMI_DROP_ADDR, self), 0);
    }
    CHECK_EQUAL(ops->finalize(), 0);
    CHECK_EQUAL(ops->unexpected_free(early), 0);
    CHECK_EQUAL(ops->set_info(BMI_DROP_ADDR, early), 0);
}

/* Finalizes with a connection up, drops the address, and repeats in the same process. */
static void drop_addr_after_finalize(struct client *c)
{
    struct bmi_method_ops *ops = test_method();
    static char memory[LARGE];

    for (int round = 0; round < 3; round++) {
        void *method_addr;
        bmi_op_id_t id;
        ask(c, (struct request){.ask = ASK_PING});
        CHECK_EQUAL(BMI_get_info(c->server, BMI_GET_METH_ADDR, &method_addr), 0);
        /* Leave operations in progress: a receive without a send, and a send without a
         * receive. */
        CHECK_EQUAL(ops->post_recv(&id, method_addr, memory, LARGE, NULL, BMI_EXT_ALLOC, 1, c,
                                   c->context, NULL),
                    0);
        CHECK(ops->post_send(&id, method_addr, memory, LARGE, BMI_EXT_ALLOC, 2, c, c->context,
                             NULL) >= 0);
        /* Take one reference more than the core has, so that the address outlives the core's
         * drop. */
        CHECK(ops->method_addr_lookup(test_uri()) == method_addr);
        CHECK_EQUAL(BMI_finalize(), 0);
        CHECK_EQUAL(ops->set_info(BMI_DROP_ADDR, method_addr), 0);
        client_start(c);
    }
    ask(c, (struct request){.ask = ASK_PING});
}

static void client_initialize_finalize_initialize(struct client *c)
{
    BMI_addr_t last = 0;
    for (int round = 0; round < 5; round++) {
        ask(c, (struct request){.ask = ASK_PING});
        CHECK(c->server != last);
        last = c->server;
        client_stop(c);
        client_start(c);
    }
    ask(c, (struct request){.ask = ASK_PING});
}

/* Starts and stops a server's BMI several times on the same port. */
static void server_initialize_finalize_initialize(void)
{
    bmi_context_id context;

    for (int round = 0; round < 5; round++) {
        CHECK_EQUAL(BMI_initialize(test_network()->method, test_uri(), BMI_INIT_SERVER, NULL),
                    0);
        CHECK_EQUAL(BMI_open_context(&context), 0);
        CHECK_EQUAL(BMI_finalize(), 0);
        /* Run a client in between, without a server. */
        struct client c = {.number = 0};
        struct flight f = {0};
        client_start(&c);
        int ret = BMI_post_sendunexpected(&f.id, c.server, "x", 1, BMI_EXT_ALLOC, 1, &f,
                                          c.context, NULL);
        CHECK_EQUAL(ret, 0);
        wait_for(c.context, &f);
        CHECK(f.error != 0 && (-f.error & BMI_ERROR));
        client_stop(&c);
    }
}

/* A port in use is an error; the process may then use BMI otherwise. */
static void listen_port_in_use(struct client *c)
{
    CHECK_EQUAL(BMI_finalize(), 0);
    CHECK_EQUAL(BMI_initialize(test_network()->method, test_uri(), BMI_INIT_SERVER, NULL),
                -BMI_EADDRINUSE);
    client_start(c);
    ask(c, (struct request){.ask = ASK_PING});
}

static void wrong_options_refused_unknown_ones_ignored(void)
{
    BMI_addr_t addr;
    char wrong[] = "poll_us=banana", other[] = "tcp_only=7,retry_count=6";

    CHECK_EQUAL(BMI_initialize(test_network()->method, test_uri(), BMI_INIT_SERVER, wrong),
                -BMI_EINVAL);
    CHECK_EQUAL(BMI_initialize(NULL, NULL, 0, NULL), 0);
    CHECK_EQUAL(BMI_addr_lookup(&addr, test_uri(), wrong), -BMI_EINVAL);
    CHECK_EQUAL(BMI_addr_lookup(&addr, test_uri(), other), 0);
    CHECK_EQUAL(BMI_finalize(), 0);
}

/* ---- Cancels ---- */

/* Cancels receives and sends: before the connection is up, while they wait for the peer, and
 * when complete. (tests/conformance cancels in the middle of transfers.) */
static void cancel_is_reported_exactly_once(struct client *c)
{
    enum { OPS = 6 };
    struct flight f[OPS];
    char *memory = malloc(OPS * LARGE);

    for (int connected = 0; connected < 2; connected++) {
        for (int i = 0; i < 3; i++)
            post_recv(&f[i], c->server, memory + i * LARGE, LARGE, 50 + i, c->context);
        for (int i = 3; i < OPS; i++) /* sends without a receive: they wait for the peer */
            post_send(&f[i], c->server, memory + i * LARGE, LARGE, 50 + i, c->context);
        if (connected) {
            ping(c);
            settle(c->context);
        }
        for (int i = 0; i < OPS; i++) {
            CHECK_EQUAL(f[i].reports, 0);
            CHECK_EQUAL(BMI_cancel(f[i].id, c->context), 0);
            CHECK_EQUAL(BMI_cancel(f[i].id, c->context), 0);
        }
        for (int i = 0; i < OPS; i++) {
            wait_for(c->context, &f[i]);
            CHECK_EQUAL(f[i].error, -BMI_ECANCEL);
        }
        settle(c->context);
        for (int i = 0; i < OPS; i++) {
            CHECK_EQUAL(f[i].reports, 1);
            CHECK_EQUAL(BMI_cancel(f[i].id, c->context), 0);
        }
        ping(c);
    }
    free(memory);
}

/* ---- Many clients ---- */

static void one_of_many_client(struct client *c)
{
    char *memory = malloc(LARGE);
    struct flight f;

    for (int round = 0; round < 3; round++) {
        int tag = 10 + round;
        int64_t size = round == 1 ? LARGE : 100 + c->number;
        fill(memory, size, tag, 0);
        ask_begin(c,
                  (struct request){
                      .ask = ASK_TAKE, .tag = tag, .count = 1, .size = LARGE, .expect = size});
        post_send(&f, c->server, memory, size, tag, c->context);
        ask_end(c);
        CHECK_EQUAL(c->reply.errors + c->reply.bad, 0);
        wait_for(c->context, &f);
        CHECK_EQUAL(f.error, 0);
    }
    free(memory);
}

static void many_clients_of_one_server(void **state)
{
    /* All clients start at once, and the server gets no more of the processor than each of
     * them. */
    static char patient[] = "connect_timeout_ms=60000";

    (void)state;
    method_options = patient;
    run_clients(one_of_many_client, test_network()->clients);
    method_options = NULL;
}

/* ---- Deaths ---- */

static time_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* Makes one call that may fail; each of its operations ends. Returns true if all succeeded. */
static bool try_call(struct client *c, char *memory, int64_t size, int tag)
{
    struct flight data = {0}, request = {0}, answer = {0};
    struct flight *all[3] = {&answer, &request, &data};
    struct request ask = {.ask = ASK_TAKE,
                          .reply_tag = REPLY_TAG + c->calls++,
                          .tag = tag,
                          .count = 1,
                          .size = size,
                          .expect = size};
    bool posted[3], good = true;

    int ret = BMI_post_recv(&answer.id, c->server, &c->reply, sizeof(c->reply), NULL,
                            BMI_EXT_ALLOC, ask.reply_tag, &answer, c->context, NULL);
    posted[0] = ret == 0;
    ret = BMI_post_sendunexpected(&request.id, c->server, &ask, sizeof(ask), BMI_EXT_ALLOC, 1,
                                  &request, c->context, NULL);
    posted[1] = ret == 0;
    good = good && ret >= 0;
    ret = BMI_post_send(&data.id, c->server, memory, size, BMI_EXT_ALLOC, tag, &data,
                        c->context, NULL);
    posted[2] = ret == 0;
    good = good && ret >= 0;
    for (int i = 0; i < 3; i++) {
        good = good && (i > 0 || posted[i]);
        /* Sends fail by themselves; cancel a reply that will not arrive, like OrangeFS. */
        if (i == 0)
            continue;
        if (posted[i])
            wait_for(c->context, all[i]);
        good = good && all[i]->error == 0;
    }
    if (!good && posted[0])
        CHECK_EQUAL(BMI_cancel(answer.id, c->context), 0);
    if (posted[0])
        wait_for(c->context, &answer);
    good = good && answer.error == 0 && c->reply.errors == 0 && c->reply.bad == 0;
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(all[i]->error == 0 || (-all[i]->error & BMI_ERROR), 1);
        CHECK(all[i]->reports <= 1);
    }
    return good;
}

/* Calls that a client reports, each by a byte with its number: few enough to fit into the
 * pipe. */
#define REPORTED_CALLS 10

static int progress_fd[2];

/* Waits until each client has made that many calls, so that it has used this server. */
static void wait_for_work(int clients)
{
    int calls[clients], busy = clients;
    unsigned char number;

    memset(calls, 0, sizeof(calls));
    while (busy > 0) {
        assert_int_equal(read(progress_fd[0], &number, 1), 1);
        assert_true(number < clients);
        busy -= ++calls[number] == REPORTED_CALLS;
    }
}

/* Works until 40 calls have succeeded with two servers; reports the first calls to the
 * parent. */
static void working_client(struct client *c)
{
    char *memory = malloc(LARGE);
    int good = 0, first_pid = 0, second_pid = 0;
    time_t end = now() + 2 * PATIENCE_S;

    for (int call = 0; second_pid == 0 || good < 40; call++) {
        int tag = 10 + call;
        int64_t size = call % 3 ? LARGE : 200;
        CHECK(now() < end);
        fill(memory, size, tag, 0);
        if (!try_call(c, memory, size, tag)) {
            usleep(20000);
            continue;
        }
        good++;
        if (first_pid == 0)
            first_pid = c->reply.pid;
        else if (c->reply.pid != first_pid)
            second_pid = c->reply.pid;
        if (good <= REPORTED_CALLS)
            CHECK(write(progress_fd[1], &(char){(char)c->number}, 1) == 1);
    }
    free(memory);
}

static void server_killed_and_restarted_under_load(void **state)
{
    (void)state;
    enum { CLIENTS = 4 };
    pid_t client[CLIENTS];

    new_test();
    pid_t server = start_server();
    assert_int_equal(pipe(progress_fd), 0);
    for (int i = 0; i < CLIENTS; i++)
        client[i] = start_client(working_client, i);
    close(progress_fd[1]); /* so that the reader gets EOF when all of them have ended */
    wait_for_work(CLIENTS);
    kill(server, SIGKILL);
    assert_int_equal(waitpid(server, NULL, 0), server);
    server = start_server();
    for (int i = 0; i < CLIENTS; i++)
        wait_client(client[i]);
    stop_server(server);
    close(progress_fd[0]);
}

/* Dies in the middle of its work; the server must only lose this client. */
static void dying_client(struct client *c)
{
    static char memory[LARGE];
    struct flight f;

    ask_begin(c, (struct request){
                     .ask = ASK_TAKE, .tag = 5, .count = 3, .size = LARGE, .expect = LARGE});
    for (int i = 0; i < 2; i++) {
        fill(memory, LARGE, 5, i);
        post_send(&f, c->server, memory, LARGE, 5, c->context);
    }
    for (int i = 0; i < 20 * c->number; i++)
        collect(c->context, 0);
    kill(getpid(), SIGKILL);
}

static void clients_die_and_the_server_lives(void **state)
{
    (void)state;
    enum { DYING = 20 };
    pid_t dying[DYING];

    new_test();
    pid_t server = start_server();
    for (int i = 0; i < DYING; i++)
        dying[i] = start_client(dying_client, i);
    pid_t living = start_client(one_of_many_client, 0);
    for (int i = 0; i < DYING; i++)
        assert_int_equal(waitpid(dying[i], NULL, 0), dying[i]);
    wait_client(living);
    living = start_client(one_of_many_client, 1);
    wait_client(living);
    stop_server(server); /* the server ends only when the dead clients' jobs are over */
}

/*
 * Nothing listens: each operation fails by itself, with an error that OrangeFS retries. The
 * receive of an answer is posted before the request, and the request must be reported first:
 * OrangeFS decides about a retry when the receive ends, and hangs if the request ends later.
 */
static void lookup_without_listener_fails_request_first(void)
{
    struct client c = {.number = 0};
    struct flight answer = {0}, request = {0}, large = {0};
    static char memory[LARGE];

    client_start(&c);
    for (int round = 0; round < 3; round++) {
        bmi_op_id_t id;
        bmi_error_code_t error;
        bmi_size_t actual;
        void *user;
        int n = 0;
        post_recv(&answer, c.server, memory, LARGE, 9, c.context);
        int ret = BMI_post_sendunexpected(&request.id, c.server, "x", 1, BMI_EXT_ALLOC, 9,
                                          &request, c.context, NULL);
        CHECK_EQUAL(ret, 0);
        post_send(&large, c.server, memory, LARGE, 2, c.context);
        for (int i = 0; i < PATIENCE_S * 10 && n == 0; i++)
            CHECK(BMI_testcontext(1, &id, &n, &error, &actual, &user, 100, c.context) >= 0);
        CHECK_EQUAL(n, 1);
        CHECK(user == &request);
        CHECK_EQUAL(error, -BMI_ECONNREFUSED);
        wait_for(c.context, &answer);
        wait_for(c.context, &large);
        CHECK_EQUAL(answer.error, -BMI_ECONNREFUSED);
        CHECK_EQUAL(large.error, -BMI_ECONNREFUSED);
    }
    client_stop(&c);
}

/* ---- Finalize right after the last message ---- */

static const int64_t last_size[] = {10, 5000, 15000, 100000, LARGE};

#define LAST_SIZES (int)(sizeof(last_size) / sizeof(last_size[0]))

/* Receives one message of the size given by the request, answers nothing, and exits. */
static void taking_server(int ready)
{
    struct BMI_unexpected_info info;
    struct request ask;
    bmi_context_id context;
    struct flight f;
    static char memory[LARGE];
    int n = 0;

    CHECK_EQUAL(BMI_initialize(test_network()->method, test_uri(), BMI_INIT_SERVER, NULL), 0);
    CHECK_EQUAL(BMI_open_context(&context), 0);
    CHECK(write(ready, "r", 1) == 1);
    while (n == 0)
        CHECK(BMI_testunexpected(1, &n, &info, 10) >= 0);
    memcpy(&ask, info.buffer, sizeof(ask));
    if (ask.ask == ASK_TAKE) {
        post_recv(&f, info.addr, memory, LARGE, ask.tag, context);
    } else {
        fill(memory, ask.size, ask.tag, 0);
        post_send(&f, info.addr, memory, ask.size, ask.tag, context);
    }
    wait_for(context, &f);
    CHECK_EQUAL(f.error, 0);
    CHECK(ask.ask == ASK_GIVE || is_filled(memory, ask.size, ask.tag, 0));
    CHECK_EQUAL(BMI_finalize(), 0);
}

/* Messages that the server has received are reported as sent, and its own sends arrive,
 * although it finalizes BMI at once. */
static void last_message(int64_t size, enum ask what, int server_alive)
{
    struct request ask = {.ask = what, .tag = 6, .count = 1, .size = size};
    struct client c = {.number = 0};
    struct flight request = {0}, f;
    static char memory[LARGE];

    client_start(&c);
    if (what == ASK_GIVE)
        post_recv(&f, c.server, memory, LARGE, ask.tag, c.context);
    CHECK(BMI_post_sendunexpected(&request.id, c.server, &ask, sizeof(ask), BMI_EXT_ALLOC, 1,
                                  &request, c.context, NULL) >= 0);
    if (what == ASK_TAKE) {
        fill(memory, size, ask.tag, 0);
        post_send(&f, c.server, memory, size, ask.tag, c.context);
    }
    wait_for(c.context, &f);
    CHECK_EQUAL(f.error, 0);
    if (what == ASK_GIVE)
        CHECK(f.actual == size && is_filled(memory, size, ask.tag, 0));
    char byte;
    CHECK(read(server_alive, &byte, 1) == 0);
    CHECK_EQUAL(BMI_finalize(), 0);
}

static void run_last_messages(enum ask what)
{
    for (int i = 0; i < LAST_SIZES; i++) {
        int ready[2], status;
        char byte;
        new_test();
        assert_int_equal(pipe(ready), 0);
        pid_t server = fork();
        if (server == 0) {
            taking_server(ready[1]);
            _exit(0);
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        pid_t client = fork();
        if (client == 0) {
            last_message(last_size[i], what, ready[0]);
            _exit(0);
        }
        close(ready[0]);
        assert_int_equal(waitpid(client, &status, 0), client);
        if (status != 0)
            print_message("a message of %lld bytes\n", (long long)last_size[i]);
        assert_int_equal(status, 0);
        wait_client(server);
    }
}

static void server_ends_after_its_receive(void **state)
{
    (void)state;
    run_last_messages(ASK_TAKE);
}

static void server_ends_after_its_send(void **state)
{
    (void)state;
    run_last_messages(ASK_GIVE);
}

/* Posts a send that is refused; copies the system log's lines to the file. */
static int refused_send(struct client *c, const void *memory, FILE *system_log)
{
    bmi_op_id_t id;
    int error, own = dup(STDERR_FILENO);

    CHECK(own >= 0 && dup2(fileno(system_log), STDERR_FILENO) == STDERR_FILENO);
    openlog("to-syslog", LOG_PERROR, LOG_DAEMON);
    error = BMI_post_send(&id, c->server, memory, LARGE, BMI_EXT_ALLOC, 1, c, c->context, NULL);
    openlog("to-syslog", 0, LOG_DAEMON);
    CHECK(dup2(own, STDERR_FILENO) == STDERR_FILENO);
    close(own);
    return error;
}

static int lines_of_system_log(FILE *log, const char *words)
{
    char line[1024];
    int n = 0;

    rewind(log);
    while (fgets(line, sizeof(line), log) != NULL)
        n += strncmp(line, "to-syslog: ", 11) == 0 && strstr(line, words) != NULL;
    return n;
}

/* True if the process has a userfaultfd, which watches the memory of transfers. */
static bool has_userfaultfd(void)
{
    char name[64], what[64] = "";
    bool found = false;

    for (int fd = 3; fd < 256 && !found; fd++) {
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        memset(what, 0, sizeof(what));
        found = readlink(name, what, sizeof(what) - 1) > 0 &&
                strcmp(what, "anon_inode:[userfaultfd]") == 0;
    }
    return found;
}

/*
 * A forked child of a process that uses BMI, like pvfs2fuse in the background: its calls on the
 * parent's engine fail and do not hang, and that engine stays the parent's, as does the watch
 * on its memory. The child may initialize BMI itself. The system log gives the reason and the
 * remedy once.
 */
static void forked_child(struct client *c, bmi_op_id_t of_parent)
{
    static char memory[LARGE];
    bmi_op_id_t id;
    bmi_error_code_t error;
    bmi_size_t actual;
    FILE *log = tmpfile();
    int n;

    alarm(PATIENCE_S);
    CHECK(log != NULL);
    CHECK(!has_userfaultfd());
    CHECK_EQUAL(refused_send(c, memory, log), -BMI_ENODEV);
    CHECK_EQUAL(refused_send(c, memory, log), -BMI_ENODEV);
    CHECK_EQUAL(lines_of_system_log(log, "run it in the foreground, -f"), 1);
    fclose(log);
    CHECK_EQUAL(BMI_post_recv(&id, c->server, memory, LARGE, &actual, BMI_EXT_ALLOC, 1, c,
                              c->context, NULL),
                -BMI_ENODEV);
    CHECK_EQUAL(BMI_test(of_parent, &n, &error, &actual, NULL, 10, c->context), -BMI_ENODEV);
    settle(c->context);
    CHECK(BMI_memalloc(c->server, LARGE, BMI_SEND) == NULL);
    CHECK(BMI_unexpected_free(c->server, memory) < 0);
    CHECK_EQUAL(BMI_cancel(of_parent, c->context), 0);
    CHECK_EQUAL(BMI_finalize(), 0);
/* ThreadSanitizer cannot follow threads created in a child of a multi-threaded process */
#ifndef __SANITIZE_THREAD__
    client_start(c);
    ask(c, (struct request){.ask = ASK_PING});
    client_stop(c);
#endif
    _exit(0);
}

static void forked_child_is_refused(struct client *c)
{
    static char memory[LARGE];
    struct flight f = {0};
    int status;
    pid_t pid;

    ask(c, (struct request){.ask = ASK_PING});
    post_recv(&f, c->server, memory, LARGE, 3, c->context);
    before_fork();
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        forked_child(c, f.id);
    CHECK_EQUAL(waitpid(pid, &status, 0), pid);
    CHECK_EQUAL(status, 0);
    ask_begin(c, (struct request){.ask = ASK_GIVE, .tag = 3, .count = 1, .size = LARGE});
    wait_for(c->context, &f);
    ask_end(c);
    CHECK_EQUAL(f.error, 0);
    CHECK(is_filled(memory, LARGE, 3, 0));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ALONE(method_addr_lookup_before_initialize),
        ONE_CLIENT(drop_addr_after_finalize),
        ONE_CLIENT(forked_child_is_refused),
        ONE_CLIENT(client_initialize_finalize_initialize),
        ALONE(server_initialize_finalize_initialize),
        ONE_CLIENT(listen_port_in_use),
        ONE_CLIENT(cancel_is_reported_exactly_once),
        ALONE(wrong_options_refused_unknown_ones_ignored),
        ALONE(lookup_without_listener_fails_request_first),
        cmocka_unit_test(server_ends_after_its_receive),
        cmocka_unit_test(server_ends_after_its_send),
        cmocka_unit_test(many_clients_of_one_server),
        cmocka_unit_test(clients_die_and_the_server_lives),
        cmocka_unit_test(server_killed_and_restarted_under_load),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
