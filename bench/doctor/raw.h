/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * RDMA on plain verbs between bmi-perf doctor and a bmi-perf server: the figures of the path
 * without the engine.  The server gives access to RAW_BYTES of scratch memory; the client
 * posts.
 */
#ifndef BENCH_RAW_H
#define BENCH_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RAW_BYTES ((size_t)4 << 20)

/* Private data of the accepted connection, little-endian. */
struct raw_memory {
    uint64_t address;
    uint32_t rkey;
};

/* ---- Server: the calls of one thread ---- */

/*
 * Starts a thread that serves one connection, on a port that the system chooses, and ends with
 * it, or if none is made within a minute.  Returns the port, or a negative errno: -EBUSY while
 * another connection is served.
 */
int raw_serve(void);
/* Ends the thread, if one runs. */
void raw_stop(void);

/* ---- Client ---- */

struct raw;

/* Connects, from the address `source` (""; the route decides), with a traffic class (0: the
 * system's).  Returns 0, or -1 with one line in `why` (WHY_SIZE bytes). */
int raw_open(const char *host, unsigned port, const char *source, unsigned class,
             struct raw **out, char *why);
void raw_close(struct raw *raw);
/* Stores "DEVICE port N," in `text` (WHY_SIZE bytes), and returns it. */
const char *raw_path(const struct raw *raw, char *text);

/*
 * Posts `count` RDMA writes of `size` bytes (at most RAW_BYTES), with up to `window` in flight,
 * and stores the ns until all have completed.  Returns as raw_open().
 */
int raw_run(struct raw *raw, size_t size, unsigned window, unsigned count, uint64_t *ns,
            char *why);

#endif
