/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Counters of calls and of everything else, one table each. They live in the process's segment,
 * so that `emuelan4 --show PID` reads them while the process runs. Calls can be made to fail by
 * name.
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
    X(elan4_detach)                                                                            \
    X(elan4_open_sdram)                                                                        \
    X(elan4_createAllocator)                                                                   \
    X(elan4_allocMain)                                                                         \
    X(elan4_allocElan)                                                                         \
    X(elan4_alloc_cmdq)                                                                        \
    X(elan4_probe_cmdq)                                                                        \
    X(elan4_alloccq_space)                                                                     \
    X(elan4_alloc_intcookie)                                                                   \
    X(elan4_allocCookiePool)                                                                   \
    X(elan4_register_trap_handler)                                                             \
    X(elan_getenvCap)                                                                          \
    X(elanctrl_open)                                                                           \
    X(elanctrl_create_cap)                                                                     \
    X(elanctrl_destroy_cap)                                                                    \
    X(elanctrl_get_position)

/* name, unit, what it says */
#define EMU4_COUNTS(X)                                                                         \
    X(flushes, "calls", "command queues flushed with something in them")                       \
    X(commands, "commands", "commands executed, those of command ports included")              \
    X(port_commands, "commands", "commands that an event sent to a command port")              \
    X(dma_write, "DMAs", "RDMA writes of this process that ended")                             \
    X(dma_queue, "DMAs", "queue DMAs of this process that ended")                              \
    X(dma_bytes, "bytes", "moved by DMAs that this process executed")                          \
    X(dma_helped, "DMAs", "executed on behalf of another process")                             \
    X(dma_held, "DMAs", "held back to be overtaken")                                           \
    X(dma_chained, "DMAs", "writes that were moved together with others")                      \
    X(dma_sliced, "slices", "times that a DMA gave way")                                       \
    X(nacks, "packets", "refused by the target: nobody there, blocked, or its queue full")     \
    X(sten_packets, "packets", "packets of commands that were sent")                           \
    X(sten_failed, "packets", "packets of commands that were given up")                        \
    X(events_set, "sets", "events set by this process, here and elsewhere")                    \
    X(events_fired, "events", "of these, how many fired")                                      \
    X(interrupts, "interrupts", "raised in this process by its own commands")                  \
    X(traps, "traps", "delivered to this process")                                             \
    X(wakeups, "times", "the engine's thread woke up")                                         \
    X(bells, "times", "this process woke an engine's thread")                                  \
    X(sleeps, "times", "a thread of the program slept for an interrupt")                       \
    X(locks_broken, "locks", "taken from a dead process")                                      \
    X(logs_redone, "logs", "of a dead process, carried out to the end")                        \
    X(claims_redone, "DMAs", "that a dead process had begun for this one")                     \
    X(claims_late, "DMAs", "of others, whose outcome had to wait for their lock")              \
    X(peers, "processes", "found")                                                             \
    X(peers_dead, "processes", "of these, seen to die")

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

/* This process's; somewhere else until it has a segment. */
extern struct emu4_counters *emu4_counters;
#define EMU4_COUNT(name, n)                                                                    \
    atomic_fetch_add_explicit(&emu4_counters->name, (n), memory_order_relaxed)

/* Reads EMUELAN4_FAIL; what is wrong in it is reported on stderr. */
void emu4_fail_init(const char *list);
/* Counts one call; true when this one must fail, with errno set to EIO. */
bool emu4_call(enum emu4_call call);

void emu4_counters_json(const struct emu4_counters *c, int pid, FILE *out);
void emu4_counters_help(FILE *out);

#endif
