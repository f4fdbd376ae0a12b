/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Processes that continue as another program, or without their first thread. */
#include <pthread.h>
#include <sys/mman.h>

#include "tests/emul/cm_help.h"

/* Returns whether the first thread of this process has ended and is a zombie. */
static bool first_has_ended(void)
{
    char path[64], state = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", getpid(), getpid());
    FILE *f = fopen(path, "re");
    CHECK(f);
    CHECK_EQ(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
    fclose(f);
    return state == 'Z';
}

/* Receives messages, one of which the kernel copies, with a wake-up, and writes to itself. */
static void serve(struct side *s)
{
    s->use_chan = true;
    side_open(s);
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    post_recv(s, 1, 0, 8);
    post_recv(s, 2, 0, 100000);
    side_connect(s);
    take_event(s->chan);
    expect_wc(s->rcq, 1, IBV_WC_SUCCESS);
    expect_wc(s->rcq, 2, IBV_WC_SUCCESS);
    CHECK(is_pattern(s->buf, 100000, 3));
    CHECK(is_pattern(s->buf + 200000, 100000, 4));
    post_done(s, WRITE, 0, 50000, 0); /* to itself */
    side_leave(s);
    meet(s);
}

static struct side *orphan;
static void *orphan_main(void *unused)
{
    (void)unused;
    while (!first_has_ended())
        usleep(1000);
    serve(orphan);
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 3, 4);
    meet(orphan);
    struct rdma_cm_id *id = accept_one();
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    finished(id, l);
    _exit(0); /* LeakSanitizer does not find memory on the first thread's stack any more */
}

/* A process whose first thread has ended is accessible like any other. */
PAIR(process_without_first_thread_is_reached, run_two)
ACTIVE(process_without_first_thread_is_reached)
{
    if (is_watched()) /* valgrind does not see the first thread's stack */
        return;
    s->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    side_join(s);
    pattern(s->buf, 100000, 4);
    post_done(s, WRITE, 0, 100000, 200000);
    pattern(s->buf, 100000, 3);
    post_done(s, SEND, 0, 8, 0);
    post_done(s, SEND, 0, 100000, 0);
    post_done(s, READ, 500000, 100000, 200000);
    CHECK(is_pattern(s->buf + 500000, 100000, 4));
    meet(s);
    CHECK(is_pattern(s->buf, 50000, 3));
    side_leave(s);
    meet(s);
    struct rdma_cm_id *id = connect_to("127.0.0.1", PORT + 3);
    CHECK_EQ(rdma_disconnect(id), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    finished(id, NULL);
}
PASSIVE(process_without_first_thread_is_reached)
{
    static struct side mine;

    if (is_watched())
        return;
    mine = *s;
    orphan = &mine;
    spawn(orphan_main, NULL);
    pthread_exit(NULL);
}

/* A process executes another program. For its peers it has ended: none of their messages reach
 * the new program, which is another process for them. */
static void become(struct side *s)
{
    char sock[16], where[32], program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

    CHECK(n > 0);
    program[n] = 0;
    snprintf(sock, sizeof(sock), "%d", s->sock);
    snprintf(where, sizeof(where), "%p", (void *)s->buf);
    execl(program, "test_exec", "--again", sock, where, (char *)NULL);
    CHECK(!"exec");
}

static int again(int sock, unsigned char *where)
{
    struct side s = {.sock = sock};
    unsigned char *there = mmap(where, BUF_SIZE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    CHECK(there == where);
    meet(&s);
    meet(&s);
    for (unsigned i = 0; i < BUF_SIZE; i++)
        CHECK_EQ(there[i], 0);
    const char *preload = getenv("LD_PRELOAD");
    if (preload == NULL || strstr(preload, "libemuverbs") == NULL)
        return 0;
    side_open(&s);
    post_recv(&s, 1, 0, 64);
    side_connect(&s);
    expect_wc(s.rcq, 1, IBV_WC_SUCCESS);
    CHECK(is_pattern(s.buf, 64, 7));
    meet(&s);
    CHECK(is_pattern(s.buf + 4096, 100000, 7));
    side_close(&s);
    return 0;
}

__attribute__((constructor)) static void is_again(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "--again") == 0)
        exit(again(atoi(argv[2]), (unsigned char *)(uintptr_t)strtoull(argv[3], NULL, 0)));
}

static void first_life(struct side *s)
{
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 4, 4);

    side_open(s);
    for (unsigned i = 0; i < 4; i++)
        post_recv(s, i, 0, 8);
    side_connect(s);
    CHECK_EQ(system("true"), 0); /* an exec in a child has no effect */
    meet(s);
    accept_one();
    meet(s);
    (void)l;
}

static void survive(struct side *s, bool has_device)
{
    struct side other = {.sock = s->sock};

    side_join(s);
    meet(s);
    for (int i = 0; i < 2; i++) { /* the peer checks once a second */
        clock_step_ms(1000);
        settle();
    }
    clock_run();
    CHECK_EQ(counter("peers_died"), 0);
    struct rdma_cm_id *id = connect_to("127.0.0.1", PORT + 4);
    post_done(s, SEND, 0, 8, 0);
    post_recv(s, 9, 0, 8);
    meet(s);
    meet(s); /* the other program */
    memset(s->buf, 0x5a, 100000);
    post_send(s, 2, WRITE, 0, 100000, 0);
    expect_wc(s->scq, 2, IBV_WC_RETRY_EXC_ERR);
    expect_wc(s->rcq, 9, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    drop(id);
    meet(s);
    if (has_device) {
        side_join(&other);
        pattern(other.buf, 100000, 7);
        post_send(&other, 1, WRITE, 0, 100000, 4096);
        post_send(&other, 2, SEND, 0, 64, 0);
        expect_wc(other.scq, 1, IBV_WC_SUCCESS);
        expect_wc(other.scq, 2, IBV_WC_SUCCESS);
        meet(s);
        side_close(&other);
    }
    side_close(s);
    rdma_destroy_event_channel(chan);
}

PAIR(process_that_executes_another_is_dead, run_two)
ACTIVE(process_that_executes_another_is_dead)
{
    survive(s, true);
}
PASSIVE(process_that_executes_another_is_dead)
{
    first_life(s);
    become(s);
}
