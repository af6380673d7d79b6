/* Persistent collectives, where MPI has them, and non-blocking ones between blocking ones. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 20 };

int main(int argc, char **argv)
{
    int rank, size, wrong = 0, sum, total, ones[64], all[64], back[64];
    MPI_Status statuses[6];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int r = 0; r < size; r++) ones[r] = rank + 1;
    int mine = rank + 1, expected = size * (size + 1) / 2, root = size - 1;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request requests[6];
        int sent = rank == root ? i : -1, block = -1, reduced = -1;
        sum = total = -1;
        MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
        MPI_Ibcast(&sent, 1, MPI_INT, root, MPI_COMM_WORLD, &requests[1]);
        MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); /* while they are under way */
        MPI_Ireduce(&mine, &reduced, 1, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD, &requests[2]);
        MPI_Iallgather(&mine, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD, &requests[3]);
        MPI_Ireduce_scatter_block(ones, &block, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[4]);
        MPI_Ibarrier(MPI_COMM_WORLD, &requests[5]);
        MPI_Waitall(6, requests, statuses);
        wrong += sum != expected || total != expected || sent != i || block != expected;
        wrong += rank == root && reduced != expected;
        for (int r = 0; r < size; r++) wrong += all[r] != r + 1;
        MPI_Ialltoall(ones, 1, MPI_INT, back, 1, MPI_INT, MPI_COMM_WORLD, &requests[0]);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        for (int r = 0; r < size; r++) wrong += back[r] != r + 1;
    }
#if MPI_VERSION >= 4
    MPI_Request again[6];
    int sent = -1, block = -1, reduced = -1;
    MPI_Allreduce_init(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &again[0]);
    MPI_Bcast_init(&sent, 1, MPI_INT, root, MPI_COMM_WORLD, MPI_INFO_NULL, &again[1]);
    MPI_Reduce_init(&mine, &reduced, 1, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD, MPI_INFO_NULL, &again[2]);
    MPI_Allgather_init(&mine, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &again[3]);
    MPI_Reduce_scatter_block_init(ones, &block, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &again[4]);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &again[5]);
    for (int i = 0; i < ROUNDS; i++) {
        sum = block = reduced = -1, sent = rank == root ? i : -1;
        MPI_Startall(6, again);
        MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Waitall(6, again, statuses);
        wrong += sum != expected || total != expected || sent != i || block != expected;
        wrong += rank == root && reduced != expected;
    }
    for (int i = 0; i < 6; i++) MPI_Request_free(&again[i]);
#endif
    MPI_Finalize();
    if (wrong) printf("rank %d: %d wrong\n", rank, wrong);
    else printf("rank %d right\n", rank);
    return wrong != 0;
}
