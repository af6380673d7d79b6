"""Communicators and objects: the pickled calls, split, duplicate, shrink, threads, forks, freed handles, operators."""

import gc
import os
import pickle
import threading
import time

import earlybird
import numpy as np
from support import main, refused


def test_objects(comm):
    rank, size = comm.rank, comm.size
    everyone = [{"rank": r, "text": "x" * 1000 * r} for r in range(size)]
    assert comm.allgather(everyone[rank]) == everyone
    for root in range(size):
        assert comm.bcast(everyone if rank == root else None, root) == everyone
        assert comm.gather(everyone[rank], root) == (everyone if rank == root else None)
        assert comm.scatter(everyone if rank == root else None, root) == everyone[rank]
        assert comm.reduce([rank], root=root) == (list(range(size)) if rank == root else None)
    assert comm.alltoall([(rank, r) for r in range(size)]) == [(r, rank) for r in range(size)]
    assert comm.allreduce(rank + 1, earlybird.PROD) == np.prod(np.arange(1, size + 1))
    assert comm.scan(rank + 1) == (rank + 1) * (rank + 2) // 2
    assert comm.exscan(f"{rank}", lambda a, b: a + b) == ("".join(map(str, range(rank))) if rank else None)
    assert comm.allreduce((rank, "a"), max) == (size - 1, "a")
    # Not commutative: by rank.
    assert comm.allreduce(str(rank), lambda a, b: f"({a}{b})").strip("()").replace("(", "").replace(")", "") == "".join(
        map(str, range(size))
    )
    comm.barrier()


def test_objects_that_cannot_be_sent_leave_nobody_waiting(comm):
    too_many = [0] * (comm.size + 1)
    refused(ValueError, comm.scatter, too_many if comm.rank == 0 else None, words="one" if comm.rank == 0 else "rank 0")
    refused(ValueError, comm.alltoall, too_many, words="one per rank")
    refused(TypeError, comm.allreduce, 1, earlybird.MINLOC, words="does not reduce objects")
    assert comm.allgather(comm.rank) == list(range(comm.size))


def test_groups(comm):
    part = comm.split(comm.rank % 2, -comm.rank)
    members = [r for r in range(comm.size) if r % 2 == comm.rank % 2][::-1]
    assert part.job_ranks == members and part.size == len(members) and part.rank == members.index(comm.rank)
    assert part.allreduce(comm.rank) == sum(members)
    with comm.dup() as copy:
        assert (copy.Get_rank(), copy.Get_size()) == (comm.rank, comm.size)
        copy.Barrier()
    refused(earlybird.Usage, copy.Barrier, words="freed")
    assert "freed" in repr(copy) and f"rank {comm.rank} of {comm.size}" in repr(comm)
    nobody = comm.split(None if comm.rank == 0 else 1)
    assert (nobody is None) == (comm.rank == 0)
    with comm.shrink() as again:
        assert again.allgather(1) == [1] * comm.size
    part.free()
    part.free()


def test_algorithms_and_orders(comm):
    with comm.dup() as copy:
        copy.set_algorithm("slices")
        copy.set_order("rank")
        copy.Allreduce(earlybird.IN_PLACE, np.ones(100_000))
        assert comm.size == 1 or copy.last_algorithm == "slices"
        refused(earlybird.Usage, copy.set_algorithm, "best")
        text = copy.explain("allreduce", 800_000)
        assert text.startswith("allreduce of 800000 bytes") and "rank order" in text
        assert comm.size == 1 or "slices" in text and "set_algorithm" in text
        refused(earlybird.Usage, copy.explain, "sum", 8, words="use one of")


def test_requests_keep_what_they_need(comm):
    data = np.full(200_000, 1.0)
    copy = comm.dup()
    request = copy.Iallreduce(earlybird.IN_PLACE, data)
    # Neither the name of the communicator nor that of the array is needed any more.
    copy.free()
    view = data[:1]
    del data, copy
    gc.collect()
    request.wait()
    assert view[0] == comm.size
    # A request that nobody waits for is released.
    comm.Iallreduce(earlybird.IN_PLACE, np.ones(10))
    comm.Barrier()


def test_a_second_thread_is_refused_and_the_interpreter_is_free_meanwhile(comm):
    if comm.size == 1:
        return
    with comm.dup() as copy:
        if comm.rank == 0:
            begun = threading.Event()
            waiter = threading.Thread(target=lambda: (begun.set(), copy.Barrier()))
            waiter.start()
            begun.wait()
            time.sleep(0.5)
            # The thread waits for the other ranks, and this one runs.
            refused(earlybird.Usage, copy.Barrier, words="inside a call")
            refused(earlybird.Usage, copy.free, words="inside a call")
            comm.Barrier()
            waiter.join()
        else:
            comm.Barrier()
            copy.Barrier()


def test_a_forked_child_is_no_member(comm):
    request = comm.Iallreduce(earlybird.IN_PLACE, values := np.ones(9_000))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for call in (comm.Barrier, comm.dup, lambda: comm.allgather(1), request.wait):
                refused(earlybird.Forked, call, words="fork")
            part = comm
            del part, request
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    request.wait()
    assert values[0] == comm.size


def test_operators_are_values(comm):
    assert earlybird.SUM != earlybird.MAX and {earlybird.SUM: 1}[pickle.loads(pickle.dumps(earlybird.SUM))] == 1
    assert repr(earlybird.AVG) == "earlybird.AVG" and earlybird.AVG.name == "AVG"


def test_how_to_join(comm):
    refused(TypeError, earlybird.Communicator, "job", words="job, rank and size")
    refused(earlybird.Usage, earlybird.Communicator, "job", 2, 2, words="does not exist")
    with earlybird.Communicator(f"alone-{os.getpid()}", 0, 1, timeout=5) as alone:
        assert alone.allgather("me") == ["me"]
    for options in ({"WAIT": "power"}, {"EARLYBIRD_WAIT": "never"}):
        kind = refused(earlybird.Usage, lambda: earlybird.Communicator(f"a-{os.getpid()}", 0, 1, options=options))
        assert "WAIT" in str(kind)
    refused(earlybird.Usage, lambda: earlybird.Communicator(f"a-{os.getpid()}", 0, 1, timeout=-1), words="positive")


if __name__ == "__main__":
    main(__name__)
