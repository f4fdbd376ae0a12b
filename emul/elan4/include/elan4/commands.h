/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Commands as encoded in a command queue, or in a block that an event copies to one. */
#ifndef ELAN4_COMMANDS_H
#define ELAN4_COMMANDS_H

#include <elan4/types.h>

#define RUN_THREAD_CMD     0x00
#define OPEN_STEN_PKT_CMD  0x01
#define WRITE_DWORD_CMD    0x02
#define ADD_DWORD_CMD      0x03
#define COPY64_CMD         0x05
#define GUARD_CMD          0x06
#define SET_EVENT_CMD      0x07
#define SEND_TRANS_CMD     0x09
#define INTERRUPT_CMD      0x0d
#define RUN_DMA_CMD        0x0e
#define SET_EVENTN_CMD     0x0f
#define NOP_CMD            0x17
#define WAIT_EVENT_CMD     0x1f
#define MAKE_EXT_CLEAN_CMD 0x37

#define E4_MAIN_INT_SHIFT 14

/* OPEN_STEN_PKT: virtual process 63:32, code 15:9, channel 8:4 */
#define PACK_OK            1
#define PACK_TESTFAIL      2
#define PACK_DISCARD       4
#define RESTART_COUNT_ZERO 8
#define OPEN_PACKET(chan, code, vp)                                                            \
    ((((chan)&1) << 4) | (((code)&0x7f) << 9) | ((E4_uint64)(vp) << 32) | OPEN_STEN_PKT_CMD)

/*
 * GUARD executes the next command only if the last packet of a channel ended with one of the
 * codes. Fields: reset 40, restart count 39:32, test 31, code 27:21, tested channel 20:16,
 * channel 8:4.
 */
#define GUARD_CHANNEL(chan)    ((((chan)&1) << 4) | GUARD_CMD)
#define GUARD_TEST(chan, code) ((1ull << 31) | (((code)&0x7f) << 21) | (((chan)&1) << 16))
#define GUARD_RESET(count)     ((1ull << 40) | (((E4_uint64)(count)&0xff) << 32))

#endif
