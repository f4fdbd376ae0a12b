/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bmi-method-callback.h - calls of a BMI method to its host, without a lock of the method
 * held. */
#ifndef BMI_METHOD_CALLBACK_H
#define BMI_METHOD_CALLBACK_H

#include "bmi-method-support.h"

/*
 * Registers a peer that connected to this host, once per address object, before its first
 * unexpected message is reported.  Returns 0 without memory.
 */
BMI_addr_t bmi_method_addr_reg_callback(bmi_method_addr_p map);

/*
 * Reports that a peer is gone.  The next BMI_testunexpected or BMI_testcontext queries the
 * method (BMI_DROP_ADDR_QUERY) and drops the address if the program holds no reference.
 * Returns 0 or -BMI_EINVAL.
 */
int bmi_method_addr_forget_callback(BMI_addr_t addr);

#endif
