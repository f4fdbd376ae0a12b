/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Hooks in the C library's system calls that change memory mappings, for kernels and containers
 * that refuse userfaultfd.  doc/design/unmap-monitor.md has the method, its argument, and the
 * changes that hooks do not see.
 */
#ifndef RME_HOOKS_H
#define RME_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Calls `changed` from now on with each range of memory that is about to change, in the thread
 * that changes it, and again with memory that was mapped, before that thread can use it.
 * `changed` must not allocate, free or unmap, nor wait for a thread that may do so; errno is
 * kept.  A process has one user of hooks at a time, whose calls of start and stop follow each
 * other.  -ENOTSUP: not possible here, for want of `lacks`; nothing is called.
 */
int rme_hooks_start(void (*changed)(uintptr_t start, uintptr_t end), const char **lacks);

/* Stops.  A call of `changed` that has begun may still run.  The hooks stay in the C library,
 * and the code of this library in the process. */
void rme_hooks_stop(void);

/* Returns false if code of another library has taken the place of a hook.  Any thread. */
bool rme_hooks_intact(void);

#endif
