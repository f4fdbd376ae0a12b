/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ports.h - ports that tests and benchmarks share with no other process.
 *
 * A process owns a block of ports while it has a UDP socket bound to the block's first number.
 * The kernel keeps such sockets unique within a network namespace, like TCP's ports and those
 * of the software HCA, and frees the block when the last process that inherited the socket has
 * ended. The UDP port has no other use, so the whole block can be used for listeners,
 * repeatedly.
 */
#ifndef PORTS_H
#define PORTS_H

#define PORTS_IN_BLOCK 64

/*
 * Takes a block for the life of this process and its children, and returns its first port. None
 * of its ports has a TCP listener or one of the software HCA's connection manager. Blocks are
 * below the system's ephemeral ports. Returns -EADDRINUSE when all blocks are taken, or another
 * negative errno. To be called before forking processes that must know the ports.
 */
int ports_take(void);

#endif
