/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The functions of libelan4 as programs call them, for qsnetlibs before and after 1.7.0. The
 * library's own header is not public: types that the calls do not determine are the narrowest
 * possible. All other headers are the emulation's.
 */
#ifndef ELAN4_LIBRARY_H
#define ELAN4_LIBRARY_H
#include <elan/capability.h>
#include <elan/devinfo.h>
#include <elan/version.h>
#include <elan4/types.h>
#include <elan4/commands.h>
#include <elan4/dma.h>
#include <elan4/events.h>
#include <elan4/intcookie.h>
#include <elan4/neterr.h>
#include <elan4/registers.h>
#include <elan4/trtype.h>
#include <elan4/trap.h>
#include <elan4/usertrap.h>
#include <qsnet/fence.h>
#define ELAN_BAD_ADDR     ((E4_Addr)-1)
#define CQ_AutoCtrlFlowOn 1
enum { E4_COOKIE_TYPE_LOCAL_DMA, E4_COOKIE_TYPE_REMOTE_DMA, E4_COOKIE_TYPE_STEN };
typedef struct elan4_sdram ELAN4_SDRAM;
typedef struct elan4_alloc ELAN4_ALLOC;
typedef struct e4_cmdqparams E4_CmdQParams;
typedef struct elan4_ctx {
    ELAN_POSITION ctx_position;
} ELAN4_CTX;
typedef struct elan4_cookiepool {
    E4_uint64 cp_cookie;
} ELAN4_COOKIEPOOL;
typedef struct e4_cmdq {
    E4_CommandPort *cmdq_mapping;
    void (*cmdq_flush)(struct e4_cmdq *cmdq);
} E4_CmdQ;
extern ELAN4_CTX *elan4_init(int rail);
extern int elan4_set_standard_mappings(ELAN4_CTX *ctx);
extern int elan4_set_required_mappings(ELAN4_CTX *ctx);
extern int elan4_add_p2pvp(ELAN4_CTX *ctx, unsigned process, ELAN_CAPABILITY *cap);
extern int elan4_block_inputter(ELAN4_CTX *ctx, unsigned blocked);
extern int elan4_attach(ELAN4_CTX *ctx, ELAN_CAPABILITY *cap);
extern int elan4_register_trap_handler(ELAN4_CTX *ctx, int type, int proc,
                                       void (*handler)(ELAN4_CTX *, ELAN4_USER_TRAP *, void *),
                                       void *arg);
extern ELAN4_SDRAM *elan4_open_sdram(int rail, int base, int size);
extern void elan4_close_sdram(ELAN4_SDRAM *sdram);
extern ELAN4_ALLOC *elan4_createAllocator(int mainSize, ELAN4_SDRAM *sdram, int base,
                                          int elanSize);
extern void elan4_destroyAllocator(ELAN4_ALLOC *alloc);
extern void *elan4_allocMain(ELAN4_ALLOC *alloc, int align, int size);
extern void elan4_freeMain(ELAN4_ALLOC *alloc, void *ptr);
extern void *elan4_allocElan(ELAN4_ALLOC *alloc, int align, int size);
extern void elan4_freeElan(ELAN4_ALLOC *alloc, void *ptr);
extern E4_Addr elan4_main2elan(ELAN4_CTX *ctx, void *ptr);
#define elan4_load64(ptr)         (*(ptr))
#define elan4_store64(value, ptr) (*(ptr) = (value))
#if QSNETLIBS_VERSION_CODE < QSNETLIBS_VERSION(1, 7, 0)
extern E4_CmdQ *elan4_alloc_cmdq(ELAN4_CTX *ctx, ELAN4_ALLOC *alloc, unsigned size,
                                 unsigned perms, E4_CmdQParams *params);
extern E4_CmdQParams *elan4_probe_cmdq(ELAN4_CTX *ctx, ELAN4_ALLOC *alloc, unsigned commands,
                                       unsigned flags);
#else
extern E4_CmdQ *elan4_alloc_cmdq(ELAN4_CTX *ctx, unsigned size, unsigned perms,
                                 E4_CmdQParams *params);
extern E4_CmdQParams *elan4_probe_cmdq(ELAN4_CTX *ctx, unsigned commands, unsigned flags);
extern void elan4_free_cmdq(ELAN4_CTX *ctx, E4_CmdQ *cmdq);
#endif
extern E4_Addr elan4_alloccq_space(ELAN4_CTX *ctx, unsigned nDwords, unsigned cqSize);
extern void elan4_freecq_space(ELAN4_CTX *ctx, E4_Addr port, unsigned nDwords);
extern void elan4_run_dma_cmd(E4_CmdQ *cmdq, E4_DMA *dma);
extern void elan4_wait_event_cmd(E4_CmdQ *cmdq, E4_Addr event, E4_uint64 countAndType,
                                 E4_uint64 param0, E4_uint64 param1);
extern void elan4_set_event_cmd(E4_CmdQ *cmdq, E4_Addr event);
extern void elan4_add_dword_cmd(E4_CmdQ *cmdq, E4_Addr addr, E4_uint64 value);
extern void elan4_open_packet(E4_CmdQ *cmdq, E4_uint64 command);
extern void elan4_guard(E4_CmdQ *cmdq, E4_uint64 command);
extern void elan4_sendtransp(E4_CmdQ *cmdq, E4_uint32 type, E4_Addr addr, E4_uint64 *data);
extern void elan4_remote_dma(E4_CmdQ *cmdq, E4_DMA *dma, unsigned vp, E4_uint64 cookie);
extern void elan4_initevent_write(ELAN4_CTX *ctx, E4_Event *event, volatile E4_uint64 *word);
extern void elan4_primeevent_write(ELAN4_CTX *ctx, E4_Event *event, int count);
extern int elan4_pollevent_word(ELAN4_CTX *ctx, volatile E4_uint64 *word, long usecs);
extern void elan4_waitevent_word(ELAN4_CTX *ctx, E4_CmdQ *cmdq, E4_CmdQ *irqcq,
                                 E4_Event_Blk *block, E4_uint64 cookie, E4_Event *event,
                                 volatile E4_uint64 *word, long how);
extern int elan4_alloc_intcookie(ELAN4_CTX *ctx, E4_uint64 cookie);
extern ELAN4_COOKIEPOOL *elan4_allocCookiePool(ELAN4_CTX *ctx, unsigned vp);
extern E4_uint64 elan4_local_cookie(ELAN4_COOKIEPOOL *pool, int type, unsigned vp);
extern E4_uint64 elan4_remote_cookie(ELAN4_COOKIEPOOL *pool, int type, unsigned vp);
#endif
