/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* DMA descriptors. A DMA always writes: from the issuing context's memory to another
 * context's. */
#ifndef ELAN4_DMA_H
#define ELAN4_DMA_H

#include <elan4/types.h>

#define E4_DMA_ALIGN    64
#define E4_MAX_DMA_SIZE 0x7fffffff

typedef volatile struct _E4_DMA {
    E4_uint64 dma_typeSize;
    E4_uint64 dma_cookie;
    E4_uint64 dma_vproc;
    E4_Addr dma_srcAddr;
    E4_Addr dma_dstAddr;
    E4_Addr dma_srcEvent;
    E4_Addr dma_dstEvent;
} E4_DMA;

typedef volatile struct _E4_DMA64 {
    E4_uint64 dma_typeSize;
    E4_uint64 dma_cookie;
    E4_uint64 dma_vproc;
    E4_Addr dma_srcAddr;
    E4_Addr dma_dstAddr;
    E4_Addr dma_srcEvent;
    E4_Addr dma_dstEvent;
    E4_Addr dma_pad;
} E4_DMA64;

#define DMA_FailCount(n)      (((n)&0xff) << 16)
#define DMA_AlignPackets      (1u << 24)
#define DMA_Broadcast         (1u << 25)
#define DMA_DataTypeByte      (E4_DATATYPE_BYTE << 26)
#define DMA_DataTypeShort     (E4_DATATYPE_SHORT << 26)
#define DMA_DataTypeWord      (E4_DATATYPE_WORD << 26)
#define DMA_DataTypeLong      (E4_DATATYPE_DWORD << 26)
#define DMA_ShMemWrite        (1u << 28)
#define DMA_QueueWrite        (1u << 29)
#define DMA_IsRemote          (1u << 30)
#define DMA_ContextMask       0x3fffu
#define E4_DMA_SIZE(typesize) ((E4_uint64)(typesize) >> 32)

#define E4_DMA_TYPE_SIZE(size, dataType, flags, failCount)                                     \
    (((E4_uint64)(size) << 32) | ((dataType)&DMA_DataTypeLong) | (flags) |                     \
     DMA_FailCount(failCount))

#endif
