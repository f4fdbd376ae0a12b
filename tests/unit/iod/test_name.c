/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* File names: an object's file stays in the store, is visible, and is unique. */
#include "tests/unit/common/unit.h"
#include "embedded/iod/args.h"
#include "embedded/iod/name.h"

static const char *encoded(const char *name)
{
    static char file[NAME_FILE_MAX];
    struct iod_string string = iod_string_of(name);

    assert_int_equal(name_encode(&string, file, sizeof file), 0);
    return file;
}

static void names_are_encoded(void **state)
{
    (void)state;
    assert_string_equal(encoded("plain-Name_1.txt"), "plain-Name_1.txt");
    assert_string_equal(encoded("a/b"), "a%2Fb");
    assert_string_equal(encoded("../../etc/passwd"), "%2E.%2F..%2Fetc%2Fpasswd");
    assert_string_equal(encoded("."), "%2E");
    assert_string_equal(encoded(".."), "%2E.");
    assert_string_equal(encoded(".hidden"), "%2Ehidden");
    assert_string_equal(encoded("100%"), "100%25");
    assert_string_equal(encoded(" \n\x7f\xff"), " \n\x7f\xff");
}

/* Every one- and two-byte name decodes back; its file name has no slash and no leading dot. */
static void comes_back(void **state)
{
    char back[NAME_FILE_MAX];

    (void)state;
    for (int a = 1; a < 256; a++)
        for (int b = 0; b < 256; b++) {
            char name[3] = {(char)a, (char)b, 0};
            const char *file = encoded(name);

            assert_null(strchr(file, '/'));
            assert_int_not_equal(file[0], '.');
            assert_int_equal(name_decode(file, back, sizeof back), strlen(name));
            assert_string_equal(back, name);
        }
}

static void invalid_names_refused(void **state)
{
    char file[NAME_FILE_MAX], name[300];
    struct iod_string string = {"", 0};

    (void)state;
    assert_int_equal(name_encode(&string, file, sizeof file), -EINVAL);
    string = (struct iod_string){"a\0b", 3};
    assert_int_equal(name_encode(&string, file, sizeof file), -EINVAL);
    memset(name, 'n', sizeof name);
    string = (struct iod_string){name, 255};
    assert_int_equal(name_encode(&string, file, sizeof file), 0);
    assert_int_equal(strlen(file), 255);
    string.length = 256;
    assert_int_equal(name_encode(&string, file, sizeof file), -ENAMETOOLONG);
    memset(name, '/', sizeof name);
    string.length = 85;
    assert_int_equal(name_encode(&string, file, sizeof file), 0);
    string.length = 86;
    assert_int_equal(name_encode(&string, file, sizeof file), -ENAMETOOLONG);
}

/* Names that the encoder does not write are not objects: else two files could be one object. */
static void foreign_files(void **state)
{
    static const char *const foreign[] = {"",    ".",    "..",   ".lock", "a%",
                                          "a%2", "a%2f", "a%41", "%",     "a%00",
                                          "a/b", "a%G0", "%2e",  "a%2E",  "a%25%"};
    char name[NAME_FILE_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        assert_int_equal(name_decode(foreign[i], name, sizeof name), -EINVAL);
    assert_int_equal(name_decode("abcd", name, 4), -EINVAL);
    assert_int_equal(name_decode("abc", name, 4), 3);
}

static void name_size_limits(void **state)
{
    char text[24];
    uint64_t n = 0;

    (void)state;
    assert_true(args_number("x", "64K", 1, 1 << 20, &n) && n == 65536);
    assert_true(args_number("x", "7", 1, 10, &n) && n == 7);
    assert_false(args_number("x", "-1", 0, 10, &n));
    assert_false(args_number("x", "", 0, 10, &n));
    assert_false(args_number("x", "1Q", 0, 10, &n));
    assert_false(args_number("x", "1KK", 0, 10000, &n));
    assert_false(args_number("x", "99999999999999999999", 0, UINT64_MAX, &n));
    assert_false(args_number("x", "18446744073709551615G", 0, UINT64_MAX, &n));
    assert_false(args_number("x", "11", 1, 10, &n));
    assert_string_equal(args_size_text(65536, text, sizeof text), "64K");
    assert_string_equal(args_size_text(1000, text, sizeof text), "1000");
    assert_string_equal(args_size_text(UINT64_C(5) << 30, text, sizeof text), "5G");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_encoded),     cmocka_unit_test(comes_back),
        cmocka_unit_test(invalid_names_refused), cmocka_unit_test(foreign_files),
        cmocka_unit_test(name_size_limits),
    };

    return cmocka_run_group_tests_name("iod/name", tests, NULL, NULL);
}
