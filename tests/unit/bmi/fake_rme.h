/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_rme.h - an engine for tests of the shim: rme.h's functions over a list of operations
 * that the test completes. */
#ifndef FAKE_RME_H
#define FAKE_RME_H

#include <stdatomic.h>
#include "bmi-method-support.h"
#include "rme.h"

struct fake {
    /* set by tests */
    int open_error;        /* logged, too */
    int reach_result;      /* result of rme_addr_reach */
    int post_result;       /* result of posts */
    bool forked;           /* this process is a child of the engine's process */
    bool keeps_messages;   /* waiting messages cannot be reported yet */
    bool finish_at_once;   /* operations are complete before the post returns */
    void (*on_post)(void); /* called once, before the post of a complete operation returns */
    void (*on_scan)(void); /* called once, while messages are being reported to the host */
    void (*on_none)(void); /* called each time there is no message, before the wait */
    /* read by tests */
    char options[128], listening[128];
    bool bind_specific;
    atomic_int engines, addrs, operations, cancels, forceful, hints, waited_ms, reaches;
    int listen_port; /* 0: not listening */
    size_t hinted;
    enum rme_direction hint_direction;
    uint32_t contexts;
    rme_id last_id;
    struct rme_list last_list; /* the caller's pointers: valid for comparison only */
    int32_t last_tag;
    struct rme_addr *last_addr;
};

extern struct fake fake;
extern struct bmi_method_ops bmi_fake_ops; /* the shim over this engine: "fake://host:port" */

void fake_reset(void);
void fake_log(enum rme_log_level level, const char *line); /* logs a line of the open engine */
void fake_complete(rme_id id, int error, int64_t actual);
struct rme_addr *fake_new_peer(const char *name);
void fake_peer_sends(struct rme_addr *peer, int32_t tag, int64_t size);
void fake_peer_dies(struct rme_addr *peer);

#endif
