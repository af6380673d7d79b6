/* Collectives of an MPI library under controlled arrivals. The calls are plain MPI calls, so the same program measures an MPI library
 * alone and with earlybird's interposer in front of it.
 *
 *     mpirun -n P calls OPERATIONS SIZES PATTERNS CALLS DELAY_US LEAST_NS MOST_NS OTHERS COMPUTE_US
 *
 * OPERATIONS, SIZES and PATTERNS are lists with commas; SIZES in bytes of one rank's block. An operation whose name begins with "i" is
 * started, then each rank computes for COMPUTE_US, which do not count, and waits. A cell during which the processors of
 * ranks 0 and 1 are nearer than LEAST_NS or farther apart than MOST_NS is measured again, for ten seconds at most. OTHERS is the number
 * of other calls that are made before each measured one.
 *
 * Ranks line up outside of MPI before every call, each bound to a processor, the next one in turn, and wait until an
 * instant that is the same for all, a late rank DELAY_US longer; back-to-back, they make twenty calls at once on the same buffers, and a
 * twentieth of the time counts. Every result is checked, of calls in a row the last one. For every cell rank 0 prints
 * "operation,pattern,bytes,ranks,calls", the quantiles 0.25, 0.5, 0.75 and 0.99 of the tail in microseconds, the time from the last
 * arrival to the last exit, and the distance in nanoseconds. All ranks run on one machine, whose clock they share.
 *
 * Where ranks that outnumber the processors are to come at one instant, the last of them comes when those before it leave it a
 * processor, and what they do until then would not count. So the tail begins with the first arrival there, and a late rank whose processor
 * is taken has arrived all the same, as soon as it would have woken on a free one. And a rank that is done does
 * not go on before all are: the others would wait for the processor while it computes, longest where a library lets it go first. */
#define _GNU_SOURCE
#include "../line_up.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A rank that sleeps wakes WAKES_NS after its instant at most where a processor is free: the timers of Linux have a slack of 50 us. */
enum { WARM_UP = 20, SPIN_NS = 50000, WAKES_NS = 80000, IN_A_ROW = 20 };

static int oversubscribed, others;
static int64_t compute_ns; /* Of the computation beside a call that does not block. */

/* Ranks that outnumber the processors sleep only: one that spun would hold up another. */
static void wait_until(int64_t instant)
{
    int64_t wake = instant - (oversubscribed ? 0 : SPIN_NS);
    struct timespec t = {wake / 1000000000, wake % 1000000000};
    while (now() < wake && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
    while (now() < instant) {
    }
}

/* The measured operations. `n` floats are what a rank sends to each other, or to all; where the counts are unequal, they are `n` on average. */
#define WORLD MPI_COMM_WORLD
enum { MOST_RANKS = 1024 };
static int counts[MOST_RANKS], places[MOST_RANKS]; /* Of the block of each rank, and of all those before it. */
static int copies[MOST_RANKS], copied[MOST_RANKS]; /* The same of as many blocks of this rank's length as there are ranks. */
typedef void call_fn(const float *send, float *recv, int block);
static void allreduce(const float *s, float *r, int n) { MPI_Allreduce(s, r, n, MPI_FLOAT, MPI_SUM, WORLD); }
static void reduce(const float *s, float *r, int n) { MPI_Reduce(s, r, n, MPI_FLOAT, MPI_SUM, 0, WORLD); }
static void broadcast(const float *s, float *r, int n) { (void)s, MPI_Bcast(r, n, MPI_FLOAT, 0, WORLD); }
static void barrier(const float *s, float *r, int n) { (void)s, (void)r, (void)n, MPI_Barrier(WORLD); }
static void allgather(const float *s, float *r, int n) { MPI_Allgather(s, n, MPI_FLOAT, r, n, MPI_FLOAT, WORLD); }
static void allgatherv(const float *s, float *r, int n) { (void)n, MPI_Allgatherv(s, counts[rank], MPI_FLOAT, r, counts, places, MPI_FLOAT, WORLD); }
static void gather(const float *s, float *r, int n) { MPI_Gather(s, n, MPI_FLOAT, r, n, MPI_FLOAT, 0, WORLD); }
static void gatherv(const float *s, float *r, int n) { (void)n, MPI_Gatherv(s, counts[rank], MPI_FLOAT, r, counts, places, MPI_FLOAT, 0, WORLD); }
static void scatter(const float *s, float *r, int n) { MPI_Scatter(s, n, MPI_FLOAT, r, n, MPI_FLOAT, 0, WORLD); }
static void scatterv(const float *s, float *r, int n) { (void)n, MPI_Scatterv(s, counts, places, MPI_FLOAT, r, counts[rank], MPI_FLOAT, 0, WORLD); }
static void alltoall(const float *s, float *r, int n) { MPI_Alltoall(s, n, MPI_FLOAT, r, n, MPI_FLOAT, WORLD); }
static void alltoallv(const float *s, float *r, int n) { (void)n, MPI_Alltoallv(s, counts, places, MPI_FLOAT, r, copies, copied, MPI_FLOAT, WORLD); }
static void reduce_scatter(const float *s, float *r, int n) { MPI_Reduce_scatter_block(s, r, n, MPI_FLOAT, MPI_SUM, WORLD); }
static void reduce_scatterv(const float *s, float *r, int n) { (void)n, MPI_Reduce_scatter(s, r, counts, MPI_FLOAT, MPI_SUM, WORLD); }
static void scan(const float *s, float *r, int n) { MPI_Scan(s, r, n, MPI_FLOAT, MPI_SUM, WORLD); }
static void exscan(const float *s, float *r, int n) { MPI_Exscan(s, r, n, MPI_FLOAT, MPI_SUM, WORLD); }

static MPI_Request started;
static void finish(void)
{
    for (int64_t end = now() + compute_ns; now() < end;) {
    }
    MPI_Wait(&started, MPI_STATUS_IGNORE);
}
static void iallreduce(const float *s, float *r, int n) { MPI_Iallreduce(s, r, n, MPI_FLOAT, MPI_SUM, WORLD, &started), finish(); }
static void ireduce(const float *s, float *r, int n) { MPI_Ireduce(s, r, n, MPI_FLOAT, MPI_SUM, 0, WORLD, &started), finish(); }
static void ibroadcast(const float *s, float *r, int n) { (void)s, MPI_Ibcast(r, n, MPI_FLOAT, 0, WORLD, &started), finish(); }
static void ibarrier(const float *s, float *r, int n) { (void)s, (void)r, (void)n, MPI_Ibarrier(WORLD, &started), finish(); }
static void iallgather(const float *s, float *r, int n) { MPI_Iallgather(s, n, MPI_FLOAT, r, n, MPI_FLOAT, WORLD, &started), finish(); }
static void igatherv(const float *s, float *r, int n) { (void)n, MPI_Igatherv(s, counts[rank], MPI_FLOAT, r, counts, places, MPI_FLOAT, 0, WORLD, &started), finish(); }
static void iscatterv(const float *s, float *r, int n) { (void)n, MPI_Iscatterv(s, counts, places, MPI_FLOAT, r, counts[rank], MPI_FLOAT, 0, WORLD, &started), finish(); }
static void ialltoall(const float *s, float *r, int n) { MPI_Ialltoall(s, n, MPI_FLOAT, r, n, MPI_FLOAT, WORLD, &started), finish(); }
static void ialltoallv(const float *s, float *r, int n) { (void)n, MPI_Ialltoallv(s, counts, places, MPI_FLOAT, r, copies, copied, MPI_FLOAT, WORLD, &started), finish(); }
static void ireduce_scatter(const float *s, float *r, int n) { MPI_Ireduce_scatter_block(s, r, n, MPI_FLOAT, MPI_SUM, WORLD, &started), finish(); }

/* What comes to a rank: blocks or one, of all ranks, of those up to it, of those below it, or of the root. */
enum source { NONE, SUM_OF_ALL, SUM_TO_ME, SUM_BELOW, FROM_ALL, FROM_ROOT };
static const struct operation {
    const char *name;
    call_fn *call;
    enum source source;
    int root_alone, in_parts, unequal; /* Only the root receives; a rank sends a block of its own to each; counts differ from rank to rank. */
} operations[] = {
    {"allreduce", allreduce, SUM_OF_ALL, 0, 0, 0}, {"reduce", reduce, SUM_OF_ALL, 1, 0, 0},
    {"broadcast", broadcast, FROM_ROOT, 0, 0, 0},  {"barrier", barrier, NONE, 0, 0, 0},
    {"allgather", allgather, FROM_ALL, 0, 0, 0},   {"allgatherv", allgatherv, FROM_ALL, 0, 0, 1},
    {"gather", gather, FROM_ALL, 1, 0, 0},         {"gatherv", gatherv, FROM_ALL, 1, 0, 1},
    {"scatter", scatter, FROM_ROOT, 0, 1, 0},      {"scatterv", scatterv, FROM_ROOT, 0, 1, 1},
    {"alltoall", alltoall, FROM_ALL, 0, 1, 0},     {"alltoallv", alltoallv, FROM_ALL, 0, 1, 1},
    {"reduce-scatter", reduce_scatter, SUM_OF_ALL, 0, 1, 0}, {"reduce-scatterv", reduce_scatterv, SUM_OF_ALL, 0, 1, 1},
    {"scan", scan, SUM_TO_ME, 0, 0, 0},            {"exscan", exscan, SUM_BELOW, 0, 0, 0},
    {"iallreduce", iallreduce, SUM_OF_ALL, 0, 0, 0}, {"ireduce", ireduce, SUM_OF_ALL, 1, 0, 0},
    {"ibroadcast", ibroadcast, FROM_ROOT, 0, 0, 0},  {"ibarrier", ibarrier, NONE, 0, 0, 0},
    {"iallgather", iallgather, FROM_ALL, 0, 0, 0},   {"igatherv", igatherv, FROM_ALL, 1, 0, 1},
    {"iscatterv", iscatterv, FROM_ROOT, 0, 1, 1},    {"ialltoall", ialltoall, FROM_ALL, 0, 1, 0},
    {"ialltoallv", ialltoallv, FROM_ALL, 0, 1, 1},   {"ireduce-scatter", ireduce_scatter, SUM_OF_ALL, 0, 1, 0},
};

/* Sets the counts of an operation whose blocks have `block` elements: a quarter more or less, if they are unequal, so that ranks that share
 * a processor of two have both. */
static void count(const struct operation *op, size_t block)
{
    int more = op->unequal ? (int)(block > 3 ? block / 4 : block / 2) : 0;
    for (int r = 0; r < ranks; r++)
        counts[r] = (int)block + ((r + 1) / 2 % 2 ? -more : more);
    for (int r = 0; r < ranks; r++) {
        places[r] = r ? places[r - 1] + counts[r - 1] : 0;
        copies[r] = counts[rank], copied[r] = r * counts[rank];
    }
}

/* Element `i` of the block of rank `from` for rank `to`, in call `number`: a small whole number, whose sums are exact. */
static float value(int from, int to, size_t i, int number)
{
    return (float)((i * 7 + (size_t)number * 3 + (size_t)from * 5 + (size_t)to * 11) % 61);
}

/* Element `i` of what comes to this rank: of the block of rank `from`, where those of all ranks come. */
static float expected(const struct operation *op, int from, size_t i, int number)
{
    int to = op->in_parts ? rank : 0, first = 0, end = ranks;
    switch (op->source) {
    case FROM_ALL: return value(from, to, i, number);
    case FROM_ROOT: return value(0, to, i, number);
    case SUM_TO_ME: end = rank + 1; break;
    case SUM_BELOW: end = rank; break;
    default: break;
    }
    float sum = 0;
    while (first < end)
        sum += value(first++, to, i, number);
    return sum;
}

static void check(const struct operation *op, const float *recv, int number)
{
    if (op->source == NONE || (op->root_alone && rank) || (op->source == SUM_BELOW && rank == 0))
        return;
    for (int from = 0; from < (op->source == FROM_ALL ? ranks : 1); from++) {
        size_t block = (size_t)counts[op->in_parts || op->source != FROM_ALL ? rank : from];
        /* All elements in the first call only: a rank that shares this one's processor waits meanwhile. */
        size_t step = number && block > 64 ? block / 31 : 1;
        for (size_t i = 0; i < block; i += step)
            if (recv[i] != expected(op, from, i, number))
                fail("wrong result");
        recv += block;
    }
}

/* Writes the contributions anew, as a program does between calls. */
static void fill(const struct operation *op, float *send, float *recv, int number)
{
    int is_broadcast = op->source == FROM_ROOT && !op->in_parts;
    float *data = is_broadcast ? recv : send;
    for (int to = 0; to < (op->in_parts ? ranks : 1); to++) {
        size_t block = (size_t)counts[op->in_parts ? to : rank];
        for (size_t i = 0; i < block; i++)
            *data++ = is_broadcast && rank ? -1 : value(rank, to, i, number);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_quantiles(double *tails, int calls)
{
    qsort(tails, (size_t)calls, sizeof *tails, by_value);
    const double at[] = {0.25, 0.5, 0.75, 0.99};
    for (int i = 0; i < 4; i++)
        printf(",%.2f", tails[(int)(at[i] * (calls - 1) + 0.5)]);
}

/* The calls that are made at once. */
static int in_a_row(const char *pattern) { return strcmp(pattern, "back-to-back") ? 1 : IN_A_ROW; }

/* How much later than the others `who` comes in call `number`. */
static int64_t lateness(const char *pattern, int who, int number, int64_t delay)
{
    uint64_t drawn = ((uint64_t)number + 1) * 0x9e3779b97f4a7c15u;
    if (!strcmp(pattern, "one-late"))
        return who == (int)((drawn >> 33) % (uint64_t)ranks) ? delay : 0;
    if (!strcmp(pattern, "random"))
        return (int64_t)(((drawn ^ ((uint64_t)who + 1) * 0xbf58476d1ce4e5b9u) >> 33) % (uint64_t)(delay + 1));
    if (strcmp(pattern, "balanced") && strcmp(pattern, "back-to-back"))
        fail("no such pattern");
    return 0;
}

/* The larger of two distances, on all ranks. */
static int64_t distance_since(int64_t before)
{
    int64_t after = oversubscribed ? 0 : distance(), most = after > before ? after : before;
    MPI_Bcast(&most, 1, MPI_INT64_T, 0, WORLD);
    return most;
}

/* Makes that many small calls that differ from the measured ones, as a program does that makes each of its calls now and then. */
static void make_others(void)
{
    float sent[4] = {1, 2, 3, 4}, received[4];
    for (int i = 0; i < others; i++)
        switch (i % 4) {
        case 0: MPI_Allreduce(sent, received, 3, MPI_FLOAT, MPI_MAX, WORLD); break;
        case 1: MPI_Bcast(sent, 1, MPI_FLOAT, ranks - 1, WORLD); break;
        case 2: MPI_Reduce(sent, received, 4, MPI_FLOAT, MPI_MIN, ranks - 1, WORLD); break;
        case 3: MPI_Allreduce(sent, received, 1, MPI_FLOAT, MPI_SUM, WORLD); break;
        }
}

/* Makes the calls of a cell. */
static void measure(const struct operation *op, const char *pattern, size_t block, int calls, int64_t delay, float *send, float *recv,
                    int64_t *stamps)
{
    int64_t lead_ns = 2 * SPIN_NS + oversubscribed * INT64_C(30000) * ranks;
    for (int number = -WARM_UP; number < calls; number++) {
        fill(op, send, recv, number + WARM_UP);
        make_others();
        int64_t instant = line_up(lead_ns, SLEEPS) + lateness(pattern, rank, number, delay);
        wait_until(instant);
        int64_t arrival = now(), latest = instant + WAKES_NS;
        for (int i = in_a_row(pattern); i > 0; i--)
            op->call(send, recv, (int)block);
        int64_t exit = now();
        if (number >= 0)
            stamps[2 * number] = arrival < latest ? arrival : latest, stamps[2 * number + 1] = exit;
        if (oversubscribed)
            line_up(0, YIELDS);
        check(op, recv, number + WARM_UP);
    }
}

static void cell(const struct operation *op, const char *pattern, size_t bytes, int calls, int64_t delay, const int64_t within_ns[2])
{
    size_t block = bytes < sizeof(float) ? 1 : bytes / sizeof(float), room = 2 * block * (size_t)ranks * sizeof(float);
    float *send = malloc(room), *recv = malloc(room);
    int64_t *stamps = malloc(2 * sizeof(int64_t) * (size_t)calls), *all = malloc(2 * sizeof(int64_t) * (size_t)calls * (size_t)ranks);
    double *tails = malloc(sizeof(double) * (size_t)calls);
    if (!send || !recv || !stamps || !all || !tails)
        fail("no memory");
    memset(recv, 0, room);
    count(op, block);
    int64_t apart = -1;
    for (int64_t end = now() + INT64_C(10000000000);;) {
        int64_t before = distance_since(0);
        measure(op, pattern, block, calls, delay, send, recv, stamps);
        apart = distance_since(before);
        int again = !oversubscribed && (before < within_ns[0] || apart > within_ns[1]) && now() < end;
        MPI_Bcast(&again, 1, MPI_INT, 0, WORLD);
        if (!again)
            break;
        usleep(50000);
    }
    MPI_Gather(stamps, 2 * calls, MPI_INT64_T, all, 2 * calls, MPI_INT64_T, 0, WORLD);
    int from_first = oversubscribed && (!strcmp(pattern, "balanced") || in_a_row(pattern) > 1);
    for (int number = 0; rank == 0 && number < calls; number++) {
        int64_t first = INT64_MAX, last = 0, exit = 0;
        for (int r = 0; r < ranks; r++) {
            const int64_t *of = all + 2 * (size_t)r * (size_t)calls + 2 * (size_t)number;
            first = of[0] < first ? of[0] : first;
            last = of[0] > last ? of[0] : last;
            exit = of[1] > exit ? of[1] : exit;
        }
        double ns = (double)(exit - (from_first ? first : last)) / in_a_row(pattern);
        tails[number] = (ns - (*op->name == 'i' ? (double)compute_ns : 0)) / 1000;
    }
    if (rank == 0) {
        printf("%s,%s,%zu,%d,%d", op->name, pattern, bytes, ranks, calls);
        print_quantiles(tails, calls);
        printf(",%ld\n", (long)apart);
        fflush(stdout);
    }
    free(send), free(recv), free(stamps), free(all), free(tails);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(WORLD, &rank);
    MPI_Comm_size(WORLD, &ranks);
    if (argc != 10)
        fail("usage: calls OPERATIONS SIZES PATTERNS CALLS DELAY_US LEAST_NS MOST_NS OTHERS COMPUTE_US");
    const int64_t within_ns[2] = {atoll(argv[6]), atoll(argv[7])};
    others = atoi(argv[8]), compute_ns = atoll(argv[9]) * 1000;
    oversubscribed = !pin();
    share_line();
    char *outer, *middle, *inner;
    for (char *name = strtok_r(argv[1], ",", &outer); name; name = strtok_r(NULL, ",", &outer)) {
        const struct operation *op = operations, *end = operations + sizeof operations / sizeof *operations;
        while (op < end && strcmp(op->name, name))
            op++;
        if (op == end)
            fail("no such operation");
        char *sizes = strdup(argv[2]);
        for (char *size = strtok_r(sizes, ",", &middle); size; size = strtok_r(NULL, ",", &middle)) {
            char *patterns = strdup(argv[3]);
            for (char *pattern = strtok_r(patterns, ",", &inner); pattern; pattern = strtok_r(NULL, ",", &inner)) {
                size_t bytes = op->source == NONE ? 0 : strtoull(size, NULL, 10);
                int most = atoi(argv[4]), fitting = (int)((64u << 20) / (bytes * (size_t)ranks + 1)) + 10;
                cell(op, pattern, bytes, most < fitting ? most : fitting, atoll(argv[5]) * 1000, within_ns);
            }
            free(patterns);
            if (op->source == NONE)
                break;
        }
        free(sizes);
    }
    MPI_Finalize();
    return 0;
}
