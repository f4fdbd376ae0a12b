/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* log.c - log and clock. */
#include <stdarg.h>
#include <stdio.h>

#include "base/timer.h"
#include "bmi_elan4/elan.h"

void elan_log(struct rme_fabric *f, enum rme_log_level level, const char *format, ...)
{
    char line[400];
    va_list ap;

    va_start(ap, format);
    vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    f->config.log(f->config.log_arg, level, "elan4: %s", line);
}

int64_t elan_now(void)
{
    return (int64_t)rme_now();
}
