/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * measure.c - measures the cost of a piece: a DMA, and a requested DMA.
 *
 * The interface moves the same bytes within this process in four ways: by one DMA, by a DMA for
 * each piece to separate pages, and both requested by packets, as for reads.  The differences
 * are the costs.  The best of a few runs of each counts, without the first one; the ways
 * alternate, so that a disturbance affects all.
 *
 * The event, the memory and the queue belong to the measurement and are freed at its end,
 * unless a DMA to them is in flight: a late DMA ends the measurement, and the resources are
 * freed with the context.  Any failure ends the measurement silently, and the presets apply.
 */
#include <sys/mman.h>

#include "base/timer.h"
#include "base/trial.h"
#include "bmi_elan4/compat.h"
#include "bmi_elan4/elan.h"

#define PIECES    16
#define PIECE     2048u
#define APART     4096u
#define AREA      ((size_t)PIECES * APART)
#define BUDGET_NS 5000000u
#define LATE_NS   50000000u /* a DMA that takes longer counts as lost */

enum shape { WRITTEN, WRITTEN_APART, READ, READ_APART, SHAPES };

struct probe {
    struct rme_fabric *f;
    E4_Event *event;
    volatile E4_uint64 *word; /* written by the event */
    char *memory;             /* source pieces, followed by AREA bytes of destination */
    E4_CmdQ *reads;
    bool late; /* a DMA is in flight */
};

static void probe_open(struct probe *p)
{
    struct bmi_elan4_nic *nic = p->f->nic;

    p->event = bmi_elan4_sdram(nic, 64, sizeof(E4_Event32));
    p->word = bmi_elan4_main(nic, 64, sizeof(*p->word));
    p->memory = mmap(NULL, 2 * AREA, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    p->reads =
        compat_cmdq(nic->ctx, nic->alloc, CQ_Size8K, CQ_STENEnableBit | CQ_WriteEnableBit);
    if (p->event && p->word)
        compat_word_event(nic->ctx, p->event, p->word);
}

static void probe_close(struct probe *p)
{
    struct bmi_elan4_nic *nic = p->f->nic;

    if (p->late)
        return;
    if (p->reads)
        compat_free_cmdq(nic->ctx, nic->alloc, p->reads);
    if (p->memory != MAP_FAILED)
        munmap(p->memory, 2 * AREA);
    compat_free_main(nic->alloc, (void *)p->word);
    compat_free_sdram(nic->alloc, p->event);
}

static void post(struct probe *p, uint32_t shape, unsigned i, uint64_t bytes)
{
    struct bmi_elan4_nic *nic = p->f->nic;
    E4_DMA d = {.dma_typeSize = E4_DMA_TYPE_SIZE(bytes, DMA_DataTypeByte, 0, 16),
                .dma_vproc = nic->vp,
                .dma_srcAddr = bmi_elan4_at(nic, p->memory + (size_t)i * PIECE),
                .dma_dstAddr = bmi_elan4_at(nic, p->memory + AREA + (size_t)i * APART)};

    if (shape == READ || shape == READ_APART) {
        d.dma_dstEvent = bmi_elan4_at(nic, p->event);
        compat_ask_dma(p->reads, nic->cookies, &d, nic->vp, 0);
        return;
    }
    d.dma_srcEvent = bmi_elan4_at(nic, p->event);
    d.dma_cookie = compat_dma_cookie(nic->cookies, nic->vp);
    compat_run_dma(nic->tx, &d);
}

/* Runs one way.  Returns ns from the first post to the last event; 0: no event. */
static uint64_t run(void *arg, uint32_t shape)
{
    struct probe *p = arg;
    bool apart = shape == WRITTEN_APART || shape == READ_APART;
    unsigned dmas = apart ? PIECES : 1;
    uint64_t begin = rme_now_ns();

    compat_store(0, p->word);
    compat_prime(p->f->nic->ctx, p->event, (int)dmas);
    MEMBAR_VISIBLE();
    for (unsigned i = 0; i < dmas; i++)
        post(p, shape, i, apart ? PIECE : (uint64_t)PIECES * PIECE);
    bmi_elan4_flush(p->f->nic);
    compat_flush(p->reads);
    while (!compat_poll_word(p->f->nic->ctx, p->word, 0))
        if (rme_now_ns() - begin > LATE_NS) {
            p->late = true;
            return 0;
        }
    return rme_now_ns() - begin + 1;
}

/* Returns the extra ns of each piece after the first. */
static uint32_t each(uint64_t apart, uint64_t together)
{
    return apart > together ? (uint32_t)((apart - together) / (PIECES - 1)) : 0;
}

static struct rme_rdma_seg_costs piece_costs(const uint64_t best[SHAPES])
{
    uint32_t writes = each(best[WRITTEN_APART], best[WRITTEN]);
    uint32_t reads = each(best[READ_APART], best[READ]);

    return (struct rme_rdma_seg_costs){.request_ns = writes,
                                       .read_ns = reads > writes ? reads - writes : 0};
}

bool elan_measure(struct rme_fabric *f, struct rme_rdma_seg_costs *out)
{
    struct probe p = {.f = f};
    struct rme_trial trial = {SHAPES, 1, 2, 8, 0};
    uint64_t best[SHAPES];
    bool done;

    probe_open(&p);
    trial.until = rme_now_ns() + BUDGET_NS;
    done = p.event && p.word && p.memory != MAP_FAILED && p.reads &&
           rme_trial(&trial, run, &p, best);
    if (done)
        *out = piece_costs(best);
    probe_close(&p);
    return done;
}
