/* Forgets its communicator: a check for leaks must notice. */
#include "check.h"

int main(void) {
    eb_comm *comm;
    WORKS(eb_join(&comm, NULL));
    joined(comm);
    comm = NULL;
    return comm == NULL ? right() : 1;
}
