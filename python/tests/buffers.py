"""The calls for buffers against numpy: every collective, type and form, and what is refused."""

import array

import earlybird
import numpy as np
from earlybird import IN_PLACE
from support import main, refused

NUMBERS = "bhilqBHILQefdFD"
REDUCE = {
    earlybird.SUM: np.add,
    earlybird.PROD: np.multiply,
    earlybird.MIN: np.minimum,
    earlybird.MAX: np.maximum,
    earlybird.BAND: np.bitwise_and,
    earlybird.BOR: np.bitwise_or,
    earlybird.BXOR: np.bitwise_xor,
    earlybird.LAND: np.logical_and,
    earlybird.LOR: np.logical_or,
    earlybird.LXOR: np.logical_xor,
}


def share(rank, count, dtype="d"):
    """A rank's contribution: whole numbers that every type holds exactly, also multiplied."""
    return ((np.arange(count) + rank) % 3).astype(dtype)


def shares(comm, count, dtype="d"):
    return [share(rank, count, dtype) for rank in range(comm.size)]


def reduced(op, parts):
    return REDUCE[op].reduce(parts).astype(parts[0].dtype)


def every_form(comm, name, *args):
    """Makes the blocking call, the non-blocking one, and the persistent one twice; yields after each."""
    getattr(comm, name)(*args)
    yield
    request = getattr(comm, "I" + name[:1].lower() + name[1:])(*args)
    while not request.test():
        pass
    assert request.wait() and request.Wait() and request.Test()
    yield
    persistent = getattr(comm, name + "_init")(*args)
    for wait in (persistent.wait, persistent.Wait):
        assert persistent.test()
        persistent.Start()
        wait()
        yield
    persistent.Free()


def test_allreduce_of_every_type_and_operator(comm):
    for dtype in NUMBERS + "?":
        for op, function in REDUCE.items():
            parts = shares(comm, 67, dtype)
            try:
                expected = reduced(op, parts)
            except TypeError:  # numpy does not have it either
                expected = None
            if comm.size == 1:  # Nothing is folded.
                expected = parts[0]
            bits = op in (earlybird.BAND, earlybird.BOR, earlybird.BXOR)
            whole = np.dtype(dtype).kind in "iu"
            logical = op in (earlybird.LAND, earlybird.LOR, earlybird.LXOR)
            is_bool = dtype == "?"
            has = (bits or logical) if is_bool else (whole or not (bits or logical)) and not (
                dtype in "FD" and op in (earlybird.MIN, earlybird.MAX)
            )
            result = np.empty_like(parts[0])
            if not has:
                refused(earlybird.Unsupported, comm.Allreduce, parts[comm.rank], result, op)
                continue
            for _ in every_form(comm, "Allreduce", parts[comm.rank], result, op):
                assert result.tobytes() == expected.tobytes(), (dtype, op, result, expected)
                result[:] = 0
            in_place = parts[comm.rank].copy()
            comm.Allreduce(IN_PLACE, in_place, op)
            assert in_place.tobytes() == expected.tobytes()


def test_averages_and_positions(comm):
    average = share(comm.rank, 10)
    comm.Allreduce(IN_PLACE, average, earlybird.AVG)
    np.testing.assert_allclose(average, np.mean(shares(comm, 10), axis=0))
    for value, index in [("i4", "i4"), ("i8", "i8"), ("f4", "i4"), ("f8", "i8")]:
        pairs = np.zeros(2, np.dtype([("value", value), ("index", index)]))
        pairs["value"], pairs["index"] = [-comm.rank, comm.rank], comm.rank
        comm.Allreduce(IN_PLACE, pairs, earlybird.MINLOC)
        assert pairs["index"].tolist() == [comm.size - 1, 0], pairs


def test_large_arrays_in_both_layouts(comm):
    for order in "CF":
        grid = np.asarray(np.full((700, 900), comm.rank + 1.0), order=order)
        comm.Allreduce(IN_PLACE, grid)
        assert (grid == comm.size * (comm.size + 1) / 2).all()


def test_reduce_and_broadcast_from_every_root(comm):
    for root in range(comm.size):
        result = np.zeros(9) if comm.rank == root else None
        for _ in every_form(comm, "Reduce", share(comm.rank, 9), result, earlybird.SUM, root):
            if result is not None:
                assert (result == reduced(earlybird.SUM, shares(comm, 9))).all()
                result[:] = 0
        if comm.rank == root:
            mine = share(root, 9)
            comm.Reduce(IN_PLACE, mine, root=root)
            assert (mine == reduced(earlybird.SUM, shares(comm, 9))).all()
        else:
            comm.Reduce(share(comm.rank, 9), None, root=root)
        data = bytearray(range(50)) if comm.rank == root else bytearray(50)
        for _ in every_form(comm, "Bcast", data, root):
            assert bytes(data) == bytes(range(50))
            data[:] = data if comm.rank == root else bytes(50)
        # The root may send what it cannot write.
        data = bytes(range(50)) if comm.rank == root else bytearray(50)
        comm.Bcast(data, root)
        comm.Ibcast(data, root).wait()
        assert bytes(data) == bytes(range(50))


def test_scans_in_rank_order(comm):
    mine, untouched = share(comm.rank, 9), np.full(9, -7.0)
    so_far = [reduced(earlybird.SUM, shares(comm, 9)[:ranks]) if ranks else untouched for ranks in range(comm.size + 1)]
    result = untouched.copy()
    for _ in every_form(comm, "Scan", mine, result):
        assert (result == so_far[comm.rank + 1]).all()
        result[:] = untouched
    for _ in every_form(comm, "Exscan", mine, result):
        assert (result == so_far[comm.rank]).all()
        result[:] = untouched
    comm.Exscan(IN_PLACE, mine)
    assert (mine == (so_far[comm.rank] if comm.rank else share(0, 9))).all()
    refused(earlybird.Unsupported, comm.Scan, IN_PLACE, mine, earlybird.AVG)


def test_gathers_and_scatters_of_equal_blocks(comm):
    whole = np.concatenate(shares(comm, 4))
    own = slice(4 * comm.rank, 4 * comm.rank + 4)
    result = np.zeros(4 * comm.size)
    for _ in every_form(comm, "Allgather", share(comm.rank, 4), result):
        assert (result == whole).all()
        result[:] = 0
    result[own] = share(comm.rank, 4)
    for _ in every_form(comm, "Allgather", IN_PLACE, result):
        assert (result == whole).all()
    for root in range(comm.size):
        is_root = comm.rank == root
        gathered = np.zeros(4 * comm.size) if is_root else None
        for _ in every_form(comm, "Gather", share(comm.rank, 4), gathered, root):
            assert not is_root or (gathered == whole).all()
        mine = np.zeros(4)
        for _ in every_form(comm, "Scatter", whole if is_root else None, mine, root):
            assert (mine == share(comm.rank, 4)).all()
            mine[:] = 0
        for _ in every_form(comm, "Scatter", whole if is_root else None, IN_PLACE if is_root else mine, root):
            assert is_root or (mine == share(comm.rank, 4)).all()
        if is_root:
            gathered[:] = 0
            gathered[own] = share(comm.rank, 4)
        for _ in every_form(comm, "Gather", IN_PLACE if is_root else share(comm.rank, 4), gathered, root):
            assert not is_root or (gathered == whole).all()


def test_blocks_of_different_lengths(comm):
    counts = [3 * rank + 1 for rank in range(comm.size)]
    starts = np.concatenate([[0], np.cumsum(counts)])
    whole = np.concatenate([share(rank, count) for rank, count in enumerate(counts)])
    mine, own = share(comm.rank, counts[comm.rank]), slice(starts[comm.rank], starts[comm.rank + 1])
    for specification in (
        lambda buffer: [buffer, counts],
        lambda buffer: [buffer, (counts, starts[:-1])],
        lambda buffer: (buffer, np.array(counts), list(starts[:-1])),
    ):
        result = np.zeros(len(whole))
        for _ in every_form(comm, "Allgatherv", mine, specification(result)):
            assert (result == whole).all()
            result[:] = 0
    for root in range(comm.size):
        gathered = [np.zeros(len(whole)), counts] if comm.rank == root else None
        for _ in every_form(comm, "Gatherv", mine, gathered, root, counts):
            assert gathered is None or (gathered[0] == whole).all()
        part = np.zeros(counts[comm.rank])
        for _ in every_form(comm, "Scatterv", [whole, counts] if comm.rank == root else None, part, root, counts):
            assert (part == mine).all()
            part[:] = 0
    total = reduced(earlybird.SUM, shares(comm, len(whole)))
    part = np.zeros(counts[comm.rank])
    for _ in every_form(comm, "Reduce_scatter", share(comm.rank, len(whole)), part, counts):
        assert (part == total[own]).all()


def test_alltoall(comm):
    send = np.arange(3 * comm.size) + 100 * comm.rank
    expected = np.concatenate([np.arange(3 * comm.rank, 3 * comm.rank + 3) + 100 * rank for rank in range(comm.size)])
    result = np.zeros_like(send)
    for _ in every_form(comm, "Alltoall", send, result):
        assert (result == expected).all()
    comm.Alltoall(IN_PLACE, send)
    assert (send == expected).all()
    # Rank r has r + s elements for rank s.
    counts = [comm.rank + rank for rank in range(comm.size)]
    send = np.full(sum(counts), comm.rank, "i2")
    result = np.zeros_like(send)
    for _ in every_form(comm, "Alltoallv", [send, counts], [result, counts]):
        assert (result == np.repeat(np.arange(comm.size), counts)).all()


def test_reduce_scatter_of_equal_blocks(comm):
    total = reduced(earlybird.SUM, shares(comm, 2 * comm.size))
    part = np.zeros(2)
    for _ in every_form(comm, "Reduce_scatter_block", share(comm.rank, 2 * comm.size), part):
        assert (part == total[2 * comm.rank :][:2]).all()


def test_buffers_of_other_kinds(comm):
    sums = array.array("i", [comm.rank, 1])
    comm.Allreduce(IN_PLACE, sums)
    assert list(sums) == [comm.size * (comm.size - 1) // 2, comm.size]
    view = memoryview(bytearray(3)).cast("B")
    comm.Allreduce(bytes([comm.rank] * 3), view, earlybird.MAX)
    assert bytes(view) == bytes([comm.size - 1] * 3)
    # Elements that cannot be reduced are moved.
    names = np.array([f"rank {comm.rank}"], "U20")
    everyone = np.empty(comm.size, "U20")
    comm.Allgather(names, everyone)
    assert everyone.tolist() == [f"rank {rank}" for rank in range(comm.size)]
    empty = np.empty(0)
    comm.Allreduce(IN_PLACE, empty)


def test_arguments_that_cannot_be_used(comm):
    ones, more, whole = np.ones(4), np.ones(5), np.ones(4, "i4")
    refused(earlybird.Usage, comm.Allreduce, ones, more, words="buffers of one length")
    refused(TypeError, comm.Allreduce, ones, whole, words="one type")
    refused(ValueError, comm.Allreduce, ones, ones, words="IN_PLACE")
    refused(ValueError, comm.Allreduce, more[:4], more[1:], words="share memory")
    refused(ValueError, comm.Allreduce, ones, np.ones((4, 2))[:, 0], words="ascontiguousarray")
    grid = np.ones((2, 3))
    refused(ValueError, comm.Allreduce, grid, np.ones((2, 3), order="F"), words="different orders")
    refused(TypeError, comm.Allreduce, 7, ones, words="no buffer")
    refused(TypeError, comm.Allreduce, None, ones, words="sendbuf is None")
    refused(TypeError, comm.Allreduce, ones, IN_PLACE, words="recvbuf is IN_PLACE")
    refused(TypeError, comm.Allreduce, ones, more, "sum")
    fixed = np.ones(4)
    fixed.flags.writeable = False
    refused(ValueError, comm.Allreduce, ones, fixed, words="read-only")
    refused(ValueError, comm.Allreduce, IN_PLACE, np.array([2], "u1").view("?"), earlybird.LOR, words="truth values")
    refused(ValueError, comm.Bcast, ones, -1, words="root -1 does not exist")
    refused(earlybird.Usage, comm.Bcast, ones, comm.size, words="does not exist")
    refused(earlybird.Usage, comm.Allgatherv, ones, [np.ones(4 * comm.size), [4] * (comm.size + 1)], words="counts")
    refused(ValueError, comm.Allgatherv, ones, [more, [1] * comm.size, [7] * comm.size], words="displacements")
    refused(TypeError, comm.Alltoallv, ones, [more, [1] * comm.size], words="for both or for none")
    refused(earlybird.Usage, comm.Allreduce, IN_PLACE, np.zeros(1, "U3"), words="operator of your own")
    refused(TypeError, comm.Bcast, np.array([{}, ()], "O"), words="Python objects")
    swapped = np.ones(4, ">f8")
    refused(earlybird.Usage, comm.Allreduce, IN_PLACE, swapped, words="operator of your own")
    refused(ValueError, comm.set_order, "left", words="arrival")


if __name__ == "__main__":
    main(__name__)
