"""The report names the rank that is late, in a group of all ranks and in one of some, while the job runs; run by torchrun.

BACKENDS says of which backend the groups are; without it earlybird alone."""

import os
import sys
import time

import earlybird
import earlybird.torch
import torch
import torch.distributed as dist


def calls(is_late, group=None):
    for _ in range(20):
        time.sleep(0.02 if is_late else 0)
        dist.all_reduce(torch.ones(10), group=group)


def main():
    dist.init_process_group(os.environ.get("BACKENDS", "earlybird"))
    rank, size = dist.get_rank(), dist.get_world_size()
    if "EARLYBIRD_TRACE" not in os.environ:
        try:
            earlybird.torch.report()
        except earlybird.Usage as error:
            assert "EARLYBIRD_TRACE" in str(error)
            sys.stdout.write(f"rank {rank}: refused\n")
        return
    assert earlybird.torch.report().straggler is None
    calls(rank == 1)
    report = earlybird.torch.report()
    assert report.calls >= 20 and len(report.ranks) == size and report.tail_p99 >= report.tail_p50 > 0, report
    late = report.straggler
    assert late.rank == 1 and late.last > 0.5 and late.late_p50 > 0 and late.caused > 0, report
    some = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        calls(rank == 0, some)
        report = earlybird.torch.report(some)
        assert report.straggler.rank == 0 and {rank.rank for rank in report.ranks} == {0, size - 1}, report
        assert "rank 0 was last" in str(report), report
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.write(f"rank {rank}: straggler found\n")


if __name__ == "__main__":
    main()
