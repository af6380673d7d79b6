/* Communicators that are closed: at least one rank reports last calls that differ, and none reports equal ones. */
#include "check.h"

int main(void) {
    eb_comm *comm, *copy = NULL;
    double x = 1.0;
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    WORKS(eb_duplicate(comm, &copy));
    WORKS(eb_broadcast(copy, &x, 1, EB_F64, 0));
    WORKS(eb_comm_close(&copy));
    CHECK(copy == NULL);
    WORKS(eb_comm_close(&copy));
    FAILS(EB_USAGE, eb_comm_close(NULL), "comm");
    WORKS(eb_duplicate(comm, &copy));
    /* Of two ranks each takes itself for the root. */
    WORKS(eb_broadcast(copy, &x, 1, EB_F64, ranks == 2 ? rank : 0));
    int error = eb_comm_close(&copy);
    CHECK(copy == NULL && (error == EB_OK || error == EB_MISMATCH));
    int32_t differs = error == EB_MISMATCH;
    WORKS(eb_allreduce(comm, EB_IN_PLACE, &differs, 1, EB_I32, EB_SUM));
    CHECK(ranks == 2 ? differs == 1 || differs == 2 : differs == 0);
    WORKS(eb_comm_close(&comm));
    return right();
}
