/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Clients of file servers, each a process, of bmi-iod or of bmi-perf tcp-store.
 *
 *   files postmark SERVER...  transactions per second on a pool of small files
 *   files fileop SERVER...    files made, opened, read, rewritten, removed per second
 *   files tiles SERVER...     MB/s of 2 x 2 tiles in a file
 *   files pieces SERVER...    MB/s of small pieces of the clients in turn, as in BT-IO
 *   files rows SERVER...      MB/s of rows with gaps in memory, without gaps in a file
 *   files regions SERVER...   MB/s of one region of each client, 2 MiB at a time
 *
 * A figure is the work of all clients, divided by the time from the first client's begin to the
 * last one's end.
 */
#include "bench/files_work.h"

#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_CLIENTS 16
#define MAX_SERVERS 16
#define WAIT_S      120

static const char usage[] =
    "Usage: files postmark|fileop|tiles|pieces|rows|regions [OPTION]... SERVER...\n"
    "SERVER is an address of bmi-iod (ib://host:port), or of bmi-perf tcp-store (host:port).\n"
    "\n"
    "  --clients N       processes (1)\n"
    "  --count N         files of a client (400); rows of a tile (768); pieces (4096); rows\n"
    "                    (1024); parts of a region (32)\n"
    "  --transactions N  postmark (2000)\n"
    "  --size BYTES      of a file, at most 128K (postmark: 512, fileop: 1)\n"
    "  --append          postmark: a file that is written to grows; else it is written anew\n"
    "  --write           tiles, pieces, rows, regions: write; else read\n"
    "  --batch N         tiles, pieces, rows: of one request, at most 64, 256, 256 (all)\n"
    "  --apart BYTES     rows: from row to row in memory (8192)\n"
    "  --steps           TCP: as many requests as bmi-iod's protocol has\n"
    "  --seed N          (1)\n"
    "  --bmi-options S   options for BMI\n";

/* Memory shared by all processes. */
static struct board {
    struct {
        uint64_t begin[FILES_FIGURES], end[FILES_FIGURES], done[FILES_FIGURES];
    } client[MAX_CLIENTS];
    _Atomic unsigned arrived, failed;
} * board;

struct setting {
    struct work work;
    struct files_config config;
    unsigned begun; /* figures of this client */
};

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Begins a figure when all clients have arrived. */
static void begin(void *arg)
{
    struct setting *s = arg;
    unsigned all = s->work.clients * (s->begun + 1);
    uint64_t since = now_ns();

    atomic_fetch_add(&board->arrived, 1);
    while (atomic_load(&board->arrived) < all && !atomic_load(&board->failed))
        if (now_ns() - since < 1000000)
            sched_yield();
        else if (now_ns() - since < WAIT_S * UINT64_C(1000000000))
            usleep(500);
        else
            atomic_store(&board->failed, 1);
    board->client[s->work.client].begin[s->begun++] = now_ns();
}

static void end(void *arg, unsigned figure, uint64_t done)
{
    const struct setting *s = arg;

    board->client[s->work.client].end[figure] = now_ns();
    board->client[s->work.client].done[figure] = done;
}

static int client(struct setting *s)
{
    char why[1024];
    bool bmi = strstr(s->config.server[0], "://") != NULL, good;
    struct files *files = bmi ? files_open_iod(&s->config, why, sizeof why)
                              : files_open_tcp(&s->config, why, sizeof why);

    if (!files) {
        fprintf(stderr, "files: %s\n", why);
        atomic_store(&board->failed, 1);
        return 1;
    }
    s->work.files = files;
    s->work.begin = begin;
    s->work.end = end;
    s->work.arg = s;
    good = s->work.mode == FILES_POSTMARK ? work_postmark(&s->work)
           : s->work.mode == FILES_FILEOP ? work_fileop(&s->work)
                                          : work_pattern(&s->work);
    if (!good) {
        fprintf(stderr, "files: %s\n", files->why);
        atomic_store(&board->failed, 1);
    }
    files->ops->close(files);
    return good ? 0 : 1;
}

/* Computes a figure over all clients. */
static double figure(unsigned clients, unsigned number)
{
    uint64_t first = UINT64_MAX, last = 0, done = 0;

    for (unsigned i = 0; i < clients; i++) {
        uint64_t from = board->client[i].begin[number], to = board->client[i].end[number];

        first = from < first ? from : first;
        last = to > last ? to : last;
        done += board->client[i].done[number];
    }
    return (double)done * 1e9 / (double)(last - first);
}

static void print(const struct work *w)
{
    static const char *const name[] = {"make", "open", "read", "write", "remove"};

    if (w->mode == FILES_POSTMARK)
        printf("transactions %.1f\n", figure(w->clients, 0));
    else if (w->mode == FILES_FILEOP)
        for (unsigned i = 0; i < FILES_FIGURES; i++)
            printf("%s %.1f\n", name[i], figure(w->clients, i));
    else
        printf("MB/s %.1f\n", figure(w->clients, 0) / 1e6);
}

static int run(struct setting *s)
{
    pid_t pid[MAX_CLIENTS];
    int status, result = 0;

    for (unsigned i = 0; i < s->work.clients; i++) {
        s->work.client = i;
        pid[i] = fork();
        if (pid[i] < 0) {
            perror("files: fork");
            exit(1);
        }
        if (pid[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            exit(client(s));
        }
    }
    for (unsigned i = 0; i < s->work.clients; i++)
        if (waitpid(pid[i], &status, 0) != pid[i] || status != 0)
            result = 1;
    if (result == 0)
        print(&s->work);
    return result;
}

/* Parses a number up to `most` into `value`. */
static bool number(const char *text, unsigned long most, unsigned long *value)
{
    char *rest;

    *value = strtoul(text, &rest, 10);
    return *text >= '0' && *text <= '9' && !*rest && *value > 0 && *value <= most;
}

static bool set(struct setting *s, int option, const char *text)
{
    unsigned long n = 1;
    bool good = true;

    switch (option) {
    case 'c':
        good = number(text, MAX_CLIENTS, &n);
        s->work.clients = (unsigned)n;
        break;
    case 'n':
        good = number(text, 1000000, &n);
        s->work.count = (unsigned)n;
        break;
    case 't':
        good = number(text, 10000000, &n);
        s->work.transactions = (unsigned)n;
        break;
    case 's':
        good = number(text, 131072, &n);
        s->work.size = n;
        break;
    case 'b':
        good = number(text,
                      s->work.mode == FILES_TILES     ? 64
                      : s->work.mode == FILES_REGIONS ? 1
                                                      : FILES_PIECES,
                      &n);
        s->work.batch = (unsigned)n;
        break;
    case 'd':
        good = number(text, 1048576, &n) && n >= 4096;
        s->work.apart = n;
        break;
    case 'r':
        good = number(text, 1000000000, &n);
        s->work.seed = n;
        break;
    case 'a':
        s->work.append = true;
        break;
    case 'w':
        s->work.writes = true;
        break;
    case 'p':
        s->config.steps = true;
        break;
    case 'o':
        s->config.options = text;
        break;
    default:
        good = false;
    }
    return good;
}

static bool read_arguments(int argc, char **argv, struct setting *s)
{
    static const struct option options[] = {
        {"clients", required_argument, NULL, 'c'},
        {"count", required_argument, NULL, 'n'},
        {"transactions", required_argument, NULL, 't'},
        {"size", required_argument, NULL, 's'},
        {"append", no_argument, NULL, 'a'},
        {"write", no_argument, NULL, 'w'},
        {"batch", required_argument, NULL, 'b'},
        {"apart", required_argument, NULL, 'd'},
        {"steps", no_argument, NULL, 'p'},
        {"seed", required_argument, NULL, 'r'},
        {"bmi-options", required_argument, NULL, 'o'},
        {0},
    };
    static const char *const mode[] = {"postmark", "fileop", "tiles",
                                       "pieces",   "rows",   "regions"};
    static const unsigned count[] = {400, 400, 768, 4096, 1024, 32};
    static const unsigned batch[] = {1, 1, 64, 256, 256, 1};
    int c;

    s->work = (struct work){.clients = 1, .transactions = 2000, .seed = 1, .apart = 8192};
    for (s->work.mode = 0; argc > 1 && s->work.mode < FILES_MODES; s->work.mode++)
        if (strcmp(argv[1], mode[s->work.mode]) == 0)
            break;
    if (argc < 2 || s->work.mode == FILES_MODES)
        return false;
    s->work.count = count[s->work.mode];
    s->work.batch = batch[s->work.mode];
    s->work.size = s->work.mode == FILES_FILEOP ? 1 : 512;
    optind = 2;
    while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
        if (!set(s, c, optarg))
            return false;
    s->config.server = argv + optind;
    s->config.servers = (unsigned)(argc - optind);
    return s->config.servers > 0 && s->config.servers <= MAX_SERVERS;
}

int main(int argc, char **argv)
{
    struct setting s = {0};

    if (!read_arguments(argc, argv, &s)) {
        fputs(usage, stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror("files: memory");
        return 1;
    }
    return run(&s);
}

unsigned files_home(const struct files *files, const char *name)
{
    unsigned hash = 2166136261u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return (hash >> 16) % files->servers;
}

struct files_piece files_cut(const struct files *files, struct files_piece *piece,
                             unsigned *server)
{
    uint64_t strip = piece->offset / FILES_STRIP, in = piece->offset % FILES_STRIP;
    uint64_t length = FILES_STRIP - in < piece->length ? FILES_STRIP - in : piece->length;
    struct files_piece cut = {strip / files->servers * FILES_STRIP + in, length, piece->memory};

    *server = (unsigned)(strip % files->servers);
    piece->offset += length;
    piece->length -= length;
    piece->memory += length;
    return cut;
}
