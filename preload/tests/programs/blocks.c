/* Collectives with a block for each rank or for each pair of ranks: of one length and of unequal ones, in place, with gaps, of types
 * that differ between ranks. Exact results, and nothing else is written. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int wrong, line_of_first;
#define MUST(condition)                                                                                               \
    do {                                                                                                              \
        if (!(condition)) wrong++, line_of_first = line_of_first ? line_of_first : __LINE__;                          \
    } while (0)

enum { MOST = 16 };
static MPI_Datatype second; /* every second int */
static MPI_Comm comm;
static int rank, size;

static int value(int from, int to, int i) { return 1 + from * 100003 + to * 1009 + i % 997; }

/* elements from one rank to another: equal, unequal, all of them to one rank, every rank another number to itself */
static int length(int pattern, int from, int to, int n)
{
    switch (pattern) {
    case 0: return n;
    case 1: return (n * (1 + from + to)) / (size + 1);
    case 2: return from == size - 1 && to == 0 ? 2 * n : (from + to) % 2;
    default: return from == to ? n * from / size : 0;
    }
}

/* displacements of blocks, one after the other or apart and in descending order; elements from the first to the last */
static int place(const int *counts, int *at, int apart)
{
    int sum = apart;
    for (int k = 0; k < size; k++) {
        int r = apart ? size - 1 - k : k;
        at[r] = sum, sum += counts[r] + 2 * apart;
    }
    return sum;
}

static int *fresh(int elements)
{
    int *memory = malloc((2 * elements + 2) * sizeof *memory);
    for (int i = 0; i < 2 * elements + 2; i++) memory[i] = -1;
    return memory;
}

static void fill(int *at, int count, int stride, int from, int to)
{
    for (int i = 0; i < count; i++) at[i * stride] = value(from, to, i);
}

static int is(const int *at, int count, int stride, int from, int to)
{
    for (int i = 0; i < count; i++)
        if (at[i * stride] != value(from, to, i)) return 0;
    return 1;
}

/* whether as many of the elements were written */
static int written(const int *memory, int elements, int count)
{
    for (int i = 0; i < 2 * elements + 2; i++) count -= memory[i] != -1;
    return count == 0;
}

static MPI_Datatype type_of(int stride) { return stride == 2 ? second : MPI_INT; }

static int sum(const int *counts)
{
    int all = 0;
    for (int r = 0; r < size; r++) all += counts[r];
    return all;
}

static void pairs(int n, int pattern, int apart, int ss, int rs)
{
    int sc[MOST], sd[MOST], rc[MOST], rd[MOST];
    for (int r = 0; r < size; r++) sc[r] = length(pattern, rank, r, n), rc[r] = length(pattern, r, rank, n);
    int st = place(sc, sd, apart), rt = place(rc, rd, apart);
    int *s = fresh(st), *r = fresh(rt);
    for (int q = 0; q < size; q++) fill(s + ss * sd[q], sc[q], ss, rank, q);
    MPI_Alltoallv(s, sc, sd, type_of(ss), r, rc, rd, type_of(rs), comm);
    for (int q = 0; q < size; q++) MUST(is(r + rs * rd[q], rc[q], rs, q, rank) && is(s + ss * sd[q], sc[q], ss, rank, q));
    MUST(written(r, rt, sum(rc)));
    /* displacements in bytes, a type for every block */
    MPI_Datatype types[MOST], theirs[MOST];
    int sb[MOST], rb[MOST];
    free(r), r = fresh(rt);
    for (int q = 0; q < size; q++) {
        types[q] = type_of(ss), theirs[q] = type_of(1 + q % 2);
        sb[q] = ss * sd[q] * (int)sizeof(int), rb[q] = 2 * rd[q] * (int)sizeof(int);
    }
    MPI_Alltoallw(s, sc, sb, types, r, rc, rb, theirs, comm);
    for (int q = 0; q < size; q++) MUST(is(r + 2 * rd[q], rc[q], 1 + q % 2, q, rank));
    MUST(written(r, rt, sum(rc)));
    free(s), free(r);
    /* in place: each pair exchanges as much both ways */
    for (int q = 0; q < size; q++) rc[q] = length(pattern, q < rank ? q : rank, q < rank ? rank : q, n);
    rt = place(rc, rd, apart), r = fresh(rt);
    for (int round = 0; round < 2; round++) {
        for (int q = 0; q < size; q++) {
            fill(r + rs * rd[q], rc[q], rs, rank, q);
            types[q] = type_of(rs), rb[q] = rs * rd[q] * (int)sizeof(int);
        }
        if (round) MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, r, rc, rb, types, comm);
        else MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, r, rc, rd, type_of(rs), comm);
        for (int q = 0; q < size; q++) MUST(is(r + rs * rd[q], rc[q], rs, q, rank));
        MUST(written(r, rt, sum(rc)));
    }
    free(r);
    if (pattern) return;
    s = fresh(n * size), r = fresh(n * size);
    for (int q = 0; q < size; q++) fill(s + ss * n * q, n, ss, rank, q);
    MPI_Alltoall(s, n, type_of(ss), r, n, type_of(rs), comm);
    for (int q = 0; q < size; q++) MUST(is(r + rs * n * q, n, rs, q, rank));
    MUST(written(r, n * size, n * size));
    for (int q = 0; q < size; q++) fill(r + rs * n * q, n, rs, rank, q);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, r, n, type_of(rs), comm);
    for (int q = 0; q < size; q++) MUST(is(r + rs * n * q, n, rs, q, rank));
    MUST(written(r, n * size, n * size));
    free(s), free(r);
}

static void all(int n, int pattern, int apart, int ss, int rs)
{
    int c[MOST], at[MOST];
    for (int r = 0; r < size; r++) c[r] = length(pattern, r, r, n) + (pattern == 2 && r == size - 1 ? n : 0);
    int t = place(c, at, apart), own = c[rank];
    for (int in_place = 0; in_place < 2; in_place++) {
        int *s = fresh(own), *r = fresh(t);
        fill(s, own, ss, rank, 0);
        if (in_place) fill(r + rs * at[rank], own, rs, rank, 0);
        MPI_Allgatherv(in_place ? MPI_IN_PLACE : s, own, type_of(ss), r, c, at, type_of(rs), comm);
        for (int q = 0; q < size; q++) MUST(is(r + rs * at[q], c[q], rs, q, 0));
        MUST(written(r, t, sum(c)) && is(s, own, ss, rank, 0));
        free(s), free(r);
        /* block r of the sum goes to rank r */
        int total = sum(c), before = 0;
        for (int q = 0; q < rank; q++) before += c[q];
        s = fresh(total), r = fresh(total);
        for (int i = 0; i < total; i++) s[i] = rank + i, r[i] = in_place ? s[i] : -1;
        MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : s, r, c, MPI_INT, MPI_SUM, comm);
        for (int i = 0; i < own; i++) MUST(r[i] == size * (before + i) + size * (size - 1) / 2);
        for (int i = own; i < total; i++) MUST(in_place || r[i] == -1);
        free(s), free(r);
    }
}

static void rooted(int n, int pattern, int apart, int ss, int rs)
{
    int c[MOST], at[MOST];
    for (int root = 0; root < size; root++) {
        for (int r = 0; r < size; r++) c[r] = length(pattern, r, root, n);
        int t = place(c, at, apart), own = c[rank];
        for (int in_place = 0; in_place < 2; in_place++) {
            int here = rank == root, inside = in_place && here;
            /* arguments that only the root has are of no meaning elsewhere */
            int *counts = here ? c : NULL, *places = here ? at : NULL;
            MPI_Datatype of_root = here ? type_of(rs) : MPI_DATATYPE_NULL;
            int *s = fresh(own), *r = fresh(t);
            fill(s, own, ss, rank, root);
            if (inside) fill(r + rs * at[root], own, rs, root, root);
            MPI_Gatherv(inside ? MPI_IN_PLACE : s, inside ? 0 : own, inside ? MPI_DATATYPE_NULL : type_of(ss), here ? r : NULL,
                        counts, places, of_root, root, comm);
            for (int q = 0; q < size && here; q++) MUST(is(r + rs * at[q], c[q], rs, q, root));
            MUST(written(r, t, here ? sum(c) : 0));
            free(s), free(r);
            s = fresh(t), r = fresh(own);
            for (int q = 0; q < size && here; q++) fill(s + rs * at[q], c[q], rs, root, q);
            MPI_Scatterv(here ? s : NULL, counts, places, of_root, inside ? MPI_IN_PLACE : r, inside ? 0 : own,
                         inside ? MPI_DATATYPE_NULL : type_of(ss), root, comm);
            MUST(inside ? written(r, own, 0) : is(r, own, ss, root, rank) && written(r, own, own));
            for (int q = 0; q < size && here; q++) MUST(is(s + rs * at[q], c[q], rs, root, q));
            free(s), free(r);
            if (pattern) continue;
            s = fresh(n), r = fresh(n * size);
            fill(s, n, ss, rank, root);
            if (inside) fill(r + rs * n * root, n, rs, root, root);
            MPI_Gather(inside ? MPI_IN_PLACE : s, n, type_of(ss), here ? r : NULL, n, of_root, root, comm);
            for (int q = 0; q < size && here; q++) MUST(is(r + rs * n * q, n, rs, q, root));
            MUST(written(r, n * size, here ? n * size : 0));
            free(s), free(r);
            s = fresh(n * size), r = fresh(n);
            for (int q = 0; q < size && here; q++) fill(s + rs * n * q, n, rs, root, q);
            MPI_Scatter(here ? s : NULL, n, of_root, inside ? MPI_IN_PLACE : r, n, type_of(ss), root, comm);
            MUST(inside ? written(r, n, 0) : is(r, n, ss, root, rank) && written(r, n, n));
            free(s), free(r);
        }
    }
}

/* not commutative: the first rank's operand is the result */
static void first_one(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) ((int *)inout)[i] = ((int *)in)[i];
}

static void folded_by_mpi(void)
{
    int c[MOST], before = 0;
    for (int r = 0; r < size; r++) c[r] = 3 * r;
    for (int r = 0; r < rank; r++) before += c[r];
    int *s = malloc((sum(c) + 1) * sizeof *s), *r = malloc((sum(c) + 1) * sizeof *r);
    for (int i = 0; i < sum(c); i++) s[i] = value(rank, 0, i);
    MPI_Op first;
    MPI_Op_create(first_one, 0, &first);
    MPI_Reduce_scatter(s, r, c, MPI_INT, first, comm);
    for (int i = 0; i < c[rank]; i++) MUST(r[i] == value(0, 0, before + i));
    MPI_Op_free(&first);
    free(s), free(r);
    long double ones[3 * MOST], mine[3 * MOST];
    for (int i = 0; i < 3 * MOST; i++) ones[i] = i;
    for (int r = 0; r < size; r++) c[r] = r == 0 ? 2 : 1;
    MPI_Reduce_scatter(ones, mine, c, MPI_LONG_DOUBLE, MPI_SUM, comm);
    MUST(mine[0] == size * (rank ? rank + 1 : 0));
}

static void calls(MPI_Comm on)
{
    static const int lengths[] = { 0, 1, 5, 900, 30000 };
    comm = on;
    MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
    if (size == 1) return; /* MPI's, and both libraries take some displacements of one rank for 0 */
    for (int k = 0; k < 5; k++)
        for (int pattern = 0; pattern < 4; pattern++)
            for (int form = 0; form < 4; form++) {
                if (lengths[k] > 1000 && form % 3) continue;
                int ss = form > 1 && rank % 2 ? 2 : 1, rs = form > 1 && rank % 3 == 0 ? 2 : 1;
                pairs(lengths[k], pattern, form % 2, ss, rs);
                all(lengths[k], pattern, form % 2, ss, rs);
                rooted(lengths[k], pattern, form % 2, ss, rs);
            }
    folded_by_mpi();
}

/* Errors that all ranks find. */
static void errors(void)
{
#ifdef OPEN_MPI /* Debian's MPICH does not check the arguments */
    int a[2 * MOST] = { 0 }, b[2 * MOST], c[MOST], at[MOST];
    for (int r = 0; r < size; r++) c[r] = r ? 1 : -1, at[r] = r;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MUST(MPI_Gather(a, 1, MPI_INT, b, 1, MPI_INT, size, comm) != MPI_SUCCESS);
    MUST(MPI_Scatterv(a, c, at, MPI_INT, b, 1, MPI_INT, -3, comm) != MPI_SUCCESS);
    MUST(MPI_Alltoall(a, -1, MPI_INT, b, -1, MPI_INT, comm) != MPI_SUCCESS);
    MUST(MPI_Allgatherv(a, 1, MPI_INT, b, c, at, MPI_DATATYPE_NULL, comm) != MPI_SUCCESS);
    MUST(MPI_Reduce_scatter(a, b, c, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS);
    MUST(MPI_Alltoallv(a, c, at, MPI_INT, b, c, at, MPI_DATATYPE_NULL, comm) != MPI_SUCCESS);
    MPI_Barrier(comm);
    MPI_Comm_free(&comm);
#endif
}

/* Between two groups, which is MPI's. */
static void intercommunicator(void)
{
    MPI_Comm side, across;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &side);
    MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 5, &across);
    int s[MOST], r[MOST], others = rank == 0 ? size - 1 : 1;
    for (int q = 0; q < MOST; q++) s[q] = rank, r[q] = -1;
    MPI_Alltoall(s, 1, MPI_INT, r, 1, MPI_INT, across);
    for (int q = 0; q < others; q++) MUST(r[q] == (rank == 0 ? q + 1 : 0));
    MPI_Comm_free(&across), MPI_Comm_free(&side);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &second);
    MPI_Type_commit(&second);
    MPI_Comm reversed, halves;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &halves);
    calls(MPI_COMM_WORLD), calls(reversed), calls(halves);
    MPI_Comm_free(&halves), MPI_Comm_free(&reversed);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    errors(), intercommunicator();
    MPI_Type_free(&second);
    MPI_Finalize();
    if (wrong) printf("rank %d: %d wrong, first in line %d\n", rank, wrong, line_of_first);
    else printf("rank %d of %d right\n", rank, size);
    return wrong != 0;
}
