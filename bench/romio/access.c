/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The programs of this folder without what tells them apart: access.h. */
#include "access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 0xa5
#define SLICE (4 << 20) /* bytes of a read when the whole file is verified */

static int rank, processes;

/* The byte that belongs at a place of the file. */
static uint8_t byte_at(int64_t at)
{
    return (uint8_t)((uint64_t)(at + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 40);
}

static void fill(uint8_t *buffer, const struct access *a, int dump)
{
    memset(buffer, GUARD, (size_t)a->memory_bytes);
    for (int i = 0; i < a->pieces; i++)
        for (int64_t b = 0; b < a->piece[i].length; b++)
            buffer[a->piece[i].memory + b] =
                byte_at(dump * a->dump_bytes + a->piece[i].file + b);
}

static int64_t not_guard(const uint8_t *buffer, int64_t from, int64_t to)
{
    int64_t wrong = 0;

    for (; from < to; from++)
        wrong += buffer[from] != GUARD;
    return wrong;
}

static int64_t wrong_bytes(const uint8_t *buffer, const struct access *a, int dump)
{
    int64_t wrong = 0, end = 0;

    for (int i = 0; i < a->pieces; i++) {
        const struct piece *p = &a->piece[i];
        wrong += not_guard(buffer, end, p->memory);
        for (int64_t b = 0; b < p->length; b++)
            wrong += buffer[p->memory + b] != byte_at(dump * a->dump_bytes + p->file + b);
        end = p->memory + p->length;
    }
    return wrong + not_guard(buffer, end, a->memory_bytes);
}

/* One dump; the seconds of the slowest process. */
static double move(MPI_File file, uint8_t *buffer, const struct access *a, int dump, int writes)
{
    MPI_Count bytes, moved, element;
    MPI_Offset at;
    MPI_Status status;
    double seconds, slowest;

    MPI_Type_size_x(a->memory, &bytes);
    MPI_Type_size_x(a->element, &element);
    at = dump * (bytes / element);
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime();
    if (writes)
        MPI_File_write_at_all(file, at, buffer, 1, a->memory, &status);
    else
        MPI_File_read_at_all(file, at, buffer, 1, a->memory, &status);
    seconds = MPI_Wtime() - seconds;
    MPI_Get_elements_x(&status, MPI_BYTE, &moved);
    if (moved != bytes) {
        fprintf(stderr, "process %d: %s: %lld bytes instead of %lld\n", rank,
                writes ? "write" : "read", (long long)moved, (long long)bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* All dumps.  Returns the wrong bytes of this process. */
static int64_t measure(const char *name, const struct access *a, uint8_t *buffer, int writes)
{
    MPI_File file;
    int64_t wrong = 0;
    uint64_t before[2], after[2], sum[2];
    double seconds = 0;

    MPI_File_open(MPI_COMM_WORLD, name,
                  writes ? MPI_MODE_RDWR | MPI_MODE_CREATE : MPI_MODE_RDONLY, MPI_INFO_NULL,
                  &file);
    MPI_File_set_view(file, 0, a->element, a->view, "native", MPI_INFO_NULL);
    requests_count(&before[0], &before[1]);
    for (int dump = 0; dump < a->dumps; dump++) {
        if (writes)
            fill(buffer, a, dump);
        else
            memset(buffer, GUARD, (size_t)a->memory_bytes);
        seconds += move(file, buffer, a, dump, writes);
        wrong += wrong_bytes(buffer, a, dump);
    }
    requests_count(&after[0], &after[1]);
    MPI_File_close(&file);
    for (int i = 0; i < 2; i++)
        after[i] -= before[i];
    MPI_Reduce(after, sum, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s %lld %.6f %llu %llu\n", writes ? "write" : "read",
               (long long)(a->dumps * a->dump_bytes), seconds, (unsigned long long)sum[0],
               (unsigned long long)sum[1]);
    return wrong;
}

/* The whole file, each process slices of its own, without pieces. */
static int64_t wrong_in_file(const char *name, const struct access *a)
{
    MPI_File file;
    MPI_Offset size;
    int64_t wrong = 0, bytes = a->dumps * a->dump_bytes;
    uint8_t *slice = malloc(SLICE);

    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    MPI_File_get_size(file, &size);
    wrong += llabs(size - bytes);
    for (int64_t at = (int64_t)rank * SLICE; at < bytes; at += (int64_t)processes * SLICE) {
        int length = (int)(bytes - at < SLICE ? bytes - at : SLICE);
        memset(slice, GUARD, SLICE);
        MPI_File_read_at(file, at, slice, length, MPI_BYTE, MPI_STATUS_IGNORE);
        for (int b = 0; b < length; b++)
            wrong += slice[b] != byte_at(at + b);
    }
    MPI_File_close(&file);
    free(slice);
    return wrong;
}

int access_run(const char *name, const struct access *a)
{
    const char *posts = getenv("POSTS");
    uint8_t *buffer = malloc((size_t)a->memory_bytes);
    int64_t wrong, sum;
    char own[4096];

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (posts != NULL && snprintf(own, sizeof(own), "%s.%d", posts, rank) < (int)sizeof(own))
        setenv("POSTS", own, 1); /* a file for each process (tests/orangefs/posts.c) */
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_ARE_FATAL);
    wrong = measure(name, a, buffer, 1);
    wrong += measure(name, a, buffer, 0);
    wrong += wrong_in_file(name, a);
    MPI_Allreduce(&wrong, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("wrong %lld\n", (long long)sum);
        MPI_File_delete(name, MPI_INFO_NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(buffer);
    return sum != 0;
}
