/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * nic.c - joining and leaving the network.
 *
 * Order: routes to all possible processes are set first; the interface is blocked before the
 * context is attached, and unblocked when everything that peers can access exists, so that no
 * peer meets a half-initialised process.  The log of the node proposes contexts; the driver
 * decides, and a context that it refuses is skipped, because its owner does not use the log.
 *
 * The real library is not known to detach: the context is then released with the process, and
 * so is its record in the log, which stays locked until then (compat.h).
 */
#include "bmi_elan4/nic.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "bmi_elan4/compat.h"

#define RAIL 0

static void on_trap(ELAN4_CTX *ctx, ELAN4_USER_TRAP *trap, void *arg)
{
    struct bmi_elan4_nic *nic = arg;
    struct bmi_elan4_trap t;

    (void)ctx;
    t.kind = compat_trap(trap, &t.type, &t.at);
    pthread_mutex_lock(&nic->trap_lock);
    if (nic->ntrap < BMI_ELAN4_TRAPS)
        nic->trap[nic->ntrap++] = t;
    pthread_mutex_unlock(&nic->trap_lock);
    atomic_fetch_add(&nic->traps, 1);
    bmi_elan4_signal_raise(&nic->signal);
}

unsigned bmi_elan4_traps_take(struct bmi_elan4_nic *nic,
                              struct bmi_elan4_trap out[BMI_ELAN4_TRAPS])
{
    unsigned count;
    pthread_mutex_lock(&nic->trap_lock);
    count = nic->ntrap;
    memcpy(out, nic->trap, count * sizeof(*out));
    nic->ntrap = 0;
    pthread_mutex_unlock(&nic->trap_lock);
    return count;
}

/* Leaves the network and frees the nic, if the library detaches: else the interface may still
 * access everything, and the record in the log stays locked. */
static void leave(struct bmi_elan4_nic *nic)
{
    if (nic->ctx != NULL && !compat_leave(nic->ctx))
        return;
    if (nic->log != NULL) {
        if (nic->context)
            bmi_elan4_log_give(nic->log, nic->context);
        bmi_elan4_log_close(nic->log);
    }
    if (nic->sdram != NULL)
        compat_close_memory(nic->alloc, nic->sdram);
    if (nic->signal.fd >= 0)
        close(nic->signal.fd);
    pthread_mutex_destroy(&nic->trap_lock);
    free(nic);
}

/* Attaches to a context.  Returns 0, -EBUSY if it is taken, or another negative errno. */
static int attach_at(struct bmi_elan4_nic *nic, const unsigned key[4], int context)
{
    ELAN_CAPABILITY cap;
    int rc = bmi_elan4_log_take(nic->log, context, &nic->generation);

    if (rc < 0)
        return rc;
    bmi_elan4_capability(&nic->range, key, context, &cap);
    errno = 0;
    if (elan4_attach(nic->ctx, &cap) == 0) {
        nic->context = context;
        nic->vp = (unsigned)bmi_elan4_vp(&nic->range, nic->node, context);
        return 0;
    }
    rc = errno ? -errno : -EBUSY;
    bmi_elan4_log_give(nic->log, context);
    return rc;
}

static int attach(struct bmi_elan4_nic *nic, const struct bmi_elan4_nic_config *config,
                  char *why, size_t size)
{
    const struct bmi_elan4_range *r = &nic->range;
    int first = config->context, last = config->context, rc = -EBUSY;
    pid_t holder;

    if (config->context == BMI_ELAN4_CLIENT) {
        first = r->low_context + 1;
        last = r->high_context;
    }
    if (first > last)
        return BMI_ELAN4_WHY(
            -EINVAL,
            "elan_contexts=%d-%d: the only context is the server's; set a larger "
            "elan_contexts for all processes",
            r->low_context, r->high_context);
    for (int c = first; c <= last && rc == -EBUSY; c++)
        rc = attach_at(nic, config->key, c);
    holder = rc == -EBUSY ? bmi_elan4_log_foreign_holder(nic->log, first) : 0;
    if (holder != 0)
        snprintf(
            why, size,
            "node %d: locked by process number %ld (-1: find it with lsof), which holds a lock "
            "on %s/node-%d and does not use the network; end that process",
            nic->node, (long)holder, config->folder, nic->node);
    else if (rc == -EBUSY && first == last)
        snprintf(why, size,
                 "elan4://%d:%d: cannot attach: %s; another process uses this context",
                 nic->node, first, strerror(EADDRINUSE));
    else if (rc == -EBUSY)
        snprintf(why, size,
                 "node %d: all contexts for clients, %d to %d, are in use; set a larger "
                 "elan_contexts for all processes",
                 nic->node, first, last);
    else if (rc < 0)
        snprintf(why, size, "cannot attach to context %d of node %d: %s; %s", first, nic->node,
                 strerror(-rc), rme_remedy(rc, "see the kernel log (dmesg)"));
    return rc;
}

/* Sets up the context's routes, blocked for the network. */
static int prepare(struct bmi_elan4_nic *nic, const unsigned key[4])
{
    ELAN_CAPABILITY cap;

    bmi_elan4_capability(&nic->range, key, nic->range.low_context, &cap);
    if (elan4_set_standard_mappings(nic->ctx) < 0 ||
        elan4_set_required_mappings(nic->ctx) < 0 || elan4_add_p2pvp(nic->ctx, 0, &cap) < 0 ||
        elan4_block_inputter(nic->ctx, 1) < 0 ||
        compat_handle_traps(nic->ctx, on_trap, nic) < 0)
        return errno ? -errno : -EIO;
    return 0;
}

static int make_queues(struct bmi_elan4_nic *nic)
{
    nic->cookies = elan4_allocCookiePool(nic->ctx, nic->vp);
    nic->tx = compat_flowing_cmdq(
        nic->ctx, nic->alloc, CQ_Size64K,
        CQ_WriteEnableBit | CQ_DmaStartEnableBit | CQ_STENEnableBit | CQ_SetEventEnableBit, 16);
    nic->rx =
        compat_cmdq(nic->ctx, nic->alloc, CQ_Size1K, CQ_WriteEnableBit | CQ_WaitEventEnableBit);
    nic->irq =
        compat_cmdq(nic->ctx, nic->alloc, CQ_Size1K, CQ_WriteEnableBit | CQ_InterruptEnableBit);
    nic->irq_block = bmi_elan4_sdram(nic, 64, sizeof(*nic->irq_block));
    if (nic->cookies == NULL || nic->tx == NULL || nic->rx == NULL || nic->irq == NULL ||
        nic->irq_block == NULL)
        return -ENOMEM;
    return elan4_alloc_intcookie(nic->ctx, BMI_ELAN4_INT_COOKIE) < 0 ? -ENOMEM : 0;
}

static int failed(int rc, char *why, size_t size, const char *what, const char *remedy)
{
    snprintf(why, size, "%s: %s%s%s", what, strerror(-rc), *remedy ? "; " : "", remedy);
    return rc;
}

/* Joins the network with a nic that is freed on failure. */
static int join(struct bmi_elan4_nic *nic, const struct bmi_elan4_nic_config *config, char *why,
                size_t size)
{
    const struct bmi_elan4_range *r = &nic->range;
    int rc = bmi_elan4_guard_forks();

    if (rc < 0)
        return failed(rc, why, size, "handlers of forks", "");
    rc = bmi_elan4_signal_open(&nic->signal);
    if (rc < 0)
        return failed(rc, why, size, "a descriptor",
                      rme_remedy(rc, "see the kernel log (dmesg)"));
    errno = 0;
    nic->ctx = elan4_init(RAIL);
    if (nic->ctx == NULL) {
        rc = errno ? -errno : -ENODEV;
        return failed(rc, why, size, "no Elan4 network interface",
                      rme_remedy(rc, "use emuelan4 where there is none"));
    }
    nic->node = (int)nic->ctx->ctx_position.pos_nodeid;
    nic->sdram = compat_open_sdram(RAIL, config->sdram_bytes);
    if (nic->sdram != NULL)
        nic->alloc = compat_open_alloc(config->main_bytes, nic->sdram, config->sdram_bytes);
    if (nic->alloc == NULL)
        return failed(-ENOMEM, why, size, "memory of the network interface", "");
    rc = prepare(nic, config->key);
    if (rc < 0)
        return failed(rc, why, size, "preparing the context", "");
    if (nic->node < r->low_node || nic->node > r->high_node)
        return BMI_ELAN4_WHY(-EINVAL, "this node, %d, is outside elan_nodes=%d-%d", nic->node,
                             r->low_node, r->high_node);
    rc = bmi_elan4_log_open(config->folder, nic->node, &nic->log);
    if (rc < 0)
        return failed(
            rc, why, size, config->folder,
            "set BMI_ELAN4_LOG to one folder that all processes of the node may write to");
    rc = attach(nic, config, why, size);
    if (rc < 0)
        return rc;
    rc = make_queues(nic);
    return rc < 0 ? failed(rc, why, size, "command queues of the context", "") : 0;
}

int bmi_elan4_nic_open(const struct bmi_elan4_nic_config *config, struct bmi_elan4_nic **out,
                       char *why, size_t size)
{
    struct bmi_elan4_nic *nic;
    int rc = bmi_elan4_range_check(&config->range, why, size);

    if (rc < 0)
        return rc;
    nic = calloc(1, sizeof(*nic));
    if (nic == NULL)
        return failed(-ENOMEM, why, size, "a context", "");
    nic->range = config->range;
    nic->signal.fd = -1;
    pthread_mutex_init(&nic->trap_lock, NULL);
    rc = join(nic, config, why, size);
    if (rc == 0) {
        *out = nic;
        return 0;
    }
    leave(nic);
    return rc;
}

int bmi_elan4_nic_listen(struct bmi_elan4_nic *nic)
{
    return elan4_block_inputter(nic->ctx, 0) < 0 ? -EIO : 0;
}

void bmi_elan4_nic_close(struct bmi_elan4_nic *nic)
{
    elan4_block_inputter(nic->ctx, 1);
    leave(nic);
}

void *bmi_elan4_main(struct bmi_elan4_nic *nic, size_t align, size_t size)
{
    void *p = elan4_allocMain(nic->alloc, align, size);

    return p != NULL ? memset(p, 0, size) : NULL;
}

void *bmi_elan4_sdram(struct bmi_elan4_nic *nic, size_t align, size_t size)
{
    void *p = elan4_allocElan(nic->alloc, align, size);

    return p != NULL ? memset(p, 0, size) : NULL;
}

void bmi_elan4_flush(struct bmi_elan4_nic *nic)
{
    compat_flush(nic->tx);
}
