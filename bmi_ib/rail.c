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

/* Prefers writers: threads that register all the time do not keep a device from its place. */
static void regs_init(struct ib_regs *r)
{
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&r->rails, &attr);
    pthread_rwlockattr_destroy(&attr);
    pthread_mutex_init(&r->lock, NULL);
}

struct rme_fabric *ib_rail_new(const struct rme_fabric_config *config, struct rme_fabric *head)
{
    struct rme_fabric *f = calloc(1, sizeof(*f));
    if (!f || rme_table_init(&f->table, 64)) {
        free(f);
        return NULL;
    }
    f->config = *config;
    f->head = head ? head : f;
    if (!head)
        regs_init(&f->regs);
    f->wake_fd = head ? head->wake_fd : -1;
    f->sleep_fd = head ? head->sleep_fd : -1;
    f->cm = head ? head->cm : NULL;
    f->number = head ? head->rails : 0;
    f->head->rail[f->head->rails++] = f;
    f->way_ms = IB_WAY_MS;
    f->drain_ms = IB_DRAIN_MS;
    f->signal_each = ib_option(f, "signal_each") != 0;
    TAILQ_INIT(&f->links);
    TAILQ_INIT(&f->dirty);
    TAILQ_INIT(&f->eventful);
    TAILQ_INIT(&f->tx_waiters);
    TAILQ_INIT(&f->drained);
    return f;
}

static int name_wrong(struct rme_fabric *f, const char *names, const char *why)
{
    ib_log(f, RME_LOG_ERROR, "option device=%s: %s", names, why);
    return -EINVAL;
}

int ib_rails_choose(struct rme_fabric *f)
{
    const char *names = rme_option_string(f->config.options, "device");
    char name[sizeof(f->dev.name)];
    bool several = strchr(names, '+') != NULL;
    unsigned chosen = 0, place = 0;
    int error = 0;
    if (!several)
        return ib_device_choose(f, names, ib_listen_device(f));
    for (; ib_part(names, place, name, sizeof(name)); place++) {
        if (!name[0] || chosen == IB_RAILS_MAX)
            return name_wrong(f, names,
                              name[0] ? "more than eight devices" : "empty device name");
        struct rme_fabric *rail = chosen ? ib_rail_new(&f->config, f) : f;
        if (!rail)
            return -ENOMEM;
        rail->place = (uint8_t)place;
        error = ib_device_choose(rail, name, NULL);
        if (!error && ib_rail_of(f, rail->dev.ctx) != rail)
            return name_wrong(f, names, "device named twice");
        if (!error)
            chosen++;
        else if (chosen) {
            rme_table_clear(&rail->table);
            free(f->rail[--f->rails]);
        }
    }
    return chosen ? 0 : error ? error : name_wrong(f, names, "device name too long");
}

/* Sets the capabilities of all rails to their common minimum, because the engine sees one
 * device.  Windows are used only if all rails have them. */
static void level(struct rme_fabric *f)
{
    struct rme_caps c = f->caps;
    for (unsigned i = 1; i < f->rails; i++) {
        const struct rme_caps *r = &f->rail[i]->caps;
        c.max_sge = ib_least(c.max_sge, r->max_sge);
        c.max_read_sge = ib_least(c.max_read_sge, r->max_read_sge);
        c.shared_rx = ib_least(c.shared_rx, r->shared_rx);
        c.mws = ib_least(c.mws, r->mws);
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
}

int ib_steps(struct rme_fabric *f, ib_step *const take[], size_t n)
{
    int error = 0;
    for (size_t i = 0; !error && i < n; i++)
        error = take[i](f);
    return error;
}

/* Opens the resources of a rail, and sets caps to what its device can do. */
static int open_device(struct rme_fabric *f)
{
    ib_step *const take[] = {ib_device_open, ib_path_open,  ib_rx_open,
                             ib_cq_open,     ib_tx_open,    ib_mws_open,
                             ib_demand_open, ib_async_open, ib_wait_watch};
    return ib_steps(f, take, sizeof(take) / sizeof(*take));
}

static int rail_open(struct rme_fabric *f)
{
    const struct rme_fabric_config *config = &f->config;
    f->railed = f->head->rails > 1;
    f->config.budget /= f->head->rails; /* each rail pins all registered memory */
    for (f->slab = IB_SLAB; config->budget && f->slab > 4 &&
                            (uint64_t)f->slab * config->rx_size > config->budget / 8;)
        f->slab /= 2;
    return open_device(f);
}

int ib_rails_open(struct rme_fabric *f)
{
    int error = 0;
    for (unsigned i = 0; !error && i < f->rails; i++)
        error = rail_open(f->rail[i]);
    level(f);
    f->turn = (unsigned)getpid(); /* spreads processes with one server each */
    f->shown = f->caps;
    return error;
}

/* Frees all objects of the device but the engine's registrations. */
static void close_device(struct rme_fabric *f)
{
    ib_wait_unwatch(f);
    ib_rx_close(f); /* the SRQ after the QPs that use it, before the PD */
    ib_tx_close(f);
    ib_mws_close(f);
    ib_cq_close(f);
    ib_async_close(f); /* after all objects that raise asynchronous events */
    ib_device_close(f);
}

void ib_rail_close(struct rme_fabric *f)
{
    close_device(f);
    rme_table_clear(&f->table);
    free(f->own);
    if (f == f->head)
        ib_device_unlist(f);
}

/* ---- A device that returns ---- */

#define MEND_MS      500u   /* between looks for a device */
#define MEND_MOST_MS 60000u /* the same while the device is there and cannot be opened */

/* Returns true if neither the engine nor the device uses anything of a lost device.  Links
 * without an id may remain: those that wait for a name, or for the delivery of their end. */
static bool is_quiet(const struct rme_fabric *f)
{
    const struct rme_link *l;
    bool busy = f->draining || f->done.head || !TAILQ_EMPTY(&f->drained) ||
                !STAILQ_EMPTY(&f->rx_ready) || f->tx.nfree != f->tx.slabs * f->slab ||
                (f->srq ? f->rxq.held : f->rx.nfree != f->rx.there * f->slab);
    TAILQ_FOREACH(l, &f->links, all_entry)
        busy = busy || l->id;
    return !busy;
}

static void shut(struct rme_fabric *f)
{
    close_device(f);
    f->dev.ctx = NULL;
    f->rxq = (struct ib_rx_queue){.chained = 0};
    f->cq = (struct ib_cq){.broken = true}; /* no polls */
}

/* Lets a lost device go, so that the kernel can remove it: a driver may wait for its users. */
static void let_go(struct rme_fabric *f)
{
    ib_listen_leave(f->head, f->dev.ctx);
    ib_regs_leave(f);
    f->dev.lost = f->dev.ctx;
    shut(f);
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
static int take_up(struct rme_fabric *f)
{
    struct rme_caps was = f->caps;
    int error = open_device(f);
    if (!error && !is_equal(&f->caps, &was)) {
        ib_log(f, RME_LOG_ERROR, "device %s: came back as a device that can do less; restart",
               f->dev.name);
        error = -ENODEV;
    }
    f->caps = was;
    if (error) {
        shut(f);
        return error;
    }
    f->srq_broken = f->dev.down = false;
    f->dev.dead = false;
    ib_log(f, RME_LOG_WARN, "device %s: in use again", f->dev.name);
    ib_regs_enter(f);
    return 0;
}

/* Opens the devices that are back.  Returns true if one could not be opened. */
static bool take_up_all(struct rme_fabric *head)
{
    bool failed = false, any = false;
    for (unsigned i = 0; i < head->rails; i++) {
        struct rme_fabric *f = head->rail[i];
        if (!f->dev.dead || f->dev.ctx || !ib_device_return(f))
            continue;
        int error = take_up(f);
        failed = failed || error;
        any = any || !error;
    }
    if (any)
        (void)ib_rails_addresses(head);
    return failed;
}

void ib_rails_mend(struct rme_fabric *head, uint64_t now)
{
    bool lost = false, gone = false;
    pthread_rwlock_wrlock(&head->regs.rails);
    for (unsigned i = 0; i < head->rails; i++) {
        struct rme_fabric *f = head->rail[i];
        if (f->dev.dead && f->dev.ctx && is_quiet(f))
            let_go(f);
        gone = gone || (f->dev.dead && !f->dev.ctx);
    }
    if (gone)
        ib_device_relist(head);
    bool failed = gone && take_up_all(head);
    pthread_rwlock_unlock(&head->regs.rails);
    lost = !ib_listen_again(head);
    for (unsigned i = 0; i < head->rails; i++)
        lost = lost || head->rail[i]->dev.dead;
    head->mend_ms = failed ? ib_least(head->mend_ms * 2, MEND_MOST_MS) : MEND_MS;
    head->mend_at = lost ? now + head->mend_ms : 0;
}
