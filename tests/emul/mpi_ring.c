/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* An MPI program for foreign.sh, which compiles it by mpicc: a ring and an all-to-all of 1 MiB,
 * every byte checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZE   (1 << 20)
#define ROUNDS 10

static unsigned char value(int i, int from, int to, int round)
{
    return (unsigned char)(i * 7 + (i >> 8) + from * 5 + to * 3 + round);
}

static void fill(unsigned char *at, int from, int to, int round)
{
    for (int i = 0; i < SIZE; i++)
        at[i] = value(i, from, to, round);
}

static int wrong(const unsigned char *at, int from, int to, int round)
{
    int bad = 0;

    for (int i = 0; i < SIZE; i++)
        bad += at[i] != value(i, from, to, round);
    return bad;
}

int main(int argc, char **argv)
{
    int me, all, bad = 0, total;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    unsigned char *out = malloc((size_t)all * SIZE), *in = malloc((size_t)all * SIZE);
    if (!out || !in)
        MPI_Abort(MPI_COMM_WORLD, 1);
    int next = (me + 1) % all, before = (me + all - 1) % all;
    for (int round = 0; round < ROUNDS; round++) {
        fill(out, me, next, round);
        MPI_Sendrecv(out, SIZE, MPI_BYTE, next, 0, in, SIZE, MPI_BYTE, before, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        bad += wrong(in, before, me, round);
        for (int to = 0; to < all; to++)
            fill(out + (size_t)to * SIZE, me, to, round);
        MPI_Alltoall(out, SIZE, MPI_BYTE, in, SIZE, MPI_BYTE, MPI_COMM_WORLD);
        for (int from = 0; from < all; from++)
            bad += wrong(in + (size_t)from * SIZE, from, me, round);
    }
    MPI_Allreduce(&bad, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (me == 0)
        printf("%d ranks, %d wrong bytes\n", all, total);
    free(out);
    free(in);
    MPI_Finalize();
    return total != 0;
}
