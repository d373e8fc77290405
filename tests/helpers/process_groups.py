"""Process groups for tests: processes that stay, do one job after another together, and always end."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory

PATIENCE = 300.0  # seconds for a job, the start of the processes included
GRACE = 5.0  # for the others when one has failed
COLLECTIVE = timedelta(seconds=200)


class Ranks:
    """``ranks(job, *arguments)`` calls ``job`` on every rank of a gloo group and returns what each rank returned.

    A rank that fails, or takes too long, is an AssertionError with its traceback, and the next job gets new processes.
    """

    def __init__(self, size):
        self.size, self.workers, self.pipes, self.folder = size, [], [], None

    def __call__(self, job, *arguments):
        if not self.workers:
            self._start()
        for pipe in self.pipes:
            pipe.send((job, arguments))
        answers, deadline = {}, time.monotonic() + PATIENCE
        while len(answers) < self.size and time.monotonic() < deadline:
            waiting = {pipe: rank for rank, pipe in enumerate(self.pipes) if rank not in answers}
            for pipe in wait(list(waiting), timeout=1.0):
                answers[waiting[pipe]] = fine, _ = _received(pipe)
                if not fine:  # the others may wait for it for ever
                    deadline = min(deadline, time.monotonic() + GRACE)
        failures = [f"rank {rank}: {answer}" for rank, (fine, answer) in answers.items() if not fine]
        failures += [f"rank {rank}: no answer to {job.__name__}" for rank in range(self.size) if rank not in answers]
        if failures:
            self.close()
            raise AssertionError("\n".join(failures))
        return [answers[rank][1] for rank in range(self.size)]

    def _start(self):
        context = multiprocessing.get_context("spawn")
        self.folder = TemporaryDirectory()
        meeting = Path(self.folder.name) / "meeting"
        for rank in range(self.size):
            here, there = context.Pipe()
            worker = context.Process(target=_serve, args=(rank, self.size, meeting, there), daemon=True)
            worker.start()
            there.close()
            self.workers.append(worker)
            self.pipes.append(here)

    def close(self):
        for worker in self.workers:
            worker.kill()
            worker.join()
        for pipe in self.pipes:
            pipe.close()
        if self.folder is not None:
            self.folder.cleanup()
        self.workers, self.pipes, self.folder = [], [], None


def _received(pipe):
    try:
        return pipe.recv()
    except EOFError:
        return False, "its process ended without an answer"


def _serve(rank, size, meeting, pipe):
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=COLLECTIVE
    )
    while True:
        try:
            job, arguments = pipe.recv()
        except EOFError:  # the tests are over
            return
        try:
            answer = True, job(*arguments)
        except BaseException:
            answer = False, traceback.format_exc()
        pipe.send(answer)
