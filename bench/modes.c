/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The measuring modes: from the command line to series of jobs; see modes.h. */
#include "config.h"
#include "bench/modes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "bench/inspect.h"
#include "bench/series.h"
#include "bench/session.h"

#define DEFAULT_BYTES                                                                          \
    (UINT64_C(512)                                                                             \
     << 20) /* bytes moved by a bandwidth measurement, if the count is not given */
#define DEFAULT_LAT_BYTES (UINT64_C(64) << 20)
#define IDLE_CLIENTS      100

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* ---- Jobs of the tests ---- */

static bool is(const char *test, const char *name)
{
    return !strcmp(test, name);
}

static struct job job_of(const struct args *args, const char *test, uint64_t size)
{
    bool lat = is(test, "lat"), rate = is(test, "rate"), list = is(test, "list");
    bool requests = rate && args->unexpected;
    struct job job = {.test = lat        ? JOB_PINGPONG
                              : requests ? JOB_REQUEST
                                         : JOB_STREAM,
                      .size = size,
                      .reply = requests ? args->reply : 0,
                      .direction = args->direction,
                      .memory = args->memory,
                      .verify = args->verify,
                      .count = args->count,
                      .window = args->window,
                      .buffers = args->buffers,
                      .pool = lat || rate ? 0 : args->pool,
                      .reuse = lat || rate ? 0 : args->reuse};

    if (lat)
        job.window = 2;
    else if (!job.window)
        job.window = !rate ? 8 : requests ? 16 : 64;
    if (!rate && !job.buffers && !job.verify) /* as perftest and common TCP benchmarks do */
        job.buffers = 1;
    if (!job.count && lat)
        job.count = clamp(size ? DEFAULT_LAT_BYTES / size : 10000, 50, 10000);
    else if (!job.count)
        job.count = clamp(size ? DEFAULT_BYTES / size : 50000, 32, 50000);
    job.warm = args->warm_given ? args->warm : clamp(job.count / 10, 1, 1000);
    if (list) {
        job.extent = args->extent ? args->extent : 2048;
        job.stride = args->stride ? args->stride : 2 * job.extent;
        job.split = args->split ? args->split : JOB_SEGMENTS;
        job.both = args->both;
        job.holes = args->holes;
        job.pack = args->pack;
    }
    return job;
}

/* ---- Series of the modes ---- */

struct plan {
    struct series *series;
    unsigned count, room;
};

/* Adds a job; reports an invalid one on standard error. */
static bool plan_add(struct plan *plan, const char *name, enum side side, const struct job *job,
                     enum unit unit, bool first)
{
    const char *wrong = job_check(job);
    struct series *grown;

    if (wrong != NULL) {
        fprintf(stderr, "bmi-perf: %s of %llu bytes: %s\n", name, (unsigned long long)job->size,
                wrong);
        return false;
    }
    if (plan->count == plan->room) {
        grown = realloc(plan->series, (plan->room + 16) * sizeof *grown);
        if (grown == NULL) {
            fprintf(stderr, "bmi-perf: out of memory\n");
            return false;
        }
        plan->series = grown;
        plan->room += 16;
    }
    grown = &plan->series[plan->count++];
    memset(grown, 0, sizeof *grown);
    *grown = (struct series){
        .name = name, .side = side, .job = *job, .unit = unit, .first_of_group = first};
    return true;
}

/* Adds a test of one size over `sides`, the first of which begins a group. */
static bool plan_test(struct plan *plan, const struct args *args, const char *test,
                      uint64_t size, const enum side *sides, unsigned nsides)
{
    struct job job = job_of(args, test, size);
    enum unit unit = is(test, "lat") ? UNIT_US : is(test, "rate") ? UNIT_RATE : UNIT_MBS;
    unsigned i;
    bool ok = true;

    for (i = 0; ok && i < nsides; i++) {
        ok = plan_add(plan, test, sides[i], &job, unit, i == 0);
        if (ok && is(test, "list") && !args->alone) { /* the same bytes, contiguous */
            struct job whole = job;
            whole.extent = whole.stride = whole.split = whole.both = whole.holes = whole.pack =
                0;
            ok = plan_add(plan, "contig", sides[i], &whole, unit, false);
        }
    }
    return ok;
}

/* Adds the directions of a test: the requested one, else put and get for a list, else put. */
static bool plan_ways(struct plan *plan, const struct args *args, const char *test,
                      uint64_t size, const enum side *sides, unsigned nsides)
{
    struct args put = *args, get = *args;

    if (args->direction_given || !is(test, "list"))
        return plan_test(plan, args, test, size, sides, nsides);
    put.direction = JOB_PUT;
    get.direction = JOB_GET;
    return plan_test(plan, &put, test, size, sides, nsides) &&
           plan_test(plan, &get, test, size, sides, nsides);
}

static bool plan_all(struct plan *plan, const struct args *args, const char *test,
                     const enum side *sides, unsigned nsides)
{
    static const struct {
        const char *test;
        uint64_t sizes[7]; /* ended by 0 */
    } usual[] = {{"lat", {8, 64, 1024, 4096, 16384, 65536}},
                 {"rate", {8, 64, 1024}},
                 {"list", {524288}},
                 {"bw", {4096, 16384, 65536, 262144, 1048576, 4194304}}};
    const uint64_t *sizes = args->sizes;
    unsigned i = 0, count = args->nsizes;
    bool ok = true;

    if (!count) {
        while (strcmp(usual[i].test, test))
            i++;
        for (sizes = usual[i].sizes; sizes[count];)
            count++;
    }
    for (i = 0; ok && i < count; i++)
        ok = plan_ways(plan, args, test, sizes[i], sides, nsides);
    return ok;
}

/* ---- Addresses ---- */

/* Sorts the addresses: those with a scheme are for BMI, others for plain TCP. `array` has room
 * for all. */
static bool sort_addresses(const struct args *args, struct workers_config *config, char **array)
{
    char **bmi = array, **tcp = array + args->npositional;
    unsigned i;

    config->servers[SIDE_BMI] = bmi;
    config->servers[SIDE_TCP] = tcp;
    for (i = 0; i < args->npositional; i++) {
        if (strstr(args->positional[i], "://") != NULL)
            bmi[config->count[SIDE_BMI]++] = args->positional[i];
        else
            tcp[config->count[SIDE_TCP]++] = args->positional[i];
    }
    if (config->count[SIDE_BMI] > MAX_SERVERS || config->count[SIDE_TCP] > MAX_SERVERS) {
        fprintf(stderr, "bmi-perf: at most %d servers\n", MAX_SERVERS);
        return false;
    }
    return true;
}

static bool need(const struct workers_config *config, bool bmi, bool tcp)
{
    if (bmi && !config->count[SIDE_BMI] && (tcp || !config->count[SIDE_TCP]))
        fprintf(stderr, "bmi-perf: no server named; give addresses like ib://host:port\n");
    else if (tcp && !config->count[SIDE_TCP])
        fprintf(stderr, "bmi-perf: no TCP server named; give addresses like host:port\n");
    else if (!bmi && config->count[SIDE_BMI])
        fprintf(stderr,
                "bmi-perf: %s: not an address of a TCP server; give one like host:port\n",
                config->servers[SIDE_BMI][0]);
    else if (!tcp && config->count[SIDE_TCP])
        fprintf(stderr, "bmi-perf: %s: not a BMI address; give one like ib://host:port\n",
                config->servers[SIDE_TCP][0]);
    else
        return true;
    return false;
}

/* ---- Modes ---- */

/* Gets the counters of the client and of each server. */
static int get_counters(struct workers *workers, unsigned servers,
                        char (*text)[SESSION_TEXT_MAX], char *why)
{
    unsigned i;

    for (i = 0; i < servers;
         i++) /* first: connects the client before its own counters are read */
        if (workers_counters(workers, (int)i, text[i + 1], SESSION_TEXT_MAX, why))
            return -1;
    return workers_counters(workers, -1, text[0], SESSION_TEXT_MAX, why);
}

/* The program and the machine, the first object of the array. */
static void print_machine(void)
{
    struct utsname system = {.machine = ""};

    uname(&system);
    printf("  {\"bmi_perf\": \"%s\", \"system\": \"%s %s\", \"machine\": \"%s\", "
           "\"processors\": %ld},\n",
           PACKAGE_VERSION, system.sysname, system.release, system.machine,
           sysconf(_SC_NPROCESSORS_ONLN));
}

/* Prints the measurements, then the counters, with --json as one array. `text`: counters
 * before, then counters after. */
static void print_all(const struct args *args, const struct workers_config *config,
                      const struct plan *plan, unsigned texts, char (*text)[SESSION_TEXT_MAX])
{
    if (args->json) {
        printf("[\n");
        print_machine();
    }
    (args->json ? series_print_json : series_print)(stdout, plan->series, plan->count);
    for (unsigned i = 0; args->counters && i < texts; i++) {
        if (args->json)
            printf(",\n");
        inspect_print_difference(stdout, i ? config->servers[SIDE_BMI][i - 1] : "client",
                                 text[i], text[texts + i], args->json);
    }
    if (args->json)
        printf("\n]\n");
}

static int measure(const struct args *args, const struct workers_config *config,
                   struct plan *plan)
{
    unsigned i, texts = config->count[SIDE_BMI] + 1;
    char(*text)[SESSION_TEXT_MAX] = calloc(2 * texts, sizeof *text);
    struct workers *workers = NULL;
    char why[WHY_SIZE] = "out of memory";
    uint64_t bad = 0;
    int rc = text != NULL ? workers_start(config, &workers, why) : -1;

    if (!rc && args->counters)
        rc = get_counters(workers, texts - 1, text, why);
    if (!rc)
        rc = series_run(plan->series, plan->count, args->rounds, workers, why);
    if (!rc && args->counters)
        rc = get_counters(workers, texts - 1, text + texts, why);
    workers_stop(workers);
    if (rc) {
        fprintf(stderr, "bmi-perf: %s\n", why);
    } else {
        print_all(args, config, plan, texts, text);
        for (i = 0; i < plan->count; i++)
            bad += plan->series[i].bad;
    }
    free(text);
    return rc || bad ? 1 : 0;
}

int mode_measure(const struct args *args)
{
    static const enum side both[] = {SIDE_BMI, SIDE_TCP}, tcp_only[] = {SIDE_TCP};
    struct workers_config config = {.clients = args->clients ? args->clients : 1,
                                    .options = args->bmi_options};
    char **array = calloc(2 * (size_t)args->npositional + 1, sizeof *array);
    bool compare = !strcmp(args->mode, "compare"), tcp = !strncmp(args->mode, "tcp-", 4);
    const char *test = compare ? args->test : tcp ? args->mode + 4 : args->mode;
    struct plan plan = {0};
    int status = 2;

    if (array != NULL && sort_addresses(args, &config, array) &&
        need(&config, !tcp, tcp || compare) &&
        plan_all(&plan, args, test, tcp ? tcp_only : both, compare ? 2 : 1))
        status = measure(args, &config, &plan);
    free(plan.series);
    free(array);
    return status;
}

/* Runs two bursts of one message per client, with idle time in between. */
static int idle(const struct args *args, const struct workers_config *config)
{
    struct job job = {
        .test = JOB_REQUEST, .size = 8, .reply = 8, .window = 1, .count = 1, .verify = 1};
    struct outcome before, after;
    struct workers *workers = NULL;
    char why[WHY_SIZE];
    double seconds;
    unsigned i;
    int rc = workers_start(config, &workers, why);

    if (!rc)
        rc = workers_run(workers, SIDE_BMI, &job, &before, why);
    if (!rc) {
        sleep(args->seconds);
        rc = workers_run(workers, SIDE_BMI, &job, &after, why);
    }
    workers_stop(workers);
    if (rc) {
        fprintf(stderr, "bmi-perf: %s\n", why);
        return 1;
    }
    seconds = (double)(after.start - before.end) / 1e9;
    for (i = 0; i < config->count[SIDE_BMI]; i++) {
        double used = (double)(after.server_cpu_start[i] - before.server_cpu_end[i]) / 1e9;
        if (args->json)
            printf("{\"server\": %u, \"clients\": %u, \"seconds\": %.3f, "
                   "\"percent_of_a_core\": %.4f}\n",
                   i, config->clients, seconds, used / seconds * 100);
        else
            printf("%s: %u clients, %.1f s: %.3f %% of a core\n", config->servers[SIDE_BMI][i],
                   config->clients, seconds, used / seconds * 100);
    }
    return 0;
}

int mode_idle(const struct args *args)
{
    struct workers_config config = {.clients = args->clients ? args->clients : IDLE_CLIENTS,
                                    .options = args->bmi_options};
    char **array = calloc(2 * (size_t)args->npositional + 1, sizeof *array);
    int status = 2;

    if (array != NULL && sort_addresses(args, &config, array) && need(&config, true, false))
        status = idle(args, &config);
    free(array);
    return status;
}
