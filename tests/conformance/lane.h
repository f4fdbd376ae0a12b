/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * lane.h - which fabric a test program runs over, and with which options: its command line.
 *
 *   --fabric loop|ib|elan4  the fabric (loop)
 *   --addr URI            first address of a server (loop://server:1, or ib://127.0.0.1 with a
 *                         port that depends on the process); more follow with higher ports
 *   --options LIST        options for every engine, "key=value,…"
 *   --client-options LIST  more options for engines that do not listen
 *   --nodes N             over elan4: server n is on node n, and who does not listen is on one
 *                         of the N nodes in turn (all are on node 0)
 *   --only NAME[,NAME…]   run these tests only (shell patterns; after ! all others)
 *   --list                print the names
 *   --seed N              first seed of random tests (the environment's CONFORMANCE_SEED, or 1)
 */
#ifndef TESTS_LANE_H
#define TESTS_LANE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/types.h>
#include "fabric.h"

struct lane {
    const struct rme_fabric_ops *ops;
    bool is_loop;
    bool is_elan4;              /* Quadrics Elan4, or the loop with its rules (loop.h) */
    const char *preset;         /* options of the fabric that come before; may be NULL */
    const char *options;        /* may be NULL */
    const char *client_options; /* likewise */
    const char *program;        /* to start ourselves as a peer */
    int nodes;                  /* of the Elan4 network; 0: the environment's only */
    /* what --peer, --guest and --visitor run instead of tests; may be NULL */
    int (*peer)(const char *uri);
    int (*guest)(const char *uri);
    int (*visitor)(const char *uri);
    uint64_t seed;
};

extern struct lane lane;

/* Reads the command line and runs the tests; what main() returns. */
int lane_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count);

/* The address of server number n (0 …), in a static buffer of its own for each of the first
 * 8. */
const char *lane_uri(int n);

/* The next engine of this process, or of one that it starts, is on its node, which is returned:
 * to be called before each. */
int lane_settle(const char *uri); /* NULL: one that does not listen */

/* Is the software HCA in this process? */
bool lane_is_emuverbs(void);
/* The software HCA's own counter of all processes, by its name; 0 over anything else. */
int64_t lane_counter(const char *name);
/* Do its options send all transfers over two devices? */
bool lane_stripes(void);
/* The options of an engine, in a static buffer; "" when there are none. */
const char *lane_options(bool listens);

/* Starts this program once more, with --peer, --guest or --visitor, over the same fabric and
 * with the same options; its pid. It writes to `out`, and dies with the thread that called. */
pid_t lane_spawn(const char *as, const char *uri, int out);

/* An environment variable as a number, or what it is when unset. */
uint64_t lane_env(const char *name, uint64_t unset);

/* Milliseconds of the monotonic clock. */
int64_t lane_now(void);

#endif
