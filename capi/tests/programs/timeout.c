/* One rank is too late: the others get EB_TIMEOUT, which names it; so does the late rank. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <time.h>

int main(void) {
    static const char *const options[] = {"EARLYBIRD_TIMEOUT=0.2", NULL};
    eb_comm *comm;
    WORKS(eb_join(&comm, NULL));
    WORKS(eb_comm_free(&comm));
    WORKS(eb_join_as(&comm, getenv("EARLYBIRD_JOB"), strtoul(getenv("EARLYBIRD_RANK"), NULL, 10),
                     strtoul(getenv("EARLYBIRD_SIZE"), NULL, 10), options));
    joined(comm);
    WORKS(eb_barrier(comm));
    struct timespec second = {1, 0};
    if (rank == 1) nanosleep(&second, NULL);
    FAILS(EB_TIMEOUT, eb_barrier(comm), "had not arrived");
    CHECK(eb_last_error_rank() == 1);
    WORKS(eb_comm_free(&comm));
    return right();
}
