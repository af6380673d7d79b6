/* User-defined operators: any size of element, order of operands, context, tags, and invalid arguments. */
#include "check.h"

/* x -> a * x + b on wrapping numbers; composition is associative and not commutative. */
typedef struct linear { uint32_t a, b; } linear;

/* Odd sizes: three bytes, maximum by the first. */
typedef struct odd { unsigned char key, data[2]; } odd;

static size_t calls;

static void compose(const void *left, void *right, size_t count, void *context) {
    const linear *l = (const linear *)left;
    linear *r = (linear *)right;
    if (count == 0 || (uintptr_t)left % 8 || (uintptr_t)right % 8) abort();
    for (size_t i = 0; i < count; i++) r[i].b = l[i].a * r[i].b + l[i].b, r[i].a = l[i].a * r[i].a;
    calls += count;
    *(size_t *)context += 1;
}

static void larger(const void *left, void *right, size_t count, void *context) {
    const odd *l = (const odd *)left;
    odd *r = (odd *)right;
    (void)context;
    for (size_t i = 0; i < count; i++)
        if (l[i].key > r[i].key) r[i] = l[i];
}

static linear element(size_t of, size_t at) {
    linear x = {(uint32_t)(2 * of + at) * 2654435761u | 1u, (uint32_t)(of * 40503u + at)};
    return x;
}

static linear composed(size_t at) {
    linear all = element(0, at);
    for (size_t r = 1; r < ranks; r++) {
        linear next = element(r, at);
        all.b = all.a * next.b + all.b;
        all.a = all.a * next.a;
    }
    return all;
}

static int same(linear x, linear y) { return x.a == y.a && x.b == y.b; }

/* Non-blocking and persistent calls. */
static void started(const eb_comm *comm, size_t n, const eb_operator *op) {
    linear *mine = (linear *)malloc(ranks * n * sizeof *mine), *all[3];
    eb_request *calls[3];
    size_t root = n % ranks;
    CHECK(mine);
    for (size_t k = 0; k < 3; k++) CHECK((all[k] = (linear *)malloc((ranks * n + 1) * sizeof *mine)) != NULL);
    for (size_t round = 0; round < 4; round++) {
        int again = round > 1, in_place = round % 2;
        const void *give = in_place ? EB_IN_PLACE : mine;
        if (again) {
            WORKS(eb_allreduce_with_init(comm, give, all[0], n, sizeof *mine, op, &calls[0]));
            WORKS(eb_reduce_with_init(comm, give, all[1], n, sizeof *mine, op, root, &calls[1]));
            WORKS(eb_reduce_scatter_with_init(comm, give, all[2], n, sizeof *mine, op, &calls[2]));
        }
        for (size_t i = 0; i < ranks * n; i++) mine[i] = all[0][i] = all[1][i] = all[2][i] = element(rank, i);
        if (again) {
            for (size_t k = 0; k < 3; k++) WORKS(eb_start(calls[k]));
        } else {
            WORKS(eb_iallreduce_with(comm, give, all[0], n, sizeof *mine, op, &calls[0]));
            WORKS(eb_ireduce_with(comm, give, all[1], n, sizeof *mine, op, root, &calls[1]));
            WORKS(eb_ireduce_scatter_with(comm, give, all[2], n, sizeof *mine, op, &calls[2]));
        }
        for (size_t k = 3; k-- > 0;) {
            WORKS(eb_wait(&calls[k]));
            CHECK((calls[k] != NULL) == again);
            WORKS(eb_request_free(&calls[k]));
        }
        for (size_t i = 0; i < n; i++) {
            CHECK(same(all[0][i], composed(i)));
            CHECK(same(all[1][i], rank == root ? composed(i) : mine[i]));
            CHECK(same(all[2][i], composed(rank * n + i)));
        }
    }
    for (size_t k = 0; k < 3; k++) free(all[k]);
    free(mine);
}

static void ordered(const eb_comm *comm, size_t n) {
    size_t context = 0;
    eb_operator op = {compose, NULL, 0, 7};
    op.context = &context;
    linear *mine = (linear *)malloc(ranks * n * sizeof *mine), *all = (linear *)malloc(ranks * n * sizeof *all);
    CHECK(mine && all);
    for (size_t i = 0; i < ranks * n; i++) mine[i] = element(rank, i);
    WORKS(eb_allreduce_with(comm, mine, all, n, sizeof *mine, &op));
    for (size_t i = 0; i < n; i++) CHECK(same(all[i], composed(i)));
    memcpy(all, mine, n * sizeof *all);
    WORKS(eb_allreduce_with(comm, EB_IN_PLACE, all, n, sizeof *mine, &op));
    for (size_t i = 0; i < n; i++) CHECK(same(all[i], composed(i)));
    for (size_t root = 0; root < ranks; root++) {
        WORKS(eb_reduce_with(comm, mine, rank == root ? all : NULL, n, sizeof *mine, &op, root));
        for (size_t i = 0; rank == root && i < n; i++) CHECK(same(all[i], composed(i)));
        memcpy(all, mine, n * sizeof *all);
        WORKS(eb_reduce_with(comm, EB_IN_PLACE, all, n, sizeof *mine, &op, root));
        for (size_t i = 0; i < n; i++) CHECK(same(all[i], rank == root ? composed(i) : mine[i]));
    }
    WORKS(eb_reduce_scatter_with(comm, mine, all, n, sizeof *mine, &op));
    for (size_t i = 0; i < n; i++) CHECK(same(all[i], composed(rank * n + i)));
    WORKS(eb_reduce_scatter_with(comm, EB_IN_PLACE, mine, n, sizeof *mine, &op));
    for (size_t i = 0; i < n; i++) CHECK(same(mine[i], composed(rank * n + i)));
    started(comm, n, &op);
    CHECK(ranks == 1 || n == 0 || calls > 0 || rank > 0);
    free(mine);
    free(all);
}

static void commutative(const eb_comm *comm) {
    eb_operator op = {larger, NULL, 1, 0};
    odd mine[100], all[100];
    for (size_t i = 0; i < 100; i++)
        mine[i].key = (unsigned char)((i + rank) % ranks), mine[i].data[0] = (unsigned char)rank, mine[i].data[1] = 9;
    WORKS(eb_allreduce_with(comm, mine, all, 100, sizeof *mine, &op));
    for (size_t i = 0; i < 100; i++)
        CHECK(all[i].key == ranks - 1 && (i + all[i].data[0]) % ranks == ranks - 1 && all[i].data[1] == 9);
}

/* Interleaved nodes: even ranks, then odd ones. */
static void mixed(const eb_comm *comm) {
    eb_comm *part;
    size_t was = rank;
    WORKS(eb_split(comm, 0, (int64_t)(rank % 2 * ranks + rank), &part));
    joined(part);
    ordered(part, 1), ordered(part, 5000);
    commutative(part);
    WORKS(eb_comm_free(&part));
    joined(comm);
    CHECK(rank == was);
}

int main(void) {
    static const char *const algorithms[] = {"auto", "flat", "leader", "chain", "slices"};
    eb_comm *comm;
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    for (size_t a = 0; a < 5; a++) {
        WORKS(eb_set_algorithm(comm, algorithms[a]));
        ordered(comm, 0), ordered(comm, 1), ordered(comm, 9), ordered(comm, 5000);
        commutative(comm);
    }
    mixed(comm);
    linear x[8] = {{1, 1}};
    eb_request *request;
    size_t context = 0;
    eb_operator none = {NULL, NULL, 0, 0}, tag = {compose, &context, 0, 64}, half = {compose, &context, 2, 0};
    eb_operator good = {compose, &context, 0, 1};
    FAILS(EB_USAGE, eb_allreduce_with(comm, EB_IN_PLACE, x, 1, 8, NULL), "the operator is null");
    FAILS(EB_USAGE, eb_allreduce_with(comm, EB_IN_PLACE, x, 1, 8, &none), "member fold");
    FAILS(EB_USAGE, eb_allreduce_with(comm, EB_IN_PLACE, x, 1, 8, &tag), "not below 64");
    FAILS(EB_USAGE, eb_allreduce_with(comm, EB_IN_PLACE, x, 1, 8, &half), "0 or 1");
    FAILS(EB_USAGE, eb_allreduce_with(comm, EB_IN_PLACE, x, 1, 0, &good), "no size");
    FAILS(EB_UNSUPPORTED, eb_allreduce_with(comm, EB_IN_PLACE, x, 0, 16 << 20, &good), "16 MiB");
    FAILS(EB_USAGE, eb_allreduce_with(comm, EB_IN_PLACE, x, (size_t)-1, 8, &good), "the address space");
    FAILS(EB_USAGE, eb_allreduce_with(comm, EB_IN_PLACE, NULL, 1, 8, &good), "is null");
    FAILS(EB_USAGE, eb_iallreduce_with(comm, EB_IN_PLACE, x, 1, 8, &none, &request), "member fold");
    FAILS(EB_USAGE, eb_allreduce_with_init(comm, EB_IN_PLACE, NULL, 1, 8, &good, &request), "is null");
    CHECK(request == NULL);
    FAILS(EB_USAGE, eb_reduce_with(comm, x, x + 4, 1, 8, &good, ranks), "does not exist");
    FAILS(EB_USAGE, eb_reduce_scatter_with(comm, x, NULL, 1, 8, &good), "is null");
    if (ranks > 1) {
        good.tag = (unsigned)rank;
        CHECK(eb_allreduce_with(comm, EB_IN_PLACE, x, 1, 8, &good) == EB_MISMATCH);
    }
    WORKS(eb_comm_free(&comm));
    return right();
}
