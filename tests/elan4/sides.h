/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Two sides of links over the Elan4 fabric, driven by one thread: a fixture for tests of
 * Elan4's peculiarities. */
#ifndef TESTS_ELAN4_SIDES_H
#define TESTS_ELAN4_SIDES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "base/addr_int.h"
#include "bmi_elan4/bmi_elan4.h"
#include "fabric.h"
#include "base/options.h"
#include "base/stats.h"
#include "base/timer.h"
#include "tests/elan4/clock.h"

#define PATIENCE_MS 60000
#define RX          4

struct side {
    struct rme_fabric *f;
    struct rme_addr *listen;
    struct rme_options *options;
    struct rme_stats stats;
    struct rme_link *link;
    const struct rme_link *ended[2]; /* links that went down last; freed */
    int count[RME_EV_MW_INVALIDATED + 1], error;
    const char *why;
    uint32_t imm;
    char text[64];
};

extern const struct rme_fabric_ops *ops;
extern const char *const folder; /* of the running server's start: address of its queue */
/* line that the server logged at its start: address of its queue */
extern char said[400];

/* Fixtures of the group. */
int sides_set_up(void **state);
int sides_tear_down(void **state);

/* Forks when no other thread of this process is running: a thread being created that holds an
 * allocator lock would leave it locked in the child. */
pid_t fork_quietly(void);
/* Runs a function in a child that ends after two minutes, at the latest. */
pid_t begin_child(void (*run)(int), int arg);
/* Kills a child, which must not have ended before. */
void end_child(pid_t pid);
/* Stops a child. */
void stop_child(pid_t pid);
/* Waits for a child that ends by itself, with status 0. */
void child_ends(pid_t pid);
/* Opens a side with more options; listen NULL: a client. */
void open_side(struct side *s, const char *listen, const char *more);
void close_side(struct side *s);
/* Polls once: accepts requests, records messages and returns their buffers. */
void poll_side(struct side *s);
/* Polls both, of which the second may be NULL, a number of times. */
void look(struct side *s, struct side *other, int times);
/* Polls until no packet of the side's links is in flight. */
void until_landed(struct side *s);
/* Polls both until the first has had that many events of the type. */
void until(struct side *s, struct side *other, enum rme_event_type type, int count);
void dial(struct side *s, const char *uri);
/* Opens a server and a client with a link. */
void open_pair(struct side *server, struct side *client, const char *server_options,
               const char *client_options);
/* Opens a client, and connects it to the server, which gets one more link. */
void open_client(struct side *client, struct side *server, const char *options);
void say(struct side *s, const char *text);
/* Lets time pass in steps, with enough polls after each. */
void pass(struct side *s, uint64_t ms);
/* The first side ends the link; waits for both LINK_DOWNs. */
void part(struct side *a, struct side *b);
/* The client ends its last link, and closes; the server has one link less. */
void leave(struct side *client, struct side *server);
void part_and_close(struct side *a, struct side *b);
void close_both(struct side *a, struct side *b);
/* Sends bytes to a side's queue, from the side itself. Another process could send the same. */
void forge(struct side *to, const void *bytes, size_t size);

#endif
