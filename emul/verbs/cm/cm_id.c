/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Identifiers of the connection manager: creation, addresses, routes, listening,
 * destruction. */
#include "emul/verbs/cm/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(int err)
{
    errno = err;
    return -1;
}

EMU_EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out,
                              void *context, enum rdma_port_space ps)
{
    struct cm_chan *chan = (struct cm_chan *)channel;

    if (emu_call(CALL_rdma_create_id))
        return fail(ENOMEM);
    if (emu_dev() == NULL)
        return -1;
    if (chan != NULL && chan->dev != emu_dev_peek())
        return fail(EIO);
    if (ps != RDMA_PS_TCP && ps != RDMA_PS_IB && ps != RDMA_PS_UDP)
        return fail(EOPNOTSUPP);
    if (chan == NULL) {
        chan = cm_chan_new();
        if (chan == NULL)
            return -1;
    }
    pthread_mutex_lock(&cm.lock);
    struct cm_id *id = cm_id_new(chan, context, ps);
    if (id != NULL)
        id->sync = id->own_channel = channel == NULL;
    else if (channel == NULL)
        cm_chan_free(chan);
    pthread_mutex_unlock(&cm.lock);
    if (id == NULL)
        return -1;
    emu_count(COUNT_live_cm_id, 1);
    *out = &id->id;
    return 0;
}

EMU_EXPORT int rdma_destroy_id(struct rdma_cm_id *ibid)
{
    struct cm_id *id = (struct cm_id *)ibid;

    emu_call(CALL_rdma_destroy_id);
    if (!cm_is_ours(id))
        return fail(EIO);
    if (ibid->event != NULL) {
        rdma_ack_cm_event(ibid->event);
        ibid->event = NULL;
    }
    cm_id_end(id);
    emu_uncount(COUNT_live_cm_id, 1);
    return 0;
}

/* Claims an address for an id; chooses a port if 0. Returns 0 or -errno. Under cm.lock. */
static int claim(struct cm_id *id, struct sockaddr *sa)
{
    if (cm_addr_port(sa)) {
        id->claim = cm_addr_claim(sa, id->id.ps, id->reuse, id->afonly);
        return id->claim < 0 ? id->claim : 0;
    }
    if (!cm.next_port)
        cm.next_port = (uint16_t)(32768 + (unsigned)getpid() % 16384);
    for (int n = 0; n < 28000; n++) {
        cm.next_port = cm.next_port >= 60999 ? 32768 : cm.next_port + 1;
        cm_addr_set_port(sa, cm.next_port);
        id->claim = cm_addr_claim(sa, id->id.ps, false, id->afonly);
        if (id->claim >= 0)
            return 0;
        /* EADDRNOTAVAIL: of a wildcard */
        if (id->claim != -EADDRINUSE && id->claim != -EADDRNOTAVAIL)
            return id->claim;
    }
    return -EADDRNOTAVAIL;
}

/* Releases a claimed address; the id can be bound again. */
static void unbind(struct cm_id *id)
{
    pthread_mutex_lock(&cm.lock);
    emu_unwatch_close(id->claim);
    id->claim = -1;
    id->bound = false;
    id->state = CM_IDLE;
    pthread_mutex_unlock(&cm.lock);
}

EMU_EXPORT int rdma_bind_addr(struct rdma_cm_id *ibid, struct sockaddr *addr)
{
    struct cm_id *id = (struct cm_id *)ibid;

    if (emu_call(CALL_rdma_bind_addr))
        return fail(ENOMEM);
    if (!cm_is_ours(id))
        return fail(EIO);
    if (!cm_addr_len(addr) || id->state != CM_IDLE)
        return fail(EINVAL);
    int err = cm_addr_is_any(addr) ? 0 : cm_addr_local(addr);
    if (err)
        return fail(-err);
    pthread_mutex_lock(&cm.lock);
    memset(&ibid->route.addr.src_storage, 0, sizeof(ibid->route.addr.src_storage));
    memcpy(&ibid->route.addr.src_storage, addr, cm_addr_len(addr));
    err = claim(id, &ibid->route.addr.src_addr);
    if (!err) {
        id->bound = true;
        if (!cm_addr_is_any(addr))
            cm_set_port(id, emu_port_of_address(emu_dev_base(), addr));
        id->state = CM_BOUND;
    }
    pthread_mutex_unlock(&cm.lock);
    if (!err && !cm_addr_is_any(addr)) {
        err = cm_set_verbs(id);
        if (err)
            unbind(id);
    }
    return err ? fail(-err) : 0;
}

EMU_EXPORT int rdma_resolve_addr(struct rdma_cm_id *ibid, struct sockaddr *src,
                                 struct sockaddr *dst, int timeout_ms)
{
    struct cm_id *id = (struct cm_id *)ibid;
    union cm_addr s, d, picked;
    const struct emu_dev *dev = emu_dev_base();
    int status = 0, err;
    (void)timeout_ms;

    if (emu_call(CALL_rdma_resolve_addr))
        return fail(ENOMEM);
    if (!cm_is_ours(id))
        return fail(EIO);
    if (!cm_addr_copy(&d, dst) || (src != NULL && !cm_addr_copy(&s, src)) ||
        (id->state != CM_IDLE && id->state != CM_BOUND))
        return fail(EINVAL);
    uint32_t port = 0, remote_port = emu_port_of_address(dev, dst);
    bool chosen = true; /* by the program; otherwise the device with the destination is used */
    if (src != NULL && !cm_addr_is_any(src)) {
        err = cm_addr_local(src);
        if (err)
            return fail(-err);
        picked = s;
    } else if (id->bound && !cm_addr_is_any(&ibid->route.addr.src_addr)) {
        cm_addr_copy(&picked, &ibid->route.addr.src_addr);
    } else if ((err = cm_addr_source(&d, &picked)) < 0) {
        status = err == -EMFILE || err == -ENFILE ? err : -ENETUNREACH;
    } else {
        chosen = false;
    }
    if (!status)
        port = chosen ? emu_port_of_address(dev, &picked.sa) : remote_port;
    bool hole = cm_addr_blackholed(&dev->knobs, dst);
    bool anywhere = hole || emu_names_are_files() || cm_addr_is_multicast(dst);
    err = status || anywhere ? 0 : cm_addr_local(dst);
    if (err)
        status = err == -EADDRNOTAVAIL ? -EHOSTUNREACH : err;
    pthread_mutex_lock(&cm.lock);
    if (!status) {
        uint16_t ip_port = id->bound ? cm_addr_port(&ibid->route.addr.src_addr) : 0;
        if (!ip_port)
            ip_port = src != NULL ? cm_addr_port(src) : 0;
        if (!ip_port) {
            if (!cm.next_port)
                cm.next_port = (uint16_t)(32768 + (unsigned)getpid() % 16384);
            cm.next_port = cm.next_port >= 60999 ? 32768 : cm.next_port + 1;
            ip_port = cm.next_port;
        }
        memset(&ibid->route.addr.src_storage, 0, sizeof(ibid->route.addr.src_storage));
        memcpy(&ibid->route.addr.src_storage, &picked, cm_addr_len(&picked.sa));
        cm_addr_set_port(&ibid->route.addr.src_addr, ip_port);
        cm_set_port(id, port);
        id->remote_port = (uint8_t)remote_port;
        id->state = CM_ADDR_RESOLVED;
    }
    memset(&ibid->route.addr.dst_storage, 0, sizeof(ibid->route.addr.dst_storage));
    memcpy(&ibid->route.addr.dst_storage, &d, cm_addr_len(&d.sa));
    cm_event_post(id, status ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED, status,
                  NULL, 0);
    pthread_mutex_unlock(&cm.lock);
    return cm_complete(id);
}

/*
 * Applies the type of service. On Ethernet it is the traffic class of each packet. On
 * InfiniBand it is the class for which the subnet manager returns a service level: class N has
 * level N modulo 16 here.
 */
static void set_class(const struct emu_dev *d, struct cm_id *id)
{
    if (d->knobs.ethernet)
        id->path.traffic_class = id->traffic_class = id->tos;
    else
        id->path.sl = id->sl = id->tos & 15;
}

EMU_EXPORT int rdma_resolve_route(struct rdma_cm_id *ibid, int timeout_ms)
{
    struct cm_id *id = (struct cm_id *)ibid;
    struct emu_dev *d = emu_dev_peek();
    (void)timeout_ms;

    if (emu_call(CALL_rdma_resolve_route))
        return fail(ENOMEM);
    if (!cm_is_ours(id) || d == NULL)
        return fail(EIO);
    pthread_mutex_lock(&cm.lock);
    if (id->state != CM_ADDR_RESOLVED) {
        pthread_mutex_unlock(&cm.lock);
        return fail(EINVAL);
    }
    emu_gid(d, id->port, &id->path.sgid);
    emu_gid(d, id->remote_port, &id->path.dgid);
    id->path.slid = htobe16(emu_lid(d, id->port));
    id->path.dlid = htobe16(emu_lid(d, id->remote_port));
    id->path.pkey = htobe16(0xffff);
    set_class(d, id);
    id->path.reversible = 1;
    id->path.numb_path = 1;
    id->path.mtu_selector = 2;
    id->path.mtu = (uint8_t)(__builtin_ctzll(d->knobs.mtu) - 7);
    id->path.packet_life_time_selector = 2;
    id->path.packet_life_time = 17;
    ibid->route.path_rec = &id->path;
    ibid->route.num_paths = 1;
    ibid->route.addr.addr.ibaddr.sgid = id->path.sgid;
    ibid->route.addr.addr.ibaddr.dgid = id->path.dgid;
    ibid->route.addr.addr.ibaddr.pkey = id->path.pkey;
    id->state = CM_ROUTE_RESOLVED;
    cm_event_post(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
    pthread_mutex_unlock(&cm.lock);
    return cm_complete(id);
}

EMU_EXPORT int rdma_listen(struct rdma_cm_id *ibid, int backlog)
{
    struct cm_id *id = (struct cm_id *)ibid;
    int err = 0;

    if (emu_call(CALL_rdma_listen))
        return fail(ENOMEM);
    if (!cm_is_ours(id))
        return fail(EIO);
    pthread_mutex_lock(&cm.lock);
    if (id->state == CM_IDLE) {
        ibid->route.addr.src_addr.sa_family = AF_INET;
        err = claim(id, &ibid->route.addr.src_addr);
        if (!err)
            id->state = CM_BOUND;
    }
    if (!err && id->state != CM_BOUND)
        err = -EINVAL;
    if (!err)
        err = emu_watch(id->claim, EMU_WATCH_LISTENER);
    if (!err) {
        int most = (int)emu_dev_base()->knobs.backlog;
        id->backlog = backlog > 0 && backlog < most ? backlog : most;
        id->state = CM_LISTEN;
        id->next_listener = cm.listeners;
        cm.listeners = id;
    }
    pthread_mutex_unlock(&cm.lock);
    return err ? fail(-err) : 0;
}

EMU_EXPORT int rdma_set_option(struct rdma_cm_id *ibid, int level, int optname, void *optval,
                               size_t optlen)
{
    struct cm_id *id = (struct cm_id *)ibid;

    if (emu_call(CALL_rdma_set_option))
        return fail(ENOMEM);
    if (!cm_is_ours(id))
        return fail(EIO);
    if (level != RDMA_OPTION_ID)
        return fail(ENOSYS); /* includes RDMA_OPTION_IB_PATH: there is one path only */
    switch (optname) {
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
        if (optlen != sizeof(int) || id->state != CM_IDLE)
            return fail(EINVAL);
        *(optname == RDMA_OPTION_ID_REUSEADDR ? &id->reuse : &id->afonly) = *(int *)optval != 0;
        return 0;
    case RDMA_OPTION_ID_TOS:
        if (optlen != 1)
            return fail(EINVAL);
        id->tos = *(uint8_t *)optval; /* effective only before a route is resolved */
        return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        if (optlen != 1 || *(uint8_t *)optval > 31)
            return fail(EINVAL);
        id->ack_timeout = *(uint8_t *)optval;
        return 0;
    default:
        return fail(ENOSYS);
    }
}

EMU_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
    return htobe16(
        cm_addr_len(&id->route.addr.src_addr) ? cm_addr_port(&id->route.addr.src_addr) : 0);
}

EMU_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
    return htobe16(
        cm_addr_len(&id->route.addr.dst_addr) ? cm_addr_port(&id->route.addr.dst_addr) : 0);
}

EMU_EXPORT struct ibv_context **rdma_get_devices(int *num_devices)
{
    struct ibv_context **list = calloc(EMU_MAX_DEVICES + 1, sizeof(struct ibv_context *));
    struct emu_dev *d = list != NULL ? emu_dev() : NULL;
    uint32_t n = 0;
    bool lack = d == NULL;

    if (num_devices != NULL)
        *num_devices = 0;
    for (uint32_t i = 0; d != NULL && !lack && i < d->knobs.devices; i++) {
        struct emu_ctx *c = emu_ctx_get(d, atomic_load(&d->hca[i]));
        if (c != NULL)
            list[n++] = &c->v.context;
        lack = c == NULL && errno != ENODEV;
    }
    if (lack || n == 0) {
        free(list);
        return NULL;
    }
    if (num_devices != NULL)
        *num_devices = (int)n;
    return list;
}

EMU_EXPORT void rdma_free_devices(struct ibv_context **list)
{
    free(list);
}
