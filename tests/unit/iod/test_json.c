/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Strings as JSON: any bytes are printed as UTF-8 from which they can be restored. And text
 * without control characters. */
#include "tests/unit/common/unit.h"
#include "embedded/iod/json.h"
#include "embedded/iod/text.h"

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

static void becomes(const char *from, const char *want)
{
    char text[64];

    snprintf(text, sizeof text, "%s", from);
    assert_int_equal(text_no_controls(text), strlen(want));
    assert_string_equal(text, want);
}

static void controls_become_marks(void **state)
{
    (void)state;
    becomes("", "");
    becomes("plain \xc3\xa4 \xe2\x82\xac", "plain \xc3\xa4 \xe2\x82\xac");
    becomes("a\tb\n\x1b[31m\x7f", "a?b??[31m?");
    becomes("evil\xc2\x9b"
            "31mred",
            "evil?31mred");
    becomes("\xc2\x80\xc2\x9f\xc2\xa0", "??\xc2\xa0");
    becomes("\xe2\x80\x9b\xf0\x9f\x90\xa7", "\xe2\x80\x9b\xf0\x9f\x90\xa7");
    becomes("\x9b"
            "31m\xe4",
            "?31m\xe4"); /* of another encoding, or truncated */
    becomes("\xe2\x9b", "\xe2?");
    becomes("x\xc2", "x\xc2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_stays),
        cmocka_unit_test(other_bytes_are_escaped),
        cmocka_unit_test(controls_become_marks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
