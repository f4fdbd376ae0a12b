/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * contract.h - tests of what BMI promises, over the real method, between processes.
 *
 * A test forks a server and its clients before anything of BMI runs, so that each is a fresh
 * process.  The server does what clients ask for in unexpected messages; a client is a function
 * of the test.  A CHECK that fails ends its process with one line, which fails the test.
 */
#ifndef CONTRACT_H
#define CONTRACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "bmi.h"
#include "rme.h"

/* for anything that must happen; 200 processes under ThreadSanitizer take a minute */
#ifdef __SANITIZE_THREAD__
#define PATIENCE_S 240
#else
#define PATIENCE_S 60
#endif
#define REPLY_TAG 0x7000 /* replies have tags from here on, one for each call of a client */

#define CHECK(what)                                                                            \
    do {                                                                                       \
        if (!(what))                                                                           \
            check_failed(__FILE__, __LINE__, #what);                                           \
    } while (0)

/* The same for two numbers, which the line shows. */
#define CHECK_EQUAL(a, b) check_equal(__FILE__, __LINE__, #a, (int64_t)(a), (int64_t)(b))

_Noreturn void check_failed(const char *file, int line, const char *what);
void check_equal(const char *file, int line, const char *what, int64_t a, int64_t b);

/* ---- What clients ask of a server ---- */

enum ask {
    ASK_PING, /* answer */
    ASK_TAKE, /* post `count` receives of `size` bytes with `tag`, answer when they are complete
               */
    ASK_GIVE, /* post `count` sends, answer when they are complete */
    ASK_IGNORE, /* answer and never post anything with that tag */
};

#define MIXED_SIZES                                                                            \
    (-1) /* as `size`: message i has mixed_size(i) bytes, receives have room for the largest   \
          */

struct request {
    int32_t ask;
    int32_t reply_tag;
    int32_t tag;
    int32_t count;
    int64_t size;
    int64_t
        expect; /* ASK_TAKE: bytes that each message really has, for the check of the pattern */
};

struct reply {
    int32_t errors; /* operations that ended with an error */
    int32_t error;  /* the first of them */
    int32_t bad;    /* messages with wrong size or contents */
    int32_t pid;
};

int64_t mixed_size(int i);
#define MIXED_MAX (300 * 1024)

/* The contents of message i with a tag. */
void fill(void *memory, int64_t size, int tag, int i);
bool is_filled(const void *memory, int64_t size, int tag, int i);

/* ---- Operations ---- */

/* One operation; its address is the user pointer. */
struct flight {
    bmi_op_id_t id;
    int reports; /* how often it was reported */
    int error;
    int64_t actual;
};

void collect(bmi_context_id context, int idle_ms); /* one BMI_testcontext of the context */
void wait_for(bmi_context_id context, struct flight *f); /* until it is reported */
void settle(bmi_context_id context); /* collects for a while in which nothing should come */

/* Posts; what is complete at once counts as reported. */
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

/* A question to the server: begin, post what belongs to it, end. */
void ask_begin(struct client *c, struct request ask);
void ask_end(struct client *c);
void ask(struct client *c, struct request ask); /* both */

/* Options of the method for the processes that are started from now on; NULL: none. */
extern char *method_options;

/* The network: ib, or what CONTRACT_NETWORK says. */
struct network {
    const char *scheme, *method;
    struct bmi_method_ops *ops;
    const char *another; /* an address, and one for another network behind it */
    int clients;         /* as many as one server is tried with */
};
const struct network *test_network(void);

/* The address of the test that runs: servers of different tests do not meet each other's
 * clients. */
const char *test_uri(void);

/* Runs `clients` processes with one server; returns when all have ended as they should. */
void run_clients(client_fn client, int clients);

/* Runs one process of another kind. */
void run_alone(void (*body)(void));

/* Parts of the first, for tests that do more. */
pid_t start_server(void);
void stop_server(pid_t server); /* asks it to end and checks that it ends well */
pid_t start_client(client_fn client, int number);
void wait_client(pid_t client);
void new_test(void); /* the next port */

/* Counts that must be zero whatever the test did. */
void check_engine(BMI_addr_t addr);

/* The server's main loop, in server.c; runs until `stop` is readable. */
void serve(int ready, int stop);

#endif
