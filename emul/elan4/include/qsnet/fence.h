/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Barriers between the stores of a program and what the network interface sees of them. */
#ifndef QSNET_FENCE_H
#define QSNET_FENCE_H

#define MEMBAR_VISIBLE()    __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define MEMBAR_STORESTORE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define MEMBAR_LOADLOAD()   __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define MEMBAR_DRAIN()      __atomic_thread_fence(__ATOMIC_SEQ_CST)

#endif
