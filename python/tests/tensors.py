"""Tensors that other libraries lend through DLPack, made by hand here: what is taken, what is refused, and when they are given back."""

import ctypes
import gc

import earlybird
import numpy as np
from earlybird import IN_PLACE, Op
from earlybird._native import memory
from support import main, refused

ELEMENTS = {"i1": (0, 8), "i2": (0, 16), "i4": (0, 32), "i8": (0, 64), "u1": (1, 8), "u2": (1, 16), "u4": (1, 32), "u8": (1, 64)}
ELEMENTS |= {"f2": (2, 16), "f4": (2, 32), "f8": (2, 64), "c8": (5, 64), "c16": (5, 128), "?": (6, 8)}


class TensorOfC(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Unversioned(ctypes.Structure):
    _fields_ = [("tensor", TensorOfC), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", TensorOfC),
    ]


DESCRIBE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(TensorOfC))


class Functions(ctypes.Structure):
    """What a type has as `__dlpack_c_exchange_api__`."""

    _fields_ = [("version", ctypes.c_uint32 * 2), ("older", ctypes.c_void_p), ("others", ctypes.c_void_p * 3), ("describe", DESCRIBE)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Lender:
    """Has an array's memory as a tensor and nothing else; counts how often it was exported and given back."""

    def __init__(self, array, version=(1, 0), device=(1, 0), flags=0, **fields):
        self.array, self.version, self.device, self.flags, self.fields = array, version, device, flags, fields
        self.exported, self.returned, self.kept = 0, [], []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **arguments):
        if self.version is None and arguments:
            raise TypeError("unexpected arguments")
        self.exported += 1
        array = self.array
        code, bits = ELEMENTS.get(array.dtype.str[1:], (0, 8 * array.itemsize))
        dimensions = ctypes.c_int64 * array.ndim
        strides = dimensions(*(stride // array.itemsize for stride in array.strides))
        tensor = TensorOfC(
            array.ctypes.data - 16, self.device, array.ndim, code, bits, 1, dimensions(*array.shape), strides, 16
        )
        for name, value in self.fields.items():
            setattr(tensor, name, value)
        deleter = DELETER(self.returned.append)
        if self.version is None:
            managed, name = Unversioned(tensor, None, deleter), b"dltensor"
        else:
            managed, name = Versioned(self.version, None, deleter, self.flags, tensor), b"dltensor_versioned"
        self.kept += [managed, name, deleter]
        return new_capsule(ctypes.addressof(managed), name, None)

    def check_returned(self, times):
        """Was exported so often, and given back as often."""
        gc.collect()
        addresses = [ctypes.addressof(managed) for managed in self.kept[::3]]
        assert self.exported == times and sorted(self.returned) == sorted(addresses), (self.exported, self.returned)


def test_tensors_of_every_type_and_version(comm):
    for version in (None, (1, 0), (1, 7)):
        for dtype in ELEMENTS:
            array = np.ones((2, 3), dtype)
            lender = Lender(array, version)
            comm.Allreduce(IN_PLACE, lender, earlybird.LOR if dtype == "?" else earlybird.SUM)
            assert (array == (1 if dtype == "?" else comm.size)).all(), (dtype, array)
            lender.check_returned(1)
            everyone = Lender(np.zeros((comm.size, 6), dtype), version)
            comm.Allgather(lender, everyone)
            assert (everyone.array == array.reshape(-1)).all()
            comm.Allgather([lender, [6]], [everyone, [6] * comm.size])
            everyone.check_returned(2)
            lender.check_returned(3)


def test_shapes(comm):
    for array in (np.ones(()), np.ones((0, 3)), np.ones((1, 4, 1)), np.ones((4, 1, 5))[:, :, :], np.ones((3, 3))[1:2]):
        lender = Lender(array)
        comm.Allreduce(IN_PLACE, lender)
        assert (array == comm.size).all()
        # Contiguous without strides, too.
        lender = Lender(array, strides=ctypes.POINTER(ctypes.c_int64)())
        comm.Allreduce(IN_PLACE, lender)
        assert (array == comm.size**2).all()
        lender.check_returned(1)


def test_a_started_call_keeps_its_tensor(comm):
    array = np.ones(100_000)
    lender = Lender(array)
    request = comm.Iallreduce(IN_PLACE, lender)
    assert not lender.returned
    request.wait()
    lender.check_returned(1)
    call = comm.Allreduce_init(IN_PLACE, lender)
    for _ in range(3):
        call.Start()
        call.wait()
    assert len(lender.returned) == 1
    call.Free()
    lender.check_returned(2)
    assert (array == comm.size**4).all()


def test_other_elements(comm):
    halves = np.full(5, 0x3F80, "u2")  # 1 as a bf16.
    comm.Allreduce(IN_PLACE, Lender(halves, code=4))
    assert (halves == np.float32(comm.size).view("u4") >> 16).all()
    # Eight bits that the library does not calculate with are moved.
    eighths = np.arange(comm.size, dtype="u1") if comm.rank == 0 else np.zeros(comm.size, "u1")
    comm.Bcast(Lender(eighths, code=10))
    assert eighths.tolist() == list(range(comm.size))
    refused(earlybird.Usage, comm.Allreduce, IN_PLACE, Lender(eighths, code=10), words="operator of your own")

    def largest(inbuf, inoutbuf, datatype):
        assert datatype == "f"
        np.maximum(inbuf, inoutbuf, out=np.asarray(inoutbuf))

    values = np.full(10, comm.rank, "f4")
    comm.Allreduce(IN_PLACE, Lender(values), Op.Create(largest))
    assert (values == comm.size - 1).all()
    refused(TypeError, comm.Allreduce, IN_PLACE, Lender(halves, code=4), Op.Create(largest), words="no format")


def test_what_numpy_lends(comm):
    class Hidden:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **arguments):
            return self.array.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    array = np.ones(7)
    comm.Allreduce(IN_PLACE, Hidden(array))
    assert (array == comm.size).all()


def described(array, version=(1, 3), describe=None, **fields):
    """An object of a type whose functions of C describe the array's memory."""

    @DESCRIBE
    def fill(_, tensor):
        dimensions = ctypes.c_int64 * array.ndim
        shape, strides = dimensions(*array.shape), dimensions(*(stride // array.itemsize for stride in array.strides))
        element = ELEMENTS.get(array.dtype.str[1:], ELEMENTS["?"])
        tensor[0] = TensorOfC(array.ctypes.data, (1, 0), array.ndim, *element, 1, shape, strides, 0)
        for name, value in fields.items():
            setattr(tensor[0], name, value)
        kept.append((shape, strides))
        return 0

    kept = [fill, functions := Functions(version, None, (None,) * 3, fill if describe is None else describe)]
    capsule = new_capsule(ctypes.addressof(functions), b"dlpack_exchange_api", None)
    return type("Described", (), {"__dlpack_c_exchange_api__": capsule, "kept": kept})()


def test_memory_that_a_type_describes(comm):
    for dtype in ELEMENTS:
        array = np.ones((2, 3), dtype)
        comm.Allreduce(IN_PLACE, memory(described(array)), earlybird.LOR if dtype == "?" else earlybird.SUM)
        assert (array == (1 if dtype == "?" else comm.size)).all(), (dtype, array)

    array = np.ones((4, 6))
    refused(ValueError, memory, described(array[:, ::2]), words="contiguous")
    refused(TypeError, memory, described(array, device=(2, 3)), words="the CUDA device 3")
    refused(TypeError, memory, described(array, version=(2, 0)), words="version 1")
    refused(TypeError, memory, described(array, describe=DESCRIBE()), words="version 1")
    refused(TypeError, memory, described(array, describe=DESCRIBE(lambda _, tensor: -1)), words="none that DLPack describes")
    refused(AttributeError, memory, array, words="__dlpack_c_exchange_api__")
    wrong = new_capsule(1, b"another name", None)
    refused(ValueError, memory, type("Wrong", (), {"__dlpack_c_exchange_api__": wrong})(), words="incorrect name")


def test_what_is_refused(comm):
    array = np.ones((4, 6))

    def check(error, words, times, *args, **fields):
        lender = Lender(*args, **fields)
        refused(error, comm.Allreduce, IN_PLACE, lender, words=words)
        lender.check_returned(times)

    check(ValueError, "contiguous", 1, array[:, ::2])
    check(ValueError, "contiguous", 1, array.T)
    check(ValueError, "contiguous", 1, array[::-1])
    for flag in (1, 2):
        check(ValueError, "read-only", 1, array, flags=flag)
    check(TypeError, "version 2", 1, array, (2, 0))
    check(TypeError, "elements of 4 bits", 1, array, bits=4)
    check(ValueError, "shape", 1, array, ndim=-1)
    check(ValueError, "shape", 1, array, shape=(ctypes.c_int64 * 2)(-1, 6))
    check(ValueError, "shape", 1, array, shape=(ctypes.c_int64 * 2)(1 << 62, 6))
    check(ValueError, "shape", 1, array, shape=ctypes.POINTER(ctypes.c_int64)())
    check(ValueError, "without memory", 1, array, data=None)
    # Memory of another device is not even exported.
    check(TypeError, "the CUDA device 3", 0, array, device=(2, 3))
    check(TypeError, "the ROCm device 0", 0, array, device=(10, 0))
    check(TypeError, "kind 99", 0, array, device=(99, 1))
    # Pinned memory of the host is the host's.
    lender = Lender(np.ones(3), device=(3, 0))
    comm.Allreduce(IN_PLACE, lender)
    # A contribution may be read-only.
    comm.Allreduce(Lender(array, flags=1), np.empty((4, 6)))

    class Empty(Lender):
        def __dlpack__(self, **arguments):
            return new_capsule(1, b"used_dltensor", None)

    refused(ValueError, comm.Allreduce, IN_PLACE, Empty(array), words="no tensor")

    class Refusing(Lender):
        def __dlpack__(self, **arguments):
            raise BufferError("it needs a gradient")

    refused(BufferError, comm.Allreduce, IN_PLACE, Refusing(array), words="gradient")


if __name__ == "__main__":
    main(__name__)
