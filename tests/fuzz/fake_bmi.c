/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fake_bmi.h"
#include "fuzz.h"

#include "embedded/bmi/core.h"
#include "embedded/bmi/gossip.h"
#include "embedded/iod/workers.h"

#define OPS      1024
#define MESSAGES 64

static struct {
    struct fake_op op[OPS];
    int top;                 /* operations from here on were never used */
    int waits[OPS], waiting; /* waiting operations, in order */
    int ended;               /* operations that ended and were not reported */
    bmi_op_id_t last_id;
    struct BMI_unexpected_info message[MESSAGES];
    int messages;
    BMI_addr_t last_addr;
    bool lost[1 << 12]; /* by address */
    int buffers;        /* allocated: messages and memory */
    uint64_t lent;      /* bytes of BMI_memalloc() */
    struct job *first, *last;
    struct fake_script script;
    uint64_t trace;
} fake;

/* Clears used entries only, because it runs before each input. */
void fake_begin(void)
{
    memset(fake.op, 0, (size_t)fake.top * sizeof(fake.op[0]));
    memset(fake.lost, 0, (size_t)(fake.last_addr + 1) * sizeof(fake.lost[0]));
    fake.top = fake.waiting = fake.ended = 0;
    fake.messages = fake.buffers = 0;
    fake.lent = 0;
    fake.last_id = 0;
    fake.last_addr = 0;
    fake.first = fake.last = NULL;
    fake.trace = 0;
    fake.script = (struct fake_script){0};
}

void fake_follow(const struct fake_script *script)
{
    fake.script = *script;
}

bool fake_end(void)
{
    if (fake.waiting > 0)
        return false;
    for (int i = 0; i < fake.messages; i++) {
        free(fake.message[i].buffer);
        fake.buffers--;
    }
    return fake.buffers == 0 && fake.first == NULL;
}

uint64_t fake_trace(void)
{
    return fake.trace;
}

BMI_addr_t fake_connect(int peer)
{
    (void)peer;
    FUZZ_CHECK(fake.last_addr + 1 < (1 << 12));
    return ++fake.last_addr;
}

/* ---- operations ---- */

int fake_waiting(void)
{
    return fake.waiting;
}

struct fake_op *fake_waiting_at(int n)
{
    return n < fake.waiting ? &fake.op[fake.waits[n]] : NULL;
}

static void wait_for(int slot)
{
    int i = fake.waiting++;

    for (; i > 0 && fake.waits[i - 1] > slot; i--)
        fake.waits[i] = fake.waits[i - 1];
    fake.waits[i] = slot;
}

static void stop_waiting(int slot)
{
    int i = 0;

    while (i < fake.waiting && fake.waits[i] != slot)
        i++;
    if (i == fake.waiting)
        return; /* not started yet */
    fake.ended++;
    fake.waiting--;
    for (; i < fake.waiting; i++)
        fake.waits[i] = fake.waits[i + 1];
}

void fake_finish(struct fake_op *op, bmi_error_code_t error, bmi_size_t actual)
{
    if (!op->ended)
        stop_waiting((int)(op - fake.op));
    op->ended = true;
    op->error = op->canceled ? -BMI_ECANCEL : error;
    op->actual = actual > op->size ? op->size : actual;
}

/* Copies bytes into the pieces of a receive. */
static void fill(const struct fake_op *op, const char *bytes, bmi_size_t size)
{
    for (int i = 0; i < op->pieces && size > 0; i++) {
        bmi_size_t step = size < op->piece[i].length ? size : op->piece[i].length;

        memcpy(op->piece[i].base, bytes, (size_t)step);
        bytes += step;
        size -= step;
    }
}

void fake_deliver(struct fake_op *op, const void *bytes, bmi_size_t size)
{
    if (size > op->size)
        size = op->size;
    if (!op->canceled)
        fill(op, bytes, size);
    fake_finish(op, 0, size);
}

void fake_lose(BMI_addr_t addr)
{
    for (int i = fake.waiting; i-- > 0;)
        if (addr == 0 || fake.op[fake.waits[i]].addr == addr)
            fake_finish(&fake.op[fake.waits[i]], -BMI_ECONNRESET, 0);
    if (addr)
        fake.lost[addr] = true;
}

/* Returns a free slot for an operation, or NULL. */
static struct fake_op *new_op(void)
{
    for (int i = 0; i < fake.top; i++)
        if (!fake.op[i].id)
            return &fake.op[i];
    return fake.top < OPS ? &fake.op[fake.top++] : NULL;
}

/* Posts an operation with the values of `wanted`, except its id. */
static int post(bmi_op_id_t *id, const struct fake_op *wanted, bmi_size_t *actual)
{
    struct fake_op *op = fake.lost[wanted->addr] ? NULL : new_op();
    int result;

    if (fake.lost[wanted->addr])
        return -BMI_ECONNRESET;
    if (op == NULL)
        return -BMI_ENOMEM;
    *op = *wanted;
    op->id = ++fake.last_id;
    op->memory = op->piece[0].base;
    fuzz_note(&fake.trace, (uint64_t)op->addr << 34 | (uint64_t)op->send << 33 |
                               (uint64_t)op->unexpected << 32 | (uint32_t)op->tag);
    fuzz_note(&fake.trace, (uint64_t)op->size);
    result = fake.script.posted != NULL ? fake.script.posted(op) : 0;
    *id = op->id;
    if (result == 0) {
        wait_for((int)(op - fake.op));
        return 0;
    }
    if (result > 0 && actual != NULL)
        *actual = op->actual;
    op->id = 0;
    return result;
}

int BMI_post_send(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                  enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                  bmi_context_id context, bmi_hint hints)
{
    struct fake_op op = {.addr = dest, .send = true, .size = size, .tag = tag, .user = user};

    (void)type, (void)context, (void)hints;
    op.pieces = 1;
    op.piece[0].base = (void *)(uintptr_t)buffer;
    op.piece[0].length = size;
    return post(id, &op, NULL);
}

int BMI_post_sendunexpected(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer,
                            bmi_size_t size, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                            void *user, bmi_context_id context, bmi_hint hints)
{
    struct fake_op op = {
        .addr = dest, .send = true, .unexpected = true, .size = size, .tag = tag, .user = user};

    (void)type, (void)context, (void)hints;
    op.pieces = 1;
    op.piece[0].base = (void *)(uintptr_t)buffer;
    op.piece[0].length = size;
    return post(id, &op, NULL);
}

int BMI_post_recv(bmi_op_id_t *id, BMI_addr_t src, void *buffer, bmi_size_t size,
                  bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                  bmi_context_id context, bmi_hint hints)
{
    struct fake_op op = {.addr = src, .size = size, .tag = tag, .user = user, .pieces = 1};

    (void)type, (void)context, (void)hints;
    op.piece[0].base = buffer;
    op.piece[0].length = size;
    return post(id, &op, actual);
}

static int post_list(bmi_op_id_t *id, struct fake_op *op, void *const *buffers,
                     const bmi_size_t *sizes, int count, bmi_size_t *actual)
{
    FUZZ_CHECK(count <= FAKE_PIECES);
    op->pieces = count;
    for (int i = 0; i < count; i++) {
        op->piece[i].base = buffers[i];
        op->piece[i].length = sizes[i];
    }
    return post(id, op, actual);
}

int BMI_post_send_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *buffers,
                       const bmi_size_t *sizes, int count, bmi_size_t total,
                       enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                       bmi_context_id context, bmi_hint hints)
{
    struct fake_op op = {.addr = dest, .send = true, .size = total, .tag = tag, .user = user};

    (void)type, (void)context, (void)hints;
    return post_list(id, &op, (void *const *)(uintptr_t)buffers, sizes, count, NULL);
}

int BMI_post_recv_list(bmi_op_id_t *id, BMI_addr_t src, void *const *buffers,
                       const bmi_size_t *sizes, int count, bmi_size_t total, bmi_size_t *actual,
                       enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                       bmi_context_id context, bmi_hint hints)
{
    struct fake_op op = {.addr = src, .size = total, .tag = tag, .user = user};

    (void)type, (void)context, (void)hints;
    return post_list(id, &op, buffers, sizes, count, actual);
}

int BMI_cancel(bmi_op_id_t id, bmi_context_id context)
{
    (void)context;
    for (int i = 0; i < fake.top; i++)
        if (fake.op[i].id == id)
            fake.op[i].canceled = true; /* ends when the script ends it */
    fuzz_note(&fake.trace, (uint64_t)id);
    return 0;
}

int BMI_testcontext(int count, bmi_op_id_t *id, int *outcount, bmi_error_code_t *error,
                    bmi_size_t *actual, void **user, int idle_ms, bmi_context_id context)
{
    int n = 0;

    (void)context;
    if (fake.script.refuses != NULL && fake.script.refuses(false))
        return -BMI_ENOMEM;
    if (fake.script.poll != NULL)
        fake.script.poll(idle_ms);
    for (int i = 0; i < fake.top && n < count && fake.ended > 0; i++) {
        struct fake_op *op = &fake.op[i];

        if (!op->id || !op->ended)
            continue;
        fake.ended--;
        fuzz_note(&fake.trace, (uint64_t)op->id << 32 | (uint32_t)op->error);
        id[n] = op->id;
        error[n] = op->error;
        actual[n] = op->actual;
        user[n++] = op->user;
        op->id = 0;
    }
    *outcount = n;
    return 0;
}

/* ---- unexpected messages ---- */

void fake_unexpected(BMI_addr_t addr, const void *bytes, bmi_size_t size, bmi_msg_tag_t tag)
{
    struct BMI_unexpected_info *info = &fake.message[fake.messages];

    if (fake.messages == MESSAGES || fake.lost[addr])
        return;
    *info = (struct BMI_unexpected_info){.addr = addr, .size = size, .tag = tag};
    /* exact size, so that reads beyond it are detected */
    info->buffer = malloc(size ? (size_t)size : 1);
    FUZZ_CHECK(info->buffer);
    if (size)
        memcpy(info->buffer, bytes, (size_t)size);
    fake.buffers++;
    fake.messages++;
}

int BMI_testunexpected(int count, int *outcount, struct BMI_unexpected_info *info, int idle_ms)
{
    int n = fake.messages < count ? fake.messages : count;

    (void)idle_ms;
    memcpy(info, fake.message, (size_t)n * sizeof(*info));
    memmove(fake.message, fake.message + n, (size_t)(fake.messages - n) * sizeof(*info));
    fake.messages -= n;
    *outcount = n;
    return 0;
}

int BMI_unexpected_free(BMI_addr_t addr, void *buffer)
{
    (void)addr;
    free(buffer);
    fake.buffers--;
    return 0;
}

/* ---- the rest ---- */

int BMI_initialize(const char *methods, const char *listen, int flags, char *options)
{
    (void)methods, (void)listen, (void)flags, (void)options;
    return 0;
}

int BMI_finalize(void)
{
    return 0;
}

int BMI_open_context(bmi_context_id *context)
{
    *context = 0;
    return 0;
}

void BMI_close_context(bmi_context_id context)
{
    (void)context;
}

int BMI_addr_lookup(BMI_addr_t *addr, const char *text, char *options)
{
    (void)options;
    *addr = fake_connect(0);
    return fake.script.lookup != NULL ? fake.script.lookup(*addr, text) : 0;
}

/* Returns a host for each two peers. */
const char *BMI_addr_rev_lookup_unexpected(BMI_addr_t addr)
{
    static char name[64];

    snprintf(name, sizeof(name), "10.0.0.%d:%d", (int)(addr / 2 % 200), (int)addr);
    return name;
}

void *BMI_memalloc(BMI_addr_t addr, bmi_size_t size, enum bmi_op_type way)
{
    (void)addr, (void)way;
    if (fake.script.refuses != NULL && fake.script.refuses(true))
        return NULL;
    fake.buffers++;
    fake.lent += (uint64_t)size;
    return calloc(1, (size_t)size);
}

int BMI_memfree(BMI_addr_t addr, void *buffer, bmi_size_t size, enum bmi_op_type way)
{
    (void)addr, (void)way;
    free(buffer);
    fake.buffers--;
    fake.lent -= (uint64_t)size;
    return 0;
}

uint64_t fake_lent(void)
{
    return fake.lent;
}

int BMI_set_info(BMI_addr_t addr, int option, void *value)
{
    (void)value;
    if (fake.script.set_info != NULL)
        fake.script.set_info(addr, option);
    return 0;
}

bool bmi_has_unknown(const char *options, char *key, size_t size)
{
    (void)options;
    (void)key;
    (void)size;
    return false;
}

int BMI_get_info(BMI_addr_t addr, int option, void *value)
{
    (void)addr, (void)option, (void)value;
    return -BMI_ENOSYS;
}

void gossip_set_sink(void (*sink)(void *arg, char kind, const char *line), void *arg)
{
    (void)sink, (void)arg;
}

/* ---- the workers ---- */

struct workers {
    int nothing;
};

static struct workers workers;

int workers_start(int count, struct workers **out)
{
    (void)count;
    *out = &workers;
    return 0;
}

void workers_add(struct workers *w, struct job *job)
{
    (void)w;
    job->next = NULL;
    if (fake.first != NULL)
        fake.last->next = job;
    else
        fake.first = job;
    fake.last = job;
}

bool fake_run_job(void)
{
    struct job *job = fake.first;

    if (job == NULL)
        return false;
    fake.first = job->next;
    fuzz_note(&fake.trace, 1);
    job->run(job);
    return true;
}

bool fake_has_job(void)
{
    return fake.first != NULL;
}

void workers_stop(struct workers *w)
{
    (void)w;
    while (fake_run_job())
        ;
}
