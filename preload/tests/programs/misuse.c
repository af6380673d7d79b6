/* Invalid arguments: error codes of MPI's class on every rank, and the communicator stays usable. With "local"
 * those that MPI itself finds out by touching memory, and dies of: of a buffer that is none. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int wrong, line_of_first, handled;
static MPI_Comm comm;

static void must_be(int code, int class, int line)
{
    int is = MPI_SUCCESS;
    MPI_Error_class(code, &is);
    if (is != class && !wrong++) line_of_first = line;
    if (is != class) printf("line %d: class %d instead of %d\n", line, is, class);
}
#define MUST_BE(class, call) must_be(call, class, __LINE__)

static void handler(MPI_Comm *on, int *code, ...)
{
    (void)code;
    if (*on == comm) handled++;
}

static void local(int rank)
{
    double a[64] = { 0 }, b[64] = { 0 };
    void *bad[] = { NULL, MPI_IN_PLACE };
    MPI_Datatype pairs;
    MPI_Type_vector(2, 1, 2, MPI_DOUBLE, &pairs), MPI_Type_commit(&pairs);
    for (int i = 0; i < 2; i++) {
        MUST_BE(MPI_ERR_BUFFER, MPI_Allreduce(a, bad[i], 3, MPI_DOUBLE, MPI_SUM, comm));
        MUST_BE(MPI_ERR_BUFFER, MPI_Allreduce(a, bad[i], 3, MPI_DOUBLE_INT, MPI_MAXLOC, comm));
        MUST_BE(MPI_ERR_BUFFER, MPI_Bcast(bad[i], 3, MPI_DOUBLE, 0, comm));
        MUST_BE(MPI_ERR_BUFFER, MPI_Allgather(a, 3, MPI_DOUBLE, bad[i], 3, MPI_DOUBLE, comm));
        MUST_BE(MPI_ERR_BUFFER, MPI_Reduce_scatter_block(a, bad[i], 3, MPI_DOUBLE, MPI_SUM, comm));
        int code = MPI_Reduce(a, rank ? b : bad[i], 3, MPI_DOUBLE, MPI_SUM, 0, comm);
        MUST_BE(rank ? MPI_SUCCESS : MPI_ERR_BUFFER, code);
    }
    MUST_BE(MPI_ERR_BUFFER, MPI_Allreduce(NULL, b, 3, MPI_DOUBLE, MPI_SUM, comm));
    MUST_BE(MPI_ERR_BUFFER, MPI_Allgather(NULL, 3, MPI_DOUBLE, b, 3, MPI_DOUBLE, comm));
    MUST_BE(MPI_ERR_BUFFER, MPI_Allreduce(MPI_IN_PLACE, MPI_IN_PLACE, 3, MPI_DOUBLE, MPI_SUM, comm));
    MUST_BE(MPI_SUCCESS, MPI_Allreduce(NULL, NULL, 0, MPI_DOUBLE, MPI_SUM, comm));
    MUST_BE(MPI_SUCCESS, MPI_Bcast(NULL, 0, pairs, 0, comm));
    if (handled != (rank ? 13 : 15)) printf("handled %d\n", handled), wrong++;
    MPI_Type_free(&pairs);
}

int main(int argc, char **argv)
{
    int rank, size, one = 1, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Errhandler tells;
    MPI_Comm_create_errhandler(handler, &tells);
    MPI_Comm_set_errhandler(comm, tells);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(comm);
    if (argc > 1 && !strcmp(argv[1], "local")) {
        local(rank);
    } else { /* reported by MPI */
        double a[64] = { 0 }, b[64] = { 0 };
        MUST_BE(MPI_ERR_COUNT, MPI_Allreduce(a, b, -1, MPI_DOUBLE, MPI_SUM, comm));
        MUST_BE(MPI_ERR_COUNT, MPI_Reduce(a, b, INT_MIN, MPI_DOUBLE, MPI_SUM, 0, comm));
        MUST_BE(MPI_ERR_COUNT, MPI_Bcast(a, -2, MPI_DOUBLE, 0, comm));
        MUST_BE(MPI_ERR_COUNT, MPI_Allgather(a, -1, MPI_DOUBLE, b, -1, MPI_DOUBLE, comm));
        MUST_BE(MPI_ERR_COUNT, MPI_Reduce_scatter_block(a, b, -1, MPI_DOUBLE, MPI_SUM, comm));
        MUST_BE(MPI_ERR_COUNT, MPI_Scan(a, b, -1, MPI_DOUBLE, MPI_SUM, comm));
        MUST_BE(MPI_ERR_OP, MPI_Exscan(a, b, 1, MPI_DOUBLE, MPI_BAND, comm));
        MUST_BE(MPI_ERR_ROOT, MPI_Reduce(a, b, 1, MPI_DOUBLE, MPI_SUM, size, comm));
        MUST_BE(MPI_ERR_ROOT, MPI_Bcast(a, 1, MPI_DOUBLE, -1, comm));
        if (MPI_Allreduce(a, b, 1, MPI_DATATYPE_NULL, MPI_SUM, comm) == MPI_SUCCESS) wrong++; /* an error of the type or of the operator */
        MUST_BE(MPI_ERR_TYPE, MPI_Bcast(a, 1, MPI_DATATYPE_NULL, 0, comm));
        MUST_BE(MPI_ERR_TYPE, MPI_Allgather(a, 1, MPI_DOUBLE, b, 1, MPI_DATATYPE_NULL, comm));
        MUST_BE(MPI_ERR_OP, MPI_Allreduce(a, b, 1, MPI_DOUBLE, MPI_OP_NULL, comm));
        MUST_BE(MPI_ERR_OP, MPI_Reduce(a, b, 1, MPI_DOUBLE, MPI_BOR, 0, comm));
        MUST_BE(MPI_ERR_OP, MPI_Reduce_scatter_block(a, b, 1, MPI_DOUBLE, MPI_MAXLOC, comm));
        MUST_BE(MPI_ERR_COMM, MPI_Allreduce(a, b, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_NULL));
        MUST_BE(MPI_ERR_COMM, MPI_Bcast(a, 1, MPI_DOUBLE, 0, MPI_COMM_NULL));
        MUST_BE(MPI_ERR_COMM, MPI_Barrier(MPI_COMM_NULL));
        if (handled != 15) printf("handled %d\n", handled), wrong++;
    }
    /* the communicator still works */
    MUST_BE(MPI_SUCCESS, MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    if (sum != size) wrong++;
    MPI_Errhandler_free(&tells);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    if (wrong) printf("rank %d: %d wrong, first in line %d\n", rank, wrong, line_of_first);
    else printf("rank %d right\n", rank);
    return wrong != 0;
}
