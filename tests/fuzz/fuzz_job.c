/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any bytes as a request of bmi-perf's client, and as a report of its server. */
#include "fuzz.h"
#include "bench/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = fuzz_copy(data, size, 0);
    struct report report;
    struct job job;

    if (job_decode(&job, bytes, size) == 0) {
        unsigned pieces = job_pieces(&job);
        uint64_t first = job_piece_size(&job, 0), last = job_piece_size(&job, pieces - 1);

        /* the server relies on this: pieces make up the message, and all of it fits */
        FUZZ_CHECK(job.size <= JOB_MAX_SIZE && job.window >= 1 && job.count >= 1);
        FUZZ_CHECK(job_memory(&job) <= JOB_MAX_MEMORY);
        FUZZ_CHECK(job_memory(&job) >=
                   (job_footprint(&job, true) + job.reply) * job_buffers(&job, job.window));
        FUZZ_CHECK(job_footprint(&job, true) >= job_footprint(&job, false));
        FUZZ_CHECK(last <= first && first * (pieces - 1) + last == job.size);
        FUZZ_CHECK(job.extent == 0 || first <= job.extent * JOB_MAX_SEGMENTS);
    }
    FUZZ_CHECK((report_decode(&report, bytes, size) == 0) <= (size == REPORT_WIRE_SIZE));
    free(bytes);
    return 0;
}
