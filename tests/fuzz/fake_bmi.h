/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_bmi.h - a BMI whose other side is a script: posted operations wait until the script ends
 * them, and the script makes the unexpected messages. Replaces libembbmi in fuzz targets; one
 * thread. Also replaces the I/O server's workers: the script runs their jobs.
 */
#ifndef FAKE_BMI_H
#define FAKE_BMI_H

#include <stdbool.h>
#include <stdint.h>

#include "embedded/bmi/bmi.h"

#define FAKE_PEERS  4  /* addresses 1 … FAKE_PEERS */
#define FAKE_PIECES 64 /* pieces of memory of an operation */

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

/* Decisions of a script during a call; all are optional. */
struct fake_script {
    void (*poll)(int idle_ms);         /* completions are polled */
    int (*posted)(struct fake_op *op); /* 0: wait; 1: complete, op->actual bytes; -BMI_E… */
    int (*lookup)(BMI_addr_t addr, const char *text); /* 0 or -BMI_E… */
    bool (*refuses)(bool memory);                     /* memory, or the report of completions */
    void (*set_info)(BMI_addr_t addr, int option);
};

void fake_begin(void);
void fake_follow(const struct fake_script *script); /* until the next fake_begin() */
uint64_t fake_trace(void);                          /* since fake_begin(); see fuzz.h */
uint64_t fake_lent(void);                           /* bytes of BMI_memalloc() in use */
bool fake_end(void);                                /* false: something was leaked */

/* Waiting operations. */
int fake_waiting(void);
struct fake_op *fake_waiting_at(int n);

/* Ends an operation: 0 or -BMI_E…, with `actual` bytes. */
void fake_finish(struct fake_op *op, bmi_error_code_t error, bmi_size_t actual);

/* Ends a receive with these bytes, truncated to its room. */
void fake_deliver(struct fake_op *op, const void *bytes, bmi_size_t size);

/* Fails all current and later operations of an address; 0: of all addresses. */
void fake_lose(BMI_addr_t addr);

/* Reconnects the peer under another address, which is returned. */
BMI_addr_t fake_connect(int peer);

/* Delivers a message of a peer. */
void fake_unexpected(BMI_addr_t addr, const void *bytes, bmi_size_t size, bmi_msg_tag_t tag);

/* Runs the oldest job of the workers; returns false if there is none. */
bool fake_run_job(void);
bool fake_has_job(void);

#endif
