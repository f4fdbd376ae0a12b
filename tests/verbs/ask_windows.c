/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Questions about memory windows.
 *
 * No question invalidates a window twice, because rxe of Linux 6.1 then dereferences a null
 * pointer in the kernel. No question destroys a QP with a bound window, because rxe waits for
 * the window, which cannot be freed meanwhile.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/verbs/ask.h"

#define WINDOW_AT   4096
#define WINDOW_SIZE 4096
#define BINDABLE    (ALL_RIGHTS | IBV_ACCESS_MW_BIND)
#define WREMOTE     IBV_ACCESS_REMOTE_WRITE
#define RREMOTE     IBV_ACCESS_REMOTE_READ

/* A type 2 window on b's registration, which permits binding. */
static struct ibv_mw *mw;

/* Ends the question where the device has no windows. */
static struct ibv_mw *alloc(struct ibv_pd *pd)
{
    struct ibv_mw *new = ibv_alloc_mw(pd, IBV_MW_TYPE_2);

    if (new == NULL) {
        answer("there are none");
        exit(0);
    }
    return new;
}

/* Opens both ends anew. */
static void view_open(struct end *a, struct end *b, int region_rights)
{
    *a = (struct end){0};
    *b = (struct end){.rights = region_rights};
    ends_open(a, b);
    mw = alloc(b->pd);
}

static int post_bind(struct end *e, struct ibv_mw *window, uint32_t key, struct ibv_mr *mr,
                     uint64_t addr, uint64_t length, unsigned rights)
{
    struct ibv_send_wr wr = {.wr_id = 5, .opcode = IBV_WR_BIND_MW, .send_flags = SIGNALED},
                       *bad;

    wr.bind_mw.mw = window;
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, addr, length, rights};
    return ibv_post_send(e->qp, &wr, &bad);
}

static int bind_next(struct end *b, uint64_t addr, uint64_t length, unsigned rights)
{
    return post_bind(b, mw, ibv_inc_rkey(mw->rkey), b->mr, addr, length, rights);
}

static uint64_t start_of(const struct end *b)
{
    return (uintptr_t)b->buf + WINDOW_AT;
}

/* Opens both ends, and binds the window to the middle of the registration under its next key,
 * from which its user knows the key. */
static void bound_open(struct end *a, struct end *b, int region_rights, unsigned rights)
{
    struct ibv_wc wc;

    view_open(a, b, region_rights);
    NEED(bind_next(b, start_of(b), WINDOW_SIZE, rights) == 0);
    NEED(next_wc(b->scq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS);
    mw->rkey = ibv_inc_rkey(mw->rkey);
}

static int invalidate(struct end *e, enum ibv_wr_opcode op, uint32_t key)
{
    return send_to(e, 6, op, 8, SIGNALED, 0, key);
}

static const char *opcode_name(const struct ibv_wc *wc)
{
    return wc->opcode == IBV_WC_BIND_MW     ? "a bind"
           : wc->opcode == IBV_WC_LOCAL_INV ? "an invalidation"
           : wc->opcode == IBV_WC_RECV      ? "a message"
                                            : "something else";
}

static void answer_told(const char *what, struct ibv_cq *cq)
{
    struct ibv_wc wc;

    NEED(next_wc(cq, &wc, WAIT_MS));
    answer("%s: %s, told as %s", what, status_name(wc.status), opcode_name(&wc));
}

/* Answers with the result of one access by a. */
static void answer_access(const char *what, struct end *a, enum ibv_wr_opcode op, uint64_t at,
                          uint32_t key)
{
    NEED(send_to(a, 1, op, 16, SIGNALED, at, key) == 0);
    answer_wc(what, a->scq);
}
static void answer_write(const char *what, struct end *a, uint64_t at)
{
    answer_access(what, a, WRITE, at, mw->rkey);
}

ASK(windows)
{
    struct ibv_device_attr attr;

    NEED(ibv_query_device(a->ctx, &attr) == 0);
    answer("the device says: %s%s%s", attr.max_mw > 0 ? "windows" : "none",
           attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A ? ", type 2A" : "",
           attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B ? ", type 2B" : "");
    struct ibv_mw *one = ibv_alloc_mw(a->pd, IBV_MW_TYPE_2);
    struct ibv_mw *two = ibv_alloc_mw(a->pd, IBV_MW_TYPE_2);
    answer("type 2: %s", pointer_result(two));
    if (one == NULL || two == NULL)
        return;
    answer("keys are %s", one->rkey == two->rkey ? "the same" : "different");
    answer("freeing: %s, %s", result(ibv_dealloc_mw(one)), result(ibv_dealloc_mw(two)));
}

ASK(window_use)
{
    view_open(a, b, BINDABLE);
    answer("binding: %s", result(bind_next(b, start_of(b), WINDOW_SIZE, WREMOTE)));
    mw->rkey = ibv_inc_rkey(mw->rkey);
    answer_told("bound", b->scq);
    answer("deregistering the region below: %s", result(ibv_dereg_mr(b->mr)));
    answer_write("a write through it", a, start_of(b));
    answer_write("a write past its end", a, start_of(b) + WINDOW_SIZE - 8);
}

ASK(window_before)
{
    bound_open(a, b, BINDABLE, WREMOTE);
    answer_write("requester", a, start_of(b) - 8);
}

ASK(window_beyond_region)
{
    bound_open(a, b, BINDABLE, WREMOTE);
    answer_write("requester", a, (uintptr_t)b->buf + END_SIZE - 8);
    tell(a, b, "states responder");
}

ASK(window_rights)
{
    static const struct {
        const char *what;
        unsigned rights;
        enum ibv_wr_opcode op;
    } tries[] = {
        {"read where it may be written", WREMOTE, READ},
        {"write where it may be read", RREMOTE, WRITE},
        {"read where it may be read", RREMOTE, READ},
        {"write where nothing is granted", 0, WRITE},
    };

    for (unsigned i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        bound_open(a, b, BINDABLE, tries[i].rights);
        answer_access(tries[i].what, a, tries[i].op, start_of(b), mw->rkey);
    }
}

ASK(window_over_private)
{
    bound_open(a, b, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, WREMOTE | RREMOTE);
    answer_write("write through the window", a, start_of(b));
    answer_access("read through the window", a, READ, start_of(b), mw->rkey);
    answer_access("write by the region's key", a, WRITE, start_of(b), b->mr->rkey);
}

ASK(window_unbound)
{
    view_open(a, b, BINDABLE);
    answer_write("requester", a, start_of(b));
}

ASK(refused_binds)
{
    static const struct {
        const char *what;
        int region_rights;
        uint64_t at, length;
        unsigned rights;
    } tries[] = {
        {"region without the right to bind", ALL_RIGHTS, WINDOW_AT, WINDOW_SIZE, WREMOTE},
        {"to be written, where it cannot be locally", IBV_ACCESS_MW_BIND | RREMOTE, WINDOW_AT,
         WINDOW_SIZE, WREMOTE},
        {"to be read, where nothing can be remotely", IBV_ACCESS_MW_BIND, WINDOW_AT,
         WINDOW_SIZE, RREMOTE},
        {"before the region's start", BINDABLE, -8ull, WINDOW_SIZE, WREMOTE},
        {"beyond the region's end", BINDABLE, END_SIZE - 8, 16, WREMOTE},
        {"all of the region", BINDABLE, 0, END_SIZE, WREMOTE},
        {"of no bytes", BINDABLE, WINDOW_AT, 0, WREMOTE},
    };

    for (unsigned i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        view_open(a, b, tries[i].region_rights);
        int ret =
            bind_next(b, (uintptr_t)b->buf + tries[i].at, tries[i].length, tries[i].rights);
        if (ret)
            answer("%s: posting: %s", tries[i].what, result(ret));
        else
            answer_wc(tries[i].what, b->scq);
    }
}

ASK(bound_twice)
{
    bound_open(a, b, BINDABLE, WREMOTE);
    NEED(bind_next(b, start_of(b), WINDOW_SIZE, WREMOTE) == 0);
    answer_wc("second bind", b->scq);
    answer("state %s", qp_state(b->qp));
}

ASK(bound_by_old_key)
{
    bound_open(a, b, BINDABLE, WREMOTE);
    NEED(invalidate(b, IBV_WR_LOCAL_INV, mw->rkey) == 0);
    answer_wc("invalidated", b->scq);
    uint32_t now = mw->rkey;
    mw->rkey = (now & ~0xffu) | ((now - 1) & 0xff);
    NEED(post_bind(b, mw, ibv_inc_rkey(now), b->mr, start_of(b), WINDOW_SIZE, WREMOTE) == 0);
    answer_wc("the structure has the key before the last", b->scq);
}

ASK(bound_of_other_domain)
{
    view_open(a, b, BINDABLE);
    struct ibv_pd *pd = ibv_alloc_pd(b->ctx);
    NEED(pd);
    mw = alloc(pd);
    NEED(bind_next(b, start_of(b), WINDOW_SIZE, WREMOTE) == 0);
    answer_wc("bind", b->scq);
    answer("deallocating the domain: %s", result(ibv_dealloc_pd(pd)));
}

ASK(of_another_pair)
{
    struct end c = {0}, d = {.with = b};

    bound_open(a, b, BINDABLE, WREMOTE);
    ends_open(&c, &d);
    answer_write("write by another connection", &c, start_of(b));
    answer_write("write by the one it is bound to", a, start_of(b));
}

ASK(local_invalidate)
{
    bound_open(a, b, BINDABLE, WREMOTE);
    answer_write("write", a, start_of(b));
    posted(invalidate(b, IBV_WR_LOCAL_INV, mw->rkey));
    answer_told("invalidated", b->scq);
    answer("deregistering the region below: %s", result(ibv_dereg_mr(b->mr)));
    answer_write("write then", a, start_of(b));
    answer("freeing the window: %s", result(ibv_dealloc_mw(mw)));
}

ASK(remote_invalidate)
{
    struct ibv_wc wc;

    bound_open(a, b, BINDABLE, WREMOTE);
    NEED(receive(b, 2, 64) == 0);
    posted(invalidate(a, IBV_WR_SEND_WITH_INV, mw->rkey));
    tell(a, b, "sender");
    NEED(next_wc(b->rcq, &wc, WAIT_MS));
    answer("receiver: %s, told as %s of %u bytes, %s", status_name(wc.status), opcode_name(&wc),
           wc.byte_len,
           wc.wc_flags & IBV_WC_WITH_INV ? "with invalidation" : "not as an invalidation");
    answer("the key is %s", wc.invalidated_rkey == mw->rkey ? "right" : "wrong");
    answer_write("write then", a, start_of(b));
}

ASK(bound_again)
{
    struct ibv_wc wc;

    bound_open(a, b, BINDABLE, WREMOTE);
    uint32_t old = mw->rkey;
    NEED(invalidate(b, IBV_WR_LOCAL_INV, old) == 0);
    answer_wc("invalidated", b->scq);
    NEED(bind_next(b, start_of(b), WINDOW_SIZE, WREMOTE) == 0);
    NEED(next_wc(b->scq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS);
    mw->rkey = ibv_inc_rkey(old);
    answer("the keys differ in %s",
           (old ^ mw->rkey) & ~0xffu ? "more than the last byte" : "the last byte");
    answer_write("write by the new key", a, start_of(b));
    answer_access("write by the old key", a, WRITE, start_of(b), old);
}

ASK(invalidate_nothing)
{
    for (unsigned i = 0; i < 2; i++) {
        view_open(a, b, BINDABLE);
        uint32_t key = i ? mw->rkey ^ 0x00770000 : b->mr->rkey;
        NEED(invalidate(b, IBV_WR_LOCAL_INV, key) == 0);
        answer_wc(i ? "no window at all" : "region", b->scq);
    }
}

ASK(remote_invalidate_nothing)
{
    for (unsigned i = 0; i < 2; i++) {
        view_open(a, b, BINDABLE);
        NEED(receive(b, 2, 64) == 0);
        NEED(invalidate(a, IBV_WR_SEND_WITH_INV, i ? mw->rkey ^ 0x00770000 : b->mr->rkey) == 0);
        answer("%s", i ? "no window at all" : "region");
        tell(a, b, "sender receiver states");
        if (!i)
            answer_access("write by the region's key", a, WRITE, start_of(b), b->mr->rkey);
    }
}

ASK(zero_based)
{
    view_open(a, b, BINDABLE);
    int ret = bind_next(b, start_of(b), WINDOW_SIZE, WREMOTE | IBV_ACCESS_ZERO_BASED);
    answer("binding: %s", result(ret));
    if (ret)
        return;
    answer_wc("bound", b->scq);
    strcpy((char *)a->buf, "zero");
    mw->rkey = ibv_inc_rkey(mw->rkey);
    answer_write("write at its 64th byte", a, 64);
    answer("it is there: %s",
           strcmp((char *)b->buf + WINDOW_AT + 64, "zero") == 0 ? "yes" : "no");
}

/* Posts a bind and the message with its key in one call, like programs that send keys. */
ASK(bind_and_tell)
{
    view_open(a, b, BINDABLE);
    uint32_t key = ibv_inc_rkey(mw->rkey);
    struct ibv_sge sge = {(uintptr_t)b->buf, 8, b->mr->lkey};
    struct ibv_send_wr tell_it = {.wr_id = 2,
                                  .sg_list = &sge,
                                  .num_sge = 1,
                                  .opcode = SEND,
                                  .send_flags = SIGNALED},
                       *bad;
    struct ibv_send_wr wr = {.wr_id = 1, .next = &tell_it, .opcode = IBV_WR_BIND_MW};

    memcpy(b->buf, &key, sizeof(key));
    NEED(receive(a, 3, 64) == 0);
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){b->mr, start_of(b), WINDOW_SIZE, WREMOTE};
    posted(ibv_post_send(b->qp, &wr, &bad));
    answer_wc("receiver", a->rcq);
    memcpy(&key, a->buf, sizeof(key));
    answer_access("write by the key that it got", a, WRITE, start_of(b), key);
    answer_wcs("the binder", b->scq);
}

ASK(freed_while_bound)
{
    bound_open(a, b, BINDABLE, WREMOTE);
    uint32_t key = mw->rkey;
    answer("freeing: %s", result(ibv_dealloc_mw(mw)));
    answer("deregistering the region: %s", result(ibv_dereg_mr(b->mr)));
    answer_access("write then", a, WRITE, start_of(b), key);
}

ASK(domain_with_window)
{
    struct ibv_pd *pd = ibv_alloc_pd(a->ctx);
    NEED(pd);
    mw = alloc(pd);
    answer("with a window: %s", result(ibv_dealloc_pd(pd)));
    NEED(ibv_dealloc_mw(mw) == 0);
    answer("without: %s", result(ibv_dealloc_pd(pd)));
}

ASK(bind_in_reset)
{
    mw = alloc(a->pd);
    answer("INIT: %s", result(bind_next(a, (uintptr_t)a->buf, 4096, WREMOTE)));
    NEED(end_to(a, IBV_QPS_ERR) == 0);
    answer("ERR: %s", result(bind_next(a, (uintptr_t)a->buf, 4096, WREMOTE)));
    tell(a, b, "it");
}

const struct question window_questions[] = {
    {"memory windows", .ask = windows, .setup = ALONE},
    {"use of a memory window", .ask = window_use, .setup = NOTHING},
    {"write before the start of a window", .ask = window_before, .setup = NOTHING},
    {"write beyond the end of a window's region", .ask = window_beyond_region,
     .setup = NOTHING},
    {"rights of a window", .ask = window_rights, .setup = NOTHING},
    {"window over a region that grants nothing", .ask = window_over_private, .setup = NOTHING},
    {"window that is not bound", .ask = window_unbound, .setup = NOTHING},
    {"windows bound to this and that", .ask = refused_binds, .setup = NOTHING},
    {"window bound twice", .ask = bound_twice, .setup = NOTHING},
    {"window bound again", .ask = bound_again, .setup = NOTHING},
    {"window bound again, by a key that it had before", .ask = bound_by_old_key,
     .setup = NOTHING},
    {"window of another domain", .ask = bound_of_other_domain, .setup = NOTHING},
    {"window of another queue pair", .ask = of_another_pair, .setup = NOTHING},
    {"window invalidated by its owner", .ask = local_invalidate, .setup = NOTHING},
    {"window invalidated by its user", .ask = remote_invalidate, .setup = NOTHING},
    {"invalidating what is no window", .ask = invalidate_nothing, .setup = NOTHING},
    {"send that invalidates what is no window", .ask = remote_invalidate_nothing,
     .setup = NOTHING},
    {"window that counts from zero", .ask = zero_based, .setup = NOTHING},
    {"window bound and its key told in one call", .ask = bind_and_tell, .setup = NOTHING},
    {"window freed while it is bound", .ask = freed_while_bound, .setup = NOTHING},
    {"domain with a window", .ask = domain_with_window, .setup = ALONE},
    {"binding by state", .ask = bind_in_reset, .setup = ALONE, .a.rights = BINDABLE},
    {NULL},
};
