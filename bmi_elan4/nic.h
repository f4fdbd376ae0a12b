/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * nic.h - a context of the network interface: attached, with memory, cookies and command
 * queues.
 *
 * One thread at a time uses a nic, except for its traps, which come from a thread of the
 * library, and its signal (kernel.h); `rx` and `irq` belong to its inbox (inbox.h).
 */
#ifndef BMI_ELAN4_NIC_H
#define BMI_ELAN4_NIC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bmi_elan4/compat.h"
#include "bmi_elan4/context_log.h"
#include "bmi_elan4/kernel.h"
#include "bmi_elan4/process.h"

#define BMI_ELAN4_TRAPS 200 /* maximum traps that are kept until taken */

struct bmi_elan4_trap {
    enum compat_trap kind;
    int type;   /* number in the library */
    E4_Addr at; /* start of the DMA, or the failing address */
};

#define BMI_ELAN4_CLIENT (-1) /* instead of a context: any free one except the server's */

struct bmi_elan4_nic_config {
    struct bmi_elan4_range range;
    unsigned key[4];
    const char *folder; /* of the context log */
    int context;        /* or BMI_ELAN4_CLIENT */
    size_t main_bytes;  /* for messages of peers and of this process */
    size_t sdram_bytes; /* for events, queues and chains */
};

struct bmi_elan4_nic {
    struct bmi_elan4_range range;
    int node, context; /* context: 0 until it is taken */
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
    _Atomic uint64_t traps; /* refusals by the interface, in total */
    pthread_mutex_t trap_lock;
    struct bmi_elan4_trap trap[BMI_ELAN4_TRAPS];
    unsigned ntrap; /* protected by trap_lock */
    /* raised for traps, for messages of an armed inbox, and to end a sleep; cleared by a
     * sleeper */
    struct bmi_elan4_signal signal;
};

#define BMI_ELAN4_INT_COOKIE 42 /* lower values are the library's */

/*
 * Joins the network: takes a context and attaches to it, blocked until bmi_elan4_nic_listen().
 * Returns 0, or a negative errno with reason and remedy in `why`: -ENODEV no network interface,
 * -EINVAL invalid range, -EBUSY the context is, or all are, taken, -EACCES log not writable,
 * -ENOMEM.
 */
int bmi_elan4_nic_open(const struct bmi_elan4_nic_config *config, struct bmi_elan4_nic **out,
                       char *why, size_t size);
/* Takes the pending traps, and returns their number.  Traps beyond BMI_ELAN4_TRAPS pending ones
 * are lost. */
unsigned bmi_elan4_traps_take(struct bmi_elan4_nic *nic,
                              struct bmi_elan4_trap out[BMI_ELAN4_TRAPS]);
/* Unblocks the context; packets sent before arrive now. */
int bmi_elan4_nic_listen(struct bmi_elan4_nic *nic);
/* Leaves the network: DMAs in flight are lost, and the context is free for another process. */
void bmi_elan4_nic_close(struct bmi_elan4_nic *nic);

/* Allocate zeroed memory of either kind, to be freed to its allocator; NULL: none left. */
void *bmi_elan4_main(struct bmi_elan4_nic *nic, size_t align, size_t size);
void *bmi_elan4_sdram(struct bmi_elan4_nic *nic, size_t align, size_t size);

/* Returns the Elan address of main memory; libelan4's argument is not const. */
static inline E4_Addr bmi_elan4_at(struct bmi_elan4_nic *nic, const volatile void *p)
{
    return elan4_main2elan(nic->ctx, (void *)(uintptr_t)p);
}

/*
 * Fills in the DMA of a message of up to a slot's bytes to a queue of `vp`.  `event`, an own
 * event or NULL, is set when the message has landed, and the memory is free then.
 */
static inline void bmi_elan4_packet_dma(struct bmi_elan4_nic *nic, unsigned vp, E4_Addr queue,
                                        const void *message, size_t bytes,
                                        const volatile void *event, E4_DMA *dma)
{
    *dma =
        (E4_DMA){.dma_typeSize = E4_DMA_TYPE_SIZE(bytes, DMA_DataTypeByte, DMA_QueueWrite, 16),
                 .dma_cookie = compat_dma_cookie(nic->cookies, vp),
                 .dma_vproc = vp,
                 .dma_srcAddr = bmi_elan4_at(nic, message),
                 .dma_srcEvent = event != NULL ? bmi_elan4_at(nic, event) : 0,
                 .dma_dstEvent = queue};
}

void bmi_elan4_flush(struct bmi_elan4_nic *nic);

#endif
