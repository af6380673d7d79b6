/* Scans, inclusive and exclusive: by operators of the library and of the user, in every form. */
#include "check.h"

/* x -> a * x + b on wrapping numbers; composition is associative and not commutative. */
typedef struct linear { uint32_t a, b; } linear;

static linear after(linear left, linear right) {
    linear both = {left.a * right.a, left.a * right.b + left.b};
    return both;
}

static void compose(const void *left, void *right, size_t count, void *context) {
    (void)context;
    for (size_t i = 0; i < count; i++) ((linear *)right)[i] = after(((const linear *)left)[i], ((linear *)right)[i]);
}

static linear element(size_t of, size_t at) {
    linear x = {(uint32_t)(2 * of + at) * 2654435761u | 1u, (uint32_t)(of * 40503u + at)};
    return x;
}

/* The composition of the contributions of `ranks_before` ranks; `stays` where there are none. */
static linear composed(size_t ranks_before, size_t at, linear stays) {
    linear all = ranks_before ? element(0, at) : stays;
    for (size_t r = 1; r < ranks_before; r++) all = after(all, element(r, at));
    return all;
}

static void check(const linear *inclusive, const linear *exclusive, const linear *before, size_t n) {
    for (size_t i = 0; i < n; i++) {
        linear with = composed(rank + 1, i, before[i]), without = composed(rank, i, before[i]);
        CHECK(inclusive[i].a == with.a && inclusive[i].b == with.b);
        CHECK(exclusive[i].a == without.a && exclusive[i].b == without.b);
    }
}

static void by_user(const eb_comm *comm, size_t n, int in_place) {
    eb_operator op = {compose, NULL, 0, 7};
    linear *mine = (linear *)malloc((n + 1) * sizeof *mine), *before = (linear *)malloc((n + 1) * sizeof *mine);
    linear *with = (linear *)malloc((n + 1) * sizeof *mine), *without = (linear *)malloc((n + 1) * sizeof *mine);
    const void *give = in_place ? EB_IN_PLACE : mine;
    eb_request *calls[2];
    CHECK(mine && before && with && without);
    for (size_t form = 0; form < 3; form++) {
        if (form == 2) {
            WORKS(eb_scan_with_init(comm, give, with, n, sizeof *mine, &op, &calls[0]));
            WORKS(eb_exscan_with_init(comm, give, without, n, sizeof *mine, &op, &calls[1]));
        }
        for (size_t i = 0; i < n; i++) {
            mine[i] = element(rank, i);
            before[i] = with[i] = without[i] = in_place ? mine[i] : element(77, i);
        }
        if (form == 0) {
            WORKS(eb_scan_with(comm, give, with, n, sizeof *mine, &op));
            WORKS(eb_exscan_with(comm, give, without, n, sizeof *mine, &op));
        } else {
            if (form == 1) {
                WORKS(eb_iscan_with(comm, give, with, n, sizeof *mine, &op, &calls[0]));
                WORKS(eb_iexscan_with(comm, give, without, n, sizeof *mine, &op, &calls[1]));
            } else {
                for (size_t k = 0; k < 2; k++) WORKS(eb_start(calls[k]));
            }
            for (size_t k = 2; k-- > 0;) {
                WORKS(eb_wait(&calls[k]));
                WORKS(eb_request_free(&calls[k]));
            }
        }
        check(with, without, before, n);
    }
    free(mine), free(before), free(with), free(without);
}

static void by_library(const eb_comm *comm, size_t n) {
    int64_t *mine = (int64_t *)malloc((n + 1) * sizeof *mine), *sums[6];
    unsigned char *flags = (unsigned char *)malloc(n + 1);
    eb_request *calls[4];
    CHECK(mine && flags);
    for (size_t i = 0; i < n; i++) mine[i] = (int64_t)(1000 * (rank + 1) + i);
    for (size_t k = 0; k < 6; k++) {
        CHECK((sums[k] = (int64_t *)malloc((n + 1) * sizeof *mine)) != NULL);
        for (size_t i = 0; i < n; i++) sums[k][i] = -5;
    }
    WORKS(eb_scan(comm, mine, sums[0], n, EB_I64, EB_SUM));
    WORKS(eb_exscan(comm, mine, sums[1], n, EB_I64, EB_SUM));
    WORKS(eb_iscan(comm, mine, sums[2], n, EB_I64, EB_SUM, &calls[0]));
    WORKS(eb_iexscan(comm, mine, sums[3], n, EB_I64, EB_SUM, &calls[1]));
    WORKS(eb_scan_init(comm, mine, sums[4], n, EB_I64, EB_SUM, &calls[2]));
    WORKS(eb_exscan_init(comm, mine, sums[5], n, EB_I64, EB_SUM, &calls[3]));
    for (size_t k = 2; k < 4; k++) WORKS(eb_start(calls[k]));
    for (size_t k = 0; k < 4; k++) {
        WORKS(eb_wait(&calls[k]));
        WORKS(eb_request_free(&calls[k]));
    }
    for (size_t i = 0; i < n; i++) {
        int64_t without = (int64_t)(500 * rank * (rank + 1) + rank * i), with = without + mine[i];
        for (size_t k = 0; k < 6; k++) CHECK(sums[k][i] == (k % 2 == 0 ? with : rank ? without : -5));
        flags[i] = rank == i % ranks ? 3 : 0;
    }
    /* Any byte but 0 is true. The first rank's stays as it is. */
    WORKS(eb_exscan(comm, EB_IN_PLACE, flags, n, EB_BOOL, EB_LOGICAL_OR));
    for (size_t i = 0; i < n; i++) CHECK(flags[i] == (rank ? i % ranks < rank : i % ranks == 0 ? 3 : 0));
    for (size_t k = 0; k < 6; k++) free(sums[k]);
    free(mine), free(flags);
}

int main(void) {
    eb_comm *comm;
    int32_t x = 1, y = 7;
    size_t counts[] = {0, 1, 3001};
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    for (size_t k = 0; k < 3; k++) by_library(comm, counts[k]), by_user(comm, counts[k], 0), by_user(comm, counts[k], 1);
    FAILS(EB_UNSUPPORTED, eb_scan(comm, EB_IN_PLACE, &x, 1, EB_I32, EB_AVERAGE), "use sum");
    FAILS(EB_USAGE, eb_scan(comm, &x, NULL, 1, EB_I32, EB_SUM), "is null");
    /* The first rank has no result, and needs no room for one. */
    WORKS(eb_exscan(comm, &x, rank ? &y : NULL, 1, EB_I32, EB_SUM));
    CHECK(y == (rank ? (int32_t)rank : 7));
    WORKS(eb_comm_free(&comm));
    return right();
}
