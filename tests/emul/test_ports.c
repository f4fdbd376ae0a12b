/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Several devices with several ports: their attributes, and connectivity between them. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/emul/cm_help.h"
#include "tests/emul/datagrams.h"

static void devices(const char *number, const char *ports)
{
    setenv("EMUVERBS_DEVICES", number, 1);
    setenv("EMUVERBS_PORTS", ports, 1);
    setenv("EMUVERBS_RETRY_MAX_MS", "50", 1);
}

static union ibv_gid gid_at(struct ibv_context *ctx, uint8_t port)
{
    union ibv_gid gid;

    CHECK_EQ(ibv_query_gid(ctx, port, 0, &gid), 0);
    return gid;
}

static uint16_t lid_of(struct ibv_context *ctx, uint8_t port)
{
    struct ibv_port_attr a;

    CHECK_EQ(ibv_query_port(ctx, port, &a), 0);
    return a.lid;
}

TEST(devices_have_own_names_and_guids)
{
    struct ibv_device_attr da[3];
    union ibv_gid gid[6];
    uint16_t lid[6];
    char name[16];
    int n;

    devices("3", "2");
    setenv("EMUVERBS_DEVICE_NAME", "hca9", 1);
    struct ibv_device **list = ibv_get_device_list(&n);
    CHECK(list && !list[3]);
    CHECK_EQ(n, 3);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "hca%d", 9 + i);
        CHECK(strcmp(ibv_get_device_name(list[i]), name) == 0);
        CHECK_EQ(ibv_get_device_index(list[i]), i);
        struct ibv_context *ctx = ibv_open_device(list[i]);
        CHECK(ctx && ctx->device == list[i]);
        CHECK_EQ(ibv_query_device(ctx, &da[i]), 0);
        CHECK_EQ(da[i].phys_port_cnt, 2);
        CHECK(da[i].node_guid == ibv_get_device_guid(list[i]));
        CHECK(da[i].sys_image_guid == da[0].sys_image_guid);
        struct ibv_gid_entry e[3];
        CHECK_EQ(ibv_query_gid_table(ctx, e, 3, 0), 2);
        for (uint8_t port = 1; port <= 2; port++) {
            gid[2 * i + port - 1] = gid_at(ctx, port);
            lid[2 * i + port - 1] = lid_of(ctx, port);
            CHECK_EQ(e[port - 1].port_num, port);
            CHECK(memcmp(&e[port - 1].gid, &gid[2 * i + port - 1], 16) == 0);
        }
        struct ibv_port_attr pa;
        union ibv_gid none;
        CHECK_EQ(ibv_query_port(ctx, 3, &pa), EINVAL);
        CHECK_EQ(ibv_query_port(ctx, 0, &pa), EINVAL);
        CHECK(ibv_query_gid(ctx, 3, 0, &none) < 0);
        CHECK_EQ(ibv_close_device(ctx), 0);
    }
    ibv_free_device_list(list);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++) {
            CHECK(lid[i] != lid[j]);
            CHECK(memcmp(&gid[i], &gid[j], 16) != 0);
        }
    CHECK(da[0].node_guid != da[1].node_guid && da[1].node_guid != da[2].node_guid);
}

TEST(ethernet_ports_have_the_given_addresses)
{
    static const unsigned char want[2][16] = {{[10] = 0xff, 0xff, 10, 1, 2, 3}, {[15] = 1}};
    struct side a = {.device = 0}, b = {.device = 1};

    setenv("EMUVERBS_DEVICES", "2", 1);
    setenv("EMUVERBS_PORTS", "1", 1);
    setenv("EMUVERBS_ETHERNET", "1", 1);
    setenv("EMUVERBS_ADDRESSES", "10.1.2.3,::1", 1);
    side_open(&a);
    side_open(&b);
    union ibv_gid ga = gid_at(a.ctx, 1), gb = gid_at(b.ctx, 1);
    CHECK(memcmp(&ga, want[0], 16) == 0);
    CHECK(memcmp(&gb, want[1], 16) == 0);
    CHECK_EQ(lid_of(b.ctx, 1), 0);
    loop_close(&a, &b);
}

/* EMUVERBS_ETHERNET=2: RoCE v1 and v2 of a link-local and of the IP address. A path of one
 * version reaches no QP whose path has the other. */
TEST(roce_path_reaches_its_own_version)
{
    static const unsigned char ip[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
    struct side a = {.global = true}, b = {.global = true};
    struct ibv_gid_entry e[5];
    union ibv_gid gid[4];
    struct ibv_port_attr port;

    devices("1", "1");
    setenv("EMUVERBS_ETHERNET", "2", 1);
    side_open(&a);
    side_open(&b);
    CHECK_EQ(ibv_query_port(a.ctx, 1, &port), 0);
    CHECK_EQ(port.gid_tbl_len, 4);
    CHECK_EQ(ibv_query_gid_table(a.ctx, e, 3, 0), -EINVAL);
    CHECK_EQ(ibv_query_gid_table(a.ctx, e, 5, 0), 4);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(ibv_query_gid(a.ctx, 1, i, &gid[i]), 0);
        CHECK(memcmp(&gid[i], &e[i].gid, 16) == 0 && e[i].gid_index == (uint32_t)i);
        CHECK_EQ(e[i].gid_type, i % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2);
        CHECK(i < 2 ? gid[i].raw[0] == 0xfe : memcmp(&gid[i], ip, 16) == 0);
    }
    CHECK(ibv_query_gid(a.ctx, 1, 4, &gid[0]) < 0);
    a.sgid_index = 4;
    CHECK_EQ(qp_rtr(&a, b.qp->qp_num), EINVAL);
    for (uint8_t i = 0; i < 4; i++)
        for (uint8_t j = 0; j < 4; j++) {
            a.sgid_index = i;
            b.sgid_index = j;
            a.dgid = gid[j];
            b.dgid = gid[i];
            join_anew(&a, &b);
            post_recv(&b, 1, 0, 8);
            post_send(&a, 2, SEND, 0, 8, 0);
            if (i % 2 == j % 2)
                expect_wc(b.rcq, 1, IBV_WC_SUCCESS);
            expect_wc(a.scq, 2, i % 2 == j % 2 ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
        }
    loop_close(&a, &b);
}

SIDE(qp_takes_ports_of_its_device, .a = {.port = 2},
     .env = "EMUVERBS_DEVICES=1 EMUVERBS_PORTS=2")
{
    struct ibv_ah_attr ah = {.port_num = 2, .dlid = 1};

    struct ibv_ah *h = ibv_create_ah(s->pd, &ah);
    CHECK(h);
    CHECK_EQ(ibv_destroy_ah(h), 0);
    ah.port_num = 3;
    CHECK(!ibv_create_ah(s->pd, &ah));
    struct ibv_qp_attr qa = {.qp_state = IBV_QPS_INIT, .port_num = 3};
    CHECK_EQ(ibv_modify_qp(s->qp, &qa, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
}

static void change_device(const char *name, const char *state, int want)
{
    int (*fn)(const char *, const char *) =
        (int (*)(const char *, const char *))(uintptr_t)dlsym(RTLD_DEFAULT, "emuverbs_device");

    CHECK(fn);
    CHECK_EQ(fn(name, state), want);
}

static void fail_device(const char *name, int want)
{
    change_device(name, "failed", want);
}

static void expect_event(struct ibv_context *ctx, enum ibv_event_type type)
{
    struct ibv_async_event e;

    CHECK_EQ(ibv_get_async_event(ctx, &e), 0);
    CHECK_EQ(e.event_type, type);
    ibv_ack_async_event(&e);
}

TEST(failed_device_fails_own_qps_only)
{
    struct side a = {.device = 1}, b = {.device = 1}, c = {0}, d = {0};
    struct ibv_port_attr pa;
    char byte;

    devices("2", "1");
    a.dlid = b.dlid = 5;
    side_open(&a);
    side_open(&b);
    join_sides(&a, &b);
    loop_open(&c, &d);
    post_recv(&a, 7, 0, 100);
    fail_device("emu2", -1);
    fail_device("emu1", 0);
    fail_device("emu1", 0); /* one event only */
    expect_wc(a.rcq, 7, IBV_WC_WR_FLUSH_ERR);
    expect_event(a.ctx, IBV_EVENT_DEVICE_FATAL);
    CHECK(!readable(a.ctx->async_fd, 0));
    CHECK(!readable(c.ctx->async_fd, 0));
    CHECK(!ibv_reg_mr(a.pd, &byte, 1, 0));
    CHECK_EQ(errno, EIO);
    CHECK(!ibv_create_cq(a.ctx, 1, NULL, NULL, 0));
    CHECK(!ibv_alloc_mw(a.pd, IBV_MW_TYPE_2));
    struct ibv_qp_init_attr qi = {
        .send_cq = a.scq, .recv_cq = a.rcq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    CHECK(!ibv_create_qp(a.pd, &qi));
    CHECK_EQ(errno, EIO);
    CHECK_EQ(qp_init(&a), EIO);
    CHECK_EQ(ibv_query_port(a.ctx, 1, &pa), 0);
    CHECK_EQ(pa.state, IBV_PORT_DOWN);
    CHECK_EQ(ibv_query_port(c.ctx, 1, &pa), 0);
    CHECK_EQ(pa.state, IBV_PORT_ACTIVE);
    post_done(&c, WRITE, 0, 100, 0); /* the other device works */
    loop_close(&a, &b);              /* remaining objects can be destroyed */
    loop_close(&c, &d);
}

/* Calls on a removed device fail, and its objects can be destroyed; the device that takes its
 * place has the name, and its own contexts. */
TEST(removed_device_is_replaced_by_another)
{
    struct side a = {.device = 1}, b = {.device = 1};
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    int n;

    devices("2", "1");
    a.dlid = b.dlid = 5;
    side_open(&a);
    change_device("emu1", "nothing", -1);
    change_device("emu1", "removed", 0);
    change_device("emu1", "removed", 0); /* one event only */
    expect_event(a.ctx, IBV_EVENT_DEVICE_FATAL);
    CHECK(!readable(a.ctx->async_fd, 0));
    CHECK_EQ(ibv_query_device(a.ctx, &attr), EIO);
    CHECK_EQ(ibv_query_port(a.ctx, 1, &port), EIO);
    CHECK(!ibv_alloc_pd(a.ctx));
    CHECK_EQ(errno, EIO);
    struct ibv_device **list = ibv_get_device_list(&n);
    CHECK_EQ(n, 1);
    ibv_free_device_list(list);
    struct ibv_context **all = rdma_get_devices(&n);
    CHECK_EQ(n, 1);
    rdma_free_devices(all);

    change_device("emu1", "added", 0);
    list = ibv_get_device_list(&n);
    CHECK_EQ(n, 2);
    CHECK(list[1] != a.ctx->device && strcmp(ibv_get_device_name(list[1]), "emu1") == 0);
    CHECK(!ibv_open_device(a.ctx->device));
    CHECK_EQ(errno, ENODEV);
    ibv_free_device_list(list);
    side_open(&b);
    CHECK(!ibv_alloc_pd(a.ctx)); /* as before */
    struct side c = {.device = 1};
    c.dlid = 5;
    side_open(&c);
    join_sides(&b, &c);
    post_done(&b, WRITE, 0, 0, 0);
    loop_close(&b, &c);
    side_close(&a);
}

/* The ids of a removed device get DEVICE_REMOVAL and no other; a listener on all addresses
 * serves the device that comes back, with requests that were made meanwhile. */
TEST(ids_end_with_their_device)
{
    struct rdma_cm_event *e;

    devices("2", "1");
    chan = rdma_create_event_channel();
    CHECK(chan);
    struct rdma_cm_id *all = listen_at("0.0.0.0", PORT, 4);
    struct rdma_cm_id *one = listen_at("127.0.0.2", PORT + 1, 4);
    struct rdma_cm_id *other = listen_at("127.0.0.1", PORT + 2, 4);
    CHECK(one->verbs && one->verbs != other->verbs && !all->verbs);
    change_device("emu1", "removed", 0);
    e = next_event(RDMA_CM_EVENT_DEVICE_REMOVAL);
    CHECK(e->id == one);
    rdma_ack_cm_event(e);
    CHECK(!readable(chan->fd, 0));
    struct rdma_cm_id *id = new_id(NULL);
    CHECK_EQ(rdma_bind_addr(id, at("127.0.0.2", 0)), -1);
    CHECK_EQ(errno, ENODEV);
    CHECK_EQ(rdma_destroy_id(id), 0);
    struct ibv_context *before = one->verbs;
    CHECK_EQ(rdma_destroy_id(one), 0);

    id = new_id(NULL); /* from the other device; nobody answers */
    CHECK_EQ(rdma_bind_addr(id, at("127.0.0.1", 0)), 0);
    CHECK_EQ(rdma_resolve_addr(id, NULL, at("127.0.0.2", PORT), 1000), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    CHECK_EQ(rdma_resolve_route(id, 1000), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    give_qp(id);
    struct rdma_conn_param param = {.retry_count = 7};
    CHECK_EQ(rdma_connect(id, &param), 0);
    change_device("emu1", "added", 0);
    e = next_event(RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(e->id->verbs != before && e->listen_id == all);
    CHECK(strcmp(ibv_get_device_name(e->id->verbs->device), "emu1") == 0);
    struct rdma_cm_id *child = e->id;
    rdma_ack_cm_event(e);
    CHECK_EQ(rdma_destroy_id(child), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_REJECTED), 28);
    drop(id);
    CHECK_EQ(rdma_destroy_id(all), 0);
    CHECK_EQ(rdma_destroy_id(other), 0);
    rdma_destroy_event_channel(chan);
}

SIDE(port_goes_down_and_up, .env = "EMUVERBS_DEVICES=1 EMUVERBS_PORTS=1 EMUVERBS_ETHERNET=1")
{
    struct ibv_port_attr port;

    change_device("emu0", "down", 0);
    expect_event(s->ctx, IBV_EVENT_PORT_ERR);
    CHECK_EQ(ibv_query_port(s->ctx, 1, &port), 0);
    CHECK_EQ(port.state, IBV_PORT_DOWN);
    change_device("emu0", "up", 0);
    expect_event(s->ctx, IBV_EVENT_PORT_ACTIVE);
    CHECK_EQ(ibv_query_port(s->ctx, 1, &port), 0);
    CHECK_EQ(port.state, IBV_PORT_ACTIVE);
    change_device("emu0", "127.0.0.9", 0);
    expect_event(s->ctx, IBV_EVENT_GID_CHANGE);
    CHECK_EQ(gid_at(s->ctx, 1).raw[15], 9);
}

static _Atomic bool armed;

/* Replaces the C library's function, also for the library under test: the device fails here
 * once. */
__attribute__((visibility("default"))) int pthread_mutex_init(pthread_mutex_t *m,
                                                              const pthread_mutexattr_t *a)
{
    int (*next)(pthread_mutex_t *, const pthread_mutexattr_t *) =
        (int (*)(pthread_mutex_t *, const pthread_mutexattr_t *))(uintptr_t)dlsym(
            RTLD_NEXT, "pthread_mutex_init");

    if (atomic_exchange(&armed, false))
        fail_device("emu0", 0);
    return next(m, a);
}

/* A QP under construction gets no event. */
SIDE(device_failure_spares_qp_under_construction)
{
    struct ibv_qp_init_attr qi = {
        .send_cq = s->scq, .recv_cq = s->rcq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    CHECK_EQ(ibv_destroy_qp(s->qp), 0);
    atomic_store(&armed, true);
    s->qp = ibv_create_qp(s->pd, &qi);
    CHECK(!atomic_load(&armed));
    CHECK(s->qp);
    CHECK_EQ(qp_init(s), EIO);
}

static void send_by_lid(struct side *s, struct ibv_ah *ah, uint32_t qpn)
{
    CHECK(ah);
    datagram(s, 1, ah, qpn, 0, 16);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
}

/* Sends a datagram from the second device to the first, and back to the address in its
 * completion. */
TEST(datagrams_go_from_device_to_device)
{
    struct side a = {.device = 1}, b = {.device = 0};

    devices("2", "1");
    open_ud(&a);
    open_ud(&b);
    post_recv(&a, 10, 4096, 200);
    post_recv(&b, 10, 4096, 200);
    struct ibv_ah_attr to = {.port_num = 1, .dlid = lid_of(b.ctx, 1)};
    send_by_lid(&a, ibv_create_ah(a.pd, &to), b.qp->qp_num);
    struct ibv_wc wc = expect_wc(b.rcq, 10, IBV_WC_SUCCESS);
    CHECK_EQ(wc.slid, lid_of(a.ctx, 1));
    send_by_lid(&b, ibv_create_ah_from_wc(b.pd, &wc, NULL, 1), wc.src_qp);
    expect_wc(a.rcq, 10, IBV_WC_SUCCESS);
    CHECK_EQ(counter("1.1 bytes"), 16);
    CHECK_EQ(counter("0.1 bytes"), 16);
    loop_close(&a, &b);
}

static const char *device_of(const struct rdma_cm_id *id)
{
    return id->verbs != NULL ? ibv_get_device_name(id->verbs->device) : "none";
}

TEST(addresses_belong_to_devices_and_ports)
{
    int n;

    devices("2", "2");
    struct ibv_context **list = rdma_get_devices(&n);
    CHECK(list);
    CHECK_EQ(n, 2);
    static const struct {
        const char *host, *device;
        int port;
    } want[] = {{"127.0.0.1", "emu0", 1},       {"127.0.0.2", "emu0", 2},
                {"127.0.0.3", "emu1", 1},       {"127.0.0.4", "emu1", 2},
                {"127.0.0.5", "emu0", 1},       {"::1", "emu0", 1},
                {"::ffff:127.0.0.4", "emu1", 2}};
    for (unsigned i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        struct rdma_cm_id *id = new_id(NULL);
        CHECK_EQ(rdma_bind_addr(id, at(want[i].host, 0)), 0);
        CHECK(strcmp(device_of(id), want[i].device) == 0);
        CHECK_EQ(id->port_num, want[i].port);
        CHECK(id->verbs == list[want[i].device[3] - '0']);
        CHECK(id->pd && id->pd->context == id->verbs);
        drop(id);
        id = new_id(NULL);
        resolve(id, want[i].host, 4711);
        CHECK(strcmp(device_of(id), want[i].device) == 0);
        CHECK_EQ(id->port_num, want[i].port);
        drop(id);
    }
    rdma_free_devices(list);
    all_gone();
}

PAIR(request_reaches_device_of_its_address, run_two)
ACTIVE(request_reaches_device_of_its_address)
{
    struct rdma_conn_param p = {.retry_count = 7, .rnr_retry_count = 7};
    struct sockaddr_in src = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct ibv_qp_attr qa;
    struct ibv_qp_init_attr qi;

    devices("2", "1");
    meet(s);
    struct rdma_cm_id *id = new_id(NULL);
    CHECK_EQ(rdma_resolve_addr(id, (struct sockaddr *)&src, at("127.0.0.2", PORT), 1000), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    CHECK(strcmp(device_of(id), "emu0") == 0); /* by the program's source address */
    CHECK_EQ(rdma_resolve_route(id, 1000), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    CHECK(memcmp(&id->route.addr.addr.ibaddr.sgid, &id->route.addr.addr.ibaddr.dgid, 16) != 0);
    give_qp(id);
    CHECK_EQ(rdma_connect(id, &p), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ESTABLISHED), 0);
    CHECK_EQ(ibv_query_qp(id->qp, &qa, 0, &qi), 0);
    CHECK_EQ(qa.ah_attr.dlid, 5);
    meet(s);
    finished(id, NULL);
}
PASSIVE(request_reaches_device_of_its_address)
{
    struct ibv_qp_attr qa;
    struct ibv_qp_init_attr qi;

    devices("2", "1");
    struct rdma_cm_id *l = listen_at("0.0.0.0", PORT, 4);
    CHECK(!l->verbs);
    meet(s);
    struct rdma_cm_id *id = accept_one();
    CHECK(strcmp(device_of(id), "emu1") == 0);
    CHECK_EQ(ibv_query_qp(id->qp, &qa, 0, &qi), 0);
    CHECK_EQ(qa.ah_attr.dlid, 1);
    meet(s);
    finished(id, l);
}
