/* Every invalid argument that can be detected is an error on its rank, and has no other effect. */
#include "check.h"

static void arguments(const eb_comm *comm) {
    double a[16] = {0}, b[16] = {0};
    void *not_aligned = (char *)a + 1;
    size_t counts[64] = {0}, huge[64] = {0};
    size_t n;
    const char *name;
    huge[0] = (size_t)-1, huge[ranks - 1] += 1;

    FAILS(EB_USAGE, eb_barrier(NULL), "the communicator is null");
    FAILS(EB_USAGE, eb_rank(NULL, &n), "the communicator is null");
    FAILS(EB_USAGE, eb_rank(comm, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_size(comm, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_job_ranks(comm, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_last_algorithm(comm, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_last_algorithm(NULL, &name), "the communicator is null");
    FAILS(EB_USAGE, eb_explain(comm, "allredcue", 8, &name), "did you mean \"allreduce\"");
    FAILS(EB_USAGE, eb_explain(comm, NULL, 8, &name), "is null");
    FAILS(EB_USAGE, eb_explain(comm, "barrier", 8, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_comm_free(NULL), "address of a variable");
    FAILS(EB_USAGE, eb_set_algorithm(comm, "fast"), "static-leader-early");
    FAILS(EB_USAGE, eb_set_algorithm(comm, NULL), "is null");
    FAILS(EB_USAGE, eb_set_algorithm(comm, "\xff"), "UTF-8");
    FAILS(EB_USAGE, eb_set_order(comm, (eb_order)2), "EB_ORDER_RANK (1)");
    FAILS(EB_USAGE, eb_type_size((eb_type)0, &n), "EB_INDEXED_F64 (19)");
    FAILS(EB_USAGE, eb_type_size(EB_I32, NULL), "address of a variable");

    FAILS(EB_USAGE, eb_allreduce(NULL, a, b, 1, EB_F64, EB_SUM), "the communicator is null");
    FAILS(EB_USAGE, eb_allreduce(comm, NULL, b, 1, EB_F64, EB_SUM), "the send buffer is null");
    FAILS(EB_USAGE, eb_allreduce(comm, a, NULL, 1, EB_F64, EB_SUM), "the receive buffer is null");
    FAILS(EB_USAGE, eb_allreduce(comm, a, EB_IN_PLACE, 1, EB_F64, EB_SUM), "EB_IN_PLACE is not allowed");
    FAILS(EB_USAGE, eb_allreduce(comm, a, b, 1, (eb_type)20, EB_SUM), "there is no type 20");
    FAILS(EB_USAGE, eb_allreduce(comm, a, b, 1, EB_F64, (eb_op)0), "there is no operator 0");
    FAILS(EB_USAGE, eb_allreduce(comm, not_aligned, b, 1, EB_F64, EB_SUM), "a multiple of 8");
    FAILS(EB_USAGE, eb_allreduce(comm, a, a + 1, 2, EB_F64, EB_SUM), "overlap");
    FAILS(EB_USAGE, eb_allreduce(comm, a, a, 1, EB_F64, EB_SUM), "EB_IN_PLACE");
    FAILS(EB_USAGE, eb_allreduce(comm, a, b, (size_t)-1, EB_F64, EB_SUM), "exceeds the address space");
    FAILS(EB_UNSUPPORTED, eb_allreduce(comm, a, b, 1, EB_F64, EB_BIT_AND), "f64 has sum, product");
    FAILS(EB_UNSUPPORTED, eb_allreduce(comm, a, b, 0, EB_I32, EB_AVERAGE), "average exists for");

    FAILS(EB_USAGE, eb_reduce(comm, a, b, 1, EB_F64, EB_SUM, ranks), "does not exist among");
    FAILS(EB_USAGE, eb_reduce(comm, NULL, b, 1, EB_F64, EB_SUM, 0), "is null");
    FAILS(EB_USAGE, eb_broadcast(comm, NULL, 1, EB_F64, 0), "the buffer is null");
    FAILS(EB_USAGE, eb_broadcast(comm, a, 1, EB_F64, (size_t)-1), "does not exist among");
    FAILS(EB_USAGE, eb_broadcast(comm, a, 1, (eb_type)-1, 0), "there is no type -1");
    FAILS(EB_USAGE, eb_reduce_scatter(comm, a, NULL, 1, EB_F64, EB_SUM), "is null");
    FAILS(EB_USAGE, eb_reduce_scatterv(comm, a, b, NULL, EB_F64, EB_SUM), "one for each rank");
    FAILS(EB_USAGE, eb_allgather(comm, NULL, b, 1, EB_F64), "is null");
    FAILS(EB_USAGE, eb_allgatherv(comm, a, b, NULL, EB_F64), "one for each rank");
    FAILS(EB_USAGE, eb_gather(comm, a, b, 1, EB_F64, ranks + 7), "does not exist among");
    FAILS(EB_USAGE, eb_gatherv(comm, a, b, NULL, EB_F64, 0), "one for each rank");
    FAILS(EB_USAGE, eb_scatter(comm, NULL, NULL, 1, EB_F64, 0), "is null");
    FAILS(EB_USAGE, eb_scatterv(comm, a, b, counts, EB_F64, ranks), "does not exist among");
    FAILS(EB_USAGE, eb_alltoall(comm, a, NULL, 1, EB_F64), "is null");
    FAILS(EB_USAGE, eb_alltoallv(comm, a, NULL, b, counts, EB_F64), "one for each rank");
    FAILS(EB_USAGE, eb_alltoallv(comm, a, counts, b, NULL, EB_F64), "one for each rank");
    counts[0] = 1;
    FAILS(EB_USAGE, eb_alltoallv(comm, NULL, counts, b, counts, EB_F64), "the send buffer is null");
    counts[0] = 0;
    if (ranks > 1) {
        size_t other = (rank + 1) % ranks;
        FAILS(EB_USAGE, eb_allgather(comm, a, b, (size_t)-1, EB_F64), "too many");
        FAILS(EB_USAGE, eb_allgatherv(comm, a, b, huge, EB_F64), "too large");
        FAILS(EB_USAGE, eb_alltoallv(comm, a, huge, b, counts, EB_F64), "too large");
        FAILS(EB_USAGE, eb_gather(comm, EB_IN_PLACE, b, 1, EB_F64, other), "EB_IN_PLACE is not allowed");
        FAILS(EB_USAGE, eb_scatter(comm, a, EB_IN_PLACE, 1, EB_F64, other), "EB_IN_PLACE is not allowed");
    }
}

static void joining(void) {
    eb_comm *comm = NULL;
    static const char *const unknown[] = {"EARLYBIRD_ALGORITM=chain", NULL}, *const bad[] = {"EARLYBIRD_ORDER=any", NULL};
    static const char *const form[] = {"ORDER=rank", NULL}, *const rank_of[] = {"EARLYBIRD_RANK=0", NULL};
    FAILS(EB_USAGE, eb_join(NULL, NULL), "address of a variable");
    // alone: a rank of several tells the others, who are making other mistakes
    FAILS(EB_USAGE, eb_join_as(&comm, "alone", 0, 1, unknown), "EARLYBIRD_ALGORITM is not known");
    FAILS(EB_USAGE, eb_join_as(&comm, "alone", 0, 1, bad), "arrival, rank");
    FAILS(EB_USAGE, eb_join_as(&comm, "alone", 0, 1, form), "EARLYBIRD_NAME=value");
    FAILS(EB_USAGE, eb_join_as(&comm, "alone", 0, 1, rank_of), "eb_join_as takes");
    FAILS(EB_USAGE, eb_join_as(&comm, NULL, 0, 1, NULL), "is null");
    FAILS(EB_USAGE, eb_join_as(&comm, "", 0, 1, NULL), "has no name");
    FAILS(EB_USAGE, eb_join_as(&comm, "misuse", 1, 1, NULL), "does not exist among 1");
    FAILS(EB_USAGE, eb_join_as(&comm, "misuse", 0, 0, NULL), "does not exist among 0");
    CHECK(comm == NULL);
}

int main(void) {
    eb_comm *comm, *part;
    double x = 2.0;
    CHECK(strcmp(eb_error_name(EB_OK), "EB_OK") == 0 && strcmp(eb_error_name(EB_USAGE), "EB_USAGE") == 0);
    CHECK(eb_error_name(-1) == NULL && eb_error_name(1000) == NULL);
    joining();
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    arguments(comm);
    FAILS(EB_USAGE, eb_split(comm, 0, 0, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_split(comm, -2, 0, &part), "EB_NO_COLOR");
    FAILS(EB_USAGE, eb_split(comm, (int64_t)1 << 32, 0, &part), "EB_NO_COLOR");
    FAILS(EB_USAGE, eb_split(NULL, 0, 0, &part), "the communicator is null");
    FAILS(EB_USAGE, eb_duplicate(comm, NULL), "address of a variable");
    /* The communicator still works. */
    WORKS(eb_allreduce(comm, EB_IN_PLACE, &x, 1, EB_F64, EB_SUM));
    CHECK(x == 2.0 * (double)ranks);
    if (ranks > 1) {
        /* Different calls are the same error on all ranks, for good. */
        int code = rank == 0 ? eb_allreduce(comm, EB_IN_PLACE, &x, 1, EB_F64, EB_SUM)
                             : eb_allreduce(comm, EB_IN_PLACE, &x, 1, EB_F64, EB_MAX);
        CHECK(code == EB_MISMATCH && eb_last_error_rank() >= 0 && eb_last_error_rank() < (int64_t)ranks);
        CHECK(eb_barrier(comm) == EB_MISMATCH);
    }
    WORKS(eb_comm_free(&comm));
    return right();
}
