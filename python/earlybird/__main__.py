"""`python -m earlybird run -n RANKS script.py ...`: starts a Python script, or any program, once per rank on this node."""

import argparse
import os
import sys

from . import _native
from .errors import Usage

# Becomes a rank or the watchdog without this package and without site: it costs 10 ms per rank, not 50.
_WRAPPER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("earlybird._native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
code = native.hidden_command(sys.argv[2:])
sys.exit(2 if code is None else code)
"""


def _parser():
    parser = argparse.ArgumentParser(prog="python -m earlybird", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run",
        help="start a script or a program once per rank on this node",
        description="Starts a script (a name that ends in .py), a module (-m NAME) or any other program once per rank on this node.",
    )
    run.add_argument("-n", "--ranks", type=int, required=True, help="number of ranks")
    run.add_argument("--timeout", type=float, metavar="S", help="end the job after this many seconds, with exit code 124")
    run.add_argument("--grace", type=float, default=5.0, metavar="S", help="seconds that the other ranks get after the first failure")
    run.add_argument("--prefix", action="store_true", help="mark every line of output with its rank")
    run.add_argument("--bind", choices=["core", "none"], default="core", help="a processor per rank, or anywhere")
    run.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="a module, and its arguments")
    run.add_argument("program", nargs=argparse.REMAINDER, help="script.py or a program, and its arguments")
    return parser


def main(arguments):
    """Carries out the command line; returns the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    program = given.program[1:] if given.program[:1] == ["--"] else given.program
    if given.module:
        program = [sys.executable, "-m", *given.module]
    elif not program:
        parser.error("give a script, a module or a program")
    elif program[0].endswith(".py"):
        program = [sys.executable, *program]
    wrapper = [sys.executable, "-I", "-S", "-c", _WRAPPER, os.path.abspath(_native.__file__)]
    how = {"timeout": given.timeout, "grace": given.grace, "prefix": given.prefix, "bind": given.bind == "core"}
    try:
        return _native.run_job(given.ranks, program, wrapper, **how)
    except Usage as mistake:
        parser.error(str(mistake))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
