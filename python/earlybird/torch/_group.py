"""The two kinds of group: one that is earlybird, and earlybird as the backend of a device in a group of several backends.

The first is a `dist.ProcessGroup`: torch's own calls reach it without its dispatcher. The second is needed where torch has to
choose by the device of a tensor, as in `cpu:earlybird,cuda:nccl`.
"""

import sys

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from . import _version
from ._collectives import Collectives


class ProcessGroup(Collectives, dist.ProcessGroup):
    """The ranks of a process group."""

    def __init__(self, store, rank, size, timeout):
        dist.ProcessGroup.__init__(self, rank, size)
        self._join(store, rank, size, timeout)
        self._name, self._description = "", ""

    def setGroupName(self, name):
        self._name = name

    _set_group_name = setGroupName

    def getGroupName(self):
        return self._name

    group_name = property(getGroupName)

    def _title(self):
        return self._name

    def setGroupDesc(self, description):
        self._description = description

    _set_group_desc = setGroupDesc

    def getGroupDesc(self):
        return self._description

    group_desc = property(getGroupDesc)

    def _get_backend(self, device):
        return self


class Backend(Collectives, c10d.Backend):
    """The same ranks, for the tensors of one device of a process group."""

    # torch keeps what is compiled of it, not the object, where it wraps it for TORCH_DISTRIBUTED_DEBUG=DETAIL.
    _kept = set()

    def __init__(self, store, rank, size, timeout):
        c10d.Backend.__init__(self, rank, size)
        self._join(store, rank, size, timeout)
        self._kept.add(self)

    def _title(self):
        return "of one backend of several"

    def shutdown(self):
        self._kept.discard(self)
        Collectives.shutdown(self)

    def abort(self):
        self._kept.discard(self)
        Collectives.abort(self)


def create(options, _):
    """Makes the kind of group that torch asks for by these `_DistributedBackendOptions`."""
    # An older torch does not tell of the group, but the function that calls this one has it.
    group = options.process_group if _version.HAS_BACKENDS_IN_PYTHON else sys._getframe(1).f_locals["pg"]
    # The type of the group's default backend: another one's if there are several.
    is_alone = group._get_backend_name() == "custom"
    if not is_alone:
        _version.require_backends_in_python()
    kind = ProcessGroup if is_alone else Backend
    return kind(options.store, options.group_rank, options.group_size, options.timeout)
