/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The single-fault sweep: sweep [--max-points N] [--jobs N] [--only KIND:ROLE[:K]] EMUVERBS
 * EXCHANGE
 *
 * Counts the calls that each side of a clean exchange makes, of two kinds: verbs and rdma_cm
 * calls (numbered by the software HCA, with its completions and connection events) and
 * allocations (numbered by alloc_fault.c). Then runs the exchange once for each number, with
 * that call failing, and checks both processes' exit statuses and output. With more than
 * --max-points numbers in all it takes every n-th. Prints a line for each kind and side and one
 * for each failure, then "N passed, N failed".
 */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/ports/ports.h"

#define MAX_JOBS   16
#define CLEAN_RUNS 3
#define MARGIN                                                                                 \
    2 /* numbers tried beyond the largest count, because counts vary a little between runs */
#define LIMIT_MS 60000 /* timeout of one run; the exchange has its own, shorter deadlines */
#define OUTPUT   65536

enum fault { FAULT_VERBS, FAULT_ALLOC, FAULTS };
enum role { SERVER, CLIENT, ROLES };

static const char *const fault_name[FAULTS] = {"verbs", "alloc"};
static const char *const role_name[ROLES] = {"server", "client"};

struct point {
    enum fault fault;
    enum role role;
    unsigned long kth; /* 0: no fault */
};

/* A running exchange. */
struct job {
    bool busy;
    struct point point;
    pid_t pid[ROLES];
    int status[ROLES];
    FILE *output[ROLES];
    pid_t started[ROLES]; /* process ids, also of ended processes */
    int64_t deadline;
};

struct tally {
    unsigned long points, reached, failed;
};

static struct {
    const char *emuverbs, *exchange;
    char counters[64]; /* folder for the counters of the software HCA */
    unsigned long max_points;
    int jobs;
    bool show_all; /* also print the output of successful runs */
    int first_port, next_port;
    struct job job[MAX_JOBS];
    struct tally tally[FAULTS][ROLES];
    unsigned long passed, failed;
} sweep = {.max_points = 100000, .jobs = 2};

static int64_t now_ms(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static void die(const char *what)
{
    perror(what);
    exit(2);
}

/* ---- running ---- */

static void set_environment(const struct point *point, enum role role)
{
    char number[32];

    snprintf(number, sizeof(number), "%lu", point->kth);
    setenv("EMUVERBS_CENSUS", "1", 1);
    setenv("EMUVERBS_COUNT_CALLS", "1", 1);
    setenv("EMUVERBS_COUNTERS_DIR", sweep.counters, 1);
    /* a lost link costs one round, because both sides notice it in that round */
    setenv("EMUVERBS_DREQ_HOLD_MS", "0", 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=1:exitcode=99", 1);
    setenv("UBSAN_OPTIONS", "print_stacktrace=1", 1);
    if (point->kth == 0)
        return;
    if (point->fault == FAULT_ALLOC) {
        setenv("FAULT_ROLE", role_name[point->role], 1);
        setenv("FAULT_ALLOC", number, 1);
    } else if (role == point->role) {
        setenv("EMUVERBS_FAIL", number, 1);
    }
}

static void start_role(struct job *job, enum role role, int port, int control, int other)
{
    char port_text[16], control_text[16];
    pid_t pid;

    snprintf(port_text, sizeof(port_text), "%d", port);
    snprintf(control_text, sizeof(control_text), "%d", control);
    job->output[role] = tmpfile();
    if (job->output[role] == NULL)
        die("tmpfile");
    fflush(NULL);
    pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        close(other);
        set_environment(&job->point, role);
        dup2(fileno(job->output[role]), STDERR_FILENO);
        dup2(fileno(job->output[role]), STDOUT_FILENO);
        execl(sweep.emuverbs, sweep.emuverbs, sweep.exchange, role_name[role], port_text,
              control_text, (char *)NULL);
        perror(sweep.emuverbs);
        _exit(127);
    }
    job->pid[role] = job->started[role] = pid;
}

static void start(struct job *job, const struct point *point)
{
    int control[2];
    int port = sweep.first_port + sweep.next_port++ % PORTS_IN_BLOCK;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, control) != 0)
        die("socketpair");
    job->busy = true;
    job->point = *point;
    job->deadline = now_ms() + LIMIT_MS;
    start_role(job, SERVER, port, control[0], control[1]);
    start_role(job, CLIENT, port, control[1], control[0]);
    close(control[0]);
    close(control[1]);
}

/* Returns true when both processes have ended; kills those that exceed the timeout. */
static bool has_ended(struct job *job)
{
    bool ended = true;

    for (int role = 0; role < ROLES; role++) {
        if (job->pid[role] == 0)
            continue;
        if (waitpid(job->pid[role], &job->status[role], WNOHANG) == job->pid[role]) {
            job->pid[role] = 0;
            continue;
        }
        ended = false;
        if (now_ms() > job->deadline)
            kill(job->pid[role], SIGKILL);
    }
    return ended;
}

/* ---- results ---- */

/* Returns whether the software HCA injected its fault into this process, and removes its
 * counters. */
static bool was_injected(pid_t pid)
{
    char path[128], text[16384];
    const char *at;
    FILE *file;

    snprintf(path, sizeof(path), "%s/emuverbs-%d.json", sweep.counters, (int)pid);
    file = fopen(path, "r");
    if (file == NULL)
        return false;
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    unlink(path);
    at = strstr(text, "\"faults_injected\":");
    return at != NULL && strtoul(at + strlen("\"faults_injected\":"), NULL, 10) > 0;
}

/* Returns a process's output, truncated. */
static const char *text_of(FILE *output, char *text)
{
    size_t got;

    rewind(output);
    got = fread(text, 1, OUTPUT - 1, output);
    text[got] = '\0';
    return text;
}

static const char *complaint(int status, const char *text)
{
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGKILL ? "hung" : "died of a signal";
    if (strstr(text, "LeakSanitizer") != NULL)
        return "leaked memory";
    if (strstr(text, "AddressSanitizer") != NULL || strstr(text, "runtime error") != NULL)
        return "was caught by a sanitizer";
    if (WEXITSTATUS(status) != 0)
        return "exited with an error";
    if (strstr(text, "alive at exit") != NULL)
        return "left objects on the device";
    return NULL;
}

static void print_indented(const char *text)
{
    int lines = 0;

    while (*text != '\0' && lines++ < 60) {
        size_t length = strcspn(text, "\n");

        printf("    | %.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

/* Checks the end of a run. *reached: the call that should fail was made (unknown for a killed
 * process). */
static bool judge(struct job *job, bool *reached)
{
    static char text[ROLES][OUTPUT];
    const char *why[ROLES];
    bool good = true;

    *reached = false;
    for (int role = 0; role < ROLES; role++) {
        why[role] = complaint(job->status[role], text_of(job->output[role], text[role]));
        good = good && why[role] == NULL;
        fclose(job->output[role]);
        *reached |=
            was_injected(job->started[role]) || strstr(text[role], "fault injected") != NULL;
    }
    if (good && !sweep.show_all)
        return true;
    if (good)
        printf("ended well, the fault was %s\n", *reached ? "injected" : "never reached");
    else if (job->point.kth == 0)
        printf("FAILED without any fault\n");
    else
        printf("FAILED %s call %lu of the %s (again: --only %s:%s:%lu)\n",
               fault_name[job->point.fault], job->point.kth, role_name[job->point.role],
               fault_name[job->point.fault], role_name[job->point.role], job->point.kth);
    for (int role = 0; role < ROLES; role++) {
        printf("  the %s %s\n", role_name[role], why[role] != NULL ? why[role] : "ended well");
        print_indented(text[role]);
    }
    fflush(stdout);
    return good;
}

static void finish(struct job *job)
{
    struct tally *tally = &sweep.tally[job->point.fault][job->point.role];
    bool reached, good = judge(job, &reached);

    job->busy = false;
    tally->points++;
    tally->reached += reached;
    tally->failed += !good;
    sweep.passed += good;
    sweep.failed += !good;
}

/* Waits for a free job and returns it; with `all` waits for all jobs and returns NULL. */
static struct job *wait_for_job(bool all)
{
    for (;;) {
        bool any_busy = false;

        for (int i = 0; i < sweep.jobs; i++) {
            struct job *job = &sweep.job[i];

            if (job->busy && has_ended(job))
                finish(job);
            if (!job->busy && !all)
                return job;
            any_busy |= job->busy;
        }
        if (all && !any_busy)
            return NULL;
        usleep(2000);
    }
}

/* ---- counting ---- */

static unsigned long number_before(const char *text, const char *word)
{
    const char *at = strstr(text, word);

    while (at != NULL && at > text && (at[-1] == ' ' || (at[-1] >= '0' && at[-1] <= '9')))
        at--;
    return at != NULL ? strtoul(at, NULL, 10) : 0;
}

/* Runs clean exchanges and stores the largest numbers of calls in `count`. Returns false if the
 * exchange fails without a fault. */
static bool count_calls(unsigned long count[FAULTS][ROLES])
{
    static const char *const word[FAULTS] = {" calls", " allocations"};
    static char text[OUTPUT];
    struct job job = {0};
    bool reached;

    memset(count, 0, sizeof(unsigned long[FAULTS][ROLES]));
    for (int run = 0; run < CLEAN_RUNS; run++) {
        start(&job, &(struct point){0});
        while (!has_ended(&job))
            usleep(2000);
        for (int role = 0; role < ROLES; role++) {
            text_of(job.output[role], text);
            for (int fault = 0; fault < FAULTS; fault++) {
                unsigned long seen = number_before(text, word[fault]);

                if (seen > count[fault][role])
                    count[fault][role] = seen;
            }
        }
        if (!judge(&job, &reached))
            return false;
    }
    return true;
}

/* ---- the program ---- */

static void run_point(const struct point *point)
{
    start(wait_for_job(false), point);
}

static void print_tally(enum fault fault, enum role role, unsigned long count)
{
    const struct tally *tally = &sweep.tally[fault][role];

    printf("%s calls of the %s: %lu in a clean run; %lu runs with one failing, %lu of them "
           "reached it, %lu went wrong\n",
           fault_name[fault], role_name[role], count, tally->points, tally->reached,
           tally->failed);
}

static void run_all(void)
{
    unsigned long count[FAULTS][ROLES], total = 0, step, index = 0;

    if (!count_calls(count)) {
        sweep.failed++;
        return;
    }
    for (int fault = 0; fault < FAULTS; fault++)
        for (int role = 0; role < ROLES; role++)
            total += count[fault][role] > 0 ? count[fault][role] + MARGIN : 0;
    step = (total + sweep.max_points - 1) / sweep.max_points;
    printf("%lu points in all%s", total, step > 1 ? ", of which every " : "\n");
    if (step > 1)
        printf("%lu. is run\n", step);
    for (int fault = 0; fault < FAULTS; fault++) {
        for (int role = 0; role < ROLES; role++) {
            struct point point = {.fault = (enum fault)fault, .role = (enum role)role};

            if (count[fault][role] == 0) {
                printf("FAILED: the clean run counted no %s calls of the %s\n",
                       fault_name[fault], role_name[role]);
                sweep.failed++;
                continue;
            }
            for (point.kth = 1; point.kth <= count[fault][role] + MARGIN; point.kth++)
                if (index++ % step == 0)
                    run_point(&point);
            wait_for_job(true);
            print_tally((enum fault)fault, (enum role)role, count[fault][role]);
            fflush(stdout);
        }
    }
}

/* "verbs:server", "alloc:client:17" */
static bool parse_only(const char *text, struct point *point)
{
    for (int fault = 0; fault < FAULTS; fault++) {
        for (int role = 0; role < ROLES; role++) {
            char prefix[32];
            size_t length = (size_t)snprintf(prefix, sizeof(prefix),
                                             "%s:%s:", fault_name[fault], role_name[role]);

            if (strncmp(text, prefix, length) == 0) {
                *point = (struct point){(enum fault)fault, (enum role)role,
                                        strtoul(text + length, NULL, 10)};
                return point->kth > 0;
            }
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    struct point only = {0};
    int at;

    for (at = 1; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--max-points") == 0)
            sweep.max_points = strtoul(argv[at + 1], NULL, 10);
        else if (strcmp(argv[at], "--jobs") == 0)
            sweep.jobs = atoi(argv[at + 1]);
        else if (strcmp(argv[at], "--only") != 0 || !parse_only(argv[at + 1], &only))
            break;
    }
    if (argc - at != 2 || sweep.max_points == 0 || sweep.jobs < 1 || sweep.jobs > MAX_JOBS) {
        fprintf(stderr,
                "usage: %s [--max-points N] [--jobs N] [--only verbs|alloc:server|client:K] "
                "EMUVERBS EXCHANGE\n",
                argv[0]);
        return 2;
    }
    sweep.emuverbs = argv[at];
    sweep.exchange = argv[at + 1];
    sweep.first_port = ports_take();
    if (sweep.first_port < 0) {
        errno = -sweep.first_port;
        die("ports");
    }
    snprintf(sweep.counters, sizeof(sweep.counters), "/tmp/fault-sweep-XXXXXX");
    if (mkdtemp(sweep.counters) == NULL)
        die("mkdtemp");
    if (only.kth > 0) {
        sweep.show_all = true;
        run_point(&only);
        wait_for_job(true);
    } else {
        run_all();
    }
    rmdir(sweep.counters);
    printf("%lu passed, %lu failed\n", sweep.passed, sweep.failed);
    return sweep.failed > 0;
}
