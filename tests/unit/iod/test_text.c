/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Names of files, sizes, lists of hosts, strings as JSON, and stripe arithmetic. */
#include "tests/unit/common/unit.h"
#include "embedded/iod/access.h"
#include "embedded/iod/args.h"
#include "embedded/iod/json.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/name.h"

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

/* Returns the file of a name; NULL: refused with this error. */
static const char *file_of(const char *name, size_t length, int error)
{
    static char file[NAME_FILE_MAX];
    struct iod_string string = {name, (uint32_t)length};

    assert_int_equal(name_encode(&string, file, sizeof file), error);
    return error ? NULL : file;
}

/* Every one- and two-byte name decodes back; its file name has no slash and no leading dot. */
static void encoded_names_decode_back(void **state)
{
    static const char *const row[][2] = {{"plain-Name_1.txt", "plain-Name_1.txt"},
                                         {"../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"},
                                         {"100% \n\x7f\xff", "100%25 \n\x7f\xff"}};
    char back[NAME_FILE_MAX];

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++)
        assert_string_equal(file_of(row[i][0], strlen(row[i][0]), 0), row[i][1]);
    for (int n = 256; n < 65536; n++) {
        char name[3] = {(char)(n >> 8), (char)n, 0};
        const char *file = file_of(name, strlen(name), 0);

        assert_true(strchr(file, '/') == NULL && file[0] != '.');
        assert_int_equal(name_decode(file, back, sizeof back), strlen(name));
        assert_string_equal(back, name);
    }
}

static void invalid_names_refused(void **state)
{
    /* not written by the encoder: otherwise two files could be one object */
    static const char *const foreign[] = {"",     ".",     "..",   ".lock", "a%",
                                          "a%2f", "a%41",  "%",    "a%00",  "a/b",
                                          "%2e",  "a%25%", "a%2E", "a%G0",  "a%2"};
    char name[300];

    (void)state;
    for (size_t i = 0; i < COUNT(foreign); i++)
        assert_int_equal(name_decode(foreign[i], name, sizeof name), -EINVAL);
    assert_int_equal(name_decode("abcd", name, 4), -EINVAL);
    assert_int_equal(name_decode("abc", name, 4), 3);
    file_of("", 0, -EINVAL);
    file_of("a\0b", 3, -EINVAL);
    for (size_t each = 1; each <= 3; each += 2) { /* bytes of a file name per character */
        memset(name, each == 1 ? 'n' : '/', sizeof name);
        assert_int_equal(strlen(file_of(name, 255 / each, 0)), 255);
        file_of(name, 255 / each + 1, -ENAMETOOLONG);
    }
}

static void sizes_parsed_within_limits(void **state)
{
    static const struct {
        const char *text;
        uint64_t most, value; /* value 0: refused */
    } row[] = {{"64K", 1 << 20, 65536},
               {"7", 10, 7},
               {"-1", 10, 0},
               {"", 10, 0},
               {"1Q", 10, 0},
               {"1KK", 10000, 0},
               {"99999999999999999999", UINT64_MAX, 0},
               {"18446744073709551615G", UINT64_MAX, 0},
               {"11", 10, 0},
               {"0", 10, 0}};
    static const char *const text[] = {"64K", "1000", "5G"};
    char got[24];

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        uint64_t n = 0;

        assert_int_equal(args_number("x", row[i].text, 1, row[i].most, &n), row[i].value != 0);
        assert_int_equal(n, row[i].value);
    }
    for (size_t i = 0; i < COUNT(text); i++) {
        uint64_t n;

        assert_true(args_number("x", text[i], 1, UINT64_MAX, &n));
        assert_string_equal(args_size_text(n, got, sizeof got), text[i]);
    }
}

/* Names are not looked up: a node of Elan4 is a number. */
static void hosts_admitted_by_network_or_node(void **state)
{
    static const struct {
        const char *list, *host;
        bool admitted;
    } row[] = {{"10.1.0.0/16", "10.1.255.255", true},
               {"10.1.0.0/16", "10.2.0.0", false},
               {"10.1.2.128/25", "10.1.2.129", true},
               {"10.1.2.128/25", "10.1.2.127", false},
               {"0.0.0.0/0", "192.0.2.77", true},
               {"0.0.0.0/0", "2001:db8::1", false},
               {"::/0", "192.0.2.77", true},
               {"2001:db8::/33", "2001:db8:7fff::1", true},
               {"2001:db8::/33", "2001:db8:8000::1", false},
               {"10.0.0.1", "10.0.0.1", true},
               {"10.0.0.1", "::ffff:10.0.0.1", true},
               {"10.0.0.1", "10.0.0.2", false},
               {"[::1],10.0.0.1", "::1", true},
               {"10.0.0.1/32,10.0.0.3", "10.0.0.3", true},
               {"fe80::/10", "fe80::1%eth0", true},
               {"7,192.0.2.9,::1", "7", true},
               {"7,192.0.2.9,::1", "77", false},
               {"7,127.0.0.0/8", "localhost", false}};
    static const char *const wrong[] = {
        "",        "10.0.0.0/33",        "10.0.0.0/", "host/8",
        "::1/129", "10.0.0.1,,10.0.0.2", "1.2.3.4/x", "no.such.host.invalid"};
    char why[300] = "";

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct access *access = access_new(row[i].list, why, sizeof why);

        assert_true(access != NULL && why[0] == 0);
        assert_int_equal(access_admits(access, row[i].host), row[i].admitted);
        access_free(access);
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_null(access_new(wrong[i], why, sizeof why));
        assert_true(strstr(why, ": ") && why[0] == '\'');
        why[0] = 0;
    }
}

static void address_split_into_host(void **state)
{
    static const char *const row[][2] = {{"ib://10.0.0.1:3335", "10.0.0.1"},
                                         {"ib://[::1]:3335/x", "::1"},
                                         {"elan4://node7", "node7"},
                                         {"10.0.0.1:77", "10.0.0.1"},
                                         {"[fe80::1%eth0]:77", "fe80::1%eth0"},
                                         {"", NULL},
                                         {"ib://:5", NULL},
                                         {"ib://a.name.that.is.too.long:5", NULL}};
    char host[20];

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        assert_int_equal(access_host_of(row[i][0], host, sizeof host), row[i][1] != NULL);
        if (row[i][1] != NULL)
            assert_string_equal(host, row[i][1]);
    }
}

/* Any bytes are printed as UTF-8 from which they can be restored. */
static void json_escapes_other_bytes(void **state)
{
    static const char *const row[][2] = {
        {"", ""},
        {"a\"b\\c", "a\\\"b\\\\c"},
        {"\n\x7f", "\\u000a\\u007f"},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\xa7", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\xa7"},
        {"\xc2\xa0\xed\x9f\xbf\xf4\x8f\xbf\xbf", "\xc2\xa0\xed\x9f\xbf\xf4\x8f\xbf\xbf"},
        {"\xc2\x80\xc2\x9b\xc2\x9f", "\\u0080\\u009b\\u009f"}, /* controls, too */
        {"\xe4", "\\udce4"},
        {"\xe2\x82", "\\udce2\\udc82"}, /* truncated */
        {"\xe2\x82x", "\\udce2\\udc82x"},
        {"\x80\xbf", "\\udc80\\udcbf"},
        {"\xc0\xaf", "\\udcc0\\udcaf"}, /* overlong, as the next two */
        {"\xe0\x80\xaf", "\\udce0\\udc80\\udcaf"},
        {"\xf0\x80\x80\xaf", "\\udcf0\\udc80\\udc80\\udcaf"},
        {"\xed\xa0\x80", "\\udced\\udca0\\udc80"},             /* half of a surrogate pair */
        {"\xf4\x90\x80\x80", "\\udcf4\\udc90\\udc80\\udc80"}}; /* beyond the last one */

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        char *got = NULL;
        size_t size;
        FILE *out = open_memstream(&got, &size);

        assert_non_null(out);
        json_string(out, row[i][0], strlen(row[i][0]));
        fclose(out);
        assert_true(size == strlen(row[i][1]) + 2 && got[0] == '"' && got[size - 1] == '"');
        assert_memory_equal(got + 1, row[i][1], size - 2);
        free(got);
    }
}

/* Distributes the bytes of a file one by one; every function must agree. */
static void stripes_equal_dealing_by_bytes(void **state)
{
    (void)state;
    for (uint32_t n = 2; n < 12; n++) {
        uint64_t have[8] = {0};
        struct iod_layout l = {.strip = n % 2 ? 7 : 64, .count = n / 2};

        for (uint64_t at = 0; at <= 330; at++) {
            l.size = at;
            for (l.index = 0; l.index < l.count; l.index++)
                assert_true(layout_object_size(&l) == have[l.index]);
            l.index = (uint32_t)(at / l.strip % l.count);
            assert_true(layout_file_offset(&l, have[l.index]) == at);
            if (l.count > 1)
                assert_true(layout_contiguous(&l, have[l.index]) == l.strip - at % l.strip);
            have[l.index]++;
        }
    }
}

static void stripes_beyond_4_gib(void **state)
{
    struct iod_layout l = {(UINT64_C(5) << 30) + 1, 65536, 0, 2};
    struct iod_layout largest = {IOD_SIZE_MAX, IOD_STRIP_MAX, 255, 256};

    (void)state;
    assert_true(layout_object_size(&l) == (UINT64_C(5) << 29) + 1);
    assert_true(layout_file_offset(&l, UINT64_C(5) << 29) == UINT64_C(5) << 30);
    assert_true(layout_object_size(&largest) == IOD_SIZE_MAX / 256);
    assert_true(layout_file_offset(&largest, IOD_SIZE_MAX / 256 - 1) == IOD_SIZE_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoded_names_decode_back),
        cmocka_unit_test(invalid_names_refused),
        cmocka_unit_test(sizes_parsed_within_limits),
        cmocka_unit_test(hosts_admitted_by_network_or_node),
        cmocka_unit_test(address_split_into_host),
        cmocka_unit_test(json_escapes_other_bytes),
        cmocka_unit_test(stripes_equal_dealing_by_bytes),
        cmocka_unit_test(stripes_beyond_4_gib),
    };

    return cmocka_run_group_tests_name("iod/text", tests, NULL, NULL);
}
