"""Messages between two ranks: sends and receives, started and waited for, in batches, beside collectives; run by torchrun."""

import sys
from datetime import timedelta

import cases
import earlybird
import earlybird.torch
import torch
import torch.distributed as dist

# The last one is longer than all packets that are under way at once.
LENGTHS = [0, 1, 1000, 2_000_000]
# Whether ranks are told that they share no memory.
IS_APART = False


def message(source, dest, length=1000):
    return torch.arange(length, dtype=torch.float64) + 10 * source + dest


def is_alone():
    """Returns whether the group is earlybird, not one backend of several."""
    return isinstance(dist.group.WORLD, earlybird.torch.ProcessGroup)


def pair(rank, size):
    """The other rank of a pair; the last rank of an odd number has none."""
    return None if rank ^ 1 >= size else rank ^ 1


def test_both_send_first(rank, size):
    other = pair(rank, size)
    for length in LENGTHS if other is not None else []:
        dist.send(message(rank, other, length), other)
        received = torch.zeros(length, dtype=torch.float64)
        assert dist.recv(received, other) == other
        assert torch.equal(received, message(other, rank, length))


def test_started_round_a_ring(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    for length in LENGTHS:
        sends = [dist.isend(message(rank, after, length) + tag, after, tag=tag) for tag in range(3)]
        tensors = [torch.zeros(length, dtype=torch.float64) for _ in range(3)]
        # In another order than sent.
        receives = [dist.irecv(tensors[tag], before, tag=tag) for tag in (2, 0, 1)]
        works = sends + receives
        assert all(work.wait() for work in works)
        # A GPU may still copy what came.
        torch.get_device_module(tensors[0].device).synchronize()
        # Of one backend of several torch asks something else than the work.
        assert not is_alone() or all(work.is_completed() for work in works)
        assert all(torch.equal(tensor, message(before, rank, length) + tag) for tag, tensor in enumerate(tensors))
        assert not is_alone() or receives[0].get_future().wait()[0] is tensors[2]


def test_batches(rank, size):
    others = [other for other in range(size) if other != rank]
    tensors = {other: torch.zeros(2_000_000, dtype=torch.float64) for other in others}
    sends = [dist.P2POp(dist.isend, message(rank, other, 2_000_000), other) for other in others]
    receives = [dist.P2POp(dist.irecv, tensor, other) for other, tensor in tensors.items()]
    for work in dist.batch_isend_irecv(sends + receives):
        work.wait()
    assert all(torch.equal(tensor, message(other, rank, 2_000_000)) for other, tensor in tensors.items())
    # A backend that coalesces does this.
    group = dist.group.WORLD
    if is_alone():
        group._start_coalescing(torch.device("cpu"))
        for other in others:
            dist.isend(message(rank, other), other)
            dist.irecv(tensors[other][:1000].zero_(), other)
        group._end_coalescing(torch.device("cpu")).wait()
        assert all(torch.equal(tensor[:1000], message(other, rank)) for other, tensor in tensors.items())


def test_beside_a_collective(rank, size):
    if rank == 0:
        work = dist.isend(message(0, 1, 2_000_000), 1)
        dist.barrier()
        work.wait()
        return
    if rank == 1:
        received = torch.zeros(2_000_000, dtype=torch.float64)
        dist.recv(received, 0)
        assert torch.equal(received, message(0, 1, 2_000_000))
    dist.barrier()


def test_any_source(rank, size):
    if not is_alone():
        return  # torch cannot ask a backend of several for the source.
    if IS_APART:
        try:
            dist.recv(torch.zeros(1))
        except earlybird.Unsupported as error:
            assert "name the rank" in str(error)
            return
        raise AssertionError("a receive from any rank was not refused")
    if rank == 0:
        came = torch.zeros(1000, dtype=torch.float64)
        sources = [dist.recv(came, tag=4) for _ in range(size - 1)]
        assert sorted(sources) == list(range(1, size))
    else:
        dist.send(message(rank, 0), 0, tag=4)


def test_tensors_that_do_not_lie_in_one_piece_and_lists_of_objects(rank, size):
    other = pair(rank, size)
    if other is None:
        return
    whole = torch.zeros(6, 4)
    work = dist.irecv(whole[:, 1], other)
    dist.send(torch.full((6, 4), float(rank))[:, 2], other)
    work.wait()
    assert whole[:, 1].eq(other).all() and whole.sum() == 6 * other
    objects = [None]
    if rank < other:
        dist.send_object_list([{"rank": rank}], other)
        dist.recv_object_list(objects, other)
    else:
        dist.recv_object_list(objects, other)
        dist.send_object_list([{"rank": rank}], other)
    assert objects == [{"rank": other}]


def test_a_message_that_nobody_sends_ends_at_the_deadline(rank, size):
    group = dist.new_group(timeout=timedelta(seconds=0.5))
    if rank == 0:
        try:
            dist.recv(torch.zeros(1), 1, group=group)
        except earlybird.Timeout as error:
            assert error.rank == 1
        else:
            raise AssertionError("nobody missed the message")
    dist.barrier()
    dist.destroy_process_group(group)


def main():
    global IS_APART
    for backend in ["earlybird", "cpu:earlybird,cuda:gloo"]:
        if not cases.start(backend):
            continue
        rank, size = dist.get_rank(), dist.get_world_size()
        nodes = [None] * size
        dist.all_gather_object(nodes, earlybird.torch._join.node())
        IS_APART = len(set(nodes)) > 1
        passed = cases.run(globals())
        dist.destroy_process_group()
    sys.stdout.write(f"rank {rank}: {passed} passed\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
