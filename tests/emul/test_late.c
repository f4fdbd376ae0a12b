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
    own.qp = new_qp(s, IBV_QPT_RC, 1);
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

/* A message has taken its receive, and its completion is late. Meanwhile the receive's memory
 * is deregistered. */
PAIR(message_behind_deregistration_fails_receiver, run_two)
ACTIVE(message_behind_deregistration_fails_receiver)
{
    s->access = IBV_ACCESS_LOCAL_WRITE; /* copied when it is polled */
    side_open(s);
    post_recv(s, 1, 0, 64);
    side_connect(s);
    meet(s);
    wait_stopped(s->stop);
    expect_none(s->rcq);
    CHECK_EQ(ibv_dereg_mr(s->mr), 0);
    s->mr = NULL;
    go_on(s->stop, 0);
    expect_wc(s->rcq, 1, IBV_WC_LOC_PROT_ERR);
    CHECK(!is_pattern(s->buf, 64, 5));
    CHECK_EQ(qp_state(s), IBV_QPS_ERR);
    side_leave(s);
}
PASSIVE(message_behind_deregistration_fails_receiver)
{
    stop_at(s, "push");
    side_join(s);
    pattern(s->buf, 64, 5);
    meet(s);
    CHECK_EQ(try_send(s, 1, SEND, 0, 64, 0, 0, 0), 0);
    side_leave(s);
}

/* A process is stopped while one of its threads writes here. Its other threads stop at once,
 * this one after its copy: until then deregistration must wait. */
#define LARGE (128u << 20)

PAIR(memory_is_kept_while_a_process_stops, run_two)
ACTIVE(memory_is_kept_while_a_process_stops)
{
    s->size = LARGE;
    side_join(s);
    volatile unsigned char *at = s->buf;
    meet(s);
    while (!at[0])
        ;
    CHECK_EQ(kill(s->peer, SIGSTOP), 0);
    CHECK_EQ(dereg_by_looks(s->mr, s->peer), 0);
    CHECK_EQ(counter("drains_given_up"), 0);
    unsigned char last = at[LARGE - 1];
    CHECK(process_stop(s->peer));
    CHECK_EQ(at[LARGE - 1], last);
    CHECK_EQ(kill(s->peer, SIGCONT), 0);
    s->mr = NULL;
    side_leave(s);
}

static void *write_all(void *s)
{
    post_send(s, 1, WRITE, 0, LARGE, 0);
    return NULL;
}

PASSIVE(memory_is_kept_while_a_process_stops)
{
    /* tests parsing of the state behind the name */
    CHECK_EQ(prctl(PR_SET_NAME, "a) R", 0, 0, 0), 0);
    s->size = LARGE;
    side_join(s);
    memset(s->buf, 1, LARGE);
    meet(s);
    /* this thread waits, and stops at once */
    CHECK_EQ(pthread_join(spawn(write_all, s), NULL), 0);
    expect_wc(s->scq, 1, IBV_WC_SUCCESS);
    side_leave(s);
}
