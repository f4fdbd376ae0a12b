/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* methods.c - methods of the embedded programs, in order of preference. */
#include <stddef.h>
#include "embedded/bmi/methods.h"
#include "bmi-method-support.h"

#define ENTRY(name, address, emulator) &bmi_##name##_ops,

struct bmi_method_ops *const bmi_static_methods[] = {BMI_METHODS(ENTRY) NULL};
