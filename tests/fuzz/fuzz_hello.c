/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any bytes as connection data, as a hello and as a reject. */
#include "fuzz.h"
#include "wire/wire.h"

static void hello(const char *bytes, size_t size)
{
    struct rme_hello got, again;
    struct rme_reject reject = {0};
    uint8_t out[RME_HELLO_SIZE];

    if (rme_hello_decode(bytes, size, &got, &reject) != 0) {
        FUZZ_CHECK(rme_reject_text(reject.reason) != NULL);
        FUZZ_CHECK(reject.reason != RME_REJECT_NONE);
        return;
    }
    FUZZ_CHECK(got.rx_size >= RME_HELLO_RX_MIN && got.credits >= 1);
    rme_hello_encode(&got, out);
    FUZZ_CHECK(rme_hello_decode(out, sizeof(out), &again, &reject) == 0);
    FUZZ_CHECK(again.incarnation == got.incarnation && again.rx_size == got.rx_size &&
               again.credits == got.credits);
    FUZZ_CHECK(again.eager_window == got.eager_window &&
               again.unexpected_window == got.unexpected_window &&
               again.rts_max == got.rts_max);
}

static void reject(const char *bytes, size_t size)
{
    struct rme_reject got, again;
    uint8_t out[RME_REJECT_SIZE];

    if (rme_reject_decode(bytes, size, &got) != 0)
        return;
    FUZZ_CHECK(rme_reject_text(got.reason) != NULL);
    rme_reject_encode(&got, out);
    FUZZ_CHECK(rme_reject_decode(out, sizeof(out), &again) == 0);
    FUZZ_CHECK(again.reason == got.reason && again.acceptable == got.acceptable);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = fuzz_copy(data, size, 0);

    hello(bytes, size);
    reject(bytes, size);
    free(bytes);
    return 0;
}
