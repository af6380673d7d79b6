"""CUDA tensors in the calls of earlybird.torch, by ranks that share one GPU: every call, the order of streams, training; run by torchrun.

DEVICE=cpu runs what needs no GPU with tensors of the host.
"""

import os
import sys
from contextlib import contextmanager

import cases
import collectives
import earlybird.torch
import messages
import torch
import torch.distributed as dist
import training
from collectives import share, total
from earlybird.torch import _staging

DEVICE = torch.device(os.environ.get("DEVICE", "cuda:0"))
GPU = torch.get_device_module(DEVICE)
IS_CUDA = DEVICE.type == "cuda"
# More than a copy of these elements takes, so that what does not wait for the kernel comes before its end.
CYCLES, COUNT = 40_000_000, 4 << 20


def work_for_a_while():
    """Starts a kernel that takes about 25 ms on the current stream."""
    if IS_CUDA:
        torch.cuda._sleep(CYCLES)


def calls(rank, size, count, dtype):
    """The calls, each with its name, its result and what one process calculates."""
    whole, shares = [count * size], [share(r, [count * size], dtype) for r in range(size)]
    mine, summed, last = shares[rank], total(size, whole, dtype), size - 1
    # Each rank's block of every rank's tensor.
    blocks = [of_rank.chunk(size) for of_rank in shares]
    out, part = torch.zeros(whole, dtype=dtype), torch.zeros(count, dtype=dtype)
    dist.all_reduce(out.copy_(mine))
    yield "all_reduce", out, summed
    dist.all_reduce(out.copy_(mine), dist.ReduceOp.MAX)
    yield "all_reduce by MAX", out, torch.stack(shares).amax(0)
    dist.reduce(out.copy_(mine), last)
    yield "reduce", out, summed if rank == last else mine
    dist.broadcast(out.copy_(mine), last)
    yield "broadcast", out, shares[last]
    gathered = torch.cat([of_rank[0] for of_rank in blocks])
    dist.all_gather_into_tensor(out.zero_(), blocks[rank][0])
    yield "all_gather_into_tensor", out, gathered
    dist.all_gather(list(out.zero_().chunk(size)), blocks[rank][0])
    yield "all_gather", out, gathered
    parts = list(out.zero_().chunk(size))
    dist.gather(blocks[rank][0], parts if rank == last else None, last)
    yield "gather", out, gathered if rank == last else torch.zeros_like(out)
    dist.scatter(part, list(blocks[last]) if rank == last else None, last)
    yield "scatter", part, blocks[last][rank]
    dist.reduce_scatter_tensor(part.zero_(), mine)
    yield "reduce_scatter_tensor", part, summed.chunk(size)[rank]
    dist.reduce_scatter(part.zero_(), list(blocks[rank]))
    yield "reduce_scatter", part, summed.chunk(size)[rank]
    exchanged = torch.cat([of_rank[rank] for of_rank in blocks])
    dist.all_to_all_single(out.zero_(), mine)
    yield "all_to_all_single", out, exchanged
    dist.all_to_all(list(out.zero_().chunk(size)), list(blocks[rank]))
    yield "all_to_all", out, exchanged
    # One tensor on the host.
    dist.all_gather_into_tensor(out.zero_(), blocks[rank][0].cpu())
    yield "all_gather_into_tensor from the host", out, gathered


def test_every_call_by_type_and_size(rank, size):
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for count in (1, 1000, 1 << 20):
            for name, result, expected in calls(rank, size, count, dtype):
                assert torch.equal(result, expected), f"{name} of {count} {dtype}"


# The order of streams: functions that return whether what the program sees is right. Each is called once more with copies that are
# made in a wrong order, and has to find that out.


class Slow(_staging.Cuda):
    """Copies that begin late, as those of a busy GPU."""

    def copy(self, pairs):
        with GPU.stream(self._stream):
            work_for_a_while()
        super().copy(pairs)


class Unordered(_staging.Cuda):
    """Copies that do not wait for the program's stream."""

    def copy(self, pairs):
        with GPU.stream(self._stream):
            for to, source in pairs:
                to.copy_(source, non_blocking=True)


class Unwaited(Slow):
    """Copies that nobody waits for."""

    def mark(self):
        return Passed()


class Passed:
    def wait(self):
        pass

    def is_complete(self):
        return True


class Unrecorded(Slow):
    """Copies whose memory on the device is used again before they are made."""

    def copy(self, pairs):
        with GPU.stream(self._stream):
            work_for_a_while()
        self._stream.wait_stream(GPU.current_stream())
        with GPU.stream(self._stream):
            for to, source in pairs:
                to.copy_(source, non_blocking=True)


@contextmanager
def copies(kind):
    """Has the copies of the GPU made in this way."""
    GPU.synchronize()
    if IS_CUDA:
        before, _staging._of_devices[DEVICE] = _staging.staging(torch.empty(0)), kind(DEVICE)
    yield
    GPU.synchronize()
    if IS_CUDA:
        _staging._of_devices[DEVICE] = before


def is_sum(tensor, size):
    return tensor.eq(size * (size + 1) / 2).all().item()


def ready():
    """A tensor of zeros that no kernel uses any more."""
    tensor = torch.zeros(COUNT)
    GPU.synchronize()
    return tensor


def kernel_before(rank, size):
    tensor = ready()
    work_for_a_while()
    dist.all_reduce(tensor.fill_(rank + 1))
    return is_sum(tensor, size)


def kernel_after(rank, size):
    dist.all_reduce(tensor := ready().fill_(rank + 1))
    # No other kernel comes between the call and this one.
    return is_sum(tensor.clone(), size)


def side_stream_before(rank, size):
    tensor, side = ready(), GPU.Stream()
    with GPU.stream(side):
        work_for_a_while()
        dist.all_reduce(tensor.fill_(rank + 1))
        seen = tensor.clone()
    GPU.current_stream().wait_stream(side)
    return is_sum(seen, size)


def side_stream_after(rank, size):
    tensor, side = ready(), GPU.Stream()
    with GPU.stream(side):
        dist.all_reduce(tensor.fill_(rank + 1))
        seen = tensor.clone()
    GPU.current_stream().wait_stream(side)
    return is_sum(seen, size)


def wait_later(rank, size):
    work = dist.all_reduce(tensor := ready().fill_(rank + 1), async_op=True)
    other = torch.ones(1000).sum()
    work.wait()
    return is_sum(tensor.clone(), size) and other.item() == 1000


def future_later(rank, size):
    future = dist.all_reduce(ready().fill_(rank + 1), async_op=True).get_future()
    return is_sum(future.wait()[0].clone(), size)


def freed(rank, size):
    # The next tensor of this size gets the same memory once it is free.
    GPU.empty_cache() if IS_CUDA else None
    dist.all_reduce(ready().fill_(rank + 1), async_op=True)
    other = torch.full((COUNT,), 7.0)
    GPU.synchronize()
    return other.eq(7).all().item()


def test_order_of_streams(rank, size):
    orders = {
        kernel_before: Unordered,
        kernel_after: Unwaited,
        side_stream_before: Unordered,
        side_stream_after: Unwaited,
        wait_later: Unwaited,
        future_later: Unwaited,
        freed: Unrecorded,
    }
    # Nobody copies for a started call that nobody waits for.
    if os.environ.get("EARLYBIRD_TORCH_OVERLAP") == "on":
        del orders[freed]
    for order, wrong in orders.items():
        for right in (_staging.Cuda, Slow):
            with copies(right):
                assert order(rank, size), f"{order.__name__} with {right.__name__}"
        if IS_CUDA and size > 1:
            with copies(wrong):
                assert not order(rank, size), f"{order.__name__} does not see {wrong.__name__}"


def test_a_call_does_not_wait_for_its_copy_back(rank, size):
    with copies(Slow):
        work = dist.all_reduce(torch.ones(COUNT), async_op=True)
        assert not IS_CUDA or not collectives.is_alone() or not work.is_completed()
        work.wait()
        GPU.synchronize()
        assert not collectives.is_alone() or work.is_completed()


def test_a_negated_tensor_in_a_late_copy(rank, size):
    # torch negates what it has copied, on the host before the copy is made.
    with copies(Slow):
        collectives.test_tensors_that_backends_of_several_do_not_see(rank, size)


def main():
    if IS_CUDA:
        # All ranks use this one: torch would give each its own.
        torch.cuda.set_device(DEVICE)
        torch.cuda.init()
    torch.set_default_device(DEVICE)
    for backend in ["earlybird", "cpu:earlybird,cuda:earlybird"]:
        if not cases.start(backend):
            continue
        rank, size = dist.get_rank(), dist.get_world_size()
        passed = sum(cases.run(vars(script)) for script in (sys.modules[__name__], collectives, messages))
        dist.destroy_process_group()
    training.main()
    sys.stdout.write(f"rank {rank}: {passed} passed\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
