/* Alltoallv with different counts for every pair of ranks: non-blocking and persistent. */
#include "check.h"

enum { MOST = 64, ROUNDS = 4 };

/* The number of elements that `from` sends to `to`; in place the same in both directions. */
static size_t pair(size_t from, size_t to, size_t n, int in_place) {
    size_t kind = in_place ? from + to : from + 2 * to;
    return kind % 3 == 1 ? 0 : n + (in_place ? from * to % 4 : to);
}

static int64_t value(size_t from, size_t to, size_t i, size_t round) {
    return (int64_t)(1000000 * round + 10000 * from + 100 * to + i % 83);
}

/* The counts of this rank, to or from each rank, and their sum. */
static size_t count(size_t *counts, size_t n, int in_place, int gets) {
    size_t sum = 0;
    for (size_t r = 0; r < ranks; r++) {
        counts[r] = gets ? pair(r, rank, n, in_place) : pair(rank, r, n, in_place);
        sum += counts[r];
    }
    return sum;
}

static void fill(int64_t *at, const size_t *gives, size_t round) {
    for (size_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < gives[r]; i++) *at++ = value(rank, r, i, round);
}

static void check(const int64_t *at, const size_t *gets, size_t round) {
    for (size_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < gets[r]; i++) CHECK(*at++ == value(r, rank, i, round));
    CHECK(*at == -1);
}

static void end(eb_request **request, int by_test) {
    int done = 0;
    if (!by_test) WORKS(eb_wait(request));
    while (by_test && !done) WORKS(eb_test(request, &done));
}

static void all_forms(const eb_comm *comm, size_t n, int in_place) {
    size_t gives[MOST], gets[MOST], given[MOST], expected[MOST];
    size_t to_send = count(gives, n, in_place, 0), to_get = count(gets, n, in_place, 1);
    int64_t *send = (int64_t *)malloc((to_send + 1) * sizeof *send), *recv = (int64_t *)malloc((to_get + 1) * sizeof *recv);
    const void *from = in_place ? EB_IN_PLACE : send;
    eb_request *request;
    CHECK(send && recv);
    recv[to_get] = -1;
    fill(in_place ? recv : send, gives, 0);
    WORKS(eb_alltoallv(comm, from, gives, recv, gets, EB_I64));
    check(recv, gets, 0);
    fill(in_place ? recv : send, gives, 1);
    memcpy(given, gives, sizeof given), memcpy(expected, gets, sizeof expected);
    WORKS(eb_ialltoallv(comm, from, in_place ? NULL : given, recv, expected, EB_I64, &request));
    memset(given, 0xff, sizeof given), memset(expected, 0xff, sizeof expected); /* the counts have been read */
    end(&request, rank % 2 == 0);
    CHECK(request == NULL);
    check(recv, gets, 1);
    WORKS(eb_alltoallv_init(comm, from, gives, recv, gets, EB_I64, &request));
    for (size_t round = 2; round < 2 + ROUNDS; round++) {
        fill(in_place ? recv : send, gives, round);
        WORKS(eb_start(request));
        FAILS(EB_USAGE, eb_start(request), "under way");
        end(&request, (rank + round) % 2 == 0);
        CHECK(request != NULL);
        check(recv, gets, round);
    }
    WORKS(eb_request_free(&request));
    free(send), free(recv);
}

static void mistakes(const eb_comm *comm) {
    int64_t x[MOST] = {0}, y[MOST] = {0};
    size_t counts[MOST] = {0}, huge[MOST] = {0};
    eb_request *request;
    huge[0] = (size_t)-1, huge[ranks - 1] += 1;
    FAILS(EB_USAGE, eb_ialltoallv(comm, x, counts, y, counts, EB_I64, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_ialltoallv(NULL, x, counts, y, counts, EB_I64, &request), "the communicator is null");
    FAILS(EB_USAGE, eb_ialltoallv(comm, x, NULL, y, counts, EB_I64, &request), "one for each rank");
    FAILS(EB_USAGE, eb_ialltoallv(comm, x, counts, y, NULL, EB_I64, &request), "one for each rank");
    FAILS(EB_USAGE, eb_alltoallv_init(comm, EB_IN_PLACE, counts, y, NULL, EB_I64, &request), "one for each rank");
    FAILS(EB_USAGE, eb_alltoallv_init(comm, x, counts, y, counts, (eb_type)77, &request), "there is no type 77");
    if (ranks > 1) FAILS(EB_USAGE, eb_ialltoallv(comm, x, huge, y, counts, EB_I64, &request), "too large");
    counts[0] = 1;
    FAILS(EB_USAGE, eb_ialltoallv(comm, NULL, counts, y, counts, EB_I64, &request), "the send buffer is null");
    FAILS(EB_USAGE, eb_alltoallv_init(comm, x, counts, NULL, counts, EB_I64, &request), "the receive buffer is null");
    FAILS(EB_USAGE, eb_ialltoallv(comm, x, counts, EB_IN_PLACE, counts, EB_I64, &request), "EB_IN_PLACE is not allowed");
    CHECK(request == NULL);
    if (ranks > 1) {
        /* One rank sends more than expected: an error on all ranks, which go on. */
        size_t gives[MOST] = {0}, gets[MOST] = {0};
        if (rank == 0) gives[1] = 2;
        if (rank == 1) gets[0] = 1;
        WORKS(eb_ialltoallv(comm, x, gives, y, gets, EB_I64, &request));
        CHECK(eb_wait(&request) == EB_MISMATCH && request == NULL);
        WORKS(eb_barrier(comm));
    }
}

int main(void) {
    eb_comm *comm;
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    CHECK(ranks <= MOST);
    for (int in_place = 0; in_place < 2; in_place++)
        all_forms(comm, 0, in_place), all_forms(comm, 3, in_place), all_forms(comm, 5000, in_place);
    mistakes(comm);
    WORKS(eb_comm_free(&comm));
    return right();
}
