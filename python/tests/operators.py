"""Operators of Python functions on buffers: their results in every form and arrangement, what they get, and what is refused."""

import array
import gc
import os
import pickle
import threading

import earlybird
import numpy as np
from earlybird import IN_PLACE, Op
from support import main, refused


def add(inbuf, inoutbuf, datatype):
    result = np.asarray(inoutbuf)
    result += np.asarray(inbuf)


def compose(inbuf, inoutbuf, datatype):
    """Of linear functions x -> ax + b, the left one after the right one: associative, not commutative."""
    left, right = (np.frombuffer(buf, "i8").reshape(-1, 2) for buf in (inbuf, inoutbuf))
    a, b = left[:, 0] * right[:, 0], left[:, 0] * right[:, 1] + left[:, 1]
    right[:, 0], right[:, 1] = a, b


PAIR = np.dtype([("a", "i8"), ("b", "i8")])
ADD, COMPOSE = Op.Create(add, commute=True), Op.Create(compose)


def function_of(rank, count):
    pairs = np.zeros(count, PAIR)
    pairs["a"], pairs["b"] = (np.arange(count) + rank) % 3 + 1, rank - 1
    return pairs


def composed(ranks, count):
    parts = [function_of(rank, count) for rank in range(ranks)]
    result = parts[-1].copy()
    for part in parts[-2::-1]:
        compose(part, result, None)
    return result


def every_form(comm, name, send, recv, op, *args):
    getattr(comm, name)(send, recv, op, *args)
    yield
    getattr(comm, "I" + name.lower())(send, recv, op, *args).wait()
    yield
    call = getattr(comm, name + "_init")(send, recv, op, *args)
    for _ in range(2):
        call.Start()
        while not call.test():
            pass
        yield


def check(comm):
    for count in (1, 9, 1000, 100_000):
        values, result = np.full(count, comm.rank + 1.0), np.empty(count)
        for _ in every_form(comm, "Allreduce", values, result, ADD):
            assert (result == comm.size * (comm.size + 1) / 2).all(), result
            result[:] = 0
        mine, pairs = function_of(comm.rank, count), np.zeros(count, PAIR)
        for _ in every_form(comm, "Allreduce", mine, pairs, COMPOSE):
            assert (pairs == composed(comm.size, count)).all()
            pairs[:] = 0
        in_place = mine.copy()
        comm.Allreduce(IN_PLACE, in_place, COMPOSE)
        assert (in_place == composed(comm.size, count)).all()
    for _ in every_form(comm, "Scan", mine, pairs, COMPOSE):
        assert (pairs == composed(comm.rank + 1, count)).all()
    for root in range(comm.size):
        pairs[:] = 0
        for _ in every_form(comm, "Reduce", mine, pairs, COMPOSE, root):
            assert comm.rank != root or (pairs == composed(comm.size, count)).all()
    whole, block = function_of(comm.rank, 4 * comm.size), np.zeros(4, PAIR)
    for _ in every_form(comm, "Reduce_scatter_block", whole, block, COMPOSE):
        assert (block == composed(comm.size, 4 * comm.size)[4 * comm.rank :][:4]).all()


def test_one_node(comm):
    check(comm)


def test_several_nodes(comm):
    for ranks in ("1", "2"):
        job = comm.bcast(f"nodes-of-operators-{ranks}-{os.getpid()}")
        options = {"EARLYBIRD_RANKS_PER_NODE": ranks}
        with earlybird.Communicator(job, comm.rank, comm.size, timeout=60, options=options) as nodes:
            check(nodes)


def test_functions_see_elements_of_their_type(comm):
    seen, kept = set(), []

    def look(inbuf, inoutbuf, datatype):
        seen.add((inbuf.format, inoutbuf.format, datatype))
        assert inbuf.readonly and not inoutbuf.readonly and len(inbuf) == len(inoutbuf)
        refused(TypeError, inbuf.__setitem__, 0, inoutbuf[0], words="read-only") if datatype in "di" else None
        kept.append(np.asarray(inoutbuf))
        kept[-1][:] = np.asarray(inbuf)

    op = Op.Create(look)
    for dtype in ("f8", "f4", "i4", "F", "e", "?", ">f8", PAIR):
        seen.clear()
        values = np.zeros(5, dtype)
        values[:] = comm.rank
        comm.Allreduce(IN_PLACE, values, op)
        assert (values == np.zeros(5, dtype)).all()
        formats = {(memoryview(values).format,) * 3}
        assert seen <= formats and (comm.size == 1 or comm.allreduce(len(seen)) > 0), seen
    numbers = array.array("i", [comm.rank])
    comm.Allreduce(IN_PLACE, numbers, op)
    assert numbers[0] == 0
    # An operand that a function keeps is its own.
    gc.collect()
    assert all(array.nbytes for array in kept)


def test_a_started_call_folds_wherever_its_rank_waits(comm):
    threads = set()

    def noted(inbuf, inoutbuf, datatype):
        threads.add(threading.get_ident())
        add(inbuf, inoutbuf, datatype)

    values = np.full(300_000, comm.rank + 1.0)
    with comm.dup() as copy:
        request = copy.Iallreduce(IN_PLACE, values, Op.Create(noted, commute=True))
        # Another thread waits in another communicator, and this one computes.
        waiter = threading.Thread(target=comm.Barrier)
        waiter.start()
        total = sum(range(200_000))
        request.wait()
        waiter.join()
    assert total and (values == comm.size * (comm.size + 1) / 2).all()
    assert comm.size == 1 or comm.allreduce(len(threads)) > 0


def test_shared_memory_takes_them_too(comm):
    values = np.frombuffer(comm.Alloc_mem(80_000), "f8")
    values[:] = 1
    comm.Allreduce(IN_PLACE, values, ADD)
    comm.Iallreduce(IN_PLACE, values, ADD).wait()
    assert (values == comm.size**2).all()


def test_calls_inside_an_operator_are_refused(comm):
    errors = []
    with comm.dup() as other:

        def calls(inbuf, inoutbuf, datatype):
            assert comm.size == other.size
            for call in (other.Barrier, other.Ibarrier, other.Barrier_init, other.dup, request.wait):
                errors.append(refused(earlybird.Usage, call, words="an operator must not"))

        request = other.Ibarrier()
        comm.Allreduce(np.ones(4), np.ones(4), Op.Create(calls))
        request.wait()
    assert comm.size == 1 or comm.allreduce(len(errors)) >= 5


def test_operators_are_values(comm):
    assert ADD == ADD and ADD != COMPOSE and ADD != earlybird.SUM and len({ADD, COMPOSE, earlybird.SUM}) == 3
    assert Op.Create(add) != Op.Create(add) and "add" in repr(ADD) and "add" in ADD.name
    refused(TypeError, Op.Create, 7, words="give a function")
    refused(TypeError, pickle.dumps, ADD, words="each rank")
    refused(TypeError, comm.allreduce, 1, ADD, words="does not reduce objects")


def test_other_operators_on_other_ranks_are_another_call(comm):
    if comm.size > 1:
        with comm.dup() as copy:
            op = ADD if comm.rank == 0 else earlybird.SUM
            refused(earlybird.Mismatch, copy.Allreduce, IN_PLACE, np.ones(4), op)


if __name__ == "__main__":
    main(__name__)
