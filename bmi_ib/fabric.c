/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fabric.c - opening and closing, and the table of the fabric's functions. */
#include <errno.h>
#include <stdlib.h>
#include "bmi_ib/bmi_ib.h"
#include "bmi_ib/link/links.h"
#include "bmi_ib/wait.h"

static void ib_close(struct rme_fabric *f)
{
    ib_resolver_close(f);
    ib_links_release(f);
    ib_listen_close(f);
    ib_rx_close(f); /* after the queue pairs, which use the shared queue; before the domain */
    ib_tx_close(f);
    ib_windows_close(f);
    ib_cq_close(f);
    ib_async_close(f); /* after all that could have an event of its own */
    ib_device_close(f);
    ib_cm_close(f);
    ib_wake_close(f);
    free(f);
}

static int ib_open(const struct rme_fabric_config *config, struct rme_fabric **out)
{
    struct rme_fabric *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    f->config = *config;
    f->reports = &ib_link_reports;
    f->wake_fd = f->sleep_fd = -1;
    f->read_limit = (uint32_t)ib_option(f, "read_limit");
    f->signal_each = ib_option(f, "signal_each") != 0;
    for (f->slab = IB_SLAB; config->budget && f->slab > 4 &&
                            (uint64_t)f->slab * config->rx_size > config->budget / 8;)
        f->slab /= 2;
    TAILQ_INIT(&f->links);
    TAILQ_INIT(&f->dirty);
    TAILQ_INIT(&f->eventful);
    TAILQ_INIT(&f->downs);
    TAILQ_INIT(&f->tx_waiters);
    TAILQ_INIT(&f->draining);
    TAILQ_INIT(&f->waning);
    TAILQ_INIT(&f->probes);

    int error = ib_wake_open(f);
    if (!error)
        error = ib_device_list(f);
    if (!error)
        error = ib_cm_open(f);
    if (!error)
        error = ib_listen_bind(f);
    if (!error)
        error = ib_device_open(f, ib_listen_device(f));
    if (!error)
        error = ib_path_open(f);
    if (!error)
        error = ib_rx_open(f);
    if (!error)
        error = ib_cq_open(f);
    if (!error)
        error = ib_tx_open(f);
    if (!error)
        error = ib_windows_open(f);
    if (!error)
        error = ib_async_open(f);
    if (!error)
        error = ib_wait_watch(f);
    if (!error)
        error = ib_resolver_open(f);
    if (!error)
        error = ib_listen_start(f);
    if (error) {
        ib_close(f);
        return error;
    }
    *out = f;
    return 0;
}

static const struct rme_caps *ib_caps(const struct rme_fabric *f)
{
    return &f->caps;
}

static const char *ib_link_peer(const struct rme_link *l)
{
    return l->peer;
}

static const void *ib_link_sockaddr(const struct rme_link *l)
{
    return &l->sockaddr;
}

static const struct rme_fabric_ops ops = {
    .release = RME_RELEASE,
    .size = sizeof(struct rme_fabric_ops),
    .scheme = "ib",
    .options = ib_options,
    .open = ib_open,
    .close = ib_close,
    .caps = ib_caps,
    .listen_port = ib_listen_port,
    .reg = ib_reg,
    .dereg = ib_dereg,
    .link_connect = ib_link_connect,
    .link_accept = ib_link_accept,
    .link_reject = ib_link_reject,
    .link_disconnect = ib_link_disconnect,
    .link_free = ib_link_free,
    .link_peer = ib_link_peer,
    .link_sockaddr = ib_link_sockaddr,
    .link_path = ib_path_text,
    .rx_reserve = ib_rx_reserve,
    .rx_release = ib_rx_release,
    .rx_return = ib_rx_return,
    .tx_get = ib_tx_get,
    .tx_put = ib_tx_put,
    .tx_send = ib_tx_send,
    .xfer = ib_xfer,
    .expose = ib_expose,
    .unexpose = ib_unexpose,
    .flush = ib_flush,
    .poll = ib_poll,
    .arm = ib_arm,
    .wait = ib_wait,
    .wake = ib_wake,
    .deadline = ib_link_deadline,
};

const struct rme_fabric_ops *bmi_ib_fabric(void)
{
    return &ops;
}
