/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A fabric that only registers: counts and records registrations, and fails on request. */
#ifndef FAKE_FABRIC_H
#define FAKE_FABRIC_H

#include <pthread.h>
#include "fabric.h"

#define FAKE_REGS 4096

struct fake {
    struct rme_caps caps;
    pthread_mutex_t lock;
    struct rme_mr live[FAKE_REGS]; /* handle NULL: free slot */
    unsigned access[FAKE_REGS];
    unsigned regs, deregs; /* calls that succeeded */
    unsigned attempts;
    int refuse;          /* errno of the following calls; 0: succeed */
    size_t refuse_above; /* longer registrations fail with -ENOMEM; 0: no limit */
    const char *hole;    /* registrations that contain this byte fail with -EFAULT */
    /* likewise for each of these bytes, if the access has one of these rights */
    const char *const *holes;
    unsigned nholes, hole_access;
    unsigned bad_deregs;       /* of unknown registrations */
    void (*during)(void *arg); /* called during a registration, without a lock */
    void *during_arg;
};

extern const struct rme_fabric_ops fake_ops;

void fake_init(struct fake *fake);
void fake_destroy(struct fake *fake);
struct rme_fabric *fake_fabric(struct fake *fake);
/* Returns the number of current registrations. */
unsigned fake_live(struct fake *fake);
/* Returns whether the whole range is registered under this key with these rights. */
bool fake_covers(struct fake *fake, uint64_t key, const void *base, size_t length,
                 unsigned access);

/* Collects log lines. */
struct fake_log {
    int lines;
    enum rme_log_level level, level_before; /* of the last line, and of the one before */
    char last[1024], before[1024];
};
void fake_log_line(void *arg, enum rme_log_level level, const char *line);

#endif
