/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The software HCA's connection manager: behaviour that other programs rely on. */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include <rdma/rdma_verbs.h>

#include "tests/emul/cm_help.h"
#include "tests/emul/stop.h"

TEST(addresses_from_hints)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *res;
    struct sockaddr_in dst, src;

    memcpy(&dst, at("127.0.0.1", 4711), sizeof(dst));
    memcpy(&src, at("127.0.0.2", 0), sizeof(src));
    hints.ai_dst_addr = (struct sockaddr *)&dst;
    hints.ai_dst_len = sizeof(dst);
    CHECK_EQ(rdma_getaddrinfo(NULL, NULL, &hints, &res), 0);
    CHECK(!res->ai_src_addr && !res->ai_next);
    CHECK_EQ(res->ai_dst_len, sizeof(dst));
    CHECK_EQ(memcmp(res->ai_dst_addr, &dst, sizeof(dst)), 0);
    CHECK_EQ(res->ai_family, AF_INET);
    CHECK_EQ(res->ai_qp_type, IBV_QPT_RC);
    rdma_freeaddrinfo(res);

    hints.ai_src_addr = (struct sockaddr *)&src;
    hints.ai_src_len = sizeof(src);
    hints.ai_dst_addr = NULL;
    hints.ai_dst_len = 0;
    hints.ai_flags = RAI_PASSIVE;
    CHECK_EQ(rdma_getaddrinfo(NULL, NULL, &hints, &res), 0);
    CHECK(!res->ai_dst_addr && res->ai_flags == RAI_PASSIVE);
    CHECK_EQ(memcmp(res->ai_src_addr, &src, sizeof(src)), 0);
    rdma_freeaddrinfo(res);

    hints.ai_flags = 0;
    CHECK_EQ(rdma_getaddrinfo("127.0.0.1", "4711", &hints, &res), 0);
    CHECK_EQ(memcmp(res->ai_src_addr, &src, sizeof(src)), 0);
    CHECK_EQ(((struct sockaddr_in *)res->ai_dst_addr)->sin_port, htons(4711));
    rdma_freeaddrinfo(res);

    CHECK_EQ(rdma_getaddrinfo(NULL, NULL, NULL, &res), -1);
    CHECK_EQ(errno, EINVAL);
}

/* The structure ends four bytes before its size, where the longer one has its mask. */
TEST(bytes_behind_attributes_are_ignored)
{
    union {
        struct ibv_qp_init_attr init;
        unsigned char bytes[sizeof(struct ibv_qp_init_attr)];
    } u;
    const size_t end = offsetof(struct ibv_qp_init_attr, sq_sig_all) + sizeof(int);
    struct rdma_cm_id *id = new_id(NULL);

    for (int with_pd = 0; with_pd < 2; with_pd++) {
        memset(&u, 0xff, sizeof(u));
        memset(&u, 0, end);
        u.init.qp_type = IBV_QPT_RC;
        u.init.cap = (struct ibv_qp_cap){16, 16, 2, 2, 32};
        if (!with_pd)
            resolve(id, "127.0.0.1", PORT);
        CHECK_EQ(rdma_create_qp(id, with_pd ? id->pd : NULL, &u.init), 0);
        for (size_t i = end; i < sizeof(u); i++)
            CHECK_EQ(u.bytes[i], 0xff);
        rdma_destroy_qp(id);
    }
    finished(id, NULL);
}

TEST(bound_id_has_domain)
{
    static unsigned char memory[4096];
    struct rdma_cm_id *id = new_id(NULL), *bound = new_id(NULL), *wild = new_id(NULL);

    CHECK(!id->pd);
    resolve(id, "127.0.0.1", PORT);
    CHECK(id->pd && id->pd->context == id->verbs);
    CHECK_EQ(rdma_bind_addr(bound, at("127.0.0.1", PORT)), 0);
    CHECK(bound->pd == id->pd);
    CHECK_EQ(rdma_bind_addr(wild, at("0.0.0.0", PORT + 1)), 0);
    CHECK(!wild->pd);
    struct ibv_mr *mr = ibv_reg_mr(id->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    drop(id);
    finished(bound, wild);
}

static int option(struct rdma_cm_id *id, int which, uint8_t value, size_t len)
{
    return rdma_set_option(id, RDMA_OPTION_ID, which, &value, len);
}

/* Returns the attributes of an end's QP, whose path has the active side's type of service. */
static struct ibv_qp_attr asked_for(const struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr qi;
    struct ibv_qp_attr qa;

    CHECK_EQ(ibv_query_qp(id->qp, &qa, IBV_QP_AV | IBV_QP_TIMEOUT, &qi), 0);
    CHECK_EQ(qa.ah_attr.sl, 0);
    CHECK_EQ(qa.ah_attr.grh.traffic_class, 0x6b);
    return qa;
}

/* The active side's type of service overrides the other end's in both directions. */
PAIR(options_of_id_act_on_qp, run_two)
ACTIVE(options_of_id_act_on_qp)
{
    struct rdma_conn_param p = {.retry_count = 7};

    setenv("EMUVERBS_ETHERNET", "1", 1);
    struct rdma_cm_id *id = new_id(NULL);
    meet(s);
    CHECK_EQ(option(id, RDMA_OPTION_ID_ACK_TIMEOUT, 32, 1), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(option(id, RDMA_OPTION_ID_ACK_TIMEOUT, 12, 1), 0);
    CHECK_EQ(option(id, RDMA_OPTION_ID_TOS, 0x6b, 2), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(option(id, RDMA_OPTION_ID_TOS, 0x6b, 1), 0);
    resolve(id, "127.0.0.1", PORT);
    CHECK_EQ(option(id, RDMA_OPTION_ID_TOS, 1, 1), 0); /* too late: the route is resolved */
    CHECK_EQ(id->route.path_rec->sl, 0);
    CHECK_EQ(id->route.path_rec->traffic_class, 0x6b);
    give_qp(id);
    CHECK_EQ(rdma_connect(id, &p), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ESTABLISHED), 0);
    CHECK_EQ(asked_for(id).timeout, 12);
    finished(id, NULL);
}
PASSIVE(options_of_id_act_on_qp)
{
    struct rdma_conn_param p = {.retry_count = 7};

    setenv("EMUVERBS_ETHERNET", "1", 1);
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT, 1);
    meet(s);
    struct rdma_cm_id *id = id_of(RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK_EQ(option(id, RDMA_OPTION_ID_TOS, 0x22, 1), 0);
    give_qp(id);
    CHECK_EQ(rdma_accept(id, &p), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ESTABLISHED), 0);
    asked_for(id);
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    finished(id, l);
}

TEST(unsupported_rdma_cm_features_refused)
{
    struct sockaddr ib = {.sa_family = AF_IB};
    struct ibv_path_data p = {.flags = IBV_PATH_FLAG_PRIMARY};
    struct rdma_cm_id *id, *good = new_id(NULL);

    CHECK_EQ(rdma_create_id(chan, &id, NULL, RDMA_PS_IPOIB), -1);
    CHECK_EQ(errno, EOPNOTSUPP);
    CHECK_EQ(rdma_bind_addr(good, &ib), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(rdma_set_option(good, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &p, sizeof(p)), -1);
    CHECK_EQ(errno, ENOSYS);
    drop(good);
}

/* rping's thread may ask for one more event after its channel was destroyed. */
TEST(destroyed_channel_is_closed)
{
    struct rdma_event_channel *c = rdma_create_event_channel();
    struct rdma_cm_event *e;

    CHECK(c);
    rdma_destroy_event_channel(c);
    for (int i = 0; i < 2; i++) {
        errno = 0;
        CHECK_EQ(rdma_get_cm_event(c, &e), -1);
        CHECK_EQ(errno, EBADF);
    }
    CHECK_EQ(counter("live_cm_channel"), 0);
}

TEST(objects_of_another_context_are_refused)
{
    struct side a = {0}, b = {0};
    struct ibv_comp_channel *channel;

    side_open(&a);
    side_open(&b);
    CHECK(a.ctx != b.ctx);
    for (int i = 0; i < 3; i++) {
        struct ibv_srq_init_attr si = {.attr = {.max_wr = 4, .max_sge = 1}};
        struct ibv_srq *srq = ibv_create_srq(b.pd, &si);
        CHECK(srq);
        struct ibv_qp_init_attr init = {.send_cq = i == 0 ? b.scq : a.scq,
                                        .recv_cq = i == 1 ? b.rcq : a.rcq,
                                        .srq = i == 2 ? srq : NULL,
                                        .qp_type = IBV_QPT_RC,
                                        .cap = {4, 4, 1, 1, 0}};
        errno = 0;
        CHECK(!ibv_create_qp(a.pd, &init));
        CHECK_EQ(errno, EINVAL);
        CHECK_EQ(ibv_destroy_srq(srq), 0);
    }
    channel = ibv_create_comp_channel(b.ctx);
    CHECK(channel);
    CHECK(!ibv_create_cq(a.ctx, 4, NULL, channel, 0));
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
    loop_close(&a, &b);
}

/* Sends one message, then disconnects, or dies. */
static void send_and_leave(struct side *s, bool die)
{
    unsigned char buf[8] = "the last";

    /* the listener may start later */
    setenv("EMUVERBS_LISTEN_WAIT_MS", "20000", 1);
    struct rdma_cm_id *id = connect_to("127.0.0.1", PORT);
    struct ibv_mr *mr = rdma_reg_msgs(id, buf, sizeof(buf));

    CHECK(mr);
    meet(s);
    CHECK_EQ(rdma_post_send(id, NULL, buf, sizeof(buf), mr, IBV_SEND_SIGNALED), 0);
    expect_wc(id->send_cq, 0, IBV_WC_SUCCESS);
    if (die)
        _exit(0);
    CHECK_EQ(rdma_dereg_mr(mr), 0);
    finished(id, NULL);
}

static void send_and_disconnect(struct side *s)
{
    send_and_leave(s, false);
}
static void send_and_die(struct side *s)
{
    send_and_leave(s, true);
}

/* The passive side, with a receive for the last message. */
struct last {
    struct rdma_cm_id *listener, *id;
    struct ibv_mr *mr;
    unsigned char buf[8];
};

/* Accepts, and waits for the other side's end, whose event the device delays by `hold` ms. */
static void let_it_end(struct side *s, struct last *t, const char *hold)
{
    char c;

    setenv("EMUVERBS_DREQ_HOLD_MS", hold, 1);
    t->listener = listen_at("127.0.0.1", PORT, 4);
    t->id = accept_one();
    t->mr = rdma_reg_msgs(t->id, t->buf, sizeof(t->buf));
    CHECK(t->mr);
    CHECK_EQ(rdma_post_recv(t->id, NULL, t->buf, sizeof(t->buf), t->mr), 0);
    meet(s);
    CHECK(read(s->sock, &c, 1) <= 0);
}

static void hear_of_the_end(struct last *t)
{
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    CHECK_EQ(rdma_dereg_mr(t->mr), 0);
    drop(t->id);
    drop(t->listener);
    all_gone();
}

/* Waits until the end is delayed and was checked a few times. */
static void wait_held(void)
{
    while (counter("ends_checked") < 10)
        sched_yield();
}

/* A program that polls before it gets events receives the message before the end. */
static void receive_the_last(struct side *s)
{
    struct last t = {0};

    let_it_end(s, &t, "60000");
    wait_held();
    CHECK(!readable(chan->fd, 0));
    expect_wc(t.id->recv_cq, 0, IBV_WC_SUCCESS);
    CHECK_EQ(memcmp(t.buf, "the last", 8), 0);
    hear_of_the_end(&t);
}

TWO(last_message_precedes_end_event, run_two, send_and_disconnect, receive_the_last)
TWO(last_message_of_dead_precedes_end, run_two, send_and_die, receive_the_last)

/* Waits until the held end has been looked at once more, and for the effect of that look. */
static void await_look(int64_t looks)
{
    while (counter("ends_checked") == looks)
        sched_yield();
    settle();
}

/*
 * A program that does not poll still gets the end's event, after as many looks as the delay has
 * milliseconds: a jump of the clock, a time without a processor, is one look.
 */
static void hear_without_polling(struct side *s)
{
    struct last t = {0};
    int steps = 0;

    clock_stop();
    let_it_end(s, &t, "50");
    settle();
    clock_step_ms(1000);
    for (await_look(0); !readable(chan->fd, 0); steps++) {
        int64_t looks = counter("ends_checked");
        clock_step_ms(1);
        await_look(looks);
    }
    CHECK_EQ(steps, 49);
    clock_run();
    hear_of_the_end(&t);
}
TWO(end_event_delay_is_bounded, run_two, send_and_disconnect, hear_without_polling)

/* Ending the connection oneself, while a dead peer's end is delayed, does not wait. */
static void disconnect_meanwhile(struct side *s)
{
    struct last t = {0};

    setenv("EMUVERBS_CM_TIMEOUT_MS", "60000", 1);
    let_it_end(s, &t, "60000");
    wait_held();
    CHECK(!readable(chan->fd, 0));
    CHECK_EQ(rdma_disconnect(t.id), 0);
    hear_of_the_end(&t);
}
TWO(delayed_end_does_not_delay_disconnect, run_two, send_and_die, disconnect_meanwhile)

static _Atomic bool slow;
static sem_t is_in, may_go;

/* Replaces libc's function, also for the tested library; can stop the service thread here. */
__attribute__((visibility("default"))) int accept4(int fd, struct sockaddr *sa, socklen_t *len,
                                                   int flags)
{
    if (atomic_exchange(&slow, false)) {
        sem_post(&is_in);
        sem_wait(&may_go);
    }
    return (int)syscall(SYS_accept4, fd, sa, len, flags);
}

/* Lets the service thread continue when the first thread waits for it, or has connected. */
static _Atomic bool connected;
static void *let_go(void *arg)
{
    (void)arg;
    while (!atomic_load(&connected) && !thread_sleeps(getpid()))
        sched_yield();
    sem_post(&may_go);
    return NULL;
}

/* A listener is destroyed while the service thread is about to accept for it, and another
 * socket of the program gets its descriptor: connections there are the program's. */
TEST(listener_descriptor_may_be_reused)
{
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT, 4), *id = new_id(NULL);
    struct rdma_conn_param p = {.qp_num = 7};
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sa);
    char c;

    CHECK(sem_init(&is_in, 0, 0) == 0 && sem_init(&may_go, 0, 0) == 0);
    int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(to >= 0);
    resolve(id, "127.0.0.1", PORT);
    atomic_store(&slow, true);
    CHECK_EQ(rdma_connect(id, &p), 0);
    CHECK_EQ(sem_wait(&is_in), 0);
    pthread_t thread = spawn(let_go, NULL);
    CHECK_EQ(rdma_destroy_id(l), 0);
    int mine = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(mine >= 0);
    CHECK_EQ(bind(mine, (struct sockaddr *)&sa, sizeof(sa)), 0);
    CHECK_EQ(listen(mine, 4), 0);
    CHECK_EQ(getsockname(mine, (struct sockaddr *)&sa, &len), 0);
    CHECK_EQ(connect(to, (struct sockaddr *)&sa, sizeof(sa)), 0);
    atomic_store(&connected, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    settle();
    CHECK(readable(mine, 60000));
    int got = accept(mine, NULL, NULL);
    CHECK(got >= 0);
    CHECK_EQ(write(to, "x", 1), 1);
    CHECK_EQ(read(got, &c, 1), 1);
    close(got);
    close(mine);
    close(to);
    CHECK_EQ(rdma_destroy_id(id), 0);
}
