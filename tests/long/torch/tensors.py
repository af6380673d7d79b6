"""torch's own tensors in the calls of a Communicator, through DLPack: every type, views, what is refused; run by torchrun."""

import sys

import cases
import earlybird
import earlybird.torch
import torch
import torch.distributed as dist
from cases import refused
from earlybird import IN_PLACE
from earlybird._native import memory
from earlybird.torch import _version

COMPUTED = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
MOVED = [torch.float8_e4m3fn, torch.float8_e5m2]

comm = earlybird.Communicator()


def share(rank, count, dtype):
    """What a rank contributes: whole numbers, small enough for any type."""
    return ((torch.arange(count) + rank) % 3).to(dtype)


def total(size, count, dtype):
    return torch.stack([share(rank, count, torch.int64) for rank in range(size)]).sum(0).to(dtype)


def test_every_type(rank, size):
    for dtype in COMPUTED:
        tensor = share(rank, 37, dtype)
        comm.Allreduce(IN_PLACE, tensor)
        assert torch.equal(tensor, total(size, 37, dtype)), dtype
        result = torch.zeros(37, dtype=dtype)
        comm.Allreduce(share(rank, 37, dtype), result)
        assert torch.equal(result, tensor), dtype
    truths = torch.arange(size) == rank
    comm.Allreduce(IN_PLACE, truths, earlybird.LOR)
    assert truths.all()


def test_bfloat16_is_that_of_the_process_group(rank, size):
    torch.manual_seed(rank)
    tensor = torch.rand(1000).to(torch.bfloat16)
    of_group = tensor.clone()
    dist.all_reduce(of_group)
    comm.Allreduce(IN_PLACE, tensor)
    assert torch.equal(tensor, of_group)


def test_types_that_are_only_moved(rank, size):
    for dtype in MOVED:
        mine, everyone = torch.full((3,), float(rank)).to(dtype), torch.zeros(3 * size).to(dtype)
        comm.Allgather(mine, everyone)
        assert everyone.float().tolist() == [float(r) for r in range(size) for _ in range(3)], dtype
        refused(earlybird.Usage, "operator of your own", comm.Allreduce, IN_PLACE, mine)


def test_data_movement(rank, size):
    whole = torch.zeros(2 * size)
    comm.Allgatherv(share(rank, 2, torch.float32), [whole, [2] * size])
    assert torch.equal(whole, torch.cat([share(r, 2, torch.float32) for r in range(size)]))
    comm.Alltoall(whole.clone(), whole)
    assert torch.equal(whole, share(rank, 2, torch.float32).repeat(size))
    told = torch.full((2, 3), float(rank), dtype=torch.bfloat16)
    comm.Bcast(told, size - 1)
    assert (told == size - 1).all()
    part = torch.zeros(2)
    comm.Reduce_scatter_block(torch.ones(2 * size), part)
    assert (part == size).all()
    # An array of numpy on one side.
    comm.Allreduce(torch.ones(4), array := torch.zeros(4).numpy())
    assert (array == size).all()


def test_started_and_prepared(rank, size):
    tensor = torch.ones(100_000)
    comm.Iallreduce(IN_PLACE, tensor).wait()
    call = comm.Allreduce_init(IN_PLACE, tensor)
    call.Start()
    call.wait()
    call.Free()
    assert (tensor == size**2).all()


def test_views(rank, size):
    rows = torch.zeros(4, 5)
    rows[1:3] = 1
    comm.Allreduce(IN_PLACE, rows[1:3])
    assert (rows[1:3] == size).all() and rows.sum() == 10 * size
    scalar = torch.tensor(1.0)
    comm.Allreduce(IN_PLACE, scalar)
    assert scalar.item() == size
    comm.Allreduce(IN_PLACE, torch.ones(0, 3))


def test_a_torch_that_is_too_old(rank, size):
    refused(earlybird.Unsupported, "use torch 2.10 or newer", _version.require, object)


def test_what_is_refused(rank, size):
    refused(ValueError, "not contiguous", comm.Allreduce, IN_PLACE, torch.ones(4, 6).t())
    refused(ValueError, "not contiguous", comm.Allreduce, IN_PLACE, torch.ones(4, 6)[:, 1])
    refused(BufferError, "gradient", comm.Allreduce, IN_PLACE, torch.ones(3, requires_grad=True))
    refused(BufferError, "conjugate", comm.Allreduce, IN_PLACE, torch.ones(3, dtype=torch.complex64).conj())
    refused(Exception, "", comm.Allreduce, IN_PLACE, torch.eye(2).to_sparse())
    refused(Exception, "", comm.Allreduce, IN_PLACE, torch.ones(2, device="meta"))
    # Nothing of it was shared.
    comm.Barrier()
    # The same by the functions of C.
    refused(ValueError, "not contiguous", memory, torch.ones(4, 6).t())
    refused(RuntimeError, "meta", memory, torch.ones(2, device="meta"))


def main():
    dist.init_process_group("earlybird")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (rank, size) == (comm.rank, comm.size)
    passed = cases.run(globals())
    dist.destroy_process_group()
    sys.stdout.write(f"rank {rank}: {passed} passed\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
