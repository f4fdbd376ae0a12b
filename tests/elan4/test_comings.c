/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Clients that come and go, and clients that are killed: test_comings [COME [KILLED]]
 *
 * The first clients join in order, exchange data, and leave. The others are killed, some at a
 * step of their interface, some at a random moment. Afterwards the server must be in its
 * initial state: no links, all packets and transfers free, slots and lists empty, all contexts
 * except its own free in the log, which has not grown, no more descriptors, and the next client
 * is served. The next client is also served when a foreign process has released its lock on the
 * log.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
#include "emul/elan4/knobs.h"
#include "tests/elan4/sides.h"

#define PIECES 12
#define EACH   5000

static int come = 60, killed = 33; /* numbers in make check */

static const char *const step[] = {
#define X(NAME, name) #name,
    EMU4_STEPS(X)
#undef X
};

/* Memory shared by both processes. */
struct shared {
    struct rme_mr mr;
    uint8_t memory[PIECES * EACH];
};
static struct shared *sh;

static int descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static void transfer(struct side *s, struct rme_rdma_op *x, bool read)
{
    static uint8_t here[PIECES * EACH];
    static struct rme_sge seg[PIECES];
    static struct rme_rdma_seg piece[PIECES];

    for (int i = 0; i < PIECES; i++) {
        seg[i] = (struct rme_sge){here + (size_t)i * EACH, EACH, 0};
        piece[i] = (struct rme_rdma_seg){
            (uintptr_t)sh->memory + (size_t)(PIECES - 1 - i) * EACH, sh->mr.rkey, &seg[i], 1};
    }
    *x = (struct rme_rdma_op){.read = read,
                              .notify = RME_NOTIFY_IMM,
                              .imm = 9,
                              .piece = piece,
                              .npiece = PIECES,
                              .bytes = sizeof(here)};
    if (read) {
        x->notify = RME_NOTIFY_MSG;
        x->tx = ops->tx_get(s->link);
        assert_non_null(x->tx);
        strcpy(x->tx, "read");
        x->tx_length = 5;
    }
    ops->rdma_op(s->link, x);
    ops->flush(s->f);
}

/* Runs a client from start to end. Polls `other`, too, if one thread plays both. */
#define ASK_MS 1000 /* interval of repeated requests, like an engine's */

/* Connects, with repeated requests: after many deaths there may be no room for a while. */
static void get_in(struct side *me, struct side *other)
{
    uint64_t next = 0;
    int asked = 0;

    while (me->count[RME_EV_LINK_UP] == 0) {
        if (asked > me->count[RME_EV_LINK_DOWN] && guard_ms() >= next) {
            ops->link_disconnect(me->link, -ETIMEDOUT);
            until(me, other, RME_EV_LINK_DOWN, asked);
        }
        if (asked == me->count[RME_EV_LINK_DOWN] && me->count[RME_EV_LINK_UP] == 0) {
            dial(me, "elan4://0:2");
            next = guard_ms() + ASK_MS;
            asked++;
        }
        poll_side(me);
        if (other != NULL)
            poll_side(other);
    }
    me->count[RME_EV_LINK_DOWN] = 0;
}

static void session(struct side *me, struct side *other)
{
    struct rme_rdma_op x;

    open_side(me, NULL, "");
    get_in(me, other);
    say(me, "hello");
    transfer(me, &x, false);
    until(me, other, RME_EV_RDMA_DONE, 1);
    transfer(me, &x, true);
    until(me, other, RME_EV_RDMA_DONE, 2);
    ops->link_disconnect(me->link, -ESHUTDOWN);
    until(me, other, RME_EV_LINK_DOWN, 1);
    close_side(me);
}

/* Opens a server on the shared memory. */
static void begin(struct side *server, const char *more)
{
    char options[100];

    snprintf(options, sizeof(options), "elan_quarantine_ms=100%s", more);
    open_side(server, "elan4://0:2", options);
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
    assert_int_equal(
        ops->reg(server->f, sh->memory, sizeof(sh->memory), RME_ACCESS_REMOTE_WRITE, &sh->mr),
        0);
}

/* Waits until all links have ended. Sends on them, because a side that sends nothing does not
 * notice a dead peer. */
static void until_alone(struct side *server)
{
    uint64_t again = 0;
    struct rme_link *l;

    while (!list_empty(&server->f->links)) {
        poll_side(server);
        if (guard_ms() < again)
            continue;
        again = guard_ms() + 20;
        list_for_each(l, &server->f->links, all)
            if (l->state == ELAN_UP_STATE) {
                char *tx = ops->tx_get(l);
                if (tx != NULL)
                    ops->tx_send(l, strcpy(tx, "anybody"), 8);
            }
        ops->flush(server->f);
    }
}

static void all_contexts_free(struct side *server)
{
    struct bmi_elan4_nic *nic = server->f->nic;
    uint64_t owner;

    for (int c = nic->range.low_context; c <= nic->range.high_context; c++)
        assert_int_equal(bmi_elan4_log_owner(nic->log, c, &owner), c == nic->context);
}

static off_t log_bytes(void)
{
    char path[500];
    struct stat st;

    snprintf(path, sizeof(path), "%s/log/node-0", folder);
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* Checks that nothing is in use. */
static void back_to_the_start(struct side *server)
{
    struct rme_fabric *f = server->f;
    const struct list_head *lists[] = {&f->links,   &f->eventful, &f->dirty,  &f->ready,
                                       &f->sending, &f->ending,   &f->wanting};
    struct elan_dma *d;
    uint32_t n[ELAN_POOLS] = {0};

    for (int i = 0; i < 128; i++) /* unused resources are collected now and then */
        poll_side(server);
    for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        assert_true(list_empty(lists[i]));
    for (unsigned i = 0; i < ELAN_LINKS; i++)
        assert_null(f->table[i]);
    assert_true(list_empty(&f->orphans));
    assert_null(bmi_elan4_inbox_peek(f->inbox));
    assert_int_equal(f->norphans + f->kept_moves + f->answers.taken, 0);
    assert_int_equal(f->active.taken + f->places.taken, 0);
    assert_int_equal(f->asking, 0);
    assert_int_equal(server->stats.value[RME_C_QUARANTINED], 0);
    for (unsigned i = 0; i < ELAN_POOLS; i++) {
        list_for_each(d, &f->free[i], next)
            n[i]++;
    }
    assert_int_equal(n[ELAN_TX], f->tx_count);
    assert_int_equal(n[ELAN_MOVE], f->nmove);
    for (unsigned vp = 0; vp < BMI_ELAN4_MAX_VPS; vp++)
        assert_int_equal(f->account[vp].out + f->account[vp].former + f->active.of[vp], 0);
    all_contexts_free(server);
}

static void come_and_go(void **state)
{
    struct side server, client;
    int fds = 0;
    off_t bytes = 0;
    (void)state;
    begin(&server, "");
    for (int i = 0; i < come; i++) {
        session(&client, &server);
        until_alone(&server);
        assert_int_equal(server.f->nmove, 0); /* only clients make them */
        if (i > 0)
            continue;
        fds = descriptors();
        bytes = log_bytes();
    }
    back_to_the_start(&server);
    assert_int_equal(log_bytes(), bytes);
    /* bounded by concurrency, not by the number of clients */
    assert_in_range(server.f->tx_count, 1, 40);
    assert_int_equal(descriptors(), fds);
    assert_int_equal(server.count[RME_EV_LINK_UP], come);
    assert_int_equal(server.count[RME_EV_LINK_DOWN], come);
    close_side(&server);
}

/* Chooses where the i-th client is killed. */
static void set_death(int i, int *after)
{
    char die[60];

    *after = -1;
    unsetenv("EMUELAN4_DIE");
    if (i % 3 == 2) { /* by the server, after a number of polls */
        *after = i * 7 % 400;
        return;
    }
    snprintf(die, sizeof(die), "%s:%d",
             step[(size_t)(i / 3) % (sizeof(step) / sizeof(step[0]))], 1 + i * 5 % 37);
    setenv("EMUELAN4_DIE", die, 1);
}

/* Lets the next owner of the context stay for a while, and send now and then. */
static void until_given_back(struct side *server)
{
    struct side client;

    open_side(&client, NULL, "");
    get_in(&client, server);
    while (server->f->norphans + server->f->kept_moves) {
        int before = server->count[RME_EV_RECV];
        say(&client, "still here");
        until(server, &client, RME_EV_RECV, before + 1);
        for (int i = 0; i < 64; i++) {
            poll_side(&client);
            poll_side(server);
        }
    }
    assert_int_equal(server->stats.value[RME_C_QUARANTINED], 0);
    ops->link_disconnect(client.link, -ESHUTDOWN);
    until(&client, server, RME_EV_LINK_DOWN, 1);
    close_side(&client);
    until_alone(server);
}

/* Remains of dead clients delay the next one no longer than necessary. */
static void killed_anywhere(void **state)
{
    struct side server, client;
    int fds, after, st, died = 0;
    off_t bytes;
    (void)state;
    begin(&server, ",elan_tx_buffers=64");
    session(&client, &server);
    until_alone(&server);
    fds = descriptors();
    bytes = log_bytes();
    for (int i = 0; i < killed; i++) {
        set_death(i, &after);
        pid_t pid = fork_quietly();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(60);
            session(&client, NULL);
            _exit(0);
        }
        for (int k = 0;; k++) {
            pid_t got = waitpid(pid, &st, WNOHANG);
            assert_true(got >= 0);
            if (got == pid)
                break;
            if (k == after)
                kill(pid, SIGKILL);
            poll_side(&server);
        }
        assert_true(WIFSIGNALED(st) ? WTERMSIG(st) == SIGKILL : WEXITSTATUS(st) == 0);
        died += WIFSIGNALED(st);
        until_alone(&server);
        all_contexts_free(&server);
    }
    unsetenv("EMUELAN4_DIE");
    printf("%d of %d died, %u buffers are kept, %u packets and %u transfers were made\n", died,
           killed, server.f->norphans, server.f->tx_count, server.f->nmove);
    assert_true(died > 0);
    until_given_back(&server);
    back_to_the_start(&server);
    assert_int_equal(log_bytes(), bytes);
    assert_int_equal(descriptors(), fds);
    close_side(&server);
}

/* ---- A foreign lock ---- */

static char error_line[400];

static void note_error(void *arg, enum rme_log_level level, const char *format, ...)
{
    va_list ap;
    (void)arg;

    va_start(ap, format);
    if (level == RME_LOG_ERROR)
        vsnprintf(error_line, sizeof(error_line), format, ap);
    va_end(ap);
}

/* A process outside of the network locks the node's whole log, as a process or by an open file.
 * A client that joins meanwhile gets an error, and a later one is served. */
static void kept_out_by_a_lock(int command, const char *told)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const struct rme_option_row *tables[] = {rme_engine_options, ops->options};
    struct rme_options *options = rme_options_new(tables, 2);
    char path[300], number[24], byte;
    struct side before;
    struct rme_fabric *f;
    int ready[2], st;

    snprintf(path, sizeof(path), "%s/log/node-0", folder);
    open_side(&before, NULL, ""); /* creates the file */
    close_side(&before);
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork_quietly();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(path, O_RDWR);
        if (fcntl(fd, command, &lock) < 0 || write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct rme_fabric_config config = {
        .rx_size = 4096, .options = options, .stats = &before.stats, .log = note_error};
    assert_int_equal(ops->open(&config, &f), -EBUSY);
    snprintf(number, sizeof(number), "number %ld", (long)pid);
    assert_non_null(strstr(error_line, told != NULL ? told : number));
    assert_non_null(strstr(error_line, path));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(ops->open(&config, &f), 0);
    ops->close(f);
    close(ready[0]);
    close(ready[1]);
    rme_options_free(options);
}

static void process_lock_keeps_server_out(void **state)
{
    (void)state;
    kept_out_by_a_lock(F_SETLK, NULL);
}

static void open_file_lock_keeps_server_out(void **state)
{
    (void)state;
    kept_out_by_a_lock(F_OFD_SETLK, "number -1");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(come_and_go),
        cmocka_unit_test(killed_anywhere),
        cmocka_unit_test(process_lock_keeps_server_out),
        cmocka_unit_test(open_file_lock_keeps_server_out),
    };

    if (argc > 1)
        come = atoi(argv[1]);
    if (argc > 2)
        killed = atoi(argv[2]);
    sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (come < 1 || killed < 1 || sh == MAP_FAILED)
        return 2;
    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
