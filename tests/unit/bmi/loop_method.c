/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bmi-method-callback.h"
#include "loop_method.h"
#include "patches/orangefs/shim/shim-engine.h"

struct loop_addr {
    bool dead;
    char name[64];
};

struct loop_op {
    struct method_op op;
    void *base[8];
    bmi_size_t length[8];
    int count;
    bmi_size_t total;
    bool done;
    bmi_error_code_t error;
    bmi_size_t actual;
    bmi_method_addr_p addr;
    struct loop_op *next;
};

struct loop_message {
    struct bmi_method_unexpected_info info;
    struct loop_message *next;
};

static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER, lock_b = PTHREAD_MUTEX_INITIALIZER;

struct loop loops[LOOPS] = {
    [LOOP_A] = {.scheme = "loopa", .lock = &lock_a},
    [LOOP_B] = {.scheme = "loopb", .lock = &lock_b},
};

void loop_reset(void)
{
    for (int i = 0; i < LOOPS; i++) {
        struct loop *l = &loops[i];
        l->initialize_error = l->context_error = l->set_info_error = l->test_error = 0;
        l->report_more = l->called_away = false;
        l->knows = NULL;
        l->on_query = NULL;
        l->on_lookup = NULL;
        l->initialized = l->finalized = l->lookups = l->drops = l->queries = l->cancels =
            l->freed = 0;
        l->asked = l->slept = 0;
        l->options[0] = l->listening[0] = '\0';
    }
}

static int loop_initialize(struct loop *l, bmi_method_addr_p listen, int method_id, int flags,
                           char *options)
{
    l->initialized++;
    if (l->initialize_error) {
        bmi_dealloc_method_addr(listen);
        return l->initialize_error;
    }
    snprintf(l->options, sizeof(l->options), "%s", options ? options : "");
    if (listen)
        snprintf(l->listening, sizeof(l->listening), "%s",
                 ((struct loop_addr *)listen->method_data)->name);
    l->listen = listen;
    l->flags = flags;
    l->method_id = method_id;
    return 0;
}

static int loop_finalize(struct loop *l)
{
    l->finalized++;
    for (struct loop_op *op = l->ops, *next; op; op = next) {
        next = op->next;
        free(op);
    }
    for (struct loop_message *m = l->unexpected, *next; m; m = next) {
        next = m->next;
        free(m->info.buffer);
        free(m);
    }
    l->ops = NULL;
    l->unexpected = NULL;
    l->contexts = 0;
    bmi_dealloc_method_addr(l->listen);
    l->listen = NULL;
    return 0;
}

static bmi_method_addr_p loop_lookup(struct loop *l, const char *text)
{
    char prefix[16];
    snprintf(prefix, sizeof(prefix), "%s://", l->scheme);
    const char *at = strstr(text, prefix);

    l->lookups++;
    if (!at)
        return NULL;
    if (l->on_lookup)
        l->on_lookup();
    if (strstr(at, "same") && l->last_lookup) {
        l->last_lookup_refs++;
        return l->last_lookup;
    }
    bmi_method_addr_p addr = bmi_alloc_method_addr(l->method_id, sizeof(struct loop_addr));
    struct loop_addr *data = addr->method_data;
    snprintf(data->name, sizeof(data->name), "%s", at);
    if (strstr(at, "same")) {
        l->last_lookup = addr;
        l->last_lookup_refs = 1;
    }
    return addr;
}

static int loop_set_info(struct loop *l, int option, void *value)
{
    if (option != BMI_DROP_ADDR)
        return l->set_info_error;
    l->drops++;
    if (value == l->last_lookup) {
        if (--l->last_lookup_refs > 0)
            return 0;
        l->last_lookup = NULL;
    }
    bmi_dealloc_method_addr(value);
    return 0;
}

static int loop_get_info(struct loop *l, int option, void *value)
{
    struct method_drop_addr_query *query = value;

    switch (option) {
    case BMI_CHECK_MAXSIZE:
        *(int *)value = l == &loops[LOOP_A] ? 1000 : 500;
        return 0;
    case BMI_GET_UNEXP_SIZE:
        *(int *)value = 100;
        return 0;
    case BMI_TCP_GET_PORT:
        *(int *)value = l->port;
        return l->port ? 0 : -ENOTCONN;
    case BMI_DROP_ADDR_QUERY:
        l->queries++;
        if (l->on_query)
            l->on_query(query->addr);
        query->response = ((struct loop_addr *)query->addr->method_data)->dead;
        return 0;
    case SHIM_KNOWS_OPTION:
        return l->knows && strcmp(value, l->knows) ? -BMI_ENOENT : 0;
    default:
        return -ENOSYS;
    }
}

static bool matches(const struct loop_op *a, const struct loop_op *b)
{
    return a->addr == b->addr && a->op.msg_tag == b->op.msg_tag &&
           a->op.send_recv != b->op.send_recv && !a->done && !b->done;
}

/* Copies piece by piece; both sides may be lists. */
static void transfer(struct loop_op *send, struct loop_op *recv)
{
    bmi_size_t at = 0;
    if (send->total > recv->total) {
        send->error = recv->error = -BMI_EMSGSIZE;
    } else {
        char *flat = malloc((size_t)send->total + 1);
        for (int i = 0; i < send->count; at += send->length[i++])
            memcpy(flat + at, send->base[i], (size_t)send->length[i]);
        at = 0;
        for (int i = 0; i < recv->count && at < send->total; i++) {
            bmi_size_t n =
                recv->length[i] < send->total - at ? recv->length[i] : send->total - at;
            memcpy(recv->base[i], flat + at, (size_t)n);
            at += n;
        }
        free(flat);
        send->actual = recv->actual = send->total;
    }
    send->done = recv->done = true;
}

static int loop_post(struct loop *l, enum bmi_op_type type, bmi_op_id_t *id,
                     bmi_method_addr_p addr, const void *const *buffers,
                     const bmi_size_t *sizes, int count, bmi_size_t total, bmi_msg_tag_t tag,
                     void *user, bmi_context_id context)
{
    struct loop_op *op = calloc(1, sizeof(*op)), **tail;

    op->op.op_id = (bmi_op_id_t)(uintptr_t)op;
    op->op.send_recv = type;
    op->op.user_ptr = user;
    op->op.msg_tag = tag;
    op->op.context_id = context;
    op->addr = addr;
    op->count = count;
    op->total = total;
    for (int i = 0; i < count; i++) {
        op->base[i] = (void *)buffers[i];
        op->length[i] = sizes[i];
    }
    *id = op->op.op_id;
    pthread_mutex_lock(l->lock);
    struct loop_op *other = l->ops;
    while (other && !matches(op, other))
        other = other->next;
    if (other)
        transfer(type == BMI_SEND ? op : other, type == BMI_SEND ? other : op);
    for (tail = &l->ops; *tail; tail = &(*tail)->next)
        ;
    *tail = op;
    pthread_mutex_unlock(l->lock);
    return 0;
}

static struct loop_message *new_message(bmi_method_addr_p peer, int tag, bmi_size_t size)
{
    struct loop_message *m = calloc(1, sizeof(*m));
    m->info = (struct bmi_method_unexpected_info){
        .addr = peer, .buffer = malloc((size_t)size + 1), .size = size, .tag = tag};
    memset(m->info.buffer, tag, (size_t)size);
    return m;
}

void loop_peer_sends(struct loop *l, bmi_method_addr_p peer, int tag, int size)
{
    struct loop_message *m = new_message(peer, tag, size), **tail;
    pthread_mutex_lock(l->lock);
    for (tail = &l->unexpected; *tail; tail = &(*tail)->next)
        ;
    *tail = m;
    pthread_mutex_unlock(l->lock);
}

bmi_method_addr_p loop_new_peer(struct loop *l, const char *name, bool known)
{
    bmi_method_addr_p peer = bmi_alloc_method_addr(l->method_id, sizeof(struct loop_addr));
    snprintf(((struct loop_addr *)peer->method_data)->name, 64, "%s", name);
    if (known)
        bmi_method_addr_reg_callback(peer);
    return peer;
}

void loop_peer_dies(bmi_method_addr_p peer)
{
    ((struct loop_addr *)peer->method_data)->dead = true;
}

static void pass_idle_time(struct loop *l, int found, int idle_ms)
{
    l->asked++;
    if (found == 0 && idle_ms > 0 && !l->called_away) {
        const struct timespec t = {.tv_nsec = idle_ms * 1000000L};
        l->slept += idle_ms;
        nanosleep(&t, NULL);
    }
}

/* Removes up to `max` finished operations from the list: of a context, or with an id among
 * `ids`. */
static int collect(struct loop *l, int max, const bmi_op_id_t *ids, int count,
                   bmi_context_id context, bmi_op_id_t *out, int *index,
                   bmi_error_code_t *error, bmi_size_t *actual, void **user)
{
    int n = 0;
    pthread_mutex_lock(l->lock);
    for (struct loop_op **at = &l->ops; *at && n < max;) {
        struct loop_op *op = *at;
        int i = 0;
        while (ids && i < count && ids[i] != op->op.op_id)
            i++;
        if (!op->done || (ids ? i == count : op->op.context_id != context)) {
            at = &op->next;
            continue;
        }
        *at = op->next;
        if (out)
            out[n] = op->op.op_id;
        if (index)
            index[n] = i;
        if (user)
            user[n] = op->op.user_ptr;
        error[n] = op->error;
        actual[n] = op->actual;
        n++;
        free(op);
    }
    pthread_mutex_unlock(l->lock);
    return n;
}

static int loop_testsome(struct loop *l, int incount, const bmi_op_id_t *ids, int *outcount,
                         int *index, bmi_error_code_t *error, bmi_size_t *actual, void **user,
                         int idle_ms)
{
    if (l->test_error)
        return l->test_error;
    *outcount = collect(l, incount, ids, incount, 0, NULL, index, error, actual, user);
    pass_idle_time(l, *outcount, idle_ms);
    return 0;
}

static int loop_testcontext(struct loop *l, int incount, bmi_op_id_t *ids, int *outcount,
                            bmi_error_code_t *error, bmi_size_t *actual, void **user,
                            int idle_ms, bmi_context_id context)
{
    if (l->test_error)
        return l->test_error;
    *outcount = collect(l, incount, NULL, 0, context, ids, NULL, error, actual, user);
    pass_idle_time(l, *outcount, idle_ms);
    return l->report_more;
}

static int loop_testunexpected(struct loop *l, int incount, int *outcount,
                               struct bmi_method_unexpected_info *info, int idle_ms)
{
    int n = 0;
    if (l->test_error)
        return l->test_error;
    pthread_mutex_lock(l->lock);
    while (n < incount && l->unexpected) {
        struct loop_message *m = l->unexpected;
        l->unexpected = m->next;
        info[n++] = m->info;
        free(m);
    }
    pthread_mutex_unlock(l->lock);
    *outcount = n;
    pass_idle_time(l, n, idle_ms);
    return 0;
}

static int loop_unexpected_free(struct loop *l, void *buffer)
{
    l->freed++;
    free(buffer);
    return 0;
}

static int loop_open_context(struct loop *l, bmi_context_id context)
{
    if (l->context_error)
        return l->context_error;
    l->contexts |= 1u << context;
    return 0;
}

static void loop_close_context(struct loop *l, bmi_context_id context)
{
    l->contexts &= ~(1u << context);
}

static int loop_cancel(struct loop *l, bmi_op_id_t id)
{
    pthread_mutex_lock(l->lock);
    for (struct loop_op *op = l->ops; op; op = op->next) {
        if (op->op.op_id == id && !op->done) {
            l->cancels++;
            op->done = true;
            op->error = -BMI_ECANCEL;
        }
    }
    pthread_mutex_unlock(l->lock);
    return 0;
}

static int loop_query_range(bmi_method_addr_p addr, const char *pattern, int netmask)
{
    (void)netmask;
    return strstr(pattern, ((struct loop_addr *)addr->method_data)->name) != NULL;
}

#define LOOP         bmi_loopa_ops
#define SELF         (&loops[LOOP_A])
#define PREFIX(name) a_##name
#define LOOP_NAME    "bmi_loopa"
#include "loop_table.h"
#undef LOOP
#undef SELF
#undef PREFIX
#undef LOOP_NAME
#define LOOP         bmi_loopb_ops
#define SELF         (&loops[LOOP_B])
#define PREFIX(name) b_##name
#define LOOP_NAME    "bmi_loopb"
#include "loop_table.h"

struct bmi_method_ops *const bmi_static_methods[] = {&bmi_loopa_ops, &bmi_loopb_ops, NULL};
