/* Persistent collectives among persistent messages and other calls: results of several starts, every way to wait, copies of buffers, what is
 * freed before a start, and starts that wait for no other rank. `library`, if given, says that the library intercepts them. */
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#define INIT(name) MPIX_##name##_init
#else
#define INIT(name) MPI_##name##_init
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 12, MANY = 19, LARGE = 1 << 19 };

static int rank, size, wrong;
static MPI_Status statuses[MANY];

#define CHECK(condition) do { if (!(condition)) { wrong++; printf("rank %d line %d\n", rank, __LINE__); } } while (0)

static int sum_of(int n) { return n * (n + 1) / 2; }

/* Waits for requests by the function of this number. */
static void wait_by(int how, int n, MPI_Request *requests)
{
    int flag = 0, index, done[MANY], some;
    switch (how % 6) {
    case 0: MPI_Waitall(n, requests, statuses); break;
    case 1: while (!flag) MPI_Testall(n, requests, &flag, statuses); break;
    case 2: do MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE); while (index != MPI_UNDEFINED); break;
    case 3: do MPI_Testany(n, requests, &index, &flag, MPI_STATUS_IGNORE); while (!flag || index != MPI_UNDEFINED); break;
    case 4: do MPI_Waitsome(n, requests, &some, done, statuses); while (some != MPI_UNDEFINED); break;
    case 5:
        for (int i = n - 1; i >= 0; i--) {
            for (flag = 0; !flag;) MPI_Request_get_status(requests[i], &flag, MPI_STATUS_IGNORE);
            MPI_Wait(&requests[i], &statuses[i]);
        }
    }
}

/* Every function with n elements, and messages around the ring, started together several times. */
static void every_function(MPI_Comm comm, int n, int root)
{
    int total = n * size, blocks[64], places[64], at = 0, bytes[64], total_v;
    MPI_Datatype types[64];
    for (int r = 0; r < size; r++) blocks[r] = n + r, places[r] = at, at += n + r;
    total_v = at;
    int *mine = calloc(total_v, 4), *all[17], sent[64], from[64], to[64], token = 0, got;
    MPI_Request requests[19];
    for (int i = 0; i < 17; i++) all[i] = malloc(4 * (total_v + 1));
    for (int r = 0; r < size; r++) sent[r] = n, from[r] = 0, to[r] = n * (size - 1 - r), bytes[r] = 4 * to[r], types[r] = MPI_INT;
    INIT(Allreduce)(mine, all[0], n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[0]);
    INIT(Bcast)(all[1], n, MPI_INT, root, comm, MPI_INFO_NULL, &requests[1]);
    INIT(Reduce)(mine, all[2], n, MPI_INT, MPI_MAX, root, comm, MPI_INFO_NULL, &requests[2]);
    INIT(Barrier)(comm, MPI_INFO_NULL, &requests[3]);
    INIT(Allgather)(mine, n, MPI_INT, all[4], n, MPI_INT, comm, MPI_INFO_NULL, &requests[4]);
    INIT(Gather)(mine, n, MPI_INT, all[5], n, MPI_INT, root, comm, MPI_INFO_NULL, &requests[5]);
    INIT(Scatter)(mine, n, MPI_INT, all[6], n, MPI_INT, root, comm, MPI_INFO_NULL, &requests[6]);
    INIT(Alltoall)(mine, n, MPI_INT, all[7], n, MPI_INT, comm, MPI_INFO_NULL, &requests[7]);
    INIT(Reduce_scatter_block)(mine, all[8], n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[8]);
    INIT(Reduce_scatter)(mine, all[9], blocks, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[9]);
    INIT(Scan)(mine, all[10], n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[10]);
    INIT(Exscan)(mine, all[11], n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[11]);
    INIT(Allgatherv)(mine, n + rank, MPI_INT, all[12], blocks, places, MPI_INT, comm, MPI_INFO_NULL, &requests[12]);
    INIT(Alltoallv)(mine, sent, from, MPI_INT, all[13], sent, to, MPI_INT, comm, MPI_INFO_NULL, &requests[13]);
    INIT(Alltoallw)(mine, sent, from, types, all[14], sent, bytes, types, comm, MPI_INFO_NULL, &requests[14]);
    INIT(Gatherv)(mine, n + rank, MPI_INT, all[15], blocks, places, MPI_INT, root, comm, MPI_INFO_NULL, &requests[15]);
    INIT(Scatterv)(mine, blocks, places, MPI_INT, all[16], n + rank, MPI_INT, root, comm, MPI_INFO_NULL, &requests[16]);
    MPI_Recv_init(&got, 1, MPI_INT, (rank + size - 1) % size, 3, comm, &requests[17]);
    MPI_Send_init(&token, 1, MPI_INT, (rank + 1) % size, 3, comm, &requests[18]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < total_v; i++) mine[i] = rank + i + round;
        for (int i = 0; i < 17; i++) memset(all[i], -1, 4 * (total_v + 1));
        for (int i = 0; i < n; i++) all[1][i] = rank == root ? 3 * i + round : -1;
        token = 100 * rank + round, got = -1;
        if (round % 2) MPI_Startall(19, requests);
        else for (int i = 0; i < 19; i++) MPI_Start(&requests[i]);
        int one = 1, ones = 0;
        MPI_Allreduce(&one, &ones, 1, MPI_INT, MPI_SUM, comm);
        CHECK(ones == size);
        wait_by(round + root, 19, requests);
        CHECK(got == 100 * ((rank + size - 1) % size) + round);
        for (int i = 0; i < 19; i++) CHECK(requests[i] != MPI_REQUEST_NULL);
        for (int i = 0; i < n; i++) {
            int at_i = i + round;
            CHECK(all[0][i] == sum_of(size - 1) + size * at_i);
            CHECK(all[1][i] == 3 * i + round);
            CHECK(rank != root || all[2][i] == size - 1 + at_i);
            for (int r = 0; r < size; r++) {
                CHECK(all[4][r * n + i] == r + at_i);
                CHECK(rank != root || all[5][r * n + i] == r + at_i);
                CHECK(all[7][r * n + i] == r + rank * n + at_i);
                CHECK(all[12][places[r] + i] == r + at_i);
                CHECK(all[13][to[r] + i] == r + at_i && all[14][to[r] + i] == r + at_i);
                CHECK(rank != root || all[15][places[r] + i] == r + at_i);
            }
            CHECK(all[6][i] == root + rank * n + at_i);
            CHECK(all[16][i] == root + places[rank] + at_i);
            CHECK(all[8][i] == sum_of(size - 1) + size * (rank * n + at_i));
            CHECK(all[9][i] == sum_of(size - 1) + size * (places[rank] + at_i));
            CHECK(all[10][i] == sum_of(rank) + (rank + 1) * at_i);
            CHECK(rank == 0 || all[11][i] == sum_of(rank - 1) + rank * at_i);
        }
        for (int i = 0; i < 15; i++) CHECK(all[i][total] == -1 || i == 12 || (i == 9 && total == 0));
    }
    for (int i = 0; i < 19; i++) {
        MPI_Request_free(&requests[i]);
        CHECK(requests[i] == MPI_REQUEST_NULL);
    }
    for (int i = 0; i < 17; i++) free(all[i]);
    free(mine);
}

/* In place, and elements with gaps, which are copied at every start. */
static void copied(MPI_Comm comm, int is_library)
{
    MPI_Datatype column;
    MPI_Comm copy;
    double from[12] = { 0 }, all[64 * 4], buffer[12];
    int sum, reduced[64];
    MPI_Request requests[4];
    MPI_Comm_dup(comm, &copy);
    for (int i = 0; i < 20; i++) MPI_Barrier(copy);
    MPI_Type_vector(4, 1, 3, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    INIT(Allreduce)(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, copy, MPI_INFO_NULL, &requests[0]);
    INIT(Reduce_scatter_block)(MPI_IN_PLACE, reduced, 1, MPI_INT, MPI_SUM, copy, MPI_INFO_NULL, &requests[1]);
    INIT(Allgather)(from, 1, column, all, 4, MPI_DOUBLE, copy, MPI_INFO_NULL, &requests[2]);
    INIT(Bcast)(buffer, 1, column, 0, copy, MPI_INFO_NULL, &requests[3]);
    if (is_library) MPI_Type_free(&column);
    for (int round = 0; round < ROUNDS; round++) {
        sum = rank + round;
        for (int r = 0; r < size; r++) reduced[r] = rank + r + round;
        for (int i = 0; i < 12; i++) from[i] = rank * 100 + i + round, buffer[i] = rank == 0 ? i + round : -1;
        for (int i = 0; i < 4 * size; i++) all[i] = -1;
        MPI_Startall(4, requests);
        wait_by(round, 4, requests);
        CHECK(sum == sum_of(size - 1) + size * round && reduced[0] == sum_of(size - 1) + size * (rank + round));
        for (int r = 0; r < size; r++) for (int i = 0; i < 4; i++) CHECK(all[4 * r + i] == r * 100 + 3 * i + round);
        for (int i = 0; i < 12; i++) CHECK(buffer[i] == (rank == 0 || i % 3 == 0 ? i + round : -1));
    }
    for (int i = 0; i < 4; i++) MPI_Request_free(&requests[i]);
    if (!is_library) MPI_Type_free(&column);
    MPI_Comm_free(&copy);
}

/* Rank 0 starts calls and waits for a message that is sent after they have ended. */
static void waits_elsewhere(MPI_Comm comm, int n)
{
    int calls = n > 1000 ? 2 : 6, received;
    double *mine = calloc(n, 8), *sums = malloc(8L * n * calls);
    MPI_Request requests[MANY];
    for (int i = 0; i < calls; i++)
        INIT(Allreduce)(mine, sums + (long)i * n, n, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &requests[i]);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < n; i++) mine[i] = rank + round + i % 100;
        MPI_Startall(calls, requests);
        if (rank == 0) for (int from = 1; from < size; from++) MPI_Recv(&received, 1, MPI_INT, from, 5, comm, MPI_STATUS_IGNORE);
        wait_by(round, calls, requests);
        if (rank > 0) MPI_Ssend(&rank, 1, MPI_INT, 0, 5, comm);
        for (long i = 0; i < (long)n * calls; i++) CHECK(sums[i] == sum_of(size - 1) + (double)size * (round + i % n % 100));
    }
    for (int i = 0; i < calls; i++) MPI_Request_free(&requests[i]);
    free(mine), free(sums);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    int is_library = argc > 1 && !strcmp(argv[1], "library"), sizes[] = { 1, 5, 26, 27, 3000 };
    for (int i = 0; i < 5; i++) every_function(MPI_COMM_WORLD, sizes[i], i % size);
    for (int i = 0; i < 5; i++) copied(MPI_COMM_WORLD, is_library), waits_elsewhere(MPI_COMM_WORLD, 10);
    waits_elsewhere(MPI_COMM_WORLD, LARGE);
    MPI_Finalize();
    if (wrong) printf("rank %d: %d wrong\n", rank, wrong);
    else printf("rank %d right\n", rank);
    return wrong != 0;
}
