/* Results in shared memory that all ranks of a node read. */
#include "check.h"

enum { N = 40000 };

static float value(size_t of, size_t at, size_t round) { return (float)(of + at % 101 + 3 * round); }

static eb_view *result(const eb_comm *comm, size_t n, size_t round) {
    float *send = (float *)malloc((n + 1) * sizeof *send);
    eb_view *view;
    CHECK(send);
    for (size_t i = 0; i < n; i++) send[i] = value(rank, i, round);
    WORKS(eb_allreduce_view(comm, send, n, EB_F32, EB_SUM, &view));
    free(send);
    CHECK(view != NULL);
    return view;
}

static const float *data(const eb_view *view) {
    const void *at;
    WORKS(eb_view_data(view, &at));
    return (const float *)at;
}

static void check(const eb_view *view, size_t n, size_t round) {
    const float *at = data(view);
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (size_t r = 0; r < ranks; r++) sum += value(r, i, round);
        CHECK(at[i] == sum);
    }
}

static int copied(const eb_view *view) {
    int is_copy;
    WORKS(eb_view_is_copy(view, &is_copy));
    CHECK(is_copy == 0 || is_copy == 1);
    return is_copy;
}

static void mistakes(const eb_comm *comm) {
    double x[2] = {0};
    eb_view *view;
    const void *at;
    int is_copy;
    FAILS(EB_USAGE, eb_allreduce_view(comm, x, 2, EB_F64, EB_SUM, NULL), "address of a variable");
    FAILS(EB_USAGE, eb_allreduce_view(NULL, x, 2, EB_F64, EB_SUM, &view), "the communicator is null");
    FAILS(EB_USAGE, eb_allreduce_view(comm, NULL, 2, EB_F64, EB_SUM, &view), "the send buffer is null");
    FAILS(EB_USAGE, eb_allreduce_view(comm, EB_IN_PLACE, 2, EB_F64, EB_SUM, &view), "EB_IN_PLACE is not allowed");
    FAILS(EB_USAGE, eb_allreduce_view(comm, (char *)x + 1, 1, EB_F64, EB_SUM, &view), "a multiple of 8");
    FAILS(EB_USAGE, eb_allreduce_view(comm, x, 2, (eb_type)0, EB_SUM, &view), "there is no type 0");
    FAILS(EB_USAGE, eb_allreduce_view(comm, x, 2, EB_F64, (eb_op)99, &view), "there is no operator 99");
    FAILS(EB_UNSUPPORTED, eb_allreduce_view(comm, x, 2, EB_F64, EB_BIT_XOR, &view), "f64 has");
    CHECK(view == NULL);
    FAILS(EB_USAGE, eb_view_data(NULL, &at), "the view is null");
    FAILS(EB_USAGE, eb_view_is_copy(NULL, &is_copy), "the view is null");
    FAILS(EB_USAGE, eb_view_free(NULL), "address of a variable");
    WORKS(eb_view_free(&view));
}

int main(void) {
    eb_comm *comm;
    eb_view *views[3], *small, *flags;
    const void *at;
    unsigned char given[2];
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    mistakes(comm);
    /* Of three views the third is a copy; none changes while others are created. */
    for (size_t round = 0; round < 3; round++) views[round] = result(comm, N, round);
    CHECK(copied(views[2]));
    CHECK(copied(views[0]) == copied(views[1]));
    if (getenv("EARLYBIRD_RANKS_PER_NODE") == NULL) CHECK(copied(views[0]) == (ranks == 1));
    for (size_t round = 0; round < 3; round++) check(views[round], N, round);
    FAILS(EB_USAGE, eb_view_data(views[0], NULL), "address of a variable");
    FAILS(EB_USAGE, eb_view_is_copy(views[0], NULL), "address of a variable");
    for (size_t round = 0; round < 3; round++) WORKS(eb_view_free(&views[round]));
    CHECK(views[0] == NULL);
    WORKS(eb_view_free(&views[0]));
    for (size_t round = 0; round < 20; round++) {
        eb_view *view = result(comm, N, round);
        check(view, N, round);
        WORKS(eb_view_free(&view));
    }
    small = result(comm, 5, 1);
    CHECK(copied(small));
    check(small, 5, 1);
    WORKS(eb_view_free(&small));
    small = result(comm, 0, 0);
    WORKS(eb_view_free(&small));
    given[0] = (unsigned char)(rank == 0 ? 7 : 0), given[1] = 2; /* any byte but 0 is true */
    WORKS(eb_allreduce_view(comm, given, 2, EB_BOOL, EB_LOGICAL_AND, &flags));
    WORKS(eb_view_data(flags, &at));
    CHECK(((const unsigned char *)at)[0] == (ranks == 1) && ((const unsigned char *)at)[1] == 1);
    WORKS(eb_view_free(&flags));
    /* A view keeps its communicator. */
    views[0] = result(comm, N, 9);
    WORKS(eb_barrier(comm));
    WORKS(eb_comm_free(&comm));
    check(views[0], N, 9);
    WORKS(eb_view_free(&views[0]));
    return right();
}
