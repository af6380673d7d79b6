/* Shared code of the test programs: each prints " right" at its end, or the error and fails. */
#ifndef CHECK_H
#define CHECK_H

#include <earlybird.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t rank, ranks;

/* Ends the program unless `what` is true. */
#define CHECK(what)                                                                                  \
    do {                                                                                             \
        if (!(what)) {                                                                               \
            printf("rank %u: %s:%d: %s\n", (unsigned)rank, __FILE__, __LINE__, #what);               \
            printf("rank %u: last error: %s\n", (unsigned)rank, eb_last_error_message());            \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

#define WORKS(call) CHECK((call) == EB_OK)

/* The call fails with this number, and its message contains these words. */
#define FAILS(number, call, words)                                                                   \
    do {                                                                                             \
        CHECK((call) == (number));                                                                   \
        CHECK(strstr(eb_last_error_message(), words) != NULL);                                       \
    } while (0)

static void joined(const eb_comm *comm) {
    WORKS(eb_rank(comm, &rank));
    WORKS(eb_size(comm, &ranks));
}

static int right(void) {
    printf("rank %u right\n", (unsigned)rank);
    return 0;
}

#endif
