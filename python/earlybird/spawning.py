"""Ranks as processes of a program that is under way: `earlybird.spawn`."""

import multiprocessing
import multiprocessing.connection
import os
import secrets
import traceback

from . import _native


def _rank(function, job, rank, ranks, args, timeout, answers):
    """Joins as one rank, and answers with what the function returns or raises."""
    try:
        with _native.Communicator(job, rank, ranks, timeout=timeout) as comm:
            answer = (True, function(comm, *args))
    except BaseException as error:
        answer = (False, error, traceback.format_exc())
    try:
        answers.send(answer)
    except Exception:  # What was returned or raised cannot be pickled.
        answers.send((False, None, f"rank {rank} answered with {answer[1]!r}, which cannot be pickled\n{traceback.format_exc()}"))


class RankFailed(RuntimeError):
    """A rank of `spawn` raised an exception, which is the cause, or ended without an answer."""

    def __init__(self, rank, text):
        super().__init__(f"rank {rank} failed:\n{text}")
        self.rank = rank


def spawn(function, ranks, args=(), *, timeout=None):
    """Runs `function(comm, *args)` in `ranks` new processes, and returns what they returned, in rank order.

    The processes are started afresh (multiprocessing's "spawn"), so the function and its arguments must be importable and
    picklable. The first rank that fails makes it raise `RankFailed`; the others are given a moment to end, then ended.
    """
    if ranks < 1:
        raise ValueError(f"{ranks} ranks; give at least 1")
    context = multiprocessing.get_context("spawn")
    job = f"spawn-{os.getpid()}-{secrets.token_hex(8)}"
    started = []
    try:
        for rank in range(ranks):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(function, job, rank, ranks, args, timeout, there), daemon=True)
            process.start()
            there.close()
            started.append((process, here))
        return _answers([here for _, here in started])
    finally:
        for process, _ in started:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


def _answers(pipes):
    """Reads each rank's answer as it comes; raises the first failure."""
    results, waiting = {}, list(pipes)
    while waiting:
        for pipe in multiprocessing.connection.wait(waiting):
            rank = pipes.index(pipe)
            waiting.remove(pipe)
            try:
                answer = pipe.recv()
            except EOFError:
                raise RankFailed(rank, "its process ended without an answer") from None
            except Exception as error:
                raise RankFailed(rank, f"its answer cannot be unpickled: {error!r}") from error
            if not answer[0]:
                raise RankFailed(rank, answer[2]) from answer[1]
            results[rank] = answer[1]
    return [results[rank] for rank in range(len(pipes))]
