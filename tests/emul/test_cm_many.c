/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The software HCA's connection manager: many connections, many processes, endpoints,
 * permission. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/emul/cm_help.h"
#include "tests/emul/stop.h"

static unsigned open_fds(void)
{
    unsigned n = 0;
    for (int fd = 0; fd < 20000; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}
static void thousand_times(struct side *s)
{
    const bool active = s->peer != 0;
    struct rdma_cm_id *l = active ? NULL : listen_at("127.0.0.1", PORT + 12, 4);
    unsigned before = 0;

    setenv("EMUVERBS_TIMEWAIT_MS", "0", 1);
    meet(s);
    for (int i = 0; i < 1000; i++) {
        struct rdma_cm_id *id = active ? connect_to("127.0.0.1", PORT + 12) : accept_one();
        if (active)
            CHECK_EQ(rdma_disconnect(id), 0);
        CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
        CHECK_EQ(rdma_disconnect(id), 0);
        drop(id);
        if (i == 10)
            before = open_fds();
    }
    CHECK_EQ(open_fds(), before);
    meet(s);
    if (l != NULL)
        drop(l);
    all_gone();
}
TWO(thousand_connections_leave_no_descriptors, run_two, thousand_times, thousand_times)

/* Many processes at once: each connects, sends one message that is checked, and disconnects. */
enum { CLIENTS = 200 };

static void one_client(void)
{
    struct rdma_cm_id *id = connect_to("127.0.0.1", PORT + 15);
    uint64_t me = (uint64_t)getpid();
    struct ibv_sge sge = {(uintptr_t)&me, sizeof(me), 0};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
    struct ibv_send_wr *bad;

    CHECK_EQ(ibv_post_send(id->qp, &wr, &bad), 0);
    expect_wc(id->send_cq, 1, IBV_WC_SUCCESS);
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    drop(id);
    exit(0);
}

TEST(two_hundred_processes_at_once)
{
    struct rdma_conn_param p = {.rnr_retry_count = 7};
    static uint64_t got[CLIENTS];
    struct ibv_mr *mr = NULL;
    pid_t pid[CLIENTS];
    struct ibv_wc wc;
    int ready[2];
    char c;

    CHECK_EQ(pipe(ready), 0);
    for (int i = 0; i < CLIENTS; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            close(ready[1]);
            CHECK_EQ(read(ready[0], &c, 1), 0);
            one_client();
        }
    }
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 15, CLIENTS);
    close(ready[0]);
    close(ready[1]);
    unsigned established = 0, gone = 0;
    while (gone < CLIENTS) {
        struct rdma_cm_event *e;
        CHECK(readable(chan->fd, 60000));
        CHECK_EQ(rdma_get_cm_event(chan, &e), 0);
        struct rdma_cm_id *id = e->id;
        enum rdma_cm_event_type type = e->event;
        rdma_ack_cm_event(e);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            give_qp(id);
            if (mr == NULL)
                mr = ibv_reg_mr(id->pd, got, sizeof(got), IBV_ACCESS_LOCAL_WRITE);
            CHECK(mr);
            struct ibv_sge sge = {(uintptr_t)&got[established], sizeof(got[0]), mr->lkey};
            struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
            CHECK_EQ(ibv_post_recv(id->qp, &wr, &bad), 0);
            CHECK_EQ(rdma_accept(id, &p), 0);
            established++;
        } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
            wc = wait_wc(id->recv_cq);
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
            CHECK_EQ(rdma_disconnect(id), 0);
        } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
            drop(id);
            gone++;
        }
    }
    uint64_t sum = 0;
    for (int i = 0; i < CLIENTS; i++) {
        int st;
        CHECK_EQ(waitpid(pid[i], &st, 0), pid[i]);
        CHECK_EQ(st, 0);
        sum += got[i] - (uint64_t)pid[i];
    }
    CHECK_EQ(sum, 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    finished(l, NULL);
}

/* A process of another user is not accessible; this is reported, and nothing crashes. */
PAIR(no_permission_is_a_clear_error, run_two)
static void ask_as_nobody(void *unused)
{
    (void)unused;
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    struct rdma_cm_id *id = ask(PORT + 16);
    CHECK_EQ(eat(RDMA_CM_EVENT_UNREACHABLE), -EPERM);
    drop(id);
}
ACTIVE(no_permission_is_a_clear_error)
{
    meet(s);
    if (geteuid() == 0) {
        CHECK(strstr(printed(ask_as_nobody, NULL), "/proc/sys/kernel/yama/ptrace_scope"));
        all_gone();
    }
    meet(s);
}
PASSIVE(no_permission_is_a_clear_error)
{
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 16, 1);

    meet(s);
    meet(s);
    finished(l, NULL);
}

PAIR(endpoints_work_without_channels, run_two)
static struct rdma_cm_id *endpoint(bool passive, int port)
{
    char service[16];
    struct rdma_addrinfo hints = {.ai_flags = passive ? RAI_PASSIVE : 0,
                                  .ai_port_space = RDMA_PS_TCP},
                         *res;
    struct ibv_qp_init_attr qi = {.cap = {4, 4, 1, 1, 16}, .sq_sig_all = 1};
    struct rdma_cm_id *id;

    snprintf(service, sizeof(service), "%d", port);
    CHECK_EQ(rdma_getaddrinfo("127.0.0.1", service, &hints, &res), 0);
    CHECK_EQ(rdma_create_ep(&id, res, NULL, &qi), 0);
    rdma_freeaddrinfo(res);
    return id;
}
static void expect_retries(struct rdma_cm_id *id, int retries, int rnr_retries)
{
    struct ibv_qp_init_attr qi;
    struct ibv_qp_attr qa;

    CHECK_EQ(ibv_query_qp(id->qp, &qa, IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY, &qi), 0);
    CHECK_EQ(qa.retry_cnt, retries);
    CHECK_EQ(qa.rnr_retry, rnr_retries);
}
ACTIVE(endpoints_work_without_channels)
{
    /* larger counts are set to the maximum */
    struct rdma_conn_param p = {.retry_count = 10, .rnr_retry_count = 9};
    struct rdma_cm_id *id = endpoint(false, PORT + 14);

    CHECK(rdma_connect(id, NULL) < 0); /* no listener there */
    CHECK_EQ(errno, ECONNREFUSED);
    rdma_destroy_ep(id);
    meet(s);
    for (int i = 0; i < 2; i++) {
        id = endpoint(false, PORT + 13);
        CHECK_EQ(rdma_connect(id, i ? &p : NULL), 0);
        expect_retries(id, 7, 7);
        CHECK_EQ(rdma_disconnect(id), 0);
        rdma_destroy_ep(id);
    }
    CHECK_EQ(counter("live_cm_id"), 0);
    CHECK_EQ(counter("live_cm_event"), 0);
    CHECK_EQ(counter("live_cq"), 0);
}
PASSIVE(endpoints_work_without_channels)
{
    struct rdma_cm_id *l = endpoint(true, PORT + 13), *id;
    struct rdma_conn_param p = {.rnr_retry_count = 8};

    CHECK_EQ(rdma_listen(l, 0), 0);
    meet(s);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(rdma_get_request(l, &id), 0);
        CHECK(id->qp);
        CHECK_EQ(rdma_accept(id, i ? &p : NULL), 0);
        expect_retries(id, 7, 7);
        rdma_disconnect(id);
        rdma_destroy_ep(id);
    }
    rdma_destroy_ep(l);
    CHECK_EQ(counter("live_cm_id"), 0);
    CHECK_EQ(counter("live_cm_event"), 0);
}

/* In a forked child the parent's ids do nothing, and do not disturb the child's own. */
TEST(ids_of_a_parent_process)
{
    struct rdma_cm_id *listener = listen_at("127.0.0.1", PORT + 13, 4), *id = new_id(NULL);
    struct sockaddr_in any = {.sin_family = AF_INET};
    struct rdma_event_channel *theirs = chan;
    struct rdma_cm_event *event;
    int st;

    pid_t pid = fork();
    CHECK(pid >= 0);
    for (int own = 0; pid == 0 && own < 2; own++) {
        struct rdma_cm_id *mine = NULL;
        if (own) {
            chan = NULL;
            mine = new_id(NULL);
        }
        CHECK(rdma_destroy_id(id) == -1 && errno == EIO);
        CHECK(rdma_destroy_id(listener) == -1 && errno == EIO);
        CHECK(rdma_listen(id, 4) == -1 && errno == EIO);
        CHECK(rdma_bind_addr(id, (struct sockaddr *)&any) == -1 && errno == EIO);
        CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&any, 100) == -1 && errno == EIO);
        CHECK(rdma_disconnect(id) == -1 && errno == EIO);
        CHECK(rdma_get_cm_event(theirs, &event) == -1 && errno == EIO);
        if (own) {
            CHECK(rdma_create_id(theirs, &id, NULL, RDMA_PS_TCP) == -1 && errno == EIO);
            drop(mine);
            drop(listen_at("127.0.0.1", PORT + 14, 4));
            _exit(0); /* leave the parent's objects */
        }
    }
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK_EQ(st, 0);
    finished(id, listener);
}

static void *read_events(void *arg)
{
    struct rdma_cm_event *e;

    atomic_store((_Atomic pid_t *)arg, gettid());
    CHECK(rdma_get_cm_event(chan, &e) == -1 && errno == EINTR);
    return NULL;
}
static void interrupt(int sig __attribute__((unused)))
{
}

/* A channel is destroyed while threads read it: each waits on, as in the kernel, until a signal
 * interrupts it; the last one frees the channel. */
TEST(channel_destroyed_under_its_readers)
{
    CHECK_EQ(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = interrupt}, NULL), 0);
    for (int round = 0; round < 20; round++) {
        pthread_t reader[3];
        _Atomic pid_t tid[3] = {0};

        drop(new_id(NULL));
        for (int i = 0; i < 3; i++) {
            reader[i] = spawn(read_events, (void *)&tid[i]);
            while (!tid[i] || !thread_sleeps(tid[i]))
                usleep(1000);
        }
        rdma_destroy_event_channel(chan);
        void *other = malloc(32); /* reuses memory that was freed too early */
        CHECK(other);
        memset(other, 0x5a, 32);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(pthread_kill(reader[i], SIGUSR1), 0);
            CHECK_EQ(pthread_join(reader[i], NULL), 0);
        }
        for (int i = 0; i < 32; i++)
            CHECK_EQ(((unsigned char *)other)[i], 0x5a);
        free(other);
        chan = NULL;
    }
}

/* The request was not fetched, its client has died, and the listener is destroyed: no event
 * refers to an unknown id. */
PAIR(destroyed_listener_drops_its_requests, run_two)
ACTIVE(destroyed_listener_drops_its_requests)
{
    int st;

    meet(s);
    pid_t pid = fork();
    if (pid == 0) {
        ask(PORT + 20);
        pause_forever();
    }
    meet(s); /* the request was sent */
    CHECK_EQ(kill(pid, SIGKILL), 0);
    CHECK_EQ(waitpid(pid, &st, 0), pid);
    struct rdma_cm_id *id = ask(PORT + 20); /* this one keeps waiting */
    meet(s);
    CHECK_EQ(eat(RDMA_CM_EVENT_REJECTED), 28);
    drop(id);
    meet(s);
    all_gone();
}
PASSIVE(destroyed_listener_drops_its_requests)
{
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 20, 4);

    meet(s);
    CHECK(readable(chan->fd, 60000));
    meet(s);
    meet(s);
    settle(); /* both requests have arrived */
    while (counter("peers_died") == 0)
        usleep(1000); /* and the end of the first */
    drop(l);
    settle();
    CHECK(!readable(chan->fd, 0));
    meet(s);
    all_gone();
}

/* A listener takes its events along to another channel. */
static void take_over(struct side *s, struct rdma_cm_id *l)
{
    meet(s);
    CHECK(readable(l->channel->fd, 60000));
    struct rdma_event_channel *first = chan;
    chan = rdma_create_event_channel();
    CHECK(chan);
    CHECK_EQ(rdma_migrate_id(l, chan), 0);
    CHECK(l->channel == chan);
    if (first != NULL)
        rdma_destroy_event_channel(first);
    struct rdma_cm_id *id = accept_one();
    CHECK(id->channel == chan);
    meet(s);
    finished(id, l);
}
static void ask_and_wait(struct side *s)
{
    meet(s);
    struct rdma_cm_id *id = ask(PORT + 21);
    CHECK_EQ(eat(RDMA_CM_EVENT_ESTABLISHED), 0);
    meet(s);
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    finished(id, NULL);
}
PAIR(request_moves_with_its_listener, run_two)
ACTIVE(request_moves_with_its_listener)
{
    ask_and_wait(s);
}
PASSIVE(request_moves_with_its_listener)
{
    take_over(s, listen_at("127.0.0.1", PORT + 21, 4));
}

TEST(to_move_where_one_is_changes_nothing)
{
    struct rdma_cm_id *id = new_id(NULL);

    CHECK_EQ(rdma_resolve_addr(id, NULL, at("127.0.0.1", PORT), 1000), 0);
    CHECK_EQ(rdma_migrate_id(id, chan), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    finished(id, NULL);
}

/*
 * A function registered before all others runs after the destructors of all libraries, like
 * that of a library with its own connection. The function ends the connection without a
 * hang.
 */
static struct rdma_cm_id *kept;

static void ends_it(int status, void *arg)
{
    (void)status, (void)arg;
    if (kept == NULL)
        return;
    CHECK_EQ(rdma_disconnect(kept), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    drop(kept);
}

static void first(void)
{
    on_exit(ends_it, NULL); /* functions of atexit() belong to this program, which ends first */
}
__attribute__((section(".preinit_array"), used)) static void (*const before_all)(void) = first;

PAIR(library_disconnects_at_program_end, run_two)
ACTIVE(library_disconnects_at_program_end)
{
    meet(s);
    kept = connect_to("127.0.0.1", PORT + 24);
}
PASSIVE(library_disconnects_at_program_end)
{
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 24, 1);

    meet(s);
    struct rdma_cm_id *id = accept_one();
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    CHECK_EQ(rdma_disconnect(id), 0);
    finished(id, l);
}
