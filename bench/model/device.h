/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * device.h - the tables of a model: the costs of devices and of hosts.
 *
 * Times are ns, slopes ns per byte or per page of 4 KiB.  doc/design/model.md has the source of
 * each number and the published rows that the tables are compared with.
 */
#ifndef BENCH_MODEL_DEVICE_H
#define BENCH_MODEL_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "fabric.h"

/* Costs by number of calls and of pages, or of segments. */
struct call_cost {
    double call, page;
};

/* An adapter with its network. */
struct device {
    const char *name, *text;
    const char *host; /* name of the host table it was published with */

    /* the data path */
    uint32_t mtu;
    double byte;        /* the slowest of bus and wire: 1 / bandwidth of writes */
    double read_byte;   /* the same for reads */
    double send_byte;   /* the same for sends */
    double first_byte;  /* a byte of the first packet beyond `byte`: stored in each stage */
    double flight;      /* from the start of a write until its data is seen */
    double deliver;     /* a send beyond a write: receive WQE and CQE */
    double fetch;       /* WQE and data that the adapter reads itself, when it is idle */
    double read_trip;   /* from the start of a read until its data is seen */
    uint32_t inlined;   /* bytes that the processor may put into the WQE */
    double inline_byte; /* a byte in the WQE beyond `byte` */

    /* requests */
    double gap, read_gap;           /* between two of one queue */
    double port_gap;                /* between two of all queues */
    double overhead, read_overhead; /* of a message on the wire */
    double segment;                 /* a further SGE */
    uint32_t reads;                 /* outstanding on one queue */
    uint32_t max_sge;
    bool segments_apart;             /* a segment is a separate request */
    bool chains_reads;               /* FIN follows a read without the processor */
    const struct rme_limits *limits; /* of the planner; NULL: those of an adapter */
    uint32_t depth;                  /* send queue of the engine's links */

    /* memory */
    struct call_cost reg, dereg;
    uint32_t windows;        /* 0: the device has none */
    double bind, invalidate; /* of the queue, which a fence stops meanwhile */

    /* what the processor does for the device */
    double wqe, doorbell, cqe, wakeup;
};

/* A processor and its memory. */
struct host {
    const char *name, *text;
    double copy_cached, copy_far; /* ns per byte */
    uint32_t cache;               /* bytes of one copy that the cache takes */
    struct call_cost lookup;      /* of a list in the registration cache: call, segment */
    double instructions;          /* of a call of the engine that posts or tests */
    double per_ns;                /* instructions in a ns */
};

extern struct device model_devices[]; /* ended by a row without a name; vary.c changes them */
extern const struct host model_hosts[];

/* Returns the row, or NULL. */
const struct device *model_device(const char *name);
const struct host *model_host(const char *name);

#endif
