/* One of MPI's calls again and again: instructions NAME CALLS. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    double a[2] = { 1, 2 }, b[2], all[2 * 64];
    const char *name = argc == 3 ? argv[1] : "";
    int calls = argc == 3 ? atoi(argv[2]) : 0, known = 1;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    for (int i = 0; i < calls && known; i++) {
        if (!strcmp(name, "allreduce")) MPI_Allreduce(a, b, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        else if (!strcmp(name, "reduce")) MPI_Reduce(a, b, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        else if (!strcmp(name, "broadcast")) MPI_Bcast(a, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        else if (!strcmp(name, "allgather")) MPI_Allgather(a, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, MPI_COMM_WORLD);
        else if (!strcmp(name, "reduce-scatter")) MPI_Reduce_scatter_block(all, b, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        else if (!strcmp(name, "barrier")) MPI_Barrier(MPI_COMM_WORLD);
        else if (!strcmp(name, "iallreduce")) {
            MPI_Iallreduce(a, b, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else known = 0;
    }
    MPI_Finalize();
    if (!known) fprintf(stderr, "no call %s\n", name);
    return !known;
}
