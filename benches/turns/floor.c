/* The least that an allreduce of two ranks through shared memory can do, as a floor for those that do more: MPI_Allreduce of
 * MPI_FLOAT by MPI_SUM on MPI_COMM_WORLD, whatever is asked for. No checks, no sleeping, no signatures, no deaths.
 *
 * Up to FLAT bytes: write all, one flag, wait for the other's, add. Above: write the half that the other adds, add the own
 * half into the result and into shared memory, copy the other half from there, CHUNK bytes at a time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FLAT = 8 << 10, CHUNK = 16 << 10, MOST = 64 << 20, SLOTS = 4 };
typedef struct { _Atomic uint64_t is; char alone[120]; } flag;
typedef struct { flag there; float all[FLAT / 4]; } few;
typedef struct { flag given, added, left; char apart[4096 - 3 * sizeof(flag)]; float gift[MOST / 8], sum[MOST / 8]; } many;
typedef struct { few few[SLOTS][2]; char apart[4096]; many many[2]; } segment;

static segment *shared;
static int me;
static uint64_t call, chunks, large;

static void begin(void)
{
    char name[64];
    int pid = getpid();
    PMPI_Comm_rank(MPI_COMM_WORLD, &me);
    PMPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(name, sizeof name, "/floor-%d", pid);
    int file = shm_open(name, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, sizeof(segment)))
        MPI_Abort(MPI_COMM_WORLD, 1);
    shared = mmap(0, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    PMPI_Barrier(MPI_COMM_WORLD);
    if (!me)
        shm_unlink(name);
}

static inline void until(flag *other, uint64_t at_least)
{
    while (atomic_load_explicit(&other->is, memory_order_acquire) < at_least)
        __builtin_ia32_pause();
}

static inline void tell(flag *own, uint64_t value) { atomic_store_explicit(&own->is, value, memory_order_release); }

static void of_few(const float *send, float *receive, size_t n)
{
    uint64_t slot = ++call % SLOTS;
    few *mine = &shared->few[slot][me], *theirs = &shared->few[slot][!me];
    memcpy(mine->all, send, n * 4);
    tell(&mine->there, call);
    until(&theirs->there, call);
    for (size_t i = 0; i < n; i++)
        receive[i] = send[i] + theirs->all[i];
}

static void of_many(const float *send, float *receive, size_t n)
{
    many *mine = &shared->many[me], *theirs = &shared->many[!me];
    size_t bounds[] = {0, n / 2, n}, step = CHUNK / 4, own = bounds[me], others = bounds[!me];
    size_t own_n = bounds[me + 1] - own, others_n = bounds[2 - me] - others;
    uint64_t at = chunks;
    until(&theirs->left, large++);
    for (size_t i = 0; i < others_n; i += step) {
        memcpy(mine->gift + i, send + others + i, 4 * (others_n - i < step ? others_n - i : step));
        tell(&mine->given, ++at);
    }
    at = chunks;
    for (size_t i = 0; i < own_n; i += step) {
        size_t end = own_n - i < step ? own_n : i + step;
        until(&theirs->given, ++at);
        for (size_t k = i; k < end; k++)
            receive[own + k] = mine->sum[k] = send[own + k] + theirs->gift[k];
        tell(&mine->added, at);
    }
    at = chunks;
    for (size_t i = 0; i < others_n; i += step) {
        until(&theirs->added, ++at);
        memcpy(receive + others + i, theirs->sum + i, 4 * (others_n - i < step ? others_n - i : step));
    }
    chunks += n / 2 / step + 2;
    tell(&mine->left, large);
}

int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype dtype, MPI_Op op, MPI_Comm comm)
{
    if (!shared)
        begin();
    size_t n = (size_t)count;
    if (n * 4 > MOST)
        return PMPI_Allreduce(send, receive, count, dtype, op, comm);
    (n * 4 <= FLAT ? of_few : of_many)(send, receive, n);
    return MPI_SUCCESS;
}
