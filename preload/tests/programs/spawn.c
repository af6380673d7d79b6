/* Ranks that are started later join those that started them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* Two more ranks, with the same library: variables of `mpirun -n 2 env LD_PRELOAD=...` do not reach them. */
static MPI_Comm started(char *program)
{
    static char preload[4096], interpose[4096];
    char *has = getenv("LD_PRELOAD"), *asked = getenv("EARLYBIRD_INTERPOSE");
    char *words[] = { preload, interpose, program, NULL };
    MPI_Comm across;
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", has ? has : "");
    snprintf(interpose, sizeof interpose, "EARLYBIRD_INTERPOSE=%s", asked ? asked : "on");
    MPI_Comm_spawn("/usr/bin/env", words, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &across, MPI_ERRCODES_IGNORE);
    return across;
}

int main(int argc, char **argv)
{
    int rank, size, sum = -1, wrong = 0;
    MPI_Comm parent, across, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    int is_child = parent != MPI_COMM_NULL;
    across = is_child ? parent : started(argv[0]);
    MPI_Intercomm_merge(across, is_child, &all);
    MPI_Comm_rank(all, &rank), MPI_Comm_size(all, &size);
    for (int i = 0; i < 20; i++) {
        int sent = rank == size - 1 ? i : -1;
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
        MPI_Bcast(&sent, 1, MPI_INT, size - 1, all);
        MPI_Allreduce(&sent, &sent, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        wrong += sum != size * (size - 1) / 2 || sent != i;
    }
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&across);
    MPI_Finalize();
    if (wrong) printf("rank %d: %d wrong\n", rank, wrong);
    else if (!is_child) printf("rank %d of %d right\n", rank, size);
    return wrong != 0;
}
