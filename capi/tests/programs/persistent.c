/* Persistent calls, calls with a count for each rank, and groups of buffers. */
#include "check.h"

enum { N = 1500, ROUNDS = 5, CALLS = 13 };

static double value(size_t of, size_t at, size_t round) { return (double)(1000 * round + 100 * of + at % 89); }

/* The count of rank `r` in calls with different counts, and the offset of its block. */
static size_t unequal(size_t r, size_t n) { return r % 3 == 1 ? 0 : n + r; }

static size_t before(size_t r, size_t n) {
    size_t sum = 0;
    for (size_t k = 0; k < r; k++) sum += unequal(k, n);
    return sum;
}

static double sum_at(size_t at, size_t round) {
    double sum = 0;
    for (size_t r = 0; r < ranks; r++) sum += value(r, at, round);
    return sum;
}

static eb_request *prepared(eb_request *request) {
    CHECK(request != NULL);
    WORKS(eb_wait(&request)); /* not started: succeeds, and the request stays */
    CHECK(request != NULL);
    return request;
}

static void every_call(const eb_comm *comm, size_t n, int in_place) {
    size_t equal = n * ranks, all = equal > before(ranks, n) ? equal : before(ranks, n), root = ranks - 1;
    size_t *counts = (size_t *)malloc(ranks * sizeof *counts), own = unequal(rank, n), start = before(rank, n);
    int here = rank == root;
    double *send = (double *)calloc(all + 1, sizeof *send), *got[CALLS];
    eb_request *calls[CALLS] = {NULL};
    CHECK(send && counts);
    for (size_t r = 0; r < ranks; r++) counts[r] = unequal(r, n);
    for (size_t k = 0; k < CALLS; k++) {
        got[k] = (double *)calloc(all + 1, sizeof *got[k]);
        CHECK(got[k]);
        got[k][all] = -1.0;
    }
    const void *give = in_place ? EB_IN_PLACE : send, *give_root = in_place && here ? EB_IN_PLACE : send;
    WORKS(eb_allreduce_init(comm, give, got[0], n, EB_F64, EB_SUM, &calls[0]));
    WORKS(eb_reduce_init(comm, give, got[1], n, EB_F64, EB_SUM, root, &calls[1]));
    WORKS(eb_reduce_scatter_init(comm, give, got[2], n, EB_F64, EB_SUM, &calls[2]));
    WORKS(eb_broadcast_init(comm, got[3], n, EB_F64, root, &calls[3]));
    WORKS(eb_allgather_init(comm, give, got[4], n, EB_F64, &calls[4]));
    WORKS(eb_gather_init(comm, give_root, got[5], n, EB_F64, root, &calls[5]));
    WORKS(eb_scatter_init(comm, send, in_place && here ? EB_IN_PLACE : got[6], n, EB_F64, root, &calls[6]));
    WORKS(eb_alltoall_init(comm, give, got[7], n, EB_F64, &calls[7]));
    WORKS(eb_barrier_init(comm, &calls[8]));
    WORKS(eb_reduce_scatterv_init(comm, give, got[9], counts, EB_F64, EB_SUM, &calls[9]));
    WORKS(eb_allgatherv_init(comm, give, got[10], counts, EB_F64, &calls[10]));
    WORKS(eb_gatherv_init(comm, give_root, got[11], counts, EB_F64, root, &calls[11]));
    WORKS(eb_scatterv_init(comm, send, in_place && here ? EB_IN_PLACE : got[12], counts, EB_F64, root, &calls[12]));
    for (size_t k = 0; k < CALLS; k++) calls[k] = prepared(calls[k]);
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < all; i++) {
            send[i] = value(rank, i, round);
            for (size_t k = 0; k < CALLS; k++) got[k][i] = send[i];
        }
        if (n) memcpy(got[4] + rank * n, send, n * sizeof *send);
        if (n) memcpy(got[5] + rank * n, send, n * sizeof *send);
        if (own) memcpy(got[10] + start, send, own * sizeof *send);
        if (own) memcpy(got[11] + start, send, own * sizeof *send);
        for (size_t k = 0; k < CALLS; k++) WORKS(eb_start(calls[k]));
        FAILS(EB_USAGE, eb_start(calls[round % CALLS]), "under way");
        for (size_t k = 0; k < CALLS; k++) {
            eb_request **call = &calls[(k * 4 + rank) % CALLS];
            if (k % 2) {
                int done = 0;
                while (!done) WORKS(eb_test(call, &done));
            } else {
                WORKS(eb_wait(call));
            }
            CHECK(*call != NULL);
        }
        for (size_t i = 0; i < n; i++) {
            CHECK(got[0][i] == sum_at(i, round));
            CHECK(got[1][i] == (here ? sum_at(i, round) : value(rank, i, round)));
            CHECK(got[2][i] == sum_at(rank * n + i, round));
            CHECK(got[3][i] == value(root, i, round));
            CHECK(got[6][i] == (in_place && here ? value(rank, i, round) : value(root, rank * n + i, round)));
        }
        for (size_t i = 0; i < equal; i++) {
            CHECK(got[4][i] == value(i / n, i % n, round));
            CHECK(!here || got[5][i] == value(i / n, i % n, round));
            CHECK(got[7][i] == value(i / n, rank * n + i % n, round));
        }
        for (size_t i = 0; i < own; i++) {
            CHECK(got[9][i] == sum_at(start + i, round));
            CHECK(got[12][i] == (in_place && here ? value(rank, i, round) : value(root, start + i, round)));
        }
        for (size_t r = 0; r < ranks; r++)
            for (size_t i = 0; i < unequal(r, n); i++) {
                CHECK(got[10][before(r, n) + i] == value(r, i, round));
                CHECK(!here || got[11][before(r, n) + i] == value(r, i, round));
            }
        for (size_t k = 0; k < CALLS; k++) CHECK(got[k][all] == -1.0);
    }
    for (size_t k = 0; k < CALLS; k++) WORKS(eb_request_free(&calls[k]));
    for (size_t k = 0; k < CALLS; k++) free(got[k]);
    free(send);
    free(counts);
}

/* The non-blocking calls with counts. */
static void started(const eb_comm *comm, size_t n, int in_place) {
    size_t all = before(ranks, n), root = ranks / 2, own = unequal(rank, n), start = before(rank, n);
    size_t *counts = (size_t *)malloc(ranks * sizeof *counts);
    int here = rank == root;
    float *send = (float *)calloc(all + 1, sizeof *send), *got[4];
    eb_request *calls[4];
    CHECK(send && counts);
    for (size_t i = 0; i < all; i++) send[i] = (float)value(rank, i, 0);
    for (size_t k = 0; k < 4; k++) {
        got[k] = (float *)calloc(all + 1, sizeof *got[k]);
        CHECK(got[k]);
        memcpy(got[k], send, all * sizeof *send);
    }
    if (own) memcpy(got[1] + start, send, own * sizeof *send);
    if (own) memcpy(got[2] + start, send, own * sizeof *send);
    const void *give = in_place ? EB_IN_PLACE : send, *give_root = in_place && here ? EB_IN_PLACE : send;
    for (size_t r = 0; r < ranks; r++) counts[r] = unequal(r, n);
    WORKS(eb_ireduce_scatterv(comm, give, got[0], counts, EB_F32, EB_SUM, &calls[0]));
    WORKS(eb_iallgatherv(comm, give, got[1], counts, EB_F32, &calls[1]));
    WORKS(eb_igatherv(comm, give_root, got[2], counts, EB_F32, root, &calls[2]));
    WORKS(eb_iscatterv(comm, send, in_place && here ? EB_IN_PLACE : got[3], counts, EB_F32, root, &calls[3]));
    memset(counts, 0xff, ranks * sizeof *counts); /* the counts have been read */
    free(counts);
    for (size_t k = 4; k-- > 0;) {
        WORKS(eb_wait(&calls[k]));
        CHECK(calls[k] == NULL);
    }
    for (size_t i = 0; i < own; i++) {
        CHECK(got[0][i] == (float)sum_at(start + i, 0));
        CHECK(got[3][i] == (float)(in_place && here ? value(rank, i, 0) : value(root, start + i, 0)));
    }
    for (size_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < unequal(r, n); i++) {
            CHECK(got[1][before(r, n) + i] == (float)value(r, i, 0));
            CHECK(!here || got[2][before(r, n) + i] == (float)value(r, i, 0));
        }
    for (size_t k = 0; k < 4; k++) free(got[k]);
    free(send);
}

static void fill(int32_t *a, int32_t *b, size_t n, size_t round) {
    for (size_t i = 0; i < n; i++) a[i] = (int32_t)(rank + i + round);
    for (size_t i = 0; i < 3; i++) b[i] = (int32_t)(rank * i + round);
}

static void check(const int32_t *a, const int32_t *b, size_t n, size_t round) {
    int32_t sum = (int32_t)(ranks * (ranks - 1) / 2), p = (int32_t)ranks;
    for (size_t i = 0; i < n; i++) CHECK(a[i] == sum + p * (int32_t)(i + round));
    for (size_t i = 0; i < 3; i++) CHECK(b[i] == sum * (int32_t)i + p * (int32_t)round);
}

static void grouped(const eb_comm *comm, size_t n) {
    int32_t *a = (int32_t *)malloc((n + 1) * sizeof *a), b[3];
    void *group[3] = {a, NULL, b};
    size_t counts[3] = {0, 0, 3};
    unsigned char bits[2] = {0, 7};
    void *flags[2] = {bits, bits + 1};
    size_t ones[2] = {1, 1};
    eb_request *call;
    CHECK(a);
    counts[0] = n;
    fill(a, b, n, 1);
    WORKS(eb_allreduce_grouped(comm, group, counts, 3, EB_I32, EB_SUM));
    check(a, b, n, 1);
    WORKS(eb_allreduce_grouped(comm, flags, ones, 2, EB_BOOL, EB_LOGICAL_AND));
    CHECK(bits[0] == 0 && bits[1] == 1);
    fill(a, b, n, 2);
    WORKS(eb_iallreduce_grouped(comm, group, counts, 3, EB_I32, EB_SUM, &call));
    WORKS(eb_wait(&call));
    CHECK(call == NULL);
    check(a, b, n, 2);
    WORKS(eb_allreduce_grouped_init(comm, group, counts, 3, EB_I32, EB_SUM, &call));
    for (size_t round = 3; round < 6; round++) {
        fill(a, b, n, round);
        WORKS(eb_start(call));
        WORKS(eb_wait(&call));
        check(a, b, n, round);
    }
    WORKS(eb_request_free(&call));
    group[1] = b + 1, counts[1] = 1;
    FAILS(EB_USAGE, eb_allreduce_grouped(comm, group, counts, 3, EB_I32, EB_SUM), "overlap");
    group[1] = NULL;
    FAILS(EB_USAGE, eb_allreduce_grouped(comm, group, counts, 3, EB_I32, EB_SUM), "is null");
    FAILS(EB_USAGE, eb_allreduce_grouped(comm, NULL, counts, 3, EB_I32, EB_SUM), "no array");
    FAILS(EB_USAGE, eb_iallreduce_grouped(comm, group, NULL, 3, EB_I32, EB_SUM, &call), "no array");
    CHECK(call == NULL);
    free(a);
}

static void mistakes(const eb_comm *comm) {
    double x[4] = {0};
    eb_request *call, *once;
    FAILS(EB_USAGE, eb_allreduce_init(comm, x, x + 1, 1, EB_F64, EB_SUM, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_allreduce_init(NULL, x, x + 1, 1, EB_F64, EB_SUM, &call), "the communicator is null");
    FAILS(EB_USAGE, eb_allreduce_init(comm, NULL, x, 1, EB_F64, EB_SUM, &call), "is null");
    FAILS(EB_USAGE, eb_gather_init(comm, x, x + 1, 1, EB_F64, ranks, &call), "does not exist");
    FAILS(EB_USAGE, eb_allgatherv_init(comm, x, x + 1, NULL, EB_F64, &call), "no array");
    FAILS(EB_USAGE, eb_iscatterv(comm, x, x + 1, NULL, EB_F64, 0, &call), "no array");
    FAILS(EB_UNSUPPORTED, eb_allreduce_init(comm, x, x + 1, 1, EB_F64, EB_BIT_OR, &call), "f64 has");
#ifndef __SANITIZE_ADDRESS__ /* which ends the program if memory is refused */
    FAILS(EB_SYSTEM, eb_iallreduce(comm, x, x, (size_t)1 << 45, EB_F64, EB_SUM, &call), "memory for a copy");
    FAILS(EB_SYSTEM, eb_broadcast_init(comm, x, (size_t)1 << 45, EB_F64, 0, &call), "memory for a copy");
#endif
    CHECK(call == NULL);
    FAILS(EB_USAGE, eb_start(NULL), "request is null");
    WORKS(eb_ibarrier(comm, &once));
    FAILS(EB_USAGE, eb_start(once), "not persistent");
    WORKS(eb_wait(&once));
    WORKS(eb_request_free(&call));
}

int main(void) {
    eb_comm *comm;
    eb_request *kept, *dropped;
    int32_t one = 1, sum = 0;
    int done = 0;
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    for (int in_place = 0; in_place < 2; in_place++) {
        every_call(comm, 0, in_place), every_call(comm, 3, in_place), every_call(comm, N, in_place);
        started(comm, 0, in_place), started(comm, 2, in_place), started(comm, N, in_place);
    }
    grouped(comm, 5), grouped(comm, 20000);
    mistakes(comm);
    /* Freed while under way, a request still takes part; the last one keeps its communicator. */
    WORKS(eb_allreduce_init(comm, &one, &sum, 1, EB_I32, EB_SUM, &dropped));
    WORKS(eb_start(dropped));
    WORKS(eb_request_free(&dropped));
    CHECK(dropped == NULL && sum == 0);
    WORKS(eb_allreduce_init(comm, &one, &sum, 1, EB_I32, EB_SUM, &kept));
    WORKS(eb_start(kept));
    WORKS(eb_comm_free(&comm));
    while (!done) WORKS(eb_test(&kept, &done));
    CHECK(sum == (int32_t)ranks);
    WORKS(eb_request_free(&kept));
    return right();
}
