"""The calls for any Python object, which is pickled: mpi4py's lower-case names.

Objects travel in the calls for buffers: first the sizes of the pickles, then the pickles. Only ranks that trust each other should
use them: who unpickles runs what the sender says.
"""

import functools
import operator
import pickle
from array import array

from . import _native

_FUNCTIONS = {
    _native.SUM: operator.add,
    _native.PROD: operator.mul,
    _native.MIN: min,
    _native.MAX: max,
    _native.BAND: operator.and_,
    _native.BOR: operator.or_,
    _native.BXOR: operator.xor,
    _native.LAND: lambda a, b: bool(a) and bool(b),
    _native.LOR: lambda a, b: bool(a) or bool(b),
    _native.LXOR: lambda a, b: bool(a) != bool(b),
}


def _pickled(obj):
    return pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)


def _unpickled(pickles, sizes):
    """Takes apart pickles that lie one after the other."""
    view, objects, start = memoryview(pickles), [], 0
    for size in sizes:
        objects.append(pickle.loads(view[start : start + size]))
        start += size
    return objects


def _one_per_rank(comm, objects, name):
    objects = list(objects)
    if len(objects) != comm.size:
        raise ValueError(f"{name} of {len(objects)} objects among {comm.size} ranks; give one per rank")
    return [_pickled(obj) for obj in objects]


def _zeros(count):
    return array("Q", bytes(8 * count))


def barrier(self):
    """Waits until every rank has called it."""
    self.Barrier()


def bcast(self, obj=None, root=0):
    """Returns the root's object on every rank."""
    data = _pickled(obj) if self.rank == root else b""
    size = array("Q", [len(data)])
    self.Bcast(size, root)
    if self.rank != root:
        data = bytearray(size[0])
    self.Bcast(data, root)
    return obj if self.rank == root else pickle.loads(data)


def allgather(self, sendobj):
    """Returns the objects of all ranks, in rank order, on every rank."""
    data, sizes = _pickled(sendobj), _zeros(self.size)
    self.Allgather(array("Q", [len(data)]), sizes)
    pickles = bytearray(sum(sizes))
    self.Allgatherv(data, [pickles, sizes])
    return _unpickled(pickles, sizes)


def gather(self, sendobj, root=0):
    """Returns the objects of all ranks, in rank order, on the root, and None on the others."""
    data, sizes = _pickled(sendobj), _zeros(self.size)
    self.Allgather(array("Q", [len(data)]), sizes)
    pickles = bytearray(sum(sizes)) if self.rank == root else None
    self.Gatherv(data, pickles, root, list(sizes))
    return None if pickles is None else _unpickled(pickles, sizes)


def scatter(self, sendobj=None, root=0):
    """Returns the object that the root has for this rank."""
    sizes, data, refused = _zeros(self.size), b"", None
    if self.rank == root:
        try:
            pickles = _one_per_rank(self, sendobj, "scatter")
            sizes, data = array("Q", map(len, pickles)), b"".join(pickles)
        except Exception as error:  # The others wait for the sizes: no pickle is empty, so zeros say that there is none.
            refused = error
    self.Bcast(sizes, root)
    if refused is not None:
        raise refused
    if not all(sizes):
        raise ValueError(f"the root of the scatter, rank {root}, has no object for each rank")
    mine = bytearray(sizes[self.rank])
    self.Scatterv(data if self.rank == root else None, mine, root, list(sizes))
    return pickle.loads(mine)


def alltoall(self, sendobj):
    """Returns the objects that the ranks have for this rank, in rank order."""
    pickles = _one_per_rank(self, sendobj, "alltoall")
    send_sizes, recv_sizes = array("Q", map(len, pickles)), _zeros(self.size)
    self.Alltoall(send_sizes, recv_sizes)
    received = bytearray(sum(recv_sizes))
    self.Alltoallv([b"".join(pickles), send_sizes], [received, recv_sizes])
    return _unpickled(received, recv_sizes)


def _reduced(self, sendobj, op, ranks=None):
    """Returns the reduction of the objects of as many ranks, in rank order: by an operator, or by a function of two objects."""
    function = _FUNCTIONS.get(op, op) if isinstance(op, _native.Op) else op
    if not callable(function):
        raise TypeError(f"{op!r} does not reduce objects; give SUM, PROD, MIN, MAX, a logical one, or a function of two objects")
    objects = allgather(self, sendobj)[:ranks]
    return functools.reduce(function, objects) if objects else None


def allreduce(self, sendobj, op=_native.SUM):
    """Returns the reduction of the objects of all ranks."""
    return _reduced(self, sendobj, op)


def scan(self, sendobj, op=_native.SUM):
    """Returns the reduction of the objects of the ranks up to this one."""
    return _reduced(self, sendobj, op, self.rank + 1)


def exscan(self, sendobj, op=_native.SUM):
    """Returns the reduction of the objects of the ranks before this one, and None on rank 0."""
    return _reduced(self, sendobj, op, self.rank)


def reduce(self, sendobj, op=_native.SUM, root=0):
    """Returns the same on the root, and None on the others."""
    reduced = allreduce(self, sendobj, op)
    return reduced if self.rank == root else None


METHODS = (barrier, bcast, allgather, gather, scatter, alltoall, allreduce, scan, exscan, reduce)
