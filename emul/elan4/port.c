/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Commands: lengths, permissions, and execution of commands sent to command ports by events. */
#include "emul/elan4/emu.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* One row per command: the bits of the first dword that identify the command. */
static const struct {
    uint16_t mask, code, dwords;
    uint32_t perm;
} table[] = {
    {0x7, WRITE_DWORD_CMD, 2, CQ_WriteEnableBit},
    {0x7, ADD_DWORD_CMD, 2, CQ_ModifyEnableBit},
    {0xf, OPEN_STEN_PKT_CMD, 1, CQ_STENEnableBit},
    {0xf, SEND_TRANS_CMD, 2, CQ_STENEnableBit},
    {0xf, INTERRUPT_CMD, 1, CQ_InterruptEnableBit},
    {0xf, GUARD_CMD, 1, CQ_STENEnableBit},
    {0xf, RUN_DMA_CMD, 7, CQ_DmaStartEnableBit},
    {0x1f, SET_EVENT_CMD, 1, CQ_SetEventEnableBit},
    {0x1f, SET_EVENTN_CMD, 2, CQ_SetEventEnableBit},
    {0x1f, WAIT_EVENT_CMD, 4, CQ_WaitEventEnableBit},
    {0x1f, NOP_CMD, 1, 0},
};

static int row_of(uint64_t w)
{
    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if ((w & table[i].mask) == table[i].code)
            return (int)i;
    return -1;
}

unsigned emu4_command_length(uint64_t w)
{
    int i = row_of(w);

    if (i < 0)
        return 0;
    if (table[i].code == SEND_TRANS_CMD)
        return 2 + TR_DATA_DWORDS((unsigned)(w >> 16) & 0xffff);
    return table[i].dwords;
}

uint32_t emu4_command_permission(uint64_t w)
{
    int i = row_of(w);

    return i < 0 ? 0 : table[i].perm;
}

/* Raises an interrupt, unless the cookie is not allocated. */
static void interrupt(struct emu4_txn *t, uint64_t cookie)
{
    for (unsigned i = 0; i < EMU4_INTS; i++) {
        struct shm_int *in = &t->e->c->interrupt[i];
        if (!atomic_load(&in->in_use) || in->cookie != cookie)
            continue;
        EMU4_COUNT(interrupts, 1);
        atomic_fetch_add(&in->count, 1);
        t->interrupt = true;
    }
}

void emu4_sleepers_wake(struct shm_ctx *c)
{
    for (struct shm_int *in = c->interrupt; in < c->interrupt + EMU4_INTS; in++)
        if (atomic_load(&in->sleepers))
            syscall(SYS_futex, &in->count, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

bool emu4_command_local(struct emu4_txn *t, const uint64_t *w)
{
    struct emu4_end *e = t->e;
    uint64_t value;
    int i = row_of(w[0]);

    EMU4_COUNT(commands, 1);
    switch (i < 0 ? -1 : table[i].code) {
    case WRITE_DWORD_CMD:
        emu4_txn_store(t, w[0] & ~UINT64_C(7), w[1], 8);
        return true;
    case ADD_DWORD_CMD:
        if (emu4_read(e, w[0] & ~UINT64_C(7), &value, 8) < 0)
            emu4_trap(t, UTS_INVALID_ADDR, UTS_CPROC, w[0], 0);
        else
            emu4_txn_store(t, w[0] & ~UINT64_C(7), value + w[1], 8);
        return true;
    case SET_EVENT_CMD:
        emu4_event_set(t, w[0] & ~UINT64_C(31));
        return true;
    case SET_EVENTN_CMD:
        emu4_event_set(t, w[1]);
        return true;
    case WAIT_EVENT_CMD:
        emu4_event_wait(t, w[0] & ~UINT64_C(31), w[1], w[2], w[3]);
        return true;
    case INTERRUPT_CMD:
        interrupt(t, w[0] >> E4_MAIN_INT_SHIFT);
        return true;
    case NOP_CMD:
        return true;
    default:
        return false;
    }
}

/* Executes the command at the head of the inbox; returns its length, or 0 if the command must
 * wait. */
static unsigned run_head(struct emu4_txn *t, uint64_t head, uint64_t left, uint64_t queue)
{
    struct shm_ctx *c = t->e->c;
    uint64_t w[8];
    unsigned n = emu4_command_length(c->inbox[head % EMU4_INBOX]);

    if (n == 0 || n > left || n > 8) {
        emu4_trap(t, UTS_INVALID_COMMAND, UTS_CPROC, c->inbox[head % EMU4_INBOX], queue);
        return (unsigned)left;
    }
    for (unsigned i = 0; i < n; i++)
        w[i] = c->inbox[(head + i) % EMU4_INBOX];
    uint32_t perm = emu4_command_permission(w[0]);
    if ((c->cq[queue].perms & perm) != perm) {
        emu4_trap(t, UTS_PERMISSION_DENIED, UTS_CPROC, w[0], queue);
        return n;
    }
    if ((w[0] & 0xf) == RUN_DMA_CMD) {
        w[0] &= ~(uint64_t)0x3fff;
        if (!t->e->peer->self || !emu4_engine_put(t->e, w, 0, 0))
            return 0; /* a DMA is its owner's */
        EMU4_COUNT(port_commands, 1);
        return n;
    }
    EMU4_COUNT(port_commands, 1);
    if (!emu4_command_local(t, w))
        emu4_trap(t, UTS_INVALID_COMMAND, UTS_CPROC, w[0], queue);
    return n;
}

bool emu4_inbox_run(struct emu4_txn *t, unsigned max)
{
    struct shm_ctx *c = t->e->c;
    bool ran = false;

    for (unsigned k = 0; k < max; k++) {
        uint64_t head = c->inbox_head, tail = c->inbox_tail;
        uint64_t left = c->inbox_left, queue = c->inbox_cq;
        if (head == tail)
            break;
        if (left == 0) {
            uint64_t w = c->inbox[head++ % EMU4_INBOX];
            queue = w >> 32;
            left = (uint32_t)w;
        }
        if (tail - head > EMU4_INBOX || left > tail - head || queue >= EMU4_CQS) {
            /* overwritten by a stray store */
            emu4_trap(t, UTS_BAD_TRAP, UTS_CPROC, head, left);
            head = tail;
            left = 0;
        }
        unsigned n = left ? run_head(t, head, left, queue) : 0;
        if (left && !n)
            break;
        EMU4_TXN_SET(t, c->inbox_head, head + n);
        EMU4_TXN_SET(t, c->inbox_left, left - n);
        EMU4_TXN_SET(t, c->inbox_cq, queue);
        emu4_txn_commit(t);
        ran = true;
    }
    return ran;
}
