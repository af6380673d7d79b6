/* What the programs share that measure MPI calls under controlled arrivals: the clock of the machine, a processor for each rank, and
 * memory outside of MPI in which the ranks line up before a call. Include it after defining _GNU_SOURCE. */
#include <fcntl.h>
#include <linux/futex.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct line {
    _Atomic uint32_t arrived, generation;
    _Atomic int64_t begin;
    _Alignas(128) _Atomic uint32_t turn;
};

static struct line *line;
static int rank, ranks;

static void fail(const char *why)
{
    fprintf(stderr, "rank %d: %s\n", rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Binds each rank to a processor, in turn; returns whether each has one of its own. Ranks that sleep between their calls would otherwise
 * stay where chance has put them, at times three of four on one processor. */
static int pin(void)
{
    cpu_set_t own;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(&own);
    CPU_SET((size_t)(rank % processors), &own);
    if (sched_setaffinity(0, sizeof own, &own))
        fail("no processor to run on");
    return ranks <= processors;
}

/* Maps a page that all ranks share: the first one's unnamed file, which the others open in its process. */
static void share_line(void)
{
    int file[2] = {(int)getpid(), rank == 0 ? memfd_create("line", 0) : 0};
    if (rank == 0 && (file[1] < 0 || ftruncate(file[1], 4096)))
        fail("no shared memory");
    MPI_Bcast(file, 2, MPI_INT, 0, MPI_COMM_WORLD);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", file[0], file[1]);
    int opened = open(path, O_RDWR);
    line = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    if (opened < 0 || line == MAP_FAILED)
        fail("the ranks share no memory");
    MPI_Barrier(MPI_COMM_WORLD);
}

/* What a rank does while it waits for the others: it sleeps, or spins, or lets those run that share its processor. */
enum waiting { SLEEPS, SPINS, YIELDS };

/* Waits for all ranks; returns the instant at which they begin, `lead_ns` after the last one has come. */
static int64_t line_up(int64_t lead_ns, enum waiting waiting)
{
    uint32_t generation = atomic_load(&line->generation);
    if (atomic_fetch_add(&line->arrived, 1) + 1 == (uint32_t)ranks) {
        atomic_store(&line->arrived, 0);
        atomic_store(&line->begin, now() + lead_ns);
        atomic_fetch_add(&line->generation, 1);
        if (waiting == SLEEPS)
            syscall(SYS_futex, &line->generation, FUTEX_WAKE, ranks, NULL, NULL, 0);
    }
    while (atomic_load(&line->generation) == generation)
        switch (waiting) {
        case SLEEPS: syscall(SYS_futex, &line->generation, FUTEX_WAIT, generation, NULL, NULL, 0); break;
        case SPINS: __builtin_ia32_pause(); break;
        case YIELDS: sched_yield(); break;
        }
    return atomic_load(&line->begin);
}

/* Nanoseconds from one processor to the other: what a line takes from rank 0 to rank 1, called by all; 0 on other ranks than the first.
 * A virtual machine's processors come to lie in other places, at times with caches of their own, seven times as far apart. */
static int64_t distance(void)
{
    enum { TURNS = 400 };
    int64_t begin = line_up(0, SPINS);
    if (ranks == 1 || rank > 1)
        return 0;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        if (turn % 2 == (uint32_t)rank)
            atomic_store(&line->turn, turn + 1);
        else
            while (atomic_load(&line->turn) != turn + 1) {
            }
    }
    return rank == 0 ? (now() - begin) / TURNS : 0;
}
