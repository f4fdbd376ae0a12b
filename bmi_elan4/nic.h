/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One context of the network interface: attached, with memory, cookies and command queues. This
 * is where a process joins and leaves the network.
 *
 * One thread at a time uses a nic, but for its traps, which come from a thread of the library;
 * `rx` and `irq` are those of its inbox (inbox.h).
 */
#ifndef BMI_ELAN4_NIC_H
#define BMI_ELAN4_NIC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bmi_elan4/compat.h"
#include "bmi_elan4/context_log.h"
#include "bmi_elan4/process.h"

#define BMI_ELAN4_TRAPS 256 /* that are kept until they are taken */

/* What the interface refused. */
enum bmi_elan4_trap_kind {
    BMI_ELAN4_TRAP_SOURCE, /* a DMA found no memory to read from here: ours, or one that a peer
                              asked for */
    BMI_ELAN4_TRAP_SINK,   /* a DMA found no memory to write to here: a peer's, or one that we
                              asked for */
    BMI_ELAN4_TRAP_OTHER
};

struct bmi_elan4_trap {
    enum bmi_elan4_trap_kind kind;
    int type;   /* the library's number */
    E4_Addr at; /* where the DMA began, or where it failed */
};

#define BMI_ELAN4_CLIENT (-1) /* instead of a context: any that is free but the server's */

struct bmi_elan4_nic_config {
    struct bmi_elan4_range range;
    unsigned key[4];
    const char *folder; /* of the context log */
    int context;        /* or BMI_ELAN4_CLIENT */
    size_t main_bytes;  /* for what peers' messages and ours lie in */
    size_t sdram_bytes; /* for events, queues and chains */
};

struct bmi_elan4_nic {
    struct bmi_elan4_range range;
    int node, context;
    unsigned vp;
    uint64_t generation; /* of this owner of the context */
    ELAN4_CTX *ctx;
    ELAN4_ALLOC *alloc;
    ELAN4_COOKIEPOOL *cookies;
    E4_CmdQ *tx;       /* DMAs and packets */
    E4_CmdQ *rx, *irq; /* re-arming of events, and interrupts */
    E4_Event_Blk *irq_block;
    ELAN4_SDRAM *sdram;
    struct bmi_elan4_log *log;
    _Atomic uint64_t traps; /* what the interface refused to carry out, all in all */
    pthread_mutex_t trap_lock;
    struct bmi_elan4_trap trap[BMI_ELAN4_TRAPS];
    unsigned ntrap; /* under the lock */
    int trap_fd;    /* readable when there may be one */
};

#define BMI_ELAN4_INT_COOKIE 42 /* those before are the library's own */

/*
 * Joins: takes a context and attaches to it, closed to the network until
 * bmi_elan4_nic_listen(). 0, or a negative errno with the reason and the remedy in `why`:
 * -ENODEV no network interface, -EINVAL the range, -EBUSY the context, or all of them, are
 * taken, -EACCES the log, -ENOMEM.
 */
int bmi_elan4_nic_open(const struct bmi_elan4_nic_config *config, struct bmi_elan4_nic **out,
                       char *why, size_t size);
/* Takes the oldest trap; false: there is none. Of more than are kept the later ones are lost.
 */
bool bmi_elan4_trap_take(struct bmi_elan4_nic *nic, struct bmi_elan4_trap *out);
/* Lets the network in; what was sent before arrives now. */
int bmi_elan4_nic_listen(struct bmi_elan4_nic *nic);
/* Leaves: what is still under way goes nowhere, and the context can be taken by another. */
void bmi_elan4_nic_close(struct bmi_elan4_nic *nic);

/* Memory of either kind, filled with zero; NULL: there is none left. Given back to its
 * allocator. */
void *bmi_elan4_main(struct bmi_elan4_nic *nic, size_t align, size_t size);
void *bmi_elan4_sdram(struct bmi_elan4_nic *nic, size_t align, size_t size);

static inline E4_Addr bmi_elan4_at(struct bmi_elan4_nic *nic, const volatile void *p)
{
    return compat_at(nic->ctx, p);
}

/*
 * Puts a message of up to a slot's bytes on its way to a queue of `vp`; `event`, an event of
 * ours or NULL, is set when it is there, and the memory is free then. Flushed by the caller.
 */
void bmi_elan4_send(struct bmi_elan4_nic *nic, unsigned vp, E4_Addr queue, const void *message,
                    size_t bytes, const volatile void *event);
void bmi_elan4_flush(struct bmi_elan4_nic *nic);

#endif
