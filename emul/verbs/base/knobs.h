/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Knobs: settings for users and tests, by environment variables EMUVERBS_<NAME>. Parsing,
 * `emuverbs --help` and the manual are generated from one table of name, kind, default, unit
 * and meaning.
 */
#ifndef EMUL_VERBS_KNOBS_H
#define EMUL_VERBS_KNOBS_H

#include <stdint.h>
#include <stdio.h>

/* Payload of a bounce slot of the shared segment: 4 KiB and usual headers. */
#define EMU_BOUNCE_BYTES 4672u
/* Most writes in one system call; the cost per write does not fall beyond. */
#define EMU_CHAIN_MAX 64

/* X(field, VARIABLE, default, minimum, maximum, unit, prose): numbers */
#define EMU_NUMBERS(X)                                                                         \
    X(devices, DEVICES, 1, 0, 8, "devices",                                                    \
      "number of devices: emu0, emu1, and so on; 0: none")                                     \
    X(ports, PORTS, 1, 1, 4, "ports", "ports of each device")                                  \
    X(max_sge, MAX_SGE, 16, 1, 64, "segments", "limit of segments per work request")           \
    X(max_inline, MAX_INLINE, 256, 0, 4096, "bytes", "limit of inline data per work request")  \
    X(inline_step, INLINE_STEP, 1, 1, 4096, "bytes",                                           \
      "granted inline data is rounded up to a multiple of this, within the limit, as "         \
      "providers do")                                                                          \
    X(max_rd_atom, MAX_RD_ATOM, 16, 0, 255, "reads", "RDMA reads in flight per queue pair")    \
    X(max_qp, MAX_QP, 16383, 0, 16383, "objects", "limit of queue pairs per process")          \
    X(max_qp_wr, MAX_QP_WR, 16384, 1, 65536, "requests",                                       \
      "limit of the depth of a send or receive queue")                                         \
    X(max_cqe, MAX_CQE, 1048576, 1, 4194304, "entries",                                        \
      "limit of the depth of a completion queue")                                              \
    X(max_mw, MAX_MW, 65535, 0, 65535, "objects",                                              \
      "limit of memory windows; beyond it ENOMEM; 0: not supported")                           \
    X(memlock, MEMLOCK, 0, 0, UINT64_MAX, "bytes",                                             \
      "limit of registered memory, like a memlock limit; 0: unlimited")                        \
    X(srq, SRQ, 1, 0, 1, "", "0: no shared receive queues")                                    \
    X(equal_keys, EQUAL_KEYS, 0, 0, 1, "",                                                     \
      "1: lkey and rkey of a region are equal, as on some devices; for both processes")        \
    X(odp, ODP, 1, 0, 1, "", "0: no on-demand paging")                                         \
    X(mtu, MTU, 4096, 256, 4096, "bytes", "path MTU: 256, 512, 1024, 2048 or 4096")            \
    X(ethernet, ETHERNET, 0, 0, 2, "",                                                         \
      "1: the port's link layer is Ethernet, with one GID (RoCE v2); 2: with four, as "        \
      "adapters have: RoCE v1 and v2 of a link-local and of the IP address")                   \
    X(bounce_max, BOUNCE_MAX, EMU_BOUNCE_BYTES, 0, EMU_BOUNCE_BYTES, "bytes",                  \
      "sends up to this size are copied through the shared segment instead of by a system "    \
      "call")                                                                                  \
    X(write_chain, WRITE_CHAIN, EMU_CHAIN_MAX, 1, EMU_CHAIN_MAX, "requests",                   \
      "limit of RDMA writes, posted together, that one system call moves")                     \
    X(read_delay_us, READ_DELAY_US, 0, 0, 60000000, "us",                                      \
      "RDMA reads fetch their data this much later; later requests without a fence overtake "  \
      "them")                                                                                  \
    X(read_reverse, READ_REVERSE, 0, 0, 1, "",                                                 \
      "1: delayed reads that are due together fetch in reverse order")                         \
    X(link_mb_s, LINK_MB_S, 0, 0, 1000000, "MB/s",                                             \
      "rate of a device's link in each direction: requests of a process are serialized at "    \
      "this rate; 0: no link, requests are executed when posted")                              \
    X(link_ns, LINK_NS, 1000, 0, 1000000000, "ns",                                             \
      "one-way latency of the link, if EMUVERBS_LINK_MB_S is set")                             \
    X(still_from, STILL_FROM, 0, 0, UINT64_MAX, "bytes",                                       \
      "RDMA writes and reads from this size on are checked and complete without moving data, " \
      "except the first 64 bytes of a write with immediate: to measure all other costs; 0: "   \
      "never")                                                                                 \
    X(send_late_us, SEND_LATE_US, 0, 0, 1000000, "us",                                         \
      "delay of a sender's completion after the receiver's, so that a reply can overtake it, " \
      "which devices permit and rarely do; 0: before the receiver's")                          \
    X(stop_fd, STOP_FD, 0, 0, 1048576, "descriptor",                                           \
      "with EMUVERBS_STOP: a socket; a stopping thread writes a byte and continues when it "   \
      "reads one: the number of arrivals until the next stop, 0: none")                        \
    X(silent, SILENT, 0, 0, 1, "", "1: drop all traffic of this process, as if unplugged")     \
    X(retry_max_ms, RETRY_MAX_MS, 500, 1, 600000, "ms",                                        \
      "limit of the time until an unanswered request ends with RETRY_EXC_ERR")                 \
    X(cm_timeout_ms, CM_TIMEOUT_MS, 60000, 10, 3600000, "ms",                                  \
      "time until an unanswered connection request ends with UNREACHABLE")                     \
    X(backlog, BACKLOG, 1024, 1, 65535, "requests",                                            \
      "limit of the connection requests that a listener has not fetched, as "                  \
      "net.rdma_ucm.max_backlog")                                                              \
    X(listen_wait_ms, LISTEN_WAIT_MS, 80, 0, 60000, "ms",                                      \
      "a connection request without a listener is retried for this long, the time that "       \
      "resolving an address takes on a network")                                               \
    X(dreq_hold_ms, DREQ_HOLD_MS, 100, 0, 60000, "ms",                                         \
      "longest delay of DISCONNECTED until the program has polled the data received before; "  \
      "on a network, a disconnection is slower than data; 0: no delay")                        \
    X(timewait_ms, TIMEWAIT_MS, 100, 0, 600000, "ms", "time from disconnect to TIMEWAIT_EXIT") \
    X(late_us, LATE_US, 1000, 0, 60000000, "us",                                               \
      "delay of the requests that EMUVERBS_FAIL=late:... chooses")                             \
    X(seed, SEED, 1, 0, UINT64_MAX, "", "of the draws of EMUVERBS_FAIL=call:RATE%")            \
    X(segment_mib, SEGMENT_MIB, 1024, 64, 65536, "MiB",                                        \
      "address space (not memory) of the shared segment")                                      \
    X(census, CENSUS, 0, 0, 1, "",                                                             \
      "1: at exit, print on stderr the kinds of objects still alive")                          \
    X(count_calls, COUNT_CALLS, 0, 0, 1, "",                                                   \
      "1: at exit, print on stderr the number of calls that EMUVERBS_FAIL=K numbers")

/* X(field, VARIABLE, unit, prose): strings, empty by default */
#define EMU_STRINGS(X)                                                                         \
    X(name, DEVICE_NAME, "name",                                                               \
      "name of the first device; unset: emu0; a number at its end is counted up for the "      \
      "others")                                                                                \
    X(addresses, ADDRESSES, "addr,…",                                                          \
      "IP address of each port, first device first; unset: 127.0.0.1, 127.0.0.2, and so on; "  \
      "other addresses of the machine belong to the first port")                               \
    X(names, NAMES, "folder",                                                                  \
      "network namespaces that share this folder are hosts that reach each other, by their "   \
      "addresses; unset: processes of one network namespace reach each other")                 \
    X(blackhole, BLACKHOLE, "addr[:port],…",                                                   \
      "addresses that resolve but never answer; IPv6 as [addr]:port")                          \
    X(fail, FAIL, "K|call:K|call:RATE%,…",                                                     \
      "fail the K-th call, the K-th call of that name, or that share of them, as the real "    \
      "call fails; completion: work requests executed; cm_event: rdma_cm events; lost: "       \
      "transmissions, which connections repeat; not_ready: transmissions that find no "        \
      "receive (RNR); late: requests, by EMUVERBS_LATE_US")                                    \
    X(stop, STOP, "step,…[:K]",                                                                \
      "for tests: a thread stops at the K-th arrival (default 1) at one of these steps")       \
    X(trace, TRACE, "file",                                                                    \
      "append a line for each work request and each completion: time, process, queue pair, "   \
      "opcode, bytes, wr_id, status")                                                          \
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

/* Fills `k` from the environment. Reports an invalid or out-of-range value in one line on
 * stderr and uses the default. The strings point into the environment. */
void emu_knobs_load(struct emu_knobs *k);

/* Prints the table: variable, default, unit, meaning. */
void emu_knobs_help(FILE *out);

#endif
