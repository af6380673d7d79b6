"""Collective operations for the processes of one node, which never arrive together.

    comm = earlybird.Communicator()             # under `python -m earlybird run -n 4`, torchrun, mpirun, srun, or alone
    comm.Allreduce(earlybird.IN_PLACE, array)   # numpy arrays and all that has the buffer protocol
    names = comm.allgather(socket.gethostname())  # any object, pickled
"""

from . import _objects
from ._native import (
    AVG,
    BAND,
    BOR,
    BXOR,
    IN_PLACE,
    LAND,
    LOR,
    LXOR,
    MAX,
    MAXLOC,
    MIN,
    MINLOC,
    PROD,
    SUM,
    Communicator,
    Op,
    Prequest,
    Request,
    SharedMemory,
    __version__,
)
from .errors import (
    Error,
    Forked,
    Mismatch,
    NoSpace,
    OperatorPanicked,
    PeerDied,
    Poisoned,
    System,
    Timeout,
    Unsupported,
    Usage,
)
from .spawning import RankFailed, spawn

# The calls for objects need nothing of the compiled part but the calls for buffers.
for _method in _objects.METHODS:
    setattr(Communicator, _method.__name__, _method)
