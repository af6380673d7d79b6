"""Another script on ranks that are told they share no memory, two on each node; run by torchrun, SCRIPT names the other."""

import importlib
import os
import sys

from earlybird.torch import _join


def main():
    node, number = _join.node(), int(os.environ["RANK"]) // 2
    _join.node = lambda: f"{node}/{number}"
    return importlib.import_module(os.environ["SCRIPT"]).main()


if __name__ == "__main__":
    sys.exit(main())
