"""Arrays in shared memory, which an allreduce reduces where they lie: in every form, on one node and several, and how long they live."""

import gc
import os
import tempfile
import time

import earlybird
import numpy as np
from earlybird import IN_PLACE
from support import main, refused

COUNT = 40_000


def shared(comm, count=COUNT, dtype="f8"):
    return np.frombuffer(comm.Alloc_mem(count * np.dtype(dtype).itemsize), dtype)


def until(condition):
    """Waits outside the library."""
    end = time.monotonic() + 50
    while not condition():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.001)


def sums(comm):
    return comm.size * (comm.size + 1) // 2


def check_every_form(comm):
    for dtype in ("f4", "f8", "i2", "F"):
        values, result = shared(comm, dtype=dtype), shared(comm, dtype=dtype)
        assert not values.any() and values.flags.writeable
        values[:] = comm.rank + 1
        comm.Allreduce(values, result)
        assert (result == sums(comm)).all() and (values == comm.rank + 1).all()
        comm.Allreduce(IN_PLACE, values)
        assert (values == sums(comm)).all()
        comm.Iallreduce(IN_PLACE, values).wait()
        assert (values == comm.size * sums(comm)).all()
        result[:] = 0
        call = comm.Allreduce_init(values, result, earlybird.SUM)
        for step in range(3):
            values[:] = step * (comm.rank + 1)
            call.Start()
            call.wait()
            assert (result == step * sums(comm)).all()
    # Other calls take it as any memory.
    comm.Bcast(values, comm.size - 1)
    parts = shared(comm, 100 * comm.size)
    comm.Allgather(np.full(100, float(comm.rank)), parts)
    assert (parts == np.repeat(np.arange(comm.size), 100)).all()


def test_every_form(comm):
    check_every_form(comm)


def test_several_nodes(comm):
    job = comm.bcast(f"nodes-of-shared-{os.getpid()}")
    options = {"EARLYBIRD_RANKS_PER_NODE": "1"}
    with earlybird.Communicator(job, comm.rank, comm.size, timeout=60, options=options) as nodes:
        check_every_form(nodes)


def test_views_of_every_kind_are_known(comm):
    memory = comm.Alloc_mem(8 * COUNT)
    grid = np.ndarray((COUNT // 100, 100), "f8", buffer=memory)
    grid[:] = 1
    if comm.rank % 2:
        comm.Allreduce(IN_PLACE, memoryview(memory).cast("d"))
    else:
        comm.Allreduce(IN_PLACE, grid.reshape(-1))
    assert (grid == comm.size).all()
    # A part of it is private memory.
    comm.Allreduce(IN_PLACE, grid[1:])
    assert (grid[0] == comm.size).all() and (grid[1:] == comm.size**2).all()
    assert repr(memory) == f"<earlybird.SharedMemory: {8 * COUNT} bytes>"
    comm.Allreduce(IN_PLACE, comm.Alloc_mem(0))


def test_a_rank_that_computes_is_not_needed(comm):
    """Of private memory this takes the computing rank for every 1 MiB."""
    if comm.size == 1:
        return
    values = shared(comm, 1_000_000)
    values[:] = comm.rank + 1
    comm.Barrier()
    directory = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    request = comm.Iallreduce(IN_PLACE, values)
    open(os.path.join(directory, str(comm.rank)), "w").close()
    until(lambda: len(os.listdir(directory)) >= comm.size)
    if comm.rank == comm.size - 1:
        until(lambda: len(os.listdir(directory)) == 2 * comm.size - 1)
    request.wait()
    assert (values == sums(comm)).all()
    open(os.path.join(directory, f"done-{comm.rank}"), "w").close()
    comm.Barrier()
    if comm.rank == 0:
        for name in os.listdir(directory):
            os.remove(os.path.join(directory, name))
        os.rmdir(directory)


def test_memory_lives_as_long_as_an_array_or_a_call(comm):
    copy = comm.dup()
    values = shared(copy)
    values[:] = 1
    copy.free()
    del copy
    gc.collect()
    comm.Allreduce(IN_PLACE, values)
    view = values[5:7]
    request = comm.Iallreduce(IN_PLACE, values)
    del values
    gc.collect()
    request.wait()
    assert (view == comm.size**2).all()
    # Neither an array nor a request is left: the call ends in those that follow.
    values = shared(comm)
    comm.Iallreduce(IN_PLACE, values)
    del values
    gc.collect()
    comm.Barrier()
    # It is given back: far more than there may be at once.
    for _ in range(60):
        comm.Alloc_mem(16 << 20)


def test_what_is_refused(comm):
    values = shared(comm)
    call = comm.Allreduce_init(IN_PLACE, values)
    refused(earlybird.Usage, comm.Allreduce, IN_PLACE, values, words="another call has the shared memory")
    call.Free()
    request = comm.Iallreduce(IN_PLACE, values)
    refused(earlybird.Usage, comm.Allreduce, np.ones(COUNT), np.ones(COUNT + 1), words="one length")
    refused(earlybird.Usage, comm.Iallreduce, IN_PLACE, values, words="another call has the shared memory")
    request.wait()
    comm.Allreduce(IN_PLACE, values)
    if comm.size > 1:
        refused(earlybird.NoSpace, comm.Alloc_mem, 1 << 50)
    refused(OverflowError, comm.Alloc_mem, -1)
    other = earlybird.Communicator(f"another-{os.getpid()}", 0, 1)
    refused(earlybird.Usage, other.Allreduce, IN_PLACE, values, words="another job")


def test_private_memory_on_one_rank_is_another_call(comm):
    if comm.size == 1:
        return
    for method in ("Allreduce", "Iallreduce"):
        with comm.dup() as copy:
            values = shared(comm) if comm.rank == 0 else np.ones(COUNT)
            refused(earlybird.Mismatch, lambda: getattr(copy, method)(IN_PLACE, values).wait())
        # Memory that others may have touched is zero, and private from then on.
        if comm.rank == 0:
            assert not values.any()
            values[:] = 1
            refused(earlybird.Usage, comm.Allreduce, IN_PLACE, values, words="allocate another")


def test_a_forked_child_takes_nothing_away(comm):
    values = shared(comm)
    values[:] = 1
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused(earlybird.Forked, comm.Allreduce, IN_PLACE, values, words="fork")
            refused(earlybird.Forked, comm.Alloc_mem, 8, words="fork")
            del values
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    comm.Allreduce(IN_PLACE, values)
    assert (values == comm.size).all()


if __name__ == "__main__":
    main(__name__)
