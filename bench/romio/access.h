/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Accesses of the programs of this folder: all processes of MPI_COMM_WORLD write and read one
 * file through ROMIO, each with its pieces of memory and of the file, and verify each byte. */
#ifndef BENCH_ROMIO_ACCESS_H
#define BENCH_ROMIO_ACCESS_H

#include <mpi.h>
#include <stdint.h>

struct piece {
    int64_t memory, file, length; /* where in the buffer, where in a dump, and how long */
};

/* One process's part of consecutive dumps in the file.  The datatypes describe the pieces to
 * MPI. */
struct access {
    const struct piece *piece; /* in the order of memory */
    int pieces;
    int64_t memory_bytes; /* size of the buffer; bytes outside all pieces must not change */
    int64_t dump_bytes;   /* of all processes */
    int dumps;
    MPI_Datatype element, memory, view;
};

/*
 * Writes the dumps and reads them back, by the hints in the file that ROMIO_HINTS names.  The
 * first process prints a line for each direction,
 *
 *     write|read BYTES SECONDS REQUESTS MESSAGES
 *
 * of all processes together (SECONDS: the longest of each dump, without opening and closing),
 * and "wrong BYTES".  REQUESTS are calls of PVFS_sys_io, MESSAGES their requests to servers.
 * Returns 0, or 1 when a byte was wrong.
 */
int access_run(const char *name, const struct access *a);

/* Returns the counts of this process since its start (requests.c). */
void requests_count(uint64_t *calls, uint64_t *messages);

#endif
