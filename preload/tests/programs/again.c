/* Communicators of the same ranks, one after the other and several at once, chosen by the argument. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { ALIVE = 40 };

static int rank, size, wrong;

static void used(MPI_Comm comm, int calls)
{
    for (int i = 0; i < calls; i++) {
        long mine = rank + i, sum = -1;
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
        wrong += sum != (long)size * i + size * (size - 1) / 2;
    }
}

static MPI_Comm made(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return comm;
}

int main(int argc, char **argv)
{
    static MPI_Comm comms[ALIVE];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "world")) used(MPI_COMM_WORLD, 1);
    if (!strcmp(what, "many")) {
        for (int i = 0; i < 60; i++) {
            MPI_Comm comm = made();
            used(comm, 30);
            MPI_Comm_free(&comm);
        }
        MPI_Comm first = made(), second = made();
        used(first, 15), used(second, 30), used(first, 15);
        MPI_Comm_free(&first), MPI_Comm_free(&second);
    }
    if (!strcmp(what, "alive"))
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < ALIVE; i++) comms[i] = made(), used(comms[i], 2);
            for (int i = 0; i < ALIVE; i++) MPI_Comm_free(&comms[i]);
        }
    if (!strcmp(what, "failed"))
        for (int i = 0; i < 4; i++) {
            long numbers[4] = { 0 };
            MPI_Comm comm = made();
            used(comm, 10);
            MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
            wrong += MPI_Allreduce(MPI_IN_PLACE, numbers, rank ? 2 : 4, MPI_LONG, MPI_SUM, comm) == MPI_SUCCESS;
            MPI_Comm_free(&comm);
        }
    MPI_Finalize();
    if (wrong) printf("rank %d: %d wrong\n", rank, wrong);
    else printf("rank %d right\n", rank);
    return wrong != 0;
}
