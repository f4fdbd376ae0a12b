/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rail.c - devices of a fabric: selection, opening, and opening again.
 *
 * A device that fails or is removed ends its links.  When the last of them has ended, and the
 * engine holds none of its buffers, all objects of the device are freed, the engine's
 * registrations included, and librdmacm closes the context with the next list of devices.  The
 * list is then read at intervals.  A device of the same name, or of any name where the option
 * `device` is empty, is opened like the first one; all memory that the engine has registered is
 * registered there, and listeners on its addresses listen again.  So the engine sees no change
 * but links that end.  A device with lesser capabilities is not taken.
 *
 * librdmacm takes no notice of a removed device while no other is there, so its context is
 * closed when one is.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bmi_ib/link/links.h"
#include "bmi_ib/rail.h"

struct ib_rail *ib_rail_new(struct rme_fabric *f)
{
    struct ib_rail *rail = calloc(1, sizeof(*rail));
    if (rail == NULL || rme_table_init(&rail->table, 64)) {
        free(rail);
        return NULL;
    }
    rail->fabric = f;
    rail->link_ops = &ib_link_ops;
    rail->config = f->config;
    rail->number = (uint8_t)f->rails;
    f->rail[f->rails++] = rail;
    rail->signal_each = ib_option(rail, "signal_each") != 0;
    rail->ordering = ib_relaxed_ordering(rail);
    list_init(&rail->links);
    list_init(&rail->dirty);
    list_init(&rail->eventful);
    list_init(&rail->tx_waiters);
    list_init(&rail->drained);
    list_init(&rail->rx_ready);
    list_init(&rail->rx.open);
    ib_rx_queue_init(&rail->rxq);
    list_init(&rail->mws.free);
    return rail;
}

void ib_rail_drop(struct rme_fabric *f)
{
    struct ib_rail *rail = f->rail[--f->rails];
    rme_table_clear(&rail->table);
    free(rail->own);
    free(rail);
}

static int name_wrong(struct rme_fabric *f, const char *names, const char *why)
{
    ib_log(f, RME_LOG_ERROR, "option device=%s: %s", names, why);
    return -EINVAL;
}

int ib_rails_choose(struct rme_fabric *f)
{
    const char *names = rme_option_string(f->config.options, "device");
    char name[IB_DEVICE_NAME];
    bool several = strchr(names, '+') != NULL;
    struct ib_rail *rail;
    int error = 0;
    if (!several) {
        rail = ib_rail_new(f);
        return rail != NULL ? ib_device_choose(rail, names, ib_listen_device(f)) : -ENOMEM;
    }
    for (unsigned place = 0; ib_part(names, place, name, sizeof(name)); place++) {
        if (!name[0] || f->rails == IB_RAILS_MAX)
            return name_wrong(f, names,
                              name[0] ? "more than eight devices" : "empty device name");
        rail = ib_rail_new(f);
        if (rail == NULL)
            return -ENOMEM;
        rail->place = (uint8_t)place;
        error = ib_device_choose(rail, name, NULL);
        if (error)
            ib_rail_drop(f);
        else if (ib_rail_of(f, rail->dev.ctx) != rail)
            return name_wrong(f, names, "device named twice");
    }
    return f->rails ? 0 : error ? error : name_wrong(f, names, "device name too long");
}

/* Sets the capabilities of all rails to their common minimum, because the engine sees one
 * device.  Windows are used only if all rails have them. */
static void level(struct rme_fabric *f)
{
    struct rme_caps c = f->rail[0]->caps;
    for (unsigned i = 1; i < f->rails; i++) {
        const struct rme_caps *r = &f->rail[i]->caps;
        c.max_sge = ib_min(c.max_sge, r->max_sge);
        c.max_read_sge = ib_min(c.max_read_sge, r->max_read_sge);
        c.shared_rx = ib_min(c.shared_rx, r->shared_rx);
        c.mws = ib_min(c.mws, r->mws);
        c.closes = c.closes && r->closes;
        c.max_piece = r->max_piece < c.max_piece ? r->max_piece : c.max_piece;
        c.max_regs = r->max_regs < c.max_regs ? r->max_regs : c.max_regs;
        c.has_read = c.has_read && r->has_read;
        c.slow_read = c.slow_read || r->slow_read;
        c.keeps_rx = c.keeps_rx || r->keeps_rx;
        c.register_each = c.register_each || r->register_each;
        c.on_demand = c.on_demand && r->on_demand;
    }
    for (unsigned i = 0; i < f->rails; i++)
        f->rail[i]->caps = c;
    f->caps = c;
}

/* Opens the resources of a rail, and sets caps to what its device can do. */
static int open_device(struct ib_rail *rail)
{
    static int (*const step[])(struct ib_rail * rail) = {
        ib_device_open, ib_path_open,   ib_rx_open,    ib_cq_open,   ib_tx_open,
        ib_mws_open,    ib_demand_open, ib_async_open, ib_wait_watch};
    int error = 0;
    for (size_t i = 0; !error && i < sizeof(step) / sizeof(*step); i++)
        error = step[i](rail);
    return error;
}

static int rail_open(struct ib_rail *rail)
{
    const struct rme_fabric_config *config = &rail->config;
    rail->config.budget /= rail->fabric->rails; /* each rail pins all registered memory */
    for (rail->slab = IB_SLAB; config->budget && rail->slab > 4 &&
                               (uint64_t)rail->slab * config->rx_size > config->budget / 8;)
        rail->slab /= 2;
    return open_device(rail);
}

int ib_rails_open(struct rme_fabric *f)
{
    int error = 0;
    for (unsigned i = 0; !error && i < f->rails; i++)
        error = rail_open(f->rail[i]);
    level(f);
    f->turn = (unsigned)getpid(); /* spreads processes with one server each */
    return error;
}

/* Frees all objects of the device but the engine's registrations. */
void ib_rail_close(struct ib_rail *rail)
{
    ib_wait_unwatch(rail);
    ib_rx_close(rail); /* the SRQ after the QPs that use it, before the PD */
    ib_tx_close(rail);
    ib_mws_close(rail);
    ib_cq_close(rail);
    ib_async_close(rail); /* after all objects that raise asynchronous events */
    ib_device_close(rail);
}

/* ---- A device that returns ---- */

#define REOPEN_MS     500u   /* between looks for a device */
#define REOPEN_MAX_MS 60000u /* the same while the device is there and cannot be opened */

/* Returns true if neither the engine nor the device uses anything of a lost device.  Links
 * without an id may remain: those that wait for a name, or for the delivery of their end. */
static bool is_quiet(const struct ib_rail *rail)
{
    const struct rme_link *l;
    bool busy =
        rail->draining || rail->done.head != NULL || !list_empty(&rail->drained) ||
        !list_empty(&rail->rx_ready) || rail->tx.nfree != rail->tx.slabs * rail->slab ||
        (rail->srq != NULL ? rail->rxq.held : rail->rx.nfree != rail->rx.nslab * rail->slab);
    list_for_each(l, &rail->links, all_entry)
        busy = busy || l->id != NULL;
    return !busy;
}

static void detach_device(struct ib_rail *rail)
{
    ib_rail_close(rail);
    rail->dev.ctx = NULL;
    ib_rx_queue_init(&rail->rxq);
    rail->cq = (struct ib_cq){.broken = true}; /* no polls */
}

/* Lets a lost device go, so that the kernel can remove it: a driver may wait for its users. */
static void release_device(struct ib_rail *rail)
{
    ib_listen_drop_device(rail->fabric, rail->dev.ctx);
    ib_regs_remove_rail(rail);
    rail->dev.lost = rail->dev.ctx;
    detach_device(rail);
}

/* Returns true if a device can do what the engine was told at open. */
static bool is_equal(const struct rme_caps *is, const struct rme_caps *was)
{
    return is->max_sge >= was->max_sge && is->max_read_sge >= was->max_read_sge &&
           is->max_piece >= was->max_piece && is->shared_rx >= was->shared_rx &&
           is->mws >= was->mws && is->closes >= was->closes && is->has_read >= was->has_read &&
           is->keeps_rx <= was->keeps_rx && is->on_demand >= was->on_demand;
}

/* Opens the device that has taken the place of the lost one.  Returns 0 or a negative errno. */
static int reopen_device(struct ib_rail *rail)
{
    struct rme_caps was = rail->caps;
    int error = open_device(rail);
    if (!error && !is_equal(&rail->caps, &was)) {
        ib_log(rail, RME_LOG_ERROR,
               "device %s: came back as a device that can do less; restart", rail->dev.name);
        error = -ENODEV;
    }
    rail->caps = was;
    if (error) {
        detach_device(rail);
        return error;
    }
    rail->srq_broken = rail->dev.down = false;
    rail->dev.dead = false;
    ib_log(rail, RME_LOG_WARN, "device %s: in use again", rail->dev.name);
    ib_regs_add_rail(rail);
    return 0;
}

/* Opens the devices that are back.  Returns true if one could not be opened. */
static bool reopen_devices(struct rme_fabric *f)
{
    bool failed = false, any = false;
    for (unsigned i = 0; i < f->rails; i++) {
        struct ib_rail *rail = f->rail[i];
        int error;
        if (!rail->dev.dead || rail->dev.ctx != NULL || !ib_device_return(rail))
            continue;
        error = reopen_device(rail);
        failed = failed || error;
        any = any || !error;
    }
    if (any)
        (void)ib_rails_addresses(f);
    return failed;
}

void ib_rails_reopen(struct rme_fabric *f, uint64_t now)
{
    bool lost = false, gone = false;
    bool failed;
    pthread_rwlock_wrlock(&f->regs.rails);
    for (unsigned i = 0; i < f->rails; i++) {
        struct ib_rail *rail = f->rail[i];
        if (rail->dev.dead && rail->dev.ctx != NULL && is_quiet(rail))
            release_device(rail);
        gone = gone || (rail->dev.dead && rail->dev.ctx == NULL);
    }
    if (gone)
        ib_device_relist(f);
    failed = gone && reopen_devices(f);
    pthread_rwlock_unlock(&f->regs.rails);
    lost = !ib_listen_retry(f);
    for (unsigned i = 0; i < f->rails; i++)
        lost = lost || f->rail[i]->dev.dead;
    f->reopen_ms = failed ? ib_min(f->reopen_ms * 2, REOPEN_MAX_MS) : REOPEN_MS;
    f->reopen_at = lost ? now + f->reopen_ms : 0;
}
