/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The input and output of NAS BT-IO ("full"), without its arithmetic: the processes, a square
 * number of them, have the cells of a multipartition of a cube, each with two more elements at
 * each face, so that its rows lie apart in memory as well as in the file.  Each dump is one
 * call, at an explicit offset; at the end all dumps are read.
 *
 * bt FILE CLASS: S, W or A, a cube of 12, 24 or 64 elements of five numbers; 12, 40, 40 dumps.
 */
#include "access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE    2 /* elements more at each face */
#define ELEMENT (5 * (int)sizeof(double))

static const struct class
{
    char name;
    int edge, dumps;
} classes[] = {{'S', 12, 12}, {'W', 24, 40}, {'A', 64, 40}};

/* Of n cells along a cube's edge, that of this number: where it begins, and its length. */
static int begin(int edge, int n, int i)
{
    return edge / n * i + (i < edge % n ? i : edge % n);
}
static int length(int edge, int n, int i)
{
    return begin(edge, n, i + 1) - begin(edge, n, i);
}

int main(int argc, char **argv)
{
    const struct class *class = NULL;
    struct access a = {0};
    struct piece *piece, *next;
    int rank, processes, n = 1, edge, room, wrong;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    for (size_t i = 0; argc == 3 && i < sizeof(classes) / sizeof(classes[0]); i++)
        if (argv[2][0] == classes[i].name && argv[2][1] == '\0')
            class = &classes[i];
    while (n * n < processes)
        n++;
    if (class == NULL || n * n != processes) {
        fprintf(stderr, "Usage: bt FILE S|W|A, of a square number of processes\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    edge = class->edge;
    room = edge / n + 1 + 2 * SIDE;

    MPI_Datatype memory[n], file[n];
    int blocks[n];
    MPI_Aint displacements[n];
    MPI_Type_contiguous(5, MPI_DOUBLE, &a.element);
    MPI_Type_commit(&a.element);
    piece = next = calloc((size_t)n * (size_t)room * (size_t)room, sizeof(*piece));
    for (int c = 0; c < n; c++) {
        /* Cells of one process are neighbours along a diagonal: x grows with z, y falls. */
        int cell[3] = {c, (rank / n + n * n - c) % n, (rank + c) % n}; /* z, y, x */
        int low[3], size[4] = {1}, start[4] = {c}, all[4] = {n, room, room, room};
        int cube[3] = {edge, edge, edge};

        for (int d = 0; d < 3; d++) {
            low[d] = begin(edge, n, cell[d]);
            size[d + 1] = length(edge, n, cell[d]);
            start[d + 1] = SIDE;
        }
        MPI_Type_create_subarray(4, all, size, start, MPI_ORDER_C, a.element, &memory[c]);
        MPI_Type_create_subarray(3, cube, size + 1, low, MPI_ORDER_C, a.element, &file[c]);
        blocks[c] = 1;
        displacements[c] = 0;
        for (int z = 0; z < size[1]; z++)
            for (int y = 0; y < size[2]; y++)
                *next++ = (struct piece){
                    (((int64_t)(c * room + SIDE + z) * room + SIDE + y) * room + SIDE) *
                        ELEMENT,
                    (((int64_t)(low[0] + z) * edge + low[1] + y) * edge + low[2]) * ELEMENT,
                    (int64_t)size[3] * ELEMENT};
    }
    MPI_Type_create_struct(n, blocks, displacements, memory, &a.memory);
    MPI_Type_commit(&a.memory);
    MPI_Type_create_struct(n, blocks, displacements, file, &a.view);
    MPI_Type_commit(&a.view);

    a.piece = piece;
    a.pieces = (int)(next - piece);
    a.memory_bytes = (int64_t)n * room * room * room * ELEMENT;
    a.dump_bytes = (int64_t)edge * edge * edge * ELEMENT;
    a.dumps = class->dumps;
    wrong = access_run(argv[1], &a);
    free(piece);
    MPI_Finalize();
    return wrong;
}
