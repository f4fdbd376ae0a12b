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
#define RME_HAS_PROBES 1
#endif
#endif

/* Marks a new operation: the host's id, the kind as in op/op.h, the bytes of its memory. */
static inline void rme_probe_op_new(uint64_t id, uint8_t kind, uint64_t bytes)
{
#ifdef RME_HAS_PROBES
    DTRACE_PROBE3(rme, op_new, id, kind, bytes);
#else
    (void)id, (void)kind, (void)bytes;
#endif
}

/* Marks a change of an operation's state, as in op/op.h. */
static inline void rme_probe_op_step(uint64_t id, uint8_t from, int to)
{
#ifdef RME_HAS_PROBES
    DTRACE_PROBE3(rme, op_step, id, from, to);
#else
    (void)id, (void)from, (void)to;
#endif
}

/* Marks a change of a connection's state, as in transport/peer.h; `serial` is the peer's number
 * in this engine. */
static inline void rme_probe_link(uint32_t serial, int from, int to)
{
#ifdef RME_HAS_PROBES
    DTRACE_PROBE3(rme, link_step, serial, from, to);
#else
    (void)serial, (void)from, (void)to;
#endif
}

/* Marks a change of the state of a fabric's link; `number` and states are the fabric's. */
static inline void rme_probe_fabric_link(uint32_t number, int from, int to)
{
#ifdef RME_HAS_PROBES
    DTRACE_PROBE3(rme, fabric_link_step, number, from, to);
#else
    (void)number, (void)from, (void)to;
#endif
}

#endif
