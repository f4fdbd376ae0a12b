/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The verbs fabric over a device, between processes: addresses, long lists, load, death of a
 * peer at many moments. tests/conformance tests the contract of fabric.h; this program tests
 * what needs processes and verbs. The argument has options of the fabric
 * ("srq=on,max_inline=0").
 */
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bmi_ib/ib.h"
#include "wire_host.h"

/* ---- Random loads ---- */

enum {
    LOADS = 300,
    SLOTS = 64,
    IN_FLIGHT = 8,
    PIECES = 64,
    SEGMENTS = 16,
    SEGMENT = 61,
    SIZE = 1 << 20
};

/* Transfers in flight, each with its own registered memory. */
struct loads {
    struct wire *w;
    uint8_t data[SLOTS][PIECES * SEGMENTS * SEGMENT], pattern[SIZE];
    struct rme_mr mr;
    struct rme_sge seg[SLOTS][PIECES * SEGMENTS];
    struct rme_rdma_seg piece[SLOTS][PIECES];
    struct rme_rdma_op x[SLOTS];
    int posted, done, next; /* transfers, in order */
    int sent, echoed;       /* messages */
    int64_t requests;       /* work requests */
};

static struct loads *loads_open(struct wire *w)
{
    struct loads *d = calloc(1, sizeof(*d));
    assert_non_null(d);
    d->w = w;
    wire_fill(d->pattern, SIZE, 5);
    assert_int_equal(
        w->ops->reg(w->f, d->data, sizeof(d->data), RME_ACCESS_LOCAL_WRITE, &d->mr), 0);
    return d;
}

/* Returns the work requests of this process; negative: not on the software HCA. */
static int64_t requests_posted(void)
{
    return wire_counter("wr_send") + wire_counter("wr_write") + wire_counter("wr_read");
}

static void loads_close(struct loads *d)
{
    d->w->ops->dereg(d->w->f, &d->mr);
    free(d);
}

/* Returns the server's memory of piece i: reads use the first half, writes the other one. */
static uint64_t remote_of(bool read, int i)
{
    return (read ? 0 : SIZE / 2) + 4099 * (uint64_t)i;
}

static bool text_of(struct loads *d, char *text)
{
    if (text == NULL || d->sent - d->echoed >= WIRE_RX / 2)
        return false;
    snprintf(text, 32, "message %d", d->sent++);
    d->requests++;
    return true;
}

/* Posts a transfer of `pieces` with `nseg` segments each. A write may carry a message. */
static void post_load(struct loads *d, bool read, int pieces, int nseg)
{
    struct wire *w = d->w;
    int slot = d->posted++ % SLOTS;
    struct rme_rdma_op *x = &d->x[slot];
    for (int i = 0; i < pieces * nseg; i++)
        d->seg[slot][i] = (struct rme_sge){d->data[slot] + i * SEGMENT, SEGMENT, d->mr.lkey};
    for (int i = 0; i < pieces; i++)
        d->piece[slot][i] =
            (struct rme_rdma_seg){w->offer.base + remote_of(read, i), w->offer.rkey,
                                  &d->seg[slot][i * nseg], (uint32_t)nseg};
    *x = (struct rme_rdma_op){
        .read = read, .piece = d->piece[slot], .npiece = (uint32_t)pieces, .owner = d};
    char *tx = read ? NULL : w->ops->tx_get(w->link);
    if (text_of(d, tx)) {
        x->notify = RME_NOTIFY_MSG;
        x->tx = tx;
        x->tx_length = strlen(tx) + 1;
    } else if (tx != NULL) {
        w->ops->tx_put(w->link, tx);
    }
    memset(d->data[slot], 0, sizeof(d->data[slot]));
    d->requests += pieces;
    w->ops->rdma_op(w->link, x);
}

static bool is_empty(const struct rme_rdma_op *x)
{
    return x->npiece == 0 && x->notify == RME_NOTIFY_NONE;
}

/* Polls, and checks what has ended: transfers and echoes come in order, data of reads is
 * right. */
static void take_loads(struct loads *d)
{
    struct wire *w = d->w;
    char text[32];
    w->nseen = 0;
    wire_poll(w);
    for (int i = 0; i < w->nseen; i++) {
        if (w->seen[i].type == RME_EV_RECV) {
            snprintf(text, sizeof(text), "message %d", d->echoed++);
            assert_string_equal(w->seen[i].text, text);
        } else if (w->seen[i].type == RME_EV_RDMA_DONE) {
            struct rme_rdma_op *x = w->seen[i].rdma_op;
            assert_ptr_equal(x->owner, d); /* once */
            x->owner = NULL;
            d->done++;
            while (d->next < d->posted &&
                   is_empty(&d->x[d->next % SLOTS])) /* ends when its turn to be posted comes */
                d->next++;
            if (!is_empty(x))
                assert_ptr_equal(x, &d->x[d->next++ % SLOTS]);
            for (uint32_t k = 0; x->read && k < x->npiece; k++)
                assert_memory_equal(x->piece[k].seg[0].base,
                                    d->pattern + remote_of(true, (int)k),
                                    x->piece[k].nseg * SEGMENT);
        } else {
            assert_int_equal(w->seen[i].type, RME_EV_TX_ROOM);
        }
    }
}

/* Random transfers and messages, far more than a send queue of any depth holds, whose positions
 * wrap: the queue never overflows, which the device would refuse, nor stalls. */
static void random_loads_complete_in_order(void **state)
{
    const char *before = wire_options;
    (void)state;
    for (unsigned seed = 1; seed <= 6; seed++) {
        struct wire w;
        char options[128];
        const char *uri = wire_uri("127.0.0.1");
        pid_t server = wire_server(uri, SIZE);
        srand(seed);
        snprintf(options, sizeof(options), "sq_depth=%d,%s", 8 << rand() % 5,
                 before != NULL ? before : "");
        wire_options = options;
        wire_open(&w, NULL);
        wire_connect(&w, uri);
        w.link->ring.head = w.link->ring.tail = seed % 2 ? UINT32_MAX - 5 : (1u << 24) - 5;
        struct loads *d = loads_open(&w);
        int64_t requests = requests_posted();
        int most = (int)w.ops->caps(w.f)->max_read_sge;
        time_t end = wire_now() + PATIENCE_S;
        while (d->done < LOADS || d->echoed < d->sent) {
            assert_true(wire_now() < end);
            if (d->posted < LOADS && d->posted - d->done < IN_FLIGHT && rand() % 2)
                post_load(d, rand() % 3 == 0, rand() % (PIECES + 1),
                          1 + rand() % (most < SEGMENTS ? most : SEGMENTS));
            char *tx = rand() % 4 || d->posted == LOADS ? NULL : w.ops->tx_get(w.link);
            if (text_of(d, tx))
                w.ops->tx_send(w.link, tx, strlen(tx) + 1);
            else if (tx != NULL)
                w.ops->tx_put(w.link, tx);
            if (rand() % 3 == 0)
                take_loads(d);
        }
        if (requests >= 0)
            assert_int_equal(requests_posted() - requests, d->requests);
        loads_close(d);
        wire_disconnect(&w);
        wire_close(&w);
        wire_kill(server);
        wire_options = before;
    }
}

/* Polls; creates or destroys one QP at most. */
static void poll_one(struct wire *w)
{
    int64_t qps = wire_counter("live_qp");
    wire_poll(w);
    assert_in_range(wire_counter("live_qp") - qps + 1, 0, 2);
}

/* To bound the delay of messages a poll handles one QP at most, and no sleep follows while
 * there are more. */
static void poll_makes_or_ends_one_qp(void **state)
{
    enum { MANY = 8 };
    struct wire w;
    const char *uri = wire_uri("127.0.0.1");
    struct rme_link *link[MANY];
    pid_t server = wire_server(uri, 4096);
    time_t end = wire_now() + PATIENCE_S;

    (void)state;
    wire_open(&w, NULL);
    for (int i = 0; i < MANY; i++)
        link[i] = wire_dial(&w, uri);
    while (wire_count(&w, RME_EV_LINK_UP) < MANY) {
        assert_true(wire_now() < end);
        poll_one(&w);
    }
    for (int i = 0; i < MANY; i++)
        w.ops->link_disconnect(link[i], 0);
    for (int left; (left = MANY - wire_count(&w, RME_EV_LINK_DOWN)) > 0;) {
        assert_true(wire_now() < end);
        assert_int_equal(w.ops->arm(w.f), 0);
        poll_one(&w);
        if (left > 1)
            w.ops->wait(w.f, w.ops->deadline(w.f));
    }
    for (int i = 0; i < MANY; i++)
        w.ops->link_free(link[i]);
    wire_close(&w);
    wire_kill(server);
}

static bool connect_to(struct wire *w, const char *uri)
{
    wire_open(w, NULL);
    wire_connect(w, uri);
    return w->link != NULL;
}

/* A peer uses up receives promised to others: these wait until receives are posted again, and
 * no link is lost. */
static void others_wait_for_receives(void **state)
{
    struct wire greedy, modest;
    const char *uri = wire_uri("127.0.0.1"), *before = wire_options;
    char options[256];
    (void)state;
    snprintf(options, sizeof(options), "%s%srnr_retry=7", before != NULL ? before : "",
             before != NULL && *before ? "," : "");
    wire_options = options;
    pid_t server = wire_server(uri, 4096);
    assert_true(connect_to(&greedy, uri) && connect_to(&modest, uri));
    kill(server, SIGSTOP);
    int sent = 0;
    while (sent < 4 * WIRE_RX &&
           wire_send(&greedy, "not granted")) /* twice the number promised to both */
        sent++;
    wire_poll(&greedy);
    for (int i = 0; i < 20; i++)
        assert_true(wire_send(&modest, "granted"));
    for (int i = 0; i < 1000; i++) { /* both get RNR */
        wire_poll(&greedy);
        wire_poll(&modest);
    }
    kill(server, SIGCONT);
    wire_until(&modest, RME_EV_RECV, 20);
    assert_int_equal(wire_count(&modest, RME_EV_LINK_DOWN), 0);
    wire_until(&greedy, RME_EV_RECV, sent);
    wire_disconnect(&modest);
    wire_disconnect(&greedy);
    wire_close(&modest);
    wire_close(&greedy);
    wire_kill(server);
    wire_options = before;
}

/* A process that runs out of descriptors gets that error, not "no device": a host continues
 * without a network only if its device is missing. */
static void no_descriptor(void **state)
{
    struct rlimit limit, few;
    int least = dup(0), error = -EMFILE, tries = 0;
    (void)state;
    assert_true(least >= 0);
    close(least);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    for (few.rlim_cur = (rlim_t)least; error; few.rlim_cur++, tries++) {
        struct wire w;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        error = wire_start(&w, NULL);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_true(error == 0 || error == -EMFILE);
        wire_stop(&w);
    }
    assert_true(tries > 2); /* two are needed before the devices are opened */
}

/* A window is bound again after all others, so that a key repeats as late as possible. */
static void keys_come_from_all_windows(void **state)
{
    enum { TIMES = 8 };
    static uint8_t memory[64];
    const char *uri = wire_uri("127.0.0.1"), *before = wire_options;
    struct rme_mr mr;
    struct wire w;
    uint64_t key[TIMES];
    (void)state;
    if (wire_counter("live_mw") < 0) /* only the software HCA has windows for certain */
        skip();
    pid_t server = wire_server(uri, 0);
    wire_options = "rkey_scope=operation";
    wire_open(&w, NULL);
    wire_connect(&w, uri);
    assert_int_equal(w.ops->reg(w.f, memory, 64, RME_ACCESS_REMOTE_WRITE, &mr), 0);
    for (int i = 0; i < TIMES; i++) {
        struct rme_range range = {.base = memory, .length = 64, .rkey = mr.rkey};
        assert_int_equal(w.ops->mw_bind(w.link, &range, 1, RME_ACCESS_REMOTE_WRITE), 0);
        key[i] = range.key;
        for (int k = 0; k < i; k++)
            assert_int_not_equal(key[i] >> 8, key[k] >> 8);
        assert_false(w.ops->mw_invalidate(w.link, &range, 1, &mr));
        w.ops->flush(w.f);
        wire_until(&w, RME_EV_MW_INVALIDATED, i + 1);
    }
    w.ops->dereg(w.f, &mr);
    wire_disconnect(&w);
    wire_close(&w);
    wire_kill(server);
    wire_options = before;
}

/* ---- Calls of the system that fail ---- */

static int calls_left; /* until one fails; 0: none fails; negative: each one */

static bool fails(void)
{
    if (calls_left == 0 || (calls_left > 0 && --calls_left > 0))
        return false;
    errno = EMFILE;
    return true;
}

/* The linker redirects calls of NAME to __wrap_NAME, and calls of __real_NAME to NAME. */
int __real_fcntl(int fd, int command, long value);
int __wrap_fcntl(int fd, int command, long value);
int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags);
int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags);
int __real_epoll_ctl(int epoll, int command, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int command, int fd, struct epoll_event *event);
struct ibv_mr *__real_ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t length,
                                       uint64_t iova, unsigned access);
struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t length,
                                       uint64_t iova, unsigned access);

int __wrap_fcntl(int fd, int command, long value)
{
    return fails() ? -1 : __real_fcntl(fd, command, value);
}

int __wrap_eventfd(unsigned value, int flags)
{
    return fails() ? -1 : __real_eventfd(value, flags);
}

int __wrap_epoll_create1(int flags)
{
    return fails() ? -1 : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int epoll, int command, int fd, struct epoll_event *event)
{
    bool failing = command == EPOLL_CTL_ADD && fails();
    return failing ? -1 : __real_epoll_ctl(epoll, command, fd, event);
}

struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t length,
                                       uint64_t iova, unsigned access)
{
    return fails() ? NULL : __real_ibv_reg_mr_iova2(pd, at, length, iova, access);
}

static void any_failed_call_fails_open(void **state)
{
    int calls = 0, error = -EMFILE;
    (void)state;
    for (; error != 0; calls++) {
        struct wire w;
        calls_left = calls + 1;
        error = wire_start(&w, NULL);
        assert_int_equal(error, calls_left > 0 ? 0 : -EMFILE);
        calls_left = 0;
        wire_stop(&w);
    }
    assert_true(calls > 4);
}

/* Without memory for more buffers, links get those that are there. */
static void sends_wait_for_refused_memory(void **state)
{
    enum { LINKS = 8, EACH = 256 };
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, 0);
    struct rme_link *link[LINKS];
    void *taken[LINKS][EACH] = {{NULL}};
    int total[2] = {0, 0}, n[LINKS] = {0};
    struct wire w;
    (void)state;
    wire_open(&w, NULL);
    for (int i = 0; i < LINKS; i++) {
        wire_connect(&w, uri);
        link[i] = w.link;
    }
    for (int later = 0; later < 2; later++) {
        calls_left = later - 1;
        for (int i = 0; i < LINKS; i++)
            while (n[i] < EACH && (taken[i][n[i]] = w.ops->tx_get(link[i])) != NULL)
                n[i]++;
        for (int i = 0; i < LINKS; i++)
            total[later] += n[i];
    }
    assert_true(total[0] > 0 && total[1] > total[0]);
    for (int i = 0; i < LINKS; i++) {
        while (n[i] > 0)
            w.ops->tx_put(link[i], taken[i][--n[i]]);
        w.ops->link_free(link[i]);
    }
    wire_close(&w);
    wire_kill(server);
}

/* A CQ grows to the device's limit; a link that does not fit fails, and the others stay. */
static void link_beyond_the_cq_is_refused(void **state)
{
    enum { MOST = 10 };
    struct rme_link *link[MOST];
    struct wire w;
    int links = 0;
    (void)state;
    if (getenv("EMUVERBS_MAX_CQE") == NULL)
        skip();
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, 0);
    wire_open(&w, NULL);
    for (; wire_count(&w, RME_EV_LINK_DOWN) == 0; links++) {
        assert_true(links < MOST);
        w.nseen = 0;
        link[links] = wire_dial(&w, uri);
        while (wire_count(&w, RME_EV_LINK_DOWN) + wire_count(&w, RME_EV_LINK_UP) == 0)
            wire_poll(&w);
    }
    assert_int_equal(wire_event(&w, RME_EV_LINK_DOWN, 0)->error, -ENOSPC);
    assert_true(links > 2);
    w.link = link[0];
    assert_true(wire_send(&w, "hello"));
    wire_until(&w, RME_EV_RECV, 1);
    while (links > 0)
        w.ops->link_free(link[--links]);
    wire_close(&w);
    wire_kill(server);
}

/* Echoes messages one after another; returns the doorbells of receives posted meanwhile. */
static uint64_t receive_doorbells(struct wire *w, int messages)
{
    uint64_t before = w->stats.value[RME_C_RECV_DOORBELLS];
    w->nseen = 0;
    for (int i = 1; i <= messages; i++) {
        assert_true(wire_send(w, "hello"));
        wire_until(w, RME_EV_RECV, i);
    }
    return w->stats.value[RME_C_RECV_DOORBELLS] - before;
}

/* A link with few receives has none beside them, and posts each at once; one with many posts
 * several at a time. */
static void few_granted_receives_are_posted_alone(void **state)
{
    const char *uri = wire_uri("127.0.0.1"), *before = wire_options;
    pid_t server = wire_server(uri, 0);
    struct rme_link *few;
    int64_t posted;
    struct rme_addr *addr;
    struct wire w;
    (void)state;
    wire_options = "srq=off";
    wire_open(&w, NULL);
    posted = wire_counter("wr_recv");
    assert_int_equal(rme_addr_parse("ib", uri, &addr), 0);
    assert_int_equal(w.ops->link_connect(w.f, addr, 0, "hello", 6, 4, &w, &few), 0);
    wire_until(&w, RME_EV_LINK_UP, 1);
    assert_int_equal(receive_doorbells(&w, 24), 24);
    assert_int_equal(wire_counter("wr_recv") - posted, 4 + 24);
    wire_connect(&w, uri);
    assert_in_range(receive_doorbells(&w, 24), 1, 24 / 4);
    w.ops->link_free(w.link);
    w.ops->link_free(few);
    rme_addr_put(addr);
    wire_close(&w);
    wire_kill(server);
    wire_options = before;
}

/* ---- The CQ ---- */

static struct {
    int vectors; /* of the device; 0: its own number */
    bool fixed;  /* the device cannot resize a CQ */
    int size, vector;
} cq;

struct ibv_comp_channel *__real_ibv_create_comp_channel(struct ibv_context *ctx);
struct ibv_comp_channel *__wrap_ibv_create_comp_channel(struct ibv_context *ctx);
struct ibv_cq *__real_ibv_create_cq(struct ibv_context *ctx, int size, void *context,
                                    struct ibv_comp_channel *channel, int vector);
struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *ctx, int size, void *context,
                                    struct ibv_comp_channel *channel, int vector);
int __real_ibv_resize_cq(struct ibv_cq *queue, int size);
int __wrap_ibv_resize_cq(struct ibv_cq *queue, int size);

struct ibv_comp_channel *__wrap_ibv_create_comp_channel(struct ibv_context *ctx)
{
    if (cq.vectors > 0)
        ctx->num_comp_vectors = cq.vectors;
    return __real_ibv_create_comp_channel(ctx);
}

struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *ctx, int size, void *context,
                                    struct ibv_comp_channel *channel, int vector)
{
    cq.size = size;
    cq.vector = vector;
    return __real_ibv_create_cq(ctx, size, context, channel, 0); /* the only one there */
}

int __wrap_ibv_resize_cq(struct ibv_cq *queue, int size)
{
    return cq.fixed ? EOPNOTSUPP : __real_ibv_resize_cq(queue, size);
}

/* Takes at most an eighth of the lockable memory, all space at once where a CQ keeps its size,
 * and the vectors of the device in turn. */
static void cq_fits_memlock_and_spreads(void **state)
{
    static const struct {
        uint64_t budget;
        bool fixed;
        int vectors, size;
    } row[] = {{1 << 20, false, 1, 2048},
               {0, false, 4, 8192},
               {0, true, 16, 262144},
               {1 << 20, true, 1024, 2048}};
    const char *before = wire_options;
    (void)state;
    wire_options = "srq=off";
    for (int i = 0; i < 4; i++) {
        struct wire w;
        wire_budget = row[i].budget;
        cq.vectors = row[i].vectors;
        cq.fixed = row[i].fixed;
        wire_open(&w, NULL);
        assert_int_equal(cq.size, row[i].size);
        assert_int_equal(cq.vector, getpid() % row[i].vectors);
        wire_close(&w);
    }
    cq.vectors = 1;
    cq.fixed = false;
    wire_budget = 0;
    wire_options = before;
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_descriptor), /* first: the software device is opened once */
        cmocka_unit_test(any_failed_call_fails_open),
        cmocka_unit_test(random_loads_complete_in_order),
        cmocka_unit_test(poll_makes_or_ends_one_qp),
        cmocka_unit_test(others_wait_for_receives),
        cmocka_unit_test(keys_come_from_all_windows),
        cmocka_unit_test(sends_wait_for_refused_memory),
        cmocka_unit_test(few_granted_receives_are_posted_alone),
        cmocka_unit_test(cq_fits_memlock_and_spreads),
        cmocka_unit_test(link_beyond_the_cq_is_refused),
    };
    wire_main(argc, argv);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
