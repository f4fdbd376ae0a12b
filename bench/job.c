/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Encoding of jobs and reports; see job.h. */
#include "bench/job.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#define JOB_MAGIC    0x31626f6a66726570u /* "perfjob1" */
#define REPORT_MAGIC 0x3172657066726570u /* "perfrep1" */

/* Offsets of the numbers of a job and of a report, in wire order, after the magic number. */
static const size_t job_fields[] = {
    offsetof(struct job, test),    offsetof(struct job, direction),
    offsetof(struct job, memory),  offsetof(struct job, verify),
    offsetof(struct job, size),    offsetof(struct job, reply),
    offsetof(struct job, warm),    offsetof(struct job, count),
    offsetof(struct job, window),  offsetof(struct job, extent),
    offsetof(struct job, stride),  offsetof(struct job, split),
    offsetof(struct job, both),    offsetof(struct job, tag),
    offsetof(struct job, buffers),
};

static const size_t report_fields[] = {
    offsetof(struct report, error),
    offsetof(struct report, bad),
    offsetof(struct report, cpu_start),
    offsetof(struct report, cpu_end),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void put64(unsigned char *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static uint64_t get64(const unsigned char *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static void encode(const void *from, const size_t *fields, size_t count, uint64_t magic,
                   unsigned char *wire, size_t size)
{
    memset(wire, 0, size);
    put64(wire, magic);
    for (size_t i = 0; i < count; i++)
        put64(wire + 8 * (i + 1),
              *(const uint64_t *)(const void *)((const char *)from + fields[i]));
}

static int decode(void *to, const size_t *fields, size_t count, uint64_t magic,
                  const unsigned char *wire)
{
    for (size_t i = 0; i < count; i++)
        *(uint64_t *)(void *)((char *)to + fields[i]) = get64(wire + 8 * (i + 1));
    return get64(wire) == magic ? 0 : -EPROTO;
}

void job_encode(const struct job *job, unsigned char *wire)
{
    encode(job, job_fields, COUNT(job_fields), JOB_MAGIC, wire, JOB_WIRE_SIZE);
}

/* Checks the tag; the data has the next one. */
static bool tag_fits(const struct job *job)
{
    return job->tag <= INT32_MAX - 1;
}

int job_decode(struct job *job, const void *data, size_t length)
{
    if (length != JOB_WIRE_SIZE)
        return -EPROTO;
    *job = (struct job){0}; /* fields that are not encoded */
    if (decode(job, job_fields, COUNT(job_fields), JOB_MAGIC, data) || !tag_fits(job))
        return -EPROTO;
    return job_check(job) != NULL ? -EINVAL : 0;
}

const char *job_check(const struct job *job)
{
    if (job->test >= JOB_TESTS || job->direction >= JOB_DIRECTIONS ||
        job->memory >= JOB_MEMORIES || job->verify > 1 || job->both > 1)
        return "no such test, direction or memory";
    if (job->size > JOB_MAX_SIZE || job->reply > JOB_MAX_SIZE)
        return "messages are limited to 1 GiB";
    if (job->test == JOB_REQUEST && job->size > JOB_MAX_REQUEST)
        return "an unexpected request is limited to 16384 bytes";
    if (job->window < 1 || job->window > JOB_MAX_WINDOW)
        return "the window must be 1 to 4096 messages";
    if (job->verify && job->buffers && job->buffers < job->window)
        return "contents can be verified only when each message of the window has its buffer";
    if (job->count < 1 || job->count > UINT32_MAX || job->warm > UINT32_MAX)
        return "the count must be 1 to 4294967295";
    if (!tag_fits(job))
        return "tags must be 0 to 2147483646";
    if (job->extent) {
        if (job->size % job->extent || !job->size)
            return "the size must be a multiple of the extent";
        if (job->stride < job->extent)
            return "the stride must be at least the extent";
        if (job->stride > JOB_MAX_SIZE)
            return "the stride is limited to 1 GiB";
        if (job->split < 1 || job->split > JOB_MAX_SEGMENTS)
            return "an operation has 1 to 4096 segments";
        if (job->size / job->extent > JOB_MAX_SIZE / job->stride)
            return "the strided memory of a message is limited to 1 GiB";
    }
    if (job->pool && (job->pool <= job->window || job->pool > JOB_MAX_POOL))
        return "a pool must be more than the window, and at most 1048576 buffers";
    if (job->reuse > 100 || (job->reuse && !job->pool))
        return "the share of messages that reuse a buffer must be 0 to 100 percent";
    if (job->verify && (job->pool || job->holes))
        return "contents cannot be verified with a pool or with holes";
    if (job->holes &&
        (!job->extent || job->memory != JOB_USER || job->holes >= job->size / job->extent ||
         job->extent % 4096 || job->stride % 4096 || job->stride < job->extent + 4096))
        return "holes need user memory, more segments than holes, and extents and gaps of "
               "whole "
               "pages";
    if (job->pack && (!job->extent || job->memory == JOB_BMI || job->direction != JOB_PUT))
        return "only segments of user memory that are put are packed";
    if (job_memory(job) > JOB_MAX_MEMORY)
        return "window times size is limited to 2 GiB";
    return NULL;
}

unsigned job_pieces(const struct job *job)
{
    uint64_t segments;

    if (!job->extent)
        return 1;
    segments = job->size / job->extent;
    return (unsigned)((segments + job->split - 1) / job->split);
}

uint64_t job_piece_size(const struct job *job, unsigned piece)
{
    uint64_t whole = job->extent * job->split;

    if (!job->extent)
        return job->size;
    return piece + 1 < job_pieces(job) ? whole : job->size - whole * piece;
}

uint64_t job_segments(const struct job *job, bool noncontiguous)
{
    uint64_t all;

    if (!noncontiguous || !job->extent)
        return 1;
    all = job->size / job->extent;
    return all < job->split ? all : job->split;
}

uint64_t job_buffers(const struct job *job, uint64_t window)
{
    if (job->pool)
        return job->pool;
    return job->buffers && job->buffers < window ? job->buffers : window;
}

uint64_t job_buffer(const struct job *job, uint64_t buffers, uint64_t message)
{
    uint64_t reused = message * job->reuse / 100; /* before this message */

    if (!job->pool)
        return message % buffers;
    if ((message + 1) * job->reuse / 100 > reused)
        return reused % job->window;
    return job->window + (message - reused) % (buffers - job->window);
}

uint64_t job_footprint(const struct job *job, bool noncontiguous)
{
    return noncontiguous && job->extent ? job->size / job->extent * job->stride : job->size;
}

/* The limits on a job's fields keep all products below 2^56. */
uint64_t job_memory(const struct job *job)
{
    uint64_t window =
        job->test == JOB_PINGPONG && job->window < 2 ? 2 : job->window; /* exchange.c */
    uint64_t flows = job->test == JOB_STREAM && job->direction != JOB_BOTH ? 1 : 2;
    uint64_t messages = (job_footprint(job, true) + job->reply) * job_buffers(job, window);
    uint64_t place = JOB_PLACE_BYTES + job_segments(job, true) * JOB_SEGMENT_BYTES;

    return flows * (messages + window * job_pieces(job) * place);
}

uint64_t job_bytes(const struct job *job)
{
    if (job->test == JOB_REQUEST)
        return job->count * (job->size + job->reply);
    if (job->test == JOB_STREAM && job->direction != JOB_BOTH)
        return job->count * job->size;
    return job->count * job->size * 2;
}

void report_encode(const struct report *report, unsigned char *wire)
{
    encode(report, report_fields, COUNT(report_fields), REPORT_MAGIC, wire, REPORT_WIRE_SIZE);
}

int report_decode(struct report *report, const void *data, size_t length)
{
    if (length != REPORT_WIRE_SIZE)
        return -EPROTO;
    return decode(report, report_fields, COUNT(report_fields), REPORT_MAGIC, data);
}

static uint64_t read_clock(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}
