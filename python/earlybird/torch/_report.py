"""Late ranks: the trace of a job (`EARLYBIRD_TRACE`) read while the job runs, for each process group."""

import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist

from .._native import read_lateness
from ..errors import Error, Usage


@dataclass(frozen=True)
class RankReport:
    """A rank's part in the calls of a group. Times are microseconds."""

    #: Its number in the job.
    rank: int
    #: Part of the calls at which it was the last to arrive.
    last: float
    #: Time that it came behind the first: the median, and what 1 % of its calls exceed.
    late_p50: float
    late_p99: float
    #: Time that others waited for it after all but it had arrived.
    caused: float
    #: Time that it waited for ranks that had not arrived.
    waited: float


@dataclass(frozen=True)
class Report:
    """The calls that all ranks of a group have made, the last ones of the trace. Times are microseconds."""

    group: str
    calls: int
    #: Time from the last arrival to the last exit: the median, and what 1 % of the calls exceed.
    tail_p50: float
    tail_p99: float
    ranks: list[RankReport]

    @property
    def straggler(self):
        """The rank that the others waited for most, `None` without calls."""
        return max(self.ranks, key=lambda rank: rank.caused, default=None)

    def summary(self):
        """Returns the report as one line."""
        worst = self.straggler
        if worst is None:
            return f"earlybird: group {self.group}: no call is on record for all ranks"
        waited = sum(rank.caused for rank in self.ranks)
        return (
            f"earlybird: group {self.group}: rank {worst.rank} was last in {worst.last:.0%} of {self.calls} calls and caused "
            f"{worst.caused / max(waited, 1e-9):.0%} of {waited / 1e6:.3f} s that ranks waited for a last one; tail {self.tail_p50:.0f} us, "
            f"at most {self.tail_p99:.0f} us in 99 %"
        )

    def __str__(self):
        lines = ["rank  last %  late us p50      p99  caused ms  waited ms"]
        lines += [
            f"{rank.rank:4}  {100 * rank.last:6.1f}  {rank.late_p50:11.1f}  {rank.late_p99:7.1f}  {rank.caused / 1e3:9.1f}  {rank.waited / 1e3:9.1f}"
            for rank in self.ranks
        ]
        return "\n".join([self.summary(), *lines])


def report(group=None):
    """Returns the report of a group, by default of all ranks; any rank may ask, and none waits."""
    group = group or dist.group.WORLD
    comm = getattr(group, "_comm", None) or group._get_backend(torch.device("cpu"))._comm
    return report_of(comm, group.group_name)


def report_of(comm, name):
    """Returns the report of a communicator."""
    trace = comm.trace
    if trace is None:
        raise Usage("calls are not recorded; set EARLYBIRD_TRACE to the name of a file before the group is made")
    ranks, tails = read_lateness(os.environ["EARLYBIRD_TRACE"], trace)
    rows = [
        RankReport(rank, last / calls, *(ns / 1e3 for ns in times)) for rank, calls, last, *times in ranks
    ]
    return Report(name, ranks[0][1] if ranks else 0, *(ns / 1e3 for ns in tails), rows)


def write_summary(comm, name):
    """Writes the line of a group that ends, once in the group, where calls are recorded."""
    if comm.rank == 0 and comm.trace is not None:
        try:
            line = report_of(comm, name).summary()
        except Error as error:  # The files may be gone; the group ends all the same.
            line = f"earlybird: group {name}: no report: {error}"
        sys.stderr.write(line + "\n")
