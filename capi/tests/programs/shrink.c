/* The first rank dies; the others continue in a communicator of the survivors. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <signal.h>

int main(void) {
    eb_comm *comm, *left = NULL;
    double x = 1.0;
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    WORKS(eb_allreduce(comm, EB_IN_PLACE, &x, 1, EB_F64, EB_SUM));
    CHECK(x == (double)ranks);
    if (rank == 0) raise(SIGKILL);
    FAILS(EB_PEER_DIED, eb_allreduce(comm, EB_IN_PLACE, &x, 1, EB_F64, EB_SUM), "died during allreduce");
    WORKS(eb_shrink(comm, &left));
    size_t mine = 0, size = 0, job[64];
    WORKS(eb_rank(left, &mine));
    WORKS(eb_size(left, &size));
    WORKS(eb_job_ranks(left, job));
    CHECK(mine + 1 == (size_t)rank && size + 1 == (size_t)ranks && job[0] == 1);
    x = (double)rank;
    WORKS(eb_allreduce(left, EB_IN_PLACE, &x, 1, EB_F64, EB_SUM));
    CHECK(x == ranks * (ranks - 1) / 2.0);
    FAILS(EB_PEER_DIED, eb_barrier(comm), "died during");
    WORKS(eb_comm_free(&comm));
    WORKS(eb_barrier(left));
    WORKS(eb_comm_free(&left));
    FAILS(EB_USAGE, eb_shrink(NULL, &left), "comm");
    return right();
}
