"""Tails of an allreduce by earlybird, by gloo and by DeepSpeed's shared memory in turn, from the last arrival to the last exit, in
microseconds, as CSV:

    torchrun --nproc-per-node 2 tests/long/torch/rivals.py [--device cuda] [--calls 300] [--patterns balanced,one-late]

Each line has the medians of the calls of one size and pattern, and the ratios. From 1 MiB on a fifth of the calls is made. The result of
every call is checked. On a GPU, which all ranks share, a rank arrives when its tensor is written, and exits when the result is. DeepSpeed
is left out there, and where it is not installed (`pip install deepspeed ninja`, and a C++ compiler, by which it builds its part)."""

import argparse
import importlib.util
import os
import random
import statistics
import time
from functools import partial

import torch
import torch.distributed as dist

import earlybird.torch  # noqa: F401, the backend of this name

SIZES = [8, 1 << 10, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20]
LATE_NS = 2_000_000


def tail(all_reduce, values, late, clock):
    """The tail of one call, in microseconds; the rank `late` arrives later than the others."""
    rank, size = dist.get_rank(), dist.get_world_size()
    synchronize = torch.get_device_module(values.device).synchronize
    values.fill_(rank + 1.0)
    synchronize()
    dist.barrier(clock)
    begin = time.monotonic_ns() + random.randrange(20_000) + (LATE_NS if rank == late else 0)
    while time.monotonic_ns() < begin:
        pass
    arrival = time.monotonic_ns()
    all_reduce(values)
    synchronize()
    times = torch.tensor([arrival, time.monotonic_ns()])
    if values[0] != size * (size + 1) / 2 or values[-1] != values[0]:
        raise SystemExit(f"rank {rank}: {values[0]} and {values[-1]} are wrong")
    dist.all_reduce(times, op=dist.ReduceOp.MAX, group=clock)
    return (times[1] - times[0]).item() / 1000


def deepspeed():
    """DeepSpeed's allreduce of tensors of the host, all ranks being on one."""
    os.environ["LOCAL_SIZE"] = str(dist.get_world_size())
    from deepspeed.ops.op_builder.cpu.comm import ShareMemCommBuilder

    ShareMemCommBuilder().load(verbose=False).initialize(dist.get_world_size(), dist.get_rank())
    return torch.ops.deepspeed.inference_all_reduce_


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--patterns", default="balanced,one-late")
    asked = parser.parse_args()
    dist.init_process_group("gloo")
    libraries = {name: partial(dist.all_reduce, group=dist.new_group(backend=name)) for name in ("earlybird", "gloo")}
    if asked.device == "cpu" and importlib.util.find_spec("deepspeed"):
        libraries["deepspeed"] = deepspeed()
    rivals = list(libraries)[1:]
    # Lines up the ranks and compares their clocks: gloo would leave threads awake.
    clock = dist.new_group(backend="earlybird")
    size = dist.get_world_size()
    if dist.get_rank() == 0:
        print("ranks,pattern,bytes,earlybird_us", *(f"{rival}_us,{rival}_ratio" for rival in rivals), sep=",", flush=True)
    for pattern in asked.patterns.split(","):
        for nbytes in SIZES:
            values, calls = torch.empty(nbytes // 4, device=asked.device), asked.calls if nbytes < 1 << 20 else asked.calls // 5
            tails = {library: [] for library in libraries}
            for call in range(calls + 10):
                late = call % size if pattern == "one-late" else None
                for library, all_reduce in libraries.items():
                    tails[library].append(tail(all_reduce, values, late, clock))
            ours, *others = (statistics.median(of_library[10:]) for of_library in tails.values())
            if dist.get_rank() == 0:
                print(size, pattern, nbytes, f"{ours:.1f}", *(f"{us:.1f},{ours / us:.3f}" for us in others), sep=",", flush=True)
    dist.destroy_process_group()


main()
