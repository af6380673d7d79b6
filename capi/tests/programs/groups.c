/* Communicators of some ranks and second ones of all, freed in any order; options; threads; a child of fork. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void *sums(void *at) {
    eb_comm *comm = (eb_comm *)at;
    for (int64_t i = 0; i < 200; i++) {
        int64_t x = i;
        WORKS(eb_allreduce(comm, EB_IN_PLACE, &x, 1, EB_I64, EB_SUM));
        CHECK(x == i * (int64_t)ranks);
    }
    return NULL;
}

static void forks(const eb_comm *comm) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(eb_barrier(comm) == EB_FORKED && strstr(eb_last_error_message(), "fork") ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    static const char *const options[] = {"EARLYBIRD_TIMEOUT=30", "EARLYBIRD_ALLREDUCE=leader:0-", NULL};
    eb_comm *comm, *half, *copy, *none;
    const char *ran;
    size_t at, of, members[64];
    double x = 1.0;
    WORKS(eb_join(&comm, options));
    joined(comm);
    WORKS(eb_allreduce(comm, EB_IN_PLACE, &x, 1, EB_F64, EB_SUM));
    CHECK(x == (double)ranks);
    WORKS(eb_last_algorithm(comm, &ran));
    CHECK(ranks == 1 || strcmp(ran, "leader") == 0);
    const char *text;
    WORKS(eb_explain(comm, "allreduce", 8, &text));
    CHECK(strstr(text, "allreduce of 8 bytes") && strstr(text, ran) && (ranks == 1 || strstr(text, "EARLYBIRD_ALLREDUCE")));

    /* Even and odd ranks, the last one first. */
    WORKS(eb_split(comm, (int64_t)(rank % 2), -(int64_t)rank, &half));
    WORKS(eb_rank(half, &at));
    WORKS(eb_size(half, &of));
    CHECK(of == (ranks + 1 - rank % 2) / 2);
    WORKS(eb_job_ranks(half, members));
    CHECK(members[at] == rank && members[of - 1] == rank % 2);
    uint64_t sum = rank, expected = 0;
    for (size_t r = rank % 2; r < ranks; r += 2) expected += r;
    WORKS(eb_allreduce(half, EB_IN_PLACE, &sum, 1, EB_U64, EB_SUM));
    CHECK(sum == expected);
    WORKS(eb_split(comm, rank == 0 ? EB_NO_COLOR : 4294967295, 0, &none));
    CHECK((none == NULL) == (rank == 0));

    WORKS(eb_duplicate(comm, &copy));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sums, copy) == 0);
    sums(comm);
    CHECK(pthread_join(thread, NULL) == 0);
    WORKS(eb_barrier(comm));
    forks(comm);
    WORKS(eb_barrier(comm));
    WORKS(eb_comm_free(&comm));
    WORKS(eb_barrier(half));
    WORKS(eb_comm_free(&none));
    WORKS(eb_comm_free(&copy));
    WORKS(eb_comm_free(&half));
    return right();
}
