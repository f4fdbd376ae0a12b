/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* RDMA devices, their ports and addresses, and an engine on them; see doctor.h. */
#include "bench/doctor/doctor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "bmi_ib/bmi_ib.h"
#include "bmi_ib/device/port.h"
#include "common/rme.h"

#define EMUVERBS_VENDOR 0x02c0deu
#define GIDS_SHOWN      8

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

static void keep_net(struct doctor *doctor, const char *subject, const struct ifaddrs *i)
{
    const struct sockaddr_in *at = (const void *)i->ifa_addr,
                             *mask = (const void *)i->ifa_netmask;
    struct doctor_net *net = &doctor->net[doctor->nets];

    if (i->ifa_addr->sa_family != AF_INET || mask == NULL || doctor->nets == DOCTOR_NETS)
        return;
    snprintf(net->subject, sizeof net->subject, "%s", subject);
    net->mask = mask->sin_addr.s_addr;
    net->network = at->sin_addr.s_addr & net->mask;
    doctor->nets++;
}

/* Returns true, with the address as text, if an address is one of this port. */
static bool has_address(struct rdma_event_channel *channel, struct ibv_context *device,
                        uint8_t port, const struct ifaddrs *i, char name[NI_MAXHOST])
{
    uint8_t at = 0;
    int family = i->ifa_addr != NULL ? i->ifa_addr->sa_family : AF_UNSPEC;
    socklen_t length =
        family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    return (family == AF_INET || family == AF_INET6) &&
           device_of(channel, i->ifa_addr, &at) == device && at == port &&
           !getnameinfo(i->ifa_addr, length, name, NI_MAXHOST, NULL, 0, NI_NUMERICHOST);
}

/* Prints the addresses of a port, each behind a space.  Returns true if connections can use
 * one: an IPv6 address of the link alone is there on every interface that is up. */
static bool addresses_of(struct doctor *doctor, struct ibv_context *device, uint8_t port,
                         const char *subject, FILE *out)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct ifaddrs *all = NULL;
    bool usable = false;

    if (channel != NULL && getifaddrs(&all) == 0) {
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            char name[NI_MAXHOST];

            if (!has_address(channel, device, port, i, name))
                continue;
            fprintf(out, " %s", name);
            usable |= strncmp(name, "fe80:", 5) != 0;
            keep_net(doctor, subject, i);
        }
        freeifaddrs(all);
    }
    if (channel != NULL)
        rdma_destroy_event_channel(channel);
    return usable;
}

/* Without arp_ignore each port answers for the addresses of all: connections reach the wrong
 * port, and time out. */
static void check_nets(struct doctor *doctor)
{
    char set[16] = "0";

    doctor_line_of(set, sizeof set, "/proc/sys/net/ipv4/conf", "all", "arp_ignore");
    for (unsigned i = 0; atoi(set) == 0 && i < doctor->nets; i++)
        for (unsigned k = i + 1; k < doctor->nets; k++) {
            const struct doctor_net *a = &doctor->net[i], *b = &doctor->net[k];

            if (strcmp(a->subject, b->subject) != 0 && a->network == b->network &&
                a->mask == b->mask && ~a->mask)
                doctor_row(doctor, DOCTOR_WARN,
                           "sysctl -w net.ipv4.conf.all.arp_ignore=1 "
                           "net.ipv4.conf.all.arp_announce=2, or a network for each port",
                           b->subject,
                           "in the same IPv4 network as %s, and both answer ARP for "
                           "either",
                           a->subject);
        }
}

/* A second port without an address is no failure: doctor_devices() judges all of them. */
static void check_address(struct doctor *doctor, struct ibv_context *device, uint8_t number,
                          bool ethernet, const char *subject)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    bool usable = out != NULL && addresses_of(doctor, device, number, subject, out);

    if (out != NULL)
        fclose(out);
    doctor->ports += usable;
    doctor_row(doctor, usable ? DOCTOR_PASS : DOCTOR_WARN,
               usable     ? NULL
               : ethernet ? "ip address add ADDRESS/BITS dev INTERFACE, on the port's network "
                            "interface, which must be up"
                          : "modprobe ib_ipoib; ip address add ADDRESS/BITS dev ib0; ip link "
                            "set ib0 up: connections are made by IP address",
               subject,
               usable ? "addresses:%s"
                      : "no IP address%s: rdma_cm cannot connect over "
                        "this port",
               usable   ? text
               : length ? " but that of the link"
                        : "");
    free(text);
}

/* ---- Ports ---- */

/* Lists the GIDs that connections use: index, version of RoCE, address, interface. */
static void check_gids(struct doctor *doctor, struct ibv_context *device, uint8_t number,
                       const struct ibv_port_attr *port, const char *subject)
{
    bool ethernet = port->link_layer == IBV_LINK_LAYER_ETHERNET;
    unsigned listed = 0, v2 = 0;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    struct ibv_gid_entry e;

    for (uint32_t i = 0; out != NULL && (int)i < port->gid_tbl_len && listed < GIDS_SHOWN;
         i++) {
        char name[INET6_ADDRSTRLEN], interface[IF_NAMESIZE];

        if (ibv_query_gid_ex(device, number, i, &e, 0) != 0 ||
            (ethernet &&
             IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)(const void *)e.gid.raw)))
            continue;
        inet_ntop(AF_INET6, e.gid.raw, name, sizeof name);
        fprintf(out, "%s%u %s%s", listed++ ? ", " : "", i,
                e.gid_type == IBV_GID_TYPE_ROCE_V2   ? "RoCE v2 "
                : e.gid_type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1 "
                                                     : "",
                name);
        if (e.ndev_ifindex && if_indextoname(e.ndev_ifindex, interface) != NULL)
            fprintf(out, " of %s", interface);
        v2 += e.gid_type == IBV_GID_TYPE_ROCE_V2;
    }
    if (out != NULL && fclose(out) == 0 && listed) {
        bool old = ethernet && !v2;
        doctor_row(doctor, old ? DOCTOR_WARN : DOCTOR_PASS,
                   old ? "switches and routers expect RoCE v2: update the adapter's driver"
                       : NULL,
                   subject, "GIDs: %s", text);
    }
    free(text);
}

/* A port that is not active: the remedy depends on the state. */
static const char *port_remedy(const struct ibv_port_attr *port, bool ethernet)
{
    if (ethernet)
        return "ip link set INTERFACE up; check cable and switch; leave it so if unused";
    if (port->state == IBV_PORT_INIT || port->state == IBV_PORT_ARMED)
        return "the link is up, and no subnet manager has set the port up: start opensm on one "
               "host or switch";
    return "check cable and switch; leave it so if unused";
}

static const char *mtu_remedy(bool ethernet)
{
    return ethernet ? "ip link set INTERFACE mtu 4200 (or 9000), here, there and on the "
                      "switches, gives a path MTU of 4096"
                    : "let the subnet manager permit an MTU of 2048 or 4096 (partitions.conf)";
}

/* Checks one port.  Returns the Gb/s if it is active, and *active. */
static double check_port(struct doctor *doctor, struct ibv_context *device, uint8_t number,
                         bool *active)
{
    struct ibv_port_attr port = {0};
    bool ethernet, slow;
    int error;
    char subject[IBV_SYSFS_NAME_MAX + 16];

    snprintf(subject, sizeof subject, "%s port %u", ibv_get_device_name(device->device),
             number);
    error = ibv_query_port(device, number, &port);
    if (error) {
        doctor_row(doctor, DOCTOR_FAIL, "check the driver's lines in dmesg", subject,
                   "cannot be queried: %s", strerror(error > 0 ? error : errno));
        return 0;
    }
    ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    if (port.state != IBV_PORT_ACTIVE) {
        doctor_row(doctor, DOCTOR_WARN, port_remedy(&port, ethernet), subject, "%s, %s",
                   ibv_port_state_str(port.state), ethernet ? "Ethernet" : "InfiniBand");
        return 0;
    }
    *active = true;
    slow = port.active_mtu < IBV_MTU_2048;
    doctor_row(doctor, slow ? DOCTOR_WARN : DOCTOR_PASS, slow ? mtu_remedy(ethernet) : NULL,
               subject, "active, %s, %g Gb/s, MTU %u", ethernet ? "Ethernet" : "InfiniBand",
               ib_port_rate(&port), 128u << port.active_mtu);
    check_gids(doctor, device, number, &port, subject);
    check_address(doctor, device, number, ethernet, subject);
    return ib_port_rate(&port);
}

/* ---- Devices ---- */

/* Compares the slot with the fastest port.  Soft devices, and some virtual functions, have no
 * slot to read. */
static void check_slot(struct doctor *doctor, const struct ibv_device *device, double rate)
{
    char speed[64], width[64];
    double lane, slot;
    bool slow;

    if (!doctor_line_of(speed, sizeof speed, device->ibdev_path, "device",
                        "current_link_speed") ||
        !doctor_line_of(width, sizeof width, device->ibdev_path, "device",
                        "current_link_width"))
        return;
    lane = atof(speed);
    slot = lane * atof(width) * (lane < 6 ? 8.0 / 10 : 128.0 / 130);
    if (slot <= 0)
        return;
    slow = slot < rate;
    doctor_row(doctor, slow ? DOCTOR_WARN : DOCTOR_PASS,
               slow ? "move the adapter to a slot with more lanes; check LnkSta of lspci -vv"
                    : NULL,
               device->name, "PCIe %g GT/s, %s lanes: %.0f Gb/s%s", lane, width, slot,
               slow ? ", less than the port" : "");
}

static void check_features(struct doctor *doctor, struct ibv_context *device,
                           const struct ibv_device_attr *attr, const char *name)
{
    const unsigned types = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    bool windows = (attr->device_cap_flags & types) != 0 && attr->max_mw > 0;
    int node = ib_numa_node(device->device);
    char place[32] = "none";
    struct ibv_device_attr_ex more = {0};
    bool odp = ibv_query_device_ex(device, NULL, &more) == 0 &&
               (more.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;

    if (node >= 0)
        snprintf(place, sizeof place, "%d", node);
    doctor_row(
        doctor, DOCTOR_PASS, NULL, name,
        "memory windows of type 2: %s; on-demand paging: %s; NUMA node: %s; %d completion "
        "vectors",
        windows ? "yes" : "no", odp ? "yes" : "no", place, device->num_comp_vectors);
}

static bool is_virtual(const struct ibv_device *device)
{
    char path[IBV_SYSFS_PATH_MAX + 16];

    snprintf(path, sizeof path, "%s/device/physfn", device->ibdev_path);
    return access(path, F_OK) == 0;
}

/* Returns true if a port is active. */
static bool check_device(struct doctor *doctor, struct ibv_context *device)
{
    const char *name = ibv_get_device_name(device->device);
    struct ibv_device_attr attr = {0};
    bool active = false;
    double rate = 0;
    int error;

    error = ibv_query_device(device, &attr);
    if (error) {
        doctor_row(doctor, DOCTOR_FAIL, "check the driver's lines in dmesg", name,
                   "cannot be queried: %s", strerror(error > 0 ? error : errno));
        return false;
    }
    doctor->emulated = attr.vendor_id == EMUVERBS_VENDOR;
    if (device->device->transport_type == IBV_TRANSPORT_IWARP) {
        doctor_row(doctor, DOCTOR_WARN, "use InfiniBand or RoCE", name,
                   "iWARP, which lacks RDMA write with immediate data");
        return false;
    }
    doctor_row(doctor, DOCTOR_PASS, NULL, name, "vendor 0x%04x, part %u, firmware %s%s%s",
               attr.vendor_id, attr.vendor_part_id, attr.fw_ver[0] ? attr.fw_ver : "none",
               doctor->emulated ? " (software HCA)" : "",
               is_virtual(device->device) ? " (virtual function)" : "");
    for (unsigned p = 1; p <= attr.phys_port_cnt; p++) {
        double of_port = check_port(doctor, device, (uint8_t)p, &active);

        rate = of_port > rate ? of_port : rate;
    }
    check_slot(doctor, device->device, rate);
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
    const char *remedy = strstr(line, "; ");

    if (level > RME_LOG_WARN)
        return;
    if (!strncmp(line, cache, sizeof cache - 1)) {
        bool works = strstr(what, "by hooks") != NULL;

        return doctor_row(doctor, works ? DOCTOR_PASS : DOCTOR_WARN,
                          works ? NULL : "see the row userfaultfd", "registration cache",
                          "%.*s", works ? (int)strcspn(what, "(") : (int)strlen(what), what);
    }
    doctor_row(doctor, level == RME_LOG_ERROR ? DOCTOR_FAIL : DOCTOR_WARN,
               remedy != NULL ? remedy + 2 : "see bmi-options(7)", "engine", "%.*s",
               (int)(remedy != NULL ? remedy - line : (ptrdiff_t)strlen(line)), line);
}

static void check_engine(struct doctor *doctor, const char *options)
{
    const struct rme_config config = {
        .fabric = bmi_ib_fabric(), .options = options, .log = take_line, .log_arg = doctor};
    struct rme *rme;
    bool all; /* hosts must be trusted */

    if (rme_open(&config, &rme) != 0)
        return; /* a row has the reason */
    all = strstr(rme_key_opens(rme), "every peer") != NULL;
    doctor_row(doctor, all ? DOCTOR_WARN : DOCTOR_PASS,
               all ? "admit trusted hosts only: see SECURITY.md, Keys" : NULL, "engine",
               "opens; a key opens %s", rme_key_opens(rme));
    rme_close(rme);
}

/* Names the devices that the libraries opened to the checks of the kernel's ones. */
static void compare(struct doctor *doctor, struct ibv_context *const *all, int count)
{
    char **known = calloc((size_t)count + 1, sizeof *known);

    for (int i = 0; known != NULL && i < count; i++)
        known[i] = (char *)(uintptr_t)ibv_get_device_name(all[i]->device);
    if (known != NULL)
        doctor_kernel(doctor, known, count);
    free(known);
}

void doctor_devices(struct doctor *doctor, const char *options)
{
    int count = 0;
    struct ibv_context **all = rdma_get_devices(&count);
    bool active = false;

    if (all == NULL)
        count = 0;
    for (int i = 0; i < count; i++)
        active |= check_device(doctor, all[i]);
    check_nets(doctor);
    if (!doctor->emulated)
        compare(doctor, all, count);
    if (count && !active)
        doctor_row(doctor, DOCTOR_FAIL, "see the rows of the ports", "devices",
                   "no port is active");
    else if (count && !doctor->ports)
        doctor_row(doctor, DOCTOR_FAIL, "see the rows of the ports", "devices",
                   "no active port has an IP address");
    if (active)
        check_engine(doctor, options);
    if (all != NULL)
        rdma_free_devices(all);
}
