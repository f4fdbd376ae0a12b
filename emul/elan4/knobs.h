/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Knobs: settings for users and tests, by environment variables EMUELAN4_<NAME>. One table for
 * each kind; parsing and `emuelan4 --help` are generated from the tables. */
#ifndef EMUL_ELAN4_KNOBS_H
#define EMUL_ELAN4_KNOBS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Most DMAs in one system call; the cost per DMA does not fall beyond. */
#define EMU4_CHAIN_MAX 64

/* X(field, VARIABLE, default, minimum, maximum, unit, prose): numbers */
#define EMU4_NUMBERS(X)                                                                        \
    X(node, NODE, 0, 0, 4095, "number",                                                        \
      "node number; a process may set another one for its next context")                       \
    X(nodes, NODES, 4096, 1, 4096, "nodes", "nodes of the network")                            \
    X(segment_mib, SEGMENT_MIB, 1024, 16, 65536, "MiB",                                        \
      "address space (not memory) of the allocators")                                          \
    X(sdram_mib, SDRAM_MIB, 64, 1, 1024, "MiB", "memory of the network interface")             \
    X(seed, SEED, 0, 0, UINT64_MAX, "number",                                                  \
      "seed of the random choices; 0: another one each time")                                  \
    X(reorder, REORDER, 5, 0, 100, "percent",                                                  \
      "DMAs held back so that later ones overtake them")                                       \
    X(hold_us, HOLD_US, 20, 0, 10000000, "us", "longest time that a DMA is held back")         \
    X(slice, SLICE, 262144, 64, 1073741824, "bytes",                                           \
      "a DMA yields to others after this many bytes")                                          \
    X(burst, BURST, 1048576, 0, 1073741824, "bytes",                                           \
      "bytes that a thread that flushes a command queue or polls moves itself, plus up to a "  \
      "slice; the engine's thread moves the rest")                                             \
    X(write_chain, WRITE_CHAIN, EMU4_CHAIN_MAX, 1, EMU4_CHAIN_MAX, "DMAs",                     \
      "limit of writes of a command queue that one system call moves")                         \
    X(retry_us, RETRY_US, 1000, 1, 10000000, "us",                                             \
      "longest pause before a refused DMA is retried")                                         \
    X(absent_us, ABSENT_US, 20000, 1, 10000000, "us",                                          \
      "longest pause where no process is attached")                                            \
    X(sten_retries, STEN_RETRIES, 0, 0, 1000000, "packets",                                    \
      "refusals after which a command packet fails; 0: unlimited")                             \
    X(trap_abort, TRAP_ABORT, 0, 0, 1, "", "1: a trap without a handler ends the process")

/* X(field, VARIABLE, unit, prose): strings, empty by default */
#define EMU4_STRINGS(X)                                                                        \
    X(dir, DIR, "folder",                                                                      \
      "folder where processes find each other; unset: /dev/shm/emuelan4-UID")                  \
    X(fail, FAIL, "call:K,...", "fail the K-th call of that name as the real call fails")      \
    X(die, DIE, "step:K", "kill the process with SIGKILL at its K-th arrival at the step")     \
    X(counters, COUNTERS_DIR, "folder",                                                        \
      "at exit, write the counters to emuelan4-PID.json in this folder")

/* Steps at which a test can kill a process. */
#define EMU4_STEPS(X)                                                                          \
    X(LOCKED, locked)                                                                          \
    X(SLOT_WRITTEN, slot_written)                                                              \
    X(LOGGED, logged)                                                                          \
    X(HALF_APPLIED, half_applied)                                                              \
    X(APPLIED, applied)                                                                        \
    X(UNLOCKED, unlocked)                                                                      \
    X(DELIVERED, delivered)                                                                    \
    X(ATTACHING, attaching)                                                                    \
    X(GREETING, greeting)

enum emu4_step {
#define X(NAME, name) EMU4_STEP_##NAME,
    EMU4_STEPS(X)
#undef X
        EMU4_STEP_COUNT
};

struct emu4_knobs {
#define X(field, var, def, min, max, unit, prose) uint64_t field;
    EMU4_NUMBERS(X)
#undef X
#define X(field, var, unit, prose) const char *field;
    EMU4_STRINGS(X)
#undef X
};

/* Fills `k` from the environment. Reports an invalid or out-of-range value in one line on
 * stderr and uses the default. The strings point into the environment. */
void emu4_knobs_load(struct emu4_knobs *k);
/* Returns the node, from the current environment. */
uint64_t emu4_knobs_node(void);
/* Prints the tables: variable, default, unit, meaning; steps. */
void emu4_knobs_help(FILE *out);

extern int emu4_die_at; /* step of EMUELAN4_DIE, or -1 */
void emu4_die(void);
/* Marks a step where a test may kill the process. */
static inline void emu4_step(enum emu4_step s)
{
    if (__builtin_expect(emu4_die_at == (int)s, 0))
        emu4_die();
}

#endif
