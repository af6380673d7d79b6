"""The `Work` that a method returns to torch: the calls that were made for it, or that were started and go on.

Calls are started where `EARLYBIRD_TORCH_OVERLAP` is on. A started call makes progress inside later calls of its process and
where somebody waits for it: there is no thread for it. So a future has nobody who would complete it once the program waits for
the future alone, and torch waits for futures in compiled code. Hence a future is completed before it is returned, but for the one that DistributedDataParallel requests inside the
backward pass: it waits for its futures in a callback at the end of the pass, and callbacks run in the order in which they were
queued, so an earlier one completes them.
"""

import sys
import time
from datetime import timedelta
from operator import methodcaller

import torch
from torch._C._distributed_c10d import Work
from torch.autograd import Variable
from torch.autograd.graph import _engine_run_backward

from ._profile import recorded_wait
from ._staging import devices
from ._tensors import take_apart

# Of requests and of messages.
_WAIT, _TEST = methodcaller("wait"), methodcaller("test")


class Carried(Work):
    """Calls that block: each is carried out before the next line runs."""

    def __init__(self, call, tensors):
        super().__init__()
        self._call, self._tensors = call, tensors
        # Marks of the copies to a device that are not waited for.
        self._copies = []

    def call(self, name, *args):
        """Makes the group's call of this name."""
        self._call(name, *args)

    def then(self, function, *args):
        """Calls a function when all calls so far are complete; it returns the mark of its copies to a device, or `None`."""
        if (mark := function(*args)) is not None:
            self._copies.append(mark)

    def copy_back(self, tensor, plain):
        """Copies a result of the calls so far into its tensor, unless it is there already."""
        if plain is not tensor:
            self.then(take_apart, plain.view(-1), [tensor])

    def wait(self, timeout=timedelta(0)):
        for copies in self._copies:
            copies.wait()
        return True

    def is_completed(self):
        return all(copies.is_complete() for copies in self._copies)

    def is_success(self):
        return self.is_completed()

    def exception(self):
        return None

    def synchronize(self):
        self.wait()

    def result(self):
        self.wait()
        return self._tensors

    def get_future(self):
        future = torch.futures.Future(devices=list(devices(self._tensors)))
        # On a device the result is there for those that come after what the program's stream waits for here.
        self.wait()
        future.set_result(self._tensors)
        return future


class Waited(Carried):
    """All calls of a group whose caller waits for them at once: it asks for nothing else, and one work is made for all."""

    def __init__(self, call):
        super().__init__(call, ())
        self.call = call

    def then(self, function, *args):
        if (mark := function(*args)) is not None:
            mark.wait()

    def wait(self, timeout=timedelta(0)):
        return True


class Started(Carried):
    """Calls that go on while their caller does something else."""

    def __init__(self, call, lock, tensors):
        super().__init__(call, tensors)
        self._lock = lock
        # Requests, and functions to be called after those before them.
        self._left = []
        self._error = self._future = None

    def call(self, name, *args):
        self._left.append(self._call("I" + name.lower(), *args))

    def then(self, function, *args):
        self._left.append((function, args))

    def _advance(self, is_complete):
        """Goes on as long as requests are complete, which the argument finds out; returns whether all are."""
        try:
            while self._left:
                first = self._left[0]
                if isinstance(first, tuple):
                    function, args = first
                    Carried.then(self, function, *args)
                elif not is_complete(first):
                    return False
                del self._left[0]
        except BaseException as error:
            self._left, self._error = [], error
            raise
        return True

    def wait(self, timeout=timedelta(0)):
        if self._left:
            with self._lock, recorded_wait():
                self._wait(timeout.total_seconds())
        if self._error is not None:
            raise self._error
        return super().wait()

    def _wait(self, seconds):
        if seconds <= 0:
            self._advance(_WAIT)
            return
        end = time.monotonic() + seconds
        while not self._advance(_TEST):
            if time.monotonic() > end:
                raise TimeoutError(f"the work is not complete after {seconds} s; other ranks have not started it or are late")
            time.sleep(50e-6)

    def is_completed(self):
        # If another thread is inside a call, a later question finds it out.
        if self._left and self._lock.acquire(blocking=False):
            try:
                self._advance(_TEST)
            except Exception:
                pass  # It is kept.
            finally:
                self._lock.release()
        return not self._left and super().is_completed()

    def is_success(self):
        return self.is_completed() and self._error is None

    def exception(self):
        return self._error

    def get_future(self):
        if self._future is None:
            self._future = torch.futures.Future(devices=list(devices(self._tensors)))
            if self._left and _is_asked_by_reducer():
                Variable._execution_engine.queue_callback(self._complete_future)
            else:
                self._complete_future()
        return self._future

    def _complete_future(self):
        self.wait()
        self._future.set_result(self._tensors)


def _is_asked_by_reducer():
    """Returns whether the method's caller is compiled code inside a node of a backward pass."""
    # No node: a callback at the end of the pass, which waits before another one could run (`static_graph`, its first pass).
    if torch._C._current_autograd_node() is None:
        return False
    caller = sys._getframe(1).f_back
    # A thread that torch has made, as for a GPU, has no line of Python that called the engine.
    return caller is None or caller.f_code is _engine_run_backward.__code__
