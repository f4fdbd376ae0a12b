/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * As the programs "noncontig" do: pieces of the processes in turn in the file, and in memory
 * adjoining or a piece apart.
 *
 * noncontig FILE PIECE COUNT MEMORY: COUNT pieces of PIECE bytes of each process; MEMORY is
 * adjoining or apart.
 */
#include "access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct access a = {.dumps = 1};
    struct piece *piece;
    int rank, processes, bytes, stride, wrong;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc != 5) {
        fprintf(stderr, "Usage: noncontig FILE PIECE COUNT adjoining|apart\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    bytes = atoi(argv[2]);
    a.pieces = atoi(argv[3]);
    stride = strcmp(argv[4], "apart") == 0 ? 2 * bytes : bytes;

    MPI_Datatype all;
    int whole[2] = {a.pieces, processes * bytes}, part[2] = {a.pieces, bytes},
        start[2] = {0, rank * bytes};
    a.element = MPI_BYTE;
    MPI_Type_vector(a.pieces, bytes, stride, MPI_BYTE, &all);
    MPI_Type_create_resized(all, 0, (MPI_Aint)a.pieces * stride, &a.memory);
    MPI_Type_commit(&a.memory);
    MPI_Type_create_subarray(2, whole, part, start, MPI_ORDER_C, MPI_BYTE, &a.view);
    MPI_Type_commit(&a.view);

    piece = calloc((size_t)a.pieces, sizeof(*piece));
    for (int i = 0; i < a.pieces; i++)
        piece[i] =
            (struct piece){(int64_t)i * stride, ((int64_t)i * processes + rank) * bytes, bytes};
    a.piece = piece;
    a.memory_bytes = (int64_t)a.pieces * stride;
    a.dump_bytes = (int64_t)a.pieces * processes * bytes;
    wrong = access_run(argv[1], &a);
    free(piece);
    MPI_Finalize();
    return wrong;
}
