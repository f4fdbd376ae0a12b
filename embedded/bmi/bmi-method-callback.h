/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bmi-method-callback.h - what a BMI method may ask of its host.  To be called with no lock of
 * the method held. */
#ifndef BMI_METHOD_CALLBACK_H
#define BMI_METHOD_CALLBACK_H

#include "bmi-method-support.h"

/*
 * Makes a peer known that came to us; once for each address object, before its first unexpected
 * message is reported. Returns 0 when there is no memory.
 */
BMI_addr_t bmi_method_addr_reg_callback(bmi_method_addr_p map);

/*
 * Says that a peer is gone.  The next BMI_testunexpected asks the method again
 * (BMI_DROP_ADDR_QUERY) and drops the address, if nobody has a reference to it.
 */
int bmi_method_addr_forget_callback(BMI_addr_t addr);

#endif
