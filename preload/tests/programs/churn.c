/* Communicators created and freed by every function that creates one, a hundred alive at a time, their calls in between. */
#include <mpi.h>
#include <stdio.h>

enum { ALIVE = 100, MADE = 600 };

static int rank, size, wrong;

static MPI_Comm made(int i)
{
    MPI_Comm comm = MPI_COMM_NULL, first;
    MPI_Request request;
    MPI_Group group, some;
    MPI_Info info;
    switch (i % 6) {
    case 0: MPI_Comm_dup(MPI_COMM_WORLD, &comm); break;
    case 1: MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL, &comm); break;
    case 2: MPI_Comm_split(MPI_COMM_WORLD, rank % 2 ? 1 : MPI_UNDEFINED, rank, &comm); break;
    case 3:
        MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    case 4:
        MPI_Comm_group(MPI_COMM_WORLD, &group);
        MPI_Group_excl(group, 1, (int[]){ 0 }, &some);
        MPI_Comm_create(MPI_COMM_WORLD, some, &comm);
        MPI_Group_free(&some), MPI_Group_free(&group);
        break;
    default: /* a duplicate of an intercepted communicator does not share its state */
        MPI_Info_create(&info);
        MPI_Comm_dup(MPI_COMM_WORLD, &first);
        MPI_Barrier(first);
        MPI_Comm_dup_with_info(first, info, &comm);
        MPI_Comm_free(&first), MPI_Info_free(&info);
    }
    return comm;
}

static void used(MPI_Comm comm, int i)
{
    if (comm == MPI_COMM_NULL) return;
    int members, me, sum, who = -1;
    MPI_Comm_size(comm, &members), MPI_Comm_rank(comm, &me);
    MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (me == i % members) who = i;
    MPI_Bcast(&who, 1, MPI_INT, i % members, comm);
    wrong += sum != i * members || who != i;
}

int main(int argc, char **argv)
{
    static MPI_Comm comms[ALIVE];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < ALIVE; i++) comms[i] = MPI_COMM_NULL;
    for (int i = 0; i < MADE; i++) {
        MPI_Comm *place = &comms[i * 7 % ALIVE];
        if (*place != MPI_COMM_NULL) used(*place, i), MPI_Comm_free(place);
        *place = made(i);
        if (i % 3) used(*place, i); /* some are freed without a call */
    }
    for (int i = 0; i < ALIVE; i++) used(comms[i], i);
    for (int i = 0; i < ALIVE; i += 2)
        if (comms[i] != MPI_COMM_NULL) MPI_Comm_free(&comms[i]);
    MPI_Finalize(); /* with the other half */
    if (wrong) printf("rank %d: %d wrong\n", rank, wrong);
    else printf("rank %d right\n", rank);
    return wrong != 0;
}
