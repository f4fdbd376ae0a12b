/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* methods.h - the methods of this build: BMI_METHODS(X) of config.h, rows X(NAME, "ADDRESS",
 * "EMULATOR") that configure makes of the file `methods`. */
#ifndef BMI_METHODS_H
#define BMI_METHODS_H

#include "config.h"

struct bmi_method_ops;
struct rme_fabric_ops;

#define BMI_METHOD_DECLARE(name, address, emulator)                                            \
    extern struct bmi_method_ops bmi_##name##_ops;                                             \
    const struct rme_fabric_ops *bmi_##name##_fabric(void);
BMI_METHODS(BMI_METHOD_DECLARE)
#undef BMI_METHOD_DECLARE

/* "ib://host:port or elan4://node:context" */
#define BMI_FORM(name, address, emulator) " or " #name "://" address
#define BMI_ADDRESS_FORMS                 (&(BMI_METHODS(BMI_FORM))[sizeof(" or ") - 1])

#endif
