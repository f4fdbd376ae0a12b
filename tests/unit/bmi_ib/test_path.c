/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The path of a connection (bmi_ib/link/path.c): GID and service type by option, and the text
 * of the path in use. */
#include <arpa/inet.h>
#include <sys/stat.h>
#include <unistd.h>
#include "bmi_ib/device/port.h"
#include "rig.h"

#define V1 IBV_GID_TYPE_ROCE_V1
#define V2 IBV_GID_TYPE_ROCE_V2

static void gid(uint32_t port, uint32_t index, uint32_t type, const char *address)
{
    struct ibv_gid_entry *e = &rig.gid[rig.ngid++];

    *e = (struct ibv_gid_entry){
        .port_num = port, .gid_index = index, .gid_type = type, .ndev_ifindex = 7};
    assert_int_equal(inet_pton(AF_INET6, address, e->gid.raw), 1);
}

/* Opens a device with two ports, and a GID table like an adapter's: link-local first, each
 * twice. */
static void open_with(const char *options)
{
    rig_open(options, 16, 256);
    rig.rail->dev.attr.phys_port_cnt = 2;
    gid(1, 0, V1, "fe80::5");
    gid(1, 1, V2, "fe80::5");
    gid(1, 2, V1, "::ffff:10.0.0.5");
    gid(1, 3, V2, "::ffff:10.0.0.5");
    gid(2, 0, V2, "fe80::6");
    gid(2, 5, V2, "fd00::6");
}

/* Starts a connection to an address; the link's state shows whether this succeeded. */
static struct rme_link *start(const char *host, struct addrinfo **list)
{
    struct rme_link *l = rig_link_in(IB_NAMING);

    assert_int_equal(ib_resolve_numeric(host, "3334", list), 0);
    l->addresses = *list;
    return l;
}

static void check_source(const char *options, const char *peer, const char *source)
{
    struct addrinfo *list;
    char text[64] = "";

    open_with(options);
    assert_int_equal(ib_path_open(rig.rail), 0);
    struct rme_link *l = start(peer, &list);
    assert_int_equal(ib_link_next(l), source != NULL);
    assert_int_equal(l->error, source ? 0 : -EHOSTUNREACH);
    if (source != NULL && source[0])
        ib_sockaddr_text(&rig.source, text, sizeof(text));
    assert_int_equal(rig.resolved_addr, source ? 1 : 0);
    assert_string_equal(text, source ? source : "");
    rig_close();
}

static void gid_is_the_source_address(void **state)
{
    (void)state;
    check_source(NULL, "10.0.0.9", "");
    check_source("gid=10.0.0.5", "10.0.0.9", "10.0.0.5:0");
    check_source("gid=fd00::6", "fd00::9", "[fd00::6]:0");
    check_source("gid=fe80::6", "fe80::9", "[fe80::6%7]:0");
    check_source("gid=10.0.0.5", "fd00::9", NULL); /* of another family */
}

static void gid_missing_on_device_is_refused(void **state)
{
    static const char *const absent[] = {"gid=10.0.0.6", "gid=fd00::7"};
    static const char *const no_gid[] = {"gid=eth0", "gid=3", "gid=10.0.0"};

    (void)state;
    for (unsigned i = 0; i < sizeof(absent) / sizeof(*absent); i++) {
        open_with(absent[i]);
        assert_int_equal(ib_path_open(rig.rail), -ENODEV);
        assert_non_null(strstr(rig.line, "no port of device fake0 has this address"));
        assert_non_null(strstr(rig.line, "::ffff:10.0.0.5, "));
        assert_non_null(strstr(rig.line, "fd00::6"));
        rig_close();
    }
    for (unsigned i = 0; i < sizeof(no_gid) / sizeof(*no_gid); i++) {
        open_with(no_gid[i]);
        assert_int_equal(ib_path_open(rig.rail), -EINVAL);
        assert_non_null(strstr(rig.line, "not an IP address"));
        rig_close();
    }
    open_with("gid=fe80::1"); /* InfiniBand's GIDs are not IP addresses */
    rig.ngid = 0;
    gid(1, 0, IBV_GID_TYPE_IB, "fe80::1");
    assert_int_equal(ib_path_open(rig.rail), -ENODEV);
    assert_non_null(strstr(rig.line, "available: no IP address"));
    rig_close();
    open_with("gid=10.0.0.6");
    for (uint32_t i = 6; i < 30; i++)
        gid(2, i, V2, "fd00:1234:5678:9abc:1234:5678:9abc:6");
    assert_int_equal(ib_path_open(rig.rail), -ENODEV);
    assert_non_null(strstr(rig.line, ", and more; on InfiniBand"));
    rig_close();
}

static void check_class(const char *options, int tos)
{
    struct addrinfo *list;

    open_with(options);
    struct rme_link *l = start("10.0.0.9", &list);
    assert_true(ib_link_next(l));
    rig_cm(l, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
    assert_int_equal(rig.resolved_route, 1);
    assert_int_equal(rig.tos, tos);
    rig_close();
}

static void traffic_class_set_before_route(void **state)
{
    (void)state;
    check_class(NULL, -1);
    check_class("traffic_class=104", 104);
    check_class("traffic_class=0", 0);
    check_class("traffic_class=255", 255);
    check_class("traffic_class=-1", -1);
}

static void check_ack(const char *options, int ack)
{
    struct addrinfo *list;

    open_with(options);
    struct rme_link *l = start("10.0.0.9", &list);
    assert_true(ib_link_next(l));
    rig_cm(l, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
    assert_int_equal(rig.ack, ack);
    rig_close();
}

static void ack_timeout_set_reaches_connection(void **state)
{
    (void)state;
    check_ack(NULL, 18); /* no vendor: soft-RoCE */
    check_ack("ack_timeout=12", 12);
}

/* Brings a link up with its QP's path, and compares the text of the path, and the line logged,
 * which is found without calls of the kernel, with `want`, whose first %s is that text. */
static void check_text(const char *options, bool passive, const char *want)
{
    char text[RME_PATH_TEXT] = "?", line[RME_PATH_TEXT + 64];

    open_with(options);
    assert_int_equal(ib_path_open(rig.rail), 0);
    rig.path = (struct ibv_qp_attr){.path_mtu = IBV_MTU_4096, .pkey_index = 2};
    rig.path.ah_attr = (struct ibv_ah_attr){
        .is_global = 1, .port_num = 1, .sl = 3, .grh = {.sgid_index = 2, .traffic_class = 104}};
    struct rme_link *l = rig_link_in(passive ? IB_ACCEPTING : IB_CONNECTING);
    ib_link_path(l, text, sizeof(text));
    assert_string_equal(text, ""); /* nothing is known yet */
    rig_cm(l, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
    ib_link_path(l, text, sizeof(text));
    snprintf(line, sizeof(line), want, "100 Gb/s, no NUMA node, PKey 0x8002, ");
    assert_string_equal(text, line);
    strcpy(line, "peer:1: by ");
    snprintf(line + strlen(line), sizeof(line) - strlen(line), want, "");
    assert_non_null(strstr(rig.lines, line));
    rig_close();
}

static void path_of_link_printed_and_logged(void **state)
{
    (void)state;
    check_text(NULL, true,
               "fake0 port 1, %spath MTU 4096, GID 2 RoCE v1 ::ffff:10.0.0.5 (chosen by the "
               "peer), traffic class 104, service level 3");
    check_text(
        NULL, false,
        "fake0 port 1, %spath MTU 4096, GID 2 RoCE v1 ::ffff:10.0.0.5 (source address of "
        "the route to the peer), traffic class 104, service level 3");
    check_text("gid=10.0.0.5", false,
               "fake0 port 1, %spath MTU 4096, GID 2 RoCE v1 ::ffff:10.0.0.5 (address of the "
               "option gid), traffic class 104, service level 3");
}

static void path_of_infiniband_has_lid(void **state)
{
    char text[RME_PATH_TEXT];

    (void)state;
    open_with(NULL);
    rig.ngid = 0;
    gid(2, 0, IBV_GID_TYPE_IB, "fe80::9");
    rig.path = (struct ibv_qp_attr){.path_mtu = IBV_MTU_2048, .pkey_index = 1};
    rig.path.ah_attr = (struct ibv_ah_attr){.port_num = 2, .sl = 11, .dlid = 7};
    struct rme_link *l = rig_link_in(IB_CONNECTING);
    rig_cm(l, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
    ib_link_path(l, text, sizeof(text));
    assert_string_equal(text, "fake0 port 2, 100 Gb/s, no NUMA node, PKey 0x8001, path MTU "
                              "2048, GID 0 InfiniBand fe80::9 (not in the packets), to LID 7, "
                              "service level 11");
    ib_link_path(l, text, 20); /* a text that is too short is cut */
    assert_string_equal(text, "fake0 port 2, 100 G");
    rig_close();
}

static void path_not_reported_is_empty(void **state)
{
    char text[RME_PATH_TEXT];

    (void)state;
    open_with(NULL);
    rig.fail_query = true;
    struct rme_link *l = rig_link_in(IB_CONNECTING);
    rig_cm(l, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
    assert_int_equal(l->state, IB_UP);
    ib_link_path(l, text, sizeof(text));
    assert_string_equal(text, "");
    rig_close();
}

static void rate_of_port_follows_codes(void **state)
{
    static const struct {
        uint8_t width, speed;
        double rate;
    } ports[] = {{1, 1, 2.5},   {2, 4, 40},   {2, 8, 40},    {2, 16, 56}, {2, 32, 100},
                 {16, 64, 100}, {2, 64, 200}, {2, 128, 400}, {0, 32, 0},  {2, 0, 0}};

    (void)state;
    for (unsigned i = 0; i < sizeof(ports) / sizeof(*ports); i++) {
        struct ibv_port_attr port = {.active_width = ports[i].width,
                                     .active_speed = ports[i].speed};
        assert_true(ib_port_rate(&port) == ports[i].rate);
    }
}

static void numa_node_read_from_sysfs(void **state)
{
    struct ibv_device device = {.name = "fake0"};
    char folder[] = "/tmp/test_path.XXXXXX", name[64];

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(device.ibdev_path, sizeof(device.ibdev_path), "%s", folder);
    assert_int_equal(ib_numa_node(&device), -1);
    snprintf(name, sizeof(name), "%s/device", folder);
    assert_int_equal(mkdir(name, 0700), 0);
    strcat(name, "/numa_node");
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs("3\n", file);
    fclose(file);
    assert_int_equal(ib_numa_node(&device), 3);
    unlink(name);
    *strrchr(name, '/') = '\0';
    rmdir(name);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gid_is_the_source_address),
        cmocka_unit_test(gid_missing_on_device_is_refused),
        cmocka_unit_test(traffic_class_set_before_route),
        cmocka_unit_test(ack_timeout_set_reaches_connection),
        cmocka_unit_test(path_of_link_printed_and_logged),
        cmocka_unit_test(path_of_infiniband_has_lid),
        cmocka_unit_test(path_not_reported_is_empty),
        cmocka_unit_test(rate_of_port_follows_codes),
        cmocka_unit_test(numa_node_read_from_sysfs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
