/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Execution of jobs by a client process: over BMI (bmi_client.c) or plain TCP sockets
 * (tcp.c). */
#ifndef BENCH_TRANSPORT_H
#define BENCH_TRANSPORT_H

#include "bench/job.h"
#include "bench/latency.h"

#define MAX_SERVERS 16
#define WHY_SIZE    1024

/* Results of the timed phase of a job in one client process. */
struct outcome {
    uint64_t start, end; /* clock_ns(): first post; last byte known to have arrived */
    uint64_t messages;   /* each way */
    uint64_t bytes;      /* payload, both ways */
    uint64_t bad;        /* messages with wrong contents, on both sides */
    uint64_t cpu;        /* processor time of this process, ns */
    uint64_t server_cpu_start[MAX_SERVERS], server_cpu_end[MAX_SERVERS]; /* 0 if not used */
    struct latency latency; /* of a ping-pong: there and back */
};

/* Runs phase `number` of a transport's job: 0: warm-up, 1: timed. Returns 0, or -1 with the
 * reason. */
typedef int (*phase_fn)(void *state, uint64_t number, char *why);

/* Runs the timed phase; stores its times only. */
int outcome_time(struct outcome *outcome, phase_fn phase, void *state, char *why);
/* Adds the results of one server, and the number of bad messages from it. */
void outcome_add(struct outcome *outcome, const struct job *job, unsigned server,
                 const struct report *said, uint64_t bad);

/* The participating servers: `count` of them from `first` on. */
struct part {
    unsigned first, count;
};

/*
 * Functions return 0, or -1 with one line in `why` (WHY_SIZE bytes) that names server and
 * cause. After a failure only close is permitted. prepare includes the warm-up; run executes
 * the timed phase. counters (of BMI only) gets the engine's counters of a server, or of this
 * process (server -1), as lines of text.
 */
struct transport {
    const char *name;
    int (*open)(char *const *servers, unsigned count, const char *options, void **state,
                char *why);
    int (*prepare)(void *state, const struct job *job, struct part part, char *why);
    int (*run)(void *state, struct outcome *outcome, char *why);
    int (*counters)(void *state, int server, char *text, size_t size, char *why);
    void (*close)(void *state);
};

extern const struct transport bmi_transport, tcp_transport;

/* bmi_transport only: reports an unknown option on standard error. */
void bmi_warn_ignored(const char *options);

/* bmi_transport only: gets the port of a raw connection (doctor/raw.h) to its first server. */
int bmi_raw(void *state, unsigned *port, char *why);

/* bmi_transport only: gets the metrics of its first server in Prometheus format. */
int bmi_metrics(void *state, char *text, size_t size, char *why);

#endif
