/* Two threads of every rank, each with a communicator of its own, at once. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

static int rank, size, wrong[2];
static MPI_Comm comms[2];

static void *work(void *which)
{
    int me = *(int *)which;
    for (int i = 0; i < 300; i++) {
        int mine = rank + i, total = -1, expected = size * i + size * (size - 1) / 2;
        MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, comms[me]);
        wrong[me] += total != expected;
        mine = rank == i % size ? i : -1;
        MPI_Bcast(&mine, 1, MPI_INT, i % size, comms[me]);
        wrong[me] += mine != i;
        if (i % 50 == 49) { /* one that lives while the other thread works */
            MPI_Comm own;
            MPI_Comm_dup(comms[me], &own);
            MPI_Barrier(own);
            MPI_Comm_free(&own);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int level, both[2] = { 0, 1 };
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (level != MPI_THREAD_MULTIPLE) printf("no threads\n");
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]), MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, &both[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    MPI_Comm_free(&comms[0]), MPI_Comm_free(&comms[1]);
    MPI_Finalize();
    if (wrong[0] + wrong[1]) printf("rank %d: %d wrong\n", rank, wrong[0] + wrong[1]);
    else printf("rank %d right\n", rank);
    return wrong[0] + wrong[1] != 0;
}
