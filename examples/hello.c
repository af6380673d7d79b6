/*
 * The mean of what all ranks measured, and which of them was slowest:
 *
 *     capi/install /tmp/eb
 *     cc examples/hello.c $(PKG_CONFIG_PATH=/tmp/eb/lib/pkgconfig pkg-config --cflags --libs earlybird) -Wl,-rpath,/tmp/eb/lib
 *     /tmp/eb/bin/earlybird run -n 4 -- ./a.out
 */
#include <earlybird.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int error) {
    if (error == EB_OK) return;
    fprintf(stderr, "%s: %s\n", eb_error_name(error), eb_last_error_message());
    exit(1);
}

int main(void) {
    eb_comm *comm;
    size_t rank, size;
    must(eb_join(&comm, NULL));
    must(eb_rank(comm, &rank));
    must(eb_size(comm, &size));

    double seconds = 1.0 + (double)rank, mean;
    must(eb_allreduce(comm, &seconds, &mean, 1, EB_F64, EB_AVERAGE));

    struct {
        double value;
        int64_t index;
    } slowest = {seconds, (int64_t)rank};
    must(eb_allreduce(comm, EB_IN_PLACE, &slowest, 1, EB_INDEXED_F64, EB_MAX_INDEX));

    printf("rank %d of %d: mean %.2f s, slowest was rank %d\n", (int)rank, (int)size, mean, (int)slowest.index);
    must(eb_comm_free(&comm));
    return 0;
}
