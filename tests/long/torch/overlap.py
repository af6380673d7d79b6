"""Steps of DistributedDataParallel by blocking calls, by started ones (`EARLYBIRD_TORCH_OVERLAP`) and by gloo in turn, in milliseconds:

    torchrun --nproc-per-node 2 tests/long/torch/overlap.py [STEPS]

Each of eight layers has a bucket of 1 MiB. Lateness is computing for longer in the backward pass: none, one rank 10 ms before its first
bucket, the ranks in turn from step to step, or one rank 2 ms in each layer, the ranks in turn from layer to layer. The median of the
slower rank's steps, as CSV."""

import os
import statistics
import sys
import time

import earlybird.torch  # noqa: F401, the backend of this name
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LAYERS, WIDTH, BATCH = 8, 512, 64
# Milliseconds by step, layer and rank.
PATTERNS = {
    "balanced": lambda step, layer, rank: 0,
    "one-late": lambda step, layer, rank: 10 * (layer == LAYERS - 1 and step % 2 == rank),
    "in-turn": lambda step, layer, rank: 2 * ((layer + step) % 2 == rank),
}
late_ms = [0] * LAYERS


class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, layer):
        ctx.layer = layer
        return values

    @staticmethod
    def backward(ctx, gradient):
        end = time.monotonic() + late_ms[ctx.layer] / 1000
        while time.monotonic() < end:
            pass
        return gradient, None


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))

    def forward(self, values):
        for number, layer in enumerate(self.layers):
            values = torch.relu(Late.apply(layer(values), number))
        return values.sum()


def group(kind):
    os.environ["EARLYBIRD_TORCH_OVERLAP"] = "on" if kind == "started" else "off"
    return dist.new_group(backend="gloo" if kind == "gloo" else "earlybird")


def main():
    dist.init_process_group("gloo")
    steps, rank, clock = int(sys.argv[1]) if len(sys.argv) > 1 else 60, dist.get_rank(), group("blocking")
    models = {
        kind: DistributedDataParallel(Net(), process_group=group(kind), bucket_cap_mb=1) for kind in ("blocking", "started", "gloo")
    }
    values = torch.rand(BATCH, WIDTH)
    if rank == 0:
        print("pattern", *models, sep=",", flush=True)
    for name, late in PATTERNS.items():
        times = {kind: [] for kind in models}
        for step in range(steps + 5):
            late_ms[:] = [late(step, layer, rank) for layer in range(LAYERS)]
            for kind, model in models.items():
                dist.barrier(clock)
                begin = time.monotonic()
                model(values).backward()
                model.zero_grad()
                taken = torch.tensor([1000 * (time.monotonic() - begin)])
                dist.all_reduce(taken, dist.ReduceOp.MAX, clock)
                times[kind].append(taken.item())
        if rank == 0:
            print(name, *(f"{statistics.median(of_kind[5:]):.1f}" for of_kind in times.values()), sep=",", flush=True)
    dist.destroy_process_group()


main()
