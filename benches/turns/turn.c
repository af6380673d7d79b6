/* turn LIBRARY[=NAME]... BYTES CALLS balanced|one-late: MPI_Allreduce of several libraries in one program, in turn from call to call.
 *
 * What a machine does from minute to minute moves medians of whole runs by a factor of two. Here every library has the same
 * minutes, so that differences of 10 ns repeat. Ranks are lined up outside MPI; the buffer is rewritten before every call and
 * every result is checked. Prints per library the median of last exit - last arrival, in ns, and of the exits of the rank that
 * arrived last and of the last other one, counted from that arrival. "mpi" is the library that the program is linked with.
 */
#define _GNU_SOURCE
#include "../line_up.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LIBRARIES = 16, WARM = 20, LEAD_NS = 20000 };
typedef int (*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);

static float value(int by, size_t i, int call) { return (float)((i * 7 + (size_t)(call + 1000) * 3 + (size_t)by * 5) & 15); }

/* Each library follows each other one as often. `call` counts from the first that is measured. */
static int whose_turn(int call, int libraries)
{
    int turn = call + WARM * libraries;
    return (turn + turn / libraries) % libraries;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t median(int64_t *of, int n)
{
    qsort(of, (size_t)n, sizeof *of, compare);
    return of[n / 2];
}

/* From the stamps of all ranks, those of one rank after the other, arrival and exit of each call in turn. */
static void report(const char *name, int library, int libraries, int calls, const int64_t *stamps)
{
    int64_t *tail = calloc((size_t)calls, 8), *last = calloc((size_t)calls, 8), *other = calloc((size_t)calls, 8);
    int n = 0;
    for (int call = 0; call < calls; call++) {
        if (whose_turn(call, libraries) != library)
            continue;
        int64_t arrival = 0, exit = 0;
        for (int r = 0; r < ranks; r++) {
            const int64_t *of = stamps + ((size_t)r * (size_t)calls + (size_t)call) * 2;
            arrival = of[0] > arrival ? of[0] : arrival;
            exit = of[1] > exit ? of[1] : exit;
        }
        for (int r = 0; r < ranks; r++) {
            const int64_t *of = stamps + ((size_t)r * (size_t)calls + (size_t)call) * 2;
            int64_t *own = of[0] == arrival ? &last[n] : &other[n];
            *own = of[1] - arrival > *own ? of[1] - arrival : *own;
        }
        tail[n++] = exit - arrival;
    }
    printf("  %s %ld (%ld, %ld)", name, median(tail, n), median(last, n), median(other, n));
    free(tail), free(last), free(other);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int libraries = argc - 4;
    if (libraries < 1 || libraries > MOST_LIBRARIES)
        fail("give LIBRARY... BYTES CALLS PATTERN");
    size_t bytes = strtoul(argv[argc - 3], 0, 10), count = bytes / 4;
    int calls = atoi(argv[argc - 2]) / libraries * libraries, one_late = !strcmp(argv[argc - 1], "one-late");
    pin();
    allreduce reduce[MOST_LIBRARIES];
    const char *names[MOST_LIBRARIES];
    for (int l = 0; l < libraries; l++) {
        char *equals = strchr(argv[1 + l], '=');
        names[l] = equals ? equals + 1 : argv[1 + l];
        if (equals)
            *equals = 0;
        void *library = strcmp(argv[1 + l], "mpi") ? dlopen(argv[1 + l], RTLD_NOW | RTLD_LOCAL) : 0;
        reduce[l] = library ? (allreduce)dlsym(library, "MPI_Allreduce") : PMPI_Allreduce;
        if (!library && strcmp(argv[1 + l], "mpi"))
            fail(dlerror());
    }
    share_line();
    size_t room = (bytes + 4096) / 4096 * 4096;
    float *send = aligned_alloc(4096, room), *receive = aligned_alloc(4096, room);
    int64_t *own = calloc((size_t)calls * 2, 8), *all = calloc((size_t)calls * 2 * (size_t)ranks, 8);
    int64_t late_ns = one_late ? 10000 + (int64_t)bytes / 4 : 0;
    uint64_t random = 88172645463325252ULL;
    for (int call = -WARM * libraries; call < calls; call++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        for (size_t i = 0; i < count; i++)
            send[i] = value(rank, i, call);
        int64_t begin = line_up(LEAD_NS, SPINS) + ((uint64_t)rank == random % (uint64_t)ranks ? late_ns : 0);
        while (now() < begin)
            ;
        int library = whose_turn(call, libraries);
        int64_t arrival = now();
        reduce[library](send, receive, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        int64_t exit = now();
        for (size_t i = 0; i < count; i += count > 1024 ? 61 : 1) {
            float want = 0;
            for (int r = 0; r < ranks; r++)
                want += value(r, i, call);
            if (receive[i] != want)
                fail(names[library]);
        }
        if (call >= 0)
            own[2 * call] = arrival, own[2 * call + 1] = exit;
    }
    MPI_Gather(own, calls * 2, MPI_INT64_T, all, calls * 2, MPI_INT64_T, 0, MPI_COMM_WORLD);
    if (!rank) {
        printf("%zu B %s:", bytes, one_late ? "one-late" : "balanced");
        for (int l = 0; l < libraries; l++)
            report(names[l], l, libraries, calls, all);
        puts("");
    }
    MPI_Finalize();
}
