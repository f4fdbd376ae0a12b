/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * lane.h - command line of a test program: its fabric and options.
 *
 *  --fabric loop|ib|elan4  the fabric (loop)
 *  --addr URI            first address of a server (loop://server:1, or ib://127.0.0.1 with a
 *                        port that depends on the process); more follow with higher ports
 *  --options LIST        options for every engine, "key=value,…"
 *  --client-options LIST  more options for engines that do not listen
 *  --nodes N             over elan4: server n is on node n, clients are on the N nodes in turn
 *                        (default: all on node 0)
 *  --only NAME[,NAME…]   run these tests only (shell patterns; after ! all others)
 *  --list                print the names
 *  --seed N              first seed of random tests (default: CONFORMANCE_SEED, or 1)
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
    bool is_elan4;              /* Quadrics Elan4, or the loop with Elan4's rules (loop.h) */
    const char *preset;         /* options of the fabric, put before the others; may be NULL */
    const char *options;        /* may be NULL */
    const char *client_options; /* likewise */
    const char *program;        /* path of this program, to start peers */
    /* nodes of the Elan4 network; 0: only that of the environment */
    int nodes;
    /* run for --peer, --guest and --visitor instead of tests; may be NULL */
    int (*peer)(const char *uri);
    int (*guest)(const char *uri);
    int (*visitor)(const char *uri);
    uint64_t seed;
};

extern struct lane lane;

/* Reads the command line and runs the tests; returns main()'s result. */
int lane_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count);

/* Returns the address of server number n (0 …), in one of 8 static buffers. */
const char *lane_uri(int n);

/* Selects the node of the next engine of this process or of its child, and returns its number.
 * To be called before each engine. */
int lane_settle(const char *uri); /* NULL: an engine that does not listen */

/* True if the software HCA is in this process. */
bool lane_is_emuverbs(void);
/* Returns a counter of the software HCA, summed over all processes; 0 over other devices. */
int64_t lane_counter(const char *name);
/* Returns the options of an engine, in a static buffer; "" if there are none. */
const char *lane_options(bool listens);

/* Starts this program with --peer, --guest or --visitor, the same fabric and options; returns
 * its pid. The program writes to `out` and dies with the calling thread. */
pid_t lane_spawn(const char *as, const char *uri, int out);

/* Returns an environment variable as a number, or `unset`. */
uint64_t lane_env(const char *name, uint64_t unset);

/* Returns the monotonic clock in milliseconds. */
int64_t lane_now(void);

#endif
