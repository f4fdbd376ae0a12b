/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_bmi.h - a BMI whose other side is a script: what was posted waits until the script ends
 * it, unexpected messages are those it makes.  Stands in for libembbmi in fuzz targets; one
 * thread.  Also stands in for the workers of the I/O server: their jobs run when the script
 * says so.
 */
#ifndef FAKE_BMI_H
#define FAKE_BMI_H

#include <stdbool.h>
#include <stdint.h>

#include "embedded/bmi/bmi.h"

#define FAKE_PEERS  4 /* addresses 1 … FAKE_PEERS */
#define FAKE_PIECES 4 /* pieces of memory of an operation */

struct fake_op {
    bmi_op_id_t id; /* 0: free */
    BMI_addr_t addr;
    bool send;
    bool ended, canceled;
    bmi_error_code_t error;
    bmi_msg_tag_t tag;
    void *user;
    const void *memory; /* the first piece */
    bmi_size_t size, actual;
    bool unexpected;
    int pieces;
    struct {
        void *base;
        bmi_size_t length;
    } piece[FAKE_PIECES];
};

/* What a script may decide in the middle of a call.  All are optional. */
struct fake_script {
    void (*poll)(int idle_ms);         /* completions are asked for */
    int (*posted)(struct fake_op *op); /* 0: it waits; 1: done, op->actual bytes; -BMI_E… */
    int (*lookup)(BMI_addr_t addr, const char *text); /* 0 or -BMI_E… */
    bool (*refuses)(void);                            /* memory, or to tell completions */
};

void fake_begin(void);
void fake_follow(const struct fake_script *script); /* until the next fake_begin() */
uint64_t fake_trace(void);                          /* since fake_begin(); see fuzz.h */
bool fake_end(void);                                /* false: something was not given back */

/* Operations that wait. */
int fake_waiting(void);
struct fake_op *fake_waiting_at(int n);

/* Ends one: 0 or -BMI_E…, with so many bytes. */
void fake_finish(struct fake_op *op, bmi_error_code_t error, bmi_size_t actual);

/* Ends a receive with these bytes, as many of them as have room. */
void fake_deliver(struct fake_op *op, const void *bytes, bmi_size_t size);

/* Ends all of an address, now and of later posts; 0: all of all. */
void fake_lose(BMI_addr_t addr);

/* The peer comes back, under another address, which is returned. */
BMI_addr_t fake_connect(int peer);

/* A message of a peer arrives. */
void fake_unexpected(BMI_addr_t addr, const void *bytes, bmi_size_t size, bmi_msg_tag_t tag);

/* Runs the oldest job of the workers; false: there is none. */
bool fake_run_job(void);
bool fake_has_job(void);

#endif
