/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One direction of a job's messages; see flow.h. */
#include "bench/flow.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "bench/memory.h"
#include "bench/pattern.h"

#define GUARD 0xa5 /* contents of the gaps of a receive, which must not change */

/* An operation in the ring. */
struct flow_op {
    struct pending pending;
    struct flow *flow;
    bmi_op_id_t id;
    bool busy;
    unsigned piece;
    bmi_size_t size;  /* bytes of the piece */
    uint64_t message; /* number of the message in the phase */
    int segments;
    void **base;        /* in the flow's bases */
    bmi_size_t *length; /* in the flow's lengths */
    void *packed;       /* copy of the segments, of this message */
};
_Static_assert(sizeof(struct flow_op) <= JOB_PLACE_BYTES,
               "a place needs more than is accounted for");
_Static_assert(sizeof(void *) + sizeof(bmi_size_t) <= JOB_SEGMENT_BYTES,
               "a segment needs more than is accounted for");

struct flow {
    struct flow_config config;
    struct job job;
    unsigned pieces;
    uint64_t footprint; /* bytes of memory of a message */
    uint64_t buffers;   /* messages with their own memory */
    unsigned char *memory;
    struct flow_op *ring;
    uint64_t places;
    void **bases; /* segments of all places, consecutive for each place */
    bmi_size_t *lengths;
    uint64_t phase, total, limit; /* messages */
    uint64_t posted, ended;       /* operations */
    uint64_t place, message;      /* of the next operation */
    uint64_t under_way;
    uint64_t bad;
    int error;
};

static void flow_op_done(struct pending *pending, bmi_error_code_t error, bmi_size_t actual);

/* Sets the segments of a place to the memory of a buffer. */
static void lay_out(struct flow *flow, struct flow_op *op, uint64_t buffer)
{
    const struct job *job = &flow->job;
    unsigned char *start = flow->memory + buffer * flow->footprint;
    uint64_t size = job_piece_size(job, op->piece);
    uint64_t first = op->piece * job->split; /* segment of the message */
    int i;

    if (!flow->config.noncontiguous || !job->extent) {
        op->segments = 1;
        op->base[0] = start + first * job->extent;
        op->length[0] = (bmi_size_t)size;
        return;
    }
    op->segments = (int)(size / job->extent);
    for (i = 0; i < op->segments; i++) {
        op->base[i] = start + (first + (uint64_t)i) * job->stride;
        op->length[i] = (bmi_size_t)job->extent;
    }
}

static unsigned char *memory_get(struct flow *flow, size_t size)
{
    enum bmi_op_type type = flow->config.sending ? BMI_SEND : BMI_RECV;
    void *memory = NULL;

    if (flow->job.memory == JOB_BMI)
        memory = BMI_memalloc(flow->config.peer, (bmi_size_t)size, type);
    else
        memory = memory_new(size, flow->job.memory == JOB_HUGE);
    if (memory != NULL)
        memset(memory, GUARD, size); /* also allocates the pages */
    return memory;
}

static size_t memory_size(const struct flow *flow)
{
    size_t size = flow->footprint * flow->buffers;

    return size ? size : 1;
}

/* Unmaps the holes of all messages, or, at the end, all memory around them: the holes may
 * contain foreign mappings by then. */
static void unmap_holes(struct flow *flow, bool around)
{
    const struct job *job = &flow->job;
    uint64_t segments = job->size / job->extent, buffer, hole;
    unsigned char *at = flow->memory;

    for (buffer = 0; buffer < flow->buffers; buffer++) {
        for (hole = 1; hole <= job->holes; hole++) {
            unsigned char *start = flow->memory + buffer * flow->footprint +
                                   (hole * segments / (job->holes + 1) - 1) * job->stride +
                                   job->extent;
            unsigned char *end = start + job->stride - job->extent;
            if (around)
                munmap(at, (size_t)(start - at));
            else
                munmap(start, (size_t)(end - start));
            at = end;
        }
    }
    if (around)
        munmap(at, (size_t)(flow->memory + memory_size(flow) - at));
}

/* Returns whether messages have holes. Gaps and messages are whole pages, see job_check(). */
static bool has_holes(const struct flow *flow)
{
    return flow->job.holes && flow->config.noncontiguous;
}

struct flow *flow_new(const struct flow_config *config)
{
    struct flow *flow = calloc(1, sizeof *flow);
    uint64_t place, segments;

    if (flow == NULL)
        return NULL;
    flow->config = *config;
    flow->job = *config->job;
    flow->config.job = &flow->job;
    flow->pieces = job_pieces(&flow->job);
    flow->footprint = job_footprint(&flow->job, config->noncontiguous);
    flow->buffers = job_buffers(&flow->job, config->window);
    flow->places = config->window * flow->pieces;
    segments = job_segments(&flow->job, config->noncontiguous);
    flow->ring = calloc(flow->places, sizeof *flow->ring);
    flow->bases = calloc(flow->places * segments, sizeof *flow->bases);
    flow->lengths = calloc(flow->places * segments, sizeof *flow->lengths);
    flow->memory = memory_get(flow, memory_size(flow));
    if (flow->memory != NULL && has_holes(flow))
        unmap_holes(flow, false);
    if (flow->ring == NULL || flow->bases == NULL || flow->lengths == NULL ||
        flow->memory == NULL) {
        flow_free(flow);
        return NULL;
    }
    for (place = 0; place < flow->places; place++) {
        struct flow_op *op = &flow->ring[place];
        op->pending.done = flow_op_done;
        op->flow = flow;
        op->base = flow->bases + place * segments;
        op->length = flow->lengths + place * segments;
        op->piece = (unsigned)(place % flow->pieces);
        op->size = (bmi_size_t)job_piece_size(&flow->job, op->piece);
        lay_out(flow, op, place / flow->pieces % flow->buffers);
    }
    return flow;
}

void flow_free(struct flow *flow)
{
    if (flow == NULL)
        return;
    if (flow->memory != NULL && has_holes(flow))
        unmap_holes(flow, true);
    else if (flow->memory != NULL && flow->job.memory == JOB_BMI)
        BMI_memfree(flow->config.peer, flow->memory, (bmi_size_t)memory_size(flow),
                    flow->config.sending ? BMI_SEND : BMI_RECV);
    else
        memory_free(flow->memory, memory_size(flow), flow->job.memory == JOB_HUGE);
    free(flow->bases);
    free(flow->lengths);
    free(flow->ring);
    free(flow);
}

/* ---- Contents ---- */

static uint64_t key_of(const struct flow_op *op)
{
    return pattern_key(op->flow->phase, op->message, op->flow->config.to_server);
}

static void fill(struct flow_op *op)
{
    uint64_t offset = op->piece * op->flow->job.extent * op->flow->job.split;
    int i;

    for (i = 0; i < op->segments; offset += (uint64_t)op->length[i++])
        pattern_fill(op->base[i], (size_t)op->length[i], key_of(op), offset);
}

/* Checks that the gap behind segment i is unchanged. */
static bool gap_intact(const struct flow_op *op, int i)
{
    const struct flow *flow = op->flow;
    const unsigned char *gap = (unsigned char *)op->base[i] + op->length[i];
    uint64_t n;

    if (!flow->config.noncontiguous || !flow->job.extent)
        return true;
    for (n = flow->job.stride - flow->job.extent; n; n--)
        if (*gap++ != GUARD)
            return false;
    return true;
}

static bool contents_right(const struct flow_op *op)
{
    uint64_t offset = op->piece * op->flow->job.extent * op->flow->job.split;
    int i;

    for (i = 0; i < op->segments; offset += (uint64_t)op->length[i++])
        if (!pattern_matches(op->base[i], (size_t)op->length[i], key_of(op), offset) ||
            !gap_intact(op, i))
            return false;
    return true;
}

/* ---- Posting and completion ---- */

/* Copies the segments into new memory; NULL if there is none. */
static void *pack(const struct flow_op *op)
{
    char *packed = memory_new((size_t)op->size, false), *at = packed;

    for (int i = 0; packed != NULL && i < op->segments; at += op->length[i++])
        memcpy(at, op->base[i], (size_t)op->length[i]);
    return packed;
}

static int post(struct flow_op *op, bmi_size_t *actual)
{
    const struct flow *flow = op->flow;
    const struct flow_config *config = &flow->config;
    enum bmi_buffer_type type = flow->job.memory == JOB_BMI ? BMI_PRE_ALLOC : BMI_EXT_ALLOC;
    bmi_msg_tag_t tag = (bmi_msg_tag_t)flow->job.tag + 1;
    bmi_size_t total = op->size;

    if (flow->job.pack && config->sending) {
        op->packed = pack(op);
        return op->packed == NULL ? -BMI_ENOMEM
                                  : BMI_post_send(&op->id, config->peer, op->packed, total,
                                                  type, tag, op, config->context, NULL);
    }
    if (op->segments > 1 && config->sending)
        return BMI_post_send_list(&op->id, config->peer, (const void *const *)op->base,
                                  op->length, op->segments, total, type, tag, op,
                                  config->context, NULL);
    if (op->segments > 1)
        return BMI_post_recv_list(&op->id, config->peer, op->base, op->length, op->segments,
                                  total, actual, type, tag, op, config->context, NULL);
    if (config->unexpected)
        return BMI_post_sendunexpected(&op->id, config->peer, op->base[0], total, type, tag, op,
                                       config->context, NULL);
    if (config->sending)
        return BMI_post_send(&op->id, config->peer, op->base[0], total, type, tag, op,
                             config->context, NULL);
    return BMI_post_recv(&op->id, config->peer, op->base[0], total, actual, type, tag, op,
                         config->context, NULL);
}

/* Accounts for a completed operation, without posting. True: its message is complete. */
static bool account(struct flow_op *op, int error, bmi_size_t actual)
{
    struct flow *flow = op->flow;

    memory_free(op->packed, (size_t)op->size, false);
    op->packed = NULL;
    op->busy = false;
    flow->under_way--;
    if (error) {
        if (!flow->error)
            flow->error = error;
        return false;
    }
    flow->ended++;
    if (!flow->config.sending &&
        (actual != op->size || (flow->job.verify && !contents_right(op))))
        flow->bad++;
    return op->piece + 1 == flow->pieces;
}

static void report(const struct flow *flow)
{
    if (flow->config.message != NULL)
        flow->config.message(flow->config.arg);
}

static int pump(struct flow *flow)
{
    while (!flow->error && flow->posted < flow->limit * flow->pieces) {
        struct flow_op *op = &flow->ring[flow->place];
        bmi_size_t actual = 0;
        int rc;

        if (op->busy)
            break;
        op->message = flow->message;
        if (flow->job.pool)
            lay_out(flow, op, job_buffer(&flow->job, flow->buffers, op->message));
        if (flow->job.verify && flow->config.sending)
            fill(op);
        op->busy = true;
        flow->posted++;
        flow->under_way++;
        flow->message += op->piece + 1 == flow->pieces;
        if (++flow->place == flow->places)
            flow->place = 0;
        rc = post(op, &actual);
        if (rc && account(op, rc < 0 ? rc : 0, actual))
            report(flow);
    }
    return flow->error;
}

static void flow_op_done(struct pending *pending, bmi_error_code_t error, bmi_size_t actual)
{
    struct flow_op *op = (struct flow_op *)pending;
    bool message = account(op, error, actual);

    pump(op->flow); /* before the reply, which may provoke a message that needs the receive */
    if (message)
        report(op->flow);
}

int flow_begin(struct flow *flow, uint64_t phase, uint64_t total, uint64_t limit)
{
    flow->phase = phase;
    flow->total = total;
    flow->limit = limit < total ? limit : total;
    flow->posted = flow->ended = flow->bad = 0;
    flow->place = flow->message = 0;
    return pump(flow);
}

int flow_allow(struct flow *flow, uint64_t more)
{
    uint64_t rest = flow->total - flow->limit;

    flow->limit += more < rest ? more : rest;
    return pump(flow);
}

void flow_cancel(struct flow *flow)
{
    uint64_t place;

    if (!flow->error)
        flow->error = -BMI_ECANCEL;
    for (place = 0; place < flow->places; place++)
        if (flow->ring[place].busy)
            BMI_cancel(flow->ring[place].id, flow->config.context);
}

bool flow_complete(const struct flow *flow)
{
    return flow->ended == flow->total * flow->pieces;
}

bool flow_idle(const struct flow *flow)
{
    return !flow->under_way;
}

int flow_error(const struct flow *flow)
{
    return flow->error;
}

uint64_t flow_bad(const struct flow *flow)
{
    return flow->bad;
}
