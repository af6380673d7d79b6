"""A rank is killed while the others reduce: they raise its rank in under a second, torchrun restarts the job, which then works."""

import os
import signal
import sys
import time

import earlybird
import earlybird.torch
import torch
import torch.distributed as dist


def main():
    # torchrun ends the others when one has died; they end by themselves when they have said so.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.init_process_group("earlybird")
    rank, tensor = dist.get_rank(), torch.ones(1000)
    dist.all_reduce(tensor)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
        sys.stdout.write(f"rank {rank}: works again\n")
        return 0
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    since = time.monotonic()
    try:
        dist.all_reduce(tensor)
    except earlybird.PeerDied as error:
        took = time.monotonic() - since
        assert error.rank == 1 and took < 1, (error, took)
        sys.stdout.write(f"rank {rank}: rank {error.rank} died\n")
        return 1
    raise AssertionError("nobody missed the dead rank")


if __name__ == "__main__":
    sys.exit(main())
