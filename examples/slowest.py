"""The mean of what all ranks measured, and which of them was slowest, by the Python package:

    pip install ./python
    python -m earlybird run -n 4 examples/slowest.py
"""

import array

import earlybird

comm = earlybird.Communicator()
seconds = array.array("d", [1.0 + comm.rank])
comm.Allreduce(earlybird.IN_PLACE, seconds, earlybird.AVG)
slowest = max(comm.allgather((1.0 + comm.rank, comm.rank)))
print(f"rank {comm.rank} of {comm.size}: mean {seconds[0]:.2f} s, slowest was rank {slowest[1]}")
