"""The collectives from Python, through the C interface, with nothing but the standard library:

    capi/install /tmp/eb && /tmp/eb/bin/earlybird run -n 4 -- python3 examples/hello.py /tmp/eb/lib/libearlybird.so
"""

import array
import ctypes
import sys
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_void_p

EB_F64, EB_SUM, EB_IN_PLACE = 6, 1, c_void_p(-1)
FOLD = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_void_p)


class Operator(ctypes.Structure):
    _fields_ = [("fold", FOLD), ("context", c_void_p), ("commutative", c_int), ("tag", ctypes.c_uint)]


class Earlybird:
    """One communicator; an error of the library is a RuntimeError."""

    def __init__(self, library):
        self.lib = ctypes.CDLL(library)
        self.lib.eb_error_name.restype = c_char_p
        self.lib.eb_last_error_message.restype = c_char_p
        self.comm = c_void_p()
        self.call("eb_join", byref(self.comm), None)
        rank, size = c_size_t(), c_size_t()
        self.call("eb_rank", self.comm, byref(rank))
        self.call("eb_size", self.comm, byref(size))
        self.rank, self.size = rank.value, size.value

    def call(self, name, *args):
        error = getattr(self.lib, name)(*args)
        if error:
            code, message = self.lib.eb_error_name(error), self.lib.eb_last_error_message()
            raise RuntimeError(f"{code.decode()}: {message.decode()}")

    def allreduce(self, values, op=EB_SUM):
        """Reduces an array of doubles of all ranks in its place."""
        at, count = values.buffer_info()
        self.call("eb_allreduce", self.comm, EB_IN_PLACE, c_void_p(at), c_size_t(count), EB_F64, op)

    def broadcast(self, values, root=0):
        at, count = values.buffer_info()
        self.call("eb_broadcast", self.comm, c_void_p(at), c_size_t(count), EB_F64, c_size_t(root))

    def reduce_with(self, values, function, commutative):
        """The same as allreduce by a function of two floats; where it does not commute, operands stand by rank."""

        def fold(left, right, count, _):
            left, right = (ctypes.cast(at, ctypes.POINTER(ctypes.c_double)) for at in (left, right))
            for i in range(count):
                right[i] = function(left[i], right[i])

        at, count = values.buffer_info()
        op = Operator(FOLD(fold), None, int(commutative), 0)
        count, bytes_each = c_size_t(count), c_size_t(values.itemsize)
        self.call("eb_allreduce_with", self.comm, EB_IN_PLACE, c_void_p(at), count, bytes_each, byref(op))

    def leave(self):
        self.call("eb_comm_free", byref(self.comm))


eb = Earlybird(sys.argv[1] if len(sys.argv) > 1 else "libearlybird.so.0")
mine = array.array("d", [eb.rank, 1.0])
eb.allreduce(mine)
assert mine.tolist() == [eb.size * (eb.size - 1) / 2, eb.size]

first = array.array("d", [42.0 + eb.rank])
eb.broadcast(first)
assert first[0] == 42.0

last = array.array("d", [eb.rank])
eb.reduce_with(last, lambda left, right: right, commutative=False)
assert last[0] == eb.size - 1

try:
    eb.allreduce(mine, op=99)
    raise AssertionError("there is no operator 99")
except RuntimeError as error:
    assert str(error).startswith("EB_USAGE: there is no operator 99")

print(f"rank {eb.rank} of {eb.size}: sum {mine[0]:.0f}, all is right")
eb.leave()
