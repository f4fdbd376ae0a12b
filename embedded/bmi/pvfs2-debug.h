/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pvfs2-debug.h - masks of BMI's debug lines (gossip.h), with OrangeFS's values. */
#ifndef PVFS2_DEBUG_H
#define PVFS2_DEBUG_H

#include <stdint.h>

#define GOSSIP_BMI_DEBUG_CONTROL ((uint64_t)1 << 1)  /* methods, addresses, references */
#define GOSSIP_BMI_DEBUG_IB      ((uint64_t)1 << 19) /* inside the RDMA methods */

#endif
