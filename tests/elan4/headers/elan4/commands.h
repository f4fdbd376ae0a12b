/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN4_COMMANDS_H
#define ELAN4_COMMANDS_H
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
#define MAKE_EXT_CLEAN_CMD 0x37
#define WAIT_EVENT_CMD     0x1f
#define PACK_OK            (1 << 0)
#define PACK_TESTFAIL      (1 << 1)
#define PACK_DISCARD       (1 << 2)
#define RESTART_COUNT_ZERO (1 << 3)
#define OPEN_PACKET(chan, code, vproc)                                                         \
    ((((chan)&1) << 4) | (((code)&0x7f) << 9) | ((E4_uint64)(vproc) << 32) | OPEN_STEN_PKT_CMD)
#define GUARD_CHANNEL(chan)    ((((chan)&1) << 4) | GUARD_CMD)
#define GUARD_TEST(chan, code) ((1ull << 31) | (((code)&0x7f) << 21) | (((chan)&1) << 16))
#define GUARD_RESET(count)     ((1ull << 40) | ((((E4_uint64)count) & 0xff) << 32))
#endif
