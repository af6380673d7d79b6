"""Persistent calls beyond their results, which `buffers.py` compares: their order, their buffers, and what is refused."""

import gc
import os

import earlybird
import numpy as np
from earlybird import IN_PLACE, Prequest
from support import main, refused


def test_each_start_sends_what_the_buffer_holds_then(comm):
    values, sums = np.zeros(3000), np.empty(3000)
    call = comm.Allreduce_init(values, sums, earlybird.SUM)
    for step in range(20):
        values[:] = step + comm.rank
        call.Start()
        while not call.test():
            pass
        assert (sums == comm.size * step + comm.size * (comm.size - 1) // 2).all()


def test_several_calls_are_started_in_one_order(comm):
    buffers = [np.full(count, comm.rank + 1.0) for count in (1, 100, 10_000)]
    calls = [comm.Allreduce_init(IN_PLACE, buffer, earlybird.MAX) for buffer in buffers]
    calls.append(comm.Barrier_init())
    for _ in range(3):
        Prequest.Startall(calls)
        for call in reversed(calls):
            call.wait()
        assert all((buffer == comm.size).all() for buffer in buffers)
        for buffer in buffers:
            buffer[:] = comm.rank + 1.0
    refused(TypeError, Prequest.Startall, [comm.Ibarrier()])


def test_a_call_keeps_what_it_needs(comm):
    data = np.ones(100_000)
    copy = comm.dup()
    call = copy.Allreduce_init(IN_PLACE, data)
    copy.free()
    view = data[:1]
    del data, copy
    gc.collect()
    call.Start()
    call.wait()
    assert view[0] == comm.size
    # A call under way that nobody waits for is completed by those that follow.
    call.Start()
    call.Free()
    comm.Barrier()


def test_what_is_refused(comm):
    values = np.ones(10)
    call = comm.Allreduce_init(IN_PLACE, values)
    call.Start()
    refused(earlybird.Usage, call.Start, words="under way")
    refused(earlybird.Usage, Prequest.Startall, [call], words="under way")
    call.wait()
    call.Free()
    call.Free()
    for method in (call.Start, call.wait, call.test):
        refused(earlybird.Usage, method, words="freed")
    refused(earlybird.Usage, comm.Allreduce_init, values, np.ones(11), words="one length")
    refused(TypeError, comm.Allreduce_init, values, np.ones(10, "f4"), words="one type")
    fixed = np.ones(4)
    fixed.flags.writeable = False
    refused(ValueError, comm.Allreduce_init, np.ones(4), fixed, words="read-only")
    if comm.rank == 0:
        refused(ValueError, comm.Bcast_init, fixed, words="read-only")
    # Elements are looked at when they are sent.
    flags = np.zeros(3, "?")
    call = comm.Allreduce_init(IN_PLACE, flags, earlybird.LOR)
    flags.view("u1")[1] = 2
    refused(ValueError, call.Start, words="truth values")
    flags[1] = comm.rank == 0
    call.Start()
    call.wait()
    assert flags.tolist() == [False, True, False]


def test_a_forked_child_does_not_start_it(comm):
    values = np.ones(9_000)
    call = comm.Allreduce_init(IN_PLACE, values)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused(earlybird.Forked, call.Start, words="fork")
            del call
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    call.Start()
    call.wait()
    assert (values == comm.size).all()


if __name__ == "__main__":
    main(__name__)
