/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any address string: the printed form of an accepted one is accepted, with the same parts. */
#include "fuzz.h"
#include "base/addr_int.h"

static void parse_again(const struct rme_addr *addr)
{
    struct rme_addr *again = NULL;
    bool any = false;

    FUZZ_CHECK(rme_addr_parts(addr) > 0);
    FUZZ_CHECK(rme_addr_parse("ib", rme_addr_name(addr), &again) == 0);
    FUZZ_CHECK(rme_addr_parts(again) == rme_addr_parts(addr));
    FUZZ_CHECK(strcmp(rme_addr_name(again), rme_addr_name(addr)) == 0);
    for (int i = 0; i < rme_addr_parts(addr); i++) {
        const struct rme_addr_part *a = rme_addr_part(addr, i), *b = rme_addr_part(again, i);
        long port = strtol(a->port, NULL, 10);

        FUZZ_CHECK(strcmp(a->host, b->host) == 0 && strcmp(a->port, b->port) == 0);
        FUZZ_CHECK(a->host[0] != '\0' && port >= 0 && port <= 65535);
        any |= port == 0;
    }
    FUZZ_CHECK(rme_addr_any_port(addr) == any);
    rme_addr_put(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_copy(data, size, 1);
    struct rme_addr *addr = NULL;

    if (rme_addr_parse("ib", text, &addr) == 0) {
        parse_again(addr);
        rme_addr_put(addr);
    } else {
        FUZZ_CHECK(addr == NULL);
    }
    free(text);
    return 0;
}
