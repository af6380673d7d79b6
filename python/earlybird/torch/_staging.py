"""Tensors of a device in calls of the host: a call uses memory of the host, to which and from which they are copied.

The copies of a device are made in an order of their own, on a stream beside those of the program: what the program's stream does
until a call comes before them, and what it does after the call's `Work` was waited for comes after them.
"""

from abc import ABC, abstractmethod

import torch

from ..errors import Unsupported


class Staging(ABC):
    """The copies between a device and the host."""

    @abstractmethod
    def empty(self, count, dtype):
        """Memory of the host that no copy uses any more."""

    @abstractmethod
    def copy(self, pairs):
        """Copies the second of each pair of tensors to the first, after all copies so far; does not wait for it."""

    @abstractmethod
    def finish(self):
        """Waits until all copies so far are made."""

    @abstractmethod
    def mark(self):
        """The copies so far: an object with `wait`, after which the program may use them, and `is_complete`."""

    @torch.no_grad()
    def to_host(self, tensors):
        """Copies the elements of tensors to the host, one after the other; returns the copy."""
        flat = self.empty(sum(tensor.numel() for tensor in tensors), tensors[0].dtype)
        # What is conjugated or negated where it is read is so on the device: torch would do it on the host, before the copy is made.
        self.copy([(part, tensor.resolve_conj().resolve_neg()) for tensor, part in parts(flat, tensors)])
        self.finish()
        return flat

    @torch.no_grad()
    def to_device(self, flat, tensors):
        """Copies elements that lie one after the other on the host to tensors; returns the mark."""
        self.copy(list(parts(flat, tensors)))
        return self.mark()


class Cuda(Staging):
    """The copies of a GPU."""

    def __init__(self, device):
        self._device, self._stream = device, torch.cuda.Stream(device)

    def empty(self, count, dtype):
        # torch keeps pinned memory, and uses it again when the copies from it and to it are made. Its default device may be a GPU.
        return torch.empty(count, dtype=dtype, device="cpu", pin_memory=True)

    def copy(self, pairs):
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for to, source in pairs:
                to.copy_(source, non_blocking=True)
                # The memory of the tensor on the device may be released before the copy is made.
                (to if to.is_cuda else source).record_stream(self._stream)

    def finish(self):
        self._stream.synchronize()

    def mark(self):
        return Mark(self._device, self._stream.record_event())


class Mark:
    """A place in the order of a GPU's copies."""

    def __init__(self, device, event):
        self._device, self._event = device, event

    def wait(self):
        """Makes the program's stream wait, not the program."""
        torch.cuda.current_stream(self._device).wait_event(self._event)

    def is_complete(self):
        return self._event.query()


_of_devices = {}


def staging(tensor):
    """The copies for a tensor; `None` if the host reaches it."""
    if not tensor.is_cuda:
        return None
    device = tensor.device
    if device not in _of_devices:
        _of_devices[device] = Cuda(device)
    return _of_devices[device]


def staging_of(tensors):
    """The copies for a list of tensors, which are copied together."""
    found = {tensor.device for tensor in tensors}
    if len(found) > 1:
        raise Unsupported(f"a list of tensors on {' and '.join(sorted(map(str, found)))}; give tensors of one device")
    return staging(tensors[0])


def devices(tensors):
    """The GPUs of tensors, or of lists of them: those that a future of them has to know."""
    if isinstance(tensors, torch.Tensor):
        return {tensors.device} if tensors.is_cuda else set()
    return set().union(*map(devices, tensors))


def parts(flat, tensors):
    """Tensors, each with its part of the elements."""
    start = 0
    for tensor in tensors:
        yield tensor, flat[start : start + tensor.numel()].view(tensor.shape)
        start += tensor.numel()
