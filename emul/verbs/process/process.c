/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The device of this process: creation, fork, exit.
 *
 * Listing devices needs names only. Opening one (or creating an rdma_cm channel) creates the
 * rest: slot, segment, service thread. A forked child starts afresh at its next call; inherited
 * state becomes a private copy, so that the child cannot disturb its parent.
 */
#include "emul/verbs/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static pthread_mutex_t make_lock = PTHREAD_MUTEX_INITIALIZER;
static struct emu_dev *base; /* knobs and names */
_Atomic(struct emu_dev *) emu_device;
/* in a forked child: the parent's device, referenced by its objects */
static struct emu_dev *inherited;

static const char *const object_name[] = {
    "context", "pd", "mr", "mw",         "channel", "cq",
    "srq",     "qp", "ah", "cm_channel", "cm_id",   "cm_event",
};
_Static_assert(COUNT_live_context + sizeof(object_name) / sizeof(object_name[0]) ==
                   COUNT_live_cm_event + 1,
               "a name for each");

static void at_exit_report(void)
{
    struct emu_dev *d = base;
    char path[4096], prog[256] = "";

    if (d == NULL || d->pid != getpid())
        return;
    /* the service thread continues: other destructors may still disconnect */
    FILE *f = fopen("/proc/self/comm", "re");
    if (f != NULL) {
        if (fgets(prog, sizeof(prog), f) != NULL)
            prog[strcspn(prog, "\n")] = 0;
        fclose(f);
    }
    if (*d->knobs.counters) {
        snprintf(path, sizeof(path), "%s/emuverbs-%d.json", d->knobs.counters, d->pid);
        f = fopen(path, "we");
        if (f != NULL) {
            emu_counters_json(emu_counters, d->pid, prog, f);
            fclose(f);
        } else {
            fprintf(stderr, "emuverbs: cannot write %s: %s\n", path, strerror(errno));
        }
    }
    if (d->knobs.count_calls)
        fprintf(stderr, "emuverbs: %s: %llu calls\n", prog,
                (unsigned long long)atomic_load(&emu_counters->count[COUNT_sweep_calls]));
    if (d->knobs.census)
        for (unsigned i = 0; i < sizeof(object_name) / sizeof(object_name[0]); i++) {
            int64_t n = (int64_t)atomic_load(&emu_counters->count[COUNT_live_context + i]);
            if (n)
                fprintf(stderr, "emuverbs: %s: %lld %s alive at exit\n", prog, (long long)n,
                        object_name[i]);
        }
}

static void after_fork_child(void)
{
    struct emu_dev *d = atomic_load(&emu_device);

    pthread_mutex_init(&make_lock, NULL);
    base = NULL;
    atomic_store(&emu_device, NULL);
    if (d != NULL) {
        inherited = d;
        emu_segment_forked(d);
        emu_above_forked(d);
        emu_own_drop(d->slot_sock);
        emu_service_forked(); /* last, as the marks of own descriptors go with it */
    }
}

/* Runs after the destructors of all libraries, as exit() runs handlers in reverse order. */
static void ended(int status, void *arg)
{
    struct emu_dev *d = emu_dev_peek();

    (void)status, (void)arg;
    if (d != NULL && d->pid == getpid())
        emu_service_end(d);
}

__attribute__((constructor)) static void loaded(void)
{
    /* with Yama scope 1, access by processes that are not ancestors needs permission */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    pthread_atfork(NULL, NULL, after_fork_child);
    on_exit(ended, NULL);
}

__attribute__((destructor)) static void unloaded(void)
{
    at_exit_report();
}

/* Under make_lock. */
static struct emu_dev *base_locked(void)
{
    if (base == NULL) {
        struct emu_dev *d = calloc(1, sizeof(*d));
        if (d == NULL)
            return NULL;
        d->pid = getpid();
        pthread_mutex_init(&d->lock, NULL);
        pthread_mutex_init(&d->qp_life, NULL);
        pthread_mutex_init(&d->self.chan_lock, NULL);
        emu_knobs_load(&d->knobs);
        emu_fault_init(&d->knobs);
        emu_trace_init(&d->knobs);
        emu_steps_init(&d->knobs);
        if (emu_ports_init(d)) {
            free(d);
            return NULL;
        }
        base = d;
    }
    return base;
}

struct emu_dev *emu_dev_base(void)
{
    pthread_mutex_lock(&make_lock);
    struct emu_dev *d = base_locked();
    pthread_mutex_unlock(&make_lock);
    return d;
}

/* Creates slot, segment and service thread, or none of them. */
static int make(struct emu_dev *d)
{
    int err = emu_slot_claim(d);

    if (err)
        return err;
    err = emu_segment_create(d);
    if (err)
        goto no_segment;
    err = emu_service_start(d);
    if (err)
        goto no_service;
    return 0;

no_service:
    emu_segment_destroy(d);
no_segment:
    close(d->slot_sock);
    return err;
}

struct emu_dev *emu_dev(void)
{
    struct emu_dev *d = emu_dev_peek();
    int err = 0;

    if (d != NULL)
        return d;
    pthread_mutex_lock(&make_lock);
    d = base_locked();
    if (d == NULL)
        err = -ENOMEM;
    else if (!d->knobs.devices)
        err = -ENODEV;
    else if (atomic_load(&emu_device) == NULL) {
        err = make(d);
        if (!err) {
            d->self.seg = d->seg;
            d->self.incarnation = d->seg->incarnation;
            d->self.slot = d->slot;
            d->self.pid = d->pid;
            d->self.tid = SHM_KEEPER(atomic_load(&d->seg->keeper));
            d->self.self = true;
            d->self.refs = 1;
            d->next_pd = 1;
            emu_counters_move(&d->seg->counters);
            d->seg->magic = EMU_SHM_MAGIC;
            atomic_store(&d->seg->ready, 1);
            atomic_store(&emu_device, d);
        } else {
            fprintf(stderr, "emuverbs: cannot set up the device: %s\n", strerror(-err));
        }
    }
    pthread_mutex_unlock(&make_lock);
    if (err) {
        errno = -err;
        return NULL;
    }
    return d;
}

/* Called by tests in this process, through dlsym. */
EMU_EXPORT int64_t emuverbs_counter(const char *name);
EMU_EXPORT int64_t emuverbs_counter(const char *name)
{
    return emu_counters_find(emu_counters, name);
}

/* Called by tests, through dlsym; see doc/emuverbs.md. */
EMU_EXPORT void emuverbs_settle(void);
EMU_EXPORT void emuverbs_settle(void)
{
    struct emu_dev *d = emu_dev_peek();

    for (int i = 0; d != NULL && i < 2; i++) { /* the first round may have begun before */
        uint64_t before = atomic_load(&emu_counters->count[COUNT_service_rounds]);
        emu_service_wake(d);
        while (atomic_load(&emu_counters->count[COUNT_service_rounds]) == before)
            sched_yield();
    }
}
