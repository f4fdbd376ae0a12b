/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * As mpi-tile-io does: each process has a tile of a two-dimensional array, contiguous in
 * memory, its rows apart in the file; no overlap, no header.
 *
 * tile FILE ELEMENT [WIDTH HEIGHT]: elements of ELEMENT bytes, tiles of 1024 x 768 of them,
 * 2 x 2 tiles of four processes.
 */
#include "access.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int tiles[2] = {0, 0}, whole[2], tile[2], start[2], rank, processes, element, wrong;
    struct piece *piece;
    struct access a = {.dumps = 1};
    int64_t row;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "Usage: tile FILE ELEMENT [WIDTH HEIGHT]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    element = atoi(argv[2]);
    tile[0] = argc == 5 ? atoi(argv[4]) : 768;
    tile[1] = argc == 5 ? atoi(argv[3]) : 1024;
    MPI_Dims_create(processes, 2, tiles);
    start[0] = rank / tiles[1] * tile[0];
    start[1] = rank % tiles[1] * tile[1];
    for (int i = 0; i < 2; i++)
        whole[i] = tiles[i] * tile[i];

    MPI_Type_contiguous(element, MPI_BYTE, &a.element);
    MPI_Type_commit(&a.element);
    MPI_Type_contiguous(tile[0] * tile[1], a.element, &a.memory);
    MPI_Type_commit(&a.memory);
    MPI_Type_create_subarray(2, whole, tile, start, MPI_ORDER_C, a.element, &a.view);
    MPI_Type_commit(&a.view);

    row = (int64_t)tile[1] * element;
    piece = calloc((size_t)tile[0], sizeof(*piece));
    for (int y = 0; y < tile[0]; y++)
        piece[y] = (struct piece){
            y * row, ((int64_t)(start[0] + y) * whole[1] + start[1]) * element, row};
    a.piece = piece;
    a.pieces = tile[0];
    a.memory_bytes = tile[0] * row;
    a.dump_bytes = (int64_t)whole[0] * whole[1] * element;
    wrong = access_run(argv[1], &a);
    free(piece);
    MPI_Finalize();
    return wrong;
}
