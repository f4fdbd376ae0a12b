/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Knobs: what a user or a test can change, by environment variables EMUELAN4_<NAME>; and the
 * rules of the network interface that a test can switch off to see that it notices. One table
 * each; parsing, `emuelan4 --help` and the counters' names come from them.
 */
#ifndef EMUL_ELAN4_KNOBS_H
#define EMUL_ELAN4_KNOBS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* DMAs that are moved together; more cost no less each. */
#define EMU4_CHAIN_MAX 64

/* X(field, VARIABLE, default, minimum, maximum, unit, prose): numbers */
#define EMU4_NUMBERS(X)                                                                        \
    X(node, NODE, 0, 0, 4095, "number",                                                        \
      "the node; a process may set another one for its next context")                          \
    X(nodes, NODES, 4096, 1, 4096, "nodes", "how many nodes the network has")                  \
    X(segment_mib, SEGMENT_MIB, 1024, 16, 65536, "MiB",                                        \
      "address space (not memory) for what the allocators hand out")                           \
    X(sdram_mib, SDRAM_MIB, 64, 1, 1024, "MiB", "memory of the network interface")             \
    X(seed, SEED, 0, 0, UINT64_MAX, "number",                                                  \
      "of the random choices; 0 takes another each time")                                      \
    X(reorder, REORDER, 5, 0, 100, "percent",                                                  \
      "DMAs that are held back, so that later ones overtake them")                             \
    X(hold_us, HOLD_US, 20, 0, 10000000, "us", "longest time that such a DMA is held")         \
    X(slice, SLICE, 262144, 64, 1073741824, "bytes",                                           \
      "a DMA gives way to others after this many")                                             \
    X(burst, BURST, 1048576, 0, 1073741824, "bytes",                                           \
      "the thread that flushes a command queue or polls moves so many itself, and up to a "    \
      "slice more; the engine the rest")                                                       \
    X(write_chain, WRITE_CHAIN, EMU4_CHAIN_MAX, 1, EMU4_CHAIN_MAX, "DMAs",                     \
      "writes of a command queue that move in one system call, at most")                       \
    X(retry_us, RETRY_US, 1000, 1, 10000000, "us",                                             \
      "longest pause before a refused DMA is tried again")                                     \
    X(absent_us, ABSENT_US, 20000, 1, 10000000, "us", "the same where nobody is attached")     \
    X(sten_retries, STEN_RETRIES, 0, 0, 1000000, "packets",                                    \
      "a packet of commands fails when refused so often; 0 tries for ever")                    \
    X(lock_ms, LOCK_MS, 10000, 1, 3600000, "ms",                                               \
      "having waited so long the owner of a context takes its lock from who is stopped")       \
    X(death_late_us, DEATH_LATE_US, 0, 0, 60000000, "us",                                      \
      "so much later a process hears of another one's death")                                  \
    X(settle_late_us, SETTLE_LATE_US, 0, 0, 60000000, "us",                                    \
      "so much later what has become of another process's DMA is written down")                \
    X(forget_late_us, FORGET_LATE_US, 0, 0, 60000000, "us",                                    \
      "so much later a process that has nothing to do for another one any more forgets it")    \
    X(trap_abort, TRAP_ABORT, 0, 0, 1, "", "1: a trap that nobody handles ends the process")

/* X(field, VARIABLE, unit, prose): strings, empty by default */
#define EMU4_STRINGS(X)                                                                        \
    X(dir, DIR, "folder", "where processes find each other; /dev/shm/emuelan4-UID when unset") \
    X(fail, FAIL, "call:K,...", "fail the K-th call of that name, as the real one fails")      \
    X(die, DIE, "step:K",                                                                      \
      "kill this process with SIGKILL when it comes to a step for the K-th time")              \
    X(stop, STOP, "step:K", "the same with SIGSTOP: it goes on when somebody says so")         \
    X(broken, BROKEN, "rule,...", "break these rules, to see that a test notices")             \
    X(counters, COUNTERS_DIR, "folder",                                                        \
      "at exit, write the counters to emuelan4-PID.json there")

/* X(NAME, name, prose): what can be broken */
#define EMU4_RULES(X)                                                                          \
    X(EVENT_UNITS, event_units, "a set counts 32")                                             \
    X(EVENT_ONCE, event_once, "an event fires when its count goes from below 0 to 0 or above") \
    X(EVENT_NO_REARM, event_no_rearm, "an event that fired stays as it is until primed")       \
    X(WAIT_FIRES, wait_fires, "WAIT_EVENT fires at once if sets have arrived")                 \
    X(COUNT_OVERFLOW, count_overflow, "a count that goes over traps")                          \
    X(QUEUE_FULL, queue_full, "a full input queue refuses, one slot stays empty")              \
    X(QUEUE_WRAP, queue_wrap, "behind the last slot comes the first")                          \
    X(QUEUE_SIZE0, queue_size0, "item size 0 is 2048")                                         \
    X(QUEUE_EVENT, queue_event, "each message sets the queue's event")                         \
    X(QUEUE_ONE_PACKET, queue_one_packet, "a message has at most 2048 bytes")                  \
    X(QUEUE_IN_SDRAM, queue_in_sdram, "an input queue is in SDRAM")                            \
    X(SRC_AFTER_ACK, src_after_ack, "the source event is set when the target has all")         \
    X(DST_AFTER_DATA, dst_after_data, "the target event is set behind the data")               \
    X(RETRY_FOREVER, retry_forever, "a DMA to nobody is tried for ever")                       \
    X(NO_ORDER, no_order, "DMAs overtake each other")                                          \
    X(TIME_SLICES, time_slices, "a long DMA gives way to others")                              \
    X(SRC_CHECKED, src_checked, "a source that is not mapped traps")                           \
    X(RAW_POINTER, raw_pointer, "a pointer is no address of the network")                      \
    X(VPROC_CHECKED, vproc_checked, "a virtual process without route traps")                   \
    X(CQ_PERMISSION, cq_permission, "a command needs the queue's permission")                  \
    X(CQ_SIZE, cq_size, "a command queue overflows")                                           \
    X(CQ_SPACE, cq_space, "reserved dwords are not handed out twice")                          \
    X(PORT_RUNS, port_runs, "what is copied to a command port is executed")                    \
    X(GUARD_HOLDS, guard_holds, "a guard stops the next command")                              \
    X(BLOCKED, blocked, "a blocked inputter refuses")                                          \
    X(ATTACH_BUSY, attach_busy, "a context has one owner")                                     \
    X(ATTACH_RANGE, attach_range, "a capability must contain the context")                     \
    X(ATTACH_KEY, attach_key, "contexts of the upper half need the created capability")        \
    X(ROUTES, routes, "8192 virtual processes")                                                \
    X(VP_FORMULA, vp_formula, "virtual processes are numbered node by node")                   \
    X(COOKIE_ZERO, cookie_zero, "interrupt cookie 0 is reserved")                              \
    X(INTERRUPT_WAKES, interrupt_wakes, "an interrupt wakes who waits for its cookie")         \
    X(COOKIES_DIFFER, cookies_differ, "no two cookies are the same")                           \
    X(ALIGNED, aligned, "queues and copied blocks are aligned")                                \
    X(DEAD_FREED, dead_freed, "the context of a dead process can be taken")                    \
    X(NEXT_OWNER, next_owner, "who takes a context gets what is sent to it from then on")

/* Steps at which a test can kill or stop a process. */
#define EMU4_STEPS(X)                                                                          \
    X(LOCKED, locked)                                                                          \
    X(SLOT_FOUND, slot_found)                                                                  \
    X(SLOT_WRITTEN, slot_written)                                                              \
    X(LISTED, listed)                                                                          \
    X(LOGGED, logged)                                                                          \
    X(STORED, stored)                                                                          \
    X(HALF_APPLIED, half_applied)                                                              \
    X(TELLING, telling)                                                                        \
    X(TOLD, told)                                                                              \
    X(APPLIED, applied)                                                                        \
    X(HALF_COPIED, half_copied)                                                                \
    X(CLAIMED, claimed)                                                                        \
    X(DELIVERED, delivered)                                                                    \
    X(HELPING, helping)                                                                        \
    X(ATTACHING, attaching)                                                                    \
    X(ENTERING, entering)                                                                      \
    X(GREETING, greeting)                                                                      \
    X(RINGING, ringing)

enum emu4_rule {
#define X(NAME, name, prose) EMU4_RULE_##NAME,
    EMU4_RULES(X)
#undef X
        EMU4_RULE_COUNT
};

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
    uint64_t broken_rules;
};

/*
 * Fills `k` from the environment. A value that is no number or out of range is reported in one
 * line on stderr and the default is used. The strings point into the environment.
 */
void emu4_knobs_load(struct emu4_knobs *k);
/* The node, as the environment has it now. */
uint64_t emu4_knobs_node(void);
/* Writes the tables: variable, default, unit, meaning; rules; steps. */
void emu4_knobs_help(FILE *out);

extern uint64_t emu4_broken_rules;
/* Whether the network interface keeps this rule, as it does unless a test says otherwise. */
static inline bool emu4_rule(enum emu4_rule r)
{
    return __builtin_expect(!(emu4_broken_rules >> r & 1), 1);
}

extern uint64_t emu4_steps; /* a bit for each at which something is to happen */
static inline bool emu4_step_watched(enum emu4_step s)
{
    return __builtin_expect(emu4_steps >> s & 1, 0);
}
void emu4_step_here(enum emu4_step s);
/* Where a test may kill or stop the process. */
static inline void emu4_step(enum emu4_step s)
{
    if (emu4_step_watched(s))
        emu4_step_here(s);
}

#endif
