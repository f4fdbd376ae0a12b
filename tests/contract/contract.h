/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * contract.h - tests of BMI's contract with the real method, between processes.
 *
 * A test forks a server and its clients before any BMI call, so that each is a fresh process.
 * The server executes requests in the clients' unexpected messages; a client is a function of
 * the test. A failed CHECK ends its process with one line, which fails the test.
 */
#ifndef CONTRACT_H
#define CONTRACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "bmi.h"
#include "rme.h"

/* Timeout of a step that hangs: 4 GiB on a busy machine take more than a minute. Three of them
 * are less than the runner's deadline. */
#define PATIENCE_S 300
#define REPLY_TAG  0x7000 /* first tag of replies; each call of a client uses the next one */

#define CHECK(what)                                                                            \
    do {                                                                                       \
        if (!(what))                                                                           \
            check_failed(__FILE__, __LINE__, #what);                                           \
    } while (0)

/* Checks that two numbers are equal; the line shows both. */
#define CHECK_EQUAL(a, b) check_equal(__FILE__, __LINE__, #a, (int64_t)(a), (int64_t)(b))

_Noreturn void check_failed(const char *file, int line, const char *what);
void check_equal(const char *file, int line, const char *what, int64_t a, int64_t b);

/* ---- Requests of clients ---- */

enum ask {
    ASK_PING, /* answer */
    ASK_TAKE, /* post `count` receives of `size` bytes with `tag`, answer when they are complete
               */
    ASK_GIVE, /* post `count` sends, answer when they are complete */
    ASK_IGNORE, /* answer and never post anything with that tag */
};

#define MIXED_SIZES                                                                            \
    (-1) /* as `size`: message i has mixed_size(i) bytes, receives have room for the largest */

struct request {
    int32_t ask;
    int32_t reply_tag;
    int32_t tag;
    int32_t count;
    int64_t size;
    int64_t expect; /* ASK_TAKE: real length of each message, to check the pattern */
};

struct reply {
    int32_t errors; /* operations that ended with an error */
    int32_t error;  /* the first error */
    int32_t bad;    /* messages with wrong size or contents */
    int32_t pid;
};

int64_t mixed_size(int i);
#define MIXED_MAX (300 * 1024)

/* Contents of message i with a tag. */
void fill(void *memory, int64_t size, int tag, int i);
bool is_filled(const void *memory, int64_t size, int tag, int i);

/* ---- Operations ---- */

/* One operation; its address is the user pointer. */
struct flight {
    bmi_op_id_t id;
    int reports; /* number of its reports */
    int error;
    int64_t actual;
};

void collect(bmi_context_id context, int idle_ms); /* one BMI_testcontext of the context */
void wait_for(bmi_context_id context, struct flight *f); /* until it is reported */
/* collects for a while in which nothing should be reported */
void settle(bmi_context_id context);

/* Post an operation; one that completes at once counts as reported. */
void post_send(struct flight *f, BMI_addr_t to, const void *memory, int64_t size, int tag,
               bmi_context_id context);
void post_recv(struct flight *f, BMI_addr_t from, void *memory, int64_t size, int tag,
               bmi_context_id context);

/* ---- Processes ---- */

struct client {
    int number; /* 0 … clients-1 */
    BMI_addr_t server;
    bmi_context_id context;
    int calls;
    struct flight request, answer;
    struct request ask;
    struct reply reply;
};

typedef void (*client_fn)(struct client *c);

void client_start(struct client *c); /* done before a client_fn is called */
void client_stop(struct client *c);  /* and after it returns */

/* Ask the server: begin, post the operations that belong to the request, end. */
void ask_begin(struct client *c, struct request ask);
void ask_end(struct client *c);
void ask(struct client *c, struct request ask); /* begin and end */
void ping(struct client *c);

/* Options of the method for processes started from now on; NULL: none. */
extern char *method_options;

/* The server's host; another one than 127.0.0.1 is not checked by rules. */
extern const char *test_host;

/* Memory of the server's messages; tests may set others before a server starts. */
struct server_memory {
    void *(*get)(int64_t size);
    void (*fill)(void *memory, int64_t size, int tag, int i);
    bool (*is_filled)(const void *memory, int64_t size, int tag, int i);
    void (*put)(void *memory, int64_t size);
};
extern struct server_memory server_memory;

/* The network: ib, or CONTRACT_NETWORK. */
struct network {
    const char *scheme, *method;
    const char *another; /* an address followed by one of another network */
    int clients;         /* number of clients that one server is tested with */
};
const struct network *test_network(void);
struct bmi_method_ops *test_method(void);

/* Returns the running test's address, unique so that a client cannot reach another test's
 * server. */
const char *test_uri(void);

/* Runs `clients` processes with one server; returns when all have ended with success. */
void run_clients(client_fn client, int clients);

/* A case that is one client with a server, or one process without. */
struct contract_case {
    client_fn client;
    void (*alone)(void);
};
#define ONE_CLIENT(name)                                                                       \
    {                                                                                          \
#name, run_case, NULL, NULL, &(struct contract_case)                                   \
        {                                                                                      \
            .client = name                                                                     \
        }                                                                                      \
    }
#define ALONE(name)                                                                            \
    {                                                                                          \
#name, run_case, NULL, NULL, &(struct contract_case)                                   \
        {                                                                                      \
            .alone = name                                                                      \
        }                                                                                      \
    }
void run_case(void **state);

/* Parts of run_clients(), for tests that need more. */
pid_t start_server(void);
void stop_server(pid_t server); /* asks it to end and checks its exit status */
pid_t start_client(client_fn client, int number);
void wait_client(pid_t client);
void new_test(void); /* selects the next port */

/* Waits, with AddressSanitizer, until each other thread sleeps or has ended. fork() does not
 * take the locks of that tool (before LLVM 18): a child waits forever for one that a thread
 * held. */
void before_fork(void);

/* Checks counters that must be zero after every test. */
void check_engine(BMI_addr_t addr);

/* The server's main loop, in server.c; runs until `stop` is readable. */
void serve(int ready, int stop);

#endif
