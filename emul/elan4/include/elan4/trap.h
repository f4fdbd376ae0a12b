/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Trap areas saved by the driver, per unit. The emulation fills in addresses and commands
 * only. */
#ifndef ELAN4_TRAP_H
#define ELAN4_TRAP_H

#include <elan4/dma.h>
#include <elan4/events.h>
#include <elan4/registers.h>

typedef struct elan4_eproc_trap {
    E4_uint64 tr_status;
    E4_FaultSave tr_faultarea;
    E4_Event tr_event;
    E4_Addr tr_eventaddr;
} ELAN4_EPROC_TRAP;

typedef struct elan4_cproc_trap {
    E4_uint64 tr_status;
    E4_uint64 tr_command;
    E4_CommandQueueDesc tr_qdesc;
    E4_FaultSave tr_faultarea;
    ELAN4_EPROC_TRAP tr_eventtrap;
} ELAN4_CPROC_TRAP;

typedef struct elan4_dproc_trap {
    E4_DMA tr_desc;
    E4_FaultSave tr_packAssemFault;
    E4_FaultSave tr_prefetchFault; /* the source */
    E4_uint64 tr_status;
} ELAN4_DPROC_TRAP;

typedef struct elan4_tproc_trap {
    E4_uint64 tr_regs[64];
    E4_FaultSave tr_dataFault;
    E4_FaultSave tr_instFault;
    E4_uint64 tr_status;
    E4_uint64 tr_state;
    E4_Addr tr_pc;
    E4_Addr tr_npc;
    E4_uint64 tr_dirty;
    E4_uint64 tr_bad;
} ELAN4_TPROC_TRAP;

typedef struct elan4_iproc_trap {
    E4_uint32 tr_numTransactions;
    E4_uint32 tr_flags;
    E4_uint32 tr_trappedTrans;
    E4_uint32 tr_waitForEopTrans;
    E4_uint32 tr_identifyTrans;
    E4_uint32 tr_pad;
    E4_FaultSave tr_faultarea; /* the sink */
    E4_IprocTrapHeader tr_transactions[MAX_TRAPPED_TRANS];
    E4_IprocTrapData tr_dataBuffers[MAX_TRAPPED_TRANS];
} ELAN4_IPROC_TRAP;

#endif
