/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One measurement: what a client and a server exchange, over BMI or over plain TCP.  The client
 * describes it to the server in an opening request; both sides then know how many messages of
 * which size go which way.
 *
 * A job has two phases, a warm-up and the timed one.  Each phase ends with a report of the
 * server.
 */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_MAX_SIZE     ((uint64_t)1 << 30) /* bytes of one message */
#define JOB_MAX_WINDOW   4096                /* messages in flight */
#define JOB_MAX_POOL     ((uint64_t)1 << 20)
#define JOB_SEGMENTS     64   /* segments of one operation by default, as in PVFS2's flows */
#define JOB_MAX_SEGMENTS 4096 /* at most so many */
#define JOB_MAX_MEMORY                                                                         \
    ((uint64_t)1                                                                               \
     << 31) /* bytes of a job on one side; servers have a bound of their own below */
/* At most so many for each operation of the window, the engine's account of it among them, and
 * for each of its segments. */
#define JOB_PLACE_BYTES   1200
#define JOB_SEGMENT_BYTES 16

enum job_test {
    JOB_PINGPONG, /* one message there, one back */
    JOB_STREAM,   /* a window of messages in flight */
    JOB_REQUEST,  /* unexpected request, expected reply */
    JOB_COUNTERS, /* the server answers with its counters as text */
    JOB_METRICS,  /* likewise, as Prometheus reads it */
    JOB_TESTS
};

enum job_direction { JOB_PUT, JOB_GET, JOB_BOTH, JOB_DIRECTIONS };

enum job_memory {
    JOB_USER, /* ordinary memory */
    JOB_BMI,  /* from BMI_memalloc; over TCP like JOB_HUGE */
    JOB_HUGE, /* ordinary memory, in huge pages where the kernel gives them */
    JOB_MEMORIES
};

struct job {
    uint64_t test;      /* enum job_test */
    uint64_t direction; /* enum job_direction, of a stream */
    uint64_t memory;    /* enum job_memory, on both sides */
    uint64_t verify;    /* 1: contents are made and checked, 0: not */
    uint64_t size;      /* bytes of one message */
    uint64_t reply;     /* bytes of a reply to an unexpected request */
    uint64_t warm;      /* messages of the warm-up, each way */
    uint64_t count;     /* messages of the timed phase, each way */
    uint64_t window;    /* messages in flight each way */
    uint64_t extent;    /* bytes of one segment; 0: contiguous */
    uint64_t stride;  /* bytes from one segment's start to the next one's, on the noncontiguous
                         side */
    uint64_t split;   /* segments of one operation; a message of more goes as several */
    uint64_t both;    /* 1: the server's memory is noncontiguous too */
    uint64_t buffers; /* messages that have memory of their own; 0: as many as the window */
    uint64_t tag;     /* the session's first tag: tag is for control, tag + 1 for data */

    /* Of the client's memory only; the server is not told. */
    uint64_t
        pool; /* buffers that messages take in turn, more than the window; 0: the window's */
    uint64_t reuse; /* with a pool: percent of the messages that take one of the window's
                       buffers again */
    uint64_t
        holes; /* gaps between segments, in each message, of which whole pages are unmapped */
};

#define JOB_WIRE_SIZE    128
#define REPORT_WIRE_SIZE 40

/* Writes JOB_WIRE_SIZE bytes, little-endian. */
void job_encode(const struct job *job, unsigned char *wire);

/* Reads and checks what a client sent.  -EPROTO: not such a request.  -EINVAL: values out of
 * range, but for the tag, which the client waits at. */
int job_decode(struct job *job, const void *wire, size_t length);

/* Is it within the limits?  NULL if so, else what is wrong. */
const char *job_check(const struct job *job);

/* Operations that make one message, and the bytes of its piece `piece` (0 … pieces-1). */
unsigned job_pieces(const struct job *job);
uint64_t job_piece_size(const struct job *job, unsigned piece);

/* Segments of one operation, at most, on a side whose memory is contiguous, or not. */
uint64_t job_segments(const struct job *job, bool noncontiguous);

/* Messages that have memory of their own: of a window of `window`, or the pool. */
uint64_t job_buffers(const struct job *job, uint64_t window);

/* Which of `buffers` buffers message number `message` of a phase has.  With a pool the reused
 * ones, spread evenly, take the first `window` buffers in turn and the others the rest, so that
 * no two messages of the window share one. */
uint64_t job_buffer(const struct job *job, uint64_t buffers, uint64_t message);

/* Bytes of memory that one message takes on a side whose memory is contiguous, or not. */
uint64_t job_footprint(const struct job *job, bool noncontiguous);

/* Bytes that the job takes on one side, at most, with what is needed to keep account of its
 * operations. */
uint64_t job_memory(const struct job *job);

/* Payload of the timed phase, both ways, in bytes. */
uint64_t job_bytes(const struct job *job);

/* What the server says at the end of a phase. */
struct report {
    uint64_t error;     /* errno of the server's failure to begin, 0 for none */
    uint64_t bad;       /* messages with wrong contents or length */
    uint64_t cpu_start; /* processor time of the server process in ns, when the phase began … */
    uint64_t cpu_end;   /* … and when it ended */
};

void report_encode(const struct report *report, unsigned char *wire);
int report_decode(struct report *report, const void *wire, size_t length);

/* Clocks, in ns: monotonic time; processor time of this process, user and system. */
uint64_t clock_ns(void);
uint64_t cpu_ns(void);

#endif
