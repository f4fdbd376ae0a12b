/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any option string: values stay in range, and a refusal has a reason. */
#include "fuzz.h"
#include "base/options.h"

#define ALL_EACH 16 /* all options are checked if the input's size is a multiple of this */

static const struct rme_option_row *row_of(const char *name, size_t length)
{
    for (const struct rme_option_row *row = rme_engine_options; row->name != NULL; row++)
        if (row->name[0] == name[0] && strlen(row->name) == length &&
            memcmp(row->name, name, length) == 0)
            return row;
    return NULL;
}

static void check(const struct rme_options *options, const struct rme_option_row *row)
{
    int64_t value;

    if (row->preset_string == NULL) {
        FUZZ_CHECK(rme_option_find(options, row->name, &value) == 0);
        FUZZ_CHECK(value >= row->min && value <= row->max);
    } else {
        FUZZ_CHECK(rme_option_string(options, row->name) != NULL);
    }
}

/* Checks the options named in the text; the others keep their presets. */
static void check_named(const struct rme_options *options, const char *text)
{
    while (*text != '\0') {
        size_t all = strcspn(text, ", \t\n"), name = 0;
        const struct rme_option_row *row;

        while (name < all && text[name] != '=')
            name++;
        row = name > 0 ? row_of(text, name) : NULL;
        if (row != NULL)
            check(options, row);
        text += all + (text[all] != '\0');
    }
}

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
    check_named(options, text);
    for (const struct rme_option_row *row = rme_engine_options;
         size % ALL_EACH == 0 && row->name != NULL; row++)
        check(options, row);
    rme_options_free(options);
    free(text);
    return 0;
}
