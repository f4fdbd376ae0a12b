/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi-perf doctor: checks of a machine for the first day of a site, and with the address of a
 * bmi-perf server, checks and figures of the network in between.
 *
 * Each check prints a row: verdict, subject, finding, and below it the remedy.  The exit status
 * is 1 if a row is FAIL.
 */
#ifndef BENCH_DOCTOR_H
#define BENCH_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/args.h"

enum verdict { DOCTOR_PASS, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_VERDICTS };

#define DOCTOR_NETS 32

/* IPv4 network of a port. */
struct doctor_net {
    char subject[80];
    uint32_t network, mask;
};

struct doctor {
    FILE *report; /* also gets all lines; NULL: none */
    unsigned rows[DOCTOR_VERDICTS];
    bool emulated;  /* the devices are those of the software HCA */
    bool locked;    /* the kernel is locked down */
    unsigned ports; /* active ports with an address that connections can use */
    struct doctor_net net[DOCTOR_NETS]; /* of those ports; more are not compared */
    unsigned nets;
};

/* Prints a row.  `remedy`: NULL for PASS. */
void doctor_row(struct doctor *doctor, enum verdict verdict, const char *remedy,
                const char *subject, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Prints a line of a table. */
void doctor_line(struct doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Kernel and limits of this process. */
void doctor_host(struct doctor *doctor);
/* Devices of the kernel beyond the `count` names of `known`, and why they were not opened. */
void doctor_kernel(struct doctor *doctor, char *const *known, int count);
/* Reads the first line of folder/entry/name, without its end.  False: there is none. */
bool doctor_line_of(char *text, size_t size, const char *folder, const char *entry,
                    const char *name);

/* Counters of lost and repeated packets of a port. */
#define DOCTOR_LOSSES 14
struct doctor_loss {
    uint64_t value[DOCTOR_LOSSES];
};

/* Reads them.  Returns false if the port has none. */
bool doctor_loss_read(struct doctor_loss *loss, const char *device, unsigned port);
/* Prints a row of the differences. */
void doctor_loss_row(struct doctor *doctor, const struct doctor_loss *before,
                     const struct doctor_loss *after);

/* RDMA devices, their ports and addresses, and an engine of bmi_ib on them. */
void doctor_devices(struct doctor *doctor, const char *options);
/* A server: contents and figures of each protocol, beside raw verbs. */
void doctor_network(struct doctor *doctor, const char *address, const char *options);

/* The mode: doctor [ADDR].  Returns the exit status. */
int mode_doctor(const struct args *args);

#endif
