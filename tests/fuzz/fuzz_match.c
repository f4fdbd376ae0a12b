/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any patterns against any address: the first 18 bytes are netmask, family and address, the
 * rest is lines, each a pattern. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "fuzz.h"
#include "base/addr_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "host", name[64];
    struct rme_addr *addr;
    char *lines, *next;
    int netmask, match;

    if (size < 18)
        return 0;
    netmask = (int8_t)data[0];
    if (!(data[1] & 2))
        inet_ntop(data[1] & 1 ? AF_INET : AF_INET6, data + 2, host, sizeof(host));
    snprintf(name, sizeof(name), strchr(host, ':') != NULL ? "[%s]:1" : "%s:1", host);
    addr = rme_addr_new_passive(name);
    FUZZ_CHECK(addr != NULL);
    next = lines = fuzz_copy(data + 18, size - 18, 1);
    for (const char *line; (line = strsep(&next, "\n")) != NULL;) {
        char *pattern = fuzz_copy((const uint8_t *)line, strlen(line), 1);

        match = rme_addr_match(addr, pattern, netmask);
        FUZZ_CHECK(match == 0 || match == 1 || match == -EINVAL);
        free(pattern);
    }
    rme_addr_put(addr);
    free(lines);
    return 0;
}
