/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "emul/common/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

bool emul_may_be_so_large(const char *emulator, const char *remedy, uint64_t size)
{
    struct rlimit most;

    if (getrlimit(RLIMIT_FSIZE, &most) < 0 || most.rlim_cur >= size)
        return true;
    fprintf(stderr,
            "%s: segment of %" PRIu64
            " bytes: larger than the file size limit (RLIMIT_FSIZE is %" PRIu64
            "); raise the limit (ulimit -f), or make the segment smaller (%s at least)\n",
            emulator, size, (uint64_t)most.rlim_cur, remedy);
    return false;
}

void emul_print_no_room(const char *emulator, const char *remedy, uint64_t size)
{
    struct rlimit most = {0};

    getrlimit(RLIMIT_AS, &most);
    fprintf(stderr,
            "%s: segment of %" PRIu64 " bytes: no address space (RLIMIT_AS is %" PRIu64
            "); raise the limit (ulimit -v), or make the segment smaller (%s at least)\n",
            emulator, size, (uint64_t)most.rlim_cur, remedy);
}
