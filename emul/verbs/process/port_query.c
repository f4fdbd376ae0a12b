/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Queries of devices and ports, which create no device (process.c). */
#include "emul/verbs/process/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

EMU_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
    struct emu_dev *d = emu_dev_base();

    if (num_devices != NULL)
        *num_devices = 0;
    if (emu_call(CALL_ibv_get_device_list) || d == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    struct ibv_device **list = calloc(EMU_MAX_DEVICES + 1, sizeof(struct ibv_device *));
    if (list == NULL)
        return NULL;
    int n = 0;
    for (uint32_t i = 0; i < d->knobs.devices; i++) {
        struct emu_hca *h = atomic_load(&d->hca[i]);
        if (!atomic_load(&h->gone))
            list[n++] = &h->ibdev;
    }
    if (num_devices != NULL)
        *num_devices = n;
    return list;
}

EMU_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

EMU_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

EMU_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
    return (int)((struct emu_hca *)device)->index;
}

EMU_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
    return emu_guid(emu_dev_base(), ((struct emu_hca *)device)->index, 1);
}

int emu_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                   size_t len)
{
    struct emu_dev *d = emu_dev_base();
    struct ibv_port_attr a = {0};

    if (emu_call(CALL_ibv_query_port) || atomic_load(&emu_hca_of(context)->gone))
        return EIO;
    if (!emu_port_there(d, port))
        return EINVAL;
    a.state = emu_port_is_down(emu_hca_of(context), port) ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    a.max_mtu = a.active_mtu = (enum ibv_mtu)(__builtin_ctzll(d->knobs.mtu) - 7);
    a.gid_tbl_len = (int)emu_gids(d);
    a.port_cap_flags = IBV_PORT_CM_SUP;
    a.max_msg_sz = 1u << 30;
    a.pkey_tbl_len = 1;
    a.lid = emu_lid(d, EMU_PORT(emu_hca_of(context)->index, port));
    a.sm_lid = emu_lid(d, 0);
    a.max_vl_num = 1;
    a.subnet_timeout = 18;
    a.active_width = 2;  /* 4x */
    a.active_speed = 32; /* EDR */
    a.phys_state = 5;    /* link up */
    a.link_layer = d->knobs.ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    memcpy(attr, &a, len < sizeof(a) ? len : sizeof(a));
    return 0;
}

#undef ibv_query_port
EMU_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
                              struct _compat_ibv_port_attr *attr)
{
    /* the old structure ends before the members after link_layer */
    return emu_query_port(context, port, (struct ibv_port_attr *)(void *)attr,
                          offsetof(struct ibv_port_attr, link_layer));
}

EMU_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
                             union ibv_gid *gid)
{
    struct emu_dev *d = emu_dev_base();

    if (emu_call(CALL_ibv_query_gid) || !emu_port_there(d, port) || index < 0 ||
        (uint32_t)index >= emu_gids(d)) {
        errno = EINVAL;
        return -1;
    }
    emu_gid_at(d, EMU_PORT(emu_hca_of(context)->index, port), (uint32_t)index, gid);
    return 0;
}

EMU_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                                 struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    struct ibv_gid_entry e = {0};
    struct emu_dev *d = emu_dev_base();

    if (emu_call(CALL_ibv_query_gid) || flags)
        return EINVAL;
    if (!emu_port_there(d, port) || index >= emu_gids(d))
        return ENODATA;
    emu_gid_at(d, EMU_PORT(emu_hca_of(context)->index, port), index, &e.gid);
    e.gid_index = index;
    e.port_num = port;
    e.gid_type = emu_gid_type(d, index);
    memcpy(entry, &e, size < sizeof(e) ? size : sizeof(e));
    return 0;
}

EMU_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
                                        struct ibv_gid_entry *entries, size_t max,
                                        uint32_t flags, size_t size)
{
    uint32_t gids = emu_gids(emu_dev_base());
    uint32_t all = (uint32_t)emu_dev_base()->knobs.ports * gids;

    if (max < all)
        return -EINVAL;
    for (uint32_t i = 0; i < all; i++) {
        struct ibv_gid_entry *e = (struct ibv_gid_entry *)(void *)((char *)entries + i * size);
        int err = _ibv_query_gid_ex(context, 1 + i / gids, i % gids, e, flags, size);
        if (err)
            return -err;
    }
    return all;
}

/* ibv_query_gid_type(), a function for providers (answers.h). */
int emu_query_gid_type(void *context, uint8_t port, unsigned index, void *type);
int emu_query_gid_type(void *context, uint8_t port, unsigned index, void *type)
{
    const struct emu_dev *d = emu_dev_base();

    (void)context;
    if (!emu_port_there(d, port) || index >= emu_gids(d)) {
        errno = EINVAL;
        return -1;
    }
    *(int *)type = emu_gid_type(d, index) == IBV_GID_TYPE_ROCE_V2; /* else IB or RoCE v1 */
    return 0;
}

EMU_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index,
                              __be16 *pkey)
{
    (void)context;
    if (emu_call(CALL_ibv_query_pkey) || !emu_port_there(emu_dev_base(), port) || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htobe16(0xffff);
    return 0;
}

EMU_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
    (void)context;
    if (!emu_port_there(emu_dev_base(), port) || be16toh(pkey) != 0xffff) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}
