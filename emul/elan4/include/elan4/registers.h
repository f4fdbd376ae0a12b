/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sizes and permissions of command queues. */
#ifndef ELAN4_REGISTERS_H
#define ELAN4_REGISTERS_H

#include <elan4/types.h>

#define CQ_Size1K   0
#define CQ_Size8K   1
#define CQ_Size64K  2
#define CQ_Size512K 3
#define CQ_Size(v)  (1024u << (3 * (v))) /* bytes */

#define CQ_SetEventEnableBit    (1u << 24)
#define CQ_WaitEventEnableBit   (1u << 25)
#define CQ_ModifyEnableBit      (1u << 26)
#define CQ_WriteEnableBit       (1u << 27)
#define CQ_ThreadStartEnableBit (1u << 28)
#define CQ_DmaStartEnableBit    (1u << 29)
#define CQ_STENEnableBit        (1u << 30)
#define CQ_InterruptEnableBit   (1u << 31)
#define CQ_EnableAllBits        0xff000000u

typedef struct _E4_CommandPort {
    volatile E4_uint64 Command[1024];
} E4_CommandPort;

typedef struct _E4_CommandQueueDesc {
    E4_uint64 CQ_QueuePtrs;
    E4_uint64 CQ_HoldingValue;
    E4_uint64 CQ_AckBuffers;
    E4_uint64 CQ_Control;
} E4_CommandQueueDesc;

/* Address that a unit could not translate. */
typedef volatile struct _E4_FaultSave {
    E4_uint64 FSRAndFaultContext;
    E4_uint64 FaultAddress;
} E4_FaultSave;

#define MAX_TRAPPED_TRANS 28
#define TRANS_DATA_DWORDS 16

typedef struct _E4_IprocTrapHeader {
    E4_uint64 TrAddr;
    E4_uint64 IProcStatusCntxAndTrType;
} E4_IprocTrapHeader;

typedef struct _E4_IprocTrapData {
    E4_uint64 Data[TRANS_DATA_DWORDS];
} E4_IprocTrapData;

#endif
