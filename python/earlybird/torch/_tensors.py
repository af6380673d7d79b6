"""Tensors as the library sees them: the types and operators that it has, addresses, and contiguous copies where a tensor does not
lie in one piece."""

import torch
import torch.distributed as dist

from .. import _native
from .._native import Memory
from ..errors import Unsupported

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
    """The tensor, or a contiguous copy of it."""
    if not tensor.is_cpu or tensor.layout is not torch.strided:
        raise Unsupported(
            f"a tensor on {tensor.device} of layout {tensor.layout} is not supported by earlybird; give dense CPU tensors, or use "
            "the backend of the device"
        )
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    with torch.no_grad():
        return tensor.resolve_conj().resolve_neg().contiguous()


def copy_back(tensor, plain):
    """Copies a result back that is not in its tensor already."""
    if plain is not tensor:
        with torch.no_grad():
            tensor.copy_(plain)


def is_block(part, whole, index):
    """Returns whether a tensor is one of the equal blocks of another one."""
    return part.data_ptr() == whole.data_ptr() + index * part.numel() * part.element_size() and part.numel() > 0


@torch.no_grad()
def concatenate(tensors):
    """The elements of tensors one after the other."""
    return torch.cat([contiguous(tensor).view(-1) for tensor in tensors])


@torch.no_grad()
def take_apart(flat, tensors):
    """Copies elements that lie one after the other into tensors."""
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
        start += tensor.numel()
