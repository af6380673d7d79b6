/* Which is faster, the interposer's call (MPI_) or the MPI library's own (PMPI_)? Both in one program that runs under the
 * interposer, in turns, ranks arriving up to 20 us apart. A line per operation and size: the median tail of each, from the last
 * arrival to the last exit by the clock that all processes of a machine share. preload/benches/faster runs it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPERATIONS = 6, WARM = 10, MOST = 400, SIZES = 10, LARGEST = 4 << 20 };
static const char *const names[] = { "allreduce", "reduce", "broadcast", "barrier", "allgather", "reduce-scatter" };
static float *in, *out;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* n: floats of a block; which: 0 the interposer's, 1 MPI's */
#define EITHER(name, ...) (which ? PMPI_##name(__VA_ARGS__) : MPI_##name(__VA_ARGS__))
static void call(int operation, int which, int n)
{
    switch (operation) {
    case 0: EITHER(Allreduce, in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case 1: EITHER(Reduce, in, out, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); break;
    case 2: EITHER(Bcast, in, n, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case 3: EITHER(Barrier, MPI_COMM_WORLD); break;
    case 4: EITHER(Allgather, in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD); break;
    default: EITHER(Reduce_scatter_block, in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    in = calloc(size, LARGEST), out = calloc(size, LARGEST);
    unsigned seed = 7 + rank;
    static const int bytes[] = { 8, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, LARGEST };
    if (rank == 0) printf("operation,bytes,ranks,ours_us,mpi_us,ratio\n");
    for (int operation = 0; operation < OPERATIONS; operation++)
        for (int s = 0; s < SIZES; s++) {
            if (operation == 3 && s) continue;
            int n = bytes[s] / sizeof *in, calls = bytes[s] < 1 << 18 ? MOST : MOST / 4;
            double last[2], tails[2][MOST];
            for (int i = -WARM; i < calls; i++)
                for (int which = 0; which < 2; which++) {
                    PMPI_Barrier(MPI_COMM_WORLD);
                    double begin = now(), wait = rand_r(&seed) % 20;
                    while (now() < begin + wait) {}
                    double mine[2] = { now(), 0 };
                    call(operation, which, n);
                    mine[1] = now();
                    PMPI_Reduce(mine, last, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
                    if (i >= 0) tails[which][i] = last[1] - last[0];
                }
            if (rank) continue;
            for (int which = 0; which < 2; which++) qsort(tails[which], calls, sizeof(double), by_value);
            double ours = tails[0][calls / 2], theirs = tails[1][calls / 2];
            printf("%s,%d,%d,%.2f,%.2f,%.2f\n", names[operation], operation == 3 ? 0 : bytes[s], size, ours, theirs, ours / theirs);
            fflush(stdout);
        }
    MPI_Finalize();
    return 0;
}
