/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * compat.h - all calls of libelan4, one function each: uncertain behaviour of the real library
 * (doc/emuelan4.md lists it) and differences between its versions.  No other file of this
 * folder calls the library, so that corrections are local; tests/tree/elan4-compat checks this.
 */
#ifndef BMI_ELAN4_COMPAT_H
#define BMI_ELAN4_COMPAT_H

#include <elan4/library.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Memory: types of the second and third argument; result of freeing ---- */

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

/* Allocate memory of either kind; NULL: none left. */
static inline void *compat_main_memory(ELAN4_ALLOC *alloc, size_t align, size_t size)
{
    return elan4_allocMain(alloc, align, size);
}

static inline void *compat_sdram(ELAN4_ALLOC *alloc, size_t align, size_t size)
{
    return elan4_allocElan(alloc, align, size);
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

/* Returns the Elan address of main memory; libelan4's argument is not const. */
static inline E4_Addr compat_at(ELAN4_CTX *ctx, const volatile void *p)
{
    return elan4_main2elan(ctx, (void *)(uintptr_t)p);
}

static inline E4_uint64 compat_load(volatile E4_uint64 *p)
{
    return elan4_load64(p);
}

static inline void compat_store(E4_uint64 value, volatile void *p)
{
    elan4_store64(value, (volatile E4_uint64 *)p);
}

/* Returns false for the value of a bad address. */
static inline bool compat_is_address(E4_Addr at)
{
    return at != ELAN_BAD_ADDR;
}

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

static inline E4_uint64 compat_dma_cookie(ELAN4_COOKIEPOOL *pool, unsigned vp)
{
    return elan4_local_cookie(pool, E4_COOKIE_TYPE_LOCAL_DMA, vp);
}

/* ---- Command queues ---- */

/* Before qsnetlibs 1.7.0 the caller provides the memory of a queue. */
#if QSNETLIBS_VERSION_CODE < QSNETLIBS_VERSION(1, 7, 0)
#define COMPAT_CTX_MEMORY(ctx, alloc) ctx, alloc
#else
#define COMPAT_CTX_MEMORY(ctx, alloc) ((void)(alloc), (ctx))
#endif

static inline E4_CmdQ *compat_cmdq(ELAN4_CTX *ctx, ELAN4_ALLOC *alloc, unsigned size,
                                   unsigned perms)
{
    return elan4_alloc_cmdq(COMPAT_CTX_MEMORY(ctx, alloc), size, perms, NULL);
}

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

static inline void compat_flush(E4_CmdQ *q)
{
    q->cmdq_flush(q);
}

/* Reserves a command port for a chain of `dwords`; one per chain, because the effect of sharing
 * is uncertain.  Returns 0 if none is left. */
static inline E4_Addr compat_port(ELAN4_CTX *ctx, unsigned dwords)
{
    return elan4_alloccq_space(ctx, dwords, CQ_Size8K);
}

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

/* ---- Events that write a word: values stored by initialisation and priming ---- */

static inline void compat_word_event(ELAN4_CTX *ctx, E4_Event *event, volatile E4_uint64 *word)
{
    elan4_initevent_write(ctx, event, word);
}

static inline void compat_prime(ELAN4_CTX *ctx, E4_Event *event, int sets)
{
    elan4_primeevent_write(ctx, event, sets);
}

/* ---- Other calls, with the library's names ---- */

static inline ELAN4_CTX *compat_init(int rail)
{
    return elan4_init(rail);
}

static inline int compat_standard_mappings(ELAN4_CTX *ctx)
{
    return elan4_set_standard_mappings(ctx);
}

static inline int compat_required_mappings(ELAN4_CTX *ctx)
{
    return elan4_set_required_mappings(ctx);
}

static inline int compat_routes(ELAN4_CTX *ctx, unsigned process, ELAN_CAPABILITY *cap)
{
    return elan4_add_p2pvp(ctx, process, cap);
}

static inline int compat_block(ELAN4_CTX *ctx, unsigned blocked)
{
    return elan4_block_inputter(ctx, blocked);
}

static inline int compat_attach(ELAN4_CTX *ctx, ELAN_CAPABILITY *cap)
{
    return elan4_attach(ctx, cap);
}

static inline void compat_nullcap(ELAN_CAPABILITY *cap)
{
    elan_nullcap(cap);
}

static inline int compat_int_cookie(ELAN4_CTX *ctx, E4_uint64 cookie)
{
    return elan4_alloc_intcookie(ctx, cookie);
}

static inline ELAN4_COOKIEPOOL *compat_cookie_pool(ELAN4_CTX *ctx, unsigned vp)
{
    return elan4_allocCookiePool(ctx, vp);
}

static inline void compat_run_dma(E4_CmdQ *q, E4_DMA *dma)
{
    elan4_run_dma_cmd(q, dma);
}

static inline void compat_set_event(E4_CmdQ *q, E4_Addr event)
{
    elan4_set_event_cmd(q, event);
}

static inline void compat_wait_event(E4_CmdQ *q, E4_Addr event, E4_uint64 count_and_type,
                                     E4_uint64 p0, E4_uint64 p1)
{
    elan4_wait_event_cmd(q, event, count_and_type, p0, p1);
}

static inline void compat_write_dword(E4_CmdQ *q, E4_Addr at, E4_uint64 value)
{
    elan4_write_dword_cmd(q, at, value);
}

static inline int compat_poll_word(ELAN4_CTX *ctx, volatile E4_uint64 *word, long us)
{
    return elan4_pollevent_word(ctx, word, us);
}

static inline void compat_sleep_for(ELAN4_CTX *ctx, E4_CmdQ *q, E4_CmdQ *irq,
                                    E4_Event_Blk *block, E4_uint64 cookie, E4_Event *event,
                                    volatile E4_uint64 *word, long how)
{
    elan4_waitevent_word(ctx, q, irq, block, cookie, event, word, how);
}

/* ---- Traps: position of the address, and traps left to the library ---- */

enum compat_trap { COMPAT_TRAP_SOURCE, COMPAT_TRAP_SINK, COMPAT_TRAP_OTHER };

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
