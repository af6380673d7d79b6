"""PyTorch's collectives on CPU tensors of one node: `dist.init_process_group("earlybird")` after `import earlybird.torch`.

A process group is Python here, `dist.ProcessGroup` subclassed: torch's own calls reach it without its dispatcher, and nothing is
compiled against torch. Calls are carried out before they return, so a `Work` is complete when it is given back. Methods that
torch 2.15 renamed have their new and their old name.
"""

import os
import secrets
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from . import _native
from ._native import IN_PLACE, Memory
from .errors import Unsupported

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


def _operator(op, tensor):
    """The library's operator for torch's."""
    known = (_BOOL_OPS if tensor.dtype is torch.bool else _OPS).get(op.op.value)
    if known is None:
        raise Unsupported(f"{op.op} is not supported by earlybird; scale the tensor first and use SUM or AVG")
    return known


def _memory(tensor):
    """Where the elements of a contiguous tensor lie."""
    name = _TYPES.get(tensor.dtype)
    return Memory(tensor.data_ptr(), tensor.numel(), name or f"bytes-{tensor.element_size()}")


def _plain(tensor):
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


def _copy_back(tensor, plain):
    """Copies a result back that is not in its tensor already."""
    if plain is not tensor:
        with torch.no_grad():
            tensor.copy_(plain)


def _is_block(part, whole, index):
    """Returns whether a tensor is one of the equal blocks of another one."""
    return part.data_ptr() == whole.data_ptr() + index * part.numel() * part.element_size() and part.numel() > 0


@torch.no_grad()
def _flat(tensors):
    """The elements of tensors one after the other."""
    return torch.cat([_plain(tensor).view(-1) for tensor in tensors])


@torch.no_grad()
def _take_apart(flat, tensors):
    """Copies elements that lie one after the other into tensors."""
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
        start += tensor.numel()


class _Done(Work):
    """A call that was carried out."""

    def __init__(self, tensors):
        super().__init__()
        self._tensors = tensors

    def wait(self, timeout=timedelta(0)):
        return True

    def is_completed(self):
        return True

    def is_success(self):
        return True

    def exception(self):
        return None

    def synchronize(self):
        pass

    def result(self):
        return self._tensors

    def get_future(self):
        future = torch.futures.Future()
        future.set_result(self._tensors)
        return future


def _node():
    """Names the node of this process: only processes with one kernel and one /dev/shm share memory."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f"{boot}/{os.stat('/dev/shm').st_dev}"


def _join(store, rank, size, timeout):
    """Joins the ranks of a store, under a name that no other group has had."""
    # Counted per rank, so that a store that is used again has no old answers.
    time = store.add(f"earlybird/{rank}/joins", 1)
    if rank == 0:
        store.set(f"earlybird/{time}/job", secrets.token_hex(16))
    store.set(f"earlybird/{time}/node/{rank}", _node())
    nodes = [store.get(f"earlybird/{time}/node/{other}") for other in range(size)]
    apart = [other for other in range(size) if nodes[other] != nodes[0]]
    if apart:
        raise Unsupported(
            f"rank 0 and rank {apart[0]} do not share memory: they run on different nodes, or in containers with a /dev/shm of their "
            "own; earlybird.torch is for the ranks of one node so far, use gloo or nccl between nodes"
        )
    job = store.get(f"earlybird/{time}/job").decode()
    seconds = timeout.total_seconds()
    return _native.Communicator(f"torch-{job}", rank, size, timeout=seconds if seconds > 0 else None)


class ProcessGroup(dist.ProcessGroup):
    """The ranks of a process group, which share a node."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._comm = _join(store, rank, size, timeout)
        # torch calls from several threads: backward, hooks, checkpoints.
        self._lock = threading.Lock()
        self._rank, self._size = rank, size
        self._name, self._description, self._calls = "", "", 0

    def _call(self, method, *args):
        with self._lock:
            self._calls += 1
            method(*args)

    # The identity of the group

    def getBackendName(self):
        return "earlybird"

    name = getBackendName

    def setGroupName(self, name):
        self._name = name

    _set_group_name = setGroupName

    def getGroupName(self):
        return self._name

    group_name = property(getGroupName)

    def setGroupDesc(self, description):
        self._description = description

    _set_group_desc = setGroupDesc

    def getGroupDesc(self):
        return self._description

    group_desc = property(getGroupDesc)

    def setSequenceNumberForGroup(self):
        pass

    def getSequenceNumberForGroup(self):
        return self._calls

    _get_sequence_number_for_group = getSequenceNumberForGroup

    def supportsTensorAlloc(self, device):
        return False

    def shutdown(self):
        self._comm.free()

    def abort(self):
        # The other ranks learn of it as of a rank that has left.
        self._comm.free()

    # Reductions

    def allreduce(self, tensors, opts=None):
        op = dist.ReduceOp(dist.ReduceOp.SUM) if opts is None else opts.reduceOp
        for tensor in tensors:
            plain = _plain(tensor)
            self._call(self._comm.Allreduce, IN_PLACE, _memory(plain), _operator(op, tensor))
            _copy_back(tensor, plain)
        return _Done(tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        if len(tensors) < 2 or len({tensor.dtype for tensor in tensors}) > 1:
            return self.allreduce(tensors, opts)
        flat = _flat(tensors)
        self.allreduce([flat], opts)
        _take_apart(flat, tensors)
        return _Done(tensors)

    def reduce(self, tensors, opts):
        for tensor in tensors:
            op = _operator(opts.reduceOp, tensor)
            if self._rank == opts.rootRank:
                plain = _plain(tensor)
                self._call(self._comm.Reduce, IN_PLACE, _memory(plain), op, opts.rootRank)
                _copy_back(tensor, plain)
            else:
                plain = _plain(tensor)
                self._call(self._comm.Reduce, _memory(plain), None, op, opts.rootRank)
        return _Done(tensors)

    def reduce_scatter(self, outputs, inputs, opts):
        for output, parts in zip(outputs, inputs, strict=True):
            counts = [part.numel() for part in parts]
            self._reduce_scatter(output, _flat(parts), counts, opts.reduceOp)
        return _Done(outputs)

    def reduce_scatter_single(self, output, input, opts):
        self._reduce_scatter(output, _plain(input), None, opts.reduceOp)
        return _Done([output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        for output, input in zip(outputs, inputs, strict=True):
            self._reduce_scatter(output, _plain(input), None, opts.reduceOp)
        return _Done(outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter(self, output, input, counts, op):
        op = _operator(op, input)
        if _is_block(output, input, self._rank) and counts is None:
            self._call(self._comm.Reduce_scatter_block, IN_PLACE, _memory(input), op)
            return
        plain = _plain(output)
        self._call(self._comm.Reduce_scatter, _memory(input), _memory(plain), counts, op)
        _copy_back(output, plain)

    # Data movement

    def broadcast(self, tensors, opts):
        for tensor in tensors:
            plain = _plain(tensor)
            self._call(self._comm.Bcast, _memory(plain), opts.rootRank)
            _copy_back(tensor, plain)
        return _Done(tensors)

    def allgather(self, outputs, inputs, opts=None):
        for parts, input in zip(outputs, inputs, strict=True):
            flat = torch.empty(sum(part.numel() for part in parts), dtype=input.dtype)
            counts, plain = [part.numel() for part in parts], _plain(input)
            self._call(self._comm.Allgatherv, _memory(plain), [_memory(flat), counts])
            _take_apart(flat, parts)
        return _Done(outputs)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        # By rank and tensor, where allgather has by tensor and rank.
        return self.allgather([list(of_all) for of_all in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output, input, opts=None):
        self._all_gather(output, input)
        return _Done([output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        for output, input in zip(outputs, inputs, strict=True):
            self._all_gather(output, input)
        return _Done(outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _all_gather(self, output, input):
        whole = _plain(output)
        part = _plain(input)
        # FSDP2 gathers in place.
        contribution = IN_PLACE if _is_block(part, whole, self._rank) else _memory(part)
        self._call(self._comm.Allgather, contribution, _memory(whole))
        _copy_back(output, whole)

    def gather(self, outputs, inputs, opts):
        [input] = inputs
        plain = _plain(input)
        if self._rank != opts.rootRank:
            self._call(self._comm.Gather, _memory(plain), None, opts.rootRank)
            return _Done([])
        [parts] = outputs
        flat = torch.empty(sum(part.numel() for part in parts), dtype=input.dtype)
        self._call(self._comm.Gather, _memory(plain), _memory(flat), opts.rootRank)
        _take_apart(flat, parts)
        return _Done(parts)

    def gather_single(self, output, input, opts):
        plain = _plain(input)
        if self._rank != opts.rootRank:
            self._call(self._comm.Gather, _memory(plain), None, opts.rootRank)
            return _Done([])
        whole = _plain(output)
        self._call(self._comm.Gather, _memory(plain), _memory(whole), opts.rootRank)
        _copy_back(output, whole)
        return _Done([output])

    gather_into_tensor = gather_single

    def scatter(self, outputs, inputs, opts):
        [output] = outputs
        plain = _plain(output)
        flat = _flat(inputs[0]) if self._rank == opts.rootRank else None
        send = None if flat is None else _memory(flat)
        self._call(self._comm.Scatter, send, _memory(plain), opts.rootRank)
        _copy_back(output, plain)
        return _Done(outputs)

    def all_to_all_single(self, output, input, output_splits, input_splits, opts=None):
        plain_input = _plain(input)
        plain = _plain(output)
        send = self._split(plain_input, input_splits)
        self._call(self._comm.Alltoallv, [_memory(plain_input), send], [_memory(plain), self._split(plain, output_splits)])
        _copy_back(output, plain)
        return _Done([output])

    alltoall_base = all_to_all_single

    def _split(self, tensor, splits):
        """Elements of each rank's block: of as many rows as the splits say, or of equal blocks."""
        if not splits:
            return [tensor.numel() // self._size] * self._size
        row = tensor.numel() // tensor.shape[0] if tensor.shape[0] else 0
        return [row * split for split in splits]

    def alltoall(self, outputs, inputs, opts=None):
        send = _flat(inputs)
        recv = torch.empty(sum(output.numel() for output in outputs), dtype=send.dtype)
        counts = [[tensor.numel() for tensor in tensors] for tensors in (inputs, outputs)]
        self._call(self._comm.Alltoallv, [_memory(send), counts[0]], [_memory(recv), counts[1]])
        _take_apart(recv, outputs)
        return _Done(outputs)

    def barrier(self, opts=None):
        self._call(self._comm.Barrier)
        return _Done([])

    def monitoredBarrier(self, opts=None, wait_all_ranks=False):
        # A late rank is named by the deadline, a dead one at once.
        self._call(self._comm.Barrier)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        self.monitoredBarrier()

    # Calls between these two are carried out one by one.

    def startCoalescing(self, device_type=None):
        pass

    def endCoalescing(self, device_type=None):
        return _Done([])

    _start_coalescing = startCoalescing
    _end_coalescing = endCoalescing

    def _no_messages(self, *args, **kwargs):
        raise Unsupported("send and recv are not supported by earlybird so far; use a group of gloo for them: dist.new_group(backend='gloo')")

    send = recv = recvAnysource = recv_anysource = _no_messages


def _create(options, backend_options=None):
    return ProcessGroup(options.store, options.group_rank, options.group_size, options.timeout)


dist.Backend.register_backend("earlybird", _create, extended_api=True, devices=["cpu"])
