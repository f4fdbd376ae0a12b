/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Counters of calls and of everything else, one table each. The counters live in the process's
 * segment, so that `emuelan4 --show PID` can read them while the process runs. Calls can be
 * made to fail by name.
 */
#ifndef EMUL_ELAN4_COUNTERS_H
#define EMUL_ELAN4_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Calls that can fail. */
#define EMU4_CALLS(X)                                                                          \
    X(elan4_init)                                                                              \
    X(elan4_set_standard_mappings)                                                             \
    X(elan4_set_required_mappings)                                                             \
    X(elan4_add_p2pvp)                                                                         \
    X(elan4_block_inputter)                                                                    \
    X(elan4_attach)                                                                            \
    X(elan4_open_sdram)                                                                        \
    X(elan4_createAllocator)                                                                   \
    X(elan4_allocMain)                                                                         \
    X(elan4_allocElan)                                                                         \
    X(elan4_alloc_cmdq)                                                                        \
    X(elan4_probe_cmdq)                                                                        \
    X(elan4_alloccq_space)                                                                     \
    X(elan4_alloc_intcookie)                                                                   \
    X(elan4_allocCookiePool)                                                                   \
    X(elan4_register_trap_handler)

/* X(name, unit, prose) */
#define EMU4_COUNTS(X)                                                                         \
    X(flushes, "calls", "flushes of command queues that were not empty")                       \
    X(commands, "commands", "commands executed, including those of command ports")             \
    X(port_commands, "commands", "commands sent to a command port by an event")                \
    X(dma_write, "DMAs", "RDMA writes of this process that ended")                             \
    X(dma_queue, "DMAs", "queue DMAs of this process that ended")                              \
    X(dma_bytes, "bytes", "bytes moved by DMAs that this process executed")                    \
    X(dma_helped, "DMAs", "reads that this process requested of others, and executed")         \
    X(dma_held, "DMAs", "DMAs held back so that later ones overtake them")                     \
    X(dma_chained, "DMAs", "writes moved together with others in one system call")             \
    X(dma_sliced, "slices", "times that a DMA yielded to others after a slice")                \
    X(nacks, "packets", "packets refused by the target: not attached, blocked, or queue full") \
    X(sten_packets, "packets", "command packets sent")                                         \
    X(sten_failed, "packets", "command packets that failed")                                   \
    X(events_set, "sets", "events set by this process, in any process")                        \
    X(events_fired, "events", "of events_set: fired")                                          \
    X(interrupts, "interrupts", "interrupts raised in this process by its own commands")       \
    X(traps, "traps", "traps delivered to this process")                                       \
    X(wakeups, "times", "wake-ups of the engine's thread")                                     \
    X(bells, "times", "wake-ups of an engine's thread by this process")                        \
    X(sleeps, "times", "sleeps of the program's threads until an interrupt")                   \
    X(locks_broken, "locks", "locks taken from a dead process")                                \
    X(logs_redone, "logs", "logs of dead processes completed")                                 \
    X(peers, "processes", "peers found")                                                       \
    X(peers_dead, "processes", "of peers: seen to die")

enum emu4_call {
#define X(name) EMU4_CALL_##name,
    EMU4_CALLS(X)
#undef X
        EMU4_CALL_COUNT
};

struct emu4_counters {
    _Atomic uint64_t call[EMU4_CALL_COUNT];
#define X(name, unit, prose) _Atomic uint64_t name;
    EMU4_COUNTS(X)
#undef X
};

/* Counters of this process; in a static structure until the process has a segment. */
extern struct emu4_counters *emu4_counters;
#define EMU4_COUNT(name, n)                                                                    \
    atomic_fetch_add_explicit(&emu4_counters->name, (n), memory_order_relaxed)

/* Parses EMUELAN4_FAIL; errors are reported on stderr. */
void emu4_fail_init(const char *list);
/* Counts one call; true when the call must fail, with errno set to EIO. */
bool emu4_call(enum emu4_call call);

void emu4_counters_json(const struct emu4_counters *c, int pid, FILE *out);
void emu4_counters_help(FILE *out);

#endif
