"""The exceptions of earlybird: one class per kind of error, with what it names as attributes.

Every failure of a group is the same error on all its ranks.
"""


class Error(Exception):
    """Any error of the library."""

    #: The rank that the error names, None if it names none.
    rank: int | None = None
    #: The call in which it came up, for example "allreduce 17", None if it names none.
    during: str | None = None


class PeerDied(Error):
    """A rank died, executed another program or left while it was needed. `Communicator.shrink` goes on without it."""

    pid: int
    host: str


class Timeout(Error, TimeoutError):
    """A deadline passed while ranks were missing."""

    #: The ranks that had not arrived.
    missing: list[int]
    #: The deadline in seconds.
    after: float


class Mismatch(Error):
    """Two ranks made different calls."""

    ranks: tuple[int, int]
    calls: tuple[str, str]


class Poisoned(Error):
    """The group failed before, for a reason that another rank gave: an interrupted call, for example."""


class OperatorPanicked(Error):
    """A user's operator failed."""


class NoSpace(Error, MemoryError):
    """Shared memory could not be reserved. Nothing was written."""

    #: Bytes.
    needed: int
    #: Bytes.
    free: int


class Forked(Error):
    """The communicator was inherited through fork; the child must join by itself."""


class Unsupported(Error):
    """The library does not have this, or not here; the message says what to use."""


class Usage(Error, ValueError):
    """An argument that cannot be used."""


class System(Error, OSError):
    """The operating system refused something."""
