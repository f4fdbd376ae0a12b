/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "unit.h"
#include "fabric.h"
#include "base/options.h"
#include "plan/plan.h"

static const struct rme_option_row extra[] = {
    {"depth", "count", 10, 1, 100, NULL, "A number."},
    {"loud", "switch", 0, 0, 1, NULL, "A switch."},
    {"low", "bytes", -1, -1, 1 << 20, NULL, "May be negative."},
    {"device", "name", 0, 0, 0, "", "A string."},
    {NULL, NULL, 0, 0, 0, NULL, NULL},
};

static struct rme_options *make(void)
{
    const struct rme_option_row *const tables[] = {rme_engine_options, extra, NULL};
    struct rme_options *options = rme_options_new(tables, 3);

    assert_non_null(options);
    return options;
}

static void option_defaults(void **state)
{
    struct rme_options *options = make();

    (void)state;
    assert_int_equal(rme_option(options, "rx_size"), 4608);
    assert_int_equal(rme_option(options, "depth"), 10);
    assert_int_equal(rme_option(options, "rndv"), RME_PREFER_AUTO);
    assert_int_equal(rme_option(options, "list_mode"), RME_LISTS_AUTO);
    assert_string_equal(rme_option_string(options, "device"), "");
    rme_options_free(options);
}

static void names_are_unique(void **state)
{
    (void)state;
    for (const struct rme_option_row *a = rme_engine_options; a->name != NULL; a++)
        for (const struct rme_option_row *b = a + 1; b->name != NULL; b++)
            assert_string_not_equal(a->name, b->name);
}

static void sets_values(void **state)
{
    struct rme_options *options = make();
    char why[256] = "";

    (void)state;
    assert_int_equal(
        rme_options_parse(options,
                          "rx_size=8K,fragment_bytes=2M, depth=7,loud=on,low=-1,device=rxe0",
                          why, sizeof(why)),
        0);
    assert_int_equal(rme_option(options, "rx_size"), 8192);
    assert_int_equal(rme_option(options, "fragment_bytes"), 2 << 20);
    assert_int_equal(rme_option(options, "depth"), 7);
    assert_int_equal(rme_option(options, "loud"), 1);
    assert_int_equal(rme_option(options, "low"), -1);
    assert_string_equal(rme_option_string(options, "device"), "rxe0");
    assert_int_equal(rme_options_parse(options, "loud=no", why, sizeof(why)), 0);
    assert_int_equal(rme_option(options, "loud"), 0);
    assert_int_equal(rme_options_parse(options, "loud", why, sizeof(why)), 0);
    assert_int_equal(rme_option(options, "loud"), 1);
    assert_string_equal(why, "");
    rme_options_free(options);
}

/* An old name sets the option, and is listed. */
static void old_names_set_renamed_options(void **state)
{
    static const struct {
        const char *old, *now, *value;
    } renamed[] = {{"fast_pool", "eager_ring_pool", "1048576"},
                   {"fast_bytes", "eager_ring_bytes", "65536"},
                   {"unit", "fragment_bytes", "65536"},
                   {"kept_bytes", "rx_buffered_bytes", "2097152"},
                   {"zone_bytes", "pool_bytes", "65536"},
                   {"zone_idle_ms", "pool_idle_ms", "7"},
                   {"invite", "early_cts", "0"},
                   {"lists", "list_mode", "group"},
                   {"spin_us", "poll_us", "7"},
                   {"xfer_bytes_peer", "rdma_inflight_bytes", "65536"},
                   {"expose", "rkey_scope", "region"}};
    static const struct rme_option_row scope[] = {
        {"rkey_scope", "operation|region", 0, 0, 1, NULL, "As bmi_ib has."},
        {NULL, NULL, 0, 0, 0, NULL, NULL},
    };
    const struct rme_option_row *const tables[] = {rme_engine_options, scope};
    char text[200], notice[200], why[256];

    (void)state;
    for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++) {
        struct rme_options *options = rme_options_new(tables, 2);
        int64_t preset, set, again;

        assert_int_equal(rme_option_find(options, renamed[i].now, &preset), 0);
        snprintf(text, sizeof(text), "%s=%s", renamed[i].old, renamed[i].value);
        assert_int_equal(rme_options_parse(options, text, why, sizeof(why)), 0);
        snprintf(notice, sizeof(notice), "%s is now %s", renamed[i].old, renamed[i].now);
        assert_string_equal(why, notice);
        assert_int_equal(rme_option_find(options, renamed[i].now, &set), 0);
        assert_int_not_equal(set, preset);
        rme_options_free(options);

        options = rme_options_new(tables, 2);
        snprintf(text, sizeof(text), "%s=%s", renamed[i].now, renamed[i].value);
        assert_int_equal(rme_options_parse(options, text, why, sizeof(why)), 0);
        assert_string_equal(why, "");
        assert_int_equal(rme_option_find(options, renamed[i].now, &again), 0);
        assert_int_equal(again, set);
        rme_options_free(options);
    }
}

static void last_of_both_names_counts(void **state)
{
    struct rme_options *options = make();
    char why[256];

    (void)state;
    assert_int_equal(rme_options_parse(options,
                                       "early_cts=0,invite=1,lists=pack,list_mode=group", why,
                                       sizeof(why)),
                     0);
    assert_string_equal(why, "invite is now early_cts, lists is now list_mode");
    assert_int_equal(rme_option(options, "early_cts"), 1);
    assert_int_equal(rme_option(options, "list_mode"), RME_LISTS_GROUP);
    assert_int_equal(rme_options_parse(options, "invite=2", why, sizeof(why)), -EINVAL);
    assert_string_equal(why, "option early_cts=2: allowed: on or off");
    rme_options_free(options);
}

static void foreign_keys_are_skipped(void **state)
{
    struct rme_options *options = make();
    char why[256] = "";

    (void)state;
    assert_int_equal(rme_options_parse(options,
                                       "ib_port=2,,tcp_thing,=5,depthx=3,dept=2,depth=4", why,
                                       sizeof(why)),
                     0);
    assert_int_equal(rme_option(options, "depth"), 4);
    assert_int_equal(rme_options_parse(options, NULL, why, sizeof(why)), 0);
    assert_int_equal(rme_options_parse(options, "", why, sizeof(why)), 0);
    rme_options_free(options);
}

static void bad_values_are_explained(void **state)
{
    static const char *const bad[] = {"depth=0",
                                      "depth=101",
                                      "depth=",
                                      "depth=x",
                                      "depth=5x",
                                      "depth=5KB",
                                      "depth=0x5",
                                      "depth=1e1",
                                      "depth=-",
                                      "loud=2",
                                      "loud=maybe",
                                      "depth",
                                      "depth=99999999999999999999",
                                      "low=9007199254740993G",
                                      "fragment_bytes=1",
                                      "rndv=2",
                                      "list_mode="};
    char why[256];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct rme_options *options = make();
        char key[16];

        why[0] = '\0';
        assert_int_equal(rme_options_parse(options, bad[i], why, sizeof(why)), -EINVAL);
        snprintf(key, sizeof(key), "%.*s", (int)strcspn(bad[i], "="), bad[i]);
        assert_non_null(strstr(why, key));
        assert_int_equal(rme_option(options, "depth"), 10);
        rme_options_free(options);
    }
}

static void long_strings_are_refused(void **state)
{
    struct rme_options *options = make();
    char text[200] = "device=", why[512];

    (void)state;
    memset(text + 7, 'a', 100);
    assert_int_equal(rme_options_parse(options, text, why, sizeof(why)), -EINVAL);
    assert_string_equal(rme_option_string(options, "device"), "");
    rme_options_free(options);
}

static void find_tells_unknown(void **state)
{
    struct rme_options *options = make();
    int64_t value = 77;

    (void)state;
    assert_int_equal(rme_option_find(options, "nothing", &value), -ENOENT);
    assert_int_equal(rme_option_find(options, "device", &value), -ENOENT);
    assert_int_equal(value, 77);
    assert_int_equal(rme_option_find(options, "depth", &value), 0);
    assert_int_equal(value, 10);
    assert_int_equal(rme_option(options, "nothing"), 0);
    assert_string_equal(rme_option_string(options, "depth"), "");
    rme_options_free(options);
}

static void keep_line(void *arg, enum rme_log_level level, const char *line)
{
    (void)level;
    snprintf(arg, 200, "%s", line);
}

static void refuse(const void *fabric, const char *because)
{
    char said[200] = "";
    struct rme_config config = {.fabric = fabric, .log = keep_line, .log_arg = said};
    struct rme *rme = NULL;

    assert_int_equal(rme_open(&config, &rme), -EINVAL);
    assert_null(rme);
    assert_non_null(strstr(said, because));
    assert_non_null(strstr(said, RME_RELEASE));
}

/* A fabric of another release, or with another table, is refused before the rest of the table
 * is read. */
static void knows_its_own_release(void **state)
{
    static const struct {
        const char *release;
    } other = {"0.0.9"};
    static const struct {
        const char *release;
        size_t size;
    } build[] = {{RME_RELEASE, 0}, {RME_RELEASE, sizeof(struct rme_fabric_ops) + 8}};

    (void)state;
    refuse(&other, "of release 0.0.9");
    refuse(&build[0], "another build of release");
    refuse(&build[1], "another build of release");
}

static void prints_every_row(void **state)
{
    const struct rme_fabric_ops fabric = {.options = extra};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    rme_print_options(out, NULL);
    fflush(out);
    assert_null(strstr(text, "depth=10"));
    rme_print_options(out, &fabric);
    fclose(out);
    for (const struct rme_option_row *row = rme_engine_options; row->name != NULL; row++)
        assert_non_null(strstr(text, row->name));
    assert_non_null(strstr(text, "depth=10  (1 to 100 count)"));
    assert_non_null(strstr(text, "loud=off  (on or off)"));
    assert_non_null(strstr(text, "rndv=auto  (auto|write|read)"));
    assert_non_null(strstr(text, "fragment_bytes=1M  (64K to 1G bytes)"));
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 90);
    free(text);
}

static void keys_of_engine_and_fabric_are_known(void **state)
{
    const struct rme_fabric_ops fabric = {.options = extra}, bare = {0};

    (void)state;
    assert_true(rme_option_known(&fabric, rme_engine_options[0].name));
    assert_true(rme_option_known(&fabric, "depth"));
    assert_true(rme_option_known(&bare, "unit")); /* the old name of fragment_bytes */
    assert_false(rme_option_known(&fabric, "dept"));
    assert_false(rme_option_known(&bare, "depth"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(option_defaults),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(sets_values),
        cmocka_unit_test(old_names_set_renamed_options),
        cmocka_unit_test(last_of_both_names_counts),
        cmocka_unit_test(foreign_keys_are_skipped),
        cmocka_unit_test(bad_values_are_explained),
        cmocka_unit_test(long_strings_are_refused),
        cmocka_unit_test(find_tells_unknown),
        cmocka_unit_test(knows_its_own_release),
        cmocka_unit_test(prints_every_row),
        cmocka_unit_test(keys_of_engine_and_fabric_are_known),
    };

    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
