"""The tail of `dist.all_reduce` of 8 bytes in parts, in microseconds, as CSV:

    torchrun --nproc-per-node 2 tests/long/torch/cost.py [ROUNDS]

Called in turn are torch's function on a group that does nothing, the communicator's method without torch, and torch's function on
earlybird; each after as much work as the pattern says. A line has the medians of ROUNDS rounds: of the tail, of the time that the rank
spends in the call that arrives last, and of the exit of the other one, both from the last arrival on."""

import random
import statistics
import sys
import time

import torch
import torch.distributed as dist

import earlybird.torch
from earlybird import IN_PLACE, SUM
from earlybird._native import memory

LATE_NS, CALLS = 2_000_000, 150
now = time.monotonic_ns


class Finished(dist.Work):
    def wait(self, timeout=None):
        return True


class Nothing(earlybird.torch.ProcessGroup):
    """A group whose allreduce does nothing: what is left is torch's."""

    def allreduce(self, tensors, opts=None):
        return FINISHED


FINISHED = Finished()
dist.Backend.register_backend(
    "nothing", lambda of, _: Nothing(of.store, of.group_rank, of.group_size, of.timeout), extended_api=True, devices=["cpu"]
)


def times(call, values, late, clock):
    """The tail, the time of the last rank's call, and the other's exit."""
    values.fill_(1)
    dist.barrier(clock)
    begin = now() + random.randrange(20_000) + (LATE_NS if dist.get_rank() == late else 0)
    while now() < begin:
        pass
    arrival = now()
    call()
    exit = now()
    everyone = [torch.zeros(2, dtype=torch.int64) for _ in range(2)]
    dist.all_gather(everyone, torch.tensor([arrival, exit]), group=clock)
    (_, other_exit), (last, last_exit) = sorted(times.tolist() for times in everyone)
    return max(other_exit, last_exit) - last, last_exit - last, other_exit - last


def main():
    dist.init_process_group("earlybird")
    group, nothing, clock = dist.new_group(), dist.new_group(backend="nothing"), dist.new_group()
    values, communicator = torch.empty(2), group._comm
    place = memory(values)
    calls = {
        "torch": lambda: dist.all_reduce(values, group=nothing),
        "communicator": lambda: communicator.Allreduce(IN_PLACE, place, SUM),
        "both": lambda: dist.all_reduce(values, group=group),
    }
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    if dist.get_rank() == 0:
        print("pattern,call,tail_us,last_rank_us,other_exit_us", flush=True)
    for pattern in ("balanced", "one-late"):
        medians = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                of_calls = [times(call, values, at % 2 if pattern == "one-late" else None, clock) for at in range(CALLS)]
                medians[name].append([statistics.median(part) / 1000 for part in zip(*of_calls[10:])])
        for name, of_rounds in medians.items():
            if dist.get_rank() == 0:
                print(pattern, name, *(f"{statistics.median(part):.1f}" for part in zip(*of_rounds)), sep=",", flush=True)
    dist.destroy_process_group()


main()
