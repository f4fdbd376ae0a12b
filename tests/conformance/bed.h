/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bed.h - the test bed: engines ("nodes"), operations, patterned memory, all driven from one
 * thread.
 *
 * Everything a test opens is closed by the fixture, also after a failure, and then the books
 * must balance: no receiver not ready, no operation alive, nothing left in the fabric.  Nothing
 * depends on how fast anything is: a test waits for something to happen, for a very long time
 * if need be, and counts.  Engines measure no costs unless a test asks for that
 * (measure_costs=1).
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
    bool asleep;                  /* pump() passes it by: its host calls nothing */
    bool no_unexpected;           /* its host does not ask for unexpected messages */
    struct rme_unexpected *inbox; /* claimed and not looked at, oldest first */
    int ninbox, inbox_size;
    int warnings;      /* lines of the log at RME_LOG_WARN or worse */
    char warning[512]; /* the last of them */
};

/* An operation of a test.  Counts its reports: exactly one is right. */
struct op {
    struct node *node;
    rme_id id;
    int rc;         /* of the post */
    int reports;    /* a post that returned 1 counts as one */
    uint64_t open;  /* windows of all hosts at the report, over the loop fabric */
    uint64_t shown; /* likewise registrations that peers may use */
    int error;
    int64_t actual;
    int place; /* among all reports of the test, from 1 */
};

/* Memory in pieces, with canaries around each and between them. */
struct blob {
    uint8_t *arena;
    size_t size;
    struct node *zone; /* the memory comes from rme_memory_alloc of this node */
    int count;
    void *base[BED_PIECES];
    int64_t length[BED_PIECES];
    int64_t total;
};

/* Client and server that know each other. */
struct pair {
    struct node *client, *server;
    struct rme_addr *to_server; /* the client's name for the server */
    struct rme_addr *to_client; /* the server's name for the client */
};

/* cmocka fixtures. */
int bed_setup(void **state);
int bed_teardown(void **state);
#define BED_TEST(name) cmocka_unit_test_setup_teardown(name, bed_setup, bed_teardown)

/* More options for the nodes opened from now on in this test; NULL for none. */
void bed_options(const char *options);
/* Over the loop time passes while a node sleeps, by bed_pass_ms, and by a microsecond for each
 * look at the clock; over other fabrics time is that of the system. */
void bed_pass_ms(unsigned ms);
/* This test has threads that sleep: its time is that of the system over the loop, too. */
void bed_real_time(void);
/* This test provokes errors that the balance would complain about. */
void bed_expect_violations(void);

struct node *node_open(const char *name, const char *uri); /* uri NULL: a client */
int node_try(const char *name, const char *uri, struct node **out);
void node_close(struct node *n);
uint64_t node_counter(const struct node *n, const char *name);
/* An attribute of the session between a node and a peer. */
uint64_t node_attribute(struct node *n, struct rme_addr *peer, const char *name);
/* There are no windows, and what a peer may use is registered for one operation. */
bool registers_each(const struct node *n);
struct rme_addr *node_dial(struct node *n, const char *uri);
/* The address is freed at the end of the test unless freed by node_forget. */
void node_forget(struct rme_addr *addr);

/* Each awake node gets one look at its completions and unexpected messages. */
void pump(void);
void pump_times(int times);
/* One look of that node, which sleeps until something comes, for so long at most. */
void pump_asleep(struct node *n, int wait_ms);
void pump_until_reported(struct op *op);
void pump_until_all(struct op *ops, int count);
void pump_until_unexpected(struct node *n, int count);
/* Until the counter has this value, or a larger one.  Looks are no measure of time: what a test
 * needs to have happened before it goes on is waited for like this; pump_times() only lets
 * things happen, or stops somewhere in their middle. */
void pump_until_counter(struct node *n, const char *name, uint64_t value);
/* Until it has a link with nobody: the news that a peer has gone comes when it comes. */
void pump_until_no_peers(struct node *n);
/* Takes the oldest unexpected message out of the inbox. */
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
/* Reported once, with success and this many bytes. */
void op_check(const struct op *op, int64_t actual);
/* Reported once, with one of two errors (0 is success). */
void op_check_error(const struct op *op, int error, int or_error);

void blob_flat(struct blob *b, size_t size);
/* One piece, `misalign` bytes behind a 64-byte boundary. */
void blob_misaligned(struct blob *b, size_t size, unsigned misalign);
/* In memory that the node hands out. */
void blob_zone(struct blob *b, struct node *n, size_t size);
/* `count` pieces of min … max bytes at odd addresses; with_empty: some of them have none. */
void blob_pieces(struct blob *b, int count, int min, int max, bool with_empty, uint64_t seed);
/* As many bytes as `total`, cut into up to `count` pieces in another way. */
void blob_split(struct blob *b, int64_t total, int count, uint64_t seed);
void blob_free(struct blob *b);
void blob_fill(struct blob *b, uint64_t seed);
void blob_canary(struct blob *b);
/* The first n bytes are the pattern of `seed`, everything else is canary. */
void blob_check(const struct blob *b, uint64_t seed, int64_t n);
/* Number of the first byte of the pieces that is neither canary nor pattern; -1 when there is
 * none. */
int64_t blob_foreign(const struct blob *b, uint64_t seed);
struct rme_list blob_list(const struct blob *b);
uint8_t pattern_byte(uint64_t seed, int64_t at);

void pair_open(struct pair *p);
/* Makes the acquaintance: the server learns the client's address by an unexpected message. */
void pair_meet(struct pair *p);
/* The same after something happened to the link: tries until a message gets through. */
void pair_reconnect(struct pair *p);
/* One message of `size` bytes each way, checked. */
void pair_exchange(struct pair *p, size_t size, int tag);

uint64_t bed_random(uint64_t *state, uint64_t bound);

#endif
