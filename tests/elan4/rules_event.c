/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rules of events, commands and command queues. */
#include "tests/elan4/rules.h"

#include <errno.h>

#define SOON 60000

static void set(struct bed *b, E4_Event *ev)
{
    elan4_set_event_cmd(b->cq, elan(b, ev));
    flush(b);
}

static void event_units(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 2);
    CHECK(count_of(ev) == -64);
    set(b, ev);
    CHECK(count_of(ev) == -32);
    CHECK(*word == 0);
    elan4_set_eventn_cmd(b->cq, elan(b, ev), 5);
    flush(b);
    CHECK(count_of(ev) == -27);
    elan4_set_eventn_cmd(b->cq, elan(b, ev), 27);
    flush(b);
    CHECK(count_of(ev) == 0);
    CHECK(elan4_load64(word) != 0);
}

static void event_once(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    set(b, ev);
    CHECK(elan4_load64(word) == 0xfeedfacedeadbeef);
    elan4_store64(0, word);
    set(b, ev);
    CHECK(count_of(ev) == 32);
    CHECK(elan4_load64(word) == 0);
}

static void event_no_rearm(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    E4_uint64 type = (E4_uint32)ev->ev_CountAndType;
    set(b, ev);
    CHECK(count_of(ev) == 0);
    CHECK((E4_uint32)ev->ev_CountAndType == type);
    CHECK(ev->ev_WritePtr == elan(b, word));
}

static void wait_fires(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    E4_uint64 again = E4_EVENT_INIT_VALUE(-32, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0);
    set(b, ev);
    set(b, ev); /* one more than was awaited */
    elan4_store64(0, word);
    elan4_wait_event_cmd(b->cq, elan(b, ev), again, elan(b, word), 7);
    flush(b);
    CHECK(elan4_load64(word) == 7);
    CHECK(count_of(ev) == 0);
    elan4_store64(0, word);
    elan4_wait_event_cmd(b->cq, elan(b, ev), again, elan(b, word), 7);
    flush(b);
    CHECK(elan4_load64(word) == 0);
    CHECK(count_of(ev) == -32);
}

static void count_overflow(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    elan4_store64(E4_EVENT_INIT_VALUE(0x7ffffff0, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0),
                  &ev->ev_CountAndType);
    set(b, ev);
    CHECK(trapped(b, UTS_BAD_TRAP, SOON));
    CHECK(count_of(ev) == 0x7ffffff0);
}

static void aligned(struct bed *b)
{
    bed_open(b, LOW);
    char *from = main_mem(b, 256);
    E4_uint64 *to = main_mem(b, 64);
    E4_Event *ev = sdram_mem(b, 32);
    memset(from, 0x5a, 256);
    elan4_store64(E4_EVENT_INIT_VALUE(-32, E4_EVENT_COPY, E4_EVENT_DTYPE_LONG, 8),
                  &ev->ev_CountAndType);
    ev->ev_CopySource = elan(b, from);
    ev->ev_CopyDest = elan(b, to);
    set(b, ev);
    CHECK(memcmp(to, from, 64) == 0);
    CHECK(atomic_load(&b->traps) == 0);
    elan4_store64(E4_EVENT_INIT_VALUE(-32, E4_EVENT_COPY, E4_EVENT_DTYPE_LONG, 8),
                  &ev->ev_CountAndType);
    ev->ev_CopySource = elan(b, from + 8);
    set(b, ev);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
}

static void cq_permission(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    E4_CmdQ *cq = elan4_alloc_cmdq(b->ctx, CQ_Size1K, CQ_WriteEnableBit, NULL);
    elan4_write_dword_cmd(cq, elan(b, word + 1), 9);
    elan4_set_event_cmd(cq, elan(b, ev));
    cq->cmdq_flush(cq);
    CHECK(trapped(b, UTS_PERMISSION_DENIED, SOON));
    CHECK(count_of(ev) == -32);
    CHECK(word[1] == 9);
}

static void cq_size(struct bed *b)
{
    bed_open(b, LOW);
    char *mem = main_mem(b, 64);
    E4_CmdQ *cq = elan4_alloc_cmdq(b->ctx, CQ_Size1K, CQ_DmaStartEnableBit, NULL);
    E4_CmdQ *patient = elan4_alloc_cmdq(b->ctx, CQ_Size1K, CQ_DmaStartEnableBit,
                                        elan4_probe_cmdq(b->ctx, 16, CQ_AutoCtrlFlowOn));
    E4_DMA64 d = dma(8, 0, b->vp, elan(b, mem), elan(b, mem + 8), 0, 0);
    for (int i = 0; i < 40; i++)
        elan4_run_dma_cmd(patient, (E4_DMA *)&d);
    patient->cmdq_flush(patient);
    for (int i = 0; i < 18; i++)
        elan4_run_dma_cmd(cq, (E4_DMA *)&d);
    elan4_run_dma_cmd(cq, (E4_DMA *)&d);
    CHECK(trapped(b, UTS_CPROC_ERROR, SOON));
    CHECK(atomic_load(&b->traps) == 1); /* of the last command: traps are reported in order */
}

static void cq_space(struct bed *b)
{
    bed_open(b, LOW);
    E4_Addr port = elan4_alloccq_space(b->ctx, 8, CQ_Size1K);
    CHECK(port != 0);
    for (int i = 1; i < 16; i++)
        CHECK(elan4_alloccq_space(b->ctx, 8, CQ_Size1K) == port);
    E4_Addr other = elan4_alloccq_space(b->ctx, 8, CQ_Size1K);
    CHECK(other != 0 && other != port);
    CHECK(elan4_alloccq_space(b->ctx, 129, CQ_Size1K) == 0);
    elan4_freecq_space(b->ctx, port, 8);
    CHECK(elan4_alloccq_space(b->ctx, 8, CQ_Size1K) == port);
}

/* A DMA starts a second one, and that a third, by events alone. */
static void port_runs(struct bed *b)
{
    bed_open(b, LOW);
    char *mem = main_mem(b, 256);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *end = word_event(b, word, 1);
    E4_Addr port = elan4_alloccq_space(b->ctx, 16, CQ_Size8K);
    E4_Addr next = elan(b, end);
    memcpy(mem, "chained", 8);
    for (int i = 2; i >= 1; i--) {
        E4_DMA64 *blk = sdram_mem(b, 64);
        E4_Event *ev = sdram_mem(b, 32);
        E4_DMA64 d = dma(8, 0, b->vp, elan(b, mem + 8 * i), elan(b, mem + 8 * i + 8), next, 0);
        d.dma_typeSize |= RUN_DMA_CMD;
        d.dma_pad = NOP_CMD;
        memcpy((void *)(uintptr_t)blk, (void *)(uintptr_t)&d, sizeof(d));
        ev->ev_CopySource = elan(b, blk);
        ev->ev_CopyDest = port;
        elan4_store64(E4_EVENT_INIT_VALUE(-32, E4_EVENT_COPY, E4_EVENT_DTYPE_LONG, 8),
                      &ev->ev_CountAndType);
        next = elan(b, ev);
    }
    run_dma(b, dma(8, 0, b->vp, elan(b, mem), elan(b, mem + 8), next, 0));
    flush(b);
    CHECK(word_set(b, word, SOON));
    CHECK(strcmp(mem + 24, "chained") == 0);
}

static void guard_holds(struct bed *b)
{
    setenv("EMUELAN4_STEN_RETRIES", "2", 1);
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 128);
    E4_Event *ev = word_event(b, word, 1);
    for (int i = 1; i < 4; i++)
        elan4_store64(0, word + i);
    /* no process at the target: guarded commands are skipped, later ones executed */
    elan4_open_packet(b->cq, OPEN_PACKET(0, PACK_OK | RESTART_COUNT_ZERO, vp_of(1, LOW)));
    elan4_sendtrans0(b->cq, TR_SETEVENT_NOIDENT | TR_WAIT_FOR_EOP, elan(b, ev));
    elan4_guard(b->cq, GUARD_CHANNEL(1) | GUARD_TEST(0, PACK_OK) | GUARD_RESET(0));
    elan4_write_dword_cmd(b->cq, elan(b, word + 1), 1);
    elan4_write_dword_cmd(b->cq, elan(b, word + 2), 1);
    /* the own process acknowledges */
    elan4_open_packet(b->cq, OPEN_PACKET(0, PACK_OK | RESTART_COUNT_ZERO, b->vp));
    elan4_sendtrans0(b->cq, TR_SETEVENT_NOIDENT | TR_WAIT_FOR_EOP, elan(b, ev));
    elan4_guard(b->cq, GUARD_CHANNEL(1) | GUARD_TEST(0, PACK_OK) | GUARD_RESET(0));
    elan4_write_dword_cmd(b->cq, elan(b, word + 3), 1);
    flush(b);
    CHECK(word_set(b, word + 3, SOON));
    CHECK(elan4_load64(word) != 0);
    CHECK(elan4_load64(word + 2) == 1);
    CHECK(elan4_load64(word + 1) == 0);
}

static void cookie_zero(struct bed *b)
{
    bed_open(b, LOW);
    CHECK(elan4_alloc_intcookie(b->ctx, 42) == 0);
    CHECK(elan4_alloc_intcookie(b->ctx, 42) < 0 && errno == EEXIST);
    CHECK(elan4_alloc_intcookie(b->ctx, 0) < 0);
    CHECK(elan4_free_intcookie(b->ctx, 42) == 0);
    CHECK(elan4_alloc_intcookie(b->ctx, 42) == 0);
}

static void cookies_differ(struct bed *b)
{
    bed_open(b, LOW);
    E4_uint64 last = 0;
    for (int i = 0; i < 100; i++) {
        E4_uint64 c = elan4_local_cookie(b->cookies, E4_COOKIE_TYPE_LOCAL_DMA, b->vp);
        CHECK(c != last);
        last = c;
    }
    CHECK(elan4_local_cookie(b->cookies, E4_COOKIE_TYPE_STEN, b->vp) !=
          elan4_remote_cookie(b->cookies, E4_COOKIE_TYPE_REMOTE_DMA, b->vp));
}

/* A process sleeps until another one sets its event, a hundred times. */
static void sleeper(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    E4_Event_Blk *blk = sdram_mem(b, 64);
    CHECK(elan4_alloc_intcookie(b->ctx, 42) == 0);
    tell(b, 2, (uint64_t)getpid());
    tell(b, 0, elan(b, ev));
    for (int i = 0; i < 100; i++) {
        elan4_waitevent_word(b->ctx, b->cq, b->irq, blk, 42, ev, word, i % 2 ? 50 : 0);
        CHECK(elan4_load64(word) != 0);
        elan4_store64(0, word);
        elan4_primeevent_write(b->ctx, ev, 1);
        tell(b, 1, (uint64_t)i + 1);
    }
    CHECK(counter("sleeps") > 0);
}

static void waker(struct bed *b)
{
    bed_open(b, LOW);
    for (uint64_t i = 0; i < 100; i++) {
        while (atomic_load(&b->m->word[1]) != i)
            usleep(100);
        while (i % 10 == 0 && !process_sleeps((pid_t)told(b, 2)))
            usleep(100);
        run_dma(b, dma(0, 0, vp_of(0, LOW), 0, 0, 0, told(b, 0)));
        flush(b);
    }
    told(b, 1);
    while (atomic_load(&b->m->word[1]) != 100)
        usleep(100);
}

const struct rule_test event_rules[] = {{"event_units", 1, -1, {event_units}},
                                        {"event_once", 1, -1, {event_once}},
                                        {"event_no_rearm", 1, -1, {event_no_rearm}},
                                        {"wait_fires", 1, -1, {wait_fires}},
                                        {"count_overflow", 1, -1, {count_overflow}},
                                        {"blocks_aligned", 1, -1, {aligned}},
                                        {NULL, 0, 0, {NULL}}};

const struct rule_test command_rules[] = {{"cq_permission", 1, -1, {cq_permission}},
                                          {"cq_size", 1, -1, {cq_size}},
                                          {"cq_space", 1, -1, {cq_space}},
                                          {"port_runs", 1, -1, {port_runs}},
                                          {"guard_holds", 1, -1, {guard_holds}},
                                          {"cookie_zero", 1, -1, {cookie_zero}},
                                          {"cookies_differ", 1, -1, {cookies_differ}},
                                          {"interrupt_wakes", 2, -1, {sleeper, waker}},
                                          {NULL, 0, 0, {NULL}}};
