/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Strings as JSON: any bytes are printed as UTF-8 from which they can be restored. And text
 * without control characters. */
#include "tests/unit/common/unit.h"
#include "embedded/iod/json.h"

static void is_printed(const char *text, size_t length, const char *want)
{
    char *got = NULL;
    size_t size;
    FILE *out = open_memstream(&got, &size);

    assert_non_null(out);
    json_string(out, text, length);
    fclose(out);
    assert_string_equal(got, want);
    free(got);
}

#define PRINTED(text, want) is_printed(text, sizeof(text) - 1, want)

static void text_stays(void **state)
{
    (void)state;
    PRINTED("", "\"\"");
    PRINTED("plain", "\"plain\"");
    PRINTED("a\"b\\c", "\"a\\\"b\\\\c\"");
    PRINTED("\n\x7f", "\"\\u000a\\u007f\"");
    PRINTED("\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\xa7", "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\xa7\"");
    PRINTED("\xc2\xa0\xed\x9f\xbf\xf4\x8f\xbf\xbf", "\"\xc2\xa0\xed\x9f\xbf\xf4\x8f\xbf\xbf\"");
    PRINTED("\xc2\x80\xc2\x9b\xc2\x9f", "\"\\u0080\\u009b\\u009f\""); /* controls, too */
}

static void other_bytes_are_escaped(void **state)
{
    (void)state;
    PRINTED("a\xff"
            "b",
            "\"a\\udcffb\"");
    PRINTED("\xe4", "\"\\udce4\"");
    PRINTED("\xe2\x82", "\"\\udce2\\udc82\""); /* truncated */
    PRINTED("\xe2\x82x", "\"\\udce2\\udc82x\"");
    PRINTED("\x80\xbf", "\"\\udc80\\udcbf\"");
    PRINTED("\xc0\xaf", "\"\\udcc0\\udcaf\""); /* overlong */
    PRINTED("\xc1\x81", "\"\\udcc1\\udc81\"");
    PRINTED("\xe0\x80\xaf", "\"\\udce0\\udc80\\udcaf\"");
    PRINTED("\xf0\x80\x80\xaf", "\"\\udcf0\\udc80\\udc80\\udcaf\"");
    /* half of a surrogate pair */
    PRINTED("\xed\xa0\x80", "\"\\udced\\udca0\\udc80\"");
    /* beyond the last code point */
    PRINTED("\xf4\x90\x80\x80", "\"\\udcf4\\udc90\\udc80\\udc80\"");
    PRINTED("\xf5\x80\x80\x80", "\"\\udcf5\\udc80\\udc80\\udc80\"");
    PRINTED("\xc3\xa4\xc3", "\"\xc3\xa4\\udcc3\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_stays),
        cmocka_unit_test(other_bytes_are_escaped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
