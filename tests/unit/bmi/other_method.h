/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* other_method.h - a BMI method beside the shim, for tests of several methods: "other://name".
 * Each post completes at once, and is reported by a test. */
#ifndef OTHER_METHOD_H
#define OTHER_METHOD_H

#include <stdatomic.h>
#include <stdbool.h>
#include "bmi-method-support.h"

struct other {
    /* set by tests */
    int initialize_error, context_error, set_info_error, test_error;
    int port;          /* listening port; 0: not listening */
    bool active;       /* testcontext returns "active" */
    const char *knows; /* its only option; NULL: unknown */
    int results;       /* completed operations; of posts, and more by tests */
    /* read by tests */
    atomic_int initialized, finalized;
    int asked, idle_ms; /* calls of testcontext; idle time given to those without a result */
    unsigned contexts;
    char options[64], listening[64];
    int flags, number;
};

extern struct other other;
extern struct bmi_method_ops other_ops;

#endif
