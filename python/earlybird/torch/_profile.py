"""The names of calls in torch's profiler: `earlybird::all_reduce` and others, while it records."""

from contextlib import nullcontext

from torch.autograd import _profiler_enabled as is_recording
from torch.autograd.profiler import record_function

_NAMES = {
    "allreduce": "all_reduce",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_block": "reduce_scatter",
    "bcast": "broadcast",
    "allgather": "all_gather",
    "allgatherv": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "alltoallv": "all_to_all",
    "barrier": "barrier",
}


def recorded(call):
    """A context in which a call of a communicator, blocking or started, is carried out while the profiler records."""
    return record_function("earlybird::" + _NAMES[call.lower().removeprefix("i")])


def recorded_wait():
    """A context in which started calls are waited for."""
    return record_function("earlybird::wait") if is_recording() else nullcontext()
