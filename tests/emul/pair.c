/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Helpers of the software HCA's tests: processes, and short forms of verbs. */
#include "tests/emul/pair.h"
#include "tests/emul/stop.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

void run_under_emuverbs(char **argv)
{
    const char *preload = getenv("LD_PRELOAD");
    const char *emuverbs = getenv("EMUVERBS");
    char *args[64] = {0};

    if (preload != NULL && strstr(preload, "libemuverbs") != NULL)
        return;
    if (emuverbs == NULL)
        emuverbs =
            /* relative to the top of the build tree, where make runs tests */
            "emul/verbs/emuverbs";
    args[0] = (char *)(uintptr_t)emuverbs;
    for (int i = 0; argv[i] != NULL && i < 62; i++)
        args[i + 1] = argv[i];
    execv(emuverbs, args);
    fprintf(stderr, "cannot run %s: %s; set EMUVERBS to its path\n", emuverbs, strerror(errno));
    _exit(99);
}

/* `end`: this process's end of each socket pair; the other process has the other end. */
static pid_t start(side_fn fn, int sock[2], int stop[2], int end, pid_t peer)
{
    pid_t pid = fork();

    if (pid == 0) {
        struct side s = {.sock = -1, .stop = -1, .peer = peer};
        if (sock) {
            s.sock = sock[end];
            s.stop = stop[end];
            close(sock[!end]);
            close(stop[!end]);
        }
        alarm(300); /* ends a hang; long enough for a busy machine */
        fn(&s);
        exit(0);
    }
    return pid;
}

static int finish(pid_t pid, bool killed)
{
    int st = 0;

    if (waitpid(pid, &st, 0) != pid)
        return -1;
    if (killed)
        return WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL ? 0 : -1;
    return WIFEXITED(st) && WEXITSTATUS(st) == 0 ? 0 : -1;
}

bool is_watched(void)
{
    const char *preload = getenv("LD_PRELOAD");

    return preload != NULL && strstr(preload, "valgrind") != NULL;
}

int run_one(side_fn fn)
{
    return finish(start(fn, NULL, NULL, 0, 0), false);
}

static void stop_by(int fd, const char *steps)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", fd);
    CHECK_EQ(setenv("EMUVERBS_STOP", steps, 1), 0);
    CHECK_EQ(setenv("EMUVERBS_STOP_FD", number, 1), 0);
}

static int stop_here(const char *steps)
{
    int sv[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
    stop_by(sv[1], steps);
    return sv[0];
}

static const struct setup *given;
static loop_fn run_with;

static void open_and_run(struct side *unused __attribute__((unused)))
{
    struct side a = given->a, b = given->b;
    char *env = given->env != NULL ? strdup(given->env) : NULL;

    for (char *next = env != NULL ? strtok(env, " ") : NULL; next; next = strtok(NULL, " "))
        putenv(strdup(next));
    free(env);
    if (given->stop != NULL)
        a.stop = stop_here(given->stop);
    if (given->loop)
        loop_open(&a, &b);
    else
        side_open(&a);
    run_with(&a, &b);
    side_close(&a);
    if (given->loop)
        side_close(&b);
}

int run_setup(loop_fn fn, const struct setup *setup)
{
    if (setup->unwatched && is_watched())
        skip();
    given = setup;
    run_with = fn;
    return run_one(open_and_run);
}

static int two(side_fn active, side_fn passive, bool killed)
{
    int sv[2], stop[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, stop) < 0)
        return -1;
    pid_t p = start(passive, sv, stop, 1, 0);
    pid_t a = start(active, sv, stop, 0, p);
    close(sv[0]);
    close(sv[1]);
    close(stop[0]);
    close(stop[1]);
    int ra = finish(a, false);
    if (ra)
        kill(p, SIGKILL);
    int rp = finish(p, killed);
    return ra ? ra : rp;
}

int run_two(side_fn active, side_fn passive)
{
    return two(active, passive, false);
}

int run_two_kill(side_fn active, side_fn passive)
{
    return two(active, passive, true);
}

_Noreturn void pause_forever(void)
{
    for (;;)
        pause();
}

static int def(int value, int fallback)
{
    return value == 0 ? fallback : value < 0 ? 0 : value;
}

static void make_cqs(struct side *s)
{
    s->scq = ibv_create_cq(s->ctx, def(s->cqe, 256), s, s->chan, 0);
    s->rcq = ibv_create_cq(s->ctx, def(s->cqe, 256), s, s->chan, 0);
    CHECK(s->scq && s->rcq);
}

static void make_qp(struct side *s)
{
    if (s->use_srq) {
        struct ibv_srq_init_attr si = {
            .attr = {.max_wr = 64, .max_sge = (uint32_t)def(s->max_sge, 4)}};
        s->srq = ibv_create_srq(s->pd, &si);
        CHECK(s->srq);
    }
    struct ibv_qp_init_attr_ex qi = {
        .send_cq = s->scq,
        .recv_cq = s->rcq,
        .srq = s->srq,
        .qp_type = s->type ? s->type : IBV_QPT_RC,
        .cap = {.max_send_wr = (uint32_t)def(s->max_wr, 64),
                .max_recv_wr = (uint32_t)def(s->max_wr, 64),
                .max_send_sge = (uint32_t)def(s->max_sge, 4),
                .max_recv_sge = (uint32_t)def(s->max_sge, 4),
                .max_inline_data = (uint32_t)def(s->max_inline, 64)},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = s->pd,
        .send_ops_flags = s->send_ops};
    s->qp = s->send_ops ? ibv_create_qp_ex(s->ctx, &qi)
                        : ibv_create_qp(s->pd, (struct ibv_qp_init_attr *)(void *)&qi);
    CHECK(s->qp);
    s->qp_ex = s->send_ops ? ibv_qp_to_qp_ex(s->qp) : NULL;
    CHECK(!s->send_ops || s->qp_ex);
}

void side_open(struct side *s)
{
    int n;
    struct ibv_device **list = ibv_get_device_list(&n);

    CHECK(list && n > s->device);
    s->ctx = ibv_open_device(list[s->device]);
    CHECK(s->ctx);
    ibv_free_device_list(list);
    s->pd = ibv_alloc_pd(s->ctx);
    CHECK(s->pd);
    if (s->use_chan) {
        s->chan = ibv_create_comp_channel(s->ctx);
        CHECK(s->chan);
    }
    make_cqs(s);
    make_qp(s);
    size_t size = s->size ? s->size : BUF_SIZE;
    s->buf = aligned_alloc(4096, size);
    CHECK(s->buf);
    memset(s->buf, 0, size);
    s->mr = ibv_reg_mr(s->pd, s->buf, size,
                       def(s->access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                          IBV_ACCESS_REMOTE_READ));
    CHECK(s->mr);
    CHECK_EQ(qp_init(s), 0);
}

int qp_init(struct side *s)
{
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_INIT,
        .port_num = (uint8_t)def(s->port, 1),
        .qp_access_flags =
            (unsigned)def(s->qp_access, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)};

    return ibv_modify_qp(s->qp, &a,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int qp_rtr(struct side *s, uint32_t dest)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = dest,
                            .max_dest_rd_atomic = (uint8_t)def(s->rd_depth, 4),
                            .min_rnr_timer = (uint8_t)def(s->min_rnr_timer, 12),
                            .ah_attr = {.dlid = (uint16_t)def(s->dlid, 1),
                                        .port_num = (uint8_t)def(s->port, 1),
                                        .is_global = s->global,
                                        .grh = {.dgid = s->dgid, .sgid_index = s->sgid_index}}};

    return ibv_modify_qp(
        s->qp, &a,
        UC_RTR |
            (s->type == IBV_QPT_UC ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

int qp_rts(struct side *s)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
                            .timeout = 14,
                            .retry_cnt = 7,
                            .rnr_retry = (uint8_t)def(s->rnr_retry, 7),
                            .max_rd_atomic = (uint8_t)def(s->rd_depth, 4)};

    return ibv_modify_qp(s->qp, &a,
                         UC_RTS | (s->type == IBV_QPT_UC
                                       ? 0
                                       : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                             IBV_QP_MAX_QP_RD_ATOMIC));
}

int qp_error(struct side *s)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

    return ibv_modify_qp(s->qp, &a, IBV_QP_STATE);
}

enum ibv_qp_state qp_state(struct side *s)
{
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;

    CHECK_EQ(ibv_query_qp(s->qp, &a, IBV_QP_STATE, &i), 0);
    return a.qp_state;
}

struct where {
    uint64_t addr;
    uint32_t rkey, qpn;
};

static void swap(struct side *s, const void *mine, void *theirs, size_t len)
{
    CHECK(write(s->sock, mine, len) == (ssize_t)len);
    for (size_t got = 0; got < len;) {
        ssize_t n = read(s->sock, (char *)theirs + got, len - got);
        CHECK(n > 0);
        got += (size_t)n;
    }
}

void meet(struct side *s)
{
    char c = 'm', d;

    swap(s, &c, &d, 1);
}

void stop_at(struct side *s, const char *steps)
{
    stop_by(s->stop, steps);
}

void wait_stopped(int fd)
{
    char step;

    CHECK_EQ(read(fd, &step, 1), 1);
}

void go_on(int fd, unsigned char next)
{
    CHECK_EQ(write(fd, &next, 1), 1);
}

void kill_peer_and_wait(struct side *s)
{
    int64_t before = counter("peers_died");

    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    while (counter("peers_died") == before)
        usleep(1000);
}

void settle(void)
{
    void (*fn)(void) = (void (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "emuverbs_settle");

    CHECK(fn);
    fn();
}

struct ibv_cq *take_event(struct ibv_comp_channel *chan)
{
    struct ibv_cq *cq;
    void *context;

    CHECK(readable(chan->fd, 60000));
    CHECK_EQ(ibv_get_cq_event(chan, &cq, &context), 0);
    CHECK(context == cq->cq_context);
    ibv_ack_cq_events(cq, 1);
    return cq;
}

struct ibv_qp *new_qp(struct side *s, enum ibv_qp_type type, uint32_t wrs)
{
    struct ibv_qp_init_attr qi = {
        .send_cq = s->scq, .recv_cq = s->rcq, .qp_type = type, .cap = {wrs, wrs, 2, 2, 32}};
    struct ibv_qp *qp = ibv_create_qp(s->pd, &qi);

    CHECK(qp);
    return qp;
}

void renew_qp(struct side *s, enum ibv_qp_type type)
{
    CHECK_EQ(ibv_destroy_qp(s->qp), 0);
    s->qp = new_qp(s, type, 16);
}

pthread_t spawn(void *(*fn)(void *), void *arg)
{
    pthread_t thread;

    CHECK_EQ(pthread_create(&thread, NULL, fn, arg), 0);
    return thread;
}

struct dereg {
    struct ibv_mr *mr;
    int err;
    _Atomic bool done;
};

static void *dereg_main(void *arg)
{
    struct dereg *g = arg;

    g->err = ibv_dereg_mr(g->mr);
    atomic_store(&g->done, true);
    return NULL;
}

int dereg_by_looks(struct ibv_mr *mr, pid_t peer)
{
    struct dereg g = {.mr = mr};

    clock_stop();
    int64_t drains = counter("drains");
    pthread_t thread = spawn(dereg_main, &g);
    while (!atomic_load(&g.done) && counter("drains") == drains)
        sched_yield();
    for (unsigned looks = 0; !atomic_load(&g.done); looks++) {
        int64_t before = counter("drain_checks");
        while (looks >= 200 && peer && !process_is_stopped(peer))
            usleep(1000);
        clock_step_ms(21);
        while (!atomic_load(&g.done) && counter("drain_checks") == before)
            sched_yield();
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    return g.err;
}

uint64_t clock_step_ns(uint64_t ns)
{
    uint64_t (*fn)(uint64_t) =
        (uint64_t(*)(uint64_t))(uintptr_t)dlsym(RTLD_DEFAULT, "emuverbs_clock");

    CHECK(fn);
    return fn(ns);
}

uint64_t clock_step_ms(uint64_t ms)
{
    return clock_step_ns(ms * 1000000);
}

void clock_run(void)
{
    clock_step_ns(UINT64_MAX);
}

void clock_stop(void)
{
    clock_step_ns(0);
}

void side_connect(struct side *s)
{
    struct where me = {(uintptr_t)s->buf, s->mr->rkey, s->qp->qp_num}, you;

    swap(s, &me, &you, sizeof(me));
    s->raddr = you.addr;
    s->rkey = you.rkey;
    s->rqpn = you.qpn;
    CHECK_EQ(qp_rtr(s, you.qpn), 0);
    CHECK_EQ(qp_rts(s), 0);
    meet(s);
}

void side_join(struct side *s)
{
    side_open(s);
    side_connect(s);
}

void side_leave(struct side *s)
{
    meet(s);
    side_close(s);
}

void side_close(struct side *s)
{
    if (s->qp != NULL)
        CHECK_EQ(ibv_destroy_qp(s->qp), 0);
    if (s->srq != NULL)
        CHECK_EQ(ibv_destroy_srq(s->srq), 0);
    CHECK_EQ(ibv_destroy_cq(s->scq), 0);
    CHECK_EQ(ibv_destroy_cq(s->rcq), 0);
    if (s->chan != NULL)
        CHECK_EQ(ibv_destroy_comp_channel(s->chan), 0);
    if (s->mr != NULL)
        CHECK_EQ(ibv_dereg_mr(s->mr), 0);
    CHECK_EQ(ibv_dealloc_pd(s->pd), 0);
    CHECK_EQ(ibv_close_device(s->ctx), 0);
    free(s->buf);
    const char *const kinds[] = {"live_context", "live_pd", "live_mr",  "live_channel",
                                 "live_cq",      "live_qp", "live_srq", "pinned_bytes",
                                 "live_mw",      "live_ah"};
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (counter(kinds[i]) != 0 && counter("live_context") == 0) {
            fprintf(stderr, "%s is %lld after everything was destroyed\n", kinds[i],
                    (long long)counter(kinds[i]));
            _exit(1);
        }
}

static void aim(struct side *s, struct side *at)
{
    s->raddr = (uintptr_t)at->buf;
    s->rkey = at->mr->rkey;
    s->rqpn = at->qp->qp_num;
}

void join_sides(struct side *a, struct side *b)
{
    CHECK_EQ(qp_rtr(a, b->qp->qp_num), 0);
    CHECK_EQ(qp_rtr(b, a->qp->qp_num), 0);
    CHECK_EQ(qp_rts(a), 0);
    CHECK_EQ(qp_rts(b), 0);
}

void side_reset(struct side *s)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

    CHECK_EQ(ibv_modify_qp(s->qp, &reset, IBV_QP_STATE), 0);
    CHECK_EQ(qp_init(s), 0);
}

void join_anew(struct side *a, struct side *b)
{
    side_reset(a);
    side_reset(b);
    join_sides(a, b);
}

void loop_open(struct side *a, struct side *b)
{
    side_open(a);
    side_open(b);
    join_sides(a, b);
    aim(a, b);
    aim(b, a);
}

void loop_close(struct side *a, struct side *b)
{
    side_close(a);
    side_close(b);
}

void post_recv(struct side *s, uint64_t id, uint32_t off, uint32_t len)
{
    struct ibv_sge sge = {(uintptr_t)s->buf + off, len, s->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

    if (s->srq != NULL)
        CHECK_EQ(ibv_post_srq_recv(s->srq, &wr, &bad), 0);
    else
        CHECK_EQ(ibv_post_recv(s->qp, &wr, &bad), 0);
}

int try_send(struct side *s, uint64_t id, enum ibv_wr_opcode op, uint32_t off, uint32_t len,
             unsigned flags, uint64_t raddr, uint32_t rkey)
{
    struct ibv_sge sge = {(uintptr_t)s->buf + off, len, s->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = op,
                             .send_flags = flags,
                             .imm_data = 0x01020304,
                             .wr.rdma = {raddr, rkey}},
                       *bad = NULL;

    if (op == FADD || op == SWAP) {
        wr.wr.atomic.remote_addr = raddr;
        wr.wr.atomic.compare_add = s->operand;
        wr.wr.atomic.swap = s->swap;
        wr.wr.atomic.rkey = rkey;
    }
    int err = ibv_post_send(s->qp, &wr, &bad);

    CHECK(err == 0 || bad == &wr);
    return err;
}

void post_send(struct side *s, uint64_t id, enum ibv_wr_opcode op, uint32_t off, uint32_t len,
               uint64_t roff)
{
    CHECK_EQ(try_send(s, id, op, off, len, IBV_SEND_SIGNALED, s->raddr + roff, s->rkey), 0);
}

void post_to(struct side *s, uint64_t id, enum ibv_wr_opcode op, uint32_t off, uint32_t len,
             uint64_t raddr, uint32_t rkey)
{
    CHECK_EQ(try_send(s, id, op, off, len, IBV_SEND_SIGNALED, raddr, rkey), 0);
}

struct ibv_wc post_done(struct side *s, enum ibv_wr_opcode op, uint32_t off, uint32_t len,
                        uint64_t roff)
{
    post_send(s, 1234, op, off, len, roff);
    return expect_wc(s->scq, 1234, IBV_WC_SUCCESS);
}

uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

struct ibv_wc wait_wc(struct ibv_cq *cq)
{
    struct ibv_wc wc = {0};
    uint64_t end = now_ms() + 60000; /* long enough for a busy machine, and valgrind */
    int n;

    while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
        CHECK(now_ms() < end);
        sched_yield();
    }
    CHECK_EQ(n, 1);
    return wc;
}

struct ibv_wc expect_wc(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = wait_wc(cq);

    if (wc.wr_id != id || wc.status != status) {
        fprintf(stderr, "completion of %llu with %s (expected %llu with %s)\n",
                (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
                (unsigned long long)id, ibv_wc_status_str(status));
        _exit(1);
    }
    return wc;
}

void expect_none(struct ibv_cq *cq)
{
    struct ibv_wc wc;

    CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
}

bool readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, ms) == 1;
}

void expect_async(struct side *s, enum ibv_event_type type, void *element)
{
    struct ibv_async_event ev;

    for (;;) {
        CHECK(readable(s->ctx->async_fd, 60000));
        CHECK_EQ(ibv_get_async_event(s->ctx, &ev), 0);
        ibv_ack_async_event(&ev);
        if (ev.event_type == type && ev.element.cq == element)
            return;
    }
}

void pattern(unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(i * 7 + seed + (i >> 8));
}

bool is_pattern(const unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != (unsigned char)(i * 7 + seed + (i >> 8)))
            return false;
    return true;
}

int64_t counter(const char *name)
{
    int64_t (*fn)(const char *) =
        (int64_t(*)(const char *))(uintptr_t)dlsym(RTLD_DEFAULT, "emuverbs_counter");

    CHECK(fn);
    int64_t v = fn(name);
    CHECK(v >= 0);
    return v;
}

int lowest_descriptor(void)
{
    int fd = dup(0);

    CHECK(fd >= 0);
    close(fd);
    return fd;
}

void limit_descriptors(const struct rlimit *limit)
{
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, limit), 0);
}

struct rlimit leave_descriptors(int n)
{
    struct rlimit before, few;
    int fd[8];

    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i <= n; i++) /* the lowest free ones */
        CHECK((fd[i] = dup(0)) >= 0);
    for (int i = 0; i <= n; i++)
        close(fd[i]);
    few = (struct rlimit){(rlim_t)fd[n], before.rlim_max};
    limit_descriptors(&few);
    return before;
}

const char *printed(void (*fn)(void *arg), void *arg)
{
    static char text[2000];
    int keep = dup(2), to = memfd_create("stderr", MFD_CLOEXEC);

    CHECK(keep >= 0 && to >= 0);
    dup2(to, 2);
    fn(arg);
    dup2(keep, 2);
    ssize_t n = pread(to, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(to);
    close(keep);
    return text;
}
