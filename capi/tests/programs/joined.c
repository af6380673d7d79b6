/* Joins by name, as one rank of a job whose other rank is written in Rust: joined JOB RANK SIZE. */
#include "check.h"

static void second(const void *left, void *right, size_t count, void *context) {
    (void)left, (void)right, (void)count, (void)context;
}

int main(int argc, char **argv) {
    eb_comm *comm;
    static const char *const options[] = {"EARLYBIRD_TIMEOUT=60", NULL};
    CHECK(argc == 4);
    WORKS(eb_join_as(&comm, argv[1], strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10), options));
    joined(comm);
    CHECK(rank == 1 && ranks == 2);
    int32_t sums[3] = {1, 10, 100};
    WORKS(eb_allreduce(comm, EB_IN_PLACE, sums, 3, EB_I32, EB_SUM));
    CHECK(sums[0] == 3 && sums[1] == 30 && sums[2] == 300);
    unsigned char flags[2] = {0, 1};
    WORKS(eb_broadcast(comm, flags, 2, EB_BOOL, 0));
    CHECK(flags[0] == 1 && flags[1] == 0);
    uint32_t pair[2] = {5, 6};
    eb_operator op = {second, NULL, 0, 3};
    WORKS(eb_allreduce_with(comm, EB_IN_PLACE, pair, 1, sizeof pair, &op));
    CHECK(pair[0] == 5 && pair[1] == 6);
    eb_request *request;
    WORKS(eb_ibarrier(comm, &request));
    WORKS(eb_wait(&request));
    FAILS(EB_MISMATCH, eb_allreduce(comm, EB_IN_PLACE, sums, 3, EB_I32, EB_MAX), "different calls");
    WORKS(eb_comm_free(&comm));
    return right();
}
