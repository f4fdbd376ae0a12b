/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Static probes (USDT), provider "rme": perf, bpftrace, SystemTap and gdb find them by name in
 * the library.  An unused probe is one nop.  Compiled in if <sys/sdt.h> exists (Debian:
 * systemtap-sdt-dev).  doc/architecture.md lists them.
 */
#ifndef RME_PROBE_H
#define RME_PROBE_H

#include <stdint.h>

#ifdef __has_include
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#endif
#endif
#ifndef DTRACE_PROBE3
#define DTRACE_PROBE3(provider, name, a, b, c) ((void)(a), (void)(b), (void)(c))
#endif

/* Marks a new operation: the host's id, the kind as in op/op.h, the bytes of its memory. */
static inline void rme_probe_op_new(uint64_t id, uint8_t kind, uint64_t bytes)
{
    DTRACE_PROBE3(rme, op_new, id, kind, bytes);
}

/* Marks a change of an operation's state, as in op/op.h. */
static inline void rme_probe_op_step(uint64_t id, uint8_t from, int to)
{
    DTRACE_PROBE3(rme, op_step, id, from, to);
}

/* Marks a change of a connection's state, as in transport/peer.h; `serial` is the peer's number
 * in this engine. */
static inline void rme_probe_link(uint32_t serial, int from, int to)
{
    DTRACE_PROBE3(rme, link_step, serial, from, to);
}

/* Marks a change of the state of a fabric's link; `number` and states are the fabric's. */
static inline void rme_probe_fabric_link(uint32_t number, int from, int to)
{
    DTRACE_PROBE3(rme, fabric_link_step, number, from, to);
}

#endif
