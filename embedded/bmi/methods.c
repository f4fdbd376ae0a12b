/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* methods.c - methods of the embedded programs, in order of preference. */
#include <stddef.h>
#include "bmi-method-support.h"

extern struct bmi_method_ops bmi_ib_ops, bmi_elan4_ops;

struct bmi_method_ops *const bmi_static_methods[] = {
    &bmi_ib_ops,
    &bmi_elan4_ops,
    NULL,
};
