/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The software HCA's descriptors: none free, as programs see them, closed by the program. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/emul/cm_help.h"

/* An id without a device because of a missing descriptor reports an error. */
TEST_UNWATCHED(address_without_descriptor_is_error)
{
    struct rdma_cm_id *id = new_id(NULL), *bound = new_id(NULL);

    CHECK_EQ(rdma_resolve_addr(id, NULL, at("127.0.0.1", PORT), 1000), 0);
    struct rlimit before = leave_descriptors(0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ADDR_ERROR), -EMFILE);
    limit_descriptors(&before);
    CHECK(!id->verbs && !id->pd);
    CHECK(rdma_resolve_route(id, 1000) < 0);
    CHECK_EQ(errno, EINVAL);
    before = leave_descriptors(2); /* one to claim the address */
    CHECK(rdma_bind_addr(bound, at("127.0.0.1", PORT + 1)) < 0);
    CHECK_EQ(errno, EMFILE);
    limit_descriptors(&before);
    CHECK(!bound->verbs && !bound->pd);
    CHECK_EQ(rdma_bind_addr(bound, at("127.0.0.1", PORT + 1)), 0);
    CHECK(bound->verbs && bound->pd);
    resolve(id, "127.0.0.1", PORT);
    before = leave_descriptors(0);
    CHECK_EQ(rdma_connect(id, &(struct rdma_conn_param){.qp_num = 7}), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_UNREACHABLE), -EMFILE);
    limit_descriptors(&before);
    finished(id, bound);
}

/* A listener at all addresses has no device before its first request. */
PAIR(request_without_descriptor_rejected, run_two)
ACTIVE(request_without_descriptor_rejected)
{
    struct rdma_conn_param p = {.qp_num = 7};

    if (is_watched()) /* valgrind emulates the limit of descriptors */
        return;
    struct rdma_cm_id *id = new_id(NULL);
    meet(s);
    resolve(id, "127.0.0.1", PORT + 8);
    CHECK_EQ(rdma_connect(id, &p), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_REJECTED), 28);
    drop(id);
    meet(s);
    id = connect_to("127.0.0.1", PORT + 8);
    meet(s);
    finished(id, NULL);
}
PASSIVE(request_without_descriptor_rejected)
{
    struct rdma_cm_event *e;

    if (is_watched())
        return;
    struct rdma_cm_id *l = listen_at("0.0.0.0", PORT + 8, 4);
    meet(s);
    CHECK(readable(chan->fd, 60000));
    CHECK_EQ(fcntl(chan->fd, F_SETFL, O_NONBLOCK), 0);
    struct rlimit before = leave_descriptors(0);
    CHECK(rdma_get_cm_event(chan, &e) < 0);
    CHECK_EQ(errno, EAGAIN);
    limit_descriptors(&before);
    meet(s);
    struct rdma_cm_id *id = accept_one();
    meet(s);
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    finished(id, l);
}

/* The listener has no descriptor to look up the requesters. Later, with one, it gets all
 * requests except the withdrawn one. */
enum { ASKED = 4, TAKEN_BACK = 1 };

PAIR(request_waits_for_descriptor, run_two)
ACTIVE(request_waits_for_descriptor)
{
    struct rdma_cm_id *id[ASKED];

    if (is_watched()) /* valgrind emulates the limit of descriptors */
        return;
    meet(s);
    for (unsigned char i = 0; i < ASKED; i++) {
        struct rdma_conn_param p = {.qp_num = 7, .private_data = &i, .private_data_len = 1};
        id[i] = new_id(NULL);
        resolve(id[i], "127.0.0.1", PORT + 13);
        CHECK_EQ(rdma_connect(id[i], &p), 0);
        if (i == TAKEN_BACK)
            drop(id[i]);
    }
    meet(s);
    for (int i = 0; i < ASKED - 1; i++)
        CHECK_EQ(eat(RDMA_CM_EVENT_REJECTED), 28);
    for (int i = 0; i < ASKED; i++)
        if (i != TAKEN_BACK)
            drop(id[i]);
    all_gone();
}
PASSIVE(request_waits_for_descriptor)
{
    unsigned heard = 0;

    if (is_watched())
        return;
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 13, 8);
    struct rlimit before = leave_descriptors(0);
    meet(s);
    meet(s);
    settle();
    limit_descriptors(&before);
    for (int i = 0; i < ASKED - 1; i++) {
        struct rdma_cm_event *e = next_event(RDMA_CM_EVENT_CONNECT_REQUEST);
        struct rdma_cm_id *id = e->id;
        heard |= 1u << *(const unsigned char *)e->param.conn.private_data;
        CHECK_EQ(rdma_ack_cm_event(e), 0);
        CHECK_EQ(rdma_reject(id, NULL, 0), 0);
        drop(id);
    }
    CHECK_EQ(heard, ((1u << ASKED) - 1) & ~(1u << TAKEN_BACK));
    finished(l, NULL);
}

/* Returns the events that poll reports for a descriptor. */
static short polled(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};

    CHECK(poll(&p, 1, 0) >= 0);
    return p.revents;
}

/* As with a device, whose descriptors are read only. */
SIDE(event_descriptors_are_never_writable, .a = {.use_chan = true})
{
    struct epoll_event edge = {.events = EPOLLIN | EPOLLOUT | EPOLLET}, seen;
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct ibv_cq *cq;
    void *context;

    struct rdma_cm_id *id = new_id(NULL);
    CHECK_EQ(epoll_ctl(set, EPOLL_CTL_ADD, s->chan->fd, &edge), 0);
    CHECK_EQ(polled(s->chan->fd), 0);
    CHECK_EQ(polled(s->ctx->async_fd), 0);
    CHECK_EQ(polled(chan->fd), 0);
    CHECK_EQ(rdma_resolve_addr(id, NULL, at("127.0.0.1", PORT), 1000), 0);
    CHECK(readable(chan->fd, 59000));
    CHECK_EQ(polled(chan->fd), POLLIN);
    CHECK_EQ(eat(RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    CHECK_EQ(polled(chan->fd), 0);
    drop(id);
    CHECK_EQ(fcntl(s->chan->fd, F_SETFL, O_NONBLOCK), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
        CHECK_EQ(epoll_wait(set, &seen, 1, 0), 0);
        CHECK_EQ(qp_error(s), 0);
        post_recv(s, 1, 0, 64); /* flushed */
        CHECK_EQ(epoll_wait(set, &seen, 1, 59000), 1);
        CHECK_EQ(polled(s->chan->fd), POLLIN);
        take_event(s->chan);
        CHECK_EQ(polled(s->chan->fd), 0);
        CHECK(ibv_get_cq_event(s->chan, &cq, &context) < 0 && errno == EAGAIN);
        expect_wc(s->rcq, 1, IBV_WC_WR_FLUSH_ERR);
    }
    close(set);
}

/* Objects of the parent, and its own device, in a child of fork. */
static void destroy_as_child(struct side *a, struct rdma_cm_id *id)
{
    struct side own = {.use_chan = true};
    int status;
    pid_t child = fork();

    if (child == 0) {
        for (int i = 0; i < 2; i++) {
            ibv_destroy_comp_channel(a->chan);
            rdma_destroy_id(id);
            rdma_destroy_event_channel(chan);
            ibv_close_device(a->ctx);
            if (i == 0)
                side_open(&own);
        }
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

SIDE(event_descriptors_survive_destruction_in_child, .a = {.use_chan = true})
{
    struct rdma_cm_id *id = new_id(NULL);
    destroy_as_child(s, id);
    resolve(id, "127.0.0.1", PORT);
    CHECK_EQ(rdma_connect(id, &(struct rdma_conn_param){.qp_num = 7}), 0);
    eat(RDMA_CM_EVENT_REJECTED); /* nobody listens: by a timer */
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    CHECK_EQ(qp_error(s), 0);
    post_recv(s, 1, 0, 64);
    take_event(s->chan);
    drop(id);
}
