/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Jobs in wire format and in memory, contents of messages, sizes on the command line. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "bench/args.h"
#include "bench/budget.h"
#include "bench/job.h"
#include "bench/latency.h"
#include "bench/pattern.h"
#include "embedded/program/program.h"

static struct job good_job(void)
{
    return (struct job){.test = JOB_STREAM,
                        .direction = JOB_GET,
                        .memory = JOB_BMI,
                        .verify = 1,
                        .size = 512 << 10,
                        .warm = 3,
                        .count = 70,
                        .window = 8,
                        .extent = 2048,
                        .stride = 4096,
                        .split = 64,
                        .both = 1,
                        .tag = 77,
                        .buffers = 8};
}

static void job_survives_encoding(void **state)
{
    struct job job = good_job(), back;
    unsigned char wire[JOB_WIRE_SIZE];

    (void)state;
    job.reply = 5;
    job_encode(&job, wire);
    assert_int_equal(job_decode(&back, wire, sizeof wire), 0);
    assert_memory_equal(&job, &back, sizeof job);
}

/* The client's memory option is not sent: the decoded value depends neither on it nor on former
 * contents. */
static void clients_memory_option_is_not_sent(void **state)
{
    struct job job = good_job(), back;
    unsigned char wire[JOB_WIRE_SIZE];

    (void)state;
    job.verify = 0;
    job.pool = 100;
    job.reuse = 20;
    memset(&back, 0xff, sizeof back);
    job_encode(&job, wire);
    assert_int_equal(job_decode(&back, wire, sizeof wire), 0);
    assert_int_equal(back.pool, 0);
    assert_int_equal(back.reuse, 0);
    assert_int_equal(back.holes, 0);
    assert_int_equal(job_buffers(&job, job.window), 100);
    assert_int_equal(job_buffers(&back, job.window), 8);
    assert_true(job_memory(&job) > 10 * job_memory(&back));
}

/* Exactly the requested share of messages reuses the window's buffers, the others use the rest
 * of the pool in turn; messages of one window never share a buffer. */
static void pool_buffers_are_used_in_turn(void **state)
{
    static const uint64_t reuse[] = {0, 1, 20, 50, 80, 99, 100};
    struct job job = good_job();
    uint64_t message, i, again, last;

    (void)state;
    job.pool = 100;
    for (i = 0; i < sizeof reuse / sizeof *reuse; i++) {
        uint64_t used[100];
        bool seen[100] = {false};

        job.reuse = reuse[i];
        again = 0;
        last = job.pool - 1;
        for (message = 0; message < 1000; message++) {
            uint64_t buffer = job_buffer(&job, job.pool, message);

            assert_true(buffer < job.pool);
            assert_true(!seen[buffer] || message - used[buffer] >= job.window);
            seen[buffer] = true;
            used[buffer] = message;
            if (buffer < job.window) {
                again++;
            } else {
                assert_int_equal(buffer, last + 1 == job.pool ? job.window : last + 1);
                last = buffer;
            }
        }
        assert_int_equal(again, 10 * job.reuse);
    }
    job.pool = 0;
    assert_int_equal(job_buffer(&job, 8, 1003), 3);
}

static void pools_and_holes_out_of_range_refused(void **state)
{
    struct job job = good_job();

    (void)state;
    job.verify = 0;
    job.pool = job.window;
    assert_non_null(job_check(&job));
    job.pool = job.window + 1;
    assert_null(job_check(&job));
    job.reuse = 101;
    assert_non_null(job_check(&job));
    job.reuse = 100;
    assert_null(job_check(&job));
    job.verify = 1;
    assert_non_null(job_check(&job));
    job = good_job();
    job.reuse = 1;
    assert_non_null(job_check(&job));

    job = good_job();
    job.verify = 0;
    job.memory = JOB_USER;
    job.extent = 4096;
    job.stride = 8192;
    job.holes = 127;
    assert_null(job_check(&job));
    job.holes = 128; /* as many as segments */
    assert_non_null(job_check(&job));
    job.holes = 1;
    job.stride = 4096; /* no gaps */
    assert_non_null(job_check(&job));
    job.stride = 8192;
    job.extent = 2048;
    assert_non_null(job_check(&job));
    job.extent = 4096;
    job.memory = JOB_BMI;
    assert_non_null(job_check(&job));
    job.memory = JOB_USER;
    job.verify = 1;
    assert_non_null(job_check(&job));
}

/* Only segments of user memory that are put are packed by the program. */
static void unpackable_job_is_refused(void **state)
{
    struct job job = good_job();

    (void)state;
    job.memory = JOB_USER;
    job.direction = JOB_PUT;
    job.extent = 4096;
    job.stride = 8192;
    job.pack = 1;
    assert_null(job_check(&job));
    job.direction = JOB_GET;
    assert_non_null(job_check(&job));
    job.direction = JOB_PUT;
    job.memory = JOB_BMI;
    assert_non_null(job_check(&job));
    job.memory = JOB_USER;
    job.extent = job.stride = 0;
    assert_non_null(job_check(&job));
}

static void foreign_bytes_are_no_job(void **state)
{
    struct job job = good_job(), back;
    unsigned char wire[JOB_WIRE_SIZE];

    (void)state;
    job_encode(&job, wire);
    assert_int_equal(job_decode(&back, wire, sizeof wire - 1), -EPROTO);
    wire[0] ^= 1;
    assert_int_equal(job_decode(&back, wire, sizeof wire), -EPROTO);
}

/* Returns the result of decoding an encoded job that is out of range. */
static int decoded(const struct job *job)
{
    struct job back;
    unsigned char wire[JOB_WIRE_SIZE];

    job_encode(job, wire);
    return job_decode(&back, wire, sizeof wire);
}

static void jobs_out_of_range_are_refused(void **state)
{
    struct job job;

    (void)state;
#define REFUSED(change)                                                                        \
    job = good_job();                                                                          \
    assert_int_equal(decoded(&job), 0);                                                        \
    job.change;                                                                                \
    assert_int_equal(decoded(&job), -EINVAL)
    REFUSED(test = JOB_TESTS);
    REFUSED(direction = 3);
    REFUSED(memory = JOB_MEMORIES);
    REFUSED(verify = 2);
    REFUSED(size = JOB_MAX_SIZE + 2048);
    REFUSED(size = 2049);
    REFUSED(size = 0);
    REFUSED(reply = UINT64_MAX);
    REFUSED(count = 0);
    REFUSED(count = (uint64_t)1 << 32);
    REFUSED(warm = UINT64_MAX);
    REFUSED(window = 0);
    REFUSED(window = JOB_MAX_WINDOW + 1);
    REFUSED(window = 4096); /* times 1 MiB is too much memory */
    REFUSED(stride = 2047);
    REFUSED(stride = UINT64_MAX);
    REFUSED(stride = JOB_MAX_SIZE); /* times 256 extents */
    REFUSED(split = 0);
    REFUSED(split = 4097);
    REFUSED(both = 2);
    REFUSED(buffers = 7); /* messages that share memory cannot be verified */
#undef REFUSED
    job = good_job();
    job.tag = INT32_MAX; /* no tag is left for control messages */
    assert_int_equal(decoded(&job), -EPROTO);
    /* one that the caller sees */
    assert_string_equal(job_check(&job), "tags must be 0 to 2147483646");
}

static void buffers_are_at_most_the_window(void **state)
{
    struct job job = good_job();

    (void)state;
    assert_int_equal(job_buffers(&job, 8), 8);
    assert_int_equal(job_buffers(&job, 2), 2);
    job.buffers = 1;
    assert_int_equal(job_buffers(&job, 8), 1);
    job.buffers = 0;
    assert_int_equal(job_buffers(&job, 8), 8);
    job.verify = 0;
    job.buffers = 1; /* with shared buffers less than the limit */
    job.window = 4096;
    assert_null(job_check(&job));
}

static void bytes_of_a_job(void **state)
{
    struct job job = good_job();
    uint64_t one = job.count * job.size;

    (void)state;
    assert_int_equal(job_bytes(&job), one);
    job.direction = JOB_BOTH;
    assert_int_equal(job_bytes(&job), 2 * one);
    job.direction = JOB_PUT;
    job.test = JOB_PINGPONG;
    assert_int_equal(job_bytes(&job), 2 * one);
    job.test = JOB_REQUEST;
    job.reply = 64;
    assert_int_equal(job_bytes(&job), one + 64 * job.count);
}

static void clocks_go_forward(void **state)
{
    uint64_t before = clock_ns();

    (void)state;
    assert_true(before > 0 && clock_ns() >= before);
}

/* Memory of a server is bounded, though the job has few bytes. */
static void memory_of_a_job_is_bounded(void **state)
{
    struct job job = good_job();

    (void)state;
    assert_true(job_memory(&job) >= 8 * (1 << 20));
    assert_true(job_memory(&job) <= 9 * (1 << 20));
    job.direction = JOB_BOTH;
    assert_true(job_memory(&job) >= 16 * (1 << 20));
    /* many small operations that share one buffer: their descriptors take the memory */
    job = (struct job){.test = JOB_STREAM,
                       .size = 1 << 20,
                       .count = 1,
                       .window = 4096,
                       .extent = 1,
                       .stride = 1,
                       .split = 1,
                       .buffers = 1};
    assert_non_null(job_check(&job));
    job.window = 1;
    assert_true(job_memory(&job) >= (uint64_t)(1 << 20) * JOB_PLACE_BYTES);
    assert_null(job_check(&job));
    job.window = 1024; /* a quarter of a million operations of 4 KiB, both ways */
    job.direction = JOB_BOTH;
    job.extent = job.stride = 4096;
    job.split = 1;
    assert_true(job_memory(&job) >= (uint64_t)2 * 1024 * 256 * 1200);
    job.window = 4096;
    assert_non_null(job_check(&job));
    job.direction = JOB_PUT;
    job.window = 1;
    job.extent = job.stride = 1;
    job.split = 4096; /* fewer operations, of as many segments */
    assert_true(job_memory(&job) >= (uint64_t)(1 << 20) * JOB_SEGMENT_BYTES);
    job.window = 4096;
    assert_non_null(job_check(&job));
    job = (struct job){.test = JOB_STREAM,
                       .size = JOB_MAX_SIZE,
                       .count = 1,
                       .window = 4096,
                       .extent = 1,
                       .stride = 1,
                       .split = 1};
    assert_non_null(job_check(&job));
}

static void all_jobs_together_are_bounded(void **state)
{
    struct budget budget = {.limit = 1000};

    (void)state;
    assert_false(budget_take(&budget, 501)); /* one job may take half of the budget */
    assert_true(budget_take(&budget, 500));
    assert_true(budget_take(&budget, 400));
    assert_false(budget_take(&budget, 101));
    assert_false(budget_take(&budget, UINT64_MAX));
    assert_true(budget_take(&budget, 100));
    budget_give(&budget, 500);
    assert_true(budget_take(&budget, 500));
}

static void pieces_make_the_message(void **state)
{
    struct job job = good_job();
    uint64_t sum = 0;
    unsigned piece;

    (void)state;
    job.size = 130 * 2048;
    assert_int_equal(job_pieces(&job), 3);
    for (piece = 0; piece < 3; piece++)
        sum += job_piece_size(&job, piece);
    assert_int_equal(sum, job.size);
    assert_int_equal(job_piece_size(&job, 2), 2 * 2048);
    assert_int_equal(job_footprint(&job, true), 130 * 4096);
    assert_int_equal(job_footprint(&job, false), 130 * 2048);
    assert_int_equal(job_segments(&job, true), 64);
    assert_int_equal(job_segments(&job, false), 1);
    job.split = 4096;
    assert_null(job_check(&job));
    assert_int_equal(job_pieces(&job), 1);
    assert_int_equal(job_segments(&job, true), 130);
    job.extent = 0;
    assert_int_equal(job_segments(&job, true), 1);
    assert_int_equal(job_pieces(&job), 1);
    assert_int_equal(job_piece_size(&job, 0), job.size);
}

static void report_survives_encoding(void **state)
{
    struct report report = {5, UINT64_MAX, 1, 2}, back;
    unsigned char wire[REPORT_WIRE_SIZE];

    (void)state;
    report_encode(&report, wire);
    assert_int_equal(report_decode(&back, wire, sizeof wire), 0);
    assert_memory_equal(&report, &back, sizeof report);
    assert_int_equal(report_decode(&back, wire, sizeof wire - 8), -EPROTO);
    wire[7] ^= 0x80;
    assert_int_equal(report_decode(&back, wire, sizeof wire), -EPROTO);
}

/* Contents filled in parts of any size and alignment equal those filled at once. */
static void parts_of_contents_make_the_whole(void **state)
{
    unsigned char whole[257], parts[257];
    uint64_t key = pattern_key(1, 2, true);
    size_t step, at;

    (void)state;
    pattern_fill(whole, sizeof whole, key, 0);
    for (step = 1; step < 40; step++) {
        memset(parts, 0, sizeof parts);
        for (at = 0; at < sizeof parts; at += step) {
            size_t n = sizeof parts - at < step ? sizeof parts - at : step;
            pattern_fill(parts + at, n, key, at);
            assert_true(pattern_matches(whole + at, n, key, at));
        }
        assert_memory_equal(whole, parts, sizeof whole);
    }
}

static void wrong_contents_are_seen(void **state)
{
    unsigned char data[64];
    uint64_t key = pattern_key(0, 0, false);
    size_t at;

    (void)state;
    pattern_fill(data, sizeof data, key, 0);
    assert_true(pattern_matches(data, sizeof data, key, 0));
    assert_false(pattern_matches(data, sizeof data, key, 8)); /* shifted */
    assert_false(
        pattern_matches(data, sizeof data, pattern_key(0, 1, false), 0)); /* another message */
    assert_false(
        pattern_matches(data, sizeof data, pattern_key(1, 0, false), 0)); /* another phase */
    assert_false(
        /* the other direction */
        pattern_matches(data, sizeof data, pattern_key(0, 0, true), 0));
    for (at = 0; at < sizeof data; at++) {
        data[at] ^= 4;
        assert_false(pattern_matches(data, sizeof data, key, 0));
        data[at] ^= 4;
    }
}

static void sizes_are_read_as_written(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } right[] = {{"0", 0}, {"13", 13}, {"64K", 65536}, {"3m", 3 << 20}, {"5G", 5ULL << 30}};
    static const char *const wrong[] = {
        "", "-1", "K", "1KB", "1x", "18446744073709551616", "18014398509481984K"};
    uint64_t value;

    (void)state;
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
        assert_true(program_size(right[i].text, &value) && value == right[i].bytes);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(program_size(wrong[i], &value));
}

/* A percentile is within 1/64 of the time of its rank, for any time. */
static void percentiles_are_near_their_rank(void **state)
{
    static struct latency latency, sum;

    (void)state;
    assert_true(latency_percentile(&latency, 0.5) == 0);
    for (uint64_t unit = 1; unit < 10000000; unit *= 7) {
        latency_begin(&latency);
        memset(&sum, 0, sizeof(sum));
        for (uint64_t i = 0; i < 1000; i++)
            latency_count(&latency, i * unit);
        latency_add(&sum, &latency);
        latency_add(&sum, &latency);
        for (unsigned rank = 0; rank < 1000; rank += 111) {
            double right = (double)(rank * unit), is = latency_percentile(&sum, rank / 1000.0);

            assert_true(is >= right * 63 / 64 && is <= right * 65 / 64);
        }
        assert_true(latency_percentile(&sum, 1) >= 983.0 * (double)unit);
    }
    latency_begin(&latency);
    latency_count(&latency, UINT64_MAX);
    assert_true(latency_percentile(&latency, 0.999) > 3e10);
}

static void lists_and_ranges_of_sizes(void **state)
{
    char *argv[] = {"bmi-perf", "bw", "--sizes", "3,8-32,1K", "x", NULL};
    struct args args;

    (void)state;
    assert_int_equal(args_parse(&args, 5, argv), 0);
    assert_string_equal(args.mode, "bw");
    assert_int_equal(args.nsizes, 5);
    assert_int_equal(args.sizes[0], 3);
    assert_int_equal(args.sizes[1], 8);
    assert_int_equal(args.sizes[3], 32);
    assert_int_equal(args.sizes[4], 1024);
    assert_int_equal(args.npositional, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_survives_encoding),
        cmocka_unit_test(clients_memory_option_is_not_sent),
        cmocka_unit_test(pool_buffers_are_used_in_turn),
        cmocka_unit_test(pools_and_holes_out_of_range_refused),
        cmocka_unit_test(unpackable_job_is_refused),
        cmocka_unit_test(foreign_bytes_are_no_job),
        cmocka_unit_test(jobs_out_of_range_are_refused),
        cmocka_unit_test(buffers_are_at_most_the_window),
        cmocka_unit_test(bytes_of_a_job),
        cmocka_unit_test(clocks_go_forward),
        cmocka_unit_test(memory_of_a_job_is_bounded),
        cmocka_unit_test(all_jobs_together_are_bounded),
        cmocka_unit_test(pieces_make_the_message),
        cmocka_unit_test(report_survives_encoding),
        cmocka_unit_test(parts_of_contents_make_the_whole),
        cmocka_unit_test(wrong_contents_are_seen),
        cmocka_unit_test(sizes_are_read_as_written),
        cmocka_unit_test(lists_and_ranges_of_sizes),
        cmocka_unit_test(percentiles_are_near_their_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
