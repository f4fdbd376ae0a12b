/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/fuzz/script_elan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

#define DMAS   4096u
#define PLACES 4096u
#define SLOTS  64u

struct dma {
    E4_DMA64 d;
    unsigned vp;
    bool remote; /* executed by a peer */
};

struct bmi_elan4_inbox {
    bool armed;
    uint8_t *slot[SLOTS];
    unsigned first, count;
};

static struct dma dmas[DMAS];
static unsigned ndma, lent;
static void *place[PLACES]; /* main memory and SDRAM */
static unsigned nplace;
static struct bmi_elan4_inbox box;
static uint64_t owner, sum, cookie;
static ELAN4_CTX context;

void elan_script_begin(void)
{
    ndma = lent = 0;
    owner = 1;
    sum = cookie = 0;
}

unsigned elan_script_lent(void)
{
    return lent;
}

uint64_t elan_script_sum(void)
{
    return sum;
}

void elan_script_owner(uint64_t generation)
{
    owner = generation;
}

/* ---- Memory ---- */

static void *have(size_t align, size_t size)
{
    void *p = nplace < PLACES ? aligned_alloc(align, (size + align - 1) & ~(align - 1)) : NULL;

    if (p != NULL)
        place[nplace++] = memset(p, 0, size);
    return p;
}

static void give(void *p)
{
    for (unsigned i = 0; i < nplace; i++)
        if (place[i] == p) {
            place[i] = place[--nplace];
            free(p);
            return;
        }
    FUZZ_CHECK(!"memory that was not lent");
}

void *bmi_elan4_main(struct bmi_elan4_nic *nic, size_t align, size_t size)
{
    (void)nic;
    return have(align, size);
}

void *bmi_elan4_sdram(struct bmi_elan4_nic *nic, size_t align, size_t size)
{
    (void)nic;
    return have(align, size);
}

void elan4_freeMain(ELAN4_ALLOC *alloc, void *p)
{
    (void)alloc;
    give(p);
}

void elan4_freeElan(ELAN4_ALLOC *alloc, void *p)
{
    (void)alloc;
    give(p);
}

/* Addresses of the interface equal those of the processor. */
E4_Addr elan4_main2elan(ELAN4_CTX *ctx, const volatile void *p)
{
    (void)ctx;
    return (E4_Addr)(uintptr_t)p;
}

/* ---- DMAs and events ---- */

static void begin(E4_DMA *d, unsigned vp, bool remote)
{
    FUZZ_CHECK(ndma < DMAS);
    dmas[ndma] = (struct dma){.vp = vp, .remote = remote};
    memcpy((void *)(uintptr_t)&dmas[ndma].d, (const void *)(uintptr_t)d, 56);
    ndma++;
    sum = sum * 31 + E4_DMA_SIZE(d->dma_typeSize);
}

static void run_chain(const uint64_t *w, unsigned dwords)
{
    for (unsigned i = 0; i + 8 <= dwords; i += 8) {
        E4_DMA64 d = {w[i] & ~UINT64_C(0x3f),
                      w[i + 1],
                      w[i + 2],
                      w[i + 3],
                      w[i + 4],
                      w[i + 5],
                      w[i + 6],
                      0};

        FUZZ_CHECK((w[i] & 0x3f) == RUN_DMA_CMD);
        begin((E4_DMA *)&d, (unsigned)d.dma_vproc, false);
    }
}

static void add(E4_Event *e, int32_t n)
{
    int32_t was = EVENT_COUNT(e), is = was + n;
    uint32_t low = EVENT_TYPE(e);

    e->ev_CountAndType = E4_EVENT_INIT_VALUE(is, 0, 0, low);
    if (is < 0 || (n > 0 && was >= 0))
        return;
    if (low & E4_EVENT_WRITE)
        *(uint64_t *)(uintptr_t)e->ev_WritePtr = e->ev_WriteValue;
    else
        run_chain((const uint64_t *)(uintptr_t)e->ev_CopySource, low & E4_EVENT_COPY_SIZE_MASK);
}

static struct dma take(unsigned i)
{
    struct dma d = dmas[i];

    memmove(dmas + i, dmas + i + 1, (--ndma - i) * sizeof(d));
    return d;
}

unsigned elan_script_dmas(void)
{
    return ndma;
}

void elan_script_land(unsigned i)
{
    struct dma d = take(i);
    E4_Addr event = d.remote ? d.d.dma_dstEvent : d.d.dma_srcEvent;
    size_t size = (size_t)E4_DMA_SIZE(d.d.dma_typeSize);

    if (d.d.dma_typeSize & DMA_QueueWrite) {
        const uint8_t *bytes = (const uint8_t *)(uintptr_t)d.d.dma_srcAddr;

        FUZZ_CHECK(size <= BMI_ELAN4_SLOT);
        for (size_t k = 0; k < size; k++) /* checks that the memory is mapped */
            sum = sum * 31 + (k < 8 ? bytes[k] : bytes[k] & 0);
        if (d.d.dma_dstEvent == ELAN_OWN_QUEUE && !elan_script_packet(bytes, size)) {
            dmas[ndma++] = d; /* tried again */
            return;
        }
    }
    if (event != 0)
        add((E4_Event *)(uintptr_t)event, 32);
}

void elan_script_refuse(unsigned i)
{
    take(i);
}

void elan4_run_dma_cmd(E4_CmdQ *q, E4_DMA *d)
{
    (void)q;
    begin(d, (unsigned)d->dma_vproc, false);
}

void elan4_remote_dma(E4_CmdQ *q, E4_DMA *d, unsigned vp, E4_uint64 name)
{
    (void)q;
    (void)name;
    begin(d, vp, true);
}

void elan4_set_event_cmd(E4_CmdQ *q, E4_Addr event)
{
    (void)q;
    add((E4_Event *)(uintptr_t)event, 32);
}

void elan4_wait_event_cmd(E4_CmdQ *q, E4_Addr event, E4_uint64 value, E4_uint64 p0,
                          E4_uint64 p1)
{
    E4_Event *e = (E4_Event *)(uintptr_t)event;

    (void)q;
    e->ev_CountAndType = E4_EVENT_INIT_VALUE(EVENT_COUNT(e), 0, 0, (uint32_t)value);
    e->ev_Params[0] = p0;
    e->ev_Params[1] = p1;
    add(e, (int32_t)(value >> 32));
}

/* Skips guarded commands: no request is refused before its queue gives it up. */
void elan4_guard(E4_CmdQ *q, E4_uint64 command)
{
    (void)q;
    (void)command;
}

void elan4_add_dword_cmd(E4_CmdQ *q, E4_Addr at, E4_uint64 value)
{
    (void)q;
    (void)at;
    (void)value;
}

void elan4_initevent_write(ELAN4_CTX *ctx, E4_Event *e, volatile E4_uint64 *word)
{
    (void)ctx;
    e->ev_CountAndType = E4_EVENT_INIT_VALUE(0, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0);
    e->ev_WritePtr = (uintptr_t)word;
    e->ev_WriteValue = 1;
}

void elan4_primeevent_write(ELAN4_CTX *ctx, E4_Event *e, int count)
{
    (void)ctx;
    e->ev_CountAndType =
        E4_EVENT_INIT_VALUE(-32 * count, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0);
}

int elan4_pollevent_word(ELAN4_CTX *ctx, volatile E4_uint64 *word, long usecs)
{
    (void)ctx;
    (void)usecs;
    return *word != 0;
}

/* ---- Command queues, names ---- */

static void flush(E4_CmdQ *q)
{
    (void)q;
}

static E4_CmdQ commands = {.cmdq_flush = flush};

E4_CmdQ *elan4_alloc_cmdq(ELAN4_CTX *ctx, unsigned size, unsigned perms, E4_CmdQParams *params)
{
    E4_CmdQ *q = calloc(1, sizeof(*q));

    (void)ctx;
    (void)size;
    (void)perms;
    (void)params;
    if (q == NULL)
        return NULL;
    q->cmdq_flush = flush;
    lent++;
    return q;
}

void elan4_free_cmdq(ELAN4_CTX *ctx, E4_CmdQ *q)
{
    (void)ctx;
    lent--;
    free(q);
}

E4_Addr elan4_alloccq_space(ELAN4_CTX *ctx, unsigned dwords, unsigned size)
{
    (void)ctx;
    (void)dwords;
    (void)size;
    return 0x1000;
}

void elan4_freecq_space(ELAN4_CTX *ctx, E4_Addr port, unsigned dwords)
{
    (void)ctx;
    (void)port;
    (void)dwords;
}

E4_uint64 elan4_local_cookie(ELAN4_COOKIEPOOL *pool, int type, unsigned vp)
{
    (void)pool;
    (void)type;
    (void)vp;
    return ++cookie;
}

E4_uint64 elan4_remote_cookie(ELAN4_COOKIEPOOL *pool, int type, unsigned vp)
{
    return elan4_local_cookie(pool, type, vp);
}

/* ---- The nic, its queue, and the log ---- */

static struct bmi_elan4_nic *the_nic;

int bmi_elan4_nic_open(const struct bmi_elan4_nic_config *config, struct bmi_elan4_nic **out,
                       char *why, size_t size)
{
    struct bmi_elan4_nic *nic = calloc(1, sizeof(*nic));

    (void)why;
    (void)size;
    FUZZ_CHECK(nic != NULL);
    nic->range = config->range;
    nic->context = config->context;
    nic->vp = (unsigned)bmi_elan4_vp(&nic->range, 0, nic->context);
    nic->generation = ELAN_OWN_GENERATION;
    nic->ctx = &context;
    nic->tx = nic->rx = nic->irq = &commands;
    nic->signal.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    FUZZ_CHECK(nic->signal.fd >= 0);
    *out = the_nic = nic;
    return 0;
}

void bmi_elan4_nic_close(struct bmi_elan4_nic *nic)
{
    ndma = 0;
    while (nplace > 0)
        free(place[--nplace]);
    close(nic->signal.fd);
    free(nic);
}

int bmi_elan4_nic_listen(struct bmi_elan4_nic *nic)
{
    (void)nic;
    return 0;
}

void bmi_elan4_flush(struct bmi_elan4_nic *nic)
{
    (void)nic;
}

void elan_script_trap(unsigned kind, uint64_t at)
{
    struct bmi_elan4_nic *nic = the_nic;

    if (nic->ntrap == BMI_ELAN4_TRAPS)
        return;
    nic->trap[nic->ntrap++] = (struct bmi_elan4_trap){.kind = (enum compat_trap)kind, .at = at};
    atomic_fetch_add(&nic->traps, 1);
}

unsigned bmi_elan4_traps_take(struct bmi_elan4_nic *nic,
                              struct bmi_elan4_trap out[BMI_ELAN4_TRAPS])
{
    unsigned count = nic->ntrap;

    memcpy(out, nic->trap, count * sizeof(*out));
    nic->ntrap = 0;
    return count;
}

int bmi_elan4_inbox_open(struct bmi_elan4_nic *nic, unsigned slots,
                         struct bmi_elan4_inbox **out)
{
    (void)nic;
    (void)slots;
    box = (struct bmi_elan4_inbox){.count = 0};
    *out = &box;
    return 0;
}

void bmi_elan4_inbox_close(struct bmi_elan4_inbox *in)
{
    in->armed = false;
    while (bmi_elan4_inbox_peek(in) != NULL)
        bmi_elan4_inbox_next(in);
}

E4_Addr bmi_elan4_inbox_queue(const struct bmi_elan4_inbox *in)
{
    (void)in;
    return ELAN_OWN_QUEUE;
}

const void *bmi_elan4_inbox_peek(struct bmi_elan4_inbox *in)
{
    return in->count > 0 && !in->armed ? in->slot[in->first] : NULL;
}

void bmi_elan4_inbox_next(struct bmi_elan4_inbox *in)
{
    free(in->slot[in->first]);
    in->first = (in->first + 1) % SLOTS;
    in->count--;
}

void bmi_elan4_inbox_arm(struct bmi_elan4_inbox *in)
{
    in->armed = in->count == 0;
}

bool elan_script_packet(const void *bytes, size_t length)
{
    uint8_t *slot = box.count < SLOTS ? calloc(1, BMI_ELAN4_SLOT) : NULL;

    if (slot == NULL)
        return false;
    memcpy(slot, bytes, length);
    box.slot[(box.first + box.count++) % SLOTS] = slot;
    box.armed = false;
    return true;
}

int bmi_elan4_log_owner(struct bmi_elan4_log *log, int at, uint64_t *out)
{
    (void)log;
    (void)at;
    *out = owner;
    return owner != 0;
}

/* Capabilities, which the fabric does not use here. */
void elan_nullcap(ELAN_CAPABILITY *cap)
{
    memset(cap, 0, sizeof(*cap));
}
