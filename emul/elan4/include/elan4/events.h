/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Events and input queues as laid out in memory. */
#ifndef ELAN4_EVENTS_H
#define ELAN4_EVENTS_H

#include <elan4/types.h>

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
    volatile E4_uint32 eb_uint32[E4_EVENTBLOCK_SIZE / 4];
    volatile E4_uint64 eb_uint64[E4_EVENTBLOCK_SIZE / 8];
} E4_Event_Blk;
#define eb_done       eb_uint32[14]
#define eb_done_dword eb_uint64[7]

#define ev_CopySource ev_Params[0]
#define ev_CopyDest   ev_Params[1]
#define ev_WritePtr   ev_Params[0]
#define ev_WriteValue ev_Params[1]

#define E4_BLK_PATTERN ((E4_uint32)0xfeedface)

/* ev_CountAndType: count in 63:32, type in 10, data type in 9:8, dwords to copy in 7:0 */
#define E4_EVENT_TYPE_MASK      0xffffffffull
#define E4_EVENT_COUNT_SHIFT    32
#define E4_EVENT_COPY_TYPE_MASK 0x400u
#define E4_EVENT_COPY           0x000u
#define E4_EVENT_WRITE          0x400u
#define E4_EVENT_DATA_TYPE_MASK 0x300u
#define E4_EVENT_DTYPE_BYTE     0x000u
#define E4_EVENT_DTYPE_SHORT    0x100u
#define E4_EVENT_DTYPE_WORD     0x200u
#define E4_EVENT_DTYPE_LONG     0x300u
#define E4_EVENT_COPY_SIZE_MASK 0xffu

#define E4_EVENT_INIT_VALUE(count, type, dtype, copysize)                                      \
    (((E4_uint64)(E4_uint32)(E4_int32)(count) << 32) | (type) | (dtype) | (copysize))

/* elan4_load64() and elan4_store64() are declared in library.h. */
#define EVENT_COUNT(ev)                                                                        \
    ((E4_int32)(elan4_load64(&(ev)->ev_CountAndType) >> E4_EVENT_COUNT_SHIFT))
#define EVENT_TYPE(ev) ((E4_uint32)(elan4_load64(&(ev)->ev_CountAndType) & E4_EVENT_TYPE_MASK))

#define E4_PRIME_WRITE_EVENT(ev, count)                                                        \
    elan4_store64(E4_EVENT_INIT_VALUE(count, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0),          \
                  &(ev)->ev_CountAndType)
/* `size` in bytes */
#define E4_PRIME_COPY_EVENT(ev, size, count)                                                   \
    elan4_store64(E4_EVENT_INIT_VALUE(count, E4_EVENT_COPY, E4_EVENT_DTYPE_LONG, (size) >> 3), \
                  &(ev)->ev_CountAndType)

/* Ways to wait. */
#define ELAN_WAIT_EVENT 0
#define ELAN_POLL_EVENT (-1)

#define E4_INPUTQ_ALIGN 32
#define INPUT_QUEUE_MAX 2048

typedef struct _E4_InputQueue {
    volatile E4_Addr q_bptr; /* the slot to be written next */
    E4_Addr q_fptr;          /* the oldest slot not read */
    E4_uint64 q_control;
    E4_Addr q_event; /* set once per message; 0: none */
} E4_InputQueue;

/* Low half of the last slot's address; item size / 8; (first - last) / 8. */
#define E4_InputQueueControl(first, last, size)                                                \
    (((((E4_uint64)((E4_int64)(first) - (E4_int64)(last)) >> 3) & 0xffffff) << 40) |           \
     ((((E4_uint64)(size) >> 3) & 0xff) << 32) | ((E4_uint64)(last)&0xffffffff))
#define E4_InputQueueLastItemOffset(control) (((E4_int64)(control) >> 40) * 8)
#define E4_InputQueueItemSize(control)       ((((E4_uint64)(control) >> 32) & 0xff) << 3)
#define E4_InputQueueFptrIncrement(Q, first, last, size)                                       \
    ((Q)->q_fptr = (Q)->q_fptr == (last) ? (first) : (Q)->q_fptr + (size))

#endif
