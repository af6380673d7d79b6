"""Every call of torch.distributed that earlybird.torch has, against what gloo or arithmetic says; run by torchrun."""

import os
import sys
from datetime import timedelta

import cases
import earlybird
import earlybird.torch
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from cases import refused
from torch.distributed import ReduceOp

DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool,
]  # fmt: skip


def share(rank, shape, dtype=torch.float32):
    """What a rank contributes: whole numbers, small enough for any type."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) + rank) % 3).to(dtype).view(shape)


def total(size, shape, dtype=torch.float32):
    shares = [share(rank, shape, dtype) for rank in range(size)]
    return torch.stack(shares).any(0) if dtype is torch.bool else torch.stack(shares).sum(0).to(dtype)


def is_alone():
    """Returns whether the group is earlybird, not one backend of several."""
    return isinstance(dist.group.WORLD, earlybird.torch.ProcessGroup)


def test_allreduce_of_every_type(rank, size):
    for dtype in DTYPES:
        tensor = share(rank, [37], dtype)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, total(size, [37], dtype)), dtype


def test_operators(rank, size):
    shares = torch.stack([share(r, [9]) for r in range(size)])
    for op, expected in [
        (ReduceOp.MAX, shares.amax(0)), (ReduceOp.MIN, shares.amin(0)),
        (ReduceOp.PRODUCT, shares.prod(0)), (ReduceOp.AVG, shares.mean(0)),
    ]:  # fmt: skip
        tensor = share(rank, [9])
        dist.all_reduce(tensor, op)
        torch.testing.assert_close(tensor, expected)
    bits = torch.tensor([1 << rank])
    dist.all_reduce(bits, ReduceOp.BOR)
    assert bits.item() == (1 << size) - 1
    refused(earlybird.Unsupported, "PREMUL_SUM", dist.all_reduce, torch.ones(1), dist._make_nccl_premul_sum(0.5))
    refused(earlybird.Unsupported, "average", dist.all_reduce, torch.ones(1, dtype=torch.int32), ReduceOp.AVG)


def test_tensors_that_do_not_lie_in_one_piece(rank, size):
    tensor = share(rank, [6, 4]).t()
    assert not tensor.is_contiguous()
    dist.all_reduce(tensor)
    assert torch.equal(tensor, total(size, [6, 4]).t())
    whole = torch.zeros(8, 3)
    dist.broadcast(whole[:, 1], 0) if rank else dist.broadcast(torch.ones(8), 0)
    assert rank == 0 or torch.equal(whole[:, 1], torch.ones(8)) and whole.sum() == 8
    refused(earlybird.Unsupported, "sparse", dist.all_reduce, torch.eye(2).to_sparse())


def test_tensors_that_backends_of_several_do_not_see(rank, size):
    if not is_alone():  # torch's dispatcher gives them a copy of the first one, and does nothing for the second.
        return
    negated = torch.full((2,), 1 + 2j).conj().imag
    assert negated.is_neg()
    dist.all_reduce(negated)
    assert torch.equal(negated.resolve_neg(), torch.full((2,), -2.0 * size)), negated
    refused(earlybird.Unsupported, "meta", dist.all_reduce, torch.ones(2, device="meta"))


def test_lists_of_two_devices(rank, size):
    if is_alone() and size > 1:
        there = torch.device("meta" if torch.get_default_device().type == "cpu" else "cpu")
        mixed = [torch.ones(2), *(torch.ones(2, device=there) for _ in range(size - 1))]
        # Either way round, and nothing of it is shared.
        for tensors in (mixed, mixed[::-1]):
            refused(earlybird.Unsupported, "give tensors of one device", dist.all_gather, tensors, torch.ones(2))
            refused(earlybird.Unsupported, "give tensors of one device", dist.reduce_scatter, torch.ones(2), tensors)
            refused(earlybird.Unsupported, "give tensors of one device", dist.all_to_all, tensors, [torch.ones(2)] * size)


def test_rooted_calls(rank, size):
    for root in range(size):
        tensor = share(rank, [5])
        dist.reduce(tensor, root)
        assert torch.equal(tensor, total(size, [5]) if rank == root else share(rank, [5]))
        tensor = share(rank, [5])
        dist.broadcast(tensor, root)
        assert torch.equal(tensor, share(root, [5]))
        parts = [torch.zeros(2, 2) for _ in range(size)] if rank == root else None
        dist.gather(share(rank, [2, 2]), parts, root)
        assert parts is None or all(torch.equal(part, share(r, [2, 2])) for r, part in enumerate(parts))
        out = torch.zeros(2, 2)
        dist.scatter(out, [share(r, [2, 2]) for r in range(size)] if rank == root else None, root)
        assert torch.equal(out, share(rank, [2, 2]))


def test_gathers(rank, size):
    parts = [torch.zeros(3) for _ in range(size)]
    dist.all_gather(parts, share(rank, [3]))
    assert all(torch.equal(part, share(r, [3])) for r, part in enumerate(parts))
    uneven = [torch.zeros(r + 1) for r in range(size)]
    dist.all_gather(uneven, share(rank, [rank + 1]))
    assert all(torch.equal(part, share(r, [r + 1])) for r, part in enumerate(uneven))
    expected = torch.cat([share(r, [4]) for r in range(size)])
    whole = torch.zeros(4 * size)
    dist.all_gather_into_tensor(whole, share(rank, [4]))
    assert torch.equal(whole, expected)
    # In place, as FSDP2 does.
    whole = torch.zeros(4 * size)
    whole[4 * rank :][:4] = share(rank, [4])
    dist.all_gather_into_tensor(whole, whole[4 * rank :][:4])
    assert torch.equal(whole, expected)
    # A type that is only moved.
    bits = torch.full((2,), float(rank)).to(torch.float8_e4m3fn)
    gathered = torch.zeros(2 * size, dtype=torch.uint8).view(torch.float8_e4m3fn)
    dist.all_gather_into_tensor(gathered, bits)
    assert gathered.float().tolist() == [float(r // 2) for r in range(2 * size)]


def test_reduce_scatter(rank, size):
    expected = total(size, [3 * size])[3 * rank :][:3]
    out = torch.zeros(3)
    dist.reduce_scatter_tensor(out, share(rank, [3 * size]))
    assert torch.equal(out, expected)
    dist.reduce_scatter(out.zero_(), list(share(rank, [3 * size]).chunk(size)))
    assert torch.equal(out, expected)
    whole = share(rank, [3 * size])
    dist.reduce_scatter_tensor(whole[3 * rank :][:3], whole)
    assert torch.equal(whole[3 * rank :][:3], expected)


def test_all_to_all(rank, size):
    out = torch.zeros(2 * size)
    dist.all_to_all_single(out, torch.arange(2.0 * size) + 100 * rank)
    assert out.tolist() == [100.0 * r + 2 * rank + i for r in range(size) for i in range(2)]
    rows = [rank + r for r in range(size)]
    out = torch.zeros(sum(rows), 2)
    dist.all_to_all_single(out, torch.full((sum(rows), 2), float(rank)), rows, rows)
    assert out[:, 0].tolist() == [float(r) for r in range(size) for _ in range(rank + r)]
    outs = [torch.zeros(r + 1 + rank) for r in range(size)]
    dist.all_to_all(outs, [torch.full((r + 1 + rank,), float(rank)) for r in range(size)])
    assert all((out == r).all() for r, out in enumerate(outs))


def test_objects_and_barriers(rank, size):
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert [it["rank"] for it in objects] == list(range(size))
    told = [("from", 0)] if rank == 0 else [None]
    dist.broadcast_object_list(told, 0)
    assert told == [("from", 0)]
    dist.barrier()


def test_works(rank, size):
    """Calls that were started: in any order, beside blocking ones, by any of the ways in which torch asks for their end."""
    tensors = [share(rank, [count], torch.float64) for count in (1, 20, 3_000, 400_000)]
    # Only some ranks wait later: in torch that is the same call.
    works = [dist.all_reduce(tensor, async_op=rank == 0) for tensor in tensors]
    works = [work for work in works if work is not None]
    columns = share(rank, [6, 4]).t()
    works.append(dist.all_reduce(columns, async_op=True))
    gathered = [torch.zeros(50) for _ in range(size)]
    works.append(dist.all_gather(gathered, share(rank, [50]), async_op=True))
    dist.all_reduce(between := torch.ones(1))
    assert between.item() == size
    assert all(work.wait() for work in reversed(works))
    for tensor in tensors:
        assert torch.equal(tensor, total(size, tensor.shape, torch.float64))
    assert torch.equal(columns, total(size, [6, 4]).t())
    assert all(torch.equal(part, share(r, [50])) for r, part in enumerate(gathered))

    work = dist.all_reduce(tensor := torch.ones(1000), async_op=True)
    assert work.get_future().wait()[0][999] == size and tensor[0] == size
    assert work.get_future().done() and work.wait(timedelta(seconds=60))
    later = dist.all_reduce(torch.ones(9), async_op=True).get_future().then(lambda future: future.value()[0] + 1)
    assert later.wait()[0] == size + 1
    work = dist.barrier(async_op=True)
    # torch asks a work of a backend in Python for its wait and its future only.
    while is_alone() and not work.is_completed():
        pass
    work.wait()
    # Nobody waits for this one; the tensor is let go of before the call has ended.
    dist.all_reduce(torch.ones(100_000), async_op=True)
    dist.barrier()


def test_a_work_waits_no_longer_than_it_is_told(rank, size):
    group = dist.new_group(timeout=timedelta(seconds=60))
    overlaps = os.environ.get("EARLYBIRD_TORCH_OVERLAP") == "on"
    if rank == 0 and size > 1 and overlaps:
        work = dist.all_reduce(tensor := torch.ones(3), group=group, async_op=True)
        assert not work.is_completed()
        refused(Exception, "not complete after 0.1 s", work.wait, timedelta(seconds=0.1))
        dist.barrier()
        assert work.wait(timedelta(seconds=60)) and tensor[0] == size
    else:
        dist.barrier() if size > 1 and overlaps else None
        dist.all_reduce(torch.ones(3), group=group)
    dist.destroy_process_group(group)


def test_groups(rank, size):
    pair = dist.new_group(list(range(min(2, size))))
    if rank < 2:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=pair)
        assert tensor.item() == min(2, size)
    other = dist.new_group(list(range(size)), timeout=timedelta(seconds=60), group_desc="all again")
    dist.barrier(group=other)
    dist.destroy_process_group(other)


def test_functional_collectives(rank, size):
    group = dist.group.WORLD
    assert torch.equal(functional.all_reduce(share(rank, [3]), "sum", group).wait(), total(size, [3]))
    gathered = functional.all_gather_into_tensor_coalesced([share(rank, [2]), share(rank, [3])], group)
    for tensor, count in zip(gathered, (2, 3)):
        assert torch.equal(tensor.wait(), torch.cat([share(r, [count]) for r in range(size)]))
    reduced = functional.reduce_scatter_tensor_coalesced([share(rank, [2 * size])], "sum", [0], group)
    assert torch.equal(reduced[0].wait(), total(size, [2 * size])[2 * rank :][:2])
    for tensor in functional.all_reduce_coalesced([share(rank, [2]), share(rank, [2])], "sum", group):
        assert torch.equal(tensor.wait(), total(size, [2]))


def test_compiled_step(rank, size):
    step = torch.compile(lambda x: functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1, backend="aot_eager")
    assert torch.equal(step(share(rank, [4])), 2 * total(size, [4]) + 1)


def test_monitored_barrier(rank, size):
    if not is_alone():  # torch has it for groups of backends only.
        dist.monitored_barrier(timeout=timedelta(seconds=60))


def join_anew():
    """Makes a group of fewer ranks and one of all, which torch gives the same name as the first group is gone."""
    for count in (1, None):
        dist.init_process_group("earlybird", timeout=timedelta(seconds=60))
        group = dist.new_group(None if count is None else list(range(count)))
        if count is None or dist.get_rank() < count:
            dist.all_reduce(tensor := torch.ones(1), group=group)
            assert tensor.item() == (count or dist.get_world_size())
        dist.destroy_process_group()


def main():
    join_anew()
    # Alone, joined anew, and as one backend of several.
    for backend in ["earlybird", "earlybird", "cpu:earlybird,cuda:gloo"]:
        if not cases.start(backend):
            continue
        rank = dist.get_rank()
        assert is_alone() == (dist.get_backend() == "earlybird") and int(os.environ["RANK"]) == rank
        passed = cases.run(globals())
        dist.destroy_process_group()
    sys.stdout.write(f"rank {rank}: {passed} passed\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
