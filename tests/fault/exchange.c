/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One of two processes that exchange a few messages of every protocol, several times, while a
 * fault may be injected into one of them: exchange server|client PORT CONTROL-FD
 *
 * A round has operations that are posted, and operations that are posted and then cancelled.
 * Every operation must end exactly once. If one fails, the round has failed: both sides cancel
 * their operations, notify each other over the control socket (which no fault affects), and
 * start the next round. The process exits with 0 when
 *
 * - no operation was reported twice or exceeded the deadline, and received data equals sent
 *   data,
 * - no three rounds in a row have failed: after a fault the exchange works again once both
 *   sides have noticed it. A sanitizer, or the census of the software HCA, reports leaks.
 *
 * EXCHANGE_OPTIONS adds options of the engine; EXCHANGE_VERBOSE=1 prints all log lines. With
 * EXCHANGE_REFUSED=1 the client first sends three times to an address where no server listens.
 *
 * The program itself allocates nothing: every allocation counted by alloc_fault.c is one of the
 * libraries.
 */
#include "config.h"
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "alloc_fault.h"
#include "bmi_ib/bmi_ib.h"
#include "rme.h"

#define MIN_ROUNDS 2
/* most rounds that fail by a fault: the other side may notice the lost link only at its next
 * use */
#define ROUNDS_LOST 2
#define OPEN_TRIES  3
#define DEADLINE_MS 10000
#define MAX_OPS     32
#define MAX_PIECES  64
#define LARGE       300000
#define LIST_PIECES 16
#define LIST_PIECE  5000
#define ZONE_BYTES  65536
#define OPTIONS                                                                                \
    "connect_timeout_ms=1500,peer_timeout_ms=2000,keepalive_ms=300,"                           \
    "backoff_max_ms=50,poll_us=0,fragment_bytes=128K,"

/* Messages between the sides over the control socket. */
enum word {
    WORD_READY = 'r', /* the server is listening */
    WORD_START = 's', /* a round may begin */
    WORD_ABORT = 'a', /* an operation of the sender's failed */
    WORD_GOOD = 'g',  /* all operations succeeded */
    WORD_BAD = 'b',   /* all operations ended, some failed */
};

enum kind { SEND, RECV, UNEXPECTED };

struct op {
    const char *name;
    enum kind kind;
    rme_id id;
    int32_t tag;
    int may;        /* another permitted error, or 0 */
    bool to_cancel; /* that error is -ECANCELED: only a cancel ends it */
    bool ended;
    int error;
    int64_t actual, expected;
    int pieces;
    void *base[MAX_PIECES];
    int64_t length[MAX_PIECES];
};

struct side {
    bool server;
    int control;
    int port;
    struct rme *rme;
    struct rme_addr *peer; /* in this round */
    struct op op[MAX_OPS];
    int nops;
    int round;
    bool failed;  /* in this round */
    bool aborted; /* the peer was notified */
    bool cancelling;
    char verdict;      /* the peer's result, 0 until received */
    int requests;      /* unexpected messages received by the server in this round */
    bool rail_missing; /* opened without a device, which alone may reach the peer */
    char *zone;
};

static struct side self;
static char memory[16 << 20];
static size_t memory_used;

/* ---- helpers ---- */

static int64_t now_ms(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

/* Ends the process: the test has failed. */
static void wrong(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s, round %d: WRONG: ", self.server ? "server" : "client", self.round);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    _exit(1);
}

static void say(enum word word)
{
    char data[2] = {(char)word, (char)self.round};

    if (send(self.control, data, sizeof(data), MSG_NOSIGNAL) != (ssize_t)sizeof(data))
        wrong("the other process is gone");
}

/* Returns a message of the peer, 0 if there is none; waits if requested. */
static char hear(bool wait)
{
    char data[2];
    ssize_t got = recv(self.control, data, sizeof(data), wait ? 0 : MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got != (ssize_t)sizeof(data))
        wrong("the other process is gone");
    return data[1] == (char)self.round ? data[0] : 0;
}

static void await(char word)
{
    while (hear(true) != word)
        ;
}

static unsigned char mark(int32_t tag, int64_t at)
{
    return (unsigned char)((uint64_t)tag * 131u + (uint64_t)at * 7u + (uint64_t)at / 251u);
}

static void fill(const struct op *op, bool check)
{
    int64_t at = 0;

    for (int i = 0; i < op->pieces; i++) {
        unsigned char *piece = op->base[i];

        for (int64_t k = 0; k < op->length[i] && at < op->expected; k++, at++) {
            if (!check)
                piece[k] = mark(op->tag, at);
            else if (piece[k] != mark(op->tag, at))
                wrong("%s: byte %lld of %lld is wrong", op->name, (long long)at,
                      (long long)op->expected);
        }
    }
}

static void log_line(void *arg, enum rme_log_level level, const char *line)
{
    (void)arg;
    self.rail_missing |= level <= RME_LOG_WARN && strstr(line, " not used: ") != NULL;
    if (level <= RME_LOG_WARN || getenv("EXCHANGE_VERBOSE") != NULL)
        fprintf(stderr, "%s, round %d, %lld ms: log: %s\n", self.server ? "server" : "client",
                self.round, (long long)(now_ms() % 1000000), line);
}

/* ---- operations ---- */

static void ends(struct op *op, int error, int64_t actual)
{
    if (op->ended)
        wrong("%s was reported twice", op->name);
    op->ended = true;
    op->error = error;
    op->actual = actual;
    if (error == 0 && op->kind == RECV) {
        if (op->may == -EMSGSIZE)
            wrong("%s took what is too large for it", op->name);
        if (actual != op->expected)
            wrong("%s brought %lld bytes instead of %lld", op->name, (long long)actual,
                  (long long)op->expected);
        fill(op, true);
    }
    if (error != 0 && error != op->may) {
        fprintf(stderr, "%s, round %d: %s ended with %s\n", self.server ? "server" : "client",
                self.round, op->name, strerror(-error));
        self.failed = true;
    }
}

/* Posts an operation with pieces of `piece` bytes each, in plain memory, or in one piece of the
 * zone. */
static void post(const char *name, enum kind kind, int tag, int64_t bytes, int pieces,
                 bool zone, int may)
{
    struct op *op = &self.op[self.nops++];
    struct rme_list list;
    int64_t actual = 0;
    int ret;

    memset(op, 0, sizeof(*op));
    op->name = name;
    op->kind = kind;
    op->tag = self.round * 1000 + tag;
    op->may = may;
    op->to_cancel = may == -ECANCELED;
    op->expected = bytes;
    op->pieces = pieces;
    for (int i = 0; i < pieces; i++) {
        op->length[i] = bytes / pieces;
        op->base[i] = zone ? self.zone : memory + memory_used;
        memory_used += zone ? 0 : (size_t)op->length[i] + 100;
    }
    op->length[pieces - 1] += bytes % pieces;
    memory_used += (size_t)pieces;
    if (memory_used > sizeof(memory))
        wrong("the test's own memory is too small");
    if (kind != RECV)
        fill(op, false);
    list = (struct rme_list){.base = op->base, .length = op->length, .count = pieces};
    if (kind == SEND)
        ret = rme_post_send(self.rme, self.peer, &list, op->tag, 0, op, &op->id);
    else if (kind == UNEXPECTED)
        ret = rme_post_unexpected(self.rme, self.peer, &list, op->tag, 0, op, &op->id);
    else
        ret = rme_post_recv(self.rme, self.peer, &list, op->tag, 0, op, &actual, &op->id);
    if (ret == 1 && kind == RECV)
        wrong("%s: a receive was complete at once", name);
    if (ret > 1)
        wrong("%s: posting returned %d", name, ret);
    if (ret != 0)
        ends(op, ret < 0 ? ret : 0, bytes);
}

static void post_client(void)
{
    post("receive of the small reply", RECV, 1, 64, 1, false, 0);
    post("receive of the list", RECV, 6, LIST_PIECES * LIST_PIECE, LIST_PIECES - 3, false, 0);
    post("receive of the large reply", RECV, 4, LARGE, 1, false, 0);
    post("small request", UNEXPECTED, 10, 64, 1, false, 0);
    post("large request", UNEXPECTED, 11, RME_UNEXPECTED_MAX, 3, false, 0);
    post("eager send", SEND, 2, 1000, 2, false, 0);
    post("large send", SEND, 3, LARGE, 1, false, 0);
    post("list send", SEND, 5, LIST_PIECES * LIST_PIECE, LIST_PIECES, false, 0);
    if (self.zone != NULL)
        post("send from the zone", SEND, 7, ZONE_BYTES, 1, true, 0);
    else
        post("send from plain memory", SEND, 7, ZONE_BYTES, 1, false, 0);
    post("send that is too large", SEND, 8, 900, 1, false, -EMSGSIZE);
    post("receive to be cancelled", RECV, 50, LARGE, 1, false, -ECANCELED);
    post("large send to be cancelled", SEND, 51, LARGE, 1, false, -ECANCELED);
}

static void post_server(void)
{
    post("send of the small reply", SEND, 1, 64, 1, false, 0);
    post("eager receive", RECV, 2, 1000, 1, false, 0);
    post("large receive", RECV, 3, LARGE, 1, false, 0);
    post("send of the large reply", SEND, 4, LARGE, 1, false, 0);
    post("list receive", RECV, 5, LIST_PIECES * LIST_PIECE, LIST_PIECES + 5, false, 0);
    post("send of the list", SEND, 6, LIST_PIECES * LIST_PIECE, LIST_PIECES, false, 0);
    if (self.zone != NULL)
        post("receive into the zone", RECV, 7, ZONE_BYTES, 1, true, 0);
    else
        post("receive into plain memory", RECV, 7, ZONE_BYTES, 1, false, 0);
    post("receive that is too small", RECV, 8, 100, 1, false, -EMSGSIZE);
    post("receive to be cancelled", RECV, 52, LARGE, 1, false, -ECANCELED);
    post("large send to be cancelled", SEND, 53, LARGE, 1, false, -ECANCELED);
}

/* Takes requests; their sender is the server's peer of this round. */
static void take_requests(void)
{
    struct rme_unexpected got[4];
    int count = rme_test_unexpected(self.rme, got, 4, 0);

    if (count < 0)
        wrong("rme_test_unexpected returned %d", count);
    for (int i = 0; i < count; i++) {
        struct op expected = {
            .name = "request", .tag = got[i].tag, .expected = got[i].size, .pieces = 1};
        bool of_this_round = got[i].tag / 1000 == self.round;

        expected.base[0] = got[i].buffer;
        expected.length[0] = got[i].size;
        fill(&expected, true);
        if (got[i].size != (got[i].tag % 1000 == 10 ? 64 : RME_UNEXPECTED_MAX))
            wrong("a request of %lld bytes", (long long)got[i].size);
        if (rme_unexpected_free(self.rme, got[i].buffer) != 0)
            wrong("rme_unexpected_free failed");
        if (got[i].first && self.peer != got[i].addr && self.peer != NULL) {
            rme_addr_free(self.peer);
            self.peer = NULL;
        }
        if (self.peer == NULL)
            self.peer = got[i].addr;
        if (of_this_round && ++self.requests == 1 && !self.failed)
            post_server();
    }
}

static bool all_ended(bool those_to_cancel)
{
    for (int i = 0; i < self.nops; i++)
        if (!self.op[i].ended && (those_to_cancel || !self.op[i].to_cancel))
            return false;
    return true;
}

static void cancel_all(void)
{
    for (int i = 0; i < self.nops; i++)
        if (!self.op[i].ended && rme_cancel(self.rme, self.op[i].id) != 0)
            wrong("rme_cancel of %s failed", self.op[i].name);
}

static void progress(void)
{
    struct rme_done done[8];
    int count = rme_test_context(self.rme, 0, done, 8, 5);

    if (count < 0)
        wrong("rme_test_context returned %d", count);
    for (int i = 0; i < count; i++) {
        struct op *op = done[i].user;

        if (op < self.op || op >= self.op + self.nops || op->id != done[i].id)
            wrong("a completion of an operation that is not of this round");
        ends(op, done[i].error, done[i].actual);
    }
}

/* ---- a round ---- */

static void listen_to_peer(void)
{
    char word = hear(false);

    if (word == WORD_GOOD || word == WORD_BAD)
        self.verdict = word;
    if (word == WORD_ABORT || word == WORD_BAD)
        self.failed = true;
}

static void too_late(const char *what)
{
    for (int i = 0; i < self.nops; i++)
        if (!self.op[i].ended)
            fprintf(stderr, "%s, round %d: not ended: %s\n", self.server ? "server" : "client",
                    self.round, self.op[i].name);
    wrong("%s took more than %d ms", what, DEADLINE_MS);
}

/* Polls until all operations have ended. When the round fails, or only operations to be
 * cancelled are left, cancels the rest. */
static void work(int64_t deadline)
{
    bool cancelled = false, cancelled_all = false;

    for (;;) {
        bool posted = self.nops > 0 || self.failed;

        progress();
        listen_to_peer();
        if (self.server)
            take_requests();
        if (self.failed && !self.aborted) {
            say(WORD_ABORT);
            self.aborted = true;
        }
        if (posted && all_ended(true) && (!self.server || self.failed || self.requests >= 2))
            return;
        if (self.failed && !cancelled_all) {
            cancel_all();
            cancelled_all = true;
        } else if (posted && !cancelled && all_ended(false)) {
            cancel_all();
            cancelled = true;
        }
        if (now_ms() > deadline)
            too_late("a round");
    }
}

/* Returns true if both sides report success. */
static bool run_round(void)
{
    int64_t deadline;

    self.nops = self.requests = 0;
    self.failed = self.aborted = false;
    self.verdict = 0;
    memory_used = 0;
    say(WORD_START);
    await(WORD_START);
    deadline = now_ms() + DEADLINE_MS;
    if (!self.server)
        post_client();
    work(deadline);
    say(self.failed ? WORD_BAD : WORD_GOOD);
    while (self.verdict == 0) { /* the peer may still need progress of this side */
        progress();
        if (self.server)
            take_requests();
        listen_to_peer();
        if (now_ms() > deadline)
            too_late("the other side's round");
    }
    return !self.failed && self.verdict == WORD_GOOD;
}

/* ---- the process ---- */

static void open_engine(void)
{
    char text[64], options[1024];
    const char *more = getenv("EXCHANGE_OPTIONS");
    struct rme_addr *addr = NULL;
    struct rme_config config = {.fabric = bmi_ib_fabric(), .log = log_line};
    int ret = -1;

    snprintf(options, sizeof(options), OPTIONS "rndv=%s,%s", self.server ? "read" : "write",
             more != NULL ? more : "");
    config.options = options;
    /* over two devices: an address of each, as one of them may not open */
    snprintf(text, sizeof(text),
             getenv("EXCHANGE_REFUSED") != NULL ? "ib://127.0.0.1:%d,ib://127.0.0.2:%d"
                                                : "ib://127.0.0.1:%d",
             self.port, self.port);
    for (int try = 0; try < OPEN_TRIES && ret != 0; try++) {
        if (addr == NULL && rme_addr_parse("ib", text, &addr) != 0)
            continue;
        config.listen = self.server ? addr : NULL;
        self.rail_missing = false;
        ret = rme_open(&config, &self.rme);
        if (ret == 0) {
            ret = self.rail_missing ? -ENODEV : rme_context_open(self.rme, 0);
            if (ret != 0)
                rme_close(self.rme);
        }
        if (ret != 0)
            fprintf(stderr, "%s: opening failed: %s\n", self.server ? "server" : "client",
                    strerror(-ret));
    }
    if (ret != 0)
        wrong("the engine cannot be opened after %d attempts", OPEN_TRIES);
    if (self.server)
        rme_addr_free(addr);
    else
        self.peer = addr;
    self.zone = rme_memory_alloc(self.rme, ZONE_BYTES);
}

static void close_engine(void)
{
    if (self.zone != NULL && rme_memory_free(self.rme, self.zone) != 0)
        wrong("rme_memory_free failed");
    rme_close(self.rme);
    if (self.peer != NULL)
        rme_addr_free(self.peer);
}

/* Sends to nobody: the send ends with an error, and the link is freed. */
static void be_refused(void)
{
    struct rme_addr *nobody, *peer = self.peer;
    int64_t deadline = now_ms() + DEADLINE_MS;

    if (rme_addr_parse("ib", "ib://127.0.0.1:1", &nobody) != 0)
        return;
    self.peer = nobody;
    self.nops = 0;
    post("request to nobody", UNEXPECTED, 10, 64, 1, false, 0);
    while (!all_ended(true)) {
        progress();
        if (now_ms() > deadline)
            too_late("a refusal");
    }
    if (self.op[0].error == 0)
        wrong("nobody took the request");
    self.peer = peer;
    rme_addr_free(nobody);
}

int main(int argc, char **argv)
{
    const char *kth = getenv("FAULT_ALLOC"), *role = getenv("FAULT_ROLE");
    bool good = true;
    int failed_in_a_row = 0;

    if (argc != 4) {
        fprintf(stderr, "usage: %s server|client PORT CONTROL-FD\n", argv[0]);
        return 2;
    }
    self.server = strcmp(argv[1], "server") == 0;
    self.port = atoi(argv[2]);
    self.control = atoi(argv[3]);
    if (kth != NULL && role != NULL && strcmp(role, argv[1]) == 0)
        alloc_fault_start(strtoul(kth, NULL, 10));

    if (!self.server)
        await(WORD_READY);
    open_engine();
    if (self.server)
        say(WORD_READY);
    for (int i = 0; i < 3 && !self.server && getenv("EXCHANGE_REFUSED") != NULL; i++)
        be_refused(); /* each link begins with another device */
    for (self.round = 1; self.round <= MIN_ROUNDS || !good; self.round++) {
        good = run_round();
        failed_in_a_row = good ? 0 : failed_in_a_row + 1;
        if (failed_in_a_row > ROUNDS_LOST)
            wrong("this round failed and the %d before it too", ROUNDS_LOST);
    }
    close_engine();
    fprintf(stderr, "%s: %d rounds, %lu allocations%s\n", argv[1], self.round - 1,
            alloc_fault_count(), alloc_fault_hit() ? ", fault injected" : "");
    return 0;
}
