/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Values of options: one array slot for each row of each table, found by name. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fabric.h"
#include "base/options.h"

#define STRING_MAX 64 /* limit of a string value in bytes with its final zero */

struct value {
    const struct rme_option_row *row;
    size_t length; /* of the name */
    int64_t number;
    bool asked; /* set explicitly */
    char string[STRING_MAX];
};

struct rme_options {
    size_t count;
    struct value value[];
};

static bool is_string(const struct rme_option_row *row)
{
    return row->preset_string != NULL;
}

static bool is_switch(const struct rme_option_row *row)
{
    return strcmp(row->unit, "switch") == 0;
}

static size_t count_rows(const struct rme_option_row *const *tables, int count)
{
    size_t rows = 0;

    for (int t = 0; t < count; t++)
        for (const struct rme_option_row *row = tables[t]; row != NULL && row->name != NULL;
             row++)
            rows++;
    return rows;
}

struct rme_options *rme_options_new(const struct rme_option_row *const *tables, int count)
{
    size_t rows = count_rows(tables, count);
    struct rme_options *options =
        calloc(1, sizeof(*options) + rows * sizeof(options->value[0]));

    if (options == NULL)
        return NULL;
    for (int t = 0; t < count; t++) {
        for (const struct rme_option_row *row = tables[t]; row != NULL && row->name != NULL;
             row++) {
            struct value *value = &options->value[options->count++];

            value->row = row;
            value->length = strlen(row->name);
            value->number = row->preset;
            if (is_string(row))
                snprintf(value->string, sizeof(value->string), "%s", row->preset_string);
        }
    }
    return options;
}

void rme_options_free(struct rme_options *options)
{
    free(options);
}

/* Options that were renamed. */
static const struct {
    const char *old, *now;
} renamed[] = {
    {.old = "fast_pool", .now = "eager_ring_pool"},
    {.old = "fast_bytes", .now = "eager_ring_bytes"},
    {.old = "unit", .now = "fragment_bytes"},
    {.old = "kept_bytes", .now = "rx_buffered_bytes"},
};

const char *rme_option_renamed(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++)
        if (strlen(renamed[i].old) == length && memcmp(renamed[i].old, name, length) == 0)
            return renamed[i].now;
    return NULL;
}

static struct value *find(const struct rme_options *options, const char *name, size_t length)
{
    const char *now = rme_option_renamed(name, length);

    for (size_t i = 0; i < options->count; i++) {
        const struct value *value = &options->value[i];

        if (value->length == length && memcmp(value->row->name, name, length) == 0)
            return (struct value *)value;
    }
    return now != NULL ? find(options, now, strlen(now)) : NULL;
}

/* Parses "12", "-1", "64K", "1M", "2G".  False: not all of the text is such a number. */
static bool parse_number(const char *text, int64_t *out)
{
    char *end;
    int shift = 0;
    long long number;

    if (!isdigit((unsigned char)text[0]) &&
        !(text[0] == '-' && isdigit((unsigned char)text[1])))
        return false;
    errno = 0;
    number = strtoll(text, &end, 10);
    if (errno != 0)
        return false;
    switch (*end) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    default:
        break;
    }
    if (shift != 0)
        end++;
    if (*end != '\0' || __builtin_mul_overflow(number, 1LL << shift, &number))
        return false;
    *out = number;
    return true;
}

static bool parse_switch(const char *text, int64_t *out)
{
    static const char *const words[2][3] = {{"off", "no", "false"}, {"on", "yes", "true"}};

    for (int on = 0; on < 2; on++) {
        for (int i = 0; i < 3; i++) {
            if (strcasecmp(text, words[on][i]) == 0) {
                *out = on;
                return true;
            }
        }
    }
    return false;
}

static int set_string(struct value *value, const char *text, char *why, size_t size)
{
    if (strlen(text) >= sizeof(value->string)) {
        snprintf(why, size, "option %s=%s: the value is longer than %d characters",
                 value->row->name, text, STRING_MAX - 1);
        return -EINVAL;
    }
    snprintf(value->string, sizeof(value->string), "%s", text);
    return 0;
}

static int set_number(struct value *value, const char *text, char *why, size_t size)
{
    const struct rme_option_row *row = value->row;
    int64_t number;

    if (!parse_number(text, &number) && !(is_switch(row) && parse_switch(text, &number))) {
        snprintf(why, size, "option %s=%s: not a %s; allowed is %" PRId64 " to %" PRId64 "%s",
                 row->name, text, is_switch(row) ? "switch (on or off)" : "number", row->min,
                 row->max, is_switch(row) ? "" : ", with K, M or G for multiples of 1024");
        return -EINVAL;
    }
    if (number < row->min || number > row->max) {
        snprintf(why, size,
                 "option %s=%s: out of range; allowed is %" PRId64 " to %" PRId64 " %s",
                 row->name, text, row->min, row->max, row->unit);
        return -EINVAL;
    }
    value->number = number;
    value->asked = true;
    return 0;
}

/* Sets one "key=value" of `length` characters.  A switch without a value is set to on. */
static int set_one(struct rme_options *options, const char *text, size_t length, char *why,
                   size_t size)
{
    const char *equals = memchr(text, '=', length);
    size_t key = equals != NULL ? (size_t)(equals - text) : length;
    struct value *value = find(options, text, key);
    char *copy;
    int ret;

    if (key == 0 || value == NULL)
        return 0;
    if (equals == NULL && !is_switch(value->row)) {
        snprintf(why, size, "option %s: the value is missing; write %s=VALUE", value->row->name,
                 value->row->name);
        return -EINVAL;
    }
    copy = equals != NULL ? strndup(equals + 1, length - key - 1) : strdup("on");
    if (copy == NULL) {
        snprintf(why, size, "option %s: out of memory", value->row->name);
        return -ENOMEM;
    }
    ret = is_string(value->row) ? set_string(value, copy, why, size)
                                : set_number(value, copy, why, size);
    free(copy);
    return ret;
}

/* Finds the next "key=value" at or behind *text, and its length; NULL: none. */
static const char *next_one(const char **text, size_t *length)
{
    static const char separators[] = ", \t\n";
    const char *one = *text + strspn(*text, separators);

    *length = strcspn(one, separators);
    *text = one + *length;
    return *length > 0 ? one : NULL;
}

int rme_options_parse(struct rme_options *options, const char *text, char *why, size_t size)
{
    const char *one;
    size_t length;
    int ret = 0;

    while (ret == 0 && text != NULL && (one = next_one(&text, &length)) != NULL)
        ret = set_one(options, one, length, why, size);
    return ret;
}

const char *rme_options_stranger(const struct rme_options *options, const char *text,
                                 size_t *length)
{
    const char *one;

    while ((one = next_one(&text, length)) != NULL) {
        const char *equals = memchr(one, '=', *length);

        if (equals != NULL)
            *length = (size_t)(equals - one);
        if (find(options, one, *length) == NULL)
            return one;
    }
    return NULL;
}

int rme_option_find(const struct rme_options *options, const char *name, int64_t *out)
{
    const struct value *value = find(options, name, strlen(name));

    if (value == NULL || is_string(value->row))
        return -ENOENT;
    *out = value->number;
    return 0;
}

bool rme_option_cap(struct rme_options *options, const char *name, int64_t most)
{
    struct value *value = find(options, name, strlen(name));

    if (value == NULL || value->number <= most)
        return false;
    value->number = most;
    return value->asked;
}

int64_t rme_option(const struct rme_options *options, const char *name)
{
    int64_t number = 0;

    (void)rme_option_find(options, name, &number);
    return number;
}

const char *rme_option_string(const struct rme_options *options, const char *name)
{
    const struct value *value = find(options, name, strlen(name));

    return value != NULL && is_string(value->row) ? value->string : "";
}

/* Formats 4096 as "4K", -1 as "-1": the shortest exact form for sizes, plain digits
 * otherwise. */
static void format_number(char *out, size_t size, const struct rme_option_row *row,
                          int64_t number)
{
    static const char suffix[] = {'\0', 'K', 'M', 'G'};
    int step = 0;

    if (strcmp(row->unit, "bytes") == 0) {
        while (step < 3 && number != 0 && number % 1024 == 0) {
            number /= 1024;
            step++;
        }
    }
    snprintf(out, size, "%" PRId64 "%c", number, suffix[step]);
}

/* Prints text indented by four columns and broken at 90. */
static void print_prose(FILE *out, const char *text)
{
    size_t column = 0;

    while (*text != '\0') {
        size_t word = strcspn(text, " ");

        if (column != 0 && column + 1 + word > 86) {
            fputc('\n', out);
            column = 0;
        }
        column += (size_t)fprintf(out, "%s%.*s", column == 0 ? "    " : " ", (int)word, text);
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_row(FILE *out, const struct rme_option_row *row)
{
    char preset[32], min[32], max[32];

    if (is_string(row)) {
        fprintf(out, "%s=%s\n", row->name, row->preset_string);
    } else if (is_switch(row)) {
        fprintf(out, "%s=%s  (on or off)\n", row->name, row->preset ? "on" : "off");
    } else {
        format_number(preset, sizeof(preset), row, row->preset);
        format_number(min, sizeof(min), row, row->min);
        format_number(max, sizeof(max), row, row->max);
        fprintf(out, "%s=%s  (%s to %s %s)\n", row->name, preset, min, max, row->unit);
    }
    print_prose(out, row->text);
}

bool rme_option_known(const struct rme_fabric_ops *fabric, const char *name)
{
    const struct rme_option_row *const tables[] = {rme_engine_options, fabric->options};

    for (int i = 0; i < 2; i++)
        for (const struct rme_option_row *row = tables[i]; row != NULL && row->name != NULL;
             row++)
            if (strcmp(row->name, name) == 0)
                return true;
    return false;
}

void rme_print_options(FILE *out, const struct rme_fabric_ops *fabric)
{
    const struct rme_option_row *row = fabric != NULL ? fabric->options : rme_engine_options;

    for (; row != NULL && row->name != NULL; row++)
        print_row(out, row);
}
