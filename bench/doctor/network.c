/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A server: each protocol forced in turn, first with verified contents, then measured, beside
 * raw verbs to the same host; see doctor.h.  Messages go from the server to this client: a
 * receiver decides about write and read, and options act on this process only.
 */
#define _GNU_SOURCE /* asprintf */
#include "bench/doctor/doctor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/doctor/raw.h"
#include "bench/inspect.h"
#include "bench/series.h"
#include "bench/session.h"
#include "bench/transport.h"

enum { WAYS = 6, SIZES = 6, WINDOWS = 2, LATS = 4, ROUNDS = 3 };

#define CELL_BYTES   (UINT64_C(32) << 20) /* of one measurement, fewer if it took longer than */
#define CELL_NS      UINT64_C(300000000)
#define CELL_MIN     4 /* messages */
#define CELL_MAX     2000
#define LAT_MIN      50
#define LAT_MAX      1000
#define VERIFY_COUNT 16 /* messages each way, of large ones VERIFY_FEW */
#define VERIFY_FEW   4
#define SLOWER       1.25 /* a forced protocol that is faster by this factor is a warning */

#define RENDEZVOUS "rx_size=1K,eager_ring_bytes=0,"
#define PLACE      "pack_threshold=1,list_mode=group"
#define COPY       "pack_threshold=1G,list_mode=pack"

/* The chosen protocol is first.  `forces`: the protocol that the options force, where the size
 * permits it. */
static const struct {
    const char *name, *forces, *options;
} ways[WAYS] = {
    {"chosen", NULL, ""},
    {"ring", "ring", "rx_size=1K,rndv=write," COPY},
    {"write", "write", RENDEZVOUS "rndv=write," PLACE},
    {"write-copy", "write", RENDEZVOUS "rndv=write," COPY},
    {"read", "read", RENDEZVOUS "rndv=read," PLACE},
    {"read-copy", "read", RENDEZVOUS "rndv=read," COPY},
};
static const uint64_t sizes[SIZES] = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
static const unsigned windows[WINDOWS] = {1, 8};
static const uint64_t lats[LATS] = {8, 64, 1024, 4096};

struct network {
    struct doctor *doctor;
    const char *address, *options;
    struct raw *raw;                           /* NULL: none */
    double rate[WAYS][SIZES][WINDOWS][ROUNDS]; /* MB/s */
    double raw_rate[SIZES][WINDOWS][ROUNDS];
    double us[LATS][ROUNDS], raw_us[LATS][ROUNDS]; /* one way */
    const char *moved[WAYS][SIZES];                /* the protocol that moved the messages */
    uint64_t bad, verified;
    uint64_t ns[WAYS][SIZES]; /* of a message, with one in flight */
    char path[512];           /* of the connection to the server; "" for none */
    char device[64];
    unsigned port;
    bool counts; /* the port counts losses */
    struct doctor_loss loss;
};

/* ---- BMI ---- */

static int open_way(const struct network *n, unsigned way, void **state, char *why)
{
    char *servers[] = {(char *)n->address}, *options;
    int rc = asprintf(&options, "%s%s%s", n->options != NULL ? n->options : "",
                      n->options != NULL && *ways[way].options ? "," : "", ways[way].options);

    if (rc < 0) {
        snprintf(why, WHY_SIZE, "out of memory");
        return -1;
    }
    rc = bmi_transport.open(servers, 1, options, state, why);
    free(options);
    return rc;
}

static int run_job(void *state, const struct job *job, struct outcome *outcome, char *why)
{
    int rc = bmi_transport.prepare(state, job, (struct part){0, 1}, why);

    return rc ? rc : bmi_transport.run(state, outcome, why);
}

static struct job stream(uint64_t size, unsigned window, uint64_t count)
{
    return (struct job){.test = JOB_STREAM,
                        .direction = JOB_GET,
                        .size = size,
                        .window = window,
                        .count = count,
                        .warm = window,
                        .buffers = 1};
}

static uint64_t counter(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* Names the protocol of most messages between two readings of this process's counters. */
static const char *protocol(const char *before, const char *after)
{
    static const struct {
        const char *counter, *name;
    } all[] = {{"recvs_eager_rdma ", "ring"},
               {"recvs_rndv_write ", "write"},
               {"recvs_rndv_read ", "read"}};
    uint64_t most = counter(after, "recvs_eager ") - counter(before, "recvs_eager ");
    const char *name = "eager";

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        uint64_t count = counter(after, all[i].counter) - counter(before, all[i].counter);

        if (count && count * 2 >= most) {
            most = count;
            name = all[i].name;
        }
    }
    return name;
}

/* ---- Contents ---- */

static int verify_way(struct network *n, unsigned way, char *why)
{
    void *state = NULL;
    int rc = open_way(n, way, &state, why);

    for (unsigned s = 0; !rc && s < SIZES; s++) {
        static char before[SESSION_TEXT_MAX], after[SESSION_TEXT_MAX];
        uint64_t count = sizes[s] < 1 << 20 ? VERIFY_COUNT : VERIFY_FEW;
        struct job job = stream(sizes[s], 4, count);
        struct outcome outcome = {0};

        job.direction = JOB_BOTH;
        job.verify = 1;
        job.buffers = job.warm = 0;
        rc = run_job(state, &job, &outcome, why);
        n->bad += outcome.bad;
        n->verified += 2 * count;
        if (rc)
            break;
        job = stream(sizes[s], 1, count);
        bmi_transport.counters(state, -1, before, sizeof before, why);
        rc = run_job(state, &job, &outcome, why);
        bmi_transport.counters(state, -1, after, sizeof after, why);
        n->moved[way][s] = protocol(before, after);
        n->ns[way][s] = (outcome.end - outcome.start) / count + 1;
    }
    if (state != NULL)
        bmi_transport.close(state);
    return rc;
}

/* Returns true if the way's protocol moved the messages of this size. */
static bool took(const struct network *n, unsigned way, unsigned s)
{
    return ways[way].forces == NULL || strcmp(ways[way].forces, n->moved[way][s]) == 0;
}

/* Makes a row of the protocols that were verified, and of those that no size was moved by: the
 * sender offers no memory for reads where its device reads slowly. */
static void print_verified(struct network *n)
{
    char names[64] = "eager", others[64] = "";

    for (unsigned way = 1; way < WAYS; way++) {
        char *list = others;

        for (unsigned s = 0; s < SIZES; s++)
            if (took(n, way, s))
                list = names;
        snprintf(list + strlen(list), sizeof names - strlen(list), "%s%s", *list ? ", " : "",
                 ways[way].name);
    }
    doctor_row(n->doctor, DOCTOR_PASS, NULL, "contents",
               "%" PRIu64 " messages are right: by %s%s%s", n->verified, names,
               *others ? "; not used by these devices: " : "", others);
}

static int verify(struct network *n, char *why)
{
    int rc = 0;

    for (unsigned way = 0; !rc && way < WAYS; way++)
        rc = verify_way(n, way, why);
    if (rc)
        return rc;
    if (n->bad)
        doctor_row(n->doctor, DOCTOR_FAIL,
                   "store no data over this network; send this report to the project",
                   "contents", "%" PRIu64 " of %" PRIu64 " messages are wrong", n->bad,
                   n->verified);
    else
        print_verified(n);
    return 0;
}

/* ---- Measurements ---- */

static uint64_t within(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Returns the messages of a measurement. */
static uint64_t count_of(const struct network *n, unsigned way, unsigned s)
{
    uint64_t count = CELL_BYTES / sizes[s];

    if (count > CELL_NS / n->ns[way][s])
        count = CELL_NS / n->ns[way][s];
    return within(count, CELL_MIN, CELL_MAX);
}

/* Returns the round trips of a measurement of latency. */
static uint64_t lat_count(const struct network *n)
{
    return within(CELL_NS / n->ns[0][0], LAT_MIN, LAT_MAX);
}

static int measure_way(struct network *n, unsigned way, unsigned round, char *why)
{
    uint64_t count = lat_count(n);
    void *state = NULL;
    int rc = open_way(n, way, &state, why);
    struct outcome o;

    for (unsigned l = 0; !rc && !way && l < LATS; l++) {
        struct job job = {.test = JOB_PINGPONG,
                          .size = lats[l],
                          .window = 2,
                          .count = count,
                          .warm = count / 10,
                          .buffers = 1};

        rc = run_job(state, &job, &o, why);
        n->us[l][round] = (double)(o.end - o.start) / 2e3 / (double)count;
    }
    for (unsigned s = 0; !rc && s < SIZES; s++)
        for (unsigned w = 0; !rc && w < WINDOWS; w++) {
            struct job job = stream(sizes[s], windows[w], count_of(n, way, s));

            rc = run_job(state, &job, &o, why);
            n->rate[way][s][w][round] = (double)o.bytes * 1e3 / (double)(o.end - o.start);
        }
    if (state != NULL)
        bmi_transport.close(state);
    return rc;
}

static int measure_raw(struct network *n, unsigned round, char *why)
{
    uint64_t ns = 1, trips = lat_count(n);
    int rc = 0;

    for (unsigned l = 0; !rc && l < LATS; l++) {
        rc = raw_run(n->raw, lats[l], 1, (unsigned)trips, &ns, why);
        n->raw_us[l][round] = (double)ns / 2e3 / (double)trips;
    }
    for (unsigned s = 0; !rc && s < SIZES; s++)
        for (unsigned w = 0; !rc && w < WINDOWS; w++) {
            uint64_t count = count_of(n, 0, s);

            rc = raw_run(n->raw, sizes[s], windows[w], (unsigned)count, &ns, why);
            n->raw_rate[s][w][round] = (double)(count * sizes[s]) * 1e3 / (double)ns;
        }
    return rc;
}

static int measure(struct network *n, char *why)
{
    int rc = 0;

    for (unsigned round = 0; !rc && round < ROUNDS; round++) {
        if (n->raw != NULL)
            rc = measure_raw(n, round, why);
        for (unsigned way = 0; !rc && way < WAYS; way++)
            rc = measure_way(n, (way + round) % WAYS, round, why);
    }
    return rc;
}

/* ---- Tables ---- */

/* Prints the value of raw verbs and its ratio to ours, or nothing without them. */
static const char *beside(const struct network *n, double ours, double raw, char *text,
                          size_t size)
{
    text[0] = 0;
    if (n->raw != NULL)
        snprintf(text, size, " %9.2f %9.2f", raw, ours / raw);
    return text;
}

static void print_latency(const struct network *n)
{
    char text[64];

    doctor_line(n->doctor, "us one way, medians of %d%s:", ROUNDS,
                n->raw != NULL ? "; raw: half the time from posting a write to its completion"
                               : "");
    doctor_line(n->doctor, "%8s %9s%s", "bytes", "BMI",
                n->raw != NULL ? "       raw   BMI/raw" : "");
    for (unsigned l = 0; l < LATS; l++) {
        double us = series_median(n->us[l], ROUNDS);

        doctor_line(n->doctor, "%8" PRIu64 " %9.2f%s", lats[l], us,
                    beside(n, us, series_median(n->raw_us[l], ROUNDS), text, sizeof text));
    }
}

/* Returns the fastest way of a cell; stores its rate in relation to the chosen one's. */
static unsigned best_of(const struct network *n, unsigned s, unsigned w, double *factor)
{
    double chosen = series_median(n->rate[0][s][w], ROUNDS), most = chosen;
    unsigned best = 0;

    for (unsigned way = 1; way < WAYS; way++) {
        double rate = series_median(n->rate[way][s][w], ROUNDS);

        if (took(n, way, s) && rate > most) {
            most = rate;
            best = way;
        }
    }
    *factor = most / chosen;
    return best;
}

static void print_cell(const struct network *n, unsigned s, unsigned w)
{
    double factor;
    char line[256], text[64];
    size_t used = (size_t)snprintf(line, sizeof line, "%8" PRIu64 " %9u", sizes[s], windows[w]);

    for (unsigned way = 0; way < WAYS; way++)
        used +=
            (size_t)(took(n, way, s) ? snprintf(line + used, sizeof line - used, " %10.0f",
                                                series_median(n->rate[way][s][w], ROUNDS))
                                     : snprintf(line + used, sizeof line - used, " %10s", "-"));
    best_of(n, s, w, &factor);
    doctor_line(n->doctor, "%s%s %8.2f  %s", line,
                beside(n, series_median(n->rate[0][s][w], ROUNDS),
                       series_median(n->raw_rate[s][w], ROUNDS), text, sizeof text),
                factor, n->moved[0][s]);
}

static void print_rates(const struct network *n)
{
    char head[128] = "";

    doctor_line(n->doctor,
                "MB/s from the server to this client, medians of %d%s; best: the "
                "fastest column in relation to the chosen; -: not by this protocol:",
                ROUNDS, n->raw != NULL ? ", raw: writes from here to the server" : "");
    for (unsigned way = 0; way < WAYS; way++)
        snprintf(head + strlen(head), sizeof head - strlen(head), " %10s", ways[way].name);
    doctor_line(n->doctor, "%8s %9s%s%s %8s  %s", "bytes", "in flight", head,
                n->raw != NULL ? " raw write   BMI/raw" : "", "best", "chosen is");
    for (unsigned s = 0; s < SIZES; s++)
        for (unsigned w = 0; w < WINDOWS; w++)
            print_cell(n, s, w);
}

/* Makes rows of the cells in which a forced protocol is much faster. */
static void judge(const struct network *n)
{
    unsigned slower = 0;

    for (unsigned s = 0; s < SIZES; s++)
        for (unsigned w = 0; w < WINDOWS; w++) {
            double factor;
            unsigned best = best_of(n, s, w, &factor);

            if (factor <= SLOWER)
                continue;
            slower++;
            doctor_row(n->doctor, DOCTOR_WARN,
                       "run it again on a quiet machine; if the row stays, send the report",
                       "planner", "%" PRIu64 " bytes, %u in flight: %s is %.2f times as fast",
                       sizes[s], windows[w], ways[best].name, factor);
        }
    if (!slower)
        doctor_row(n->doctor, DOCTOR_PASS, NULL, "planner",
                   "no forced protocol is more than %.2f times as fast as the chosen one",
                   SLOWER);
}

/* ---- The server ---- */

/* Copies the host of the address's part of ib; "" if it has none. */
static void host_of(const char *address, char *host, size_t size)
{
    const char *at = strstr(address, "ib://"), *end;

    host[0] = 0;
    if (at == NULL)
        return;
    at += strlen("ib://");
    end = *at == '[' ? strchr(at++, ']') : at + strcspn(at, ":/,");
    if (end != NULL && (size_t)(end - at) < size)
        snprintf(host, size, "%.*s", (int)(end - at), at);
}

/* Keeps the first peer that is up, the server. */
static void take_path(void *arg, const char *line)
{
    struct network *n = arg;
    const char *by = strstr(line, ", by ");

    if (by != NULL && !*n->path)
        snprintf(n->path, sizeof n->path, "%s", by + strlen(", by "));
}

/* Tells the path of the connection, and begins to count its losses. */
static void print_path(struct network *n)
{
    const char *at;
    unsigned mtu = 0;

    inspect_peers(n->address, take_path, n);
    if (!*n->path)
        return;
    at = strstr(n->path, "path MTU ");
    if (at != NULL)
        sscanf(at, "path MTU %u", &mtu);
    doctor_row(
        n->doctor, mtu && mtu < 2048 ? DOCTOR_WARN : DOCTOR_PASS,
        mtu && mtu < 2048
            ? "Ethernet: ip link set INTERFACE mtu 4200 (or 9000), here, there and on the "
              "switches; InfiniBand: the MTU of the partition"
            : NULL,
        "path", "%s", n->path);
    if (sscanf(n->path, "%63s port %u", n->device, &n->port) == 2)
        n->counts = doctor_loss_read(&n->loss, n->device, n->port);
}

static void print_losses(struct network *n)
{
    struct doctor_loss now;

    if (n->counts && doctor_loss_read(&now, n->device, n->port))
        doctor_loss_row(n->doctor, &n->loss, &now);
}

/* Figures of a busy machine judge nothing. */
static void print_loads(struct network *n)
{
    double load = 0, processors = (double)sysconf(_SC_NPROCESSORS_ONLN);

    if (getloadavg(&load, 1) == 1)
        doctor_row(n->doctor, load > processors / 2 ? DOCTOR_WARN : DOCTOR_PASS,
                   load > processors / 2 ? "for figures run it on a quiet machine" : NULL,
                   "load", "%.1f on %.0f processors", load, processors);
}

/* Connects raw verbs on the path of the connection; a failure is a warning.  A network without
 * verbs has none. */
static void open_raw(struct network *n, void *state)
{
    char why[WHY_SIZE], host[256], source[64] = "";
    const char *gid = strstr(n->path, "RoCE v"), *class = strstr(n->path, "traffic class ");
    unsigned port, value = 0;

    host_of(n->address, host, sizeof host);
    if (!*host)
        return;
    if (gid != NULL)
        sscanf(gid, "RoCE v%*u %63s", source);
    if (class != NULL)
        sscanf(class, "traffic class %u", &value);
    if (bmi_raw(state, &port, why) || raw_open(host, port, source, value, &n->raw, why))
        doctor_row(n->doctor, DOCTOR_WARN,
                   "the figures stand without raw verbs; is another doctor at work there?",
                   "raw verbs", "%s", why);
    else if (*n->path && strncmp(raw_path(n->raw, why), n->path, strlen(why)) != 0)
        doctor_row(n->doctor, DOCTOR_WARN,
                   "its figures are those of another path: the option device chooses for the "
                   "engine alone",
                   "raw verbs", "by %s", why);
}

void doctor_network(struct doctor *doctor, const char *address, const char *options)
{
    struct network *n = calloc(1, sizeof *n);
    char why[WHY_SIZE] = "out of memory";
    void *state = NULL;
    int rc = -1;

    if (n != NULL) {
        *n = (struct network){.doctor = doctor, .address = address, .options = options};
        rc = open_way(n, 0, &state, why);
    }
    if (!rc) {
        struct job job = stream(8, 1, 1);

        rc = bmi_transport.prepare(state, &job, (struct part){0, 1}, why);
    }
    if (!rc) {
        doctor_row(doctor, DOCTOR_PASS, NULL, "server", "%s answers", address);
        bmi_warn_ignored(options);
        print_path(n);
        print_loads(n);
        open_raw(n, state);
    }
    if (state != NULL)
        bmi_transport.close(state);
    if (!rc)
        rc = verify(n, why);
    if (!rc)
        rc = measure(n, why);
    if (!rc) {
        print_latency(n);
        print_rates(n);
        judge(n);
        print_losses(n);
    } else {
        doctor_row(doctor, DOCTOR_FAIL,
                   "start `bmi-perf server ib://HOST:PORT` there; compare the rows of its own "
                   "bmi-perf doctor",
                   "server", "%s", why);
    }
    if (n != NULL)
        raw_close(n->raw);
    free(n);
}
