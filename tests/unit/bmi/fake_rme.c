/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_rme.h"
#include "op/op.h"

struct rme_addr {
    char name[128];
    atomic_bool dead;
    void *_Atomic host;
};

#define NO_CTX 255 /* closed */

struct message {
    struct rme_unexpected what;
    struct message *next;
};

struct rme {
    rme_log_fn log;
    void *log_arg;
    pthread_mutex_t lock;
    struct rme_op_table table; /* the engine's */
    struct list_head ops;
    struct message *messages, *given; /* waiting; held by the host */
};

struct fake fake;
static struct rme *engine;

/* Innermost lock, held during forks, of all engines: as that of bmi_elan4 (kernel.h). */
static pthread_mutex_t fabric_lock = PTHREAD_MUTEX_INITIALIZER;

static void hold_fabric(void)
{
    pthread_mutex_lock(&fabric_lock);
}

static void release_fabric(void)
{
    pthread_mutex_unlock(&fabric_lock);
}

static void guard_fabric(void)
{
    (void)pthread_atfork(hold_fabric, release_fabric, release_fabric);
}

void fake_reset(void)
{
    memset(&fake, 0, sizeof(fake));
}

void fake_log(enum rme_log_level level, const char *line)
{
    engine->log(engine->log_arg, level, line);
}

int rme_open(const struct rme_config *config, struct rme **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (fake.open_error) {
        config->log(config->log_arg, RME_LOG_ERROR, strerror(-fake.open_error));
        return fake.open_error;
    }
    pthread_once(&once, guard_fabric);
    struct rme *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -ENOMEM;
    r->log = config->log;
    r->log_arg = config->log_arg;
    rme_op_table_init(&r->table, config->op_template, config->op_size);
    list_init(&r->ops);
    pthread_mutex_init(&r->lock, NULL);
    snprintf(fake.options, sizeof(fake.options), "%s",
             config->options != NULL ? config->options : "(none)");
    snprintf(fake.listening, sizeof(fake.listening), "%s",
             config->listen != NULL ? config->listen->name : "(nowhere)");
    fake.bind_specific = config->bind_specific;
    fake.contexts = 0;
    fake.engines++;
    engine = *out = r;
    return 0;
}

static void free_messages(struct message *m)
{
    for (struct message *next; m; m = next) {
        next = m->next;
        free(m->what.buffer);
        free(m);
    }
}

/* Checked first by each call that needs the engine's lock, like in the engine. */
static bool in_child(void)
{
    return fake.forked;
}

void rme_close(struct rme *r)
{
    if (in_child())
        return;
    rme_op_table_clear(&r->table);
    free_messages(r->messages);
    free_messages(r->given);
    pthread_mutex_destroy(&r->lock);
    free(r);
    fake.engines--;
    engine = NULL;
}

static struct rme_addr *make_addr(const char *name)
{
    struct rme_addr *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return NULL;
    snprintf(a->name, sizeof(a->name), "%s", name);
    fake.addrs++;
    return a;
}

bool rme_addr_any_port(const struct rme_addr *addr)
{
    (void)addr;
    return false;
}

int rme_listen_port(const struct rme *r)
{
    (void)r;
    return fake.listen_port != 0 ? fake.listen_port : -ENOTCONN;
}

/* Returns two attributes, of an address that is "connected". */
int rme_session_get(struct rme *r, struct rme_addr *addr, int index, struct rme_counter *out)
{
    static const struct rme_counter attribute[] = {
        {.name = "eager_bytes", .unit = "bytes", .text = "largest", .value = 4444},
        {.name = "sends_eager", .unit = "messages", .text = "sent", .value = 7}};

    (void)r;
    if (index < 0 || index > 1)
        return -ENOENT;
    if (addr->dead)
        return -ENOTCONN;
    *out = attribute[index];
    return 0;
}

int rme_addr_parse(const char *scheme, const char *text, struct rme_addr **out)
{
    char prefix[32];
    snprintf(prefix, sizeof(prefix), "%s://", scheme);
    const char *at = strstr(text, prefix);
    if (at == NULL)
        return -EINVAL;
    if (strchr(at + strlen(prefix), ':') == NULL)
        return -EDESTADDRREQ;
    *out = make_addr("");
    if (*out == NULL)
        return -ENOMEM;
    /* the parts with the scheme, without what follows '/' */
    for (char *name = (*out)->name; at; at = strstr(at + 1, prefix)) {
        int length = (int)(strlen(prefix) + strcspn(at + strlen(prefix), "/, \t\n"));
        name += sprintf(name, "%s%.*s", name > (*out)->name ? "," : "", length, at);
    }
    return 0;
}

void rme_addr_free(struct rme_addr *addr)
{
    free(addr);
    fake.addrs--;
}

const char *rme_addr_name(const struct rme_addr *addr)
{
    return addr->name;
}

bool rme_option_known(const struct rme_fabric_ops *fabric, const char *name)
{
    (void)fabric;
    return strcmp(name, "rndv") == 0 || strcmp(name, "depth") == 0;
}

bool rme_addr_is_dead(const struct rme_addr *addr)
{
    return addr->dead;
}

bool rme_addr_is_over(const struct rme_addr *addr)
{
    bool over = addr->dead;

    if (in_child())
        return over;
    pthread_mutex_lock(&engine->lock);
    for (const struct message *m = engine->messages; m; m = m->next)
        over &= m->what.addr != addr;
    for (const struct message *m = engine->given; m; m = m->next)
        over &= m->what.addr != addr;
    hold_fabric(); /* the engine calls the fabric with its lock */
    release_fabric();
    pthread_mutex_unlock(&engine->lock);
    return over;
}

int rme_addr_match(const struct rme_addr *addr, const char *pattern, int netmask)
{
    if (strstr(pattern, "name") != NULL)
        return -EINVAL;
    return netmask < 0 && strstr(pattern, addr->name) != NULL;
}

int rme_addr_reach(struct rme *r, struct rme_addr *addr, int ms)
{
    (void)addr, (void)ms;
    fake.reaches++;
    if (fake.reach_result)
        r->log(r->log_arg, RME_LOG_NOTICE, strerror(-fake.reach_result));
    return fake.reach_result;
}

void rme_addr_set_host(struct rme_addr *addr, void *host)
{
    atomic_store(&addr->host, host);
}

void *rme_addr_host(const struct rme_addr *addr)
{
    return atomic_load(&addr->host);
}

int rme_context_open(struct rme *r, int ctx)
{
    (void)r;
    if (in_child())
        return -ENODEV;
    if (fake.contexts >> ctx & 1)
        return -EEXIST;
    fake.contexts |= 1u << ctx;
    return 0;
}

static void take(struct rme *r, struct rme_op *op)
{
    list_del_init(&op->of_peer);
    rme_op_recycle(&r->table, op);
}

/* Frees complete operations of closed contexts. */
static void drop(struct rme *r)
{
    for (struct list_head *at = r->ops.next, *next; at != &r->ops; at = next) {
        struct rme_op *op = container_of(at, struct rme_op, of_peer);
        next = at->next;
        if (op->state == RME_OP_DONE && op->ctx == NO_CTX)
            take(r, op);
    }
}

void rme_context_close(struct rme *r, int ctx)
{
    if (in_child())
        return;
    pthread_mutex_lock(&r->lock);
    fake.contexts &= ~(1u << ctx);
    for (struct list_head *at = r->ops.next; at != &r->ops; at = at->next)
        if (container_of(at, struct rme_op, of_peer)->ctx == ctx)
            container_of(at, struct rme_op, of_peer)->ctx = NO_CTX;
    drop(r);
    pthread_mutex_unlock(&r->lock);
}

static void call_once(void (**hook)(void))
{
    void (*call)(void) = *hook;
    if (call != NULL) {
        *hook = NULL;
        call();
    }
}

static int post(struct rme *r, struct rme_addr *addr, const struct rme_list *list, int32_t tag,
                int ctx, void *user, rme_id *id)
{
    *id = 0;
    if (in_child())
        return -ENODEV;
    if (fake.post_result)
        return fake.post_result;
    pthread_mutex_lock(&r->lock);
    struct rme_op *op = rme_op_new(&r->table, 0);
    if (op == NULL) {
        pthread_mutex_unlock(&r->lock);
        return -ENOMEM;
    }
    op->user = user;
    op->ctx = (uint8_t)ctx;
    op->state = fake.finish_at_once ? RME_OP_DONE : RME_OP_POSTED;
    list_add_tail(&op->of_peer, r->ops.next); /* the newest first */
    *id = fake.last_id = op->id;
    fake.last_list = *list;
    fake.last_tag = tag;
    fake.last_addr = addr;
    fake.operations++;
    pthread_mutex_unlock(&r->lock);
    call_once(&fake.on_post);
    return 0;
}

int rme_post_send(struct rme *r, struct rme_addr *addr, const struct rme_list *list,
                  int32_t tag, int ctx, void *user, rme_id *id)
{
    return post(r, addr, list, tag, ctx, user, id);
}

int rme_post_unexpected(struct rme *r, struct rme_addr *addr, const struct rme_list *list,
                        int32_t tag, int ctx, void *user, rme_id *id)
{
    int64_t total = 0;
    for (int i = 0; i < list->count; i++)
        total += list->length[i];
    return total > RME_UNEXPECTED_MAX ? -EMSGSIZE : post(r, addr, list, tag, ctx, user, id);
}

int rme_post_recv(struct rme *r, struct rme_addr *addr, const struct rme_list *list,
                  int32_t tag, int ctx, void *user, int64_t *actual, rme_id *id)
{
    (void)actual;
    return post(r, addr, list, tag, ctx, user, id);
}

void fake_complete(rme_id id, int error, int64_t actual)
{
    pthread_mutex_lock(&engine->lock);
    struct rme_op *op = rme_op_find(&engine->table, id);
    if (op != NULL && op->state == RME_OP_POSTED) {
        op->state = RME_OP_DONE;
        op->error = error;
        op->size = (uint64_t)actual;
    }
    drop(engine);
    pthread_mutex_unlock(&engine->lock);
}

static void wait_ms(int found, int ms)
{
    const struct timespec t = {.tv_nsec = 1000000L};
    if (found == 0 && ms > 0) {
        fake.waited_ms += ms;
        nanosleep(&t, NULL);
    }
}

static int collect(struct rme *r, const rme_id *ids, int count, int ctx, int *index,
                   struct rme_done *done, int max, bool *live)
{
    int n = 0;
    *live = false;
    if (in_child())
        return -ENODEV;
    pthread_mutex_lock(&r->lock);
    *live = ids == NULL;
    for (struct list_head *at = r->ops.next, *next; at != &r->ops && n < max; at = next) {
        struct rme_op *op = container_of(at, struct rme_op, of_peer);
        int i = 0;
        next = at->next;
        while (ids != NULL && i < count && ids[i] != op->id)
            i++;
        if (ids != NULL ? i == count : op->ctx != ctx)
            continue;
        *live = true;
        if (op->state != RME_OP_DONE)
            continue;
        if (index != NULL)
            index[n] = i;
        done[n++] = (struct rme_done){.id = op->id,
                                      .user = op->user,
                                      .error = op->error,
                                      .actual = op->error ? 0 : (int64_t)op->size};
        take(r, op);
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}

int rme_test_some(struct rme *r, const rme_id *ids, int count, int *index,
                  struct rme_done *done, int ms)
{
    bool live;
    int n = collect(r, ids, count, 0, index, done, count, &live);
    wait_ms(n, live ? ms : 0);
    return n;
}

int rme_test_context(struct rme *r, int ctx, struct rme_done *done, int max, int ms)
{
    bool live;
    int n = collect(r, NULL, 0, ctx, NULL, done, max, &live);
    wait_ms(n, ms);
    return n;
}

struct rme_addr *fake_new_peer(const char *name)
{
    return make_addr(name);
}

void fake_peer_sends(struct rme_addr *peer, int32_t tag, int64_t size)
{
    struct message *m = calloc(1, sizeof(*m)), **at;
    m->what = (struct rme_unexpected){
        .addr = peer, .tag = tag, .size = size, .buffer = calloc(1, (size_t)size + 1)};
    pthread_mutex_lock(&engine->lock);
    for (at = &engine->messages; *at; at = &(*at)->next)
        ;
    *at = m;
    pthread_mutex_unlock(&engine->lock);
}

void fake_peer_dies(struct rme_addr *peer)
{
    peer->dead = true;
}

int rme_test_unexpected(struct rme *r, struct rme_unexpected *out, int max, int ms)
{
    int n = 0;
    if (in_child())
        return -ENODEV;
    pthread_mutex_lock(&r->lock);
    while (n < max && r->messages != NULL && !fake.keeps_messages) {
        struct message *m = r->messages;
        r->messages = m->next;
        m->next = r->given;
        r->given = m;
        out[n++] = m->what;
    }
    pthread_mutex_unlock(&r->lock);
    if (n > 0)
        call_once(&fake.on_scan);
    else if (fake.on_none != NULL)
        fake.on_none();
    wait_ms(n, ms);
    return n;
}

int rme_unexpected_free(struct rme *r, void *buffer)
{
    int ret = -EINVAL;
    if (in_child())
        return -ENODEV;
    pthread_mutex_lock(&r->lock);
    for (struct message **at = &r->given; *at; at = &(*at)->next) {
        struct message *m = *at;
        if (m->what.buffer != buffer)
            continue;
        *at = m->next;
        free(m->what.buffer);
        free(m);
        ret = 0;
        break;
    }
    pthread_mutex_unlock(&r->lock);
    return ret;
}

int rme_cancel(struct rme *r, rme_id id)
{
    if (in_child())
        return -ENODEV;
    pthread_mutex_lock(&r->lock);
    fake.cancels += rme_op_find(&r->table, id) != NULL;
    pthread_mutex_unlock(&r->lock);
    fake_complete(id, -ECANCELED, 0);
    return 0;
}

void rme_set_forceful_cancel(struct rme *r)
{
    (void)r;
    fake.forceful++;
}

void *rme_memory_alloc(struct rme *r, size_t size)
{
    (void)r;
    return aligned_alloc(64, (size + 64) & ~(size_t)63);
}

int rme_memory_free(struct rme *r, void *memory)
{
    (void)r;
    if (memory == NULL)
        return -EINVAL;
    free(memory);
    return 0;
}

void rme_memory_hint(struct rme *r, const void *memory, size_t size,
                     enum rme_direction direction)
{
    (void)r;
    (void)memory;
    fake.hints++;
    fake.hinted = size;
    fake.hint_direction = direction;
}

static const struct rme_fabric_ops *fake_fabric(void)
{
    return NULL;
}

#define SHIM_OPS             bmi_fake_ops
#define SHIM_SCHEME          "fake"
#define SHIM_FABRIC          fake_fabric
#define SHIM_FIRST_LOOKUP_MS 100
#include "patches/orangefs/shim/shim-table.h"
