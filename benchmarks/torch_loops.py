"""Plain loops of torch in processes of one thread: one, several, or DistributedDataParallel with gloo."""

import copy
import datetime
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ..scheduler.allocation import keep_freed_memory


class Course(NamedTuple):
    """Seconds of training after each epoch, without those of judging, and the accuracy then."""

    seconds: list
    accuracy: list


class Clock:
    """Seconds of training and accuracy after each epoch; judging does not count."""

    def __init__(self, judge):
        self.judge, self.course = judge, Course([], [])
        self.spent, self.since = 0.0, time.perf_counter()

    def epoch(self, model):
        """Note the end of an epoch."""
        self.spent += time.perf_counter() - self.since
        self.course.seconds.append(self.spent)
        self.course.accuracy.append(self.judge(model))
        self.since = time.perf_counter()


def accuracy(module, rows):
    """Return the share of rows whose class a module finds."""
    import torch

    X, y = map(torch.from_numpy, rows)
    with torch.no_grad():
        return float((module(X).argmax(1) == y).double().mean())


def train(module, rows, judged_on, options, *, n=1, shares=False):
    """Return the course of a loop in each of n processes, which begin together.

    With `shares` they train one module by DistributedDataParallel, each on its part of every mini-batch;
    otherwise each trains its own. `options` has learning_rate, momentum, batch_size, n_epochs and seed.
    """
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(n, mp_context=spawn) as pool:
        asked = [
            pool.submit(_loop, rank, n, shares, folder, module, rows, judged_on, options) for rank in range(n)
        ]
        return [one.result() for one in asked]


def _loop(rank, n, shares, folder, module, rows, judged_on, options: dict[str, Any]):
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    keep_freed_memory()  # as places do, so that plans and loops differ in nothing else
    limit = datetime.timedelta(seconds=60)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=n, timeout=limit
    )
    try:
        module = copy.deepcopy(module)  # its tensors came in memory that processes share
        trained = torch.nn.parallel.DistributedDataParallel(module) if shares else module
        optimizer = torch.optim.SGD(
            module.parameters(), lr=options["learning_rate"], momentum=options["momentum"]
        )
        X, y = map(torch.from_numpy, rows)
        draw, size = np.random.default_rng(options["seed"]), options["batch_size"]
        distributed.barrier()
        clock = Clock(lambda module: accuracy(module, judged_on))
        for _ in range(options["n_epochs"]):
            order = draw.permutation(len(X))
            for first in range(0, len(X), size):
                batch = order[first : first + size]
                mine = torch.from_numpy(batch[rank::n] if shares else batch)
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(trained(X[mine]), y[mine]).backward()
                optimizer.step()
            clock.epoch(module)
        return clock.course
    finally:
        distributed.destroy_process_group()
