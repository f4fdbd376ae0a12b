/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A fabric that only registers: it counts, remembers what is registered, and refuses on
 * request. */
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
    int refuse;          /* errno to refuse with from now on, 0: admit */
    size_t refuse_above; /* lengths above it are refused with -ENOMEM; 0: none */
    const char *hole;    /* registrations that contain this byte fail with -EFAULT */
    /* likewise, each of these, of those with one of the rights */
    const char *const *holes;
    unsigned nholes, hole_access;
    unsigned bad_deregs;       /* of what was not registered */
    void (*during)(void *arg); /* called in the middle of a registration, no lock held */
    void *during_arg;
};

extern const struct rme_fabric_ops fake_ops;

void fake_init(struct fake *fake);
void fake_destroy(struct fake *fake);
struct rme_fabric *fake_fabric(struct fake *fake);
/* Registrations that are live now. */
unsigned fake_live(struct fake *fake);
/* Is all of the range registered under this key with these rights? */
bool fake_covers(struct fake *fake, uint64_t key, const void *base, size_t length,
                 unsigned access);

/* Collects log lines. */
struct fake_log {
    int lines;
    char last[1024];
};
void fake_log_line(void *arg, enum rme_log_level level, const char *line);

#endif
