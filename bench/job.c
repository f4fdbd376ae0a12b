/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Jobs and reports on the wire; see job.h. */
#include "bench/job.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#define JOB_MAGIC    0x31626f6a66726570u /* "perfjob1" */
#define REPORT_MAGIC 0x3172657066726570u /* "perfrep1" */

static unsigned char *put64(unsigned char *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

static const unsigned char *get64(const unsigned char *at, uint64_t *value)
{
    memcpy(value, at, sizeof *value);
    *value = le64toh(*value);
    return at + sizeof *value;
}

void job_encode(const struct job *job, unsigned char *wire)
{
    memset(wire, 0, JOB_WIRE_SIZE);
    wire = put64(wire, JOB_MAGIC);
    wire = put64(wire, job->test);
    wire = put64(wire, job->direction);
    wire = put64(wire, job->memory);
    wire = put64(wire, job->verify);
    wire = put64(wire, job->size);
    wire = put64(wire, job->reply);
    wire = put64(wire, job->warm);
    wire = put64(wire, job->count);
    wire = put64(wire, job->window);
    wire = put64(wire, job->extent);
    wire = put64(wire, job->stride);
    wire = put64(wire, job->split);
    wire = put64(wire, job->both);
    put64(wire, job->tag);
}

int job_decode(struct job *job, const void *data, size_t length)
{
    const unsigned char *wire = data;
    uint64_t magic;

    if (length != JOB_WIRE_SIZE)
        return -EPROTO;
    wire = get64(wire, &magic);
    wire = get64(wire, &job->test);
    wire = get64(wire, &job->direction);
    wire = get64(wire, &job->memory);
    wire = get64(wire, &job->verify);
    wire = get64(wire, &job->size);
    wire = get64(wire, &job->reply);
    wire = get64(wire, &job->warm);
    wire = get64(wire, &job->count);
    wire = get64(wire, &job->window);
    wire = get64(wire, &job->extent);
    wire = get64(wire, &job->stride);
    wire = get64(wire, &job->split);
    wire = get64(wire, &job->both);
    get64(wire, &job->tag);
    return magic == JOB_MAGIC && !job_check(job) ? 0 : -EPROTO;
}

const char *job_check(const struct job *job)
{
    if (job->test >= JOB_TESTS || job->direction >= JOB_DIRECTIONS ||
        job->memory >= JOB_MEMORIES || job->verify > 1 || job->both > 1)
        return "no such test, direction or memory";
    if (job->size > JOB_MAX_SIZE || job->reply > JOB_MAX_SIZE)
        return "messages are limited to 1 GiB";
    if (job->window < 1 || job->window > JOB_MAX_WINDOW)
        return "the window must be 1 to 4096 messages";
    if (job->count < 1 || job->count > UINT32_MAX || job->warm > UINT32_MAX)
        return "the count must be 1 to 4294967295";
    if (job->tag > INT32_MAX - 1)
        return "tags must be 0 to 2147483646";
    if (job->extent) {
        if (job->size % job->extent || !job->size)
            return "the size must be a multiple of the extent";
        if (job->stride < job->extent || job->stride > JOB_MAX_SIZE)
            return "the stride must be at least the extent";
        if (job->split < 1 || job->split > JOB_MAX_SEGMENTS)
            return "an operation has 1 to 64 segments";
        if (job->size / job->extent > JOB_MAX_SIZE / job->stride)
            return "the strided memory of a message is limited to 1 GiB";
    }
    if ((job_footprint(job, true) + job->reply) * job->window > JOB_MAX_MEMORY)
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

uint64_t job_footprint(const struct job *job, bool noncontiguous)
{
    return noncontiguous && job->extent ? job->size / job->extent * job->stride : job->size;
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
    memset(wire, 0, REPORT_WIRE_SIZE);
    wire = put64(wire, REPORT_MAGIC);
    wire = put64(wire, report->error);
    wire = put64(wire, report->bad);
    wire = put64(wire, report->cpu_start);
    put64(wire, report->cpu_end);
}

int report_decode(struct report *report, const void *data, size_t length)
{
    const unsigned char *wire = data;
    uint64_t magic;

    if (length != REPORT_WIRE_SIZE)
        return -EPROTO;
    wire = get64(wire, &magic);
    wire = get64(wire, &report->error);
    wire = get64(wire, &report->bad);
    wire = get64(wire, &report->cpu_start);
    get64(wire, &report->cpu_end);
    return magic == REPORT_MAGIC ? 0 : -EPROTO;
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
