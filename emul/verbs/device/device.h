/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contexts of a device. */
#ifndef EMUL_VERBS_DEVICE_H
#define EMUL_VERBS_DEVICE_H

#include "emul/verbs/queue/cq.h"

/* Returns the context of a device that rdma_cm hands out. */
struct emu_ctx *emu_ctx_get(struct emu_dev *d, uint32_t device);

#endif
