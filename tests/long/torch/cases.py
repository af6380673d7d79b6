"""The cases of a script of this folder: its functions whose names begin with `test_`, called on every rank of a group."""

import earlybird.torch
import torch
import torch.distributed as dist


def start(backend):
    """Makes the group of all ranks; returns whether this torch has such groups. Older ones must refuse earlybird among several backends."""
    if ":" in backend and torch.__version__ < (2, 15):
        refused(earlybird.Unsupported, "use torch 2.15 or newer", dist.init_process_group, backend)
        return False
    dist.init_process_group(backend)
    return True


def run(script):
    """Calls the cases among the globals of a script; returns their number."""
    cases = [case for name, case in list(script.items()) if name.startswith("test_")]
    for case in cases:
        case(dist.get_rank(), dist.get_world_size())
    return len(cases)


def refused(kind, words, call, *args, **kwargs):
    """Makes a call, which must raise an error of this kind with these words."""
    try:
        call(*args, **kwargs)
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"{call} was not refused")
