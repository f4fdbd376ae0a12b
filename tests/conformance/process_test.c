/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Peers in other processes, some of which are killed. The program starts itself with --peer as
 * a server that executes the commands of unexpected messages. Skipped over the loop fabric,
 * which is confined to one process.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cases.h"

/* Command to a peer, in native byte order: both are the same program. */
struct command {
    char what; /* R receive, S send, N nothing, Q close and exit */
    int32_t tag;
    int64_t size;
};

/* ---- The peer ---- */

struct chore {
    struct op op;
    struct blob blob;
};

static void chore_begin(struct node *n, struct rme_addr *from, const struct command *c)
{
    struct chore *chore = calloc(1, sizeof *chore);
    struct rme_list list;

    if (chore == NULL)
        exit(3);
    blob_flat(&chore->blob, (size_t)c->size);
    blob_fill(&chore->blob, (uint64_t)c->tag);
    list = blob_list(&chore->blob);
    rme_id id;
    int rc = c->what == 'R' ? rme_post_recv(n->rme, from, &list, c->tag, 0, chore, NULL, &id)
                            : rme_post_send(n->rme, from, &list, c->tag, 0, chore, &id);
    if (rc) {
        blob_free(&chore->blob);
        free(chore);
    }
}

int process_peer(const char *uri)
{
    struct node *n = node_open("peer", uri);
    struct rme_addr *known = NULL; /* the test's only client */

    puts("ready");
    fflush(stdout);
    for (;;) {
        struct rme_done done;
        struct rme_unexpected u;
        while (rme_test_unexpected(n->rme, &u, 1, 0) == 1) {
            struct command c;
            memcpy(&c, u.buffer, sizeof c);
            rme_unexpected_free(n->rme, u.buffer);
            if (u.first && known != NULL)
                rme_addr_free(known); /* the client has reconnected */
            known = u.addr;
            if (c.what == 'Q') {
                node_close(n);
                rme_addr_free(known);
                return 0;
            }
            if (c.what != 'N')
                chore_begin(n, u.addr, &c);
        }
        if (rme_test_context(n->rme, 0, &done, 1, 100) == 1) {
            struct chore *chore = done.user;
            blob_free(&chore->blob);
            free(chore);
        }
        if (getppid() == 1)
            return 1; /* the test has ended */
    }
}

/* ---- The test's side ---- */

static pid_t peer = -1;

static void peer_start(const char *uri)
{
    char line[16];
    int out[2];

    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    lane_settle(uri);
    peer = lane_spawn("--peer", uri, out[1]);
    close(out[1]);
    FILE *f = fdopen(out[0], "r");
    assert_non_null(f);
    char *got = fgets(line, sizeof line, f);
    fclose(f);
    if (got == NULL)
        fail_msg("the peer did not start");
    assert_string_equal(line, "ready\n");
}

static void peer_kill(void)
{
    if (peer <= 0)
        return;
    kill(peer, SIGKILL);
    kill(peer, SIGCONT);
    waitpid(peer, NULL, 0);
    peer = -1;
}

int process_setup(void **state)
{
    return bed_setup(state);
}

int process_teardown(void **state)
{
    peer_kill();
    visitors_kill();
    return bed_teardown(state);
}

static void only_with_processes(void)
{
    if (lane.is_loop)
        skip();
}

/* Sends a command to the peer; retries until the message has been sent completely. */
static void tell(struct node *n, struct rme_addr *to, char what, int tag, int64_t size)
{
    struct command c = {.what = what, .tag = tag, .size = size};
    struct blob b = {.count = 1, .base = {&c}, .length = {sizeof c}, .total = sizeof c};
    int64_t end = lane_now() + BED_PATIENCE_MS;
    struct op op;

    do {
        post_unexpected(&op, n, to, &b, tag);
        if (op.rc >= 0)
            pump_until_reported(&op);
    } while ((op.rc < 0 || op.error) && lane_now() < end);
    op_check(&op, sizeof c);
}

/* Sends a message to the peer and receives one. */
static void exchange(struct node *n, struct rme_addr *to, size_t size, int tag)
{
    struct blob out, in;
    struct op send, recv;

    blobs_flat(&out, &in, size, 0);
    post_recv(&recv, n, to, &in, tag);
    tell(n, to, 'R', tag, (int64_t)size);
    tell(n, to, 'S', tag, (int64_t)size);
    post_send(&send, n, to, &out, tag);
    pump_until_both(&recv, &send);
    op_check(&recv, (int64_t)size);
    op_check_blob(&send, &in, (uint64_t)tag, (int64_t)size);
    blob_free(&out);
    blob_free(&in);
}

CASE(process_exchange)
{
    static const size_t sizes[] = {0, 1, 64, 4000, 5000, 65536, 1000000, 5000000};

    only_with_processes();
    peer_start(lane_uri(0));
    struct node *n = node_open("client", NULL);
    struct rme_addr *to = node_dial(n, lane_uri(0));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        exchange(n, to, sizes[i], (int)i + 1);
    tell(n, to, 'Q', 0, 0);
    int status;
    assert_int_equal(waitpid(peer, &status, 0), peer);
    peer = -1;
    assert_int_equal(status, 0);
}

/* Kills the peer (SIGKILL) after a number of steps of each protocol, in both directions, and
 * starts a new server at the same address. */
static void killed_at_each_step(const char *options, char what, size_t size)
{
    enum { STRIDE = 3, STEPS = 60 };

    bed_options(options);
    struct node *n = node_open("client", NULL);
    struct rme_addr *to = node_dial(n, lane_uri(0));
    for (int k = 0; k < STEPS; k += STRIDE) {
        struct blob b;
        struct op op, other;
        peer_start(lane_uri(0));
        blob_flat(&b, size);
        blob_fill(&b, 7);
        if (what == 'S') {
            post_recv(&op, n, to, &b, 7);
            tell(n, to, 'S', 7, (int64_t)size);
        } else {
            tell(n, to, 'R', 7, (int64_t)size);
            post_send(&op, n, to, &b, 7);
        }
        post_recv(&other, n, to, &b, 8); /* no message is ever sent for this one */
        pump_times(k);
        peer_kill();
        pump_until_both(&op, &other);
        op_check_error(&op, 0, -ECONNRESET);
        op_check_error(&other, -ECONNRESET, -ECONNRESET);
        assert_false(rme_addr_is_dead(to));
        blob_canary(&b);
        pump_times(20);
        blob_check(&b, 0, 0);
        blob_free(&b);
    }
    peer_start(lane_uri(0));
    exchange(n, to, 100000, 9);
    assert_int_equal(node_counter(n, "ops_live"), 0);
    peer_kill();
    bed_again();
}

CASE(peer_killed_in_large_traffic)
{
    only_with_processes();
    killed_at_each_step("rndv=write,backoff_max_ms=20", 'S', 2000000);
    killed_at_each_step("rndv=read,backoff_max_ms=20", 'R', 2000000);
}

CASE(peer_killed_in_eager_traffic)
{
    only_with_processes();
    killed_at_each_step("backoff_max_ms=20", 'S', 500);
}

/* The peer is stopped first and uses up its credits, so nothing can be sent to it when it
 * dies. */
CASE(peer_killed_when_no_credit_is_left)
{
    enum { OPS = 600 };
    static struct op ops[OPS];
    struct blob in, out;

    only_with_processes();
    bed_options("keepalive_ms=100,backoff_max_ms=20");
    peer_start(lane_uri(0));
    struct node *n = node_open("client", NULL);
    struct rme_addr *to = node_dial(n, lane_uri(0));
    exchange(n, to, 100, 1);
    assert_int_equal(kill(peer, SIGSTOP), 0);
    blob_flat(&in, 100);
    blob_flat(&out, 100);
    blob_fill(&out, 3);
    post_recv(&ops[0], n, to, &in, 2);
    for (int i = 1; i < OPS; i++)
        post_send(&ops[i], n, to, &out, 3);
    pump_times(400);
    peer_kill();
    pump_until_all(ops, OPS);
    op_check_error(&ops[0], -ECONNRESET, -ECONNRESET);
    for (int i = 1; i < OPS; i++)
        op_check_error(&ops[i], 0, -ECONNRESET);
    op_check_error(&ops[OPS - 1], -ECONNRESET, -ECONNRESET);
}

/* Returns the bytes that a device of the software HCA has moved, by its functions for tests. */
static int64_t device_bytes(int device)
{
    char name[16];

    snprintf(name, sizeof name, "%d.1 bytes", device);
    return lane_counter(name);
}

/* Changes the device of a process (doc/emuverbs.md); returns when that is done. */
static void change_device(pid_t pid, const char *state)
{
    const char *wrapper = getenv("EMUVERBS");
    char command[256];

    snprintf(command, sizeof command, "%s --device %d emu0 %s",
             wrapper != NULL ? wrapper : "emul/verbs/emuverbs", pid, state);
    assert_int_equal(system(command), 0);
}

/* Posts sends and receives between the peer and blobs of the engine's memory, which are kept
 * over all rounds, and returns when all are reported. `during` is done meanwhile. */
static int transfers(struct node *n, struct rme_addr *to, struct blob *blobs, int count,
                     int first, void (*during)(pid_t pid), pid_t pid)
{
    static struct op ops[8];
    int failed = 0;

    for (int i = 0; i < count; i++) {
        blob_fill(&blobs[i], (uint64_t)(first + i));
        tell(n, to, i % 2 ? 'S' : 'R', first + i, blobs[i].total);
        if (i % 2)
            post_recv(&ops[i], n, to, &blobs[i], first + i);
        else
            post_send(&ops[i], n, to, &blobs[i], first + i);
    }
    pump_times(first % 7);
    if (during != NULL)
        during(pid);
    pump_until_all(ops, count);
    for (int i = 0; i < count; i++) {
        failed += ops[i].error != 0;
        if (ops[i].error == 0 && i % 2)
            blob_check(&blobs[i], (uint64_t)(first + i), blobs[i].total);
    }
    return failed;
}

static void reset_device(pid_t pid)
{
    change_device(pid, "removed");
    pump_times(10);
    change_device(pid, "added");
}

/* The device of one side is removed and comes back, several times, during transfers: these end,
 * later ones succeed, in memory that was registered with the first device. */
static void outlives(bool server)
{
    enum { OPS = 8, ROUNDS = 5, SIZE = 1000000 };
    static struct blob blobs[OPS];

    only_with_processes();
    if (!lane_is_emuverbs() ||
        getenv("EMUVERBS_DEVICES") != NULL) /* the other one carries on */
        skip();
    bed_options("rndv=write,keepalive_ms=100,peer_timeout_ms=2000,backoff_max_ms=20");
    peer_start(lane_uri(0));
    struct node *n = node_open("client", NULL);
    struct rme_addr *to = node_dial(n, lane_uri(0));
    for (int i = 0; i < OPS; i++)
        blob_zone(&blobs[i], n, SIZE);
    for (int k = 0; k < ROUNDS; k++) {
        transfers(n, to, blobs, OPS, 100 * k + 10, reset_device, server ? peer : getpid());
        /* if all were complete before the removal, these notice the end of the link */
        while (transfers(n, to, blobs, 2, 100 * k + 30, NULL, 0) > 0)
            continue;
        assert_int_equal(transfers(n, to, blobs, OPS, 100 * k + 60, NULL, 0), 0);
    }
    assert_true(node_counter(n, "reconnects") >= ROUNDS);
    for (int i = 0; i < OPS; i++)
        blob_free(&blobs[i]);
    assert_int_equal(node_counter(n, "ops_live"), 0);
}

CASE(client_outlives_its_device)
{
    outlives(false);
}

CASE(server_outlives_its_device)
{
    outlives(true);
}

/* The peer is stopped, not dead: its connection stays open, and the engine has to detect the
 * silence. */
CASE(silent_peer_times_out)
{
    struct op ops[2];
    struct blob b;

    only_with_processes();
    bed_options("keepalive_ms=100,peer_timeout_ms=1000,backoff_max_ms=20");
    peer_start(lane_uri(0));
    struct node *n = node_open("client", NULL);
    struct rme_addr *to = node_dial(n, lane_uri(0));
    exchange(n, to, 100, 1);
    assert_int_equal(kill(peer, SIGSTOP), 0);
    blob_flat(&b, 100000);
    post_recv(&ops[0], n, to, &b, 1);
    post_send(&ops[1], n, to, &b, 2);
    pump_until_all(ops, 2);
    for (int i = 0; i < 2; i++)
        op_check_error(&ops[i], -ETIMEDOUT, -ECONNRESET);
    peer_kill();
    peer_start(lane_uri(0));
    exchange(n, to, 100000, 1);
}

/* A client process is killed: the server, here the test itself, frees everything of it. */
CASE(client_process_killed)
{
    only_with_processes();
    bed_options(lane.nodes ? "peer_timeout_ms=1000" : NULL);
    struct node *server = node_open("server", lane_uri(0));
    for (int round = 0; round < 6; round++) {
        /* the death of a client on another Elan4 node is not reported: the client falls
         * silent */
        int error = lane_settle(NULL) ? -ETIMEDOUT : -ECONNRESET;
        pid_t child = lane_spawn("--guest", lane_uri(0), 1);
        pump_until_unexpected(server, 1);
        struct rme_unexpected u = inbox_take(server);
        struct op ops[2];
        struct blob b[2];
        blob_flat(&b[0], 3000000);
        blob_flat(&b[1], 3000000);
        post_recv(&ops[0], server, u.addr, &b[0], 1);
        post_send(&ops[1], server, u.addr, &b[1], 2);
        assert_int_equal(rme_unexpected_free(server->rme, u.buffer), 0);
        pump_times(round * 5);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        pump_until_all(ops, 2);
        for (int i = 0; i < 2; i++) {
            op_check_error(&ops[i], 0, error);
            blob_free(&b[i]);
        }
        int64_t end = lane_now() + BED_PATIENCE_MS;
        while (!rme_addr_is_dead(u.addr) && lane_now() < end)
            pump();
        assert_true(rme_addr_is_dead(u.addr));
        node_forget(u.addr);
        inbox_drop(server);
    }
    assert_int_equal(node_counter(server, "peers"), 0);
    assert_int_equal(node_counter(server, "ops_live"), 0);
}

/* Runs the client that is killed: sends a hello, sends, receives and waits. */
int process_guest(const char *uri)
{
    struct node *n = node_open("guest", NULL);
    struct rme_addr *to = node_dial(n, uri);
    static struct blob b[2];
    static struct op ops[3];

    blob_flat(&b[0], 3000000);
    blob_flat(&b[1], 3000000);
    post_send(&ops[0], n, to, &b[0], 1);
    post_recv(&ops[1], n, to, &b[1], 2);
    struct blob hello = {.count = 0};
    post_unexpected(&ops[2], n, to, &hello, 1);
    while (getppid() != 1)
        pump();
    return 1;
}

/* One of two devices fails during transfers: operations in progress end with or without an
 * error, later ones use the other device, and the peer need not notice. */
CASE(failed_device_traffic_moves_to_other_rail)
{
    enum { SIZE = 4000000, OPS = 8 };
    int (*change)(const char *, const char *) =
        (int (*)(const char *, const char *))(uintptr_t)dlsym(RTLD_DEFAULT, "emuverbs_device");
    const char *devices = getenv("EMUVERBS_DEVICES");
    static struct op ops[2 * OPS];
    static struct blob blobs[2 * OPS];
    int failed = 0;

    only_with_processes();
    if (change == NULL || devices == NULL || strcmp(devices, "2") != 0)
        skip();
    bed_options("rndv=write,keepalive_ms=100,peer_timeout_ms=2000,"
                "backoff_max_ms=20");
    peer_start(lane_uri(0));
    struct node *n = node_open("client", NULL);
    struct rme_addr *to = node_dial(n, lane_uri(0));
    int64_t second = device_bytes(1);
    exchange(n, to, SIZE, 1);
    int dead = device_bytes(1) > second ? 1 : 0;

    for (int i = 0; i < 2 * OPS; i++) {
        blob_flat(&blobs[i], SIZE);
        blob_fill(&blobs[i], (uint64_t)i + 10);
        tell(n, to, i % 2 ? 'S' : 'R', i + 10, SIZE);
        if (i % 2)
            post_recv(&ops[i], n, to, &blobs[i], i + 10);
        else
            post_send(&ops[i], n, to, &blobs[i], i + 10);
    }
    pump_times(3);
    assert_int_equal(change(dead ? "emu1" : "emu0", "failed"), 0);
    pump_until_all(ops, 2 * OPS);
    for (int i = 0; i < 2 * OPS; i++) {
        failed += ops[i].error != 0;
        if (ops[i].error == 0 && i % 2)
            blob_check(&blobs[i], (uint64_t)i + 10, SIZE);
    }
    assert_true(failed > 0);

    int64_t before[2] = {device_bytes(0), device_bytes(1)};
    exchange(n, to, SIZE, 2);
    assert_int_equal(device_bytes(dead), before[dead]);
    assert_true(device_bytes(!dead) - before[!dead] >= SIZE);
    assert_int_equal(node_counter(n, "ops_live"), 0);
}
