/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Knobs: everything a user or a test can change, set by environment variables EMUVERBS_<NAME>.
 * One table says name, kind, default, unit and meaning; parsing, `emuverbs --help` and the
 * manual come from it.
 */
#ifndef EMUL_VERBS_KNOBS_H
#define EMUL_VERBS_KNOBS_H

#include <stdint.h>
#include <stdio.h>

/* Payload of a slot of the shared segment: 4 KiB and what programs put around it. */
#define EMU_BOUNCE_BYTES 4672u
/* Writes that are moved together; more cost no less each. */
#define EMU_CHAIN_MAX 64

/* X(field, VARIABLE, default, minimum, maximum, unit, prose): numbers */
#define EMU_NUMBERS(X)                                                                         \
    X(devices, DEVICES, 1, 0, 8, "devices",                                                    \
      "how many this machine has, emu0, emu1, and so on; 0: it has none")                      \
    X(ports, PORTS, 1, 1, 4, "ports", "ports of each device")                                  \
    X(separate, SEPARATE, 0, 0, 1, "",                                                         \
      "1: each device is on a network of its own, from which no other device is reached")      \
    X(max_sge, MAX_SGE, 16, 1, 64, "segments", "most segments of a work request")              \
    X(max_inline, MAX_INLINE, 256, 0, 4096, "bytes", "most inline data of a work request")     \
    X(inline_step, INLINE_STEP, 1, 1, 4096, "bytes",                                           \
      "inline data granted is rounded up to a multiple of this, but for the most; providers "  \
      "round so, and programs may use what is granted")                                        \
    X(comp_vectors, COMP_VECTORS, 1, 1, 1024, "vectors",                                       \
      "completion vectors that queues may name; there are no interrupts, so all are alike")    \
    X(max_rd_atom, MAX_RD_ATOM, 16, 0, 255, "reads", "RDMA reads in flight per queue pair")    \
    X(max_qp, MAX_QP, 16383, 0, 16383, "objects", "queue pairs of a process")                  \
    X(max_qp_wr, MAX_QP_WR, 16384, 1, 65536, "requests", "deepest send or receive queue")      \
    X(max_cqe, MAX_CQE, 1048576, 1, 4194304, "entries", "deepest completion queue")            \
    X(max_mr, MAX_MR, 262143, 0, 262143, "objects", "memory regions; more fail with ENOMEM")   \
    X(max_mw, MAX_MW, 65535, 0, 65535, "objects",                                              \
      "memory windows; more fail with ENOMEM, 0: the device has none")                         \
    X(max_dm, MAX_DM, 131072, 0, 1073741824, "bytes",                                          \
      "device memory of a process; 0: the device has none")                                    \
    X(memlock, MEMLOCK, 0, 0, UINT64_MAX, "bytes",                                             \
      "most memory registered at a time, as a memlock limit; 0 is no limit")                   \
    X(srq, SRQ, 1, 0, 1, "", "0: the device has no shared receive queues")                     \
    X(atomics, ATOMICS, 1, 0, 1, "", "0: the device has no atomic operations")                 \
    X(odp, ODP, 1, 0, 1, "", "0: the device has no paging on demand")                          \
    X(mtu, MTU, 4096, 256, 4096, "bytes", "path MTU: 256, 512, 1024, 2048 or 4096")            \
    X(ethernet, ETHERNET, 0, 0, 1, "", "1: the port's link layer is Ethernet (RoCE)")          \
    X(bounce_max, BOUNCE_MAX, EMU_BOUNCE_BYTES, 0, EMU_BOUNCE_BYTES, "bytes",                  \
      "sends up to this size go through the shared segment instead of a system call")          \
    X(write_chain, WRITE_CHAIN, EMU_CHAIN_MAX, 1, EMU_CHAIN_MAX, "requests",                   \
      "RDMA writes that are posted together and move in one system call, at most")             \
    X(read_delay_us, READ_DELAY_US, 0, 0, 60000000, "us",                                      \
      "RDMA reads fetch their data this much later, while unfenced later requests pass them")  \
    X(read_reverse, READ_REVERSE, 0, 0, 1, "",                                                 \
      "1: delayed reads that are due together fetch their data in reverse order")              \
    X(link_mb_s, LINK_MB_S, 0, 0, 1000000, "MB/s",                                             \
      "rate of a device's link, in each direction: what leaves a process by it goes one "      \
      "after the other and "                                                                   \
      "arrives when it has; 0: there is no link, and requests are executed when they are "     \
      "posted")                                                                                \
    X(link_ns, LINK_NS, 1000, 0, 1000000000, "ns",                                             \
      "with a rate: time from one end of the link to the other")                               \
    X(still_from, STILL_FROM, 0, 0, UINT64_MAX, "bytes",                                       \
      "RDMA writes and reads of so many bytes or more are checked and complete, and move "     \
      "nothing but the first 64 bytes of a write with immediate: for a bound of what all but " \
      "the moving costs; 0: all move")                                                         \
    X(send_late_us, SEND_LATE_US, 0, 0, 1000000, "us",                                         \
      "a message's own completion comes this much after its receiver's, so that a reply can "  \
      "overtake it, which devices may let happen and hardly ever do; 0: it comes before")      \
    X(stop_fd, STOP_FD, 0, 0, 1048576, "descriptor",                                           \
      "with EMUVERBS_STOP: a socket; a thread that stops writes a byte to it and goes on "     \
      "when it has read one, which says at which arrival from now on the next one stops, "     \
      "0: at none")                                                                            \
    X(kill_after, KILL_AFTER, 0, 0, UINT64_MAX, "requests",                                    \
      "the connection that posts this process's K-th work request dies with it; 0 is never")   \
    X(silent, SILENT, 0, 0, 1, "", "1: this process answers no peer at all, as if unplugged")  \
    X(retry_max_ms, RETRY_MAX_MS, 500, 1, 600000, "ms",                                        \
      "bound of the time until an unanswered request ends with RETRY_EXC_ERR")                 \
    X(cm_timeout_ms, CM_TIMEOUT_MS, 60000, 10, 3600000, "ms",                                  \
      "time until an unanswered connection request ends with UNREACHABLE")                     \
    X(listen_wait_ms, LISTEN_WAIT_MS, 80, 0, 60000, "ms",                                      \
      "a connection request that finds no listener tries again for so long, as resolving an "  \
      "address on a network would have left that time to the listener")                        \
    X(dreq_hold_ms, DREQ_HOLD_MS, 100, 0, 60000, "ms",                                         \
      "a disconnection waits so long for the program to poll what was received before it: on " \
      "a network it takes longer than data; 0: it does not wait")                              \
    X(timewait_ms, TIMEWAIT_MS, 100, 0, 600000, "ms", "time from disconnect to TIMEWAIT_EXIT") \
    X(segment_mib, SEGMENT_MIB, 1024, 64, 65536, "MiB",                                        \
      "address space (not memory) of the shared segment")                                      \
    X(census, CENSUS, 0, 0, 1, "",                                                             \
      "1: at exit, name on stderr the kinds of objects still alive")                           \
    X(count_calls, COUNT_CALLS, 0, 0, 1, "",                                                   \
      "1: at exit, print on stderr how many calls a sweep over all numbers")

/* X(field, VARIABLE, unit, prose): strings, empty by default */
#define EMU_STRINGS(X)                                                                         \
    X(name, DEVICE_NAME, "name",                                                               \
      "name of the first device, emu0 when unset; a number at its end counts on for the "      \
      "others")                                                                                \
    X(addresses, ADDRESSES, "addr,…",                                                          \
      "IP address of each port, those of the first device first; unset: 127.0.0.1, "           \
      "127.0.0.2, and so on. What is in no place belongs to the first port")                   \
    X(blackhole, BLACKHOLE, "addr[:port],…",                                                   \
      "addresses that resolve but never answer; IPv6 as [addr]:port")                          \
    X(fail, FAIL, "K|call:K,…",                                                                \
      "fail the K-th call that a sweep numbers, or the K-th call of that name, as the real "   \
      "one "                                                                                   \
      "fails; completion:K is the K-th work request executed, cm_event:K the K-th rdma_cm "    \
      "event")                                                                                 \
    X(stop, STOP, "step,…[:K]",                                                                \
      "for tests: a thread stops at the K-th arrival, the first by default, at one of these "  \
      "steps")                                                                                 \
    X(role, ROLE, "word", "a name for this process")                                           \
    X(fail_role, FAIL_ROLE, "word", "EMUVERBS_FAIL holds only in processes of this role")      \
    X(counters, COUNTERS_DIR, "directory",                                                     \
      "at exit, write the counters to emuverbs-PID.json in this directory")

struct emu_knobs {
#define X(field, var, def, min, max, unit, prose) uint64_t field;
    EMU_NUMBERS(X)
#undef X
#define X(field, var, unit, prose) const char *field;
    EMU_STRINGS(X)
#undef X
};

/*
 * Fills `k` from the environment. A value that is no number or out of range is reported in one
 * line on stderr and the default is used. The strings point into the environment.
 */
void emu_knobs_load(struct emu_knobs *k);

/* Writes the table: variable, default, unit, meaning. */
void emu_knobs_help(FILE *out);

#endif
