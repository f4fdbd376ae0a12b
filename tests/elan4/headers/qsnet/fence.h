/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef QSNET_FENCE_H
#define QSNET_FENCE_H
#define MEMBAR_VISIBLE()    __sync_synchronize()
#define MEMBAR_STORESTORE() __sync_synchronize()
#define MEMBAR_DRAIN()      __sync_synchronize()
#endif
