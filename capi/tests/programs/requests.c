/* Non-blocking calls of every operation, waited for in any order; buffers in shared memory. */
#include "check.h"

enum { N = 3000 };

static double value(size_t of, size_t at) { return (double)(100 * of + at % 97); }

static void every_call(const eb_comm *comm, size_t n, int in_place) {
    size_t all = n * ranks;
    double *send = (double *)calloc(all + 1, sizeof *send), *got[8], expected;
    eb_request *requests[9];
    CHECK(send);
    for (size_t i = 0; i < all; i++) send[i] = value(rank, i);
    for (size_t k = 0; k < 8; k++) {
        got[k] = (double *)calloc(all + 1, sizeof *got[k]);
        CHECK(got[k]);
        memcpy(got[k], send, all * sizeof *send);
        got[k][all] = -1.0;
    }
    size_t root = ranks - 1;
    int here = rank == root;
    if (n) memcpy(got[4] + rank * n, send, n * sizeof *send);
    if (n) memcpy(got[5] + rank * n, send, n * sizeof *send);
    WORKS(eb_iallreduce(comm, in_place ? EB_IN_PLACE : send, got[0], n, EB_F64, EB_SUM, &requests[0]));
    WORKS(eb_ireduce(comm, in_place ? EB_IN_PLACE : send, got[1], n, EB_F64, EB_MAX, root, &requests[1]));
    WORKS(eb_ireduce_scatter(comm, in_place ? EB_IN_PLACE : send, got[2], n, EB_F64, EB_SUM, &requests[2]));
    WORKS(eb_ibroadcast(comm, got[3], n, EB_F64, root, &requests[3]));
    WORKS(eb_iallgather(comm, in_place ? EB_IN_PLACE : send, got[4], n, EB_F64, &requests[4]));
    WORKS(eb_igather(comm, in_place && here ? EB_IN_PLACE : send, got[5], n, EB_F64, root, &requests[5]));
    WORKS(eb_iscatter(comm, send, in_place && here ? EB_IN_PLACE : got[6], n, EB_F64, root, &requests[6]));
    WORKS(eb_ialltoall(comm, in_place ? EB_IN_PLACE : send, got[7], n, EB_F64, &requests[7]));
    WORKS(eb_ibarrier(comm, &requests[8]));
    /* A blocking call among them. */
    int64_t one = 1;
    WORKS(eb_allreduce(comm, EB_IN_PLACE, &one, 1, EB_I64, EB_SUM));
    CHECK(one == (int64_t)ranks);
    for (size_t k = 0; k < 9; k++) {
        eb_request **request = &requests[(k * 4 + rank) % 9];
        CHECK(*request != NULL);
        int left = 2;
        WORKS(eb_progress(k % 4 ? &left : NULL));
        CHECK(k % 4 ? left == 0 || left == 1 : left == 2);
        if (k % 2) {
            int done = 0;
            while (!done) WORKS(eb_test(request, &done));
        } else {
            WORKS(eb_wait(request));
        }
        CHECK(*request == NULL);
        WORKS(eb_wait(request));
    }
    for (size_t i = 0; i < n; i++) {
        expected = 0;
        for (size_t r = 0; r < ranks; r++) expected += value(r, i);
        CHECK(got[0][i] == expected);
        CHECK(got[1][i] == (here ? value(ranks - 1, i) : value(rank, i)));
        expected = 0;
        for (size_t r = 0; r < ranks; r++) expected += value(r, rank * n + i);
        CHECK(got[2][i] == expected);
        CHECK(got[3][i] == value(root, i));
        CHECK(got[6][i] == (in_place && here ? value(rank, i) : value(root, rank * n + i)));
    }
    for (size_t i = 0; i < all; i++) {
        CHECK(got[4][i] == value(i / n, i % n));
        CHECK(!here || got[5][i] == value(i / n, i % n));
        CHECK(got[7][i] == value(i / n, rank * n + i % n));
    }
    for (size_t k = 0; k < 8; k++) {
        CHECK(got[k][all] == -1.0);
        free(got[k]);
    }
    free(send);
}

static void mistakes(const eb_comm *comm) {
    double x[4] = {0};
    int done;
    eb_request *request;
    FAILS(EB_USAGE, eb_iallreduce(comm, x, x + 1, 1, EB_F64, EB_SUM, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_iallreduce(NULL, x, x + 1, 1, EB_F64, EB_SUM, &request), "the communicator is null");
    CHECK(request == NULL);
    FAILS(EB_USAGE, eb_iallreduce(comm, NULL, x, 1, EB_F64, EB_SUM, &request), "is null");
    FAILS(EB_USAGE, eb_iallreduce(comm, x, NULL, 1, EB_F64, EB_SUM, &request), "is null");
    FAILS(EB_USAGE, eb_iallreduce(comm, x, x + 1, 1, (eb_type)31, EB_SUM, &request), "there is no type 31");
    FAILS(EB_USAGE, eb_ireduce(comm, x, x + 1, 1, EB_F64, EB_SUM, ranks, &request), "does not exist");
    FAILS(EB_USAGE, eb_ibroadcast(comm, NULL, 1, EB_F64, 0, &request), "is null");
    FAILS(EB_USAGE, eb_iallgather(comm, x, NULL, 1, EB_F64, &request), "is null");
    FAILS(EB_USAGE, eb_igather(comm, NULL, NULL, 1, EB_F64, 0, &request), "is null");
    FAILS(EB_USAGE, eb_iscatter(comm, x, NULL, 1, EB_F64, 0, &request), "is null");
    FAILS(EB_USAGE, eb_ireduce_scatter(comm, x, NULL, 1, EB_F64, EB_SUM, &request), "is null");
    FAILS(EB_USAGE, eb_ialltoall(comm, NULL, x, 1, EB_F64, &request), "is null");
    FAILS(EB_USAGE, eb_ibarrier(comm, NULL), "address of a variable");
    FAILS(EB_UNSUPPORTED, eb_iallreduce(comm, x, x + 1, 1, EB_F64, EB_BIT_OR, &request), "f64 has");
    CHECK(request == NULL);
    FAILS(EB_USAGE, eb_wait(NULL), "address of a variable");
    FAILS(EB_USAGE, eb_test(NULL, &done), "address of a variable");
    FAILS(EB_USAGE, eb_test(&request, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_request_free(NULL), "address of a variable");
    WORKS(eb_test(&request, &done));
    CHECK(done == 1);
}

static void shared(const eb_comm *comm) {
    eb_buffer *send, *recv, *other;
    void *data;
    float *from, *to;
    WORKS(eb_buffer_alloc(comm, N, EB_F32, &send));
    WORKS(eb_buffer_alloc(comm, N, EB_F32, &recv));
    WORKS(eb_buffer_data(send, &data));
    from = (float *)data;
    WORKS(eb_buffer_data(recv, &data));
    to = (float *)data;
    for (size_t i = 0; i < N; i++) {
        CHECK(from[i] == 0.0f);
        from[i] = (float)(rank + i % 7);
    }
    WORKS(eb_allreduce_shared(comm, send, recv, EB_SUM));
    for (size_t i = 0; i < N; i++) CHECK(to[i] == (float)(ranks * (ranks - 1) / 2 + ranks * (i % 7)));
    WORKS(eb_allreduce_shared(comm, (eb_buffer *)EB_IN_PLACE, send, EB_MAX));
    for (size_t i = 0; i < N; i++) CHECK(from[i] == (float)(ranks - 1 + i % 7));

    FAILS(EB_USAGE, eb_buffer_alloc(comm, 1, EB_F32, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_buffer_alloc(comm, (size_t)-1, EB_F32, &other), "exceeds the address space");
    FAILS(EB_NO_SPACE, eb_buffer_alloc(comm, (size_t)1 << 40, EB_F32, &other), "bytes of shared memory are needed");
    FAILS(EB_UNSUPPORTED, eb_buffer_alloc(comm, 1, EB_BOOL, &other), "EB_U8");
    CHECK(other == NULL);
    FAILS(EB_USAGE, eb_buffer_data(NULL, &data), "the buffer is null");
    FAILS(EB_USAGE, eb_buffer_data(send, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_allreduce_shared(comm, send, send, EB_SUM), "EB_IN_PLACE");
    FAILS(EB_USAGE, eb_allreduce_shared(comm, NULL, recv, EB_SUM), "the buffer is null");
    FAILS(EB_USAGE, eb_allreduce_shared(comm, send, NULL, EB_SUM), "the buffer is null");
    FAILS(EB_USAGE, eb_allreduce_shared(comm, send, (eb_buffer *)EB_IN_PLACE, EB_SUM), "EB_IN_PLACE is not allowed");
    FAILS(EB_USAGE, eb_buffer_free(NULL), "address of a variable");
    WORKS(eb_buffer_alloc(comm, N, EB_I32, &other));
    FAILS(EB_USAGE, eb_allreduce_shared(comm, send, other, EB_SUM), "different types");
    WORKS(eb_buffer_free(&other));
    WORKS(eb_buffer_alloc(comm, N - 1, EB_F32, &other));
    FAILS(EB_USAGE, eb_allreduce_shared(comm, send, other, EB_SUM), "one length");
    WORKS(eb_buffer_free(&other));
    CHECK(other == NULL);
    WORKS(eb_buffer_free(&send));
    WORKS(eb_barrier(comm));
    WORKS(eb_buffer_free(&recv));
    WORKS(eb_buffer_free(&recv));
}

int main(void) {
    eb_comm *comm;
    eb_request *dropped, *last;
    int32_t a = (int32_t)rank, b = 1;
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    for (int in_place = 0; in_place < 2; in_place++)
        every_call(comm, 0, in_place), every_call(comm, 3, in_place), every_call(comm, N, in_place);
    mistakes(comm);
    shared(comm);
    /* A freed request still takes part. */
    WORKS(eb_iallreduce(comm, EB_IN_PLACE, &a, 1, EB_I32, EB_SUM, &dropped));
    WORKS(eb_request_free(&dropped));
    CHECK(dropped == NULL);
    WORKS(eb_request_free(&dropped));
    WORKS(eb_iallreduce(comm, EB_IN_PLACE, &b, 1, EB_I32, EB_SUM, &last));
    /* The request keeps its communicator. */
    WORKS(eb_comm_free(&comm));
    WORKS(eb_wait(&last));
    CHECK(b == (int32_t)ranks);
    return right();
}
