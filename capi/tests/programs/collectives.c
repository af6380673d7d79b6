/* Every operation, with exact results, with two buffers and in place, in several sizes, with every type. */
#include "check.h"

/* An element that names its rank and its index. */
static int32_t element(size_t of, size_t at) { return (int32_t)(1000 * (of + 1) + at % 997); }

static int32_t sum(size_t at) {
    int32_t all = 0;
    for (size_t r = 0; r < ranks; r++) all += element(r, at);
    return all;
}

static int32_t *numbers(size_t count) {
    int32_t *all = (int32_t *)malloc((count + 1) * sizeof *all);
    CHECK(all != NULL);
    memset(all, 0x55, (count + 1) * sizeof *all);
    return all;
}

static int32_t *given(size_t count) {
    int32_t *all = numbers(count);
    for (size_t i = 0; i < count; i++) all[i] = element(rank, i);
    return all;
}

static void reductions(const eb_comm *comm, size_t count) {
    int32_t *send = given(count), *recv = numbers(count);
    WORKS(eb_allreduce(comm, send, recv, count, EB_I32, EB_SUM));
    for (size_t i = 0; i < count; i++) CHECK(recv[i] == sum(i) && send[i] == element(rank, i));
    memcpy(recv, send, count * sizeof *send);
    WORKS(eb_allreduce(comm, EB_IN_PLACE, recv, count, EB_I32, EB_MAX));
    for (size_t i = 0; i < count; i++) CHECK(recv[i] == element(ranks - 1, i));
    CHECK(recv[count] == 0x55555555);

    for (size_t root = 0; root < ranks; root++) {
        memset(recv, 0, count * sizeof *recv);
        WORKS(eb_reduce(comm, send, rank == root ? recv : NULL, count, EB_I32, EB_SUM, root));
        for (size_t i = 0; i < count; i++) CHECK(recv[i] == (rank == root ? sum(i) : 0));
        memcpy(recv, send, count * sizeof *send);
        WORKS(eb_reduce(comm, EB_IN_PLACE, recv, count, EB_I32, EB_SUM, root));
        for (size_t i = 0; i < count; i++) CHECK(recv[i] == (rank == root ? sum(i) : send[i]));
        memcpy(recv, send, count * sizeof *send);
        WORKS(eb_broadcast(comm, recv, count, EB_I32, root));
        for (size_t i = 0; i < count; i++) CHECK(recv[i] == element(root, i));
    }
    free(send);
    free(recv);

    send = given(count * ranks), recv = numbers(count);
    WORKS(eb_reduce_scatter(comm, send, recv, count, EB_I32, EB_SUM));
    for (size_t i = 0; i < count; i++) CHECK(recv[i] == sum(rank * count + i));
    WORKS(eb_reduce_scatter(comm, EB_IN_PLACE, send, count, EB_I32, EB_SUM));
    for (size_t i = 0; i < count * ranks; i++)
        CHECK(send[i] == (i < count ? sum(rank * count + i) : element(rank, i)));
    free(send);
    free(recv);
}

static void moves(const eb_comm *comm, size_t count) {
    size_t all = count * ranks;
    int32_t *send = given(all), *recv = numbers(all);
    WORKS(eb_allgather(comm, send, recv, count, EB_I32));
    for (size_t i = 0; i < all; i++) CHECK(recv[i] == element(i / count, i % count));
    memset(recv, 0, all * sizeof *recv);
    if (count) memcpy(recv + rank * count, send, count * sizeof *recv);
    WORKS(eb_allgather(comm, EB_IN_PLACE, recv, count, EB_I32));
    for (size_t i = 0; i < all; i++) CHECK(recv[i] == element(i / count, i % count));

    WORKS(eb_alltoall(comm, send, recv, count, EB_I32));
    for (size_t i = 0; i < all; i++) CHECK(recv[i] == element(i / count, rank * count + i % count));
    memcpy(recv, send, all * sizeof *recv);
    WORKS(eb_alltoall(comm, EB_IN_PLACE, recv, count, EB_I32));
    for (size_t i = 0; i < all; i++) CHECK(recv[i] == element(i / count, rank * count + i % count));

    for (size_t root = 0; root < ranks; root++) {
        int here = rank == root;
        memset(recv, 0, all * sizeof *recv);
        WORKS(eb_gather(comm, send, here ? recv : NULL, count, EB_I32, root));
        for (size_t i = 0; i < all; i++) CHECK(recv[i] == (here ? element(i / count, i % count) : 0));
        memset(recv, 0, all * sizeof *recv);
        if (here && count) memcpy(recv + rank * count, send, count * sizeof *recv);
        WORKS(eb_gather(comm, here ? EB_IN_PLACE : send, here ? recv : NULL, count, EB_I32, root));
        for (size_t i = 0; i < all; i++) CHECK(recv[i] == (here ? element(i / count, i % count) : 0));

        memset(recv, 0, all * sizeof *recv);
        WORKS(eb_scatter(comm, here ? send : NULL, recv, count, EB_I32, root));
        for (size_t i = 0; i < count; i++) CHECK(recv[i] == element(root, rank * count + i));
        memset(recv, 0, all * sizeof *recv);
        WORKS(eb_scatter(comm, here ? send : NULL, here ? EB_IN_PLACE : recv, count, EB_I32, root));
        for (size_t i = 0; i < count; i++)
            CHECK(here ? send[rank * count + i] == element(rank, rank * count + i)
                       : recv[i] == element(root, rank * count + i));
    }
    CHECK(recv[all] == 0x55555555);
    free(send);
    free(recv);
}

/* Rank a sends `unit * (a + b) % 3` elements to rank b, as many as it receives from it. */
static void pairs(const eb_comm *comm, size_t unit) {
    size_t *counts = (size_t *)malloc(ranks * sizeof *counts), all = 0;
    CHECK(counts);
    for (size_t r = 0; r < ranks; r++) all += counts[r] = unit * ((rank + r) % 3);
    int32_t *send = given(all), *recv = numbers(all);
    size_t at = 0, peer_at;
    for (size_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < counts[r]; i++) send[at++] = element(rank * ranks + r, i);
    for (int in_place = 0; in_place < 2; in_place++) {
        memset(recv, 0, all * sizeof *recv);
        if (in_place) memcpy(recv, send, all * sizeof *recv);
        WORKS(eb_alltoallv(comm, in_place ? EB_IN_PLACE : send, in_place ? NULL : counts, recv, counts, EB_I32));
        peer_at = 0;
        for (size_t r = 0; r < ranks; r++)
            for (size_t i = 0; i < counts[r]; i++) CHECK(recv[peer_at++] == element(r * ranks + rank, i));
    }
    CHECK(recv[all] == 0x55555555);
    free(counts);
    free(send);
    free(recv);
}

/* Rank r has `unit * r` elements, or the last rank none. */
static void unequal(const eb_comm *comm, size_t unit) {
    size_t *counts = (size_t *)malloc(ranks * sizeof *counts), *starts = (size_t *)malloc(ranks * sizeof *starts);
    size_t all = 0;
    CHECK(counts && starts);
    for (size_t r = 0; r < ranks; r++) {
        counts[r] = r + 1 == ranks && ranks > 1 ? 0 : unit * (r + 1);
        starts[r] = all;
        all += counts[r];
    }
    size_t own = counts[rank];
    int32_t *whole = given(all), *send = given(own), *recv = numbers(all);

    WORKS(eb_reduce_scatterv(comm, whole, recv, counts, EB_I32, EB_SUM));
    for (size_t i = 0; i < own; i++) CHECK(recv[i] == sum(starts[rank] + i));
    memcpy(recv, whole, all * sizeof *recv);
    WORKS(eb_reduce_scatterv(comm, EB_IN_PLACE, recv, counts, EB_I32, EB_SUM));
    for (size_t i = 0; i < all; i++) CHECK(recv[i] == (i < own ? sum(starts[rank] + i) : element(rank, i)));

    for (int in_place = 0; in_place < 2; in_place++) {
        memset(recv, 0, all * sizeof *recv);
        memcpy(recv + starts[rank], send, own * sizeof *recv);
        WORKS(eb_allgatherv(comm, in_place ? EB_IN_PLACE : send, recv, counts, EB_I32));
        for (size_t r = 0; r < ranks; r++)
            for (size_t i = 0; i < counts[r]; i++) CHECK(recv[starts[r] + i] == element(r, i));
        for (size_t root = 0; root < ranks; root++) {
            int here = rank == root;
            memset(recv, 0, all * sizeof *recv);
            if (here) memcpy(recv + starts[rank], send, own * sizeof *recv);
            WORKS(eb_gatherv(comm, here && in_place ? EB_IN_PLACE : send, recv, counts, EB_I32, root));
            for (size_t r = 0; r < ranks; r++)
                for (size_t i = 0; i < counts[r]; i++) CHECK(recv[starts[r] + i] == (here ? element(r, i) : 0));
            memset(recv, 0, all * sizeof *recv);
            WORKS(eb_scatterv(comm, whole, here && in_place ? EB_IN_PLACE : recv, counts, EB_I32, root));
            for (size_t i = 0; i < own; i++)
                CHECK(recv[i] == (here && in_place ? 0 : element(root, starts[rank] + i)));
        }
    }
    free(counts);
    free(starts);
    free(whole);
    free(send);
    free(recv);
    pairs(comm, unit);
}

/* One element of every type, 1 from every rank, summed or the like. */
static void types(const eb_comm *comm) {
    size_t bytes;
#define EACH(tag, type, one, op, expected)                                  \
    do {                                                                    \
        type mine = (type)(one), all = (type)0;                             \
        WORKS(eb_type_size(tag, &bytes));                                   \
        CHECK(bytes == sizeof(type));                                       \
        WORKS(eb_allreduce(comm, &mine, &all, 1, tag, op));                 \
        CHECK(all == (type)(expected));                                     \
    } while (0)
    EACH(EB_I8, int8_t, -1, EB_SUM, -(int)ranks);
    EACH(EB_I16, int16_t, -300, EB_SUM, -300 * (int)ranks);
    EACH(EB_I32, int32_t, 1 << 20, EB_MIN, 1 << 20);
    EACH(EB_I64, int64_t, (int64_t)1 << 40, EB_SUM, (int64_t)ranks << 40);
    EACH(EB_U8, uint8_t, 100, EB_SUM, 100 * ranks);
    EACH(EB_U16, uint16_t, rank + 1, EB_MAX, ranks);
    EACH(EB_U32, uint32_t, 1u << rank, EB_BIT_OR, (1u << ranks) - 1);
    EACH(EB_U64, uint64_t, rank + 1, EB_LOGICAL_AND, 1);
    EACH(EB_F32, float, rank + 0.5f, EB_SUM, ranks * ranks / 2.0f);
    EACH(EB_F64, double, rank, EB_AVERAGE, (ranks - 1) / 2.0);
    EACH(EB_F16, uint16_t, 0x3c00, EB_PRODUCT, 0x3c00);
    EACH(EB_BF16, uint16_t, 0x3f80, EB_MAX, 0x3f80);
    EACH(EB_BOOL, uint8_t, rank == 0 ? 7 : 0, EB_LOGICAL_XOR, 1);
#undef EACH
    float cf[2] = {1.0f, (float)rank}, cf_all[2];
    WORKS(eb_allreduce(comm, cf, cf_all, 1, EB_COMPLEX_F32, EB_SUM));
    CHECK(cf_all[0] == (float)ranks && cf_all[1] == (float)(ranks * (ranks - 1) / 2));
    double cd[2] = {0.0, 1.0}, cd_all[2];
    WORKS(eb_allreduce(comm, cd, cd_all, 1, EB_COMPLEX_F64, EB_AVERAGE));
    CHECK(cd_all[0] == 0.0 && cd_all[1] == 1.0);
#define INDEXED(tag, v, ix)                                                 \
    do {                                                                    \
        struct { v value; ix index; } mine, all;                            \
        mine.value = (v)(rank / 2), mine.index = (ix)rank;                  \
        WORKS(eb_allreduce(comm, &mine, &all, 1, tag, EB_MAX_INDEX));       \
        CHECK(all.value == (v)((ranks - 1) / 2));                           \
        CHECK(all.index == (ix)((ranks - 1) / 2 * 2));                      \
        WORKS(eb_allreduce(comm, EB_IN_PLACE, &mine, 1, tag, EB_MIN_INDEX)); \
        CHECK(mine.value == 0 && mine.index == 0);                          \
    } while (0)
    INDEXED(EB_INDEXED_I32, int32_t, int32_t);
    INDEXED(EB_INDEXED_I64, int64_t, int64_t);
    INDEXED(EB_INDEXED_F32, float, int32_t);
    INDEXED(EB_INDEXED_F64, double, int64_t);
#undef INDEXED
    /* Any byte that is not 0 is true, moved too. */
    uint8_t flags[3] = {2, 0, 255};
    WORKS(eb_broadcast(comm, flags, 3, EB_BOOL, 0));
    CHECK(ranks == 1 || rank == 0 || (flags[0] == 1 && flags[1] == 0 && flags[2] == 1));
}

static void choices(const eb_comm *comm) {
    const char *ran;
    double x = 1.0;
    static const char *const names[] = {"flat", "leader", "chain", "slices", "static-leader", "plan:ring"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        WORKS(eb_set_algorithm(comm, names[i]));
        WORKS(eb_allreduce(comm, EB_IN_PLACE, &x, 1, EB_F64, EB_MAX));
        WORKS(eb_last_algorithm(comm, &ran));
        CHECK(ranks == 1 || strcmp(ran, names[i]) == 0);
    }
    WORKS(eb_set_algorithm(comm, "auto"));
    WORKS(eb_set_order(comm, EB_ORDER_RANK));
    /* Only in rank order: 1e16 + 1 + ... loses every 1; in the reverse order they add up. */
    double mine = rank == 0 ? 1e16 : 1.0, all;
    WORKS(eb_allreduce(comm, &mine, &all, 1, EB_F64, EB_SUM));
    CHECK(all == 1e16);
    WORKS(eb_set_order(comm, EB_ORDER_ARRIVAL));
}

int main(void) {
    eb_comm *comm;
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    static const size_t counts[] = {0, 1, 3, 13, 1000, 70001};
    WORKS(eb_barrier(comm));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        reductions(comm, counts[i]);
        moves(comm, counts[i]);
        unequal(comm, counts[i]);
    }
    types(comm);
    choices(comm);
    CHECK(strcmp(eb_last_error_message(), "") == 0 && eb_last_error_rank() == -1);
    WORKS(eb_comm_free(&comm));
    CHECK(comm == NULL);
    WORKS(eb_comm_free(&comm));
    return right();
}
