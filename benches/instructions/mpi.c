/* Back-to-back 8-byte calls of one MPI function, for benches/instructions/run: mpi CALLS NAME. Those named varied-... have another length
   in every call. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIED 1000 /* doubles, at most 8 kB */

static double x[2], all[3], from[VARIED], into[VARIED];
static int rank, length;

__attribute__((noinline)) static int allreduce(void) {
    return MPI_Allreduce(MPI_IN_PLACE, x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
__attribute__((noinline)) static int reduce(void) {
    return MPI_Reduce(x, all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}
__attribute__((noinline)) static int broadcast(void) { return MPI_Bcast(x, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD); }
__attribute__((noinline)) static int allgather(void) {
    return MPI_Allgather(x, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, MPI_COMM_WORLD);
}
__attribute__((noinline)) static int reduce_scatter(void) {
    return MPI_Reduce_scatter_block(all, x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
__attribute__((noinline)) static int scan(void) {
    return MPI_Scan(x, all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
__attribute__((noinline)) static int exscan(void) {
    return MPI_Exscan(x, all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
/* A double for each rank, or from it. */
static const int ones[] = { 1, 1 }, places[] = { 0, 1 };
__attribute__((noinline)) static int gatherv(void) {
    return MPI_Gatherv(x, 1, MPI_DOUBLE, all, ones, places, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}
/* One from rank 0 and two from rank 1: blocks of equal lengths take another way. */
__attribute__((noinline)) static int allgatherv(void) {
    static const int unequal[] = { 1, 2 };
    return MPI_Allgatherv(x, unequal[rank], MPI_DOUBLE, all, unequal, places, MPI_DOUBLE, MPI_COMM_WORLD);
}
__attribute__((noinline)) static int scatterv(void) {
    return MPI_Scatterv(all, ones, places, MPI_DOUBLE, x, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}
__attribute__((noinline)) static int alltoallv(void) {
    return MPI_Alltoallv(x, ones, places, MPI_DOUBLE, all, ones, places, MPI_DOUBLE, MPI_COMM_WORLD);
}
__attribute__((noinline)) static int varied_broadcast(void) { return MPI_Bcast(from, length, MPI_DOUBLE, 0, MPI_COMM_WORLD); }
__attribute__((noinline)) static int varied_reduce(void) {
    return MPI_Reduce(from, into, length, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}
__attribute__((noinline)) static int varied_allreduce(void) {
    return MPI_Allreduce(from, into, length, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
static MPI_Datatype column; /* four doubles of eight */
__attribute__((noinline)) static int vector_broadcast(void) { return MPI_Bcast(from, 1, column, 0, MPI_COMM_WORLD); }
static MPI_Op largest;
static void keep_largest(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *count; i++)
        if (((double *)in)[i] > ((double *)inout)[i]) ((double *)inout)[i] = ((double *)in)[i];
}
__attribute__((noinline)) static int user_reduce(void) {
    return MPI_Reduce(x, all, 1, MPI_DOUBLE, largest, 0, MPI_COMM_WORLD);
}
__attribute__((noinline)) static int user_allreduce(void) {
    return MPI_Allreduce(x, all, 1, MPI_DOUBLE, largest, MPI_COMM_WORLD);
}
__attribute__((noinline)) static int barrier(void) { return MPI_Barrier(MPI_COMM_WORLD); }
#define STARTED(name, ...)                                 \
    __attribute__((noinline)) static int name(void) {      \
        MPI_Request request;                               \
        int failed = __VA_ARGS__;                          \
        return failed ? failed : MPI_Wait(&request, MPI_STATUS_IGNORE); \
    }
STARTED(iallreduce, MPI_Iallreduce(MPI_IN_PLACE, x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request))
STARTED(ibroadcast, MPI_Ibcast(x, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD, &request))
STARTED(ialltoall, MPI_Ialltoall(x, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, MPI_COMM_WORLD, &request))
STARTED(ialltoallv, MPI_Ialltoallv(x, ones, places, MPI_DOUBLE, all, ones, places, MPI_DOUBLE, MPI_COMM_WORLD, &request))

static const struct { const char *name; int (*call)(void); } all_calls[] = {
    { "allreduce", allreduce }, { "reduce", reduce },   { "broadcast", broadcast },   { "allgather", allgather },
    { "reduce-scatter", reduce_scatter }, { "scan", scan }, { "exscan", exscan }, { "barrier", barrier },
    { "iallreduce", iallreduce }, { "ibroadcast", ibroadcast }, { "ialltoall", ialltoall }, { "ialltoallv", ialltoallv },
    { "gatherv", gatherv }, { "allgatherv", allgatherv },
    { "scatterv", scatterv }, { "alltoallv", alltoallv }, { "varied-broadcast", varied_broadcast },
    { "varied-reduce", varied_reduce }, { "varied-allreduce", varied_allreduce }, { "user-reduce", user_reduce },
    { "user-allreduce", user_allreduce }, { "vector-broadcast", vector_broadcast },
};

__attribute__((noinline, noclone)) int measured_call(int (*call)(void)) { 
    int failed = call();
    __asm__ volatile("" ::: "memory");
    return failed;
}

int main(int argc, char **argv) {
    int calls = argc == 3 ? atoi(argv[1]) : 0, failed = 0, ranks;
    int (*call)(void) = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (size_t i = 0; argc == 3 && i < sizeof all_calls / sizeof *all_calls; i++)
        if (!strcmp(argv[2], all_calls[i].name)) call = all_calls[i].call;
    if (call == NULL) fprintf(stderr, "mpi CALLS NAME: no such name\n"), failed = 1;
    MPI_Type_vector(4, 1, 2, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    MPI_Op_create(keep_largest, 1, &largest);
    MPI_Barrier(MPI_COMM_WORLD); /* sets up the communicator, which a non-blocking call does not */
    for (int i = 0; i < calls && !failed; i++) {
        x[0] = 1;
        length = 1 + i * 7 % VARIED;
        failed = measured_call(call);
        if (!failed && call == allreduce && x[0] != ranks) fprintf(stderr, "%g instead of %d\n", x[0], ranks), failed = 1;
    }
    MPI_Op_free(&largest);
    MPI_Type_free(&column);
    MPI_Finalize();
    return failed != 0;
}
