"""The tests of collectives that torch itself ships, on this backend, against the list of those that do not pass and why.

`python suite.py` runs all on 2 ranks and refuses when the outcome is not the list's; `python suite.py NAME...` runs these. The list
is `suite.txt`: a line per test that is skipped or fails, with the reason; every other test passes. earlybird stands in gloo's place,
since torch skips most of its tests for a name that it does not know.
"""

import os
import sys
import unittest
from pathlib import Path

# torch's tests read them while they are imported.
os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": "2"}

import earlybird.torch
import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed
from torch.testing._internal.distributed import distributed_test
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

common_distributed.TIMEOUT_DEFAULT = 120
# They look for events that are called after gloo, beside what they test.
distributed_test.PROFILING_SUPPORTED_BACKENDS.clear()
distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.clear()


def create(options, _):
    return earlybird.torch.ProcessGroup(options.store, options.group_rank, options.group_size, options.timeout)


dist.Backend.register_backend("gloo", create, extended_api=True, devices=["cpu"])


class Suite(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        # By fork, so that torch is imported once.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def outcome(name):
    """The end of a test: "passes", "skipped" or "fails", and the reason that it gives."""
    result = unittest.TestResult()
    Suite(name).run(result)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    if result.errors or result.failures:
        # The traceback of a rank lies behind that of the test.
        lines = (result.errors + result.failures)[0][1].splitlines()
        raised = [line for line in lines if not line.startswith((" ", "Traceback", "RuntimeError: Process"))]
        return "fails", (raised or lines)[0]
    return "passes", ""


def expected(text):
    """The outcomes by the lines of a list."""
    lines = [line.split(maxsplit=2) for line in text.splitlines() if line and not line.startswith("#")]
    short = [line for line in lines if len(line) < 3]
    assert not short, f"a line is NAME skipped|fails REASON, not {short[0]}"
    return {name: said for name, said, _ in lines}


def differences(found, listed):
    """Lines for what was found and is not in the list, and for what is in the list and was not found."""
    passes = dict.fromkeys(found, "passes")
    return [
        f"{name}: {found.get(name, 'there is no such test')}, and the list says {(passes | listed)[name]}"
        for name in sorted(found.keys() | listed.keys())
        if found.get(name) != (passes | listed)[name]
    ]


def refuses():
    """The comparison notices a test more that fails, one that passes now, and one that is gone."""
    listed = expected("# a comment\n\na fails for a reason\nb skipped too\n")
    assert differences({"a": "fails", "b": "skipped", "c": "passes"}, listed) == []
    found = {"a": "passes", "c": "fails"}
    assert [line.split(":")[0] for line in differences(found, listed)] == ["a", "b", "c"]


def main():
    refuses()
    names = sys.argv[1:] or unittest.TestLoader().getTestCaseNames(Suite)
    listed = expected(Path(__file__).with_suffix(".txt").read_text())
    found = {}
    for name in names:
        found[name], reason = outcome(name)
        print(name, found[name], reason, flush=True)
    if sys.argv[1:]:
        listed = {name: said for name, said in listed.items() if name in found}
    wrong = differences(found, listed)
    counts = [sum(said == which for said in found.values()) for which in ("passes", "skipped", "fails")]
    print("{} passed, {} skipped, {} failed, ".format(*counts) + (f"{len(wrong)} not as listed" if wrong else "as listed"))
    print("\n".join(wrong))
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
