/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fake_fabric.h"

static struct fake *of(const struct rme_fabric *f)
{
    return (struct fake *)(uintptr_t)f;
}

struct rme_fabric *fake_fabric(struct fake *fake)
{
    return (struct rme_fabric *)(uintptr_t)fake;
}

void fake_init(struct fake *fake)
{
    memset(fake, 0, sizeof(*fake));
    pthread_mutex_init(&fake->lock, NULL);
    fake->caps.max_sge = fake->caps.max_read_sge = 16;
    fake->caps.max_regs = FAKE_REGS;
    fake->caps.mws = 256;
    fake->caps.has_read = true;
}

void fake_destroy(struct fake *fake)
{
    pthread_mutex_destroy(&fake->lock);
}

static const struct rme_caps *caps(const struct rme_fabric *f)
{
    return &of(f)->caps;
}

static int admit(struct fake *fake, const char *base, size_t length, unsigned access)
{
    fake->attempts++;
    if (fake->refuse != 0)
        return -fake->refuse;
    if (fake->refuse_above != 0 && length > fake->refuse_above)
        return -ENOMEM;
    if (fake->hole != NULL && fake->hole >= base && fake->hole < base + length)
        return -EFAULT;
    for (unsigned i = 0; i < fake->nholes && (access & fake->hole_access) != 0; i++)
        if (fake->holes[i] >= base && fake->holes[i] < base + length)
            return -EFAULT;
    return 0;
}

static int reg(struct rme_fabric *f, void *base, size_t length, unsigned access,
               struct rme_mr *mr)
{
    struct fake *fake = of(f);
    int ret;

    if (fake->during != NULL)
        fake->during(fake->during_arg);
    pthread_mutex_lock(&fake->lock);
    ret = admit(fake, base, length, access);
    for (unsigned i = 0; ret == 0 && i < FAKE_REGS; i++) {
        if (fake->live[i].handle != NULL)
            continue;
        fake->regs++;
        *mr = (struct rme_mr){.handle = &fake->live[i],
                              .base = (uintptr_t)base,
                              .length = length,
                              .lkey = i + 1,
                              .rkey = i + 1};
        fake->live[i] = *mr;
        fake->access[i] = access;
        break;
    }
    pthread_mutex_unlock(&fake->lock);
    return ret;
}

static void dereg(struct rme_fabric *f, struct rme_mr *mr)
{
    struct fake *fake = of(f);
    struct rme_mr *slot = mr->handle;

    pthread_mutex_lock(&fake->lock);
    if (slot == NULL || slot->handle != slot || slot->base != mr->base ||
        slot->length != mr->length) {
        fake->bad_deregs++;
    } else {
        slot->handle = NULL;
        fake->deregs++;
    }
    pthread_mutex_unlock(&fake->lock);
}

unsigned fake_live(struct fake *fake)
{
    unsigned live = 0;

    pthread_mutex_lock(&fake->lock);
    for (unsigned i = 0; i < FAKE_REGS; i++)
        live += fake->live[i].handle != NULL;
    pthread_mutex_unlock(&fake->lock);
    return live;
}

bool fake_covers(struct fake *fake, uint64_t key, const void *base, size_t length,
                 unsigned access)
{
    uintptr_t start = (uintptr_t)base;
    bool covers = false;

    pthread_mutex_lock(&fake->lock);
    if (key >= 1 && key <= FAKE_REGS) {
        const struct rme_mr *mr = &fake->live[key - 1];

        covers = mr->handle != NULL && mr->base <= start &&
                 start + length <= mr->base + mr->length &&
                 (fake->access[key - 1] & access) == access;
    }
    pthread_mutex_unlock(&fake->lock);
    return covers;
}

const struct rme_fabric_ops fake_ops = {
    .scheme = "fake", .caps = caps, .reg = reg, .dereg = dereg};

void fake_log_line(void *arg, enum rme_log_level level, const char *line)
{
    struct fake_log *log = arg;

    log->lines++;
    log->level_before = log->level;
    memcpy(log->before, log->last, sizeof(log->before));
    log->level = level;
    snprintf(log->last, sizeof(log->last), "%s", line);
}
