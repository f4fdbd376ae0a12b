/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * compat.h - calls of libelan4 whose behaviour in the real library is uncertain, or differs
 * between its versions (doc/emuelan4.md lists them).  No other file of this folder makes these
 * calls, so that corrections are local; tests/tree/elan4-compat checks this.
 */
#ifndef BMI_ELAN4_COMPAT_H
#define BMI_ELAN4_COMPAT_H

#include <elan4/library.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Memory: types of the second and third argument; result of freeing ---- */

#define compat_open_sdram(rail, bytes) elan4_open_sdram(rail, 0, bytes)
#define compat_open_alloc(main_bytes, sdram, sdram_bytes)                                      \
    elan4_createAllocator(main_bytes, sdram, 0, sdram_bytes)

static inline void compat_close_memory(ELAN4_ALLOC *alloc, ELAN4_SDRAM *sdram)
{
    if (alloc != NULL)
        elan4_destroyAllocator(alloc);
    elan4_close_sdram(sdram);
}

static inline void compat_free_main(ELAN4_ALLOC *alloc, void *p)
{
    if (p != NULL)
        elan4_freeMain(alloc, p);
}

static inline void compat_free_sdram(ELAN4_ALLOC *alloc, void *p)
{
    if (p != NULL)
        elan4_freeElan(alloc, p);
}

static inline void compat_store(E4_uint64 value, volatile void *p)
{
    elan4_store64(value, (volatile E4_uint64 *)p);
}

#define compat_is_address(at) ((at) != ELAN_BAD_ADDR)

/* ---- Costs ---- */

/* 1: the network interface is software, whose DMAs cost more than the hardware's. */
#ifdef ELAN4_EMULATION
enum { COMPAT_SOFTWARE = 1 };
#else
enum { COMPAT_SOFTWARE = 0 };
#endif

/* ---- Leaving ---- */

/* Detaches from the context.  Returns false with the real library, which is not known to
 * release a context before the process ends. */
static inline bool compat_leave(ELAN4_CTX *ctx)
{
#ifdef ELAN4_EMULATION
    elan4_fini(ctx);
    return true;
#else
    (void)ctx;
    return false;
#endif
}

/* ---- Cookies: values of their types ---- */

#define compat_dma_cookie(pool, vp) elan4_local_cookie(pool, E4_COOKIE_TYPE_LOCAL_DMA, vp)

/* ---- Command queues ---- */

/* Before qsnetlibs 1.7.0 the caller provides the memory of a queue. */
#if QSNETLIBS_VERSION_CODE < QSNETLIBS_VERSION(1, 7, 0)
#define COMPAT_CTX_MEMORY(ctx, alloc) ctx, alloc
#else
#define COMPAT_CTX_MEMORY(ctx, alloc) ((void)(alloc), (ctx))
#endif

#define compat_cmdq(ctx, alloc, size, perms)                                                   \
    elan4_alloc_cmdq(COMPAT_CTX_MEMORY(ctx, alloc), size, perms, NULL)

/* Allocates a queue that waits when full, for `commands` commands at a time (value of the
 * flag). */
static inline E4_CmdQ *compat_flowing_cmdq(ELAN4_CTX *ctx, ELAN4_ALLOC *alloc, unsigned size,
                                           unsigned perms, unsigned commands)
{
    return elan4_alloc_cmdq(
        COMPAT_CTX_MEMORY(ctx, alloc), size, perms,
        elan4_probe_cmdq(COMPAT_CTX_MEMORY(ctx, alloc), commands, CQ_AutoCtrlFlowOn));
}

static inline void compat_free_cmdq(ELAN4_CTX *ctx, ELAN4_ALLOC *alloc, E4_CmdQ *q)
{
#if QSNETLIBS_VERSION_CODE < QSNETLIBS_VERSION(1, 7, 0)
    (void)ctx;
    elan4_freeMain(alloc, q);
#else
    (void)alloc;
    elan4_free_cmdq(ctx, q);
#endif
}

#define compat_flush(q) ((q)->cmdq_flush(q))

/* Reserves a command port for a chain of `dwords`; one per chain, because the effect of sharing
 * is uncertain.  Returns 0 if none is left. */
#define compat_port(ctx, dwords) elan4_alloccq_space(ctx, dwords, CQ_Size8K)

static inline void compat_free_port(ELAN4_CTX *ctx, E4_Addr port, unsigned dwords)
{
    if (port)
        elan4_freecq_space(ctx, port, dwords);
}

#define COMPAT_ASK_DWORDS      13 /* of a command queue, per requested DMA */
#define COMPAT_ASK_PERMISSIONS (CQ_STENEnableBit | CQ_WriteEnableBit | CQ_ModifyEnableBit)

/*
 * Requests a DMA to be run by process `vp`.  Uncertain are the cookies, and the handling of a
 * packet that the peer's interface refuses until the queue has exhausted its retries: 1 is then
 * added to the word at `refused`, if not 0.  The driver uses a guard for this, with packets
 * that end like this one.
 */
static inline void compat_ask_dma(E4_CmdQ *q, ELAN4_COOKIEPOOL *pool, E4_DMA *dma, unsigned vp,
                                  E4_Addr refused)
{
    dma->dma_cookie = elan4_remote_cookie(pool, E4_COOKIE_TYPE_REMOTE_DMA, vp);
    elan4_remote_dma(q, dma, vp, elan4_local_cookie(pool, E4_COOKIE_TYPE_STEN, vp));
    if (!refused)
        return;
    elan4_guard(q, GUARD_CHANNEL(1) | GUARD_TEST(0, RESTART_COUNT_ZERO) | GUARD_RESET(16));
    elan4_add_dword_cmd(q, refused, 1);
}

/* ---- Traps: position of the address, and traps left to the library ---- */

enum compat_trap {
    COMPAT_TRAP_SOURCE, /* no memory at the local source of a DMA, own or requested by a peer */
    COMPAT_TRAP_SINK,   /* no memory at the local destination of a DMA, a peer's or a requested
                         * one */
    COMPAT_TRAP_OTHER
};

/* Returns the kind of a trap.  The driver stores the address in the saved state of the unit;
 * ut_args has numbers of queues. */
static inline enum compat_trap compat_trap(const ELAN4_USER_TRAP *trap, int *type, E4_Addr *at)
{
    *type = trap->ut_type;
    switch (trap->ut_proc) {
    case UTS_DPROC:
        *at = trap->ut_trap.dproc.tr_prefetchFault.FaultAddress;
        return trap->ut_type == UTS_INVALID_ADDR ? COMPAT_TRAP_SOURCE : COMPAT_TRAP_OTHER;
    case UTS_IPROC:
        *at = trap->ut_trap.iproc.tr_faultarea.FaultAddress;
        return trap->ut_type == UTS_INVALID_ADDR ? COMPAT_TRAP_SINK : COMPAT_TRAP_OTHER;
    case UTS_EPROC:
        *at = trap->ut_trap.eproc.tr_faultarea.FaultAddress;
        return COMPAT_TRAP_OTHER;
    case UTS_CPROC:
        *at = trap->ut_trap.cproc.tr_faultarea.FaultAddress;
        return COMPAT_TRAP_OTHER;
    default:
        *at = 0;
        return COMPAT_TRAP_OTHER;
    }
}

/*
 * Registers a handler for traps that the driver cannot resolve, by name and unit.
 * UTS_ALL_TRAPS would include those that libelan4 handles: packets to be executed, network
 * errors, traps of the thread processor.
 */
static inline int compat_handle_traps(ELAN4_CTX *ctx,
                                      void (*handler)(ELAN4_CTX *, ELAN4_USER_TRAP *, void *),
                                      void *arg)
{
    static const struct {
        int type, unit;
    } ours[] = {
        {UTS_INVALID_ADDR, UTS_EPROC},    {UTS_INVALID_ADDR, UTS_CPROC},
        {UTS_INVALID_ADDR, UTS_DPROC},    {UTS_INVALID_ADDR, UTS_IPROC},
        {UTS_INVALID_VPROC, UTS_CPROC},   {UTS_INVALID_VPROC, UTS_DPROC},
        {UTS_INVALID_COMMAND, UTS_CPROC}, {UTS_BAD_TRAP, UTS_EPROC},
        {UTS_BAD_TRAP, UTS_CPROC},        {UTS_BAD_TRAP, UTS_DPROC},
        {UTS_ALIGNMENT_ERROR, UTS_EPROC}, {UTS_ALIGNMENT_ERROR, UTS_CPROC},
        {UTS_ALIGNMENT_ERROR, UTS_IPROC}, {UTS_INVALID_TRANS, UTS_IPROC},
        {UTS_CPROC_ERROR, UTS_CPROC},     {UTS_PERMISSION_DENIED, UTS_CPROC},
    };

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (elan4_register_trap_handler(ctx, ours[i].type, ours[i].unit, handler, arg) < 0)
            return -1;
    return 0;
}

#endif
