/* Four threads of every rank, each with a communicator of its own, at once. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4 };

static int rank, size, wrong[THREADS];
static MPI_Comm comms[THREADS];

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
    int level, numbers[THREADS], all = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (level != MPI_THREAD_MULTIPLE) printf("no threads\n");
    for (int i = 0; i < THREADS; i++) numbers[i] = i, MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &numbers[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL), all += wrong[i];
    for (int i = 0; i < THREADS; i++) MPI_Comm_free(&comms[i]);
    MPI_Finalize();
    if (all) printf("rank %d: %d wrong\n", rank, all);
    else printf("rank %d right\n", rank);
    return all != 0;
}
