"""PyTorch's collectives on tensors of the host: `dist.init_process_group("earlybird")` after `import earlybird.torch`.

A process group is Python here, and nothing is compiled against torch. Calls are carried out before they return, so a `Work` is
complete when it is given back, unless `EARLYBIRD_TORCH_OVERLAP=on` has them started. CUDA tensors are copied to the host and back.
"""

import torch
import torch.distributed as dist

from . import _version
from ._group import Backend, ProcessGroup, create
from ._report import RankReport, Report, report

__all__ = ["Backend", "ProcessGroup", "RankReport", "Report", "report"]

_version.require(torch.Tensor)
dist.Backend.register_backend("earlybird", create, extended_api=True, devices=["cpu"])
