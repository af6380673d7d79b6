/* Back-to-back 8-byte all-reduces in place, for benches/instructions/run: c CALLS. */
#include <earlybird.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline, noclone)) int measured_call(eb_comm *comm, double *x) {
    return eb_allreduce(comm, EB_IN_PLACE, x, 1, EB_F64, EB_SUM);
}

int main(int argc, char **argv) {
    eb_comm *comm;
    double x;
    int calls = argc == 2 ? atoi(argv[1]) : 0, failed = eb_join(&comm, NULL);
    for (int i = 0; i < calls && !failed; i++) {
        x = 1;
        failed = measured_call(comm, &x);
        if (!failed && x != 2) fprintf(stderr, "%g instead of 2\n", x), failed = 1;
    }
    eb_comm_free(&comm);
    return failed != 0;
}
