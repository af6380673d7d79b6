"""Tensors as the library sees them: the types and operators that it has, addresses, and copies where a tensor does not lie in one
piece of the host's memory."""

import torch
import torch.distributed as dist

from .. import _native
from ..errors import Unsupported
from . import _staging


def _by_number(**ops):
    """Operators by the numbers of torch's, which are its hash values: looking up a number takes a quarter of the time of looking up an
    operator."""
    return {hash(dist.ReduceOp(getattr(dist.ReduceOp, name))): op for name, op in ops.items()}


_OPS = _by_number(
    SUM=_native.SUM,
    AVG=_native.AVG,
    PRODUCT=_native.PROD,
    MIN=_native.MIN,
    MAX=_native.MAX,
    BAND=_native.BAND,
    BOR=_native.BOR,
    BXOR=_native.BXOR,
)
# Truth values are 0 and 1, the same as in torch's other backends.
_BOOL_OPS = _OPS | _by_number(SUM=_native.LOR, MAX=_native.LOR, PRODUCT=_native.LAND, MIN=_native.LAND)


def operator(op, tensor):
    """The library's operator for torch's."""
    known = (_BOOL_OPS if tensor.dtype is torch.bool else _OPS).get(hash(op))
    if known is None:
        raise Unsupported(f"{op.op} is not supported by earlybird; scale the tensor first and use SUM or AVG")
    return known


def contiguous(tensor):
    """The tensor, or a copy of it that is contiguous and on the host."""
    if not (tensor.is_cpu or tensor.is_cuda) or tensor.layout is not torch.strided:
        raise Unsupported(
            f"a tensor on {tensor.device} of layout {tensor.layout} is not supported by earlybird; give dense tensors of the CPU "
            "or of CUDA, or use the backend of the device"
        )
    staging = _staging.staging(tensor)
    if staging is not None:
        return staging.to_host([tensor]).view(tensor.shape)
    if tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj():
        return tensor
    with torch.no_grad():
        return tensor.resolve_conj().resolve_neg().contiguous()


def room(tensor):
    """The tensor, or memory on the host for a result of its shape that is copied back."""
    staging = _staging.staging(tensor)
    return contiguous(tensor) if staging is None else staging.empty(tensor.numel(), tensor.dtype).view(tensor.shape)


def room_for_all(tensors):
    """Memory on the host for results that are taken apart into tensors."""
    staging, count, dtype = _staging.staging_of(tensors), sum(tensor.numel() for tensor in tensors), tensors[0].dtype
    return torch.empty(count, dtype=dtype, device="cpu") if staging is None else staging.empty(count, dtype)


def is_block(part, whole, index):
    """Returns whether a tensor is one of the equal blocks of another one."""
    return part.data_ptr() == whole.data_ptr() + index * part.numel() * part.element_size() and part.numel() > 0


@torch.no_grad()
def concatenate(tensors):
    """The elements of tensors one after the other."""
    staging = _staging.staging_of(tensors)
    return torch.cat([contiguous(tensor).view(-1) for tensor in tensors]) if staging is None else staging.to_host(tensors)


@torch.no_grad()
def take_apart(flat, tensors):
    """Copies elements that lie one after the other into tensors; returns the mark of copies that go on."""
    staging = _staging.staging(tensors[0])
    if staging is not None:
        return staging.to_device(flat, tensors)
    for tensor, part in _staging.parts(flat, tensors):
        tensor.copy_(part)
    return None
