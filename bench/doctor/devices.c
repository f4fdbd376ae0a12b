/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* RDMA devices, their ports and addresses, and an engine on them; see doctor.h. */
#include "bench/doctor/doctor.h"

#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "bmi_ib/bmi_ib.h"
#include "common/rme.h"

#define EMUVERBS_VENDOR 0x02c0deu

/* ---- Kernel's devices ---- */

/* Checks the files through which libraries reach the kernel's devices.  Not called where a
 * software HCA replaces them. */
static void check_modules(struct doctor *doctor)
{
    static const char path[] = "/dev/infiniband/rdma_cm";

    if (access(path, R_OK | W_OK) == 0)
        doctor_row(doctor, DOCTOR_PASS, NULL, "modules", "%s can be opened", path);
    else if (errno == ENOENT)
        doctor_row(doctor, DOCTOR_FAIL,
                   "modprobe rdma_ucm ib_uverbs and the adapter's driver, such as mlx5_ib; "
                   "without an adapter rdma_rxe, or run under emuverbs",
                   "modules", "%s does not exist", path);
    else
        doctor_row(doctor, DOCTOR_FAIL,
                   "add the user to the group of /dev/infiniband, or give it access by udev",
                   "modules", "%s: %s", path, strerror(errno));
}

/* ---- Addresses ---- */

/* Binds an address of this machine.  Returns the device and *port, or NULL. */
static struct ibv_context *device_of(struct rdma_event_channel *channel, struct sockaddr *addr,
                                     uint8_t *port)
{
    struct ibv_context *device = NULL;
    struct rdma_cm_id *id;

    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0)
        return NULL;
    if (rdma_bind_addr(id, addr) == 0) {
        device = id->verbs;
        *port = id->port_num;
    }
    rdma_destroy_id(id);
    return device;
}

/* Prints the addresses of a port, separated by spaces; nothing if there is none. */
static void addresses_of(struct ibv_context *device, uint8_t port, FILE *out)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct ifaddrs *all = NULL;

    if (channel && getifaddrs(&all) == 0) {
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            char name[NI_MAXHOST];
            uint8_t at = 0;
            int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
            socklen_t length =
                family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

            if ((family == AF_INET || family == AF_INET6) &&
                device_of(channel, i->ifa_addr, &at) == device && at == port &&
                !getnameinfo(i->ifa_addr, length, name, sizeof name, NULL, 0, NI_NUMERICHOST))
                fprintf(out, " %s", name);
        }
        freeifaddrs(all);
    }
    if (channel)
        rdma_destroy_event_channel(channel);
}

static void check_address(struct doctor *doctor, struct ibv_context *device, uint8_t number,
                          const struct ibv_port_attr *port, const char *subject)
{
    bool ethernet = port->link_layer == IBV_LINK_LAYER_ETHERNET;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    if (out) {
        addresses_of(device, number, out);
        fclose(out);
    }
    if (length)
        doctor_row(doctor, DOCTOR_PASS, NULL, subject, "addresses:%s", text);
    else
        doctor_row(doctor, DOCTOR_FAIL,
                   ethernet
                       ? "ip address add ADDRESS/BITS dev INTERFACE, on the port's network "
                         "interface, which must be up"
                       : "modprobe ib_ipoib; ip address add ADDRESS/BITS dev ib0; ip link "
                         "set ib0 up: connections are made by IP address",
                   subject, "no IP address: rdma_cm cannot connect over this port");
    free(text);
}

/* ---- Ports ---- */

/* Returns the nominal Gb/s of a lane, from the code of a port. */
static double lane_rate(uint32_t speed)
{
    static const struct {
        uint32_t code;
        double rate;
    } rates[] = {{1, 2.5}, {2, 5},   {4, 10},    {8, 10},   {16, 14},
                 {32, 25}, {64, 50}, {128, 100}, {256, 200}};

    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (rates[i].code == speed)
            return rates[i].rate;
    return 0;
}

static unsigned lanes(uint8_t width)
{
    switch (width) {
    case 2:
        return 4;
    case 4:
        return 8;
    case 8:
        return 12;
    case 16:
        return 2;
    default:
        return 1;
    }
}

static unsigned count_gids(struct ibv_context *device, uint8_t number,
                           const struct ibv_port_attr *port)
{
    static const union ibv_gid none;
    union ibv_gid gid;
    unsigned count = 0;

    for (int i = 0; i < port->gid_tbl_len; i++)
        count +=
            ibv_query_gid(device, number, i, &gid) == 0 && memcmp(&gid, &none, sizeof gid) != 0;
    return count;
}

/* Checks one port.  Returns true if it is active. */
static bool check_port(struct doctor *doctor, struct ibv_context *device, uint8_t number)
{
    struct ibv_port_attr port = {0};
    bool ethernet, slow;
    char subject[64];

    snprintf(subject, sizeof subject, "%s port %u", ibv_get_device_name(device->device),
             number);
    if (ibv_query_port(device, number, &port) != 0) {
        doctor_row(doctor, DOCTOR_FAIL, "check the driver's lines in dmesg", subject,
                   "cannot be queried: %s", strerror(errno));
        return false;
    }
    if (port.state != IBV_PORT_ACTIVE) {
        doctor_row(doctor, DOCTOR_WARN,
                   "check cable and switch; on InfiniBand a subnet manager must run (opensm)",
                   subject, "%s", ibv_port_state_str(port.state));
        return false;
    }
    ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    slow = port.active_mtu < IBV_MTU_2048;
    doctor_row(
        doctor, slow ? DOCTOR_WARN : DOCTOR_PASS,
        slow ? "on Ethernet an interface MTU of 4200 or more gives a path MTU of 4096" : NULL,
        subject, "active, %s, %.0f Gb/s, MTU %u, %u GIDs", ethernet ? "Ethernet" : "InfiniBand",
        lane_rate(port.active_speed) * lanes(port.active_width), 128u << port.active_mtu,
        count_gids(device, number, &port));
    check_address(doctor, device, number, &port, subject);
    return true;
}

/* ---- Devices ---- */

static int numa_node(const char *name)
{
    char path[128];
    FILE *file;
    int node = -1;

    snprintf(path, sizeof path, "/sys/class/infiniband/%s/device/numa_node", name);
    file = fopen(path, "r");
    if (file && fscanf(file, "%d", &node) != 1)
        node = -1;
    if (file)
        fclose(file);
    return node;
}

static void check_features(struct doctor *doctor, struct ibv_context *device,
                           const struct ibv_device_attr *attr, const char *name)
{
    const unsigned types =
        IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    bool windows = (attr->device_cap_flags & types) != 0 && attr->max_mw > 0;
    struct ibv_device_attr_ex more = {0};
    bool odp = ibv_query_device_ex(device, NULL, &more) == 0 &&
               (more.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;

    doctor_row(doctor, windows ? DOCTOR_PASS : DOCTOR_WARN,
               windows ? NULL : "admit trusted hosts only: see SECURITY.md, Keys", name,
               "memory windows: %s", windows ? "yes" : "no: a key opens whole registrations");
    doctor_row(doctor, DOCTOR_PASS, NULL, name,
               "on-demand paging: %s; NUMA node: %d; %d completion vectors", odp ? "yes" : "no",
               numa_node(name), device->num_comp_vectors);
}

/* Returns true if a port is active. */
static bool check_device(struct doctor *doctor, struct ibv_context *device)
{
    const char *name = ibv_get_device_name(device->device);
    struct ibv_device_attr attr = {0};
    bool active = false;

    if (ibv_query_device(device, &attr) != 0) {
        doctor_row(doctor, DOCTOR_FAIL, "check the driver's lines in dmesg", name,
                   "cannot be queried: %s", strerror(errno));
        return false;
    }
    doctor->emulated = attr.vendor_id == EMUVERBS_VENDOR;
    if (device->device->transport_type == IBV_TRANSPORT_IWARP) {
        doctor_row(doctor, DOCTOR_WARN, "use InfiniBand or RoCE", name,
                   "iWARP, which lacks RDMA write with immediate data");
        return false;
    }
    doctor_row(doctor, DOCTOR_PASS, NULL, name, "vendor 0x%04x, part %u, firmware %s%s",
               attr.vendor_id, attr.vendor_part_id, attr.fw_ver,
               doctor->emulated ? " (software HCA)" : "");
    for (unsigned p = 1; p <= attr.phys_port_cnt; p++)
        active |= check_port(doctor, device, (uint8_t)p);
    check_features(doctor, device, &attr, name);
    return active;
}

/* ---- Engine ---- */

/* Makes a row of each error and warning.  Hooks that work are none: the row userfaultfd has the
 * remedy. */
static void take_line(void *arg, enum rme_log_level level, const char *line)
{
    static const char cache[] = "registration cache: ";
    const char *what = line + sizeof cache - 1;
    struct doctor *doctor = arg;

    if (level > RME_LOG_WARN)
        return;
    if (!strncmp(line, cache, sizeof cache - 1)) {
        bool works = strstr(what, "by hooks") != NULL;

        return doctor_row(doctor, works ? DOCTOR_PASS : DOCTOR_WARN, NULL, "registration cache",
                          "%.*s", works ? (int)strcspn(what, "(") : (int)strlen(what), what);
    }
    doctor_row(doctor, level == RME_LOG_ERROR ? DOCTOR_FAIL : DOCTOR_WARN, NULL, "engine", "%s",
               line);
}

static void check_engine(struct doctor *doctor, const char *options)
{
    const struct rme_config config = {
        .fabric = bmi_ib_fabric(), .options = options, .log = take_line, .log_arg = doctor};
    struct rme *rme;

    if (rme_open(&config, &rme) != 0)
        return; /* a row has the reason */
    doctor_row(doctor, DOCTOR_PASS, NULL, "engine", "opens; a key opens %s",
               rme_key_opens(rme));
    rme_close(rme);
}

void doctor_devices(struct doctor *doctor, const char *options)
{
    int count = 0;
    struct ibv_context **all = rdma_get_devices(&count);
    bool active = false;

    for (int i = 0; all && i < count; i++)
        active |= check_device(doctor, all[i]);
    if (!doctor->emulated)
        check_modules(doctor);
    if (!all || count == 0)
        doctor_row(doctor, DOCTOR_FAIL,
                   "load the adapter's driver; without an adapter run under emuverbs",
                   "devices", "no RDMA device");
    else if (!active)
        doctor_row(doctor, DOCTOR_FAIL, "see the rows of the ports", "devices",
                   "no port is active");
    else
        check_engine(doctor, options);
    if (all)
        rdma_free_devices(all);
}
