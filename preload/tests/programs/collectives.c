/* Every intercepted call, on every communicator and in every form that MPI allows: exact results. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong, line_of_first;
#define MUST(condition)                                                                                               \
    do {                                                                                                              \
        if (!(condition)) wrong++, line_of_first = line_of_first ? line_of_first : __LINE__;                          \
    } while (0)

static const int counts[] = { 0, 1, 3, 40, 1000, 70000 };

/* element i of rank r */
static int number(int r, int i) { return r * 1000 + i % 777 - 300; }
static int sum(int size, int i)
{
    int s = 0;
    for (int r = 0; r < size; r++) s += number(r, i);
    return s;
}

static void reductions(MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
    for (int c = 0; c < 6; c++) {
        int n = counts[c], total = n * size;
        int *s = malloc((total + 1) * sizeof *s), *r = malloc((total + 1) * sizeof *r);
        for (int root = 0; root < size; root++)
            for (int in_place = 0; in_place < 2; in_place++) {
#ifndef OPEN_MPI
                if (in_place && root && n > 40) continue; /* MPICH 4.0.2 itself crashes */
#endif
                int inside = in_place && rank == root;
                for (int i = 0; i < n; i++) s[i] = number(rank, i), r[i] = inside ? s[i] : -1;
                r[n] = -7;
                MPI_Reduce(inside ? MPI_IN_PLACE : s, rank == root || n % 2 ? r : NULL, n, MPI_INT, MPI_SUM, root, comm);
                for (int i = 0; i < n; i++) MUST(s[i] == number(rank, i) && r[i] == (rank == root ? sum(size, i) : -1));
                MUST(r[n] == -7);
            }
        for (int in_place = 0; in_place < 2; in_place++) {
            for (int i = 0; i < total; i++) s[i] = number(rank, i), r[i] = in_place ? s[i] : -1;
            MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : s, r, n, MPI_INT, MPI_SUM, comm);
            for (int i = 0; i < n; i++) MUST(r[i] == sum(size, rank * n + i));
            for (int i = n; i < total && !in_place; i++) MUST(r[i] == -1);
            for (int without = 0; without < 2; without++) {
                int ranks_before = without ? rank : rank + 1;
                for (int i = 0; i < n; i++) r[i] = in_place ? s[i] : -1;
                (without ? MPI_Exscan : MPI_Scan)(in_place ? MPI_IN_PLACE : s, r, n, MPI_INT, MPI_SUM, comm);
                for (int i = 0; i < n; i++) MUST(r[i] == (ranks_before ? sum(ranks_before, i) : in_place ? s[i] : -1));
            }
            for (int i = 0; i < total; i++) MUST(s[i] == number(rank, i));
        }
        free(s), free(r);
    }
}

/* Equal values and their indices, which no other test of the interposer reduces. */
#define PAIRS(type, name)                                                                                             \
    do {                                                                                                              \
        struct { type value; int index; } s[30], r[30];                                                               \
        memset(s, 0x5a, sizeof s), memset(r, 0x77, sizeof r);                                                         \
        for (int i = 0; i < 30; i++) s[i].value = (type)((rank * 7 + i) % 5), s[i].index = 100 - rank;                \
        for (int most = 0; most < 2; most++) {                                                                        \
            MPI_Allreduce(s, r, 30, name, most ? MPI_MAXLOC : MPI_MINLOC, comm);                                      \
            for (int i = 0; i < 30; i++) {                                                                            \
                int best = 0;                                                                                         \
                for (int q = 1; q < size; q++) {                                                                      \
                    int a = (q * 7 + i) % 5, b = (best * 7 + i) % 5;                                                  \
                    if (most ? a >= b : a <= b) best = q; /* the higher rank has the lower index */                   \
                }                                                                                                     \
                MUST(r[i].value == (type)((best * 7 + i) % 5) && r[i].index == 100 - best);                           \
            }                                                                                                         \
        }                                                                                                             \
        MPI_Reduce(s, r, 30, name, MPI_MINLOC, 0, comm);                                                              \
    } while (0)

static void odd_buffers(MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
    PAIRS(double, MPI_DOUBLE_INT);
    PAIRS(long, MPI_LONG_INT);
    PAIRS(short, MPI_SHORT_INT);
    PAIRS(float, MPI_FLOAT_INT);
    PAIRS(int, MPI_2INT);
    /* not aligned, on one rank only */
    char raw[8 * 20 + 16];
    double *at = (double *)(raw + (rank == 0 ? 4 : 8)), one, result[20];
    for (int i = 0; i < 20; i++) one = rank + i, memcpy((char *)at + 8 * i, &one, 8);
    MPI_Allreduce(at, result, 20, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < 20; i++) MUST(result[i] == size * i + size * (size - 1) / 2);
    unsigned char bits = 1 << rank, all = 0;
    MPI_Allreduce(&bits, &all, 1, MPI_BYTE, MPI_BXOR, comm);
    MUST(all == (1 << size) - 1);
    MPI_Aint far = rank + 1, furthest = 0;
    MPI_Allreduce(&far, &furthest, 1, MPI_AINT, MPI_MAX, comm);
    MUST(furthest == size);
    int64_t here = rank == 1, nowhere = 1;
    MPI_Allreduce(MPI_IN_PLACE, &here, 1, MPI_INT64_T, MPI_LOR, comm);
    MPI_Allreduce(MPI_IN_PLACE, &nowhere, 1, MPI_INT64_T, MPI_LAND, comm);
    MUST(here == (size > 1) && nowhere == 1);
}

static void moves(MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
    for (int c = 0; c < 6; c++) {
        int n = counts[c];
        int *a = malloc((2 * n * size + 2) * sizeof *a), *b = malloc((2 * n * size + 2) * sizeof *b);
        /* every second int: a type with gaps, whose signature is n times one int */
        MPI_Datatype second, pair;
        MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &second);
        MPI_Type_contiguous(2, MPI_INT, &pair);
        MPI_Type_commit(&second), MPI_Type_commit(&pair);
        for (int root = 0; root < size; root++) {
            /* each rank with a type of its own, one signature */
            for (int i = 0; i < 2 * n; i++) a[i] = rank == root ? number(root, i) : -1;
            if (rank % 3 == 0) {
                MPI_Bcast(a, n, MPI_INT, root, comm);
                for (int i = 0; i < n; i++) MUST(a[i] == number(root, rank == root || root % 3 == 0 ? i : 2 * i));
            } else {
                MPI_Bcast(a, n, second, root, comm);
                for (int i = 0; i < n; i++) MUST(a[2 * i] == number(root, rank == root || root % 3 ? 2 * i : i));
                for (int i = 0; i < n; i++) MUST(a[2 * i + 1] == (rank == root ? number(root, 2 * i + 1) : -1));
            }
            for (int i = 0; i < 2 * n; i++) a[i] = rank == root ? number(root, i) : -1;
            if (rank % 2) MPI_Bcast(a, n, pair, root, comm);
            else MPI_Bcast(a, 2 * n, MPI_INT, root, comm);
            for (int i = 0; i < 2 * n; i++) MUST(a[i] == number(root, i));
        }
        for (int form = 0; form < 4; form++) {
            int gaps = form == 2 ? 2 : 1, own_gaps = form == 3 && rank == 0 ? 2 : 1;
            for (int i = 0; i < 2 * n * size; i++) a[i] = -1;
            for (int i = 0; i < n; i++) b[own_gaps * i] = number(rank, i), a[gaps * (rank * n + i)] = form == 1 ? b[i] : -1;
            MPI_Allgather(form == 1 ? MPI_IN_PLACE : b, n, own_gaps == 2 ? second : MPI_INT, a, n, gaps == 2 ? second : MPI_INT, comm);
            for (int r = 0; r < size; r++)
                for (int i = 0; i < n; i++) MUST(a[gaps * (r * n + i)] == number(r, i));
            for (int i = 0; i < n * size && gaps == 2; i++) MUST(a[2 * i + 1] == -1);
        }
        /* in place with gaps */
        for (int i = 0; i < n * size; i++) a[2 * i] = a[2 * i + 1] = i / (n ? n : 1) == rank ? number(rank, i % n) : -1;
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, n, second, comm);
        for (int i = 0; i < n * size; i++) MUST(a[2 * i] == number(i / n, i % n));
        MPI_Type_free(&second), MPI_Type_free(&pair);
        free(a), free(b);
    }
    /* addresses in the type: the buffer is MPI_BOTTOM */
    int left = rank ? 0 : 11;
    double right = rank ? 0 : 2.5;
    MPI_Aint at[2];
    MPI_Get_address(&left, &at[0]), MPI_Get_address(&right, &at[1]);
    MPI_Datatype both, kinds[] = { MPI_INT, MPI_DOUBLE };
    MPI_Type_create_struct(2, (int[]){ 1, 1 }, at, kinds, &both);
    MPI_Type_commit(&both);
    MPI_Bcast(MPI_BOTTOM, 1, both, 0, comm);
    MUST(left == 11 && right == 2.5);
    MPI_Type_free(&both);
    struct { double value; int index; } pair = { rank ? 0 : 1.5, rank ? 0 : 4 };
    MPI_Bcast(&pair, 1, MPI_DOUBLE_INT, 0, comm);
    MUST(pair.value == 1.5 && pair.index == 4);
    char text[12] = "";
    if (rank == size - 1) strcpy(text, "early bird");
    MPI_Bcast(text, 12, MPI_CHAR, size - 1, comm);
    MUST(!strcmp(text, "early bird"));
    MPI_Barrier(comm);
}

/* not commutative: the last rank's operand is the result */
static void last_one(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)count, (void)type; /* inout is the right operand, and stays */
}

static void communicators(void)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm reversed, halves, dup;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    reductions(reversed), moves(reversed);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &halves);
    reductions(halves), moves(halves), odd_buffers(halves);
    MPI_Comm_free(&halves), MPI_Comm_free(&reversed);
    /* handles and addresses are reused: the state of the old ones must be gone */
    for (int i = 0; i < 1000; i++) {
        MPI_Comm ours;
        MPI_Comm_split(MPI_COMM_WORLD, i % 3 ? 0 : rank / 2, i % 2 ? rank : -rank, &ours);
        int members, ones = 1, mine, who = -1;
        MPI_Comm_size(ours, &members), MPI_Comm_rank(ours, &mine);
        MPI_Allreduce(MPI_IN_PLACE, &ones, 1, MPI_INT, MPI_SUM, ours);
        who = mine;
        MPI_Bcast(&who, 1, MPI_INT, members - 1, ours);
        MUST(ones == members && who == members - 1);
        if (i % 4) MPI_Comm_free(&ours); else MPI_Comm_disconnect(&ours);
    }
    /* a communicator that MPI_Finalize frees */
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Barrier(dup);
    int one = 1;
    MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    MUST(one == 1);
    MPI_Op last;
    MPI_Op_create(last_one, 0, &last);
    int value = rank, result = -1;
    MPI_Allreduce(&value, &result, 1, MPI_INT, last, MPI_COMM_WORLD);
    MUST(result == size - 1);
    MPI_Op_free(&last);
    /* between two groups */
    MPI_Comm side, across;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &side);
    MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 5, &across);
    int theirs = 0;
    one = 1;
    MPI_Allreduce(&one, &theirs, 1, MPI_INT, MPI_SUM, across);
    MUST(theirs == (rank == 0 ? size - 1 : 1));
    MPI_Barrier(across);
    MPI_Comm_free(&across), MPI_Comm_free(&side);
#ifdef OPEN_MPI /* Debian's MPICH does not check the arguments */
    MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
    MUST(MPI_Bcast(&one, 1, MPI_INT, size, dup) != MPI_SUCCESS);
    MUST(MPI_Bcast(&one, -1, MPI_INT, 0, dup) != MPI_SUCCESS);
    MUST(MPI_Reduce(&one, &theirs, 1, MPI_INT, MPI_SUM, -5, dup) != MPI_SUCCESS);
    MUST(MPI_Allreduce(&one, &theirs, 1, MPI_INT, MPI_OP_NULL, dup) != MPI_SUCCESS);
    MUST(MPI_Allreduce(&one, &theirs, 1, MPI_DATATYPE_NULL, MPI_SUM, dup) != MPI_SUCCESS);
    MUST(MPI_Allreduce(&one, &theirs, 1, MPI_FLOAT, MPI_BAND, dup) != MPI_SUCCESS);
    MPI_Barrier(dup);
#endif
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    reductions(MPI_COMM_WORLD), moves(MPI_COMM_WORLD), odd_buffers(MPI_COMM_WORLD);
    communicators();
    MPI_Finalize();
    if (wrong) printf("rank %d: %d wrong, first in line %d\n", rank, wrong, line_of_first);
    else printf("rank %d of %d right\n", rank, size);
    return wrong != 0;
}
