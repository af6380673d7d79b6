/* A tool in a separate library that counts the calls of one function and prints the number. */
#include <mpi.h>
#include <stdio.h>

static int calls;

int MPI_Allreduce_init(const void *send, void *receive, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    calls++;
    return PMPI_Allreduce_init(send, receive, n, type, op, comm, info, request);
}

__attribute__((destructor)) static void tell(void)
{
    if (calls) fprintf(stderr, "the tool saw %d\n", calls);
}
