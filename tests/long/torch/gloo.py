"""Tails of `dist.all_reduce` by earlybird and by gloo in turn, from the last arrival to the last exit, in microseconds, as CSV:

    torchrun --nproc-per-node 2 tests/long/torch/gloo.py

Each line has the medians of the calls of one size and pattern and their ratio. The result of every call is checked."""

import random
import statistics
import time

import torch
import torch.distributed as dist

import earlybird.torch  # noqa: F401, the backend of this name

SIZES = [8, 1 << 10, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20]
LATE_NS = 2_000_000


def tail(group, values, late, clock):
    """The tail of one call, in microseconds; the rank `late` arrives later than the others."""
    rank, size = dist.get_rank(), dist.get_world_size()
    values.fill_(rank + 1.0)
    dist.barrier(clock)
    begin = time.monotonic_ns() + random.randrange(20_000) + (LATE_NS if rank == late else 0)
    while time.monotonic_ns() < begin:
        pass
    arrival = time.monotonic_ns()
    dist.all_reduce(values, group=group)
    times = torch.tensor([arrival, time.monotonic_ns()])
    if values[0] != size * (size + 1) / 2 or values[-1] != values[0]:
        raise SystemExit(f"rank {rank}: {values[0]} and {values[-1]} are wrong")
    dist.all_reduce(times, op=dist.ReduceOp.MAX, group=clock)
    return (times[1] - times[0]).item() / 1000


def main():
    dist.init_process_group("gloo")
    groups = [dist.new_group(backend="earlybird"), dist.new_group(backend="gloo")]
    # Lines up the ranks and compares their clocks: gloo would leave threads awake.
    clock = dist.new_group(backend="earlybird")
    size = dist.get_world_size()
    if dist.get_rank() == 0:
        print("ranks,pattern,bytes,earlybird_us,gloo_us,ratio", flush=True)
    for pattern in ("balanced", "one-late"):
        for nbytes in SIZES:
            values, calls = torch.empty(nbytes // 4), 300 if nbytes < 1 << 20 else 60
            tails = [[], []]
            for call in range(calls + 10):
                late = call % size if pattern == "one-late" else None
                for group, of_group in zip(groups, tails, strict=True):
                    of_group.append(tail(group, values, late, clock))
            ours, gloo = (statistics.median(of_group[10:]) for of_group in tails)
            if dist.get_rank() == 0:
                print(f"{size},{pattern},{nbytes},{ours:.1f},{gloo:.1f},{ours / gloo:.3f}", flush=True)
    dist.destroy_process_group()


main()
