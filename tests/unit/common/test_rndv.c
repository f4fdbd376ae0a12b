/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * States of a message that two engines rarely reach with each other: an engine against a peer
 * that is played here, at moments without credits, send buffers or memory, or with a peer that
 * violates the protocol.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "proto/proto.h"
#include "tests/lib/clock.h"
#include "played.h"

#define PART 70000u
/* bytes of a fragment of one segment */
#define FRAG (sizeof(struct rme_frag) + sizeof(struct rme_mseg) + sizeof(struct rme_range))

/* ---- without a send buffer, or credits ---- */

/* The peer cannot know the handle of a send that was not announced; a guess has no effect. */
static void cancel_of_a_send_that_waits(void **state)
{
    (void)state;
    begin(&usual, "");
    script.no_tx = true;
    send_(plain, LARGE, 3);
    SAYS(CANCEL, 0, .to = 1, .from = 9);
    assert_int_equal(ended, 0);
    room();
    assert_int_equal(LAST, 1);
    refuses(1);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -EMSGSIZE);
    end();
}

static void invites_later_or_not(void **state)
{
    (void)state;
    begin(&usual, "");
    script.no_tx = true;
    receive(zone(0), LARGE, 3);
    room();
    assert_int_equal(rme_counter_value(rme, "invites_sent"), 0);
    SAYS(RTS, 0, .tag = 3, .from = 9, .total = LARGE);
    assert_int_not_equal(LAST, 0); /* CTS */
    script_imm(0, LAST);
    run();
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, 0);
    assert_int_equal(done_.actual, LARGE);
    end();
}

static uint32_t answered;

static void note_answer(const struct rme_wire_message *message)
{
    answered = message->type == RME_WIRE_FIN ? message->to : answered;
}

/* The last one: the receives before it have ended. */
static void answers_a_taken_back_invitation_later(void **state)
{
    unsigned long before;

    (void)state;
    begin(&usual, "");
    script.no_tx = true;
    before = (unsigned long)rme_counter_value(rme, "control_sent");
    SAYS(CANCEL, 0, .from = 9);
    SAYS(CANCEL, 0, .from = 10);
    assert_int_equal(rme_counter_value(rme, "control_sent"), before);
    script.heard = note_answer;
    room();
    script.heard = NULL;
    assert_int_equal(rme_counter_value(rme, "control_sent"), before + 1);
    assert_int_equal(answered, 10);
    assert_int_equal(errors(), 0);
    end();
}

static void is_invited_without_credits(void **state)
{
    struct rme_hello poor = usual;

    (void)state;
    poor.credits = 4; /* one is used */
    begin(&poor, "");
    send_(plain, 100, 2);
    SAYS(CTS, LARGE, .flags = RME_WIRE_F_UNSOLICITED, .tag = 3, .to = 1, .from = 9);
    send_(zone(0), LARGE, 3);
    assert_int_equal(script.rdma_ops, 0);
    SAYS(PONG, 0, .credits = 2);
    assert_int_equal(script.rdma_ops, 1);
    script_finish(0);
    run();
    assert_int_equal(rme_counter_value(rme, "invites_taken"), 1);
    assert_int_equal(done_.error, 0);
    assert_int_equal(done_.actual, LARGE);
    end();
}

/* A message of two transfers could be overtaken between them by the next one of its tag. */
static void two_transfers_are_not_invited(void **state)
{
    (void)state;
    begin(&usual, ",rdma_inflight_bytes=256K");
    SAYS(CTS, LARGE, .flags = RME_WIRE_F_UNSOLICITED, .tag = 3, .from = 9);
    send_(zone(0), LARGE, 3);
    send_(plain, 100, 3);
    assert_int_equal(script.rdma_ops, 0);
    assert_int_equal(rme_counter_value(rme, "invites_taken"), 0);
    refuses(LAST);
    assert_int_equal(ended, 1);
    assert_int_equal(errors(), 0);
    end();
}

/* More than half of the limit is a single transfer if nothing else moves, invited or not. */
static void message_within_the_limit_is_one_transfer(void **state)
{
    (void)state;
    for (int invited = 0; invited < 2; invited++) {
        begin(&usual, ",rdma_inflight_bytes=512K,rndv=write");
        if (invited)
            SAYS(CTS, LARGE, .flags = RME_WIRE_F_UNSOLICITED, .tag = 3, .from = 9);
        send_(zone(0), LARGE, 3);
        if (!invited)
            SAYS(CTS, LARGE, .to = LAST, .from = 9);
        assert_int_equal(script.rdma_ops, 1);
        script_finish(0);
        run();
        assert_int_equal(script.rdma_ops, 0);
        assert_int_equal(done_.error, 0);
        assert_int_equal(done_.actual, LARGE);
        end();
    }
}

/* An acknowledgement must precede the data and cannot be sent yet. */
static void is_invited_and_owes_a_word(void **state)
{
    (void)state;
    begin(&usual, "");
    send_(plain, LARGE, 2);
    script.no_tx = true;
    refuses(LAST);
    assert_int_equal(ended, 1);
    SAYS(CTS, LARGE, .flags = RME_WIRE_F_UNSOLICITED, .tag = 3, .to = 1, .from = 9);
    send_(zone(0), LARGE, 3);
    assert_int_equal(script.rdma_ops, 0);
    room();
    assert_int_equal(script.rdma_ops, 1);
    script_finish(0);
    run();
    assert_int_equal(ended, 2);
    assert_int_equal(done_.error, 0);
    end();
}

static void immediate_beyond_its_credits(void **state)
{
    (void)state;
    begin(&usual, "");
    script.no_tx = true; /* no credits are returned */
    for (int i = 0; i < 8; i++)
        SAYS(PONG, 0, .flags = 0);
    assert_int_equal(errors(), 0);
    script_imm(0, 5);
    run();
    assert_int_equal(errors(), 1);
    end();
}

/* ---- beside a peer that does not respond ---- */

/* All transfers of the process belong to an unresponsive peer; another peer still gets a turn,
 * one transfer at a time, by CTS or by an invitation. */
static void all_transfers_are_with_a_deaf_peer(void **state)
{
    struct rme_addr *deaf;

    (void)state;
    begin(&usual, ",rndv=write");
    rme->tuning.rdma_ops = rme->tuning.rdma_ops_peer = 1;
    for (int i = 0; i < 3; i++) {
        send_(i == 0 ? zone(0) : memory[0], LARGE, 3);
        SAYS(CTS, LARGE, .to = LAST, .from = 9 + (uint32_t)i);
    }
    assert_int_equal(script.rdma_ops, 1);

    deaf = meet_another(&usual);
    send_(zone(1), LARGE, 4);
    SAYS_ON(1, CTS, LARGE, .to = LAST, .from = 9);
    assert_int_equal(script.rdma_ops, 2);
    send_(zone(2), LARGE, 5);
    SAYS_ON(1, CTS, LARGE, .to = LAST, .from = 10);
    assert_int_equal(script.rdma_ops, 2);
    script_finish(0); /* the newest */
    run();
    assert_int_equal(ended, 1);
    assert_int_equal(script.rdma_ops, 2);
    script_finish(0);
    run();
    assert_int_equal(ended, 2);
    SAYS_ON(1, CTS, LARGE, .flags = RME_WIRE_F_UNSOLICITED, .tag = 6, .from = 11, .to = 2);
    send_(memory[1], LARGE, 6);
    assert_int_equal(rme_counter_value(rme, "invites_taken"), 1);
    assert_int_equal(script.rdma_ops, 2);

    leave_another(deaf);
    end();
}

/* ---- unusual moments ---- */

static void cancelled_twice(void **state)
{
    rme_id id;

    (void)state;
    begin(&usual, "");
    id = send_(plain, LARGE, 3);
    rme_cancel(rme, id);
    run();
    rme_cancel(rme, id);
    run();
    assert_int_equal(ended, 0);
    SAYS(FIN, 0, .status = RME_WIRE_CANCELED, .to = LAST, .from = 9);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -ECANCELED);
    end();
}

/* At both cancels the device still has the only transfer, so the message is complete. */
static void cancelled_twice_while_it_moves(void **state)
{
    rme_id id;

    (void)state;
    begin(&usual, "");
    id = send_(zone(0), LARGE, 3);
    SAYS(CTS, LARGE, .to = LAST, .from = 9);
    assert_int_equal(script.rdma_ops, 1);
    rme_cancel(rme, id);
    rme_cancel(rme, id);
    run();
    assert_int_equal(ended, 0);
    script_finish(0);
    run();
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, 0);
    end();
}

/* The device never completes the transfer of a cancelled send: the link ends. */
static void cancelled_transfer_without_end_ends_link(void **state)
{
    rme_id id;

    (void)state;
    clock_set();
    begin(&usual, ",connect_timeout_ms=1000"); /* cancel_ms: 100 */
    id = send_(zone(0), LARGE, 3);
    SAYS(CTS, LARGE, .to = LAST, .from = 9);
    assert_int_equal(script.rdma_ops, 1);
    rme_cancel(rme, id);
    run();
    clock_step_ms(99);
    run();
    assert_int_equal(ended, 0);
    for (int ms = 0; ended == 0 && ms < 100; ms++) {
        clock_step_ms(1);
        run();
    }
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -ECANCELED);
    assert_int_equal(rme_counter_value(rme, "link_failures"), 1);
    end();
    clock_release();
}

/* The sender cancels a send whose receive has sent an invitation. */
static void invited_sender_leaves(void **state)
{
    (void)state;
    begin(&usual, "");
    receive(zone(0), LARGE, 3);
    assert_int_equal(rme_counter_value(rme, "invites_sent"), 1);
    SAYS(CANCEL, 0, .flags = RME_WIRE_F_FROM_SENDER, .to = LAST, .from = 9, .tag = 3);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -ECANCELED);
    end();
}

/* The receiver accepts one RTS at a time. */
static void one_rts_at_a_time(void **state)
{
    struct rme_hello small = usual;
    uint32_t first;

    (void)state;
    small.rts_max = 1;
    begin(&small, "");
    send_(plain, LARGE, 2);
    first = LAST;
    send_(plain, LARGE, 3);
    assert_int_equal(LAST, first);
    refuses(first);
    assert_int_equal(ended, 1);
    assert_int_not_equal(LAST, first);
    refuses(LAST);
    assert_int_equal(ended, 2);
    end();
}

/* An invited send that cannot be written at once waits for a slot behind the others. */
static void invited_sends_keep_the_limit_of_rts(void **state)
{
    struct rme_hello small = usual;
    uint32_t first;

    (void)state;
    small.rts_max = 1;
    begin(&small, "");
    send_(zone(0), LARGE, 2);
    first = LAST;
    SAYS(CTS, LARGE, .to = first, .from = 9);
    assert_int_equal(script.rdma_ops, 1);
    send_(plain, LARGE, 4);
    SAYS(CTS, LARGE, .flags = RME_WIRE_F_UNSOLICITED, .tag = 3, .to = 1, .from = 10);
    send_(zone(1), LARGE, 3);
    assert_int_equal(script.rdma_ops, 1);
    script_finish(0);
    run();
    assert_int_equal(ended, 1);
    assert_int_not_equal(LAST, first);
    assert_int_equal(script.rdma_ops, 0);
    refuses(LAST);
    assert_int_equal(ended, 2);
    assert_int_equal(script.rdma_ops, 1); /* by the invitation */
    script_finish(0);
    run();
    assert_int_equal(ended, 3);
    assert_int_equal(done_.error, 0);
    assert_int_equal(errors(), 0);
    end();
}

static uint64_t offered;

static void note_offer(const struct rme_wire_message *message)
{
    offered = message->rndv_window;
}

/* Opens an engine that reads, with a cache of registrations; skips the case where none can be
 * kept (no userfaultfd: valgrind). */
static void begin_cached(void)
{
    begin(&usual, ",rndv=read,regcache_entries=64");
    if (rme_mreg_caches(rme->mreg))
        return;
    end();
    skip();
}

/* Sends a message whose RTS offers `offer` bytes, and writes it by windows of the receiver. */
static void is_written_in_parts(uint64_t offer)
{
    script.heard = note_offer;
    send_(plain, LARGE, 3);
    script.heard = NULL;
    script.no_regs = false;
    assert_int_equal(offered, offer);
    for (uint64_t at = 0; at < LARGE; at += PART) {
        SAYS(CTS, LARGE - at < PART ? LARGE - at : PART, .to = LAST, .from = 9, .offset = at);
        for (; script.rdma_ops > 0; run())
            script_finish(0);
        assert_int_equal(errors(), 0);
    }
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, 0);
    assert_int_equal(done_.actual, LARGE);
    assert_int_equal(rme_counter_value(rme, "bytes_copied"), 0);
}

/* The device completes the last transfer first, and an answer to the data arrives before the
 * other completions. */
static void answer_before_other_completions_is_held(void **state)
{
    static char answer[100];
    const struct rme_credit *credit;

    (void)state;
    begin(&usual, ",rndv=write");
    receive(answer, sizeof(answer), 4);
    send_(plain, LARGE, 3);
    SAYS(CTS, LARGE, .to = LAST, .from = 9);
    for (uint64_t left = LARGE; left > 2 * (64u << 10); left -= 64u << 10) {
        assert_int_equal(script.rdma_ops, 2);
        script_finish(1); /* the older one */
        run();
    }
    script_finish(0); /* the last one */
    run();
    credit = &peer->peer->credit;
    SAYS(EAGER, 0, .tag = 4, .credits = (uint16_t)(credit->spent - credit->acked));
    for (; script.rdma_ops > 0; run()) {
        assert_int_equal(ended, 0);
        script_finish(0);
    }
    assert_int_equal(ended, 2);
    assert_int_equal(done_.actual, 0); /* of the answer */
    assert_int_equal(errors(), 0);
    end();
}

/* The receiver does not read what is offered as a whole. */
static void offer_that_is_not_read(void **state)
{
    (void)state;
    begin_cached();
    is_written_in_parts(LARGE);
    end();
}

/* The device refuses to register the whole message, and not its fragments. */
static void offer_that_cannot_be_registered(void **state)
{
    (void)state;
    begin_cached();
    script.no_regs = true;
    is_written_in_parts(0);
    end();
}

static void window_out_of_order(void **state)
{
    (void)state;
    begin(&usual, "");
    send_(plain, LARGE, 3);
    SAYS(CTS, PART, .to = LAST, .from = 9, .offset = PART);
    assert_int_equal(errors(), 1);
    assert_int_equal(ended, 1);
    end();
}

/* The send's first fragment is packed, which is too small for the invitation; the peer has
 * already been offered the maximum of packed fragments. */
static void one_offer_too_many(void **state)
{
    enum { PIECES = 100, PIECE = 1000, OFFERS = 16 };
    void *base[PIECES];
    int64_t length[PIECES];
    struct rme_list list = {.base = base, .length = length, .count = PIECES};
    rme_id id;

    (void)state;
    for (int i = 0; i < PIECES; i++) {
        base[i] = plain + 2 * i * PIECE;
        length[i] = PIECE;
    }
    begin(&usual, ",rndv=read,pack_threshold=1M,list_mode=pack");
    for (int i = 0; i < OFFERS; i++)
        assert_int_equal(rme_post_send(rme, peer, &list, 2, 0, NULL, &id), 0);
    run();
    SAYS(CTS, PIECES * PIECE, .flags = RME_WIRE_F_UNSOLICITED, .tag = 3, .to = OFFERS,
         .from = 9);
    assert_int_equal(rme_post_send(rme, peer, &list, 3, 0, NULL, &id), 0);
    run();
    assert_int_equal(rme_counter_value(rme, "invites_taken"), 0);
    assert_int_equal(script.rdma_ops, 0);
    refuses(LAST);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -EMSGSIZE);
    end();
}

/* ---- Long copies ---- */

static char *guarded;
static size_t guarded_bytes;
static unsigned touched, touched_without_the_lock;

/* Counts an access to guarded memory, in the accessing thread. */
static void is_touched(int number)
{
    (void)number;
    touched++;
    if (pthread_mutex_trylock(&rme->lock) == 0) {
        touched_without_the_lock++;
        pthread_mutex_unlock(&rme->lock);
    }
    if (mprotect(guarded, guarded_bytes, PROT_READ | PROT_WRITE) != 0)
        abort();
}

/* Sends a list in guarded memory, which is packed. */
static void send_guarded(int pieces, int32_t tag)
{
    enum { PIECE = 1000, MOST = 100 };
    void *base[MOST];
    int64_t length[MOST];
    struct rme_list list = {.base = base, .length = length, .count = pieces};
    rme_id id;

    for (int i = 0; i < pieces; i++) {
        base[i] = guarded + 2 * i * PIECE;
        length[i] = PIECE;
    }
    assert_int_equal(mprotect(guarded, guarded_bytes, PROT_NONE), 0);
    assert_int_equal(rme_post_send(rme, peer, &list, tag, 0, NULL, &id), 0);
    run();
}

/* Also when a block is available at once, as for the second. */
static void long_lists_are_packed_without_the_lock(void **state)
{
    struct sigaction act = {.sa_handler = is_touched}, before;

    (void)state;
    if (under_valgrind())
        skip();
    touched = touched_without_the_lock = 0;
    guarded_bytes = 1 << 18;
    guarded = mmap(NULL, guarded_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(guarded, MAP_FAILED);
    begin(&usual, ",rndv=read,fragment_bytes=256K,list_mode=pack");
    assert_int_equal(sigaction(SIGSEGV, &act, &before), 0);
    send_guarded(100, 2);
    send_guarded(100, 3);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_int_equal(touched, 2);
    assert_int_equal(touched_without_the_lock, 2);
    assert_int_equal(rme_counter_value(rme, "bytes_copied"), 2 * 100000);
    end();
    munmap(guarded, guarded_bytes);
}

/* While other data is being written the receiver may as well read: its invitation is
 * declined. */
static void is_invited_while_other_data_moves(void **state)
{
    uint32_t first;

    (void)state;
    begin(&usual, "");
    send_(zone(0), LARGE, 2);
    first = LAST;
    SAYS(CTS, LARGE, .to = first, .from = 9);
    assert_int_equal(script.rdma_ops, 1);
    SAYS(CTS, LARGE, .flags = RME_WIRE_F_UNSOLICITED, .tag = 3, .to = 1, .from = 10);
    send_(zone(1), LARGE, 3);
    assert_int_equal(script.rdma_ops, 1);
    assert_int_not_equal(LAST, first); /* RTS */
    assert_int_equal(rme_counter_value(rme, "invites_taken"), 0);
    refuses(LAST);
    assert_int_equal(done_.error, -EMSGSIZE);
    script_finish(0);
    run();
    assert_int_equal(ended, 2);
    assert_int_equal(done_.error, 0);
    end();
}

/* ---- out of memory ---- */

/* A send that would offer its memory fails before its RTS. */
static void no_memory_for_what_is_offered(void **state)
{
    (void)state;
    begin(&usual, ",rndv=read");
    no_calloc = FRAG;
    send_(zone(0), LARGE, 3);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -ENOMEM);
    assert_int_equal(LAST, 0);
    end();
}

static void no_memory_for_an_invitation(void **state)
{
    (void)state;
    begin(&usual, "");
    no_calloc = FRAG;
    receive(zone(0), LARGE, 3);
    assert_int_equal(rme_counter_value(rme, "invites_sent"), 0);
    no_malloc = no_calloc = 0;
    SAYS(RTS, 0, .tag = 3, .from = 9, .total = LARGE);
    script_imm(0, LAST);
    run();
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, 0);
    end();
}

static void no_memory_though_invited(void **state)
{
    (void)state;
    begin(&usual, "");
    SAYS(CTS, LARGE, .flags = RME_WIRE_F_UNSOLICITED, .tag = 3, .from = 9);
    no_calloc = FRAG;
    send_(zone(0), LARGE, 3);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, -ENOMEM);
    assert_int_equal(errors(), 0);
    end();
}

static uint8_t heard[8];
static unsigned words;

static void note_word(const struct rme_wire_message *message)
{
    assert_true(words < sizeof(heard));
    heard[words++] = message->type;
}

/* The send has taken the invitation already. The peer's receive must not meet the next message
 * of the tag, which would happen if that came before CANCEL. */
static void early_cts_send_without_transfer_memory(void **state)
{
    enum { PIECES = 20, PIECE = 10000 };
    struct rme_hello poor = usual;
    void *base[PIECES];
    int64_t length[PIECES];
    struct rme_list list = {.base = base, .length = length, .count = PIECES};
    rme_id id;

    (void)state;
    poor.credits = 4; /* one is used */
    begin(&poor, ",list_mode=group");
    for (int i = 0; i < PIECES; i++) {
        base[i] = i == 0 ? zone(0) : (char *)base[i - 1] + PIECE + 8;
        length[i] = PIECE;
    }
    send_(plain, 100, 2);
    SAYS(CTS, PIECES * PIECE, .flags = RME_WIRE_F_UNSOLICITED, .tag = 3, .to = 1, .from = 9);
    assert_int_equal(rme_post_send(rme, peer, &list, 3, 0, NULL, &id), 0);
    send_(plain, 100, 3);
    words = 0;
    script.heard = note_word;
    no_malloc = /* one cut, four segments in each piece: see rme_split */
        (1 + (PIECES + 1) / 4 + 1) * sizeof(struct rme_rdma_seg) +
        (PIECES + 1) * sizeof(struct rme_sge);
    SAYS(CREDIT, 0, .tag = 8);
    script.heard = NULL;
    assert_int_equal(rme_counter_value(rme, "invites_taken"), 1);
    assert_int_equal(script.rdma_ops, 0);
    assert_true(words >= 2);
    assert_int_equal(heard[0], RME_WIRE_CANCEL);
    assert_int_equal(heard[1], RME_WIRE_EAGER);
    assert_int_equal(ended, 1);
    assert_int_equal(done_.error, 0);
    SAYS(FIN, 0, .status = RME_WIRE_CANCELED, .to = LAST, .from = 9);
    assert_int_equal(ended, 2);
    assert_int_equal(done_.error, -ENOMEM);
    assert_int_equal(errors(), 0);
    end();
}

static void no_memory_for_what_is_early(void **state)
{
    (void)state;
    begin(&usual, "");
    no_malloc = no_calloc = sizeof(struct rme_message); /* compilers join malloc and memset */
    SAYS(RTS, 0, .tag = 3, .from = 9, .total = LARGE);
    assert_int_equal(script.links, 0);
    no_malloc = no_calloc = 0;
    end();
    begin(&usual, "");
    no_malloc = no_calloc = sizeof(struct rme_message);
    SAYS(EAGER, 0, .tag = 3);
    assert_int_equal(script.links, 0);
    no_malloc = no_calloc = 0;
    end();
}

/* An answer to the cancel of an invitation needs none. */
static void no_memory_to_answer(void **state)
{
    (void)state;
    begin(&usual, "");
    answered = 0;
    script.heard = note_answer;
    no_malloc = ANY;
    SAYS(CANCEL, 0, .from = 9);
    script.heard = NULL;
    assert_int_equal(answered, 9);
    assert_int_equal(script.links, 1);
    end();
}

static void no_memory_for_an_unexpected_offer(void **state)
{
    (void)state;
    begin(&usual, "");
    no_malloc = sizeof(struct rme_remote_window) + sizeof(struct rme_wire_segment);
    SAYS(RTS, 10000, .flags = RME_WIRE_F_UNEXPECTED, .tag = 3, .from = 9, .total = 10000);
    assert_int_equal(script.links, 0);
    end();
}

/* ---- unexpected messages that the host keeps or never fetches ---- */

static void unexpected_at_the_end(void **state)
{
    enum { SENT = 120, TAKEN = 100, FREED = 80 };
    struct rme_unexpected got[TAKEN];

    (void)state;
    begin(&usual, "");
    for (int i = 0; i < SENT; i++)
        SAYS(EAGER, 0, .flags = RME_WIRE_F_UNEXPECTED, .tag = i);
    no_calloc =
        /* the old table suffices */
        2 * (rme->table.mask + 1) * sizeof(struct rme_keyed *);
    for (int n = 0; n < TAKEN; n++) {
        if (n == TAKEN - 1)
            no_malloc = no_calloc = 0;
        assert_int_equal(rme_test_unexpected(rme, &got[n], 1, 0), 1);
        assert_int_equal(got[n].tag, n);
        if (got[n].first)
            rme_addr_free(got[n].addr);
    }
    for (int i = 0; i < FREED; i++)
        assert_int_equal(rme_unexpected_free(rme, got[i].buffer), 0);
    assert_int_equal(rme_unexpected_free(rme, plain), -EINVAL);
    script_cut();
    run();
    rme_close(rme); /* frees kept messages, and those never fetched */
    rme_addr_free(peer);
}

/* The host frees the address while a message from it is pulled: the pull completes and is
 * dropped. */
static void unexpected_of_a_freed_address(void **state)
{
    (void)state;
    begin(&usual, "");
    SAYS(RTS, 10000, .flags = RME_WIRE_F_UNEXPECTED, .tag = 3, .from = 9, .total = 10000,
         .shape = 1);
    rme_addr_free(peer);
    run();
    script_cut();
    run();
    assert_int_equal(rme_counter_value(rme, "ops_live"), 0);
    assert_int_equal(rme_test_unexpected(rme, &(struct rme_unexpected){0}, 1, 0), 0);
    rme_close(rme);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_of_a_send_that_waits),
        cmocka_unit_test(invites_later_or_not),
        cmocka_unit_test(answers_a_taken_back_invitation_later),
        cmocka_unit_test(all_transfers_are_with_a_deaf_peer),
        cmocka_unit_test(is_invited_without_credits),
        cmocka_unit_test(two_transfers_are_not_invited),
        cmocka_unit_test(message_within_the_limit_is_one_transfer),
        cmocka_unit_test(is_invited_and_owes_a_word),
        cmocka_unit_test(immediate_beyond_its_credits),
        cmocka_unit_test(cancelled_twice),
        cmocka_unit_test(cancelled_twice_while_it_moves),
        cmocka_unit_test(cancelled_transfer_without_end_ends_link),
        cmocka_unit_test(invited_sender_leaves),
        cmocka_unit_test(one_rts_at_a_time),
        cmocka_unit_test(invited_sends_keep_the_limit_of_rts),
        cmocka_unit_test(answer_before_other_completions_is_held),
        cmocka_unit_test(offer_that_is_not_read),
        cmocka_unit_test(offer_that_cannot_be_registered),
        cmocka_unit_test(window_out_of_order),
        cmocka_unit_test(one_offer_too_many),
        cmocka_unit_test(long_lists_are_packed_without_the_lock),
        cmocka_unit_test(is_invited_while_other_data_moves),
        cmocka_unit_test(no_memory_for_what_is_offered),
        cmocka_unit_test(no_memory_for_an_invitation),
        cmocka_unit_test(no_memory_though_invited),
        cmocka_unit_test(early_cts_send_without_transfer_memory),
        cmocka_unit_test(no_memory_for_what_is_early),
        cmocka_unit_test(no_memory_to_answer),
        cmocka_unit_test(no_memory_for_an_unexpected_offer),
        cmocka_unit_test(unexpected_at_the_end),
        cmocka_unit_test(unexpected_of_a_freed_address),
    };

    return cmocka_run_group_tests_name("rndv", tests, NULL, NULL);
}
