"""Tensors as the library sees them: the types and operators that it has, addresses, and copies where a tensor does not lie in one
piece of the host's memory."""

import torch
import torch.distributed as dist

from .. import _native
from .._native import Memory
from ..errors import Unsupported
from . import _staging

# The types that the library calculates with; others are moved as bytes.
_TYPES = {
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "complex-f32",
    torch.complex128: "complex-f64",
    torch.bool: "bool",
}

# By the numbers of torch's operators, which are found four times as fast as the operators.
_OPS = {
    dist.ReduceOp.SUM.value: _native.SUM,
    dist.ReduceOp.AVG.value: _native.AVG,
    dist.ReduceOp.PRODUCT.value: _native.PROD,
    dist.ReduceOp.MIN.value: _native.MIN,
    dist.ReduceOp.MAX.value: _native.MAX,
    dist.ReduceOp.BAND.value: _native.BAND,
    dist.ReduceOp.BOR.value: _native.BOR,
    dist.ReduceOp.BXOR.value: _native.BXOR,
}
# Truth values are 0 and 1, the same as in torch's other backends.
_BOOL_OPS = _OPS | {
    dist.ReduceOp.SUM.value: _native.LOR,
    dist.ReduceOp.MAX.value: _native.LOR,
    dist.ReduceOp.PRODUCT.value: _native.LAND,
    dist.ReduceOp.MIN.value: _native.LAND,
}


def operator(op, tensor):
    """The library's operator for torch's."""
    known = (_BOOL_OPS if tensor.dtype is torch.bool else _OPS).get(op.op.value)
    if known is None:
        raise Unsupported(f"{op.op} is not supported by earlybird; scale the tensor first and use SUM or AVG")
    return known


def memory(tensor):
    """The place of the elements of a contiguous tensor."""
    name = _TYPES.get(tensor.dtype)
    return Memory(tensor.data_ptr(), tensor.numel(), name or f"bytes-{tensor.element_size()}", tensor)


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
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    with torch.no_grad():
        return tensor.resolve_conj().resolve_neg().contiguous()


def room(tensor):
    """The tensor, or memory on the host for a result of its shape that is copied back."""
    staging = _staging.staging(tensor)
    return contiguous(tensor) if staging is None else staging.empty(tensor.numel(), tensor.dtype).view(tensor.shape)


def empty(count, tensor):
    """Memory on the host for results that are taken apart into tensors like this one."""
    staging = _staging.staging(tensor)
    return torch.empty(count, dtype=tensor.dtype) if staging is None else staging.empty(count, tensor.dtype)


def copy_back(tensor, plain):
    """Copies a result back that is not in its tensor already; returns the mark of copies that go on."""
    return None if plain is tensor else take_apart(plain.view(-1), [tensor])


def is_block(part, whole, index):
    """Returns whether a tensor is one of the equal blocks of another one."""
    return part.data_ptr() == whole.data_ptr() + index * part.numel() * part.element_size() and part.numel() > 0


@torch.no_grad()
def concatenate(tensors):
    """The elements of tensors one after the other."""
    staging = _staging.staging(tensors[0])
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
