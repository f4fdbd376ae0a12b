/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attacks within the protocol: each message is valid, but there are too many, or their answers
 * are not received. The server may end such a link at any time, but need not. */
#include "attack.h"

#include <string.h>
#include <sys/resource.h>
#include "bench/job.h"
#include "bench/session.h"
#include "embedded/iod/proto.h"

#define TAG       0x40000000
#define LINKS     8
#define CROWD     1000u
#define ANSWER_MS 10000

/* Encodes a request that the server answers. */
static size_t request(const struct attack *a, uint8_t *out, int32_t *tag, uint32_t n)
{
    static const struct iod_message list = {.op = IOD_OP_LIST};
    struct job counters = {
        .test = JOB_COUNTERS, .window = 1, .count = 1, .tag = 2 + 2 * (n % 1000)};

    *tag = (int32_t)n;
    if (a->victim == VICTIM_IOD)
        return (size_t)iod_request_encode(&list, out, LINK_MESSAGE - RME_WIRE_HEADER_SIZE);
    *tag = SESSION_OPEN_TAG;
    job_encode(&counters, out);
    return JOB_WIRE_SIZE;
}

/* Sends a request within the credits; returns true while the link is up. */
static bool ask(struct attack *a, struct link *link, uint32_t n)
{
    uint8_t payload[LINK_MESSAGE];
    struct rme_wire_message m = {.type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED};
    size_t length = request(a, payload, &m.tag, n);

    m.flags |= link_credits(link) == 1 ? RME_WIRE_F_STALLED : 0;
    if (link_say(link, &m, NULL, payload, length) != 0)
        return false;
    a->messages++;
    return true;
}

/* Sends requests as credits allow and never processes answers, neither those that find a
 * receive buffer nor those that were promised one and find none. */
void attack_deaf(struct attack *a)
{
    struct link *link[LINKS];
    struct link_plan plan = {.deaf = true, .credits = 64};

    for (unsigned i = 0; i < LINKS; i++) {
        plan.no_receives = i % 2;
        link[i] = attack_open(a, &plan);
        for (uint32_t n = 1;
             link[i] != NULL && link_credits(link[i]) > (plan.no_receives ? 0 : 2) &&
             ask(a, link[i], n);
             n++)
            ;
    }
    for (unsigned i = 0; i < LINKS; i++) {
        if (link[i] != NULL && link_ended(link[i], 300))
            a->ended++;
        link_drop(link[i]);
    }
}

/* ---- Many good clients ---- */

static bool is_answered(struct link *link)
{
    struct arrival arrival;
    int got;

    while ((got = link_receive(link, &arrival, ANSWER_MS)) == 1)
        if (!arrival.is_imm &&
            (arrival.message.type == RME_WIRE_EAGER || arrival.message.type == RME_WIRE_RTS))
            break;
    return got == 1;
}

/* Connects all clients at the same time. Each sends a request with its only credit, asks for
 * more credits, and must be answered. The round ends by number, not by time. */
void attack_crowd(struct attack *a)
{
    static struct link *link[CROWD];
    struct link_plan plan = {.credits = 4, .single_credit = true};
    struct rlimit files;
    unsigned answered = 0;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    for (unsigned i = 0; i < CROWD; i++)
        link[i] = attack_open(a, &plan);
    for (unsigned i = 0; i < CROWD; i++)
        if (link[i] != NULL)
            ask(a, link[i], 1);
    for (unsigned i = 0; i < CROWD; i++)
        answered += link[i] != NULL && is_answered(link[i]);
    if (answered < CROWD)
        complain(a, "%u of %u clients at once were answered", answered, CROWD);
    for (unsigned i = 0; i < CROWD; i++)
        link_close(link[i]);
    a->deadline = 0;
}

/* ---- Answers that cannot be sent ---- */

struct flood {
    struct link *link;
    uint32_t n;
};

/* Keeps LINKS links busy until the round or the time is over; `step` sends one more message. */
static void flood(struct attack *a, const struct link_plan *plan, unsigned steps,
                  bool (*step)(struct attack *, struct flood *))
{
    struct flood at[LINKS] = {0};

    for (unsigned i = 0; i < LINKS; i++)
        at[i].link = attack_open(a, plan);
    for (unsigned k = 0; k < steps && !attack_over(a); k++) {
        for (unsigned i = 0; i < LINKS; i++) {
            if (at[i].link == NULL)
                continue;
            link_idle(at[i].link);
            while (link_credits(at[i].link) >= 2 && step(a, &at[i]))
                ;
            if (!link_ended(at[i].link, 0))
                continue;
            a->ended++;
            link_drop(at[i].link);
            at[i] = (struct flood){.link = attack_open(a, plan)};
        }
    }
    for (unsigned i = 0; i < LINKS; i++)
        link_close(at[i].link);
}

/* Sends an RTS without a receive and its CANCEL, or the CANCEL of an invitation that was never
 * sent. */
static bool cancel_step(struct attack *a, struct flood *f)
{
    struct rme_wire_message m = {.type = RME_WIRE_RTS,
                                 .tag = TAG + (int32_t)(f->n % 7),
                                 .from = 1 + f->n % 100000,
                                 .total = 1 << 20};

    if (++f->n % 3 != 0) {
        if (!attack_say(a, f->link, &m))
            return false;
        m.flags = RME_WIRE_F_FROM_SENDER;
    }
    m.type = RME_WIRE_CANCEL;
    m.total = 0;
    return attack_say(a, f->link, &m);
}

/* Sends RTS, many of which stay, and cancels some. */
static bool among_step(struct attack *a, struct flood *f)
{
    uint32_t granted = link_peer(f->link)->rts_max, keep = granted - granted / 16;
    struct rme_wire_message m = {
        .type = RME_WIRE_RTS, .tag = TAG, .from = 1 + f->n, .total = 1 << 20};

    if (f->n++ < keep)
        return attack_say(a, f->link, &m);
    if (!attack_say(a, f->link, &m))
        return false;
    m.type = RME_WIRE_CANCEL;
    m.flags = RME_WIRE_F_FROM_SENDER;
    m.total = 0;
    return attack_say(a, f->link, &m);
}

void attack_cancels(struct attack *a)
{
    struct link_plan starving = {.credits = 4, .returns = LINK_RETURNS_ONE}, good = {0};

    if (a->round % 2 == 0)
        flood(a, &starving, 20000, cancel_step);
    else
        flood(a, &good, 200000, among_step);
}

/* Sends an empty message that the server has to pull, without a credit for the server's FIN. */
static bool empty_step(struct attack *a, struct flood *f)
{
    struct rme_wire_message m = {
        .type = RME_WIRE_RTS, .flags = RME_WIRE_F_UNEXPECTED, .tag = TAG, .from = ++f->n};

    if (f->n % 2 == 0)
        m = (struct rme_wire_message){
            .type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED, .tag = TAG};
    return attack_say(a, f->link, &m);
}

void attack_empty(struct attack *a)
{
    struct link_plan starving = {.credits = 4, .returns = LINK_RETURNS_ONE}, good = {0};

    flood(a, a->round % 2 == 0 ? &starving : &good, 20000, empty_step);
}

/* ---- RTS descriptors ---- */

/* Sends RTS of the largest size, each with another tag, one fewer than granted. */
static bool rts_step(struct attack *a, struct flood *f)
{
    static struct rme_wire_segment segment[200];
    uint32_t most = rme_wire_segments_max(RME_WIRE_RTS, LINK_MESSAGE);
    struct rme_wire_message m = {.type = RME_WIRE_RTS,
                                 .tag = TAG + (int32_t)f->n,
                                 .from = 1 + f->n,
                                 .shape = most,
                                 .nsegment = most,
                                 .total = (uint64_t)most << 12};

    if (f->n + 1 >= link_peer(f->link)->rts_max)
        return false;
    f->n++;
    for (uint32_t i = 0; i < most; i++)
        segment[i] = (struct rme_wire_segment){
            .address = 0x100000 + ((uint64_t)i << 13), .key = 1 + i, .length = 4096};
    if (link_say(f->link, &m, segment, NULL, 0) != 0)
        return false;
    a->messages++;
    return true;
}

void attack_rts(struct attack *a)
{
    struct link_plan good = {0};

    flood(a, &good, 200000, rts_step);
}
