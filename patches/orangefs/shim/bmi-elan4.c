/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The method bmi_elan4: addresses "elan4://node:context", over libelan4. */
#include "bmi_elan4.h"

#define SHIM_OPS    bmi_elan4_ops
#define SHIM_SCHEME "elan4"
#define SHIM_FORM   "node:context, numbers from 0 to 65535"
#define SHIM_FABRIC bmi_elan4_fabric
#include "shim-table.h"
