/* The last rank dies between calls; every following call of the others names it. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <signal.h>

int main(void) {
    eb_comm *comm;
    double x = 1.0;
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    for (int i = 0; i < 10; i++) WORKS(eb_allreduce(comm, EB_IN_PLACE, &x, 1, EB_F64, EB_MAX));
    if (rank == ranks - 1) raise(SIGKILL);
    int64_t last = (int64_t)ranks - 1;
    FAILS(EB_PEER_DIED, eb_allreduce(comm, EB_IN_PLACE, &x, 1, EB_F64, EB_SUM), "died during allreduce");
    CHECK(eb_last_error_rank() == last);
    FAILS(EB_PEER_DIED, eb_barrier(comm), "restart the job");
    CHECK(eb_last_error_rank() == last);
    WORKS(eb_comm_free(&comm));
    return right();
}
