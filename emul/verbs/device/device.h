/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contexts of a device. */
#ifndef EMUL_VERBS_DEVICE_H
#define EMUL_VERBS_DEVICE_H

#include "emul/verbs/queue/cq.h"

/* Returns the context of a device that rdma_cm hands out; NULL with errno, ENODEV if the device
 * was removed. */
struct emu_ctx *emu_ctx_get(struct emu_dev *d, struct emu_hca *h);
/* Raises an event of a device in all its contexts. */
void emu_device_raise(struct emu_dev *d, const struct emu_hca *h, enum ibv_event_type type,
                      int port);
/*
 * Makes a device fail as if dropped by its driver: its QPs enter the error state, its contexts
 * get IBV_EVENT_DEVICE_FATAL, object creation fails, and its rdma_cm messages are dropped.
 * Existing objects can be destroyed.
 */
void emu_device_fail(struct emu_dev *d, struct emu_hca *h);

#endif
