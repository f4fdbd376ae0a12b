/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any pattern against any address: the first 18 bytes are netmask, family and address, the rest
 * is the pattern. */
#include <netinet/in.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "base/addr_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sockaddr_storage sa = {0};
    struct rme_addr *addr;
    char *pattern;
    int netmask, match;

    if (size < 18)
        return 0;
    netmask = (int8_t)data[0];
    if (data[1] & 1) {
        sa.ss_family = AF_INET;
        memcpy(&((struct sockaddr_in *)&sa)->sin_addr, data + 2, 4);
    } else {
        sa.ss_family = AF_INET6;
        memcpy(&((struct sockaddr_in6 *)&sa)->sin6_addr, data + 2, 16);
    }
    pattern = fuzz_copy(data + 18, size - 18, 1);
    addr = rme_addr_new_passive("host:1", data[1] & 4 ? NULL : (struct sockaddr *)&sa);
    FUZZ_CHECK(addr != NULL);
    match = rme_addr_match(addr, pattern, netmask);
    FUZZ_CHECK(match == 0 || match == 1);
    rme_addr_put(addr);
    free(pattern);
    return 0;
}
