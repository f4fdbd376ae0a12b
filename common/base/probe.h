/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Static probes (USDT), provider "rme": perf, bpftrace, SystemTap and gdb find them by name in
 * the library.  An unused probe is one nop.  Compiled in if <sys/sdt.h> exists (Debian:
 * systemtap-sdt-dev).  doc/architecture.md lists them.
 */
#ifndef RME_PROBE_H
#define RME_PROBE_H

#ifdef __has_include
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#endif
#endif
#ifndef DTRACE_PROBE3
#define DTRACE_PROBE3(provider, name, a, b, c) ((void)(a), (void)(b), (void)(c))
#endif

/* A new operation: the host's id, the kind as in op/op.h, the bytes of its memory. */
#define rme_probe_op_new(id, kind, bytes) DTRACE_PROBE3(rme, op_new, id, kind, bytes)
/* A change of an operation's state, as in op/op.h. */
#define rme_probe_op_step(id, from, to) DTRACE_PROBE3(rme, op_step, id, from, to)
/* A change of a connection's state, as in transport/peer.h; `serial` is the peer's number in
 * this engine. */
#define rme_probe_link(serial, from, to) DTRACE_PROBE3(rme, link_step, serial, from, to)
/* A change of the state of a fabric's link; `number` and states are the fabric's. */
#define rme_probe_fabric_link(number, from, to)                                                \
    DTRACE_PROBE3(rme, fabric_link_step, number, from, to)

#endif
