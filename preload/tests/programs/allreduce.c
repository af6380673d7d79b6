/* An MPI program for the interposer's test: "supported" makes every call that earlybird supports and checks each
 * element, "other" only calls that must reach the MPI library. Exit 0 if all results are right. */
#include <mpi.h>
#include <complex.h>
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

/* Bitwise and logical operators on integers; element i of rank r has value_of bits and some zeros. */
static unsigned value_of(int r, int i) { return (r * 5 + i) % 4 ? (unsigned)(r * 7 + i) % 120 : 0; }
static unsigned folded(int o, unsigned a, unsigned b)
{
    switch (o) {
    case 0: return a & b;
    case 1: return a | b;
    case 2: return a ^ b;
    case 3: return a && b;
    case 4: return a || b;
    default: return !a != !b;
    }
}
#define CHECK_BITS(type, name, first)                                                                                 \
    do {                                                                                                              \
        MPI_Op ops[] = { MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR };                                  \
        for (int o = first; o < 6; o++) {                                                                             \
            type s[100], r[100];                                                                                      \
            for (int i = 0; i < 100; i++) s[i] = (type)value_of(rank, i);                                                  \
            MPI_Allreduce(s, r, 100, name, ops[o], MPI_COMM_WORLD);                                                   \
            for (int i = 0; i < 100; i++) {                                                                           \
                unsigned e = (unsigned)(type)value_of(0, i);                                                               \
                for (int q = 1; q < size; q++) e = folded(o, e, (unsigned)(type)value_of(q, i));                           \
                wrong += r[i] != (type)e;                                                                             \
            }                                                                                                         \
        }                                                                                                             \
    } while (0)

static void supported(void)
{
    CHECK(signed char, MPI_SIGNED_CHAR);
    CHECK(unsigned char, MPI_UNSIGNED_CHAR);
    CHECK(short, MPI_SHORT);
    CHECK(unsigned short, MPI_UNSIGNED_SHORT);
    CHECK(int8_t, MPI_INT8_T);
    CHECK(uint8_t, MPI_UINT8_T);
    CHECK(int16_t, MPI_INT16_T);
    CHECK(uint16_t, MPI_UINT16_T);
    CHECK_BITS(signed char, MPI_SIGNED_CHAR, 0);
    CHECK_BITS(unsigned short, MPI_UNSIGNED_SHORT, 0);
    CHECK_BITS(int, MPI_INT, 0);
    CHECK_BITS(unsigned long, MPI_UNSIGNED_LONG, 0);
    CHECK_BITS(_Bool, MPI_C_BOOL, 3);
    float complex z = 1 + rank * I, sum;
    MPI_Allreduce(&z, &sum, 1, MPI_C_FLOAT_COMPLEX, MPI_SUM, MPI_COMM_WORLD);
    wrong += sum != size + size * (size - 1) / 2 * I;
    double complex turn = I, turned;
    MPI_Allreduce(&turn, &turned, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
    const double complex turns[] = { 1, I, -1, -I };
    wrong += turned != turns[size % 4];
    struct { int value, index; } mine = { rank / 2, 10 + rank }, least, most;
    MPI_Allreduce(&mine, &least, 1, MPI_2INT, MPI_MINLOC, MPI_COMM_WORLD);
    MPI_Allreduce(&mine, &most, 1, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD);
    wrong += least.value != 0 || least.index != 10 || most.value != (size - 1) / 2 || most.index != 10 + (size - 1) / 2 * 2;
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

static void unite(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) ((int *)inout)[i] |= ((int *)in)[i];
}

static void other(void)
{
    int bits = 1 << rank, all = 0, one = 7, copy = 0;
    MPI_Op union_of;
    MPI_Op_create(unite, 1, &union_of);
    MPI_Allreduce(&bits, &all, 1, MPI_INT, union_of, MPI_COMM_WORLD);
    wrong += all != (1 << size) - 1;
    MPI_Op_free(&union_of);
    MPI_Allreduce(&one, &copy, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    wrong += copy != 7;
    long double c = 1, sum = 0;
    MPI_Allreduce(&c, &sum, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    wrong += sum != size;
    long double complex z = 1 + rank * I, product = 0;
    MPI_Allreduce(&z, &product, 1, MPI_C_LONG_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD);
    wrong += product != size + size * (size - 1) / 2 * I;
    struct { long double value; int index; } pair = { rank % 2, rank }, best;
    MPI_Allreduce(&pair, &best, 1, MPI_LONG_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    wrong += best.value != (size > 1) || best.index != (size > 1);
    struct { int value, index; } mine = { rank, 1 }, kept;
    MPI_Datatype copy_of;
    MPI_Type_dup(MPI_2INT, &copy_of);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    /* MPI has no operator for a derived type, and may accept or refuse it */
    MPI_Allreduce(&mine, &kept, 1, copy_of, MPI_MINLOC, MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Type_free(&copy_of);
    MPI_Comm dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, dup);
    wrong += one != 7 * size;
    MPI_Comm_free(&dup);
#ifdef OPEN_MPI /* Debian's MPICH does not check the count */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    wrong += MPI_Allreduce(&bits, &all, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
#endif
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc == 2 && !strcmp(argv[1], "other")) other(); else supported();
    if (wrong) printf("rank %d: %d wrong\n", rank, wrong);
    MPI_Finalize();
    if (!wrong) printf("rank %d of %d right\n", rank, size);
    return wrong != 0;
}
