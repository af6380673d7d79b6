/* More communicators at once than one rank has descriptors for: it must neither hang nor be wrong. */
#include <mpi.h>
#include <stdio.h>
#include <sys/resource.h>

enum { MANY = 300 };

int main(int argc, char **argv)
{
    static MPI_Comm comms[MANY];
    int rank, size, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 1) setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 100, 100 });
    for (int i = 0; i < MANY; i++) {
        int total = i;
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_INT, MPI_SUM, comms[i]);
        wrong += total != size * i;
    }
    for (int i = 0; i < MANY; i++) {
        int sent = rank == i % size ? i : -1;
        MPI_Bcast(&sent, 1, MPI_INT, i % size, comms[i]);
        wrong += sent != i;
        MPI_Comm_free(&comms[i]);
    }
    MPI_Finalize();
    if (wrong) printf("rank %d: %d wrong\n", rank, wrong);
    else printf("rank %d right\n", rank);
    return wrong != 0;
}
