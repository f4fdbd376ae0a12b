/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rules of input queues, DMAs, and attaching. */
#include "tests/elan4/rules.h"
#include "tests/elan4/segment.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#define SOON 60000

static struct shm_head *seg_of_ours(void)
{
    struct shm_head *seg = own_segment();

    CHECK(seg);
    return seg;
}

/* Waits until our DMAs have been refused that many times more. */
static void until_refused(struct bed *b, volatile E4_uint64 *word, unsigned times)
{
    const struct shm_head *seg = seg_of_ours();
    uint64_t before = atomic_load(&seg->counters.nacks);

    for (uint64_t end = now_ms() + SOON; atomic_load(&seg->counters.nacks) - before < times;) {
        CHECK(now_ms() < end);
        elan4_pollevent_word(b->ctx, word, 1000);
    }
}

/* Waits until no DMA of ours is queued: no further effect is possible. */
static void until_over(struct bed *b, volatile E4_uint64 *word)
{
    const struct shm_head *seg = seg_of_ours();

    for (uint64_t end = now_ms() + SOON; !ctx_is_idle(&seg->ctx[0]);) {
        CHECK(now_ms() < end);
        elan4_pollevent_word(b->ctx, word, 1000);
    }
}

/* Sends a message with a number in it to a queue. */
static void send_to(struct bed *b, unsigned vp, E4_Addr queue, char *from, unsigned size,
                    E4_Addr done)
{
    run_dma(b, dma(size, DMA_QueueWrite, vp, elan(b, from), 0, done, queue));
    flush(b);
}

static void queue_full(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, SLOT);
    volatile E4_uint64 *done = main_mem(b, 64 * 8);
    char *msg = main_mem(b, (SLOTS + 2) * 64);
    int sent = 0, seen = 0;
    for (int i = 0; i < SLOTS + 2; i++) {
        msg[64 * i] = (char)(1 << i);
        E4_Event *ev = word_event(b, done + i, 1);
        send_to(b, b->vp, elan(b, b->queue), msg + 64 * i, 64, elan(b, ev));
    }
    until_refused(b, done + SLOTS + 2, 20);
    for (int i = 0; i < SLOTS + 2; i++)
        sent += elan4_load64(done + i) != 0;
    CHECK(sent == SLOTS);
    for (int i = 0; i < SLOTS + 2; i++) {
        char *m = queue_take(b, SLOT, SOON);
        CHECK(m);
        CHECK(!(seen & m[0]));
        seen |= m[0];
    }
    CHECK(seen == (1 << (SLOTS + 2)) - 1);
    until_over(b, done + SLOTS + 2);
    CHECK(!queue_take(b, SLOT, 0));
}

static void messages(struct bed *b, unsigned slot, unsigned size, int count)
{
    char *msg = main_mem(b, size);
    for (int i = 0; i < count; i++) {
        memset(msg, i + 1, size);
        send_to(b, b->vp, elan(b, b->queue), msg, size, 0);
        char *m = queue_take(b, slot, SOON);
        CHECK(m);
        CHECK(m[0] == (char)(i + 1) && m[size - 1] == (char)(i + 1));
    }
}

static void queue_wrap(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, SLOT);
    messages(b, SLOT, 64, 3 * (SLOTS + 1));
}

static void queue_size0(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 2048);
    CHECK(E4_InputQueueItemSize(b->queue->q_control) == 0);
    messages(b, 2048, 2048, 2 * (SLOTS + 1));
}

static void queue_event(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, SLOT);
    char *msg = main_mem(b, 64);
    for (int i = 0; i < 3; i++)
        send_to(b, b->vp, elan(b, b->queue), msg, 8, 0);
    for (int i = 0; i < 3; i++)
        CHECK(queue_take(b, SLOT, SOON)); /* all have set it: one done word, one message */
    until_over(b, main_mem(b, 64));
    CHECK(!queue_take(b, SLOT, 0));
}

static void queue_one_packet(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 2048);
    char *msg = main_mem(b, 4096);
    send_to(b, b->vp, elan(b, b->queue), msg, 2056, 0);
    CHECK(trapped(b, UTS_BAD_TRAP, SOON));
}

static void queue_in_sdram(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, SLOT);
    E4_InputQueue *q = main_mem(b, sizeof(*q));
    char *msg = main_mem(b, 64);
    *q = *b->queue;
    send_to(b, b->vp, elan(b, q), msg, 8, 0);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
    CHECK(atomic_load(&b->trap_proc) == UTS_IPROC);
}

/* A target that refuses until told to open. */
static void closed_target(struct bed *b)
{
    bed_open(b, LOW);
    CHECK(elan4_block_inputter(b->ctx, 1) == 0);
    char *mem = main_mem(b, 64);
    tell(b, 0, elan(b, mem));
    meet(b, 0, 2);
    CHECK(mem[0] == 0);
    CHECK(elan4_block_inputter(b->ctx, 0) == 0);
    meet(b, 1, 2);
    CHECK(mem[0] == 'x');
}

static void to_closed(struct bed *b)
{
    bed_open(b, LOW);
    char *mem = main_mem(b, 64);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    mem[0] = 'x';
    run_dma(b, dma(8, 0, vp_of(0, LOW), elan(b, mem), told(b, 0), elan(b, ev), 0));
    flush(b);
    until_refused(b, word, 10);
    CHECK(word_quiet(b, word, 0));
    meet(b, 0, 2);
    CHECK(word_set(b, word, SOON));
    meet(b, 1, 2);
}

#define BIG (8u << 20)

static void watches_data(struct bed *b)
{
    bed_open(b, LOW);
    unsigned char *mem = malloc(BIG);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    for (unsigned round = 1; round < 6; round++) {
        memset(mem, 0, BIG);
        elan4_store64(0, word);
        elan4_primeevent_write(b->ctx, ev, 1);
        tell(b, 0, elan(b, mem));
        tell(b, 1, elan(b, ev));
        meet(b, (int)round, 2);
        while (!elan4_load64(word))
            ;
        for (unsigned i = 0; i < BIG; i += 4096)
            CHECK(mem[i] == round);
        CHECK(mem[BIG - 1] == round);
    }
}

static void pushes_data(struct bed *b)
{
    setenv("EMUELAN4_SLICE", "4096", 1);
    bed_open(b, LOW);
    unsigned char *mem = malloc(BIG);
    for (unsigned round = 1; round < 6; round++) {
        memset(mem, (int)round, BIG);
        meet(b, (int)round, 2);
        volatile E4_uint64 *word = main_mem(b, 64);
        E4_Event *ev = word_event(b, word, 1);
        run_dma(b,
                dma(BIG, 0, vp_of(0, LOW), elan(b, mem), told(b, 0), elan(b, ev), told(b, 1)));
        flush(b);
        CHECK(word_set(b, word, SOON));
    }
}

static void comes_late(struct bed *b)
{
    bed_prepare(b);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    CHECK(elan4_add_p2pvp(b->ctx, 0, &b->cap) == 0);
    tell(b, 0, elan(b, ev));
    meet(b, 0, 2);
    CHECK(*word == 0);
    CHECK(elan4_attach(b->ctx, &b->cap) == 0);
    CHECK(word_set(b, word, SOON));
    meet(b, 1, 2);
}

static void insists(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    run_dma(b, dma(0, 0, vp_of(0, LOW), 0, 0, elan(b, ev), told(b, 0)));
    flush(b);
    until_refused(b, word, 3);
    CHECK(word_quiet(b, word, 0));
    meet(b, 0, 2);
    CHECK(word_set(b, word, SOON));
    meet(b, 1, 2);
}

static void no_order(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "50", 1);
    setenv("EMUELAN4_SEED", "7", 1);
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_uint64 *from = main_mem(b, 64 * 8), *to = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 64);
    int overtaken = 0;
    for (int round = 0; round < 20; round++) {
        elan4_store64(0, word);
        elan4_primeevent_write(b->ctx, ev, 64);
        for (E4_uint64 i = 0; i < 64; i++) {
            from[i] = i + 1;
            run_dma(b, dma(8, 0, b->vp, elan(b, from + i), elan(b, to), elan(b, ev), 0));
        }
        flush(b);
        CHECK(word_set(b, word, SOON));
        overtaken += *to != 64; /* the last one did not complete last */
    }
    CHECK(overtaken > 0);
}

static void time_slices(struct bed *b)
{
    setenv("EMUELAN4_SLICE", "65536", 1);
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    char *from = calloc(1, BIG), *to = calloc(1, BIG);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    run_dma(b, dma(BIG, 0, b->vp, elan(b, from), elan(b, to), elan(b, ev), 0));
    flush(b);
    CHECK(word_set(b, word, SOON));
    CHECK(counter("dma_sliced") == BIG / 65536 - 1);
}

static void src_checked(struct bed *b)
{
    bed_open(b, LOW);
    char *to = main_mem(b, 4096);
    char *gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone + 4096, 4096);
    run_dma(b, dma(64, 0, b->vp, elan(b, gone + 4096), elan(b, to), 0, 0));
    flush(b);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
    CHECK(atomic_load(&b->trap_proc) == UTS_DPROC);
    atomic_store(&b->traps, 0);
    run_dma(b, dma(64, 0, b->vp, elan(b, to), elan(b, gone + 4096), 0, 0));
    flush(b);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
    CHECK(atomic_load(&b->trap_proc) == UTS_IPROC);
}

static void raw_pointer(struct bed *b)
{
    bed_open(b, LOW);
    char *from = malloc(64), *to = main_mem(b, 64);
    from[0] = 'x';
    run_dma(b, dma(8, 0, b->vp, (E4_Addr)(uintptr_t)from, elan(b, to), 0, 0));
    flush(b);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
    CHECK(to[0] == 0);
    CHECK(elan4_elan2main(b->ctx, elan(b, from)) == from);
    CHECK(elan4_elan2main(b->ctx, elan(b, b->sdram)) == b->sdram);
    CHECK(elan4_elan2main(b->ctx, elan(b, b->cq->cmdq_mapping)) == b->cq->cmdq_mapping);
    CHECK(elan4_elan2main(b->ctx, (E4_Addr)(uintptr_t)from) == NULL);
    CHECK(elan4_main2elan(b->ctx, NULL) == ELAN_BAD_ADDR);
}

static void vproc_checked(struct bed *b)
{
    bed_open(b, LOW);
    char *mem = main_mem(b, 64);
    run_dma(b, dma(8, 0, NODES * CONTEXTS, elan(b, mem), elan(b, mem), 0, 0));
    flush(b);
    CHECK(trapped(b, UTS_INVALID_VPROC, SOON));
    atomic_store(&b->traps, 0);
    run_dma(b, dma(8, 0, 1u << 20, elan(b, mem), elan(b, mem), 0, 0));
    flush(b);
    CHECK(trapped(b, UTS_INVALID_VPROC, SOON));
}

static void attach_busy(struct bed *b)
{
    setenv("EMUELAN4_NODE", "0", 1); /* both on the same node */
    if (b->node == 0) {
        bed_open(b, LOW);
        ELAN4_CTX *other = elan4_init(0);
        CHECK(elan4_attach(other, &b->cap) != 0 && errno == EBUSY);
        b->cap.cap_mycontext = LOW + 1;
        CHECK(elan4_attach(other, &b->cap) == 0);
        elan4_fini(other);
        setenv("EMUELAN4_NODE", "2", 1); /* a context that no process has */
        ELAN4_CTX *there = elan4_init(0), *twice = elan4_init(0);
        CHECK(there->ctx_position.pos_nodeid == 2);
        b->cap.cap_mycontext = LOW;
        CHECK(elan4_attach(there, &b->cap) == 0);
        CHECK(elan4_attach(twice, &b->cap) != 0 && errno == EBUSY);
        elan4_fini(there);
        elan4_fini(twice);
        meet(b, 0, 2);
        meet(b, 1, 2);
        elan4_fini(b->ctx);
        meet(b, 2, 2);
    } else {
        meet(b, 0, 2);
        bed_prepare(b);
        CHECK(elan4_attach(b->ctx, &b->cap) != 0 && errno == EBUSY);
        meet(b, 1, 2);
        meet(b, 2, 2);
        CHECK(elan4_attach(b->ctx, &b->cap) == 0);
    }
}

static void refused(struct bed *b, int low, int high, int my, int lownode, int highnode,
                    int err)
{
    ELAN_CAPABILITY cap = b->cap;

    cap.cap_lowcontext = low;
    cap.cap_highcontext = high;
    cap.cap_mycontext = my;
    cap.cap_lownode = lownode;
    cap.cap_highnode = highnode;
    CHECK(elan4_attach(b->ctx, &cap) != 0);
    CHECK(errno == err);
}

static void attach_range(struct bed *b)
{
    bed_prepare(b);
    refused(b, 2, 9, 10, 0, 3, EINVAL);
    refused(b, 2, 9, 1, 0, 3, EINVAL);
    refused(b, 2, 9, 2, 1, 3, EINVAL); /* this process is on node 0 */
    refused(b, 0, 9, 0, 0, 3, EBUSY);  /* used by the kernel */
    refused(b, 0x3f0, 0x410, 0x3f0, 0, 3, EINVAL);
    refused(b, 2, 0x900, 2, 0, 3, EINVAL);
    ELAN_CAPABILITY cap = b->cap;
    cap.cap_version++;
    CHECK(elan4_attach(b->ctx, &cap) != 0 && errno == EINVAL);
    cap = b->cap;
    cap.cap_type = ELAN_CAP_TYPE_KERNEL | ELAN_CAP_TYPE_NO_BITMAP;
    CHECK(elan4_attach(b->ctx, &cap) != 0 && errno == EINVAL);
    CHECK(elan4_attach(b->ctx, &b->cap) == 0);
}

static void attach_key(struct bed *b)
{
    ELANCTRL_HANDLE h;
    bed_prepare(b);
    ELAN_CAPABILITY cap = b->cap;
    cap.cap_lowcontext = 0x410;
    cap.cap_highcontext = 0x413;
    cap.cap_mycontext = 0x411;
    cap.cap_userkey.key_values[0] = 77;
    CHECK(elan4_attach(b->ctx, &cap) != 0 && errno == EACCES);
    CHECK(elanctrl_open(&h) == 0);
    CHECK(elanctrl_create_cap(h, &cap) == 0);
    CHECK(elanctrl_create_cap(h, &b->cap) < 0);
    cap.cap_userkey.key_values[0] = 78;
    CHECK(elan4_attach(b->ctx, &cap) != 0 && errno == EACCES);
    cap.cap_userkey.key_values[0] = 77;
    cap.cap_mycontext = 0x412;
    CHECK(elan4_attach(b->ctx, &cap) == 0);
    CHECK(elanctrl_destroy_cap(h, &cap) == 0);
    CHECK(elanctrl_close(h) == 0);
}

static void routes(struct bed *b)
{
    bed_prepare(b);
    ELAN_CAPABILITY cap = b->cap;
    cap.cap_highnode = 511;
    CHECK(elan_nvps(&cap) == 8192);
    CHECK(elan4_add_p2pvp(b->ctx, 0, &cap) == 0);
    CHECK(elan4_add_p2pvp(b->ctx, 1, &cap) < 0);
    cap.cap_highnode = 512;
    CHECK(elan4_add_p2pvp(b->ctx, 0, &cap) < 0);
}

static void vp_formula(struct bed *b)
{
    ELAN_LOCATION l = {2, 3};
    ELAN_CAPABILITY cap;
    (void)b;
    bed_cap(&cap, LOW);
    CHECK(elan_location2vp(l, &cap) == 2 * CONTEXTS + 3);
    for (int vp = 0; vp < NODES * CONTEXTS; vp++) {
        l = elan_vp2location((unsigned)vp, &cap);
        CHECK(l.loc_node == vp / CONTEXTS && l.loc_context == vp % CONTEXTS);
        CHECK(elan_location2vp(l, &cap) == vp);
    }
    l = (ELAN_LOCATION){NODES, 0};
    CHECK(elan_location2vp(l, &cap) == -1);
    CHECK(elan_nlocal(1, &cap) == CONTEXTS);
    cap.cap_type = ELAN_CAP_TYPE_CYCLIC | ELAN_CAP_TYPE_NO_BITMAP;
    l = (ELAN_LOCATION){2, 3};
    CHECK(elan_location2vp(l, &cap) == 3 * NODES + 2);
    cap.cap_type = ELAN_CAP_TYPE_BLOCK;
    BT_SET(cap.cap_bitmap, 5);
    BT_SET(cap.cap_bitmap, 20);
    l = elan_vp2location(1, &cap);
    CHECK(elan_nvps(&cap) == 2);
    CHECK(l.loc_node == 1 && l.loc_context == 4);
    CHECK(elan_location2vp(l, &cap) == 1);
}

static void dies_attached(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, SLOT);
    tell(b, 0, elan(b, b->queue));
    meet(b, 0, 2);
    kill(getpid(), SIGKILL);
}

static void takes_over(struct bed *b)
{
    setenv("EMUELAN4_NODE", "0", 1);
    told(b, 0);
    bed_prepare(b);
    CHECK(elan4_attach(b->ctx, &b->cap) != 0 && errno == EBUSY);
    meet(b, 0, 2);
    for (uint64_t end = now_ms() + SOON; elan4_attach(b->ctx, &b->cap) != 0; usleep(1000))
        CHECK(errno == EBUSY && now_ms() < end);
}

/*
 * Three processes: one dies, one has a record of it, and one takes over its context. The second
 * notices the death too late, because its service thread sleeps: it sends its messages itself,
 * the first one before the process that could have helped dies.
 */
static void dies_known(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, SLOT);
    tell(b, 0, elan(b, b->queue));
    CHECK(queue_take(b, SLOT, SOON));
    meet(b, 0, 3);
    kill(getpid(), SIGKILL);
}

static void sends_to_both(struct bed *b)
{
    setenv("EMUELAN4_DEATH_LATE_US", "30000000", 1);
    bed_open(b, LOW);
    char *msg = main_mem(b, 64);
    volatile E4_uint64 *done = main_mem(b, 16);
    send_to(b, vp_of(0, LOW), told(b, 0), msg, 64, elan(b, word_event(b, done, 1)));
    CHECK(word_set(b, done, SOON));
    meet(b, 0, 3);
    send_to(b, vp_of(0, LOW), told(b, 1), msg, 64, elan(b, word_event(b, done + 1, 1)));
    CHECK(word_set(b, done + 1, SOON));
    meet(b, 1, 2);
}

static void hears_as_next(struct bed *b)
{
    setenv("EMUELAN4_NODE", "0", 1);
    b->node = 0;
    meet(b, 0, 3);
    bed_prepare(b);
    for (uint64_t end = now_ms() + SOON; elan4_attach(b->ctx, &b->cap) != 0; usleep(1000))
        CHECK(errno == EBUSY && now_ms() < end);
    bed_attached(b);
    bed_queue(b, SLOT);
    tell(b, 1, elan(b, b->queue));
    CHECK(queue_take(b, SLOT, SOON));
    meet(b, 1, 2);
}

const struct rule_test queue_rules[] = {{"queue_full", 1, -1, {queue_full}},
                                        {"queue_wrap", 1, -1, {queue_wrap}},
                                        {"queue_size0", 1, -1, {queue_size0}},
                                        {"queue_event", 1, -1, {queue_event}},
                                        {"queue_one_packet", 1, -1, {queue_one_packet}},
                                        {"queue_in_sdram", 1, -1, {queue_in_sdram}},
                                        {NULL, 0, 0, {NULL}}};

const struct rule_test dma_rules[] = {{"src_after_ack", 2, -1, {closed_target, to_closed}},
                                      {"inputter_refuses", 2, -1, {closed_target, to_closed}},
                                      {"dst_after_data", 2, -1, {watches_data, pushes_data}},
                                      {"retry_forever", 2, -1, {comes_late, insists}},
                                      {"no_order", 1, -1, {no_order}},
                                      {"time_slices", 1, -1, {time_slices}},
                                      {"src_checked", 1, -1, {src_checked}},
                                      {"raw_pointer", 1, -1, {raw_pointer}},
                                      {"vproc_checked", 1, -1, {vproc_checked}},
                                      {NULL, 0, 0, {NULL}}};

const struct rule_test attach_rules[] = {
    {"attach_busy", 2, -1, {attach_busy, attach_busy}},
    {"attach_range", 1, -1, {attach_range}},
    {"attach_key", 1, -1, {attach_key}},
    {"route_count", 1, -1, {routes}},
    {"vp_formula", 1, -1, {vp_formula}},
    {"dead_freed", 2, 0, {dies_attached, takes_over}},
    {"next_owner", 3, 0, {dies_known, sends_to_both, hears_as_next}},
    {NULL, 0, 0, {NULL}}};
