/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The method bmi_ib: addresses "ib://host:port", over verbs. */
#include "bmi_ib.h"

#define SHIM_OPS    bmi_ib_ops
#define SHIM_SCHEME "ib"
#define SHIM_FABRIC bmi_ib_fabric
#include "shim-table.h"
