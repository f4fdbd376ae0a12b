/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN4_REGISTERS_H
#define ELAN4_REGISTERS_H
#include <elan4/dma.h>
#include <elan4/types.h>
#define CQ_Size1K               0
#define CQ_Size8K               1
#define CQ_Size64K              2
#define CQ_Size512K             3
#define CQ_Size(SizeVal)        (1024 * (1 << ((SizeVal)*3)))
#define CQ_SetEventEnableBit    (1 << 24)
#define CQ_WaitEventEnableBit   (1 << 25)
#define CQ_ModifyEnableBit      (1 << 26)
#define CQ_WriteEnableBit       (1 << 27)
#define CQ_ThreadStartEnableBit (1 << 28)
#define CQ_DmaStartEnableBit    (1 << 29)
#define CQ_STENEnableBit        (1 << 30)
#define CQ_InterruptEnableBit   (1 << 31)
#define CQ_EnableAllBits        (0xFF000000)
#define E4_MAIN_INT_SHIFT       14
#define MAX_TRAPPED_TRANS       28
#define TRANS_DATA_DWORDS       16
typedef struct _E4_CommandQueueDesc {
    E4_uint64 CQ_QueuePtrs;
    E4_uint64 CQ_HoldingValue;
    E4_uint64 CQ_AckBuffers;
    E4_uint64 CQ_Control;
} E4_CommandQueueDesc;
typedef volatile struct _E4_FaultSave {
    E4_uint64 FSRAndFaultContext;
    E4_uint64 FaultAddress;
} E4_FaultSave;
typedef struct _E4_IprocTrapHeader {
    E4_uint64 TrAddr;
    E4_uint64 IProcStatusCntxAndTrType;
} E4_IprocTrapHeader;
typedef struct _E4_IprocTrapData {
    E4_uint64 Data[TRANS_DATA_DWORDS];
} E4_IprocTrapData;
typedef struct _E4_CommandPort {
    volatile E4_uint64 Command[1024];
} E4_CommandPort;
#endif
