"""Plain loops of torch in processes of one thread: one, several, or DistributedDataParallel with gloo."""

import copy
import datetime
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ...scheduler.allocation import keep_freed_memory


class Course(NamedTuple):
    """Seconds of training after each epoch, without those of judging, and the accuracy then.

    `cpu` are the CPU seconds of the process, or of the busiest one where there are several.
    """

    seconds: list
    accuracy: list
    cpu: list


class Clock:
    """Seconds of training and accuracy after each epoch; judging does not count.

    `cpu_times` returns the CPU seconds of each process that trains.
    """

    def __init__(self, judge, cpu_times=lambda: [time.process_time()]):
        self.judge, self.cpu_times, self.course = judge, cpu_times, Course([], [], [])
        self.spent, self.busy = 0.0, np.array(0.0)
        self.since = time.perf_counter(), np.array(cpu_times())

    def epoch(self, model):
        """Note the end of an epoch."""
        self.spent += time.perf_counter() - self.since[0]
        self.busy = self.busy + np.array(self.cpu_times()) - self.since[1]
        self.course.seconds.append(self.spent)
        self.course.cpu.append(float(self.busy.max()))
        self.course.accuracy.append(self.judge(model))
        self.since = time.perf_counter(), np.array(self.cpu_times())


def accuracy(module, rows):
    """Return the share of rows whose class a module finds."""
    import torch

    X, y = map(torch.from_numpy, rows)
    with torch.no_grad():
        return float((module(X).argmax(1) == y).double().mean())


def train(module, rows, judged_on, options, *, n=1, sums=True):
    """Return the course of a loop in each of n processes, which begin together.

    Several train on their part of every mini-batch, one module by DistributedDataParallel, or without `sums`
    each its own. `options` has learning_rate, momentum, batch_size, n_epochs and seed.
    """
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(n, mp_context=spawn) as pool:
        asked = [
            pool.submit(_loop, rank, n, sums, folder, module, rows, judged_on, options) for rank in range(n)
        ]
        return [one.result() for one in asked]


def _loop(rank, n, sums, folder, module, rows, judged_on, options: dict[str, Any]):
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
        trained = torch.nn.parallel.DistributedDataParallel(module) if sums and n > 1 else module
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
                mine = torch.from_numpy(batch[rank::n])
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(trained(X[mine]), y[mine]).backward()
                optimizer.step()
            clock.epoch(module)
        return clock.course
    finally:
        distributed.destroy_process_group()
