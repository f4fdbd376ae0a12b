/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Barriers between stores of a program and accesses of the network interface. */
#ifndef QSNET_FENCE_H
#define QSNET_FENCE_H

#define MEMBAR_VISIBLE()    __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define MEMBAR_STORESTORE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define MEMBAR_LOADLOAD()   __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define MEMBAR_DRAIN()      __atomic_thread_fence(__ATOMIC_SEQ_CST)

#endif
