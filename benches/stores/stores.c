/* The cost of handing data to another processor through shared memory, by size, kind of stores and number of places that are used
 * in turn. A thread on processor 0 writes, one on processor 1 reads when all is written; both have been there many times before.
 *
 *     cc -O2 -march=native -pthread benches/stores/stores.c -o target/stores && target/stores
 *
 * For every size, kind and number of places it prints the median nanoseconds of the write, the read and their sum, and the
 * nanoseconds that a cache line took from one processor to the other before and after. With a number as its argument it
 * waits, for two minutes at most, until a line takes at least so many: a hypervisor moves the processors of a virtual machine. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS = 201, ROOM = 4 << 20, MOST_BYTES = 256 << 10 };

static unsigned char *shared, *sent, *received;
static _Alignas(128) _Atomic long turn;
/* The reader's task: none if `bytes` is 0. */
static _Atomic long at, bytes, read_ns;

static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        perror("no second processor"), exit(1);
}

static void *reader(void *unused)
{
    pin(1);
    for (long next = 1;; next += 2) {
        while (atomic_load(&turn) != next) {
        }
        long begun = now();
        memcpy(received, shared + at, (size_t)bytes);
        read_ns = now() - begun;
        atomic_store(&turn, next + 1);
    }
    return unused;
}

/* Lets the reader run once. */
static void hand_over(void)
{
    long next = atomic_load(&turn) + 2;
    atomic_store(&turn, next - 1);
    while (atomic_load(&turn) != next) {
    }
}

static long distance(void)
{
    bytes = 0;
    long begun = now();
    for (int i = 0; i < 200; i++)
        hand_over();
    return (now() - begun) / 400;
}

static void write_ordinary(unsigned char *to, long n) { memcpy(to, sent, (size_t)n); }

static void write_past_caches(unsigned char *to, long n)
{
    for (long i = 0; i < n; i += 32)
        _mm256_stream_si256((__m256i *)(to + i), _mm256_loadu_si256((const __m256i *)(sent + i)));
    _mm_sfence();
}

static int ascending(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

static void measure(const char *kind, void (*write)(unsigned char *, long), long n, long places)
{
    static long writes[REPEATS], reads[REPEATS];
    long before = distance();
    for (int i = 0; i < REPEATS; i++) {
        memset(sent, i, (size_t)n);
        at = i % places * n;
        long begun = now();
        write(shared + at, n);
        writes[i] = now() - begun;
        bytes = n;
        hand_over();
        reads[i] = read_ns;
    }
    qsort(writes, REPEATS, sizeof *writes, ascending), qsort(reads, REPEATS, sizeof *reads, ascending);
    long w = writes[REPEATS / 2], r = reads[REPEATS / 2];
    printf("%7ld B, %3ld places, %-16s write %6ld  read %6ld  sum %6ld   line %ld, %ld\n", n, places, kind, w, r, w + r, before, distance());
}

static unsigned char *memory(int kind)
{
    void *found = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        perror("no memory"), exit(1);
    return memset(found, 1, ROOM);
}

int main(int argc, char **argv)
{
    shared = memory(MAP_SHARED), sent = memory(MAP_PRIVATE) + 16, received = memory(MAP_PRIVATE) + 16;
    pthread_t thread;
    pin(0);
    if (pthread_create(&thread, NULL, reader, NULL))
        perror("no thread"), exit(1);
    long least = argc > 1 ? atol(argv[1]) : 0;
    for (long end = now() + 120000000000; distance() < least && now() < end;)
        usleep(20000);
    for (long n = 4096; n <= MOST_BYTES; n *= 4)
        for (long places = 1; places * n <= ROOM && places <= 64; places *= 2) {
            measure("ordinary", write_ordinary, n, places);
            measure("past the caches", write_past_caches, n, places);
        }
    return 0;
}
