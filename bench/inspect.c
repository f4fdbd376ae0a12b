/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Engine internals; see inspect.h. */
#include "bench/inspect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "bench/session.h"
#include "bench/transport.h"
#include "common/rme.h"
#include "embedded/bmi/methods.h"
#include "embedded/iod/json.h"
#include "embedded/metrics/metrics.h"
#include "embedded/program/program.h"
#include "patches/orangefs/shim/shim-engine.h"

/* Returns the engine behind an address; NULL if there is none. */
static struct rme *engine_of(BMI_addr_t addr)
{
    struct rme *rme = NULL;

    return BMI_get_info(addr, SHIM_GET_ENGINE, &rme) < 0 ? NULL : rme;
}

/* ---- Counters ---- */

/* Appends a line; false, without a partial line, if it does not fit. */
static bool add_line(char *text, size_t size, size_t *used, const char *name, uint64_t value,
                     const char *unit)
{
    int n = snprintf(text + *used, size - *used, "%s %" PRIu64 " %s\n", name, value, unit);

    if (n < 0 || (size_t)n >= size - *used) {
        text[*used] = 0;
        return false;
    }
    *used += (size_t)n;
    return true;
}

size_t inspect_counters(BMI_addr_t addr, char *text, size_t size)
{
    struct rme *rme = engine_of(addr);
    struct rme_counter counter;
    size_t used = 0;
    bool room = true;

    text[0] = 0;
    for (int i = 0; room && rme != NULL && !rme_counter_get(rme, i, &counter); i++)
        room = add_line(text, size, &used, counter.name, counter.value, counter.unit);
    return used;
}

int inspect_metrics(BMI_addr_t addr, const char *network, char *text, size_t size,
                    size_t *length)
{
    struct rme *rme = engine_of(addr);
    char *made = NULL;
    FILE *out = rme != NULL ? open_memstream(&made, length) : NULL;
    int rc = rme != NULL ? -BMI_ENOMEM : -BMI_ENOSYS;

    if (out != NULL) {
        bool bad;

        metrics_engine(out, rme, network);
        bad = ferror(out);
        if (!fclose(out) && !bad)
            rc = *length < size ? 0 : -BMI_EMSGSIZE;
    }
    if (!rc)
        memcpy(text, made, *length + 1);
    free(made);
    return rc;
}

struct line {
    char name[64], unit[32];
    uint64_t value;
};

/* Parses one line of a text; false at its end. */
static bool next_line(const char **text, struct line *line)
{
    const char *end = strchr(*text, '\n');

    if (end == NULL ||
        sscanf(*text, "%63s %" SCNu64 " %31s", line->name, &line->value, line->unit) != 3)
        return false;
    *text = end + 1;
    return true;
}

void inspect_print_difference(FILE *out, const char *who, const char *before, const char *after,
                              bool json)
{
    struct line old, new;
    bool any = false, more;

    if (json) {
        fputs("  {\"counters\": ", out);
        json_string(out, who, strlen(who));
    } else {
        fprintf(out, "counters of %s, changes:\n", who);
    }
    /* The later text has all lines of the earlier one, in the same order, and perhaps more. */
    more = next_line(&before, &old);
    while (next_line(&after, &new)) {
        bool known = more && strcmp(old.name, new.name) == 0;
        int64_t change = (int64_t)(new.value - (known ? old.value : 0));
        if (known)
            more = next_line(&before, &old);
        if (json)
            fprintf(out, ", \"%s\": %" PRId64, new.name, change);
        else if (change)
            fprintf(out, "  %-24s %15" PRId64 " %s\n", new.name, change, new.unit);
        any = true;
    }
    if (json)
        fprintf(out, "}");
    else if (!any)
        fprintf(out, "  none: its method has no such counters\n");
}

/* ---- Modes ---- */

int inspect_options(void)
{
    static const struct {
        const char *name;
        const struct rme_fabric_ops *(*fabric)(void);
    } methods[] = {
#define ROW(name, address, emulator) {#name, bmi_##name##_fabric},
        BMI_METHODS(ROW)
#undef ROW
    };

    printf("of the engine:\n\n");
    rme_print_options(stdout, NULL);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        printf("\nof %s://:\n\n", methods[i].name);
        rme_print_options(stdout, methods[i].fabric());
    }
    return 0;
}

static void print_line(void *arg, const char *line)
{
    fprintf(arg, "  %s\n", line);
}

/* Prints values by which an application sizes its buffers, and the options that limit them. */
static void print_session(BMI_addr_t addr, struct rme *rme, const char *address)
{
    static const struct {
        const char *name, *text;
    } rows[] = {
        {"rx_size", ""},
        {"eager_max", ""},
        {"eager_ring_pool", ""},
        {"credits", ""},
        {"eager_window", ""},
        {"regcache_entries", ""},
        {"max_inline", ""},
        {"read_depth", ""},
        {"poll_us",
         " us        longest polling of a wait before a sleep, on servers and clients"},
        {"traffic_class",
         " value     of all messages and data of a connection, which is one queue pair"},
    };
    struct shim_attribute a = {.index = 0};
    int64_t value;
    size_t i;

    printf("session with %s\n", address);
    rme_print_peers(rme, print_line, stdout);
    printf("limits and state:\n");
    if (BMI_get_info(addr, BMI_GET_METH_ADDR, &a.addr) >= 0)
        for (; BMI_get_info(addr, SHIM_GET_ATTRIBUTE, &a) >= 0; a.index++)
            printf("  %-20s %15llu %-9s %s\n", a.name, a.value, a.unit, a.text);
    printf("  %-20s %s\n", "a key opens", rme_key_opens(rme));
    printf("options of this process:\n");
    for (i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rme_option_get(rme, rows[i].name, &value))
            printf("  %-20s %15" PRId64 "%s\n", rows[i].name, value, rows[i].text);
}

void inspect_peers(const char *address, void (*write)(void *arg, const char *line), void *arg)
{
    BMI_addr_t addr;

    if (BMI_addr_lookup(&addr, address, NULL) >= 0 && engine_of(addr) != NULL)
        rme_print_peers(engine_of(addr), write, arg);
}

int inspect_session(const char *address, const char *options)
{
    const struct job job = {
        .test = JOB_REQUEST, .size = 8, .reply = 8, .window = 1, .count = 1};
    char *servers[] = {(char *)address};
    char why[WHY_SIZE];
    BMI_addr_t addr;
    void *state;
    int rc = bmi_transport.open(servers, 1, options, &state, why);

    if (!rc)
        bmi_warn_ignored(options);
    if (!rc)
        rc = bmi_transport.prepare(state, &job, (struct part){0, 1}, why);
    if (!rc && BMI_addr_lookup(&addr, address, NULL) >= 0 && engine_of(addr) != NULL)
        print_session(addr, engine_of(addr), address);
    else if (!rc)
        rc =
            snprintf(why, sizeof why, "%s: its method has no sessions; give an address like %s",
                     address, BMI_ADDRESS_FORMS);
    if (rc)
        fprintf(stderr, "bmi-perf: %s\n", why);
    if (state != NULL)
        bmi_transport.close(state);
    return rc ? 1 : 0;
}

int inspect_server(const char *address, const char *options)
{
    char *servers[] = {(char *)address}, *text = malloc(SESSION_METRICS_MAX);
    char why[WHY_SIZE] = "no memory";
    void *state = NULL;
    int rc = text != NULL ? bmi_transport.open(servers, 1, options, &state, why) : -1;

    if (!rc)
        bmi_warn_ignored(options);
    if (!rc)
        rc = bmi_metrics(state, text, SESSION_METRICS_MAX, why);
    if (rc)
        fprintf(stderr, "bmi-perf: %s\n", why);
    else
        fputs(text, stdout);
    if (state != NULL)
        bmi_transport.close(state);
    free(text);
    return rc ? 1 : 0;
}

/* Parses "512K" or "512Kx256". */
static bool parse_shape(const char *what, uint64_t *bytes, uint64_t *segments)
{
    char size[32];
    const char *times = strchr(what, 'x');
    size_t length = times != NULL ? (size_t)(times - what) : strlen(what);

    if (length >= sizeof size)
        return false;
    memcpy(size, what, length);
    size[length] = 0;
    *segments = 1;
    return program_size(size, bytes) &&
           (times == NULL || (program_size(times + 1, segments) && *segments));
}

int inspect_explain(const char *what, const char *address, const char *options)
{
    char *copy = options != NULL ? strdup(options) : NULL;
    uint64_t bytes, segments;
    struct rme *rme = NULL;
    BMI_addr_t addr;
    int rc;

    if (!parse_shape(what, &bytes, &segments)) {
        fprintf(stderr,
                "bmi-perf: --explain takes SIZE or SIZExSEGMENTS, like 512Kx256, not '%s'\n",
                what);
        return 2;
    }
    rc = BMI_initialize(NULL, NULL, 0, NULL);
    if (rc >= 0) {
        /* not connected; the address only selects the method */
        rc = BMI_addr_lookup(&addr, address != NULL ? address : "ib://localhost:1", copy);
        if (rc >= 0)
            rme = engine_of(addr);
        if (rme != NULL)
            rme_explain(rme, bytes, segments, stdout);
        BMI_finalize();
    }
    free(copy);
    if (rme == NULL && address != NULL && rc == -BMI_ENOPROTOOPT)
        fprintf(stderr, "bmi-perf: %s: unknown network; give an address like %s\n", address,
                BMI_ADDRESS_FORMS);
    else if (rme == NULL)
        fprintf(stderr, "bmi-perf: cannot start the engine: %s\n", bmi_status_string(rc));
    return rme != NULL ? 0 : 1;
}
