/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>

#include "base/remedy.h"

const char *rme_remedy(int error, const char *else_do)
{
    switch (error) {
    case -EMFILE:
        return "raise the limit of open files (ulimit -n)";
    case -ENFILE:
        return "raise the machine's limit of open files (sysctl fs.file-max)";
    case -EFBIG:
        return "raise the file size limit (ulimit -f)";
    case -ENOMEM:
        return "free memory, or raise its limits (ulimit -v, -l)";
    default:
        return else_do;
    }
}
