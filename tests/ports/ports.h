/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ports.h - ports that tests and benchmarks do not share with anybody.
 *
 * A block of ports belongs to whoever has a UDP socket bound to its first number: the kernel
 * keeps such sockets apart within a network namespace, where TCP's ports and those of the
 * software HCA live, too, and lets go of the block when the last process that inherited the
 * socket has ended.  The UDP port itself is of no other use, so the whole block is free for
 * listeners, again and again.
 */
#ifndef PORTS_H
#define PORTS_H

#define PORTS_IN_BLOCK 64

/*
 * Takes a block for the rest of this process' life and its children's, and returns its first
 * port; none of them has a TCP listener or one of the software HCA's connection manager.
 * Blocks lie below the ports that the system hands out by itself.  Returns -EADDRINUSE when all
 * blocks are taken, or another negative errno.  Call it before any fork of processes that must
 * know the ports.
 */
int ports_take(void);

#endif
