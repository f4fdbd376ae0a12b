/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fake_bmi.h"
#include "fuzz.h"

#include <errno.h>

#include "embedded/bmi/gossip.h"
#include "embedded/iod/workers.h"

#define OPS      1024
#define MESSAGES 64

static struct {
    struct fake_op op[OPS];
    bmi_op_id_t last_id;
    struct BMI_unexpected_info message[MESSAGES];
    int messages;
    BMI_addr_t last_addr;
    bool lost[1 << 12]; /* by address */
    int buffers;        /* given out: messages and memory */
    struct job *first, *last;
} fake;

void fake_begin(void)
{
    memset(&fake, 0, sizeof(fake));
}

bool fake_end(void)
{
    for (int i = 0; i < OPS; i++)
        if (fake.op[i].id && !fake.op[i].ended)
            return false;
    for (int i = 0; i < fake.messages; i++) {
        free(fake.message[i].buffer);
        fake.buffers--;
    }
    return fake.buffers == 0 && fake.first == NULL;
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
    int n = 0;

    for (int i = 0; i < OPS; i++)
        n += fake.op[i].id && !fake.op[i].ended;
    return n;
}

struct fake_op *fake_waiting_at(int n)
{
    for (int i = 0; i < OPS; i++)
        if (fake.op[i].id && !fake.op[i].ended && n-- == 0)
            return &fake.op[i];
    return NULL;
}

void fake_finish(struct fake_op *op, bmi_error_code_t error, bmi_size_t actual)
{
    op->ended = true;
    op->error = op->canceled ? -BMI_ECANCEL : error;
    op->actual = actual > op->size ? op->size : actual;
}

void fake_lose(BMI_addr_t addr)
{
    for (int i = 0; i < OPS; i++)
        if (fake.op[i].id && !fake.op[i].ended && (addr == 0 || fake.op[i].addr == addr))
            fake_finish(&fake.op[i], -BMI_ECONNRESET, 0);
    if (addr)
        fake.lost[addr] = true;
}

static int post(bmi_op_id_t *id, BMI_addr_t addr, bool send, const void *memory,
                bmi_size_t size, bmi_msg_tag_t tag, void *user)
{
    struct fake_op *op = fake.op;

    if (fake.lost[addr])
        return -BMI_ECONNRESET;
    while (op < fake.op + OPS && op->id)
        op++;
    if (op == fake.op + OPS)
        return -BMI_ENOMEM;
    *op = (struct fake_op){.id = ++fake.last_id,
                           .addr = addr,
                           .send = send,
                           .memory = memory,
                           .size = size,
                           .tag = tag,
                           .user = user};
    *id = op->id;
    return 0;
}

int BMI_post_send(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                  enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                  bmi_context_id context, bmi_hint hints)
{
    (void)type, (void)context, (void)hints;
    return post(id, dest, true, buffer, size, tag, user);
}

int BMI_post_sendunexpected(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer,
                            bmi_size_t size, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                            void *user, bmi_context_id context, bmi_hint hints)
{
    return BMI_post_send(id, dest, buffer, size, type, tag, user, context, hints);
}

int BMI_post_recv(bmi_op_id_t *id, BMI_addr_t src, void *buffer, bmi_size_t size,
                  bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                  bmi_context_id context, bmi_hint hints)
{
    (void)actual, (void)type, (void)context, (void)hints;
    return post(id, src, false, buffer, size, tag, user);
}

int BMI_post_send_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *buffers,
                       const bmi_size_t *sizes, int count, bmi_size_t total,
                       enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                       bmi_context_id context, bmi_hint hints)
{
    (void)sizes, (void)count, (void)type, (void)context, (void)hints;
    return post(id, dest, true, buffers[0], total, tag, user);
}

int BMI_post_recv_list(bmi_op_id_t *id, BMI_addr_t src, void *const *buffers,
                       const bmi_size_t *sizes, int count, bmi_size_t total, bmi_size_t *actual,
                       enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                       bmi_context_id context, bmi_hint hints)
{
    (void)sizes, (void)count, (void)actual, (void)type, (void)context, (void)hints;
    return post(id, src, false, buffers[0], total, tag, user);
}

int BMI_cancel(bmi_op_id_t id, bmi_context_id context)
{
    (void)context;
    for (int i = 0; i < OPS; i++)
        if (fake.op[i].id == id)
            fake.op[i].canceled = true; /* it ends when the script says so */
    return 0;
}

int BMI_testcontext(int count, bmi_op_id_t *id, int *outcount, bmi_error_code_t *error,
                    bmi_size_t *actual, void **user, int idle_ms, bmi_context_id context)
{
    int n = 0;

    (void)idle_ms, (void)context;
    for (int i = 0; i < OPS && n < count; i++) {
        struct fake_op *op = &fake.op[i];

        if (!op->id || !op->ended)
            continue;
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
    info->buffer = malloc(size ? (size_t)size : 1); /* exact: a step too far is seen */
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
    (void)text, (void)options;
    *addr = fake_connect(0);
    return 0;
}

/* Two peers of each host. */
const char *BMI_addr_rev_lookup_unexpected(BMI_addr_t addr)
{
    static char name[64];

    snprintf(name, sizeof(name), "10.0.0.%d:%d", (int)(addr / 2 % 200), (int)addr);
    return name;
}

void *BMI_memalloc(BMI_addr_t addr, bmi_size_t size, enum bmi_op_type way)
{
    (void)addr, (void)way;
    fake.buffers++;
    return calloc(1, (size_t)size);
}

int BMI_memfree(BMI_addr_t addr, void *buffer, bmi_size_t size, enum bmi_op_type way)
{
    (void)addr, (void)size, (void)way;
    free(buffer);
    fake.buffers--;
    return 0;
}

int BMI_set_info(BMI_addr_t addr, int option, void *value)
{
    (void)addr, (void)option, (void)value;
    return 0;
}

int BMI_get_info(BMI_addr_t addr, int option, void *value)
{
    (void)addr, (void)option, (void)value;
    return -BMI_ENOSYS;
}

int bmi_error_to_errno(bmi_error_code_t error)
{
    switch (error) {
    case 0:
        return 0;
    case -BMI_ECONNRESET:
        return -ECONNRESET;
    case -BMI_ENOMEM:
        return -ENOMEM;
    case -BMI_ECANCEL:
        return -ECANCELED;
    }
    return -EIO;
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
    if (fake.first)
        fake.last->next = job;
    else
        fake.first = job;
    fake.last = job;
}

bool fake_run_job(void)
{
    struct job *job = fake.first;

    if (!job)
        return false;
    fake.first = job->next;
    job->run(job);
    return true;
}

void workers_stop(struct workers *w)
{
    (void)w;
    while (fake_run_job())
        ;
}
