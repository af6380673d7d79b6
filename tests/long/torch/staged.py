"""Another script with tensors that are copied to and from staging memory, as a GPU's are; run by torchrun, SCRIPT names the other.

No GPU takes part: the copies are made by the host, each as late as a GPU might make it.
"""

import importlib
import os
import sys

import earlybird.torch
import torch
import torch.distributed as dist
from earlybird.torch import _staging


class Late(_staging.Staging):
    """Copies that are made when somebody waits for them, or one at each question whether they are made."""

    def __init__(self):
        self.waiting, self.made = [], 0

    def empty(self, count, dtype):
        # No number of a result, whatever is forgotten.
        return torch.full((count * dtype.itemsize,), 0x55, dtype=torch.uint8).view(dtype)

    def copy(self, pairs):
        self.waiting += pairs

    def make(self, number):
        for to, source in self.waiting[:number]:
            with torch.no_grad():
                to.copy_(source)
        self.made += len(self.waiting[:number])
        del self.waiting[:number]

    def finish(self):
        self.make(len(self.waiting))

    def mark(self):
        return Mark(self)


class Mark:
    def __init__(self, copies):
        self.copies, self.end = copies, copies.made + len(copies.waiting)

    def wait(self):
        self.copies.make(max(0, self.end - self.copies.made))

    def is_complete(self):
        self.copies.make(1)
        return self.copies.made >= self.end


def check(late):
    """A result is there after the wait and not before it, and equals that of tensors that are not copied, to the last bit."""
    dist.init_process_group("earlybird")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    # Each with the number of its result's blocks, and with the ranks whose result is not there before the call.
    everyone, first = range(size), [0]
    calls = [
        (lambda out, of: dist.all_reduce(out.copy_(of), async_op=True), 1, everyone),
        (lambda out, of: dist.all_reduce(out.copy_(of), dist.ReduceOp.AVG, async_op=True), 1, everyone),
        (lambda out, of: dist.reduce(out.copy_(of), 0, async_op=True), 1, first),
        (lambda out, of: dist.broadcast(out.copy_(of), size - 1, async_op=True), 1, everyone[:-1]),
        (lambda out, of: dist.all_gather_into_tensor(out, of, async_op=True), size, everyone),
        (lambda out, of: dist.all_gather(list(out.chunk(size)), of, async_op=True), size, everyone),
        (lambda out, of: dist.gather(of, list(out.chunk(size)) if rank == 0 else None, 0, async_op=True), size, first),
        (lambda out, of: dist.scatter(out, [of + r for r in everyone] if rank == 0 else None, 0, async_op=True), 1, everyone),
        (lambda out, of: dist.reduce_scatter_tensor(out, of.repeat(size), async_op=True), 1, everyone),
        (lambda out, of: dist.reduce_scatter(out, [of + r for r in everyone], async_op=True), 1, everyone),
        (lambda out, of: dist.all_to_all_single(out, of.repeat(size) + rank, async_op=True), size, everyone),
        (lambda out, of: dist.all_to_all(list(out.chunk(size)), [of + r for r in everyone], async_op=True), size, everyone),
    ]
    for number, (call, blocks, changed) in enumerate(calls):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            for count in (1000, 30_000):
                own = torch.rand(count).to(dtype)
                expected, result = torch.zeros(2, count * blocks, dtype=dtype)
                _staging.staging = lambda tensor: None
                call(expected, own).wait()
                _staging.staging = lambda tensor: late
                work = call(result, own)
                assert rank not in changed or not torch.equal(result, expected), f"call {number} is not late"
                work.wait()
                assert torch.equal(result, expected), (number, dtype, count)
    dist.destroy_process_group()


def main():
    late = Late()
    check(late)
    _staging.staging = lambda tensor: late
    failed = importlib.import_module(os.environ["SCRIPT"]).main()
    assert late.made > 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
