/* An MPI program for the interposer's test: "carried" makes every call that earlybird carries and checks each
 * element, "other" only calls that must reach the MPI library. Exit 0 if all results are right. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, wrong;

/* element i of rank r: small enough that products stay exact in float */
static double value(int r, int i) { return (r + i) % 3 + 1; }
static double expected(MPI_Op op, int i)
{
    double e = value(0, i);
    for (int r = 1; r < size; r++) {
        double v = value(r, i);
        e = op == MPI_SUM ? e + v : op == MPI_PROD ? e * v : op == MPI_MIN ? (v < e ? v : e) : (v > e ? v : e);
    }
    return e;
}
#define CHECK(type, name)                                                                                             \
    do {                                                                                                              \
        static const int counts[] = { 0, 1, 2, 17, 1000, 300000 };                                                    \
        MPI_Op ops[] = { MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX };                                                       \
        for (int c = 0; c < 6; c++)                                                                                   \
            for (int o = 0; o < 4; o++)                                                                               \
                for (int in_place = 0; in_place < 2; in_place++) {                                                    \
                    int n = counts[c];                                                                                \
                    type *s = malloc((n + 1) * sizeof *s), *r = malloc((n + 1) * sizeof *r);                          \
                    for (int i = 0; i < n; i++) s[i] = (type)value(rank, i), r[i] = in_place ? s[i] : (type)99;       \
                    r[n] = (type)77;                                                                                  \
                    MPI_Allreduce(in_place ? MPI_IN_PLACE : s, r, n, name, ops[o], MPI_COMM_WORLD);                   \
                    for (int i = 0; i < n; i++)                                                                       \
                        if (r[i] != (type)expected(ops[o], i) || s[i] != (type)value(rank, i)) wrong++;               \
                    if (r[n] != (type)77) wrong++;                                                                    \
                    free(s), free(r);                                                                                 \
                }                                                                                                     \
    } while (0)

static void carried(void)
{
    CHECK(int, MPI_INT);
    CHECK(unsigned, MPI_UNSIGNED);
    CHECK(long, MPI_LONG);
    CHECK(unsigned long, MPI_UNSIGNED_LONG);
    CHECK(long long, MPI_LONG_LONG);
    CHECK(unsigned long long, MPI_UNSIGNED_LONG_LONG);
    CHECK(int32_t, MPI_INT32_T);
    CHECK(uint32_t, MPI_UINT32_T);
    CHECK(int64_t, MPI_INT64_T);
    CHECK(uint64_t, MPI_UINT64_T);
    CHECK(float, MPI_FLOAT);
    CHECK(double, MPI_DOUBLE);
}

static void other(void)
{
    int bits = 1 << rank, all = 0, one = 7, copy = 0;
    MPI_Allreduce(&bits, &all, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
    wrong += all != (1 << size) - 1;
    MPI_Allreduce(&one, &copy, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    wrong += copy != 7;
    signed char c = 1, sum = 0;
    MPI_Allreduce(&c, &sum, 1, MPI_SIGNED_CHAR, MPI_SUM, MPI_COMM_WORLD);
    wrong += sum != size;
    MPI_Comm dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, dup);
    wrong += one != 7 * size;
    MPI_Comm_free(&dup);
#ifdef OPEN_MPI /* MPICH as Debian builds it does not look at the count */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    wrong += MPI_Allreduce(&bits, &all, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
#endif
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc == 2 && !strcmp(argv[1], "other")) other(); else carried();
    if (wrong) printf("rank %d: %d wrong\n", rank, wrong);
    MPI_Finalize();
    if (!wrong) printf("rank %d of %d right\n", rank, size);
    return wrong != 0;
}
