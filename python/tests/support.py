"""Runs the tests of a file on every rank of a job: each function test_* gets the communicator of the job."""

import sys
import traceback

import earlybird


def main(module):
    comm = earlybird.Communicator(timeout=60)
    passed = 0
    for name, function in list(vars(sys.modules[module]).items()):
        if not name.startswith("test_"):
            continue
        try:
            function(comm)
            comm.Barrier()
        except BaseException:
            print(f"rank {comm.rank}: {name} failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            sys.exit(1)
        passed += 1
    comm.close()
    sys.stdout.write(f"{passed} passed\n")


def refused(kind, call, *args, words=""):
    """Checks that a call raises an exception of this kind that says these words."""
    try:
        call(*args)
    except kind as error:
        assert words in str(error), f"{error} does not say {words!r}"
        return error
    raise AssertionError(f"{call} of {args} was not refused")
