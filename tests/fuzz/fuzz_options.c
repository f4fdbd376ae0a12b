/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any option string: values stay in range, a refusal says why. */
#include "fuzz.h"
#include "base/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct rme_option_row *const tables[] = {rme_engine_options};
    struct rme_options *options = rme_options_new(tables, 1);
    char *text = fuzz_copy(data, size, 1);
    char why[200] = "";
    int ret;

    FUZZ_CHECK(options != NULL);
    ret = rme_options_parse(options, text, why, sizeof(why));
    FUZZ_CHECK(ret == 0 || why[0] != '\0');
    for (const struct rme_option_row *row = rme_engine_options; row->name != NULL; row++) {
        int64_t value;

        if (row->preset_string == NULL) {
            FUZZ_CHECK(rme_option_find(options, row->name, &value) == 0);
            FUZZ_CHECK(value >= row->min && value <= row->max);
        } else {
            FUZZ_CHECK(rme_option_string(options, row->name) != NULL);
        }
    }
    rme_options_free(options);
    free(text);
    return 0;
}
