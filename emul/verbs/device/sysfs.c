/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Emulated /sys/class as files in a folder, for programs that search there before, or instead
 * of, calling libibverbs. emuverbs --sysfs mounts the folder (view.c). The files agree with the
 * calls and do not change; there are no traffic counters.
 */
#include "emul/verbs/process/process.h"

#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

/* Creates a folder; `path` is a printf format. Returns 0, or -1 with errno. */
__attribute__((format(printf, 1, 2))) static int folder(const char *path, ...)
{
    char full[PATH_MAX];
    va_list ap;

    va_start(ap, path);
    vsnprintf(full, sizeof(full), path, ap);
    va_end(ap);
    return mkdir(full, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

/* Writes a file of one line; `name` may contain subfolders of `dir`. */
__attribute__((format(printf, 3, 4))) static int line(const char *dir, const char *name,
                                                      const char *text, ...)
{
    char full[PATH_MAX];
    va_list ap;

    if (snprintf(full, sizeof(full), "%s/%s", dir, name) >= (int)sizeof(full)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    FILE *f = fopen(full, "we");
    if (f == NULL)
        return -1;
    va_start(ap, text);
    vfprintf(f, text, ap);
    va_end(ap);
    fputc('\n', f);
    return fclose(f);
}

/* Four groups of a GUID, in the format of sysfs. */
#define WORDS(p)                                                                               \
    (p)[0] << 8 | (p)[1], (p)[2] << 8 | (p)[3], (p)[4] << 8 | (p)[5], (p)[6] << 8 | (p)[7]

static int guid(const char *dir, const char *name, __be64 value)
{
    const unsigned char *p = (const unsigned char *)&value;

    return line(dir, name, "%04x:%04x:%04x:%04x", WORDS(p));
}

static int gid_files(const struct emu_dev *d, const char *dir, uint32_t number, uint32_t index)
{
    bool udp = emu_gid_type(d, index) == IBV_GID_TYPE_ROCE_V2;
    char file[64];
    union ibv_gid gid;

    emu_gid_at(d, number, index, &gid);
    snprintf(file, sizeof(file), "gids/%u", index);
    if (line(dir, file, "%04x:%04x:%04x:%04x:%04x:%04x:%04x:%04x", WORDS(gid.raw),
             WORDS(gid.raw + 8)))
        return -1;
    snprintf(file, sizeof(file), "gid_attrs/types/%u", index);
    if (line(dir, file, udp ? "RoCE v2" : "IB/RoCE v1"))
        return -1;
    snprintf(file, sizeof(file), "gid_attrs/ndevs/%u", index);
    return d->knobs.ethernet ? line(dir, file, "lo") : 0;
}

static int port_files(const struct emu_dev *d, const char *dir, uint32_t number)
{
    bool eth = d->knobs.ethernet;

    if (folder("%s", dir) || folder("%s/gids", dir) || folder("%s/pkeys", dir) ||
        folder("%s/gid_attrs", dir) || folder("%s/gid_attrs/types", dir) ||
        folder("%s/gid_attrs/ndevs", dir) || line(dir, "state", "4: ACTIVE") ||
        line(dir, "phys_state", "5: LinkUp") ||
        line(dir, "link_layer", eth ? "Ethernet" : "InfiniBand") ||
        line(dir, "rate", "100 Gb/sec (4X EDR)") ||
        line(dir, "lid", "0x%x", emu_lid(d, number)) ||
        line(dir, "sm_lid", "0x%x", emu_lid(d, 0)) || line(dir, "sm_sl", "0") ||
        line(dir, "lid_mask_count", "0") || line(dir, "cap_mask", "0x%08x", IBV_PORT_CM_SUP))
        return -1;
    for (uint32_t i = 0; i < emu_gids(d); i++)
        if (gid_files(d, dir, number, i))
            return -1;
    return line(dir, "pkeys/0", "0xffff");
}

/* Creates folders named after the network interfaces of a device's ports. */
static int interface_folders(const struct emu_dev *d, const char *dir, uint32_t i)
{
    char name[IF_NAMESIZE];

    for (uint32_t port = 1; port <= d->knobs.ports; port++)
        if (emu_port_interface(d, EMU_PORT(i, port), name) &&
            (folder("%s/device/net", dir) || folder("%s/device/net/%s", dir, name)))
            return -1;
    return 0;
}

static int device_files(const struct emu_dev *d, const char *top, uint32_t i)
{
    const struct ibv_device *v = &d->first[i].ibdev;
    char dir[PATH_MAX], sub[PATH_MAX];

    snprintf(dir, sizeof(dir), "%s/infiniband/%s", top, v->name);
    if (folder("%s", dir) || folder("%s/ports", dir) || folder("%s/device", dir) ||
        line(dir, "node_type", "1: CA") || guid(dir, "node_guid", emu_guid(d, i, 1)) ||
        guid(dir, "sys_image_guid", d->guid) || line(dir, "node_desc", "emuverbs") ||
        line(dir, "hca_type", "emuverbs") || line(dir, "fw_ver", "%u.0", EMU_SHM_VERSION) ||
        line(dir, "hw_rev", "0x1") || line(dir, "device/numa_node", "-1") ||
        interface_folders(d, dir, i))
        return -1;
    for (uint32_t port = 1; port <= d->knobs.ports; port++)
        if (snprintf(sub, sizeof(sub), "%s/ports/%u", dir, port) >= (int)sizeof(sub) ||
            port_files(d, sub, EMU_PORT(i, port)))
            return -1;
    snprintf(dir, sizeof(dir), "%s/infiniband_verbs/%s", top, v->dev_name);
    return folder("%s", dir) || line(dir, "ibdev", "%s", v->name) ||
                   line(dir, "abi_version", "1") || line(dir, "dev", "1:3")
               ? -1
               : 0;
}

/* Writes the folders infiniband and infiniband_verbs into `top`, for the devices configured by
 * the knobs. Returns their number, or -1 with errno. */
EMU_EXPORT int emuverbs_sysfs(const char *top);
EMU_EXPORT int emuverbs_sysfs(const char *top)
{
    struct emu_dev *d = emu_dev_base();
    char dir[PATH_MAX];

    if (d == NULL) {
        errno = ENOMEM;
        return -1;
    }
    snprintf(dir, sizeof(dir), "%s/infiniband_verbs", top);
    if (folder("%s/infiniband", top) || folder("%s", dir) || line(dir, "abi_version", "6"))
        return -1;
    for (uint32_t i = 0; i < d->knobs.devices; i++)
        if (device_files(d, top, i))
            return -1;
    return (int)d->knobs.devices;
}
