/* Non-blocking collectives among messages and blocking collectives: results, every way to wait, derived types, what is freed while they are
 * under way, and progress of large ones while a rank waits for something else or has left. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 1 << 19, MANY = 40 };

static int rank, size, wrong, are_intercepted;
static MPI_Status statuses[MANY];

#define CHECK(condition) do { if (!(condition)) { wrong++; printf("rank %d line %d\n", rank, __LINE__); } } while (0)

static int sum_of(int n) { return n * (n + 1) / 2; }

/* Every function with n elements, started together, ended in another order, a blocking call meanwhile. */
static void every_function(MPI_Comm comm, int n, int root)
{
    int total = n * size, blocks[64], places[64], at = 0, bytes[64], total_v;
    MPI_Datatype types[64];
    for (int r = 0; r < size; r++) blocks[r] = n + r, places[r] = at, at += n + r;
    total_v = at;
    int *mine = malloc(4 * total_v), *all[17];
    MPI_Request requests[17];
    for (int i = 0; i < total_v; i++) mine[i] = rank + i;
    for (int i = 0; i < 17; i++) all[i] = malloc(4 * (total_v + 1)), memset(all[i], -1, 4 * total_v);
    MPI_Iallreduce(mine, all[0], n, MPI_INT, MPI_SUM, comm, &requests[0]);
    for (int i = 0; i < n; i++) all[1][i] = rank == root ? 3 * i : -1;
    MPI_Ibcast(all[1], n, MPI_INT, root, comm, &requests[1]);
    MPI_Ireduce(mine, all[2], n, MPI_INT, MPI_MAX, root, comm, &requests[2]);
    MPI_Ibarrier(comm, &requests[3]);
    MPI_Iallgather(mine, n, MPI_INT, all[4], n, MPI_INT, comm, &requests[4]);
    MPI_Igather(mine, n, MPI_INT, all[5], n, MPI_INT, root, comm, &requests[5]);
    MPI_Iscatter(mine, n, MPI_INT, all[6], n, MPI_INT, root, comm, &requests[6]);
    MPI_Ialltoall(mine, n, MPI_INT, all[7], n, MPI_INT, comm, &requests[7]);
    MPI_Ireduce_scatter_block(mine, all[8], n, MPI_INT, MPI_SUM, comm, &requests[8]);
    MPI_Ireduce_scatter(mine, all[9], blocks, MPI_INT, MPI_SUM, comm, &requests[9]);
    MPI_Iscan(mine, all[10], n, MPI_INT, MPI_SUM, comm, &requests[10]);
    MPI_Iexscan(mine, all[11], n, MPI_INT, MPI_SUM, comm, &requests[11]);
    MPI_Iallgatherv(mine, n + rank, MPI_INT, all[12], blocks, places, MPI_INT, comm, &requests[12]);
    /* To every rank as much as it has itself, so that each receives blocks of the others' lengths. */
    int sent[64], from[64], to[64];
    for (int r = 0; r < size; r++) sent[r] = n, from[r] = 0, to[r] = n * (size - 1 - r);
    MPI_Ialltoallv(mine, sent, from, MPI_INT, all[13], sent, to, MPI_INT, comm, &requests[13]);
    for (int r = 0; r < size; r++) bytes[r] = 4 * to[r], types[r] = MPI_INT, from[r] = 0;
    MPI_Ialltoallw(mine, sent, from, types, all[14], sent, bytes, types, comm, &requests[14]);
    MPI_Igatherv(mine, n + rank, MPI_INT, all[15], blocks, places, MPI_INT, root, comm, &requests[15]);
    MPI_Iscatterv(mine, blocks, places, MPI_INT, all[16], n + rank, MPI_INT, root, comm, &requests[16]);
    int one = 1, ones = 0;
    MPI_Allreduce(&one, &ones, 1, MPI_INT, MPI_SUM, comm);
    CHECK(ones == size);
    for (int i = 16; i > 9; i--) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    MPI_Waitall(17, requests, statuses);
    for (int i = 0; i < 17; i++) CHECK(requests[i] == MPI_REQUEST_NULL);
    for (int i = 0; i < n; i++) {
        CHECK(all[0][i] == sum_of(size - 1) + size * i);
        CHECK(all[1][i] == 3 * i);
        CHECK(rank != root || all[2][i] == size - 1 + i);
        for (int r = 0; r < size; r++) {
            CHECK(all[4][r * n + i] == r + i);
            CHECK(rank != root || all[5][r * n + i] == r + i);
            CHECK(all[7][r * n + i] == r + rank * n + i);
            CHECK(all[12][places[r] + i] == r + i);
            CHECK(all[13][to[r] + i] == r + i && all[14][to[r] + i] == r + i);
            CHECK(rank != root || all[15][places[r] + i] == r + i);
        }
        CHECK(all[6][i] == root + rank * n + i);
        CHECK(all[16][i] == root + places[rank] + i);
        CHECK(all[8][i] == sum_of(size - 1) + size * (rank * n + i));
        CHECK(all[9][i] == sum_of(size - 1) + size * (places[rank] + i));
        CHECK(all[10][i] == sum_of(rank) + (rank + 1) * i);
        CHECK(rank == 0 || all[11][i] == sum_of(rank - 1) + rank * i);
    }
    for (int i = 0; i < 9; i++) CHECK(all[i][total] == -1);
    for (int i = 0; i < 17; i++) free(all[i]);
    free(mine);
}

static void in_place(MPI_Comm comm)
{
    int sum = rank, blocks[64], all[64], part = -1, own = rank;
    MPI_Request requests[7];
    for (int r = 0; r < size; r++) blocks[r] = rank, all[r] = r == rank ? rank : -1;
    MPI_Iallreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm, &requests[0]);
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INT, comm, &requests[1]);
    MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, blocks, 1, MPI_INT, comm, &requests[2]);
    int scattered[64], reduced[64], prefix = rank, gathered[64];
    for (int r = 0; r < size; r++) scattered[r] = 7 * r, reduced[r] = rank, gathered[r] = r == rank ? rank : -1;
    if (rank == 0) MPI_Iscatter(scattered, 1, MPI_INT, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, 0, comm, &requests[3]);
    else MPI_Iscatter(NULL, 0, MPI_DATATYPE_NULL, &part, 1, MPI_INT, 0, comm, &requests[3]);
    MPI_Ireduce_scatter_block(MPI_IN_PLACE, reduced, 1, MPI_INT, MPI_SUM, comm, &requests[4]);
    MPI_Iexscan(MPI_IN_PLACE, &prefix, 1, MPI_INT, MPI_SUM, comm, &requests[5]);
    if (rank == 0) MPI_Igather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, gathered, 1, MPI_INT, 0, comm, &requests[6]);
    else MPI_Igather(&own, 1, MPI_INT, NULL, 0, MPI_DATATYPE_NULL, 0, comm, &requests[6]);
    for (int done = 0, index; done < 7; done++) {
        MPI_Status status;
        MPI_Waitany(7, requests, &index, &status);
        int count = -1, cancelled = -1;
        MPI_Get_count(&status, MPI_INT, &count), MPI_Test_cancelled(&status, &cancelled);
        /* Open MPI's own requests leave these as they were. */
        CHECK(index != MPI_UNDEFINED && (!are_intercepted || (count == 0 && !cancelled)));
    }
    CHECK(sum == sum_of(size - 1) && (rank == 0 || part == 7 * rank) && scattered[0] == 0);
    CHECK(reduced[0] == sum_of(size - 1) && (rank == 0 ? prefix == 0 : prefix == sum_of(rank - 1)));
    for (int r = 0; r < size; r++) CHECK(all[r] == r && blocks[r] == r && (rank != 0 || gathered[r] == r));
}

/* Blocks of unequal lengths, that of the root among the others. */
static void unequal_in_place(MPI_Comm comm, int root)
{
    int counts[64], places[64], at = 0, own[3] = { rank, rank, rank }, got[3] = { -1, -1, -1 }, gathered[192], scattered[192];
    for (int r = 0; r < size; r++) counts[r] = (r + 1) % 4, places[r] = at, at += counts[r];
    for (int i = 0; i < at; i++) gathered[i] = i >= places[rank] && i < places[rank] + counts[rank] ? rank : -1, scattered[i] = 7 * i;
    MPI_Request requests[2];
    if (rank == root) {
        MPI_Igatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, gathered, counts, places, MPI_INT, root, comm, &requests[0]);
        MPI_Iscatterv(scattered, counts, places, MPI_INT, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, root, comm, &requests[1]);
    } else {
        MPI_Igatherv(own, counts[rank], MPI_INT, NULL, NULL, NULL, MPI_DATATYPE_NULL, root, comm, &requests[0]);
        MPI_Iscatterv(NULL, NULL, NULL, MPI_DATATYPE_NULL, got, counts[rank], MPI_INT, root, comm, &requests[1]);
    }
    MPI_Waitall(2, requests, statuses);
    for (int r = 0; r < size; r++) for (int i = 0; i < counts[r]; i++) {
        CHECK(rank != root || (gathered[places[r] + i] == r && scattered[places[r] + i] == 7 * (places[r] + i)));
        CHECK(rank == root || r != rank || got[i] == 7 * (places[r] + i));
    }
}

/* Elements with gaps. If the calls are intercepted their type and the communicator are freed before the calls end; Open MPI's own crash then. */
static void derived(void)
{
    MPI_Comm copy;
    MPI_Datatype column;
    double from[12], all[64 * 12], buffer[12];
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    for (int i = 0; i < 20; i++) MPI_Barrier(copy);
    MPI_Type_vector(4, 1, 3, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < 12; i++) from[i] = rank * 100 + i, buffer[i] = rank == 0 ? i : -1;
    for (int i = 0; i < size * 12; i++) all[i] = -1;
    MPI_Request requests[2];
    MPI_Iallgather(from, 1, column, all, 4, MPI_DOUBLE, copy, &requests[0]);
    if (rank % 2) MPI_Ibcast(buffer, 1, column, 0, copy, &requests[1]);
    else {
        double dense[4];
        for (int i = 0; i < 4; i++) dense[i] = 3 * i;
        MPI_Ibcast(dense, 4, MPI_DOUBLE, 0, copy, &requests[1]);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        for (int i = 0; i < 4; i++) CHECK(dense[i] == 3 * i);
    }
    if (are_intercepted) MPI_Type_free(&column), MPI_Comm_free(&copy);
    MPI_Waitall(2, requests, statuses);
    if (!are_intercepted) MPI_Type_free(&column), MPI_Comm_free(&copy);
    for (int r = 0; r < size; r++) for (int i = 0; i < 4; i++) CHECK(all[4 * r + i] == r * 100 + 3 * i);
    for (int i = 0; i < 12; i++) CHECK(buffer[i] == (rank % 2 ? (i % 3 == 0 ? i : -1) : rank == 0 ? i : -1));
}

/* More under way than there are slots, all before any is waited for. */
static void many(void)
{
    int mine[MANY], sums[MANY];
    MPI_Request requests[MANY];
    for (int i = 0; i < MANY; i++) {
        mine[i] = rank * i;
        MPI_Iallreduce(&mine[i], &sums[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    }
    for (int flag = 0; !flag;) MPI_Testall(MANY, requests, &flag, statuses);
    for (int i = 0; i < MANY; i++) CHECK(sums[i] == i * sum_of(size - 1));
}

/* Rank 0 starts a call and waits for a message that is sent after that call has ended: only MPI's own wait can make progress in it. */
static void waits_elsewhere(int n)
{
    double *mine = malloc(8L * n), *sum = malloc(8L * n);
    MPI_Request requests[MANY];
    int calls = n > 1000 ? 2 : MANY, received = -1;
    for (int i = 0; i < n; i++) mine[i] = rank + i % 100, sum[i] = -1;
    for (int i = 0; i < calls; i++) MPI_Iallreduce(i ? MPI_IN_PLACE : mine, sum, i ? 0 : n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    if (rank == 0) {
        for (int from = 1; from < size; from++) MPI_Recv(&received, 1, MPI_INT, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Waitall(calls, requests, statuses);
    } else {
        MPI_Waitall(calls, requests, statuses);
        MPI_Ssend(&rank, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
    }
    for (int i = 0; i < n; i++) CHECK(sum[i] == sum_of(size - 1) + (double)size * (i % 100));
    free(mine), free(sum);
}

/* Calls on equal lengths that differ in operator, type or the lengths of blocks, in turns: none is to be started in place of another. */
static void in_turns(void)
{
    for (int round = 0; round < 6; round++) {
        double mine = rank + round, sum = -1, largest = -1;
        long whole = rank - round, total = -1;
        int counts[64], places[64], out[128], in[128], at = 0;
        MPI_Request requests[4];
        for (int r = 0; r < size; r++) counts[r] = 1 + (r + rank + round) % 2, places[r] = at, at += counts[r];
        for (int r = 0; r < size; r++) for (int i = 0; i < counts[r]; i++) out[places[r] + i] = 100 * rank + r + round;
        MPI_Iallreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
        MPI_Iallreduce(&mine, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &requests[1]);
        MPI_Iallreduce(&whole, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &requests[2]);
        MPI_Ialltoallv(out, counts, places, MPI_INT, in, counts, places, MPI_INT, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, statuses);
        CHECK(sum == sum_of(size - 1) + size * round && largest == size - 1 + round && total == sum_of(size - 1) - size * round);
        for (int r = 0; r < size; r++) for (int i = 0; i < counts[r]; i++) CHECK(in[places[r] + i] == 100 * r + rank + round);
    }
}

/* Requests of messages and of collectives in one list. */
static void mixed(void)
{
    int sum = -1, got = -1, mine = rank, next = (rank + 1) % size, index, flag = 0;
    MPI_Request requests[3];
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &requests[0]);
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&mine, 1, MPI_INT, next, 9, MPI_COMM_WORLD, &requests[2]);
    while (!flag) MPI_Request_get_status(requests[1], &flag, MPI_STATUS_IGNORE);
    CHECK(sum == sum_of(size - 1) && requests[1] != MPI_REQUEST_NULL);
    for (int done = 0; done < 3;) {
        MPI_Testany(3, requests, &index, &flag, MPI_STATUS_IGNORE);
        done += flag;
    }
    CHECK(got == (rank + size - 1) % size);
}

/* A call under way on one communicator and a blocking call on another one, in either order. */
static void on_two_communicators(void)
{
    MPI_Comm other;
    int mine = rank, started = -1, blocking = -1;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    for (int round = 0; round < 4; round++) {
        int is_first = (rank + round) % 2;
        if (is_first) MPI_Iallreduce(&mine, &started, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Allreduce(&mine, &blocking, 1, MPI_INT, MPI_SUM, other);
        if (!is_first) MPI_Iallreduce(&mine, &started, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(started == sum_of(size - 1) && blocking == started);
    }
    MPI_Comm_free(&other);
}

/* The last call: rank 0 is in MPI_Finalize before the others have started it, or waited for it. */
static void leaves_early(void)
{
    int *data = malloc(4L * LARGE);
    MPI_Request request;
    for (int i = 0; i < LARGE; i++) data[i] = rank ? -1 : i;
    usleep(30000 * rank);
    MPI_Ibcast(data, LARGE, MPI_INT, 0, MPI_COMM_WORLD, &request);
    if (rank) usleep(30000 * (size - rank));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < LARGE; i++) CHECK(data[i] == i);
    free(data);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && !strcmp(argv[1], "first")) { /* a communicator that no blocking call has set up */
        int mine = rank, sum = -1;
        MPI_Request request;
        MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == sum_of(size - 1));
    }
    are_intercepted = argc > 1 && !strcmp(argv[1], "intercepted");
    MPI_Barrier(MPI_COMM_WORLD);
    int sizes[] = { 1, 5, 26, 27, 3000, 70000 };
    for (int i = 0; i < 6; i++)
        for (int round = 0; round < (sizes[i] > 1000 ? 1 : 10); round++) every_function(MPI_COMM_WORLD, sizes[i], (i + round) % size);
    for (int round = 0; round < 20; round++)
        in_place(MPI_COMM_WORLD), unequal_in_place(MPI_COMM_WORLD, round % size), mixed(), many(), in_turns(), on_two_communicators();
    for (int round = 0; round < 5; round++) derived(), waits_elsewhere(10), waits_elsewhere(LARGE);
    leaves_early();
    MPI_Finalize();
    if (wrong) printf("rank %d: %d wrong\n", rank, wrong);
    else printf("rank %d right\n", rank);
    return wrong != 0;
}
