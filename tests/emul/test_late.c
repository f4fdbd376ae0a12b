/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Late posters: stopped, killed or overtaken while they work on another process's queue. */
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "tests/emul/pair.h"
#include "tests/emul/stop.h"

/* A poster is killed at a step of its wake-up: the owner gets the completion and one event. */
static void survive_dead_poster(struct side *s, bool raised)
{
    s->use_chan = true;
    side_open(s);
    post_recv(s, 1, 0, 64);
    side_connect(s);
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    meet(s);
    wait_stopped(s->stop);
    CHECK_EQ(readable(s->chan->fd, 0), raised);
    kill_peer_and_wait(s);
    CHECK(readable(s->chan->fd, 0));
    CHECK(take_event(s->chan) == s->rcq);
    CHECK(!readable(s->chan->fd, 0));
    expect_wc(s->rcq, 1, IBV_WC_SUCCESS);
    expect_none(s->rcq);
    side_close(s);
}
static void survive_without_event(struct side *s)
{
    survive_dead_poster(s, false);
}
static void survive_with_event(struct side *s)
{
    survive_dead_poster(s, true);
}

static const char *step; /* where the poster stops */
static void send_and_stop(struct side *s)
{
    stop_at(s, step);
    side_join(s);
    meet(s);
    post_send(s, 1, SEND, 0, 8, 0);
    pause_forever();
}

CASE(event_of_dead_poster_counted_once)
{
    static const char *const before[] = {"wake", "notify"};

    for (unsigned i = 0; i < 2; i++) {
        step = before[i];
        assert_int_equal(run_two_kill(survive_without_event, send_and_stop), 0);
    }
    step = "reported";
    assert_int_equal(run_two_kill(survive_with_event, send_and_stop), 0);
}

/* A poster dies after disarming the CQ and before raising the event, and another one has done
 * both since: each event wakes. */
static void each_event_wakes(struct side *s)
{
    s->use_chan = true;
    side_open(s);
    struct side own = *s; /* a second QP with the same CQs */
    struct ibv_qp_init_attr qi = {.send_cq = s->scq,
                                  .recv_cq = s->rcq,
                                  .qp_type = IBV_QPT_RC,
                                  .cap = {.max_recv_wr = 1, .max_recv_sge = 1}};
    own.qp = ibv_create_qp(s->pd, &qi);
    CHECK(own.qp);
    CHECK_EQ(qp_init(&own), 0);
    post_recv(&own, 2, 0, 64);
    post_recv(s, 1, 0, 64);
    side_connect(s);
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    meet(s);
    wait_stopped(s->stop);
    expect_wc(s->rcq, 1, IBV_WC_SUCCESS);
    CHECK(!readable(s->chan->fd, 0));
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    CHECK_EQ(qp_error(&own), 0);
    expect_wc(s->rcq, 2, IBV_WC_WR_FLUSH_ERR);
    CHECK(readable(s->chan->fd, 60000));
    kill_peer_and_wait(s);
    for (int i = 0; i < 2; i++) {
        CHECK(readable(s->chan->fd, 0));
        CHECK(take_event(s->chan) == s->rcq);
    }
    CHECK(!readable(s->chan->fd, 0));
    CHECK_EQ(ibv_destroy_qp(own.qp), 0);
    side_close(s);
}
CASE(each_event_wakes_when_a_poster_dies)
{
    step = "notify";
    assert_int_equal(run_two_kill(each_event_wakes, send_and_stop), 0);
}

/* A poster wakes late: the channel was destroyed, and its descriptor is now an eventfd of the
 * program. */
PAIR(late_wake_up_spares_reused_descriptor, run_two)
ACTIVE(late_wake_up_spares_reused_descriptor)
{
    int own = eventfd(0, 0);

    CHECK(own >= 0);
    s->use_chan = true;
    side_open(s);
    post_recv(s, 1, 0, 64);
    side_connect(s);
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    meet(s);
    wait_stopped(s->stop); /* the poster has looked up the channel */
    expect_wc(s->rcq, 1, IBV_WC_SUCCESS);
    int number = s->chan->fd;
    side_close(s);
    CHECK_EQ(dup2(own, number), number);
    go_on(s->stop, 0);
    meet(s); /* the poster is done */
    CHECK(!readable(own, 0));
}
PASSIVE(late_wake_up_spares_reused_descriptor)
{
    stop_at(s, "signal");
    side_join(s);
    meet(s);
    post_send(s, 1, SEND, 0, 8, 0);
    side_leave(s);
}

static int first_eventfd(void)
{
    char path[64], link[32];
    ssize_t n;

    for (int fd = 3;; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if ((n = readlink(path, link, sizeof(link))) > 0 &&
            memcmp(link, "anon_inode:[eventfd", 19) == 0)
            return fd;
        CHECK(fd < 1000);
    }
}

/* A program has closed the descriptor that wakes its service thread, and uses its number for a
 * file. */
PAIR(reused_wake_descriptor_is_not_written, run_two)
ACTIVE(reused_wake_descriptor_is_not_written)
{
    int end[2];
    char byte;

    side_open(s);
    int bell = first_eventfd(); /* that wakes the service thread */
    CHECK_EQ(pipe(end), 0);
    side_connect(s);
    CHECK_EQ(dup2(end[1], bell), bell);
    meet(s);
    expect_async(s, IBV_EVENT_QP_ACCESS_ERR, s->qp);
    meet(s);
    CHECK(!readable(end[0], 0));
    close(bell);
    close(end[1]);
    CHECK(readable(end[0], 60000)); /* EOF: the other process has no copy */
    CHECK_EQ(read(end[0], &byte, 1), 0);
    side_leave(s);
}
PASSIVE(reused_wake_descriptor_is_not_written)
{
    side_join(s);
    meet(s);
    post_to(s, 1, WRITE, 0, 8, s->raddr, s->rkey ^ 2);
    expect_wc(s->scq, 1, IBV_WC_REM_ACCESS_ERR);
    meet(s);
    side_leave(s);
}

/* A poster is stopped while it holds a cell of a CQ. Its QP and the CQ are destroyed; its later
 * writes there are seen in no other CQ. */
PAIR(cq_destroyed_under_stopped_poster, run_two)
ACTIVE(cq_destroyed_under_stopped_poster)
{
    struct side a = {.cqe = 64}, b = {.cqe = 64};

    s->cqe = 64; /* all posters begin at the same cell */
    side_open(s);
    post_recv(s, 1, 0, 64);
    side_connect(s);
    meet(s);
    wait_stopped(s->stop);
    CHECK(process_stop(s->peer));
    side_close(s);
    loop_open(&a, &b);
    post_recv(&a, 1, 0, 64);
    post_recv(&b, 2, 0, 64);
    post_send(&a, 3, SEND, 64, 8, 0);
    post_send(&b, 4, SEND, 64, 8, 0);
    CHECK_EQ(kill(s->peer, SIGCONT), 0);
    go_on(s->stop, 0);
    meet(s); /* the poster is done */
    expect_wc(a.rcq, 1, IBV_WC_SUCCESS);
    expect_wc(b.rcq, 2, IBV_WC_SUCCESS);
    expect_wc(a.scq, 3, IBV_WC_SUCCESS);
    expect_wc(b.scq, 4, IBV_WC_SUCCESS);
    expect_none(a.rcq);
    expect_none(b.rcq);
    expect_none(a.scq);
    expect_none(b.scq);
    loop_close(&a, &b);
}
PASSIVE(cq_destroyed_under_stopped_poster)
{
    stop_at(s, "push");
    side_join(s);
    meet(s);
    CHECK_EQ(try_send(s, 1, SEND, 0, 8, 0, 0, 0), 0);
    side_leave(s);
}

/* A message has taken its receive, and its notification is late. Meanwhile the receive's memory
 * is registered again, with on-demand paging, or not at all. */
enum fate { STAYS, UNMAPPED, DEREGISTERED };

static enum fate fate;
static void overtake(struct side *s)
{
    enum ibv_wc_status status = fate == STAYS ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
    const size_t size = 4096;
    struct ibv_recv_wr *bad;

    side_open(s);
    unsigned char *at =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(s->pd, at, size, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    struct ibv_sge sge = {(uintptr_t)at, 64, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};
    CHECK_EQ(ibv_post_recv(s->qp, &wr, &bad), 0);
    side_connect(s);
    meet(s);
    wait_stopped(s->stop);
    expect_none(s->rcq);
    if (fate == DEREGISTERED)
        CHECK_EQ(ibv_dereg_mr(mr), 0);
    else
        CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND),
                 0);
    if (fate == UNMAPPED)
        CHECK_EQ(munmap(at, size), 0);
    go_on(s->stop, 0);
    expect_wc(s->rcq, 1, status);
    if (fate == STAYS)
        CHECK(is_pattern(at, 64, 5));
    CHECK_EQ(qp_state(s), fate == STAYS ? IBV_QPS_RTS : IBV_QPS_ERR);
    meet(s);
    if (fate != DEREGISTERED)
        CHECK_EQ(ibv_dereg_mr(mr), 0);
    side_close(s);
}

static void send_late(struct side *s)
{
    stop_at(s, "push");
    side_join(s);
    pattern(s->buf, 64, 5);
    meet(s);
    CHECK_EQ(try_send(s, 1, SEND, 0, 64, 0, 0, 0), 0);
    side_leave(s);
}

CASE(memory_changed_behind_late_message_is_checked)
{
    for (fate = STAYS; fate <= DEREGISTERED; fate++)
        assert_int_equal(run_two(overtake, send_late), 0);
}

/* A process is stopped while one of its threads writes here. Its other threads stop at once,
 * this one after its copy: until then deregistration must wait. */
#define LARGE (128u << 20)

struct target {
    uint64_t at, rkey;
};

static unsigned char *large_memory(struct side *s, struct ibv_mr **mr)
{
    unsigned char *at =
        mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    *mr = ibv_reg_mr(s->pd, at, LARGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(*mr);
    return at;
}

PAIR(memory_is_kept_while_a_process_stops, run_two)
ACTIVE(memory_is_kept_while_a_process_stops)
{
    struct ibv_mr *mr;

    side_open(s);
    volatile unsigned char *at = large_memory(s, &mr);
    struct target target = {(uintptr_t)at, mr->rkey};
    side_connect(s);
    CHECK_EQ(write(s->sock, &target, sizeof(target)), sizeof(target));
    while (!at[0])
        ;
    CHECK_EQ(kill(s->peer, SIGSTOP), 0);
    CHECK_EQ(dereg_by_looks(mr, s->peer), 0);
    CHECK_EQ(counter("drains_given_up"), 0);
    unsigned char last = at[LARGE - 1];
    CHECK(process_stop(s->peer));
    CHECK_EQ(at[LARGE - 1], last);
    CHECK_EQ(kill(s->peer, SIGCONT), 0);
    meet(s);
    CHECK_EQ(munmap((void *)target.at, LARGE), 0);
    side_close(s);
}

struct writer {
    struct side *s;
    struct ibv_mr *mr;
    struct target to;
};

static void *write_all(void *arg)
{
    struct writer *w = arg;
    struct ibv_sge sge = {(uintptr_t)w->mr->addr, LARGE, w->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    wr.wr.rdma.remote_addr = w->to.at;
    wr.wr.rdma.rkey = (uint32_t)w->to.rkey;
    CHECK_EQ(ibv_post_send(w->s->qp, &wr, &bad), 0);
    return NULL;
}

PASSIVE(memory_is_kept_while_a_process_stops)
{
    struct writer w = {.s = s};
    pthread_t thread;

    /* tests parsing of the state behind the name */
    CHECK_EQ(prctl(PR_SET_NAME, "a) R", 0, 0, 0), 0);
    side_open(s);
    unsigned char *at = large_memory(s, &w.mr);
    memset(at, 1, LARGE);
    side_connect(s);
    CHECK_EQ(read(s->sock, &w.to, sizeof(w.to)), sizeof(w.to));
    CHECK_EQ(pthread_create(&thread, NULL, write_all, &w), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0); /* this thread waits, and stops at once */
    expect_wc(s->scq, 1, IBV_WC_SUCCESS);
    meet(s);
    CHECK_EQ(ibv_dereg_mr(w.mr), 0);
    CHECK_EQ(munmap(at, LARGE), 0);
    side_close(s);
}
