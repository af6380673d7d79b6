/* Callbacks of MPI_Finalize may use MPI, as libraries that write files then do: a key of MPI_COMM_SELF whose
 * deletion calls collectives on communicators that were used before and on one that was not. */
#include <mpi.h>
#include <stdio.h>

static int rank, size, wrong, called;
static MPI_Comm used, fresh;

static int deleted(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    MPI_Comm comms[] = { MPI_COMM_WORLD, used, fresh };
    for (int i = 0; i < 3; i++) {
        int sum = -1, sent = rank == 0 ? 5 : -1;
        MPI_Barrier(comms[i]);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comms[i]);
        MPI_Bcast(&sent, 1, MPI_INT, 0, comms[i]);
        wrong += sum != size * (size - 1) / 2 || sent != 5;
    }
    MPI_Comm_free(&used);
    called++;
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    int key, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &used), MPI_Comm_dup(MPI_COMM_WORLD, &fresh);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, deleted, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    for (int i = 0; i < 10; i++) {
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, used);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    if (wrong || called != 1) printf("rank %d: %d wrong, called %d\n", rank, wrong, called);
    else printf("rank %d right\n", rank);
    return wrong != 0;
}
