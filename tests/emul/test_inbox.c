/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Processes that get more messages than their inbox holds while they are stopped. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "tests/emul/cm_help.h"
#include "tests/emul/stop.h"

/* An inbox has 4,096 entries. An eighth of the connections is rejected. */
enum { INBOX = 4096, MANY = 5000, REJECTED = MANY / 8, KEPT = MANY - REJECTED };
_Static_assert(KEPT > INBOX + 200, "all of them do not fit");

static struct rdma_cm_id *ids[MANY];
static const struct rdma_conn_param params = {.qp_num = 1, .retry_count = 7};

static void ask_by(struct rdma_cm_id *id)
{
    struct rdma_conn_param p = params;

    CHECK_EQ(rdma_connect(id, &p), 0);
}

static void resolve_many(int n)
{
    for (int i = 0; i < n; i++) {
        ids[i] = new_id(NULL);
        resolve(ids[i], "127.0.0.1", PORT + 5);
    }
}

static void say(struct side *s, int value)
{
    CHECK_EQ(send(s->sock, &value, sizeof(value), 0), sizeof(value));
}

static int hear(struct side *s)
{
    int value;

    CHECK_EQ(recv(s->sock, &value, sizeof(value), MSG_WAITALL), sizeof(value));
    return value;
}

/* Messages to a process while it is stopped, each kind more often than fits: requests, answers,
 * confirmations, disconnections, and their answers. */
PAIR(connection_messages_survive_full_inbox, run_two)
ACTIVE(connection_messages_survive_full_inbox)
{
    int answered = 0, rejected = 0;

    if (is_watched()) /* would take minutes */
        return;
    meet(s);
    resolve_many(MANY);
    say(s, getpid());
    CHECK(process_stop(s->peer));
    for (int i = 0; i < MANY; i++)
        ask_by(ids[i]);
    kill(s->peer, SIGCONT);
    meet(s); /* answered while this process was stopped */
    while (answered + rejected < MANY) {
        struct rdma_cm_event *e;
        CHECK(readable(chan->fd, 60000));
        CHECK_EQ(rdma_get_cm_event(chan, &e), 0);
        CHECK(e->event == RDMA_CM_EVENT_CONNECT_RESPONSE ||
              (e->event == RDMA_CM_EVENT_REJECTED && e->status == 28));
        if (e->event == RDMA_CM_EVENT_REJECTED)
            rejected++;
        else
            ids[answered++] = e->id;
        struct rdma_cm_id *id = e->event == RDMA_CM_EVENT_REJECTED ? e->id : NULL;
        CHECK_EQ(rdma_ack_cm_event(e), 0);
        if (id != NULL)
            drop(id);
    }
    CHECK_EQ(rejected, REJECTED);
    CHECK(process_stop(s->peer));
    for (int i = 0; i < KEPT; i++)
        CHECK_EQ(rdma_establish(ids[i]), 0);
    kill(s->peer, SIGCONT);
    meet(s);
    CHECK(process_stop(s->peer));
    for (int i = 0; i < KEPT; i++)
        CHECK_EQ(rdma_disconnect(ids[i]), 0);
    kill(s->peer, SIGCONT);
    meet(s); /* likewise */
    for (int i = 0; i < KEPT; i++)
        CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    for (int i = 0; i < KEPT; i++)
        drop(ids[i]);
    all_gone();
    meet(s);
}
PASSIVE(connection_messages_survive_full_inbox)
{
    struct rdma_conn_param p = params;

    if (is_watched())
        return;
    setenv("EMUVERBS_BACKLOG", "10000", 1); /* 2 * MANY */
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 5, 2 * MANY);
    meet(s);
    pid_t other = hear(s);
    for (int i = 0; i < MANY; i++) {
        struct rdma_cm_event *e = next_event(RDMA_CM_EVENT_CONNECT_REQUEST);
        ids[i] = e->id;
        CHECK_EQ(rdma_ack_cm_event(e), 0);
    }
    CHECK(process_stop(other));
    int kept = 0;
    for (int i = 0; i < MANY; i++) {
        if (i % 8 == 7) {
            CHECK_EQ(rdma_reject(ids[i], NULL, 0), 0);
            drop(ids[i]); /* its messages are still to be delivered */
        } else {
            CHECK_EQ(rdma_accept(ids[i], &p), 0);
            ids[kept++] = ids[i];
        }
    }
    CHECK_EQ(kept, KEPT);
    kill(other, SIGCONT);
    meet(s);
    for (int i = 0; i < KEPT; i++)
        CHECK_EQ(eat(RDMA_CM_EVENT_ESTABLISHED), 0);
    meet(s);
    for (int i = 0; i < KEPT; i++)
        CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    CHECK(process_stop(other));
    for (int i = 0; i < KEPT; i++)
        CHECK_EQ(rdma_disconnect(ids[i]), 0);
    kill(other, SIGCONT);
    meet(s);
    for (int i = 0; i < KEPT; i++)
        drop(ids[i]);
    drop(l);
    meet(s); /* answers may be in flight until here */
    all_gone();
}

/* QPs whose owners get an event: the first message in RTR, a denied key, an SRQ limit, a full
 * CQ, a channel. */
enum { FIRST, DENIED, LIMIT, OVERRUN, WOKEN, KINDS };

static void open_all(struct side *all, const struct side *s)
{
    for (int k = 0; k < KINDS; k++) {
        all[k] = (struct side){.sock = s->sock, .peer = s->peer};
        all[k].use_srq = k == LIMIT;
        all[k].use_chan = k == WOKEN;
        all[k].cqe = k == OVERRUN ? 2 : 0;
        side_open(&all[k]);
        for (unsigned i = 0; i < 4; i++)
            post_recv(&all[k], i, 0, 64);
    }
}

static void close_all(struct side *all)
{
    for (int k = 0; k < KINDS; k++)
        side_close(&all[k]);
}

PAIR(object_events_survive_full_inbox, run_two)
ACTIVE(object_events_survive_full_inbox)
{
    struct side all[KINDS];

    if (is_watched()) /* valgrind emulates the limit of descriptors */
        return;
    open_all(all, s);
    for (int k = 0; k < KINDS; k++) {
        if (k == FIRST) {
            say(&all[k], (int)all[k].qp->qp_num);
            CHECK_EQ(qp_rtr(&all[k], (uint32_t)hear(s)), 0);
            CHECK_EQ(qp_rts(&all[k]), 0);
        } else {
            side_connect(&all[k]);
        }
    }
    meet(s);
    resolve_many(INBOX + 300);
    CHECK(process_stop(s->peer));
    for (int i = 0; i < INBOX + 300; i++)
        ask_by(ids[i]);
    struct rlimit limit = leave_descriptors(0);
    post_send(&all[FIRST], 1, SEND, 0, 8, 0);
    expect_wc(all[FIRST].scq, 1, IBV_WC_SUCCESS);
    CHECK_EQ(try_send(&all[DENIED], 1, WRITE, 0, 8, IBV_SEND_SIGNALED, all[DENIED].raddr,
                      all[DENIED].rkey ^ 2),
             0);
    expect_wc(all[DENIED].scq, 1, IBV_WC_REM_ACCESS_ERR);
    post_send(&all[LIMIT], 1, SEND, 0, 8, 0);
    expect_wc(all[LIMIT].scq, 1, IBV_WC_SUCCESS);
    for (unsigned i = 0; i < 3; i++) {
        post_send(&all[OVERRUN], i, SEND, 0, 8, 0);
        wait_wc(all[OVERRUN].scq);
    }
    post_send(&all[WOKEN], 1, SEND, 0, 8, 0);
    expect_wc(all[WOKEN].scq, 1, IBV_WC_SUCCESS);
    limit_descriptors(&limit);
    kill(s->peer, SIGCONT);
    meet(s);
    for (int i = 0; i < INBOX + 300; i++)
        drop(ids[i]);
    close_all(all);
    rdma_destroy_event_channel(chan);
}
PASSIVE(object_events_survive_full_inbox)
{
    struct ibv_srq_attr attr = {.srq_limit = 4};
    struct side all[KINDS];

    if (is_watched())
        return;
    open_all(all, s);
    setenv("EMUVERBS_BACKLOG", "10000", 1); /* 2 * MANY */
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 5, 2 * MANY);
    CHECK_EQ(ibv_modify_srq(all[LIMIT].srq, &attr, IBV_SRQ_LIMIT), 0);
    CHECK_EQ(ibv_req_notify_cq(all[WOKEN].rcq, 0), 0);
    for (int k = 0; k < KINDS; k++) {
        if (k == FIRST) {
            say(&all[k], (int)all[k].qp->qp_num);
            CHECK_EQ(qp_rtr(&all[k], (uint32_t)hear(s)), 0);
        } else {
            side_connect(&all[k]);
        }
    }
    meet(s);
    expect_async(&all[FIRST], IBV_EVENT_COMM_EST, all[FIRST].qp);
    expect_async(&all[DENIED], IBV_EVENT_QP_ACCESS_ERR, all[DENIED].qp);
    for (unsigned i = 0; i < 4; i++)
        expect_wc(all[DENIED].rcq, i, IBV_WC_WR_FLUSH_ERR);
    expect_async(&all[LIMIT], IBV_EVENT_SRQ_LIMIT_REACHED, all[LIMIT].srq);
    expect_async(&all[OVERRUN], IBV_EVENT_CQ_ERR, all[OVERRUN].rcq);
    take_event(all[WOKEN].chan);
    expect_wc(all[WOKEN].rcq, 0, IBV_WC_SUCCESS);
    for (int k = 0; k < KINDS; k++) /* one event each */
        CHECK(k == OVERRUN || k == LIMIT || !readable(all[k].ctx->async_fd, 0));
    meet(s);
    drop(l);
    close_all(all);
    rdma_destroy_event_channel(chan);
}
