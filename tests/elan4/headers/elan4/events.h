/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN4_EVENTS_H
#define ELAN4_EVENTS_H
#define E4_EVENT_ALIGN     32
#define E4_EVENTBLOCK_SIZE 64
typedef struct _E4_Event {
    volatile E4_uint64 ev_CountAndType;
    E4_uint64 ev_Params[2];
} E4_Event;
typedef struct _E4_Event32 {
    volatile E4_uint64 ev_CountAndType;
    E4_uint64 ev_Params[2];
    E4_uint64 ev_pad;
} E4_Event32;
typedef union _E4_Event_Blk {
    volatile E4_uint8 eb_unit8[E4_EVENTBLOCK_SIZE];
    volatile E4_uint32 eb_uint32[E4_EVENTBLOCK_SIZE / sizeof(E4_uint32)];
    volatile E4_uint64 eb_uint64[E4_EVENTBLOCK_SIZE / sizeof(E4_uint64)];
} E4_Event_Blk;
#define eb_done                 eb_uint32[14]
#define eb_done_dword           eb_uint64[7]
#define E4_EVENT_TYPE_MASK      0x00000000ffffffffull
#define E4_EVENT_COUNT_SHIFT    32
#define E4_EVENT_COPY_TYPE_MASK (1 << 10)
#define E4_EVENT_DATA_TYPE_MASK (3 << 8)
#define E4_EVENT_COPY_SIZE_MASK (0xff)
#define E4_EVENT_COPY           (0 << 10)
#define E4_EVENT_WRITE          (1 << 10)
#define E4_EVENT_DTYPE_BYTE     (0 << 8)
#define E4_EVENT_DTYPE_SHORT    (1 << 8)
#define E4_EVENT_DTYPE_WORD     (2 << 8)
#define E4_EVENT_DTYPE_LONG     (3 << 8)
#define EVENT_COUNT(EventPtr)                                                                  \
    ((E4_int32)(elan4_load64(&(EventPtr)->ev_CountAndType) >> E4_EVENT_COUNT_SHIFT))
#define EVENT_TYPE(EventPtr)                                                                   \
    ((E4_uint32)(elan4_load64(&(EventPtr)->ev_CountAndType) & E4_EVENT_TYPE_MASK))
#define E4_EVENT_TYPE_VALUE(EventType, DataType, CopySize)                                     \
    ((EventType) | (DataType) | (CopySize))
#define E4_EVENT_INIT_VALUE(InitialCount, EventType, DataType, CopySize)                       \
    (((E4_uint64)(InitialCount) << E4_EVENT_COUNT_SHIFT) |                                     \
     E4_EVENT_TYPE_VALUE(EventType, DataType, CopySize))
#define ev_CopySource   ev_Params[0]
#define ev_CopyDest     ev_Params[1]
#define ev_WritePtr     ev_Params[0]
#define ev_WriteValue   ev_Params[1]
#define ELAN_WAIT_EVENT (0)
#define ELAN_POLL_EVENT (-1)
#define E4_BLK_PATTERN  ((E4_uint32)0xfeedface)
#define E4_INPUTQ_ALIGN 32
typedef struct _E4_InputQueue {
    volatile E4_Addr q_bptr;
    E4_Addr q_fptr;
    E4_uint64 q_control;
    E4_Addr q_event;
} E4_InputQueue;
#define E4_InputQueueControl(FirstItem, LastItem, ItemSizeInBytes)                             \
    (((((E4_uint64)(LastItem))) & 0x00000000ffffffffULL) |                                     \
     ((((E4_uint64)(ItemSizeInBytes)) << 29) & 0x000000ff00000000ULL) |                        \
     ((((E4_uint64)((FirstItem) - (LastItem))) << 37) & 0xffffff0000000000ULL))
#define E4_InputQueueLastItemOffset(control)                                                   \
    ((((E4_int64)-1) << 27) | ((E4_int64)(((control)&0xffffff0000000000ULL) >> 37)))
#define E4_InputQueueItemSize(control) (((control)&0x000000ff00000000ULL) >> 29)
#endif
