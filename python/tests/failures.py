"""The errors of ranks when one dies, and when a signal comes while they wait. The first argument names the scene."""

import os
import signal
import sys
import tempfile
import threading
import time

import earlybird
import numpy as np


def soon(seconds, number):
    """Sends this process a signal after a while."""
    threading.Timer(seconds, os.kill, [os.getpid(), number]).start()


def killed():
    """Rank 1 is killed; the others learn who, and go on without it."""
    comm = earlybird.Communicator()
    pids = comm.allgather(os.getpid())
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    since = time.monotonic()
    try:
        comm.Allreduce(earlybird.IN_PLACE, np.ones(1000))
        raise AssertionError("the dead rank was not missed")
    except earlybird.PeerDied as error:
        assert (error.rank, error.pid) == (1, pids[1]) and error.during.startswith("allreduce"), vars(error)
        assert f"pid {pids[1]}" in str(error) and isinstance(error, earlybird.Error)
    assert time.monotonic() - since < 5
    comm = comm.shrink()
    assert comm.allgather(1) == [1] * (len(pids) - 1)
    sys.stdout.write("right\n")


def late():
    """Rank 1 comes when the deadline of the other has passed, which the other shows by a file."""
    comm = earlybird.Communicator(timeout=3)
    with tempfile.TemporaryDirectory() as mine:
        directory = comm.bcast(mine)
        marker = os.path.join(directory, "passed")
        while comm.rank == 1 and not os.path.exists(marker):
            time.sleep(0.01)
        try:
            comm.Barrier()
            raise AssertionError("the deadline passed unnoticed")
        except earlybird.Timeout as error:
            assert (error.rank, error.missing, error.after) == (1, [1], 3.0), vars(error)
            assert isinstance(error, TimeoutError)
        if comm.rank == 0:
            open(marker, "w").close()
            # The file goes with its directory, after the other has seen it.
            while os.path.exists(marker):
                time.sleep(0.01)
        else:
            os.remove(marker)
    sys.stdout.write("right\n")


def interrupted(form):
    """Rank 0 is interrupted while it waits; the others get an error that names it."""
    comm = earlybird.Communicator()
    comm.Barrier()
    values = np.ones(1000)
    if comm.rank == 0:
        soon(0.3, signal.SIGINT)
        since = time.monotonic()
        try:
            if form == "request":
                comm.Iallreduce(earlybird.IN_PLACE, values).wait()
            else:
                comm.Allreduce(earlybird.IN_PLACE, values)
            raise AssertionError("the call was not interrupted")
        except KeyboardInterrupt:
            assert time.monotonic() - since < 5
    else:
        time.sleep(1.5)
    for _ in range(2):
        try:
            comm.Allreduce(earlybird.IN_PLACE, values)
            raise AssertionError("the group goes on")
        except earlybird.Poisoned as error:
            assert "rank 0 was interrupted in allreduce" in str(error), error
    sys.stdout.write("right\n")


def handled():
    """A handler that raises nothing runs while its rank waits, and the call goes on."""
    comm = earlybird.Communicator()
    comm.Barrier()
    seen = []
    if comm.rank == 0:
        signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(time.monotonic()))
        soon(0.2, signal.SIGUSR1)
    else:
        time.sleep(1.0)
    comm.Barrier()
    assert comm.rank != 0 or (seen and time.monotonic() - seen[0] > 0.2), "the handler ran after the call"
    sys.stdout.write("right\n")


def joining():
    """A rank that waits for others to join is interrupted."""
    soon(0.3, signal.SIGINT)
    try:
        earlybird.Communicator(f"nobody-comes-{os.getpid()}", 0, 2)
        raise AssertionError("joined alone")
    except KeyboardInterrupt:
        sys.stdout.write("right\n")


def operator_raises(form):
    """An exception of an operator is the cause of its rank's error; the others learn what it says."""
    options = {"EARLYBIRD_RANKS_PER_NODE": "1"} if form == "nodes" else {}
    comm = earlybird.Communicator(timeout=60, options=options)
    raised = []

    def refuse(inbuf, inoutbuf, datatype):
        raised.append(ZeroDivisionError(f"on rank {comm.rank}"))
        raise raised[-1]

    op, values = earlybird.Op.Create(refuse), np.frombuffer(comm.Alloc_mem(20_000), "f8")
    try:
        if form in ("Allreduce", "nodes"):
            comm.Allreduce(earlybird.IN_PLACE, values, op)
        else:
            request = getattr(comm, form)(earlybird.IN_PLACE, values, op)
            if form == "Allreduce_init":
                request.Start()
            request.wait()
        raise AssertionError("the exception was lost")
    except earlybird.OperatorPanicked as error:
        assert "ZeroDivisionError: on rank" in str(error), error
        assert error.__cause__ is (raised[0] if raised else None), (error.__cause__, raised)
        assert raised or error.rank != comm.rank
    sys.stdout.write("right\n")


def operator_is_interrupted():
    """Ctrl-C inside an operator reaches its caller as it is."""
    comm = earlybird.Communicator(timeout=60)

    def interrupted(inbuf, inoutbuf, datatype):
        signal.raise_signal(signal.SIGINT)

    try:
        comm.Allreduce(earlybird.IN_PLACE, np.ones(10), earlybird.Op.Create(interrupted))
        raise AssertionError("the signal was lost")
    except (KeyboardInterrupt, earlybird.OperatorPanicked) as error:
        assert "KeyboardInterrupt" in repr(error), repr(error)
    sys.stdout.write("right\n")


def product(comm, factor):
    return comm.allreduce(factor * (comm.rank + 1), earlybird.PROD)


def fails_on_rank_1(comm):
    if comm.rank == 1:
        raise LookupError("nothing there")
    comm.Barrier()


def spawned():
    """Functions run as ranks; what they raise comes back."""
    assert earlybird.spawn(product, 3, (2,)) == [48] * 3
    try:
        earlybird.spawn(fails_on_rank_1, 2, timeout=30)
        raise AssertionError("the failure was lost")
    except earlybird.RankFailed as error:
        assert error.rank in (0, 1) and ("nothing there" in str(error) or "died" in str(error)), error
    sys.stdout.write("right\n")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
