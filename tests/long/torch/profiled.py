"""torch's profiler names the calls of a group, those and no others; run by torchrun."""

import os
import sys
from collections import Counter

import earlybird.torch
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile


def calls(rank, size):
    """Every call, with the name of its event."""
    part, whole = torch.ones(3), torch.ones(3 * size)
    parts = list(whole.chunk(size))
    yield "all_reduce", dist.all_reduce(part, async_op=True)
    yield "all_reduce", dist.all_reduce(torch.ones(100_000), async_op=True)
    yield "reduce", dist.reduce(part, 0, async_op=True)
    yield "broadcast", dist.broadcast(part, 0, async_op=True)
    yield "all_gather", dist.all_gather(parts, part, async_op=True)
    yield "all_gather", dist.all_gather_into_tensor(whole, part, async_op=True)
    yield "reduce_scatter", dist.reduce_scatter(part, parts, async_op=True)
    yield "reduce_scatter", dist.reduce_scatter_tensor(part, whole, async_op=True)
    # In place.
    yield "reduce_scatter", dist.reduce_scatter_tensor(whole[3 * rank :][:3], whole, async_op=True)
    yield "gather", dist.gather(part, parts if rank == 0 else None, 0, async_op=True)
    yield "scatter", dist.scatter(part, parts if rank == 0 else None, 0, async_op=True)
    yield "all_to_all", dist.all_to_all(list(torch.ones(3 * size).chunk(size)), parts, async_op=True)
    yield "all_to_all", dist.all_to_all_single(torch.ones(3 * size), whole, async_op=True)
    yield "barrier", dist.barrier(async_op=True)


def main():
    dist.init_process_group("earlybird")
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(torch.ones(1))
    expected = Counter()
    with profile(activities=[ProfilerActivity.CPU]) as record:
        for name, work in calls(rank, size):
            expected[f"earlybird::{name}"] += 1
            work.wait()
            if os.environ.get("EARLYBIRD_TORCH_OVERLAP") == "on":
                expected["earlybird::wait"] += 1
    dist.all_reduce(torch.ones(1))
    found = Counter({event.key: event.count for event in record.key_averages() if event.key.startswith("earlybird::")})
    assert found == expected, (found, expected)
    assert "earlybird::all_reduce" in record.key_averages().table()
    dist.destroy_process_group()
    sys.stdout.write(f"rank {rank}: calls named\n")


if __name__ == "__main__":
    main()
