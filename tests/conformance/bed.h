/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bed.h - the fixture: engines ("nodes"), operations, patterned memory, driven from one thread.
 *
 * The fixture closes everything that a test opens and frees its blobs, also after a failure,
 * and then checks the counters: no RNR, no live operation, nothing left in the fabric. A test
 * waits for events with generous timeouts and counts; no result depends on speed.
 */
#ifndef TESTS_BED_H
#define TESTS_BED_H

#include "lane.h"

#define BED_NODES       256
#define BED_PIECES      256
#define BED_PATIENCE_MS 60000

struct node {
    struct rme *rme;
    struct rme_addr *listen;
    char name[32];
    bool asleep;                  /* pump() skips the node: its host makes no calls */
    bool no_unexpected;           /* its host does not poll for unexpected messages */
    struct rme_unexpected *inbox; /* fetched and not yet examined, oldest first */
    int ninbox, inbox_size;
    int warnings;      /* log lines at RME_LOG_WARN or worse */
    char warning[512]; /* the last such line */
};

/* An operation of a test. Counts its reports: exactly one is right. */
struct op {
    struct node *node;
    rme_id id;
    int rc;         /* result of the post */
    int reports;    /* a post that returned 1 counts as a report */
    uint64_t open;  /* windows of all hosts at the report, over the loop fabric */
    uint64_t shown; /* registrations that peers may use, likewise */
    int error;
    int64_t actual;
    int place; /* position among all reports of the test, from 1 */
};

/* Memory in pieces, with canaries around and between them. */
struct blob {
    uint8_t *arena;
    size_t size;
    struct node *zone; /* node whose rme_memory_alloc provided the memory */
    int count;
    void *base[BED_PIECES];
    int64_t length[BED_PIECES];
    int64_t total;
};

/* A client and a server that have exchanged addresses. */
struct pair {
    struct node *client, *server;
    struct rme_addr *to_server; /* the client's handle of the server */
    struct rme_addr *to_client; /* the server's handle of the client */
};

/* cmocka fixtures. */
int bed_setup(void **state);
int bed_teardown(void **state);
/* Closes everything, checks, and begins anew within a test. */
void bed_again(void);
#define BED_TEST(name) cmocka_unit_test_setup_teardown(name, bed_setup, bed_teardown)

/* Sets more options for the nodes that this test opens from now on; NULL for none. */
void bed_options(const char *options);
/* Sets the time that passes while a node sleeps, over the loop. There each reading of the clock
 * takes a microsecond; other fabrics use the system's clock. */
void bed_pass_ms(unsigned ms);
/* Uses the system's clock over the loop, too: for tests with threads that sleep. */
void bed_real_time(void);
/* Skips a test that needs the loop's knobs. */
void only_over_loop(void);
/* Disables the fixture's checks for errors that this test provokes. */
void bed_expect_violations(void);

struct node *node_open(const char *name, const char *uri); /* uri NULL: a client */
int node_try(const char *name, const char *uri, struct node **out);
void node_close(struct node *n);
uint64_t node_counter(const struct node *n, const char *name);
/* Returns an attribute of the session between a node and a peer. */
uint64_t node_attribute(struct node *n, struct rme_addr *peer, const char *name);
/* True if the fabric has no windows and memory for peers is registered for each operation. */
bool registers_each(const struct node *n);
struct rme_addr *node_dial(struct node *n, const char *uri);
/* Frees the address. The fixture frees the others at the end of the test. */
void node_forget(struct rme_addr *addr);

/* Polls each awake node once, for completions and unexpected messages. */
void pump(void);
void pump_times(int times);
/* Polls the node once; the call sleeps until an event, for `wait_ms` at most. */
void pump_asleep(struct node *n, int wait_ms);
void pump_until_reported(struct op *op);
void pump_until_both(struct op *a, struct op *b);
void pump_until_all(struct op *ops, int count);
/* Polls until `count` operations of each of two lists are reported. */
void pump_until_all_of(struct op *a, struct op *b, int count);
void pump_until_unexpected(struct node *n, int count);
/* Polls until the counter has reached the value. Use this for conditions that a test needs:
 * the number of polls measures no time, so pump_times() only gives events a chance or stops
 * midway. */
void pump_until_counter(struct node *n, const char *name, uint64_t value);
/* Polls until the node has no links: the end of a peer is noticed at an unknown time. */
void pump_until_no_peers(struct node *n);
/* Removes the oldest unexpected message from the inbox. */
struct rme_unexpected inbox_take(struct node *n);
void inbox_drop(struct node *n);

void post_send(struct op *op, struct node *n, struct rme_addr *to, const struct blob *b,
               int tag);
void post_recv(struct op *op, struct node *n, struct rme_addr *from, const struct blob *b,
               int tag);
void post_unexpected(struct op *op, struct node *n, struct rme_addr *to, const struct blob *b,
                     int tag);
void post_send_ctx(struct op *op, struct node *n, struct rme_addr *to, const struct blob *b,
                   int tag, int ctx);
void post_recv_ctx(struct op *op, struct node *n, struct rme_addr *from, const struct blob *b,
                   int tag, int ctx);
void op_cancel(struct op *op);
/* Checks that the operation was reported once, with success and this many bytes. */
void op_check(const struct op *op, int64_t actual);
/* Checks the received contents, too. */
void op_check_blob(const struct op *op, const struct blob *b, uint64_t seed, int64_t actual);
/* Checks that the operation was reported once, with one of two errors (0 is success). */
void op_check_error(const struct op *op, int error, int or_error);

void blob_flat(struct blob *b, size_t size);
/* Makes a message of one piece, and a place for it. */
void blobs_flat(struct blob *out, struct blob *in, size_t size, uint64_t seed);
/* Makes one piece, `misalign` bytes behind a 64-byte boundary. */
void blob_misaligned(struct blob *b, size_t size, unsigned misalign);
/* Allocates from the node's rme_memory_alloc. */
void blob_zone(struct blob *b, struct node *n, size_t size);
/* Makes `count` pieces of min … max bytes at odd addresses; with_empty: some are empty. */
void blob_pieces(struct blob *b, int count, int min, int max, bool with_empty, uint64_t seed);
/* Makes up to `count` pieces of `total` bytes together. */
void blob_split(struct blob *b, int64_t total, int count, uint64_t seed);
/* Frees the memory before the end of the test, or of the node that provides it. */
void blob_free(struct blob *b);
/* Frees the memory of all blobs of a node, or of all. */
void blobs_free(const struct node *n);
void blob_fill(struct blob *b, uint64_t seed);
void blob_canary(struct blob *b);
/* Checks that the first n bytes are the pattern of `seed` and the rest canaries. */
void blob_check(const struct blob *b, uint64_t seed, int64_t n);
/* Returns the index of the first byte of the pieces that is neither canary nor pattern, or
 * -1. */
int64_t blob_foreign(const struct blob *b, uint64_t seed);
struct rme_list blob_list(const struct blob *b);
uint8_t pattern_byte(uint64_t seed, int64_t at);

void pair_open(struct pair *p);
void pair_open_with(struct pair *p, const char *options);
/* Sends an unexpected message by which the server learns the client's address. */
void pair_meet(struct pair *p);
/* Does the same after a link failure: retries until a message arrives. */
void pair_reconnect(struct pair *p);
/* Sends one message of `size` bytes each way and checks both. */
void pair_exchange(struct pair *p, size_t size, int tag);

uint64_t bed_random(uint64_t *state, uint64_t bound);

#endif
