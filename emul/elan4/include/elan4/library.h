/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The emulated part of libelan4. Argument types are inferred from programs that call these
 * functions; doc/emuelan4.md lists the uncertainties.
 *
 * Functions that return a pointer return NULL with errno set on failure. Functions that return
 * int return 0, or a negative number, or -1 with errno set.
 *
 * Any function may be called from any thread. A command queue is used by one thread at a time,
 * from the first command to its flush.
 */
#ifndef ELAN4_LIBRARY_H
#define ELAN4_LIBRARY_H

#include <elan/capability.h>
#include <elan/devinfo.h>
#include <elan/version.h>
#include <elan4/commands.h>
#include <elan4/dma.h>
#include <elan4/events.h>
#include <elan4/intcookie.h>
#include <elan4/registers.h>
#include <elan4/trtype.h>
#include <elan4/types.h>
#include <elan4/usertrap.h>
#include <qsnet/fence.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ELAN_BAD_ADDR   (~(E4_Addr)0)
#define ELAN_ALIGN      64
#define ELAN_BLOCK_SIZE 64

/* Defined by the emulation only. */
#define ELAN4_EMULATION 1

typedef struct elan4_sdram ELAN4_SDRAM;
typedef struct elan4_alloc ELAN4_ALLOC;
typedef struct elan4_cmdq_params E4_CmdQParams;

typedef struct elan4_ctx {
    ELAN_POSITION ctx_position;
    ELAN_DEVINFO ctx_devinfo;
} ELAN4_CTX;

typedef struct elan4_cookiepool {
    E4_uint64 cp_cookie;
} ELAN4_COOKIEPOOL;

typedef struct elan4_cmdq E4_CmdQ;
struct elan4_cmdq {
    void (*cmdq_flush)(E4_CmdQ *cmdq);
    E4_CommandPort *cmdq_mapping; /* only the address is used, see elan4_main2elan() */
};

/* Contexts. */
ELAN4_CTX *elan4_init(int rail);
/* Detaches if attached; frees command queues, cookies and pools. Allocators remain. */
void elan4_fini(ELAN4_CTX *ctx);
int elan4_set_standard_mappings(ELAN4_CTX *ctx);
int elan4_set_required_mappings(ELAN4_CTX *ctx);
/* Adds routes to the capability's processes, as virtual processes from `process` on. */
int elan4_add_p2pvp(ELAN4_CTX *ctx, unsigned process, ELAN_CAPABILITY *cap);
/* 1: refuse all packets from the network, whose senders retry; 0: accept. */
int elan4_block_inputter(ELAN4_CTX *ctx, unsigned blocked);
/* Returns 0, or -1 with errno: EBUSY if the context is in use, EINVAL, EACCES. */
int elan4_attach(ELAN4_CTX *ctx, ELAN_CAPABILITY *cap);

/* Handlers run in a thread of the library. UTS_ALL_TRAPS matches any type. */
typedef void (*ELAN4_TRAP_HANDLER)(ELAN4_CTX *ctx, ELAN4_USER_TRAP *trap, void *arg);
int elan4_register_trap_handler(ELAN4_CTX *ctx, int utsType, int utsProc,
                                ELAN4_TRAP_HANDLER handler, void *arg);

/* Memory. */
ELAN4_SDRAM *elan4_open_sdram(int rail, E4_Addr base, size_t size);
void elan4_close_sdram(ELAN4_SDRAM *sdram);
ELAN4_ALLOC *elan4_createAllocator(size_t mainSize, ELAN4_SDRAM *sdram, E4_Addr base,
                                   size_t elanSize);
void elan4_destroyAllocator(ELAN4_ALLOC *alloc);
void *elan4_allocMain(ELAN4_ALLOC *alloc, size_t align, size_t size);
void elan4_freeMain(ELAN4_ALLOC *alloc, void *ptr);
void *elan4_allocElan(ELAN4_ALLOC *alloc, size_t align, size_t size);
void elan4_freeElan(ELAN4_ALLOC *alloc, void *ptr);
E4_Addr elan4_main2elan(ELAN4_CTX *ctx, const volatile void *ptr);
static inline E4_uint64 elan4_load64(const volatile void *ptr)
{
    return __atomic_load_n((const volatile E4_uint64 *)ptr, __ATOMIC_ACQUIRE);
}
static inline void elan4_store64(E4_uint64 value, volatile void *ptr)
{
    __atomic_store_n((volatile E4_uint64 *)ptr, value, __ATOMIC_RELEASE);
}

/* Command queues. */
#define CQ_AutoCtrlFlowOn 1u
E4_CmdQ *elan4_alloc_cmdq(ELAN4_CTX *ctx, unsigned cqSize, unsigned perms,
                          E4_CmdQParams *params);
E4_CmdQParams *elan4_probe_cmdq(ELAN4_CTX *ctx, unsigned maxCmds, unsigned flags);
void elan4_free_cmdq(ELAN4_CTX *ctx, E4_CmdQ *cmdq);
/* Returns the address of a command port with room for `nDwords`, or 0. */
E4_Addr elan4_alloccq_space(ELAN4_CTX *ctx, unsigned nDwords, unsigned cqSize);
void elan4_freecq_space(ELAN4_CTX *ctx, E4_Addr port, unsigned nDwords);

/* Commands. */
void elan4_run_dma_cmd(E4_CmdQ *cmdq, E4_DMA *dma);
void elan4_wait_event_cmd(E4_CmdQ *cmdq, E4_Addr event, E4_uint64 countAndType,
                          E4_uint64 param0, E4_uint64 param1);
void elan4_set_event_cmd(E4_CmdQ *cmdq, E4_Addr event);
void elan4_add_dword_cmd(E4_CmdQ *cmdq, E4_Addr addr, E4_uint64 value);
void elan4_guard(E4_CmdQ *cmdq, E4_uint64 command);
/* Requests `destvp` to run a DMA from its own memory; used for reads. */
void elan4_remote_dma(E4_CmdQ *cmdq, E4_DMA *dma, unsigned destvp, E4_uint64 stenCookie);

/* Events, and waiting for the words written by them. */
void elan4_initevent_write(ELAN4_CTX *ctx, E4_Event *event, volatile E4_uint64 *word);
void elan4_primeevent_write(ELAN4_CTX *ctx, E4_Event *event, int count);
/* Returns whether *word is set; polls at least once, for up to `usecs`. */
int elan4_pollevent_word(ELAN4_CTX *ctx, volatile E4_uint64 *word, long usecs);
/* Returns when *word is set. Polls for `how` us, or without limit with ELAN_POLL_EVENT, and
 * then sleeps until the event fires. `cmdBlk`: 64 bytes of SDRAM for the call's use. */
void elan4_waitevent_word(ELAN4_CTX *ctx, E4_CmdQ *cmdq, E4_CmdQ *irqcq, E4_Event_Blk *cmdBlk,
                          E4_uint64 intcookie, E4_Event *event, volatile E4_uint64 *word,
                          long how);
int elan4_alloc_intcookie(ELAN4_CTX *ctx, E4_uint64 cookie);

/* Cookies of DMAs and packets. */
#define E4_COOKIE_TYPE_LOCAL_DMA  1
#define E4_COOKIE_TYPE_REMOTE_DMA 2
#define E4_COOKIE_TYPE_STEN       3
ELAN4_COOKIEPOOL *elan4_allocCookiePool(ELAN4_CTX *ctx, unsigned myvp);
E4_uint64 elan4_local_cookie(ELAN4_COOKIEPOOL *pool, int type, unsigned vp);
E4_uint64 elan4_remote_cookie(ELAN4_COOKIEPOOL *pool, int type, unsigned vp);

#ifdef __cplusplus
}
#endif

#endif
