/* Ranks on several virtual nodes. */
#include "check.h"

int main(void) {
    eb_comm *comm, *half;
    eb_request *request;
    size_t counts[64], part;
    int64_t x[64], y[64];
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    CHECK(ranks <= 64);
    for (size_t r = 0; r < ranks; r++) counts[r] = 1;
    x[0] = (int64_t)rank;
    WORKS(eb_allreduce(comm, x, y, 1, EB_I64, EB_SUM));
    CHECK(y[0] == (int64_t)(ranks * (ranks - 1) / 2));
    WORKS(eb_reduce(comm, EB_IN_PLACE, y, 1, EB_I64, EB_MAX, 1));
    WORKS(eb_broadcast(comm, y, 1, EB_I64, ranks - 1));
    memset(y, 0, sizeof y);
    y[rank] = x[0];
    WORKS(eb_allgather(comm, EB_IN_PLACE, y, 1, EB_I64));
    for (size_t r = 0; r < ranks; r++) CHECK(y[r] == (int64_t)r);
    memset(y, 0, sizeof y);
    y[rank] = x[0];
    WORKS(eb_gather(comm, rank == 2 ? EB_IN_PLACE : x, y, 1, EB_I64, 2));
    for (size_t r = 0; rank == 2 && r < ranks; r++) CHECK(y[r] == (int64_t)r);
    memset(y, 0, sizeof y);
    y[rank] = x[0];
    WORKS(eb_allgatherv(comm, EB_IN_PLACE, y, counts, EB_I64));
    for (size_t r = 0; r < ranks; r++) CHECK(y[r] == (int64_t)r);
    for (size_t r = 0; r < ranks; r++) x[r] = (int64_t)(100 * rank + r);
    WORKS(eb_alltoall(comm, x, y, 1, EB_I64));
    for (size_t r = 0; r < ranks; r++) CHECK(y[r] == (int64_t)(100 * r + rank));
    for (size_t in_place = 0; in_place < 2; in_place++) {
        memcpy(y, x, sizeof x);
        WORKS(eb_alltoallv(comm, in_place ? EB_IN_PLACE : x, counts, y, counts, EB_I64));
        for (size_t r = 0; r < ranks; r++) CHECK(y[r] == (int64_t)(100 * r + rank));
    }
    WORKS(eb_reduce_scatter(comm, EB_IN_PLACE, x, 1, EB_I64, EB_MIN));
    CHECK(x[0] == (int64_t)rank);
    WORKS(eb_barrier(comm));
    WORKS(eb_iallreduce(comm, x, y, 1, EB_I64, EB_MAX, &request));
    WORKS(eb_wait(&request));
    CHECK(y[0] == (int64_t)ranks - 1);
    WORKS(eb_split(comm, (int64_t)(rank % 2), 0, &half));
    WORKS(eb_size(half, &part));
    WORKS(eb_allreduce(half, EB_IN_PLACE, &part, 1, EB_U64, EB_MIN));
    CHECK(part == (ranks + 1 - rank % 2) / 2);
    WORKS(eb_comm_free(&half));
    WORKS(eb_comm_free(&comm));
    return right();
}
