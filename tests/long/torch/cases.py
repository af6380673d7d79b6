"""The cases of a script of this folder: its functions whose names begin with `test_`, called on every rank."""

import torch.distributed as dist


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
