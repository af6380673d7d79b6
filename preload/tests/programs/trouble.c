/* Failures of MPI programs after successful collectives, chosen by the argument. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size, total;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *what = argc > 1 ? argv[1] : "";
    /* a rank that is still in the last good call may get the error there */
    if (!strcmp(what, "mismatch")) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 100; i++) MPI_Allreduce(&i, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (!strcmp(what, "killed") && rank == 1) raise(SIGKILL);
    if (!strcmp(what, "abort") && rank == 1) MPI_Abort(MPI_COMM_WORLD, 3);
    if (!strcmp(what, "exit") && rank == 1) exit(4);
    int returned = 0, buffer[4] = { 0 };
    for (int i = 0; i < 3; i++) {
        if (strcmp(what, "mismatch") && strcmp(what, "fatal")) MPI_Barrier(MPI_COMM_WORLD);
        else returned += MPI_Allreduce(MPI_IN_PLACE, buffer, rank == 1 ? 2 : 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
    }
    if (returned == 3) printf("rank %d got errors\n", rank);
    fflush(stdout);
    /* the communicator has failed, but MPI's own calls work */
    MPI_Finalize();
    return 0;
}
