/* Messages of a megabyte under way across every collective: a rank that waits for another in a collective must keep
 * MPI going, or the other one never gets out of its MPI_Recv. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 20, KINDS = 6 };

static int collective(int kind, int rank, int size)
{
    int mine = rank + 1, all[64], blocks[64], result = -1, expected = size * (size + 1) / 2;
    switch (kind) {
    case 0: MPI_Allreduce(&mine, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); return result == expected;
    case 1: MPI_Reduce(&mine, &result, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD); return rank != 0 || result == expected;
    case 2: MPI_Bcast(&mine, 1, MPI_INT, size - 1, MPI_COMM_WORLD); return mine == size;
    case 3: MPI_Barrier(MPI_COMM_WORLD); return 1;
    case 4: MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD); return all[size - 1] == size;
    default:
        for (int i = 0; i < size; i++) blocks[i] = mine;
        MPI_Reduce_scatter_block(blocks, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        return result == expected;
    }
}

int main(int argc, char **argv)
{
    int rank, size, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    char *out = malloc(N), *in = malloc(N);
    for (int kind = 0; kind < KINDS; kind++)
        for (int synchronous = 0; synchronous < 2; synchronous++)
            for (int from = 0; from < size; from++) {
                int to = (from + 1) % size;
                MPI_Request request = MPI_REQUEST_NULL, second = MPI_REQUEST_NULL;
                memset(out, from + kind, N), memset(in, 0, N);
                if (rank == from) {
                    if (synchronous) MPI_Issend(out, N, MPI_CHAR, to, kind, MPI_COMM_WORLD, &request);
                    else MPI_Isend(out, N, MPI_CHAR, to, kind, MPI_COMM_WORLD, &request);
                    MPI_Irecv(in, 0, MPI_CHAR, to, 99, MPI_COMM_WORLD, &second);
                }
                if (rank == to) {
                    MPI_Recv(in, N, MPI_CHAR, from, kind, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    MPI_Ssend(&rank, 0, MPI_CHAR, from, 99, MPI_COMM_WORLD);
                    for (int i = 0; i < N; i++) wrong += in[i] != (char)(from + kind);
                }
                wrong += !collective(kind, rank, size);
                MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_Wait(&second, MPI_STATUS_IGNORE);
                MPI_Barrier(MPI_COMM_WORLD);
            }
    MPI_Finalize();
    if (wrong) printf("rank %d: %d wrong\n", rank, wrong);
    else printf("rank %d right\n", rank);
    return wrong != 0;
}
