/* User-defined operators that do not commute, on derived types that differ between ranks: exact results. With `frees`, operators and types
 * are freed, and others made, while calls use them. */
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#define ALLREDUCE_INIT MPIX_Allreduce_init
#else
#define ALLREDUCE_INIT MPI_Allreduce_init
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wrong, line_of_first, calls;
#define MUST(condition)                                                                                               \
    do {                                                                                                              \
        if (!(condition)) wrong++, line_of_first = line_of_first ? line_of_first : __LINE__;                          \
    } while (0)

/* 2 x 2 matrices of wrapping integers */
typedef struct { uint32_t at[4]; } matrix;

static matrix times(matrix a, matrix b)
{
    matrix c;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) c.at[2 * i + j] = a.at[2 * i] * b.at[j] + a.at[2 * i + 1] * b.at[2 + j];
    return c;
}

static void product(void *in, void *inout, int *count, MPI_Datatype *type)
{
    int bytes;
    MPI_Type_size(*type, &bytes);
    MUST(bytes == sizeof(matrix));
    calls++;
    for (int i = 0; i < *count; i++) ((matrix *)inout)[i] = times(((matrix *)in)[i], ((matrix *)inout)[i]);
}

static matrix of(int rank, int i)
{
    uint32_t x = 2654435761u * (rank * 100003 + i + 1);
    return (matrix){ { x, x ^ x >> 7, x * 3 + 1, x >> 3 } };
}

static matrix expected(int size, int i)
{
    matrix all = of(0, i);
    for (int r = 1; r < size; r++) all = times(all, of(r, i));
    return all;
}

#define SAME(a, b) (!memcmp(&(a), &(b), sizeof(matrix)))

static void matrices(MPI_Comm comm, int commutes)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
    MPI_Datatype type;
    MPI_Op op;
    MPI_Type_contiguous(4, MPI_UINT32_T, &type), MPI_Type_commit(&type);
    MPI_Op_create(product, commutes, &op);
    static const int counts[] = { 0, 1, 3, 40, 9001 };
    for (int c = 0; c < 5; c++) {
        int n = counts[c], total = n * size;
        matrix *s = malloc((total + 1) * sizeof *s), *r = malloc((total + 1) * sizeof *r);
        for (int in_place = 0; in_place < 2; in_place++) {
            for (int i = 0; i < total; i++) s[i] = r[i] = of(rank, i);
            MPI_Allreduce(in_place ? MPI_IN_PLACE : s, r, n, type, op, comm);
            for (int i = 0; i < n; i++) { matrix e = expected(size, i), own = of(rank, i); MUST(SAME(r[i], e) && SAME(s[i], own)); }
            for (int i = 0; i < total; i++) r[i] = of(rank, i);
            MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : s, r, n, type, op, comm);
            for (int i = 0; i < n; i++) { matrix e = expected(size, rank * n + i); MUST(SAME(r[i], e)); }
            for (int without = 0; without < 2; without++) {
                int before = without ? rank : rank + 1;
                for (int i = 0; i < n; i++) r[i] = of(rank, i);
                (without ? MPI_Exscan : MPI_Scan)(in_place ? MPI_IN_PLACE : s, r, n, type, op, comm);
                for (int i = 0; i < n; i++) { matrix e = before ? expected(before, i) : of(rank, i); MUST(SAME(r[i], e)); }
            }
            for (int root = 0; root < size; root++) {
#ifndef OPEN_MPI
                if (in_place && root) continue; /* MPICH 4.0.2 itself crashes */
#endif
                for (int i = 0; i < n; i++) r[i] = of(rank, i);
                int inside = in_place && rank == root;
                MPI_Reduce(inside ? MPI_IN_PLACE : s, r, n, type, op, root, comm);
                for (int i = 0; i < n; i++) {
                    matrix own = of(rank, i), e = rank == root ? expected(size, i) : own;
                    MUST(SAME(r[i], e) && SAME(s[i], own));
                }
            }
        }
        free(s), free(r);
    }
    MPI_Op_free(&op), MPI_Type_free(&type);
}

/* x -> a x + b in the layout of even and of odd ranks: other offsets, another size, one signature */
struct even { uint32_t gap, a; uint64_t b; };
struct odd { uint64_t b; uint32_t a, gap[5]; };

static void compose(uint32_t a, uint64_t b, uint32_t *a_too, uint64_t *b_too)
{
    /* first the left one, then the right one */
    *b_too += *a_too * b, *a_too *= a;
}

static void even_after(void *in, void *inout, int *count, MPI_Datatype *type)
{
    struct even *left = in, *right = inout;
    (void)type;
    for (int i = 0; i < *count; i++) compose(left[i].a, left[i].b, &right[i].a, &right[i].b);
}

static void odd_after(void *in, void *inout, int *count, MPI_Datatype *type)
{
    struct odd *left = in, *right = inout;
    (void)type;
    for (int i = 0; i < *count; i++) compose(left[i].a, left[i].b, &right[i].a, &right[i].b);
}

static void layouts(MPI_Comm comm)
{
    enum { N = 300 };
    int rank, size, is_odd;
    MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size), is_odd = rank % 2;
    MPI_Aint in_even[] = { 4, 8 }, in_odd[] = { 8, 0 };
    MPI_Datatype parts[] = { MPI_UINT32_T, MPI_UINT64_T }, raw, type;
    MPI_Type_create_struct(2, (int[]){ 1, 1 }, is_odd ? in_odd : in_even, parts, &raw);
    MPI_Type_create_resized(raw, 0, is_odd ? sizeof(struct odd) : sizeof(struct even), &type);
    MPI_Type_commit(&type);
    MPI_Op op;
    MPI_Op_create(is_odd ? odd_after : even_after, 0, &op);
    struct even e[N];
    struct odd o[N];
    memset(e, 0x5a, sizeof e), memset(o, 0x5a, sizeof o);
    for (int i = 0; i < N; i++) e[i].a = o[i].a = 2 * rank + i + 3, e[i].b = o[i].b = 1000003ull * rank + i;
    void *buffer = is_odd ? (void *)o : (void *)e;
    MPI_Allreduce(MPI_IN_PLACE, buffer, N, type, op, comm);
    for (int i = 0; i < N; i++) {
        uint32_t a = i + 3;
        uint64_t b = i;
        for (int r = 1; r < size; r++) {
            uint32_t right_a = 2 * r + i + 3;
            uint64_t right_b = 1000003ull * r + i;
            compose(a, b, &right_a, &right_b), a = right_a, b = right_b;
        }
        MUST((is_odd ? o[i].a : e[i].a) == a && (is_odd ? o[i].b : e[i].b) == b);
        MUST(is_odd ? o[i].gap[4] == 0x5a5a5a5a : e[i].gap == 0x5a5a5a5a);
    }
    MPI_Op_free(&op), MPI_Type_free(&type), MPI_Type_free(&raw);
}

static void greatest(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        if (((short *)in)[i] > ((short *)inout)[i]) ((short *)inout)[i] = ((short *)in)[i];
}

/* elements of 2 MiB: a counter in every word */
enum { WORDS = 1 << 18 };

static void add_words(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count * WORDS; i++) ((uint64_t *)inout)[i] += ((uint64_t *)in)[i];
}

static void large(MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
    MPI_Datatype type;
    MPI_Op op;
    MPI_Type_contiguous(WORDS, MPI_UINT64_T, &type), MPI_Type_commit(&type);
    MPI_Op_create(add_words, 1, &op);
    uint64_t *s = malloc(WORDS * sizeof *s), *r = malloc(WORDS * sizeof *r);
    for (int i = 0; i < WORDS; i++) s[i] = rank + i;
    MPI_Allreduce(s, r, 1, type, op, comm);
    for (int i = 0; i < WORDS; i++) MUST(r[i] == (uint64_t)size * i + size * (size - 1) / 2);
    free(s), free(r), MPI_Op_free(&op), MPI_Type_free(&type);
}

enum { OTHERS = 16 };

/* Frees an operator and a type that calls under way use, and makes others, which would get their handles if these were free. */
static void free_early(MPI_Op *op, MPI_Datatype *type, MPI_Op *ops, MPI_Datatype *types)
{
    MPI_Op_free(op), MPI_Type_free(type);
    MUST(*op == MPI_OP_NULL && *type == MPI_DATATYPE_NULL);
    for (int i = 0; i < OTHERS; i++) {
        MPI_Op_create(greatest, 1, &ops[i]);
        MPI_Type_contiguous(3, MPI_DOUBLE, &types[i]), MPI_Type_commit(&types[i]);
    }
}

/* Non-blocking calls, and with `frees` a persistent one. The last rank starts them when the others have freed what they use. */
static void started(MPI_Comm comm, int frees)
{
    enum { N = 40, CALLS = 5, STARTS = 3 };
    int rank, size;
    MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
    MPI_Datatype type, types[OTHERS];
    MPI_Op op, ops[OTHERS];
    MPI_Request requests[CALLS];
    MPI_Status statuses[CALLS];
    MPI_Type_contiguous(4, MPI_UINT32_T, &type), MPI_Type_commit(&type);
    MPI_Op_create(product, 0, &op);
    int total = N * size;
    matrix *s = malloc(total * sizeof *s), *r[CALLS];
    for (int i = 0; i < total; i++) s[i] = of(rank, i);
    for (int c = 0; c < CALLS; c++) r[c] = malloc(total * sizeof *s), memcpy(r[c], s, total * sizeof *s);
    if (rank == size - 1) usleep(20000);
    MPI_Iallreduce(MPI_IN_PLACE, r[0], N, type, op, comm, &requests[0]);
    MPI_Ireduce(s, r[1], N, type, op, size - 1, comm, &requests[1]);
    MPI_Ireduce_scatter_block(s, r[2], N, type, op, comm, &requests[2]);
    MPI_Iscan(s, r[3], N, type, op, comm, &requests[3]);
    MPI_Iexscan(s, r[4], N, type, op, comm, &requests[4]);
    if (frees) free_early(&op, &type, ops, types);
    MPI_Waitall(CALLS, requests, statuses);
    for (int i = 0; i < N; i++) {
        matrix all = expected(size, i), own = of(rank, i), to_here = expected(rank + 1, i);
        matrix mine = expected(size, rank * N + i), before = rank ? expected(rank, i) : own;
        MUST(SAME(r[0][i], all) && SAME(r[2][i], mine) && SAME(r[3][i], to_here) && SAME(r[4][i], before));
        MUST(rank == size - 1 ? SAME(r[1][i], all) : SAME(r[1][i], own));
        MUST(SAME(s[i], own));
    }
    if (frees) {
        for (int i = 0; i < OTHERS; i++) MPI_Op_free(&ops[i]), MPI_Type_free(&types[i]);
        MPI_Type_contiguous(4, MPI_UINT32_T, &type), MPI_Type_commit(&type);
        MPI_Op_create(product, 0, &op);
        ALLREDUCE_INIT(s, r[0], N, type, op, comm, MPI_INFO_NULL, &requests[0]);
        free_early(&op, &type, ops, types);
        for (int start = 0; start < STARTS; start++) {
            for (int i = 0; i < N; i++) s[i] = of(rank, i + start);
            MPI_Start(&requests[0]);
            MPI_Wait(&requests[0], &statuses[0]);
            for (int i = 0; i < N; i++) { matrix all = expected(size, i + start); MUST(SAME(r[0][i], all)); }
        }
        MPI_Request_free(&requests[0]);
        for (int i = 0; i < OTHERS; i++) MPI_Op_free(&ops[i]), MPI_Type_free(&types[i]);
    } else {
        MPI_Op_free(&op), MPI_Type_free(&type);
    }
    for (int c = 0; c < CALLS; c++) free(r[c]);
    free(s);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && !strcmp(argv[1], "large")) large(MPI_COMM_WORLD);
    matrices(MPI_COMM_WORLD, 0);
    layouts(MPI_COMM_WORLD);
    started(MPI_COMM_WORLD, argc > 1 && !strcmp(argv[1], "frees"));
    MPI_Comm turned;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
    matrices(turned, 0), layouts(turned);
    MPI_Comm_free(&turned);
    /* even ranks, then odd ones: the ranks of different nodes are interleaved */
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank % 2 * size + rank, &turned);
    matrices(turned, 0), layouts(turned);
    MPI_Comm_free(&turned);
    MUST(calls > 0 || size == 1 || rank > 0);
    /* a commutative operator, on a predefined type, one rank not aligned */
    MPI_Op op;
    MPI_Op_create(greatest, 1, &op);
    char raw[2 * 9 + 1];
    short most[9], *mine = (short *)(raw + (rank == 0));
    for (int i = 0; i < 9; i++) { short value = (rank * 7 + i) % 5 - 2; memcpy((char *)mine + 2 * i, &value, 2); }
    MPI_Allreduce(mine, most, 9, MPI_SHORT, op, MPI_COMM_WORLD);
    for (int i = 0; i < 9; i++) {
        short e = -9;
        for (int r = 0; r < size; r++) e = (r * 7 + i) % 5 - 2 > e ? (r * 7 + i) % 5 - 2 : e;
        MUST(most[i] == e);
    }
    MPI_Op_free(&op);
    MPI_Finalize();
    if (wrong) printf("rank %d: %d wrong, first in line %d\n", rank, wrong, line_of_first);
    else printf("rank %d of %d right\n", rank, size);
    return wrong != 0;
}
