/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A measurement: the messages exchanged by a client and a server, over BMI or plain TCP. The
 * client sends the job to the server in an opening request, which determines number, size and
 * direction of the messages for both sides.
 *
 * A job has two phases, a warm-up and a timed one. Each phase ends with a report of the server.
 */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_MAX_SIZE     ((uint64_t)1 << 30) /* bytes of one message */
#define JOB_MAX_REQUEST  16384               /* BMI's limit of an unexpected message */
#define JOB_MAX_WINDOW   4096                /* messages in flight */
#define JOB_MAX_POOL     ((uint64_t)1 << 20)
#define JOB_SEGMENTS     64   /* segments of one operation by default, as in PVFS2's flows */
#define JOB_MAX_SEGMENTS 4096 /* limit of segments */
#define JOB_MAX_MEMORY                                                                         \
    ((uint64_t)1                                                                               \
     << 31) /* bytes of a job on one side; servers have a lower limit of their own */
/* Limits of the memory per operation of the window, including the engine's, and per segment. */
#define JOB_PLACE_BYTES   1200
#define JOB_SEGMENT_BYTES 16

enum job_test {
    JOB_PINGPONG, /* one message there, one back */
    JOB_STREAM,   /* a window of messages in flight */
    JOB_REQUEST,  /* unexpected request, expected reply */
    JOB_COUNTERS, /* the server replies with its counters as text */
    JOB_METRICS,  /* the same in Prometheus format */
    JOB_RAW,      /* the server replies with the port of a raw connection (doctor/raw.h) */
    JOB_TESTS
};

enum job_direction { JOB_PUT, JOB_GET, JOB_BOTH, JOB_DIRECTIONS };

enum job_memory {
    JOB_USER, /* ordinary memory */
    JOB_BMI,  /* from BMI_memalloc; over TCP like JOB_HUGE */
    JOB_HUGE, /* ordinary memory, in huge pages if the kernel provides them */
    JOB_MEMORIES
};

struct job {
    uint64_t test;      /* enum job_test */
    uint64_t direction; /* enum job_direction, of a stream */
    uint64_t memory;    /* enum job_memory, on both sides */
    uint64_t verify;    /* 1: contents are generated and checked */
    uint64_t size;      /* bytes of one message */
    uint64_t reply;     /* bytes of a reply to an unexpected request */
    uint64_t warm;      /* messages of the warm-up, each way */
    uint64_t count;     /* messages of the timed phase, each way */
    uint64_t window;    /* messages in flight each way */
    uint64_t extent;    /* bytes of one segment; 0: contiguous */
    uint64_t stride;    /* bytes between starts of segments, on the noncontiguous side */
    uint64_t split; /* segments per operation; longer messages consist of several operations */
    uint64_t both;  /* 1: the server's memory is also noncontiguous */
    uint64_t buffers; /* messages with their own memory; 0: the window */
    uint64_t tag;     /* first tag of the session: tag for control messages, tag + 1 for data */

    /* Client's memory only; not sent to the server. */
    uint64_t pool; /* buffers used in turn, more than the window; 0: those of the window */
    /* with a pool: percentage of messages that reuse one of the window's buffers */
    uint64_t reuse;
    uint64_t
        holes; /* gaps between segments in each message, in which whole pages are unmapped */
    uint64_t pack; /* 1: each operation's segments are copied into new memory, which is sent */
};

#define JOB_WIRE_SIZE    128
#define REPORT_WIRE_SIZE 40

/* Writes JOB_WIRE_SIZE bytes, little-endian. */
void job_encode(const struct job *job, unsigned char *wire);

/* Parses and checks a client's request. Returns 0; -EPROTO for a malformed request; -EINVAL for
 * values out of range, with a valid tag for the reply. */
int job_decode(struct job *job, const void *wire, size_t length);

/* Checks a job against the limits; returns NULL, or the reason of the failure. */
const char *job_check(const struct job *job);

/* Return the operations of one message, and the bytes of piece `piece` (0 … pieces-1). */
unsigned job_pieces(const struct job *job);
uint64_t job_piece_size(const struct job *job, unsigned piece);

/* Returns the limit of segments of one operation, on a contiguous or noncontiguous side. */
uint64_t job_segments(const struct job *job, bool noncontiguous);

/* Returns the number of messages with their own memory: those of the window, or the pool. */
uint64_t job_buffers(const struct job *job, uint64_t window);

/*
 * Returns the buffer, of `buffers`, of message `message` in a phase. With a pool, reusing
 * messages, spread evenly, use the first `window` buffers in turn and other messages the rest,
 * so that no two messages of the window share a buffer.
 */
uint64_t job_buffer(const struct job *job, uint64_t buffers, uint64_t message);

/* Returns the bytes of memory of one message, on a contiguous or noncontiguous side. */
uint64_t job_footprint(const struct job *job, bool noncontiguous);

/* Returns the limit of bytes of the job on one side, including the bookkeeping of its
 * operations. */
uint64_t job_memory(const struct job *job);

/* Returns the payload of the timed phase, both ways, in bytes. */
uint64_t job_bytes(const struct job *job);

/* A server's report at the end of a phase. */
struct report {
    uint64_t error;     /* errno of the server's failure to begin; 0: none */
    uint64_t bad;       /* messages with wrong contents or length */
    uint64_t cpu_start; /* processor time of the server process at the begin of the phase, ns */
    uint64_t cpu_end;   /* at its end */
};

void report_encode(const struct report *report, unsigned char *wire);
int report_decode(struct report *report, const void *wire, size_t length);

/* Clocks, in ns: monotonic time; processor time of this process, user and system. */
uint64_t clock_ns(void);
uint64_t cpu_ns(void);

#endif
