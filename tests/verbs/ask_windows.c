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

/* Two ends, and a type 2 window on the second one's registration, which permits binding. */
struct view {
    struct end a, b;
    struct ibv_mw *mw;
};

/* Ends the question where the device has no windows. The view is valid until the next one. */
static struct view *view_open(int region_rights)
{
    static struct view v;

    v = (struct view){.b.rights = region_rights};
    ends_open(&v.a, &v.b);
    v.mw = ibv_alloc_mw(v.b.pd, IBV_MW_TYPE_2);
    if (!v.mw) {
        answer("there are none");
        exit(0);
    }
    return &v;
}

static int post_bind(struct end *e, struct ibv_mw *mw, uint32_t key, struct ibv_mr *mr,
                     uint64_t addr, uint64_t length, unsigned rights)
{
    struct ibv_send_wr wr = {.wr_id = 5, .opcode = IBV_WR_BIND_MW, .send_flags = SIGNALED},
                       *bad;

    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, addr, length, rights};
    return ibv_post_send(e->qp, &wr, &bad);
}

/* Binds the window to the middle of the registration under its next key, from which its user
 * knows the key. */
static void bind_view(struct view *v, unsigned rights)
{
    struct ibv_wc wc;
    uint32_t key = ibv_inc_rkey(v->mw->rkey);

    NEED(post_bind(&v->b, v->mw, key, v->b.mr, (uintptr_t)v->b.buf + WINDOW_AT, WINDOW_SIZE,
                   rights) == 0);
    NEED(next_wc(v->b.scq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS);
    v->mw->rkey = key;
}

static int post_invalidate(struct end *e, enum ibv_wr_opcode op, uint32_t key)
{
    struct ibv_sge sge = {(uintptr_t)e->buf, 8, e->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 6, .opcode = op, .send_flags = SIGNALED}, *bad;

    if (op == IBV_WR_SEND_WITH_INV) {
        wr.sg_list = &sge;
        wr.num_sge = 1;
    }
    wr.invalidate_rkey = key;
    return ibv_post_send(e->qp, &wr, &bad);
}

static const char *opcode_name(const struct ibv_wc *wc)
{
    return wc->opcode == IBV_WC_BIND_MW     ? "a bind"
           : wc->opcode == IBV_WC_LOCAL_INV ? "an invalidation"
           : wc->opcode == IBV_WC_RECV      ? "a message"
                                            : "something else";
}

/* Answers with the result of one access to the window, from its start. */
static void answer_access(const char *what, struct view *v, enum ibv_wr_opcode op, uint64_t at,
                          uint32_t key)
{
    NEED(send_to(&v->a, 1, op, 16, SIGNALED, at, key) == 0);
    answer_wc(what, v->a.scq);
}

static uint64_t start_of(const struct view *v)
{
    return (uintptr_t)v->b.buf + WINDOW_AT;
}

#define BINDABLE (ALL_RIGHTS | IBV_ACCESS_MW_BIND)
#define WREMOTE  IBV_ACCESS_REMOTE_WRITE
#define RREMOTE  IBV_ACCESS_REMOTE_READ

static void windows(void)
{
    struct end e = {0};
    struct ibv_device_attr attr;

    end_open(&e, false);
    NEED(ibv_query_device(e.ctx, &attr) == 0);
    answer("the device says: %s%s%s%s", attr.max_mw > 0 ? "windows" : "none",
           attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW ? ", type 1" : "",
           attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A ? ", type 2A" : "",
           attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B ? ", type 2B" : "");
    struct ibv_mw *one = ibv_alloc_mw(e.pd, IBV_MW_TYPE_1);
    answer("type 1: %s", pointer_result(one));
    struct ibv_mw *two = ibv_alloc_mw(e.pd, IBV_MW_TYPE_2);
    answer("type 2: %s", pointer_result(two));
    if (!one || !two)
        return;
    answer("keys are %s", one->rkey == two->rkey ? "the same" : "different");
    answer("freeing: %s, %s", result(ibv_dealloc_mw(one)), result(ibv_dealloc_mw(two)));
}

static void window_use(void)
{
    struct ibv_wc wc;

    struct view *v = view_open(BINDABLE);
    uint32_t key = ibv_inc_rkey(v->mw->rkey);
    answer("binding: %s",
           result(post_bind(&v->b, v->mw, key, v->b.mr, start_of(v), WINDOW_SIZE, WREMOTE)));
    NEED(next_wc(v->b.scq, &wc, WAIT_MS));
    answer("bound: %s, told as %s", status_name(wc.status), opcode_name(&wc));
    answer("deregistering the region below: %s", result(ibv_dereg_mr(v->b.mr)));
    answer_access("a write through it", v, WRITE, start_of(v), key);
    answer_access("a write past its end", v, WRITE, start_of(v) + WINDOW_SIZE - 8, key);
}

static void window_before(void)
{
    struct view *v = view_open(BINDABLE);

    bind_view(v, WREMOTE);
    answer_access("requester", v, WRITE, start_of(v) - 8, v->mw->rkey);
}

static void window_beyond_region(void)
{
    struct view *v = view_open(BINDABLE);

    bind_view(v, WREMOTE);
    answer_access("requester", v, WRITE, (uintptr_t)v->b.buf + END_SIZE - 8, v->mw->rkey);
    answer("states %s and %s", end_state(&v->a), end_state(&v->b));
    answer_async("responder", &v->b);
}

static void window_rights(void)
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
        struct view *v = view_open(BINDABLE);

        bind_view(v, tries[i].rights);
        answer_access(tries[i].what, v, tries[i].op, start_of(v), v->mw->rkey);
    }
}

static void window_over_private(void)
{
    struct view *v = view_open(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);

    bind_view(v, WREMOTE | RREMOTE);
    answer_access("write through the window", v, WRITE, start_of(v), v->mw->rkey);
    answer_access("read through the window", v, READ, start_of(v), v->mw->rkey);
    answer_access("write by the region's key", v, WRITE, start_of(v), v->b.mr->rkey);
}

static void window_unbound(void)
{
    struct view *v = view_open(BINDABLE);

    answer_access("requester", v, WRITE, start_of(v), v->mw->rkey);
}

static void refused_bind(const char *what, int region_rights, uint64_t at, uint64_t length,
                         unsigned rights)
{
    struct view *v = view_open(region_rights);

    int ret = post_bind(&v->b, v->mw, ibv_inc_rkey(v->mw->rkey), v->b.mr,
                        (uintptr_t)v->b.buf + at, length, rights);
    if (ret)
        answer("%s: posting: %s", what, result(ret));
    else
        answer_wc(what, v->b.scq);
}

static void refused_binds(void)
{
    struct end e = {0};

    end_open(&e, false);
    if (!ibv_alloc_mw(e.pd, IBV_MW_TYPE_2)) {
        answer("there are none");
        return;
    }
    refused_bind("region without the right to bind", ALL_RIGHTS, WINDOW_AT, WINDOW_SIZE,
                 WREMOTE);
    refused_bind("to be written, where it cannot be locally", IBV_ACCESS_MW_BIND | RREMOTE,
                 WINDOW_AT, WINDOW_SIZE, WREMOTE);
    refused_bind("to be read, where nothing can be remotely", IBV_ACCESS_MW_BIND, WINDOW_AT,
                 WINDOW_SIZE, RREMOTE);
    refused_bind("before the region's start", BINDABLE, -8ull, WINDOW_SIZE, WREMOTE);
    refused_bind("beyond the region's end", BINDABLE, END_SIZE - 8, 16, WREMOTE);
    refused_bind("all of the region", BINDABLE, 0, END_SIZE, WREMOTE);
    refused_bind("of no bytes", BINDABLE, WINDOW_AT, 0, WREMOTE);
}

static void bound_twice(void)
{
    struct view *v = view_open(BINDABLE);

    bind_view(v, WREMOTE);
    NEED(post_bind(&v->b, v->mw, ibv_inc_rkey(v->mw->rkey), v->b.mr, start_of(v), WINDOW_SIZE,
                   WREMOTE) == 0);
    answer_wc("second bind", v->b.scq);
    answer("state %s", end_state(&v->b));
}

static void bound_by_old_key(void)
{
    struct view *v = view_open(BINDABLE);

    uint32_t first = v->mw->rkey;
    bind_view(v, WREMOTE);
    NEED(post_invalidate(&v->b, IBV_WR_LOCAL_INV, v->mw->rkey) == 0);
    answer_wc("invalidated", v->b.scq);
    v->mw->rkey = first;
    NEED(post_bind(&v->b, v->mw, first + 2, v->b.mr, start_of(v), WINDOW_SIZE, WREMOTE) == 0);
    answer_wc("the structure has the key before the last", v->b.scq);
}

static void bound_of_other_domain(void)
{
    struct view *v = view_open(BINDABLE);

    struct ibv_pd *pd = ibv_alloc_pd(v->b.ctx);
    struct ibv_mw *mw = pd ? ibv_alloc_mw(pd, IBV_MW_TYPE_2) : NULL;
    NEED(mw);
    NEED(post_bind(&v->b, mw, ibv_inc_rkey(mw->rkey), v->b.mr, start_of(v), WINDOW_SIZE,
                   WREMOTE) == 0);
    answer_wc("bind", v->b.scq);
    answer("deallocating the domain: %s", result(ibv_dealloc_pd(pd)));
}

static void of_another_pair(void)
{
    struct view *v = view_open(BINDABLE);
    struct end c = {0}, d = {.with = &v->b};

    ends_open(&c, &d);
    bind_view(v, WREMOTE);
    NEED(send_to(&c, 1, WRITE, 16, SIGNALED, start_of(v), v->mw->rkey) == 0);
    answer_wc("write by another connection", c.scq);
    NEED(send_to(&v->a, 1, WRITE, 16, SIGNALED, start_of(v), v->mw->rkey) == 0);
    answer_wc("write by the one it is bound to", v->a.scq);
}

static void local_invalidate(void)
{
    struct ibv_wc wc;

    struct view *v = view_open(BINDABLE);
    bind_view(v, WREMOTE);
    answer_access("write", v, WRITE, start_of(v), v->mw->rkey);
    answer("posting: %s", result(post_invalidate(&v->b, IBV_WR_LOCAL_INV, v->mw->rkey)));
    NEED(next_wc(v->b.scq, &wc, WAIT_MS));
    answer("invalidated: %s, told as %s", status_name(wc.status), opcode_name(&wc));
    answer("deregistering the region below: %s", result(ibv_dereg_mr(v->b.mr)));
    answer_access("write then", v, WRITE, start_of(v), v->mw->rkey);
    answer("freeing the window: %s", result(ibv_dealloc_mw(v->mw)));
}

static void remote_invalidate(void)
{
    struct ibv_wc wc;

    struct view *v = view_open(BINDABLE);
    bind_view(v, WREMOTE);
    NEED(receive(&v->b, 2, 64) == 0);
    answer("posting: %s", result(post_invalidate(&v->a, IBV_WR_SEND_WITH_INV, v->mw->rkey)));
    answer_wc("sender", v->a.scq);
    NEED(next_wc(v->b.rcq, &wc, WAIT_MS));
    answer("receiver: %s, told as %s of %u bytes, %s", status_name(wc.status), opcode_name(&wc),
           wc.byte_len,
           wc.wc_flags & IBV_WC_WITH_INV ? "with invalidation" : "not as an invalidation");
    answer("the key is %s", wc.invalidated_rkey == v->mw->rkey ? "right" : "wrong");
    answer_access("write then", v, WRITE, start_of(v), v->mw->rkey);
}

static void bound_again(void)
{
    struct view *v = view_open(BINDABLE);

    bind_view(v, WREMOTE);
    uint32_t old = v->mw->rkey;
    NEED(post_invalidate(&v->b, IBV_WR_LOCAL_INV, old) == 0);
    answer_wc("invalidated", v->b.scq);
    bind_view(v, WREMOTE);
    answer("the keys differ in %s",
           (old ^ v->mw->rkey) & ~0xffu ? "more than the last byte" : "the last byte");
    answer_access("write by the new key", v, WRITE, start_of(v), v->mw->rkey);
    answer_access("write by the old key", v, WRITE, start_of(v), old);
}

static void invalidate_nothing(void)
{
    static const char *const what[] = {"region", "window of type 1", "no window at all"};

    for (unsigned i = 0; i < 3; i++) {
        struct view *v = view_open(BINDABLE);

        struct ibv_mw *one = ibv_alloc_mw(v->b.pd, IBV_MW_TYPE_1);
        NEED(one);
        uint32_t key = i == 0 ? v->b.mr->rkey : i == 1 ? one->rkey : v->mw->rkey ^ 0x00770000;
        NEED(post_invalidate(&v->b, IBV_WR_LOCAL_INV, key) == 0);
        answer_wc(what[i], v->b.scq);
    }
}

static void remote_invalidate_nothing(void)
{
    for (unsigned i = 0; i < 2; i++) {
        struct view *v = view_open(BINDABLE);

        NEED(receive(&v->b, 2, 64) == 0);
        NEED(post_invalidate(&v->a, IBV_WR_SEND_WITH_INV,
                             i ? v->mw->rkey ^ 0x00770000 : v->b.mr->rkey) == 0);
        answer("%s", i ? "no window at all" : "region");
        answer_wc("sender", v->a.scq);
        answer_wc("receiver", v->b.rcq);
        answer("states %s and %s", end_state(&v->a), end_state(&v->b));
        if (!i)
            answer_access("write by the region's key", v, WRITE, start_of(v), v->b.mr->rkey);
    }
}

static void zero_based(void)
{
    struct view *v = view_open(BINDABLE);

    uint32_t key = ibv_inc_rkey(v->mw->rkey);
    int ret = post_bind(&v->b, v->mw, key, v->b.mr, start_of(v), WINDOW_SIZE,
                        WREMOTE | IBV_ACCESS_ZERO_BASED);
    answer("binding: %s", result(ret));
    if (ret)
        return;
    answer_wc("bound", v->b.scq);
    strcpy((char *)v->a.buf, "zero");
    NEED(send_to(&v->a, 1, WRITE, 16, SIGNALED, 64, key) == 0);
    answer_wc("write at its 64th byte", v->a.scq);
    answer("it is there: %s",
           strcmp((char *)v->b.buf + WINDOW_AT + 64, "zero") == 0 ? "yes" : "no");
}

static void type_1(void)
{
    struct end a = {0}, b = {.rights = BINDABLE};

    ends_open(&a, &b);
    struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
    if (!mw) {
        answer("there are none");
        return;
    }
    uint32_t first = mw->rkey;
    struct ibv_mw_bind bind = {
        .wr_id = 3,
        .send_flags = SIGNALED,
        .bind_info = {b.mr, (uintptr_t)b.buf + WINDOW_AT, WINDOW_SIZE, WREMOTE}};
    answer("binding: %s", result(ibv_bind_mw(b.qp, mw, &bind)));
    answer_wc("bound", b.scq);
    answer("the key %s", mw->rkey == first                 ? "is as it was"
                         : mw->rkey == ibv_inc_rkey(first) ? "is the next"
                                                           : "is another");
    uint32_t bound = mw->rkey;
    NEED(send_to(&a, 1, WRITE, 16, SIGNALED, (uintptr_t)b.buf + WINDOW_AT, bound) == 0);
    answer_wc("write through it", a.scq);
    bind.bind_info.addr = (uintptr_t)b.buf;
    answer("binding it to another range: %s", result(ibv_bind_mw(b.qp, mw, &bind)));
    answer_wc("bound", b.scq);
    NEED(send_to(&a, 1, WRITE, 16, SIGNALED, (uintptr_t)b.buf, mw->rkey) == 0);
    answer_wc("write by the new key", a.scq);
    bind.bind_info.length = 0;
    answer("binding it to nothing: %s", result(ibv_bind_mw(b.qp, mw, &bind)));
    answer_wc("bound", b.scq);
    answer("deregistering the region: %s", result(ibv_dereg_mr(b.mr)));
    NEED(send_to(&a, 1, WRITE, 16, SIGNALED, (uintptr_t)b.buf, mw->rkey) == 0);
    answer_wc("write then", a.scq);
}

static void type_1_request(void)
{
    struct end a = {0}, b = {.rights = BINDABLE};

    ends_open(&a, &b);
    struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
    if (!mw) {
        answer("there are none");
        return;
    }
    answer("posting: %s", result(post_bind(&b, mw, ibv_inc_rkey(mw->rkey), b.mr,
                                           (uintptr_t)b.buf, 4096, WREMOTE)));
}

/* Posts a bind and the message with its key in one call, like programs that send keys. */
static void bind_and_tell(void)
{
    struct view *v = view_open(BINDABLE);

    uint32_t key = ibv_inc_rkey(v->mw->rkey);
    struct ibv_sge sge = {(uintptr_t)v->b.buf, 8, v->b.mr->lkey};
    struct ibv_send_wr tell = {.wr_id = 2,
                               .sg_list = &sge,
                               .num_sge = 1,
                               .opcode = SEND,
                               .send_flags = SIGNALED},
                       *bad;
    struct ibv_send_wr wr = {.wr_id = 1, .next = &tell, .opcode = IBV_WR_BIND_MW};

    memcpy(v->b.buf, &key, sizeof(key));
    NEED(receive(&v->a, 3, 64) == 0);
    wr.bind_mw.mw = v->mw;
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info =
        (struct ibv_mw_bind_info){v->b.mr, start_of(v), WINDOW_SIZE, WREMOTE};
    answer("posting: %s", result(ibv_post_send(v->b.qp, &wr, &bad)));
    answer_wc("receiver", v->a.rcq);
    memcpy(&key, v->a.buf, sizeof(key));
    answer_access("write by the key that it got", v, WRITE, start_of(v), key);
    answer_wcs("the binder", v->b.scq);
}

static void freed_while_bound(void)
{
    struct view *v = view_open(BINDABLE);

    bind_view(v, WREMOTE);
    uint32_t key = v->mw->rkey;
    answer("freeing: %s", result(ibv_dealloc_mw(v->mw)));
    answer("deregistering the region: %s", result(ibv_dereg_mr(v->b.mr)));
    NEED(send_to(&v->a, 1, WRITE, 16, SIGNALED, start_of(v), key) == 0);
    answer_wc("write then", v->a.scq);
}

static void domain_with_window(void)
{
    struct end e = {0};

    end_open(&e, false);
    struct ibv_pd *pd = ibv_alloc_pd(e.ctx);
    struct ibv_mw *mw = pd ? ibv_alloc_mw(pd, IBV_MW_TYPE_2) : NULL;
    if (!mw) {
        answer("there are none");
        return;
    }
    answer("with a window: %s", result(ibv_dealloc_pd(pd)));
    NEED(ibv_dealloc_mw(mw) == 0);
    answer("without: %s", result(ibv_dealloc_pd(pd)));
}

static void bind_in_reset(void)
{
    struct end e = {.rights = BINDABLE};

    end_open(&e, false);
    struct ibv_mw *mw = ibv_alloc_mw(e.pd, IBV_MW_TYPE_2);
    if (!mw) {
        answer("there are none");
        return;
    }
    answer("INIT: %s", result(post_bind(&e, mw, ibv_inc_rkey(mw->rkey), e.mr, (uintptr_t)e.buf,
                                        4096, WREMOTE)));
    NEED(end_to(&e, IBV_QPS_ERR) == 0);
    answer("ERR: %s", result(post_bind(&e, mw, ibv_inc_rkey(mw->rkey), e.mr, (uintptr_t)e.buf,
                                       4096, WREMOTE)));
    answer_wc("it", e.scq);
}

const struct question window_questions[] = {
    {"memory windows", windows},
    {"use of a memory window", window_use},
    {"write before the start of a window", window_before},
    {"write beyond the end of a window's region", window_beyond_region},
    {"rights of a window", window_rights},
    {"window over a region that grants nothing", window_over_private},
    {"window that is not bound", window_unbound},
    {"windows bound to this and that", refused_binds},
    {"window bound twice", bound_twice},
    {"window bound again", bound_again},
    {"window bound again, by a key that it had before", bound_by_old_key},
    {"window of another domain", bound_of_other_domain},
    {"window of another queue pair", of_another_pair},
    {"window invalidated by its owner", local_invalidate},
    {"window invalidated by its user", remote_invalidate},
    {"invalidating what is no window of type 2", invalidate_nothing},
    {"send that invalidates what is no window", remote_invalidate_nothing},
    {"window that counts from zero", zero_based},
    {"window of type 1", type_1},
    {"window of type 1, bound by a request", type_1_request},
    {"window bound and its key told in one call", bind_and_tell},
    {"window freed while it is bound", freed_while_bound},
    {"domain with a window", domain_with_window},
    {"binding by state", bind_in_reset},
    {NULL, NULL},
};
