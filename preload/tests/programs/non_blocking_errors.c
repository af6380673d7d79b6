/* Ranks that start different calls: the error comes from the function that waits, by the communicator's error handler. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int handled;

static void handle(MPI_Comm *comm, int *code, ...)
{
    (void)comm, handled = *code;
}

int main(int argc, char **argv)
{
    int rank, mine[300] = { 0 }, sums[300], code;
    MPI_Request request;
    MPI_Status status;
    MPI_Errhandler handler;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(argv[1], "return")) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!strcmp(argv[1], "function")) MPI_Comm_create_errhandler(handle, &handler), MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Iallreduce(mine, sums, 100 + rank, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    code = MPI_Wait(&request, &status);
    int is_right = !strcmp(argv[1], "function") ? handled == MPI_ERR_OTHER : code == MPI_ERR_OTHER;
    printf("rank %d %s\n", rank, is_right && request == MPI_REQUEST_NULL ? "right" : "wrong");
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
