/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Devices and ports: names, GUIDs, GIDs, LIDs, and IP addresses.
 *
 * All devices of a machine share the object tables, and a QP number locates a QP independently
 * of the path. Paths are checked nevertheless: the destination port must exist. All processes
 * must be given the same devices.
 */
#include "emul/verbs/process/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NUMBER (EMU_MAX_DEVICES * EMU_MAX_PORTS)

/* Addresses of the ports, in the order of the knob; IPv4 addresses are mapped to IPv6. */
struct emu_ports {
    _Atomic uint64_t addr[MAX_NUMBER][2];
};

static struct in6_addr address(const struct emu_dev *d, uint32_t place)
{
    struct in6_addr a;
    uint64_t half[2];

    for (int i = 0; i < 2; i++)
        half[i] = atomic_load(&d->ports->addr[place % MAX_NUMBER][i]);
    memcpy(&a, half, sizeof(a));
    return a;
}

static void address_set(struct emu_dev *d, uint32_t place, const struct in6_addr *a)
{
    uint64_t half[2];

    memcpy(half, a, sizeof(half));
    for (int i = 0; i < 2; i++)
        atomic_store(&d->ports->addr[place % MAX_NUMBER][i], half[i]);
}

static void v4_mapped(struct in6_addr *to, const void *v4)
{
    memset(to, 0, sizeof(*to));
    to->s6_addr[10] = to->s6_addr[11] = 0xff;
    memcpy(to->s6_addr + 12, v4, 4);
}

/* Converts a port number to an index in the knob's list, and back. */
static uint32_t place_of(const struct emu_dev *d, uint32_t number)
{
    return EMU_PORT_DEVICE(number) * (uint32_t)d->knobs.ports + EMU_PORT_OF(number) - 1;
}

static uint32_t number_of(const struct emu_dev *d, uint32_t place)
{
    uint32_t ports = (uint32_t)d->knobs.ports;

    return EMU_PORT(place / ports, place % ports + 1);
}

static uint32_t places(const struct emu_dev *d)
{
    return (uint32_t)(d->knobs.devices * d->knobs.ports);
}

/* Converts text to an IPv6 address, to which IPv4 is mapped. */
static bool parse(const char *text, struct in6_addr *to)
{
    struct in_addr v4;
    bool is_v4 = inet_pton(AF_INET, text, &v4) == 1;

    if (is_v4)
        v4_mapped(to, &v4);
    return is_v4 || inet_pton(AF_INET6, text, to) == 1;
}

static void read_addresses(struct emu_dev *d)
{
    const char *text = d->knobs.addresses;
    struct in6_addr to;
    char one[64];

    for (uint32_t i = 0; i < MAX_NUMBER; i++) {
        uint32_t v4 = htonl(INADDR_LOOPBACK + i);
        v4_mapped(&to, &v4);
        address_set(d, i, &to);
    }
    for (uint32_t i = 0; *text && i < MAX_NUMBER; i++) {
        size_t len = strcspn(text, ",");
        snprintf(one, sizeof(one), "%.*s", (int)len, text);
        text += len + (text[len] == ',');
        if (parse(one, &to))
            address_set(d, i, &to);
        else
            fprintf(
                stderr,
                "emuverbs: EMUVERBS_ADDRESSES: '%s' is not an IP address; port %u of device %u "
                "has its default address\n",
                one, EMU_PORT_OF(number_of(d, i)), EMU_PORT_DEVICE(number_of(d, i)));
    }
}

/* Returns a hash of the boot ID, so that all processes show the same ports. */
static __be64 machine_guid(void)
{
    char id[64] = "";
    uint64_t h = 0xcbf29ce484222325;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (f != NULL) {
        if (fgets(id, sizeof(id), f) == NULL)
            id[0] = 0;
        fclose(f);
    }
    for (char *p = id; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3;
    return htobe64((h & ~UINT64_C(0xff00000000000000)) | UINT64_C(0x0200000000000000));
}

/* Composes a device name: the first name with its number incremented by the index. */
static void device_name(const char *first, uint32_t index, char *name, size_t size)
{
    size_t len = strlen(first), stem = len;

    while (stem && first[stem - 1] >= '0' && first[stem - 1] <= '9')
        stem--;
    if (index == 0)
        snprintf(name, size, "%s", first);
    else
        snprintf(name, size, "%.*s%lu", (int)stem, first,
                 strtoul(first + stem, NULL, 10) + index);
}

int emu_ports_init(struct emu_dev *d)
{
    d->ports = calloc(1, sizeof(*d->ports));
    if (d->ports == NULL)
        return -ENOMEM;
    d->guid = machine_guid();
    read_addresses(d);
    for (uint32_t i = 0; i < EMU_MAX_DEVICES; i++) {
        struct ibv_device *v = &d->first[i].ibdev;
        d->first[i].index = i;
        d->first[i].dev = d;
        atomic_store(&d->hca[i], &d->first[i]);
        v->node_type = IBV_NODE_CA;
        v->transport_type = IBV_TRANSPORT_IB;
        device_name(*d->knobs.name ? d->knobs.name : "emu0", i, v->name, sizeof(v->name));
        snprintf(v->dev_name, sizeof(v->dev_name), "uverbs%u", i);
        snprintf(v->dev_path, sizeof(v->dev_path), "/sys/class/infiniband_verbs/uverbs%u", i);
        snprintf(v->ibdev_path, sizeof(v->ibdev_path), "/sys/class/infiniband/%s", v->name);
    }
    return 0;
}

__be64 emu_guid(const struct emu_dev *d, uint32_t device, uint32_t port)
{
    return htobe64(be64toh(d->guid) + ((uint64_t)device << 8) + port - 1);
}

uint16_t emu_lid(const struct emu_dev *d, uint32_t number)
{
    return d->knobs.ethernet ? 0 : (uint16_t)(number + 1);
}

uint32_t emu_gids(const struct emu_dev *d)
{
    return d->knobs.ethernet == 2 ? 4 : 1;
}

enum ibv_gid_type emu_gid_type(const struct emu_dev *d, uint32_t index)
{
    if (!d->knobs.ethernet)
        return IBV_GID_TYPE_IB;
    return (emu_gids(d) - index) % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
}

void emu_gid(const struct emu_dev *d, uint32_t number, union ibv_gid *gid)
{
    emu_gid_at(d, number, emu_gids(d) - 1, gid);
}

void emu_gid_at(const struct emu_dev *d, uint32_t number, uint32_t index, union ibv_gid *gid)
{
    memset(gid, 0, sizeof(*gid));
    if (d->knobs.ethernet && index + 2 >= emu_gids(d)) {
        struct in6_addr a = address(d, place_of(d, number));
        memcpy(gid->raw, a.s6_addr, 16);
    } else {
        gid->global.subnet_prefix = htobe64(UINT64_C(0xfe80000000000000));
        gid->global.interface_id = emu_guid(d, EMU_PORT_DEVICE(number), EMU_PORT_OF(number));
    }
}

uint32_t emu_port_of_address(const struct emu_dev *d, const struct sockaddr *sa)
{
    struct in6_addr a;

    if (sa->sa_family == AF_INET6)
        a = ((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
    else
        v4_mapped(&a, &((const struct sockaddr_in *)(const void *)sa)->sin_addr);
    for (uint32_t i = 0; i < places(d); i++) {
        struct in6_addr own = address(d, i);
        if (memcmp(&a, &own, sizeof(a)) == 0)
            return number_of(d, i);
    }
    return 0;
}

bool emu_port_readdress(struct emu_dev *d, uint32_t device, const char *text)
{
    struct in6_addr a;
    bool is = parse(text, &a);

    if (is)
        address_set(d, place_of(d, EMU_PORT(device, 1)), &a);
    return is;
}

static bool has_address(const struct ifaddrs *i, const struct in6_addr *want)
{
    struct in6_addr a;

    if (i->ifa_addr == NULL)
        return false;
    if (i->ifa_addr->sa_family == AF_INET6)
        a = ((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr;
    else if (i->ifa_addr->sa_family == AF_INET)
        v4_mapped(&a, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr);
    else
        return false;
    return memcmp(&a, want, sizeof(a)) == 0 ||
           (IN6_IS_ADDR_V4MAPPED(want) && want->s6_addr[12] == IN_LOOPBACKNET &&
            (i->ifa_flags & IFF_LOOPBACK));
}

bool emu_port_interface(const struct emu_dev *d, uint32_t number, char *name)
{
    const struct in6_addr want = address(d, place_of(d, number));
    struct ifaddrs *all, *i;

    if (getifaddrs(&all) < 0)
        return false;
    for (i = all; i != NULL && !has_address(i, &want); i = i->ifa_next)
        ;
    if (i != NULL)
        snprintf(name, IF_NAMESIZE, "%s", i->ifa_name);
    freeifaddrs(all);
    return i != NULL;
}

bool emu_reachable(const struct emu_dev *d, const struct ibv_ah_attr *av)
{
    union ibv_gid own;

    for (uint32_t i = 0; i < places(d); i++) {
        uint32_t number = number_of(d, i);
        for (uint32_t k = 0; av->is_global && k < emu_gids(d); k++) {
            emu_gid_at(d, number, k, &own);
            if (memcmp(&own, &av->grh.dgid, sizeof(own)) == 0)
                return true;
        }
        if (!d->knobs.ethernet && av->dlid == emu_lid(d, number))
            return true;
    }
    return false;
}
