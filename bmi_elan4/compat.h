/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is not certain about the real libelan4 (doc/emuelan4.md lists it), each thing behind one
 * function. Nothing else in this folder uses these names of the library, so a correction is one
 * here; tests/tree/elan4-compat sees to it.
 */
#ifndef BMI_ELAN4_COMPAT_H
#define BMI_ELAN4_COMPAT_H

#include <elan4/library.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Memory: the types of the second and the third argument, what freeing returns ---- */

static inline ELAN4_SDRAM *compat_open_sdram(int rail, size_t bytes)
{
    return elan4_open_sdram(rail, 0, bytes);
}

static inline ELAN4_ALLOC *compat_open_alloc(size_t main_bytes, ELAN4_SDRAM *sdram,
                                             size_t sdram_bytes)
{
    return elan4_createAllocator(main_bytes, sdram, 0, sdram_bytes);
}

static inline void compat_close_memory(ELAN4_ALLOC *alloc, ELAN4_SDRAM *sdram)
{
    if (alloc)
        elan4_destroyAllocator(alloc);
    elan4_close_sdram(sdram);
}

static inline void compat_free_main(ELAN4_ALLOC *alloc, void *p)
{
    if (p)
        elan4_freeMain(alloc, p);
}

static inline void compat_free_sdram(ELAN4_ALLOC *alloc, void *p)
{
    if (p)
        elan4_freeElan(alloc, p);
}

/* What is const of the address. */
static inline E4_Addr compat_at(ELAN4_CTX *ctx, const volatile void *p)
{
    return elan4_main2elan(ctx, (void *)(uintptr_t)p);
}

/* The value of a bad address. */
static inline bool compat_is_address(E4_Addr at)
{
    return at != ELAN_BAD_ADDR;
}

/* ---- Leaving ---- */

/* The real library is not known to let go of a context before the process ends: false. */
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

/* ---- Cookies: the values of their types ---- */

static inline E4_uint64 compat_dma_cookie(ELAN4_COOKIEPOOL *pool, unsigned vp)
{
    return elan4_local_cookie(pool, E4_COOKIE_TYPE_LOCAL_DMA, vp);
}

/* ---- Command queues ---- */

/* One that waits by itself where it is full, for so many commands at a time: the flag's
 * value. */
static inline E4_CmdQ *compat_flowing_cmdq(ELAN4_CTX *ctx, unsigned size, unsigned perms,
                                           unsigned commands)
{
    return elan4_alloc_cmdq(ctx, size, perms,
                            elan4_probe_cmdq(ctx, commands, CQ_AutoCtrlFlowOn));
}

/* Room for a chain of so many dwords, a reservation for each: what sharing one does. 0:
 * none. */
static inline E4_Addr compat_port(ELAN4_CTX *ctx, unsigned dwords)
{
    return elan4_alloccq_space(ctx, dwords, CQ_Size8K);
}

static inline void compat_free_port(ELAN4_CTX *ctx, E4_Addr port, unsigned dwords)
{
    if (port)
        elan4_freecq_space(ctx, port, dwords);
}

/* A DMA that the process `vp` is asked to run: cookies, and what becomes of a refused
 * packet. */
static inline void compat_ask_dma(E4_CmdQ *q, ELAN4_COOKIEPOOL *pool, E4_DMA *dma, unsigned vp)
{
    dma->dma_cookie = elan4_remote_cookie(pool, E4_COOKIE_TYPE_REMOTE_DMA, vp);
    elan4_remote_dma(q, dma, vp, elan4_local_cookie(pool, E4_COOKIE_TYPE_STEN, vp));
}

/* ---- Events that write a word: what exactly initialising and priming store ---- */

static inline void compat_word_event(ELAN4_CTX *ctx, E4_Event *event, volatile E4_uint64 *word)
{
    elan4_initevent_write(ctx, event, word);
}

static inline void compat_prime(ELAN4_CTX *ctx, E4_Event *event, int sets)
{
    elan4_primeevent_write(ctx, event, sets);
}

/* ---- Traps: where the address is, and which are left to the library ---- */

enum compat_trap { COMPAT_TRAP_SOURCE, COMPAT_TRAP_SINK, COMPAT_TRAP_OTHER };

/* The driver puts the address into what it saves of the unit; ut_args has numbers of queues. */
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
 * Registers for what the driver cannot resolve, by its name and its unit. UTS_ALL_TRAPS would
 * take away from libelan4 what it serves itself: packets that it has to execute, errors of the
 * network, traps of the thread processor.
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
