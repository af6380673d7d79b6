"""The collectives by the names and arguments of torch, under the new ones of 2.15 and the old ones: what a process group does."""

import os
import threading

import torch.distributed as dist

from .._native import IN_PLACE, memory
from ..errors import Usage
from ._join import join
from ._messages import Messages
from ._profile import is_recording, recorded
from ._report import write_summary
from ._tensors import concatenate, contiguous, is_block, operator, room, room_for_all, take_apart
from ._work import Carried, Started, Waited


def overlaps(value):
    """Reads `EARLYBIRD_TORCH_OVERLAP`."""
    if value not in ("on", "off"):
        raise Usage(f"EARLYBIRD_TORCH_OVERLAP: {value!r} is not known; use one of: on, off")
    return value == "on"


class Collectives(Messages):
    """The calls of the ranks of a group: all that torch's kinds of group have in common."""

    def _join(self, store, rank, size, timeout):
        self._comm = join(store, rank, size, timeout)
        self._messages = self._comm.messages()
        # torch calls from several threads: backward, hooks, checkpoints.
        self._lock = threading.Lock()
        self._rank, self._size, self._calls = rank, size, 0
        self._overlaps = overlaps(os.environ.get("EARLYBIRD_TORCH_OVERLAP", "off"))
        self._waited = Waited(self._call)

    def _call(self, name, *args):
        with self._lock:
            self._calls += 1
            call = getattr(self._comm, name)
            if is_recording():
                with recorded(name):
                    return call(*args)
            return call(*args)

    def _work(self, tensors, opts):
        """The work that a method makes its calls with and returns."""
        # All calls of a group are started or none is, also where the caller waits at once: a started call and one that blocks are
        # different calls, and in torch some ranks may wait at once where others do not.
        if self._overlaps:
            return Started(self._call, self._lock, tensors)
        return self._waited if opts is not None and not opts.asyncOp else Carried(self._call, tensors)

    def getBackendName(self):
        return "earlybird"

    name = getBackendName

    def setSequenceNumberForGroup(self):
        pass

    _set_sequence_number_for_group = setSequenceNumberForGroup

    def getSequenceNumberForGroup(self):
        return self._calls

    _get_sequence_number_for_group = getSequenceNumberForGroup

    def supportsTensorAlloc(self, device):
        return False

    supports_tensor_alloc = supportsTensorAlloc

    def shutdown(self):
        write_summary(self._comm, self._title())
        self._comm.free()

    def abort(self):
        # The other ranks learn of it as of a rank that has left.
        self._comm.free()

    # Reductions

    def allreduce(self, tensors, opts=None):
        op = dist.ReduceOp(dist.ReduceOp.SUM) if opts is None else opts.reduceOp
        work = self._work(tensors, opts)
        for tensor in tensors:
            plain = contiguous(tensor)
            work.call("Allreduce", IN_PLACE, memory(plain), operator(op, tensor))
            work.copy_back(tensor, plain)
        return work

    def allreduce_coalesced(self, tensors, opts=None):
        if len(tensors) < 2 or len({tensor.dtype for tensor in tensors}) > 1:
            return self.allreduce(tensors, opts)
        flat = concatenate(tensors)
        work = self._work(tensors, opts)
        work.call("Allreduce", IN_PLACE, memory(flat), operator(opts.reduceOp, flat))
        work.then(take_apart, flat, tensors)
        return work

    def reduce(self, tensors, opts):
        work = self._work(tensors, opts)
        for tensor in tensors:
            plain, op = contiguous(tensor), operator(opts.reduceOp, tensor)
            if self._rank == opts.rootRank:
                work.call("Reduce", IN_PLACE, memory(plain), op, opts.rootRank)
                work.copy_back(tensor, plain)
            else:
                work.call("Reduce", memory(plain), None, op, opts.rootRank)
        return work

    def reduce_scatter(self, outputs, inputs, opts):
        work = self._work(outputs, opts)
        for output, parts in zip(outputs, inputs, strict=True):
            counts = [part.numel() for part in parts]
            self._reduce_scatter(work, output, concatenate(parts), counts, opts.reduceOp)
        return work

    def reduce_scatter_single(self, output, input, opts):
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        work = self._work(outputs, opts)
        for output, input in zip(outputs, inputs, strict=True):
            self._reduce_scatter(work, output, contiguous(input), None, opts.reduceOp)
        return work

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter(self, work, output, input, counts, op):
        op = operator(op, input)
        if is_block(output, input, self._rank) and counts is None:
            work.call("Reduce_scatter_block", IN_PLACE, memory(input), op)
            return
        plain = contiguous(output)
        work.call("Reduce_scatter", memory(input), memory(plain), counts, op)
        work.copy_back(output, plain)

    # Data movement

    def broadcast(self, tensors, opts):
        work = self._work(tensors, opts)
        for tensor in tensors:
            plain = contiguous(tensor)
            work.call("Bcast", memory(plain), opts.rootRank)
            work.copy_back(tensor, plain)
        return work

    def allgather(self, outputs, inputs, opts=None):
        work = self._work(outputs, opts)
        for parts, input in zip(outputs, inputs, strict=True):
            counts, plain = [part.numel() for part in parts], contiguous(input)
            flat = room_for_all(parts)
            work.call("Allgatherv", memory(plain), [memory(flat), counts])
            work.then(take_apart, flat, parts)
        return work

    def allgather_coalesced(self, outputs, inputs, opts=None):
        # By rank and tensor, where allgather has by tensor and rank.
        return self.allgather([list(of_all) for of_all in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output, input, opts=None):
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        work = self._work(outputs, opts)
        for output, input in zip(outputs, inputs, strict=True):
            whole, part = room(output), contiguous(input)
            # FSDP2 gathers in place.
            contribution = IN_PLACE if is_block(part, whole, self._rank) else memory(part)
            work.call("Allgather", contribution, memory(whole))
            work.copy_back(output, whole)
        return work

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs, inputs, opts):
        [input] = inputs
        if self._rank != opts.rootRank:
            return self.gather_single(None, input, opts)
        [parts] = outputs
        work, plain = self._work(parts, opts), contiguous(input)
        flat = room_for_all(parts)
        work.call("Gather", memory(plain), memory(flat), opts.rootRank)
        work.then(take_apart, flat, parts)
        return work

    def gather_single(self, output, input, opts):
        plain = contiguous(input)
        if self._rank != opts.rootRank:
            work = self._work([], opts)
            work.call("Gather", memory(plain), None, opts.rootRank)
            return work
        work, whole = self._work([output], opts), contiguous(output)
        work.call("Gather", memory(plain), memory(whole), opts.rootRank)
        work.copy_back(output, whole)
        return work

    gather_into_tensor = gather_single

    def scatter(self, outputs, inputs, opts):
        [output] = outputs
        work, plain = self._work(outputs, opts), contiguous(output)
        send = memory(concatenate(inputs[0])) if self._rank == opts.rootRank else None
        work.call("Scatter", send, memory(plain), opts.rootRank)
        work.copy_back(output, plain)
        return work

    def all_to_all_single(self, output, input, output_splits, input_splits, opts=None):
        work, send, recv = self._work([output], opts), contiguous(input), contiguous(output)
        counts = self._split(send, input_splits), self._split(recv, output_splits)
        work.call("Alltoallv", [memory(send), counts[0]], [memory(recv), counts[1]])
        work.copy_back(output, recv)
        return work

    alltoall_base = all_to_all_single

    def _split(self, tensor, splits):
        """Elements of each rank's block: of as many rows as the splits say, or of equal blocks."""
        if not splits:
            return [tensor.numel() // self._size] * self._size
        row = tensor.numel() // tensor.shape[0] if tensor.shape[0] else 0
        return [row * split for split in splits]

    def alltoall(self, outputs, inputs, opts=None):
        work, send = self._work(outputs, opts), concatenate(inputs)
        recv = room_for_all(outputs)
        counts = [[tensor.numel() for tensor in tensors] for tensors in (inputs, outputs)]
        work.call("Alltoallv", [memory(send), counts[0]], [memory(recv), counts[1]])
        work.then(take_apart, recv, outputs)
        return work

    def barrier(self, opts=None):
        work = self._work([], opts)
        work.call("Barrier")
        return work

    def monitoredBarrier(self, opts=None, wait_all_ranks=False):
        # A late rank is named by the deadline, a dead one at once.
        self._call("Barrier")

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        self.monitoredBarrier()
