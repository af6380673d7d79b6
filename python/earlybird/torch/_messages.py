"""Sends and receives by the names of torch: a message goes over memory that two ranks share, or between nodes over TCP.

A message is started when its method is called, and goes on while its rank waits for a message or in a collective of the group.
"""

import threading

from .._native import memory
from ._tensors import contiguous, room
from ._work import Started, Waited


class Transferred(Started):
    """Messages under way. A lock of their own: other threads may use the group while one waits for a message."""

    def __init__(self, tensors):
        super().__init__(None, threading.Lock(), tensors)
        self._last = None

    def add(self, transfer):
        self._left.append(transfer)
        self._last = transfer

    def join(self, other):
        """Ends when the other one ends, too."""
        self._left += other._left
        self._tensors = self._tensors + other._tensors

    def source_rank(self):
        """The rank that the message came from, once it has come."""
        return self._last.peer

    _source_rank = source_rank


class Messages:
    """The messages of the ranks of a group."""

    # Batches of messages need not come between startCoalescing and endCoalescing, and then each has a work of its own.
    supports_coalescing = False

    _coalesced = None

    def send(self, tensors, dst, tag=0):
        work = Transferred(tensors)
        for tensor in tensors:
            work.add(self._messages.Isend(memory(contiguous(tensor)), dst, tag))
        return self._begun(work)

    def recv(self, tensors, src, tag=0):
        work = Transferred(tensors)
        for tensor in tensors:
            plain = room(tensor)
            work.add(self._messages.Irecv(memory(plain), src, tag))
            work.copy_back(tensor, plain)
        return self._begun(work)

    def recvAnysource(self, tensors, tag=0):
        return self.recv(tensors, None, tag)

    recv_anysource = recvAnysource

    def _begun(self, work):
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    # Collectives between these two are carried out one by one, messages are waited for together.

    def startCoalescing(self, device_type=None):
        self._coalesced = []

    def endCoalescing(self, device_type=None):
        works, self._coalesced = self._coalesced, None
        if not works:
            return Waited(None)
        together = Transferred([])
        for work in works:
            together.join(work)
        return together

    _start_coalescing = start_coalescing = startCoalescing
    _end_coalescing = end_coalescing = endCoalescing
