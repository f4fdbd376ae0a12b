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

static const char suffixes[] = "KMG"; /* of multiples of 1024, 1024^2 and 1024^3 */

struct value {
    const struct rme_option_row *row;
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

static const char switch_words[] = "off|on|no|yes|false|true|0|1";

/* Returns the words of a switch or choice, separated by "|"; NULL for other options. */
static const char *words_of(const struct rme_option_row *row)
{
    if (strcmp(row->unit, "switch") == 0)
        return switch_words;
    return strchr(row->unit, '|') != NULL ? row->unit : NULL;
}

/* Returns the number of rows of a table, which may be NULL. */
static size_t rows_of(const struct rme_option_row *table)
{
    size_t rows = 0;

    while (table != NULL && table[rows].name != NULL)
        rows++;
    return rows;
}

struct rme_options *rme_options_new(const struct rme_option_row *const *tables, int count)
{
    struct rme_options *options;
    size_t rows = 0;

    for (int t = 0; t < count; t++)
        rows += rows_of(tables[t]);
    options = calloc(1, sizeof(*options) + rows * sizeof(options->value[0]));
    if (options == NULL)
        return NULL;
    for (int t = 0; t < count; t++) {
        for (size_t i = 0; i < rows_of(tables[t]); i++) {
            struct value *value = &options->value[options->count++];

            value->row = &tables[t][i];
            value->number = value->row->preset;
            if (is_string(value->row))
                snprintf(value->string, sizeof(value->string), "%s", value->row->preset_string);
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
    {.old = "zone_bytes", .now = "pool_bytes"},
    {.old = "zone_idle_ms", .now = "pool_idle_ms"},
    {.old = "invite", .now = "early_cts"},
    {.old = "lists", .now = "list_mode"},
    {.old = "expose", .now = "rkey_scope"},
    {.old = "spin_us", .now = "poll_us"},
    {.old = "xfer_bytes_peer", .now = "rdma_inflight_bytes"},
};

static struct value *find(const struct rme_options *options, const char *name)
{
    for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++)
        if (strcmp(renamed[i].old, name) == 0)
            name = renamed[i].now;
    for (size_t i = 0; i < options->count; i++)
        if (strcmp(options->value[i].row->name, name) == 0)
            return (struct value *)&options->value[i];
    return NULL;
}

/* Parses "12", "-1", "64K", "1M", "2G".  False: not all of the text is such a number. */
static bool parse_number(const char *text, int64_t *out)
{
    const char *suffix;
    long long number;
    int shift = 0;
    char *end;

    if (!isdigit((unsigned char)text[text[0] == '-']))
        return false;
    number = strtoll(text, &end, 10); /* its limits if larger: not in any range */
    suffix = *end != '\0' ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
    if (suffix != NULL) {
        shift = 10 * (int)(suffix - suffixes + 1);
        end++;
    }
    if (*end != '\0' || __builtin_mul_overflow(number, 1LL << shift, &number))
        return false;
    *out = number;
    return true;
}

/* Finds a word in "word|word|word", and its number from 0 on.  False: not there. */
static bool parse_word(const char *words, const char *text, int64_t *out)
{
    size_t length = strcspn(words, "|");

    *out = 0;
    while (strlen(text) != length || strncasecmp(words, text, length) != 0) {
        if (words[length] == '\0')
            return false;
        words += length + 1;
        length = strcspn(words, "|");
        ++*out;
    }
    return true;
}

/* Formats 4096 as "4K", -1 as "-1": the shortest exact form for sizes, plain digits
 * otherwise. */
static void format_number(char *out, size_t size, const struct rme_option_row *row,
                          int64_t number)
{
    int step = 0;

    while (strcmp(row->unit, "bytes") == 0 && step < 3 && number != 0 && number % 1024 == 0) {
        number /= 1024;
        step++;
    }
    snprintf(out, size, "%" PRId64 "%.1s", number, step > 0 ? &suffixes[step - 1] : "");
}

/* Writes which values are allowed. */
static void format_allowed(char *out, size_t size, const struct rme_option_row *row)
{
    char min[32], max[32];

    format_number(min, sizeof(min), row, row->min);
    format_number(max, sizeof(max), row, row->max);
    if (is_string(row))
        snprintf(out, size, "up to %d characters", STRING_MAX - 1);
    else if (words_of(row) == NULL)
        snprintf(out, size, "%s to %s %s", min, max, row->unit);
    else
        snprintf(out, size, "%s", words_of(row) == switch_words ? "on or off" : row->unit);
}

/* Sets a value.  False: not allowed. */
static bool set_value(struct value *value, const char *text)
{
    const struct rme_option_row *row = value->row;
    const char *words = words_of(row);
    int64_t number = 0;

    if (is_string(row)) {
        if (strlen(text) >= sizeof(value->string))
            return false;
        strcpy(value->string, text);
        return true;
    }
    if (words != NULL ? !parse_word(words, text, &number)
                      : !parse_number(text, &number) || number < row->min || number > row->max)
        return false;
    value->number = words == switch_words ? number % 2 : number;
    value->asked = true;
    return true;
}

/* Appends "old is now new" to a list. */
static void note_renamed(const char *old, const char *now, char *why, size_t size)
{
    size_t used = strlen(why);

    snprintf(why + used, size - used, "%s%s is now %s", used != 0 ? ", " : "", old, now);
}

/* Sets one "key=value", in which a zero is written.  A switch without a value is set to on. */
static int set_one(struct rme_options *options, char *text, char *why, size_t size)
{
    char *setting = text, allowed[128];
    struct value *value = find(options, strsep(&setting, "="));
    bool plain = setting == NULL;

    if (value == NULL)
        return 0;
    if ((!plain || words_of(value->row) == switch_words) &&
        set_value(value, plain ? "on" : setting)) {
        if (strcmp(text, value->row->name) != 0)
            note_renamed(text, value->row->name, why, size);
        return 0;
    }
    format_allowed(allowed, sizeof(allowed), value->row);
    snprintf(why, size, "option %s=%s: allowed: %s", value->row->name, plain ? "" : setting,
             allowed);
    return -EINVAL;
}

int rme_options_parse(struct rme_options *options, const char *text, char *why, size_t size)
{
    char *copy = strdup(text != NULL ? text : ""), *rest;
    int ret = 0;

    why[0] = '\0';
    if (copy == NULL) {
        snprintf(why, size, "options: out of memory");
        return -ENOMEM;
    }
    for (char *one = strtok_r(copy, ", \t\n", &rest); ret == 0 && one != NULL;
         one = strtok_r(NULL, ", \t\n", &rest))
        ret = set_one(options, one, why, size);
    free(copy);
    return ret;
}

int rme_option_find(const struct rme_options *options, const char *name, int64_t *out)
{
    const struct value *value = find(options, name);

    if (value == NULL || is_string(value->row))
        return -ENOENT;
    *out = value->number;
    return 0;
}

bool rme_option_cap(struct rme_options *options, const char *name, int64_t most)
{
    struct value *value = find(options, name);

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
    const struct value *value = find(options, name);

    return value != NULL ? value->string : "";
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
    const char *words = words_of(row);
    char preset[32], allowed[128];

    format_number(preset, sizeof(preset), row, row->preset);
    format_allowed(allowed, sizeof(allowed), row);
    for (int64_t i = row->preset; words != NULL && i > 0; i--)
        words = strchr(words, '|') + 1;
    if (is_string(row))
        fprintf(out, "%s=%s\n", row->name, row->preset_string);
    else if (words != NULL)
        fprintf(out, "%s=%.*s  (%s)\n", row->name, (int)strcspn(words, "|"), words, allowed);
    else
        fprintf(out, "%s=%s  (%s)\n", row->name, preset, allowed);
    print_prose(out, row->text);
}

bool rme_option_known(const struct rme_fabric_ops *fabric, const char *name)
{
    const struct rme_option_row *const tables[] = {rme_engine_options, fabric->options};
    struct rme_options *options = rme_options_new(tables, 2);
    bool known = options == NULL || find(options, name) != NULL;

    rme_options_free(options);
    return known;
}

void rme_print_options(FILE *out, const struct rme_fabric_ops *fabric)
{
    const struct rme_option_row *table = fabric != NULL ? fabric->options : rme_engine_options;

    for (size_t i = 0; i < rows_of(table); i++)
        print_row(out, &table[i]);
}
