"""Messages between two ranks: in order, of any length, both ways at once, with mistakes that are refused."""

import earlybird
import numpy as np
from support import main, refused


def message(source, dest, length=1000):
    return np.arange(length, dtype="i8") + 100 * source + dest


def test_both_send_first(comm):
    messages, rank = comm.messages(), comm.rank
    if rank ^ 1 >= comm.size:
        return
    for length in (0, 1, 1000, 1_000_000):
        messages.Send(message(rank, rank ^ 1, length), rank ^ 1)
        received = np.zeros(length, "i8")
        messages.Recv(received, rank ^ 1)
        assert np.array_equal(received, message(rank ^ 1, rank, length))


def test_started_round_a_ring_by_tag(comm):
    if comm.size == 1:
        return
    messages, after, before = comm.messages(), (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sends = [messages.Isend(message(comm.rank, after) + tag, after, tag) for tag in range(3)]
    buffers = [np.zeros(1000, "i8") for _ in range(3)]
    receives = [messages.Irecv(buffers[tag], before, tag) for tag in (2, 0, 1)]
    assert all(transfer.wait() and transfer.test() for transfer in sends + receives)
    assert all(np.array_equal(buffer, message(before, comm.rank) + tag) for tag, buffer in enumerate(buffers))
    assert [transfer.peer for transfer in sends + receives] == [after] * 3 + [before] * 3


def test_from_any_rank(comm):
    messages = comm.messages()
    if comm.rank:
        messages.Send(message(comm.rank, 0), 0)
        return
    buffer, sources = np.zeros(1000, "i8"), []
    for _ in range(1, comm.size):
        transfer = messages.Irecv(buffer)
        assert transfer.wait() and np.array_equal(buffer, message(transfer.peer, 0))
        sources.append(transfer.peer)
    assert sorted(sources) == list(range(1, comm.size))


def test_a_message_keeps_its_buffer_and_goes_on_beside_a_collective(comm):
    messages = comm.messages()
    if comm.size == 1:
        return
    if comm.rank == 0:
        transfer = messages.Isend(message(0, 1, 2_000_000), 1)
        comm.Barrier()
        transfer.wait()
        return
    if comm.rank == 1:
        buffer = np.zeros(2_000_000, "i8")
        messages.Recv(buffer, 0)
        assert np.array_equal(buffer, message(0, 1, 2_000_000))
    comm.Barrier()


def test_mistakes(comm):
    messages = comm.messages()
    refused(earlybird.Usage, messages.Send, np.zeros(1), comm.rank, words="name another rank")
    refused(earlybird.Usage, messages.Recv, np.zeros(1), comm.size, words="name another rank")
    refused(TypeError, messages.Send, 7, 0, words="no buffer")
    refused(ValueError, messages.Irecv, b"read-only", 0, words="read-only")
    refused(OverflowError, messages.Send, np.zeros(1), 0, -1)
    group = comm.dup()
    messages = group.messages()
    group.free()
    refused(earlybird.Usage, messages.Send, np.zeros(1), 0, words="was freed")


if __name__ == "__main__":
    main(__name__)
