/* Which is faster, the interposer's call (MPI_) or the MPI library's own (PMPI_)? Both in one program that runs under the
 * interposer, in turns, ranks arriving up to 20 us apart. A line per operation and size: the median tail of each, from the last
 * arrival to the last exit by the clock that all processes of a machine share. Only the operations that are named as arguments, or all.
 * Non-blocking calls are started and waited for at once. Where blocks may be unequal the last rank's is half as long. "communicator" is a duplicate of MPI_COMM_WORLD, some allreduces of 8
 * bytes on it, whose number stands for the bytes, and its end. preload/benches/faster runs it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPERATIONS = 25, WARM = 10, MOST = 400, SIZES = 10, LARGEST = 4 << 20, RANKS = 64 };
static const char *const names[] = { "allreduce", "reduce", "broadcast", "barrier", "allgather", "reduce-scatter-block", "gather",
                                     "gatherv", "scatter", "scatterv", "allgatherv", "alltoall", "alltoallv", "reduce-scatter",
                                     "iallreduce", "ireduce", "ibroadcast", "ibarrier", "iallgather", "ialltoall", "ialltoallv", "ireduce-scatter-block", "igatherv", "iscatterv",
                                     "communicator" };
static float *in, *out;
static int counts[RANKS], places[RANKS];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* n: floats of a block; which: 0 the interposer's, 1 MPI's */
#define EITHER(name, ...) (which ? PMPI_##name(__VA_ARGS__) : MPI_##name(__VA_ARGS__))
static void call(int operation, int which, int n, int rank, int size)
{
    int own = counts[rank], pairs[RANKS];
    MPI_Request request = MPI_REQUEST_NULL;
    /* as much both ways */
    for (int r = 0; r < size; r++) pairs[r] = counts[r < rank ? rank : r];
    switch (operation) {
    case 0: EITHER(Allreduce, in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case 1: EITHER(Reduce, in, out, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); break;
    case 2: EITHER(Bcast, in, n, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case 3: EITHER(Barrier, MPI_COMM_WORLD); break;
    case 4: EITHER(Allgather, in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD); break;
    case 5: EITHER(Reduce_scatter_block, in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case 6: EITHER(Gather, in, n, MPI_FLOAT, out, n, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case 7: EITHER(Gatherv, in, own, MPI_FLOAT, out, counts, places, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case 8: EITHER(Scatter, in, n, MPI_FLOAT, out, n, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case 9: EITHER(Scatterv, in, counts, places, MPI_FLOAT, out, own, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case 10: EITHER(Allgatherv, in, own, MPI_FLOAT, out, counts, places, MPI_FLOAT, MPI_COMM_WORLD); break;
    case 11: EITHER(Alltoall, in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD); break;
    case 12: EITHER(Alltoallv, in, pairs, places, MPI_FLOAT, out, pairs, places, MPI_FLOAT, MPI_COMM_WORLD); break;
    case 13: EITHER(Reduce_scatter, in, out, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case 14: EITHER(Iallreduce, in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request); break;
    case 15: EITHER(Ireduce, in, out, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD, &request); break;
    case 16: EITHER(Ibcast, in, n, MPI_FLOAT, 0, MPI_COMM_WORLD, &request); break;
    case 17: EITHER(Ibarrier, MPI_COMM_WORLD, &request); break;
    case 18: EITHER(Iallgather, in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD, &request); break;
    case 19: EITHER(Ialltoall, in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD, &request); break;
    case 20: EITHER(Ialltoallv, in, pairs, places, MPI_FLOAT, out, pairs, places, MPI_FLOAT, MPI_COMM_WORLD, &request); break;
    case 21: EITHER(Ireduce_scatter_block, in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request); break;
    case 22: EITHER(Igatherv, in, own, MPI_FLOAT, out, counts, places, MPI_FLOAT, 0, MPI_COMM_WORLD, &request); break;
    case 23: EITHER(Iscatterv, in, counts, places, MPI_FLOAT, out, own, MPI_FLOAT, 0, MPI_COMM_WORLD, &request); break;
    default: {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int i = 0; i < n; i++) EITHER(Allreduce, in, out, 2, MPI_FLOAT, MPI_SUM, comm);
        MPI_Comm_free(&comm);
    }
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Each rank writes what it sends before a call and reads what it got after it, as programs do: memory that nobody has written since the
 * last call is still in the caches of whoever read it then. */
static void fill(int n, float value)
{
    for (int i = 0; i < n; i++) in[i] = value;
}

static void read_all(const float *from, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += from[i];
    __asm__ volatile("" : : "x"(sum));
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
    if (size > RANKS) MPI_Abort(MPI_COMM_WORLD, 1);
    in = calloc(size, LARGEST), out = calloc(size, LARGEST);
    unsigned seed = 7 + rank;
    static const int made[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 1024 };
    static const int bytes[] = { 8, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, LARGEST };
    MPI_Barrier(MPI_COMM_WORLD); /* sets up the communicator, which a non-blocking call does not */
    if (rank == 0) printf("operation,bytes,ranks,ours_us,mpi_us,ratio\n");
    for (int operation = 0; operation < OPERATIONS; operation++)
        for (int s = 0; s < SIZES; s++) {
            int is_named = argc == 1;
            for (int i = 1; i < argc; i++) is_named |= !strcmp(argv[i], names[operation]);
            int is_barrier = strstr(names[operation], "barrier") != NULL;
            if (!is_named || (is_barrier && s)) continue;
            int told = bytes[s], n = bytes[s] / sizeof *in, calls = bytes[s] < 1 << 18 ? MOST : MOST / 4;
            if (is_barrier) told = 0;
            if (operation == OPERATIONS - 1) told = n = made[s];
            for (int r = 0; r < size; r++) counts[r] = r == size - 1 ? n / 2 : n, places[r] = r * n;
            int filled = operation == OPERATIONS - 1 ? 2 : size * n;
            double last[2], tails[2][MOST];
            for (int i = -WARM; i < calls; i++)
                for (int which = 0; which < 2; which++) {
                    fill(filled, i);
                    PMPI_Barrier(MPI_COMM_WORLD);
                    double begin = now(), wait = rand_r(&seed) % 20;
                    while (now() < begin + wait) {}
                    double mine[2] = { now(), 0 };
                    call(operation, which, n, rank, size);
                    mine[1] = now();
                    read_all(out, filled), read_all(in, n);
                    PMPI_Reduce(mine, last, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
                    if (i >= 0) tails[which][i] = last[1] - last[0];
                }
            if (rank) continue;
            for (int which = 0; which < 2; which++) qsort(tails[which], calls, sizeof(double), by_value);
            double ours = tails[0][calls / 2], theirs = tails[1][calls / 2];
            printf("%s,%d,%d,%.2f,%.2f,%.2f\n", names[operation], told, size, ours, theirs, ours / theirs);
            fflush(stdout);
        }
    MPI_Finalize();
    return 0;
}
