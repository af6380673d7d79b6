"""The versions of torch: what they must have, and what only the newer ones have."""

import torch

from ..errors import Unsupported

# Whether a class of Python can be one backend of several, and is told of the group: so in 2.15, not in 2.10 and 2.11.
HAS_BACKENDS_IN_PYTHON = torch.__version__ >= (2, 15)


def require(tensor_type):
    """Refuses a torch whose tensors do not show their memory by functions of C."""
    if not hasattr(tensor_type, "__dlpack_c_exchange_api__"):
        raise Unsupported(f"torch {torch.__version__} is too old for earlybird.torch; use torch 2.10 or newer")


def require_backends_in_python():
    """Refuses a torch that does not take earlybird as one backend of several."""
    if not HAS_BACKENDS_IN_PYTHON:
        raise Unsupported(
            f"torch {torch.__version__} does not take earlybird as one backend of several; use torch 2.15 or newer, or "
            'init_process_group("earlybird"), which takes tensors of the CPU and of CUDA'
        )
