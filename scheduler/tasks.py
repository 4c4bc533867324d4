"""Independent work: folds, shards and chains as plain tasks over inputs that they share."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..errors import DataError, StradaskError
from .history import History
from .loop import Round
from .progress import Progress
from .threads import effective_n_jobs, run_tasks


class Load(NamedTuple):
    """An input that ``function(*args)`` makes, where it is used; Dask collections in `args` come computed.

    With `workers`, names or addresses of Dask workers, it and all tasks that use it run on these alone.
    """

    function: Callable
    args: tuple = ()
    workers: tuple = ()


class Chain(NamedTuple):
    """Tasks that follow one another: ``function(input, last result, *args)`` for each `args` of `tasks`."""

    input: int  # its number
    tasks: Sequence[tuple]
    first: Any = None  # instead of a last result


class Tasks:
    """Maps functions over inputs, which stay where the tasks run; a context manager.

    An input is a `Load`, or any other value, which is sent as it is. Results do not depend on the place.
    """

    remote: bool
    n_jobs: int | None  # as the user gave it, for functions that take threads themselves
    unit = "task"

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, *exc_info):
        self.close()

    def open(self):
        """Begin."""

    def check_ships(self, name, function):
        """Refuse a function that cannot be shipped to where the tasks run."""

    def close(self):
        """Let go of the inputs."""

    def map(self, function, tasks, report=None, **bar):
        """Return ``function(input, *args)`` for each ``(number of the input, *args)`` of `tasks`."""
        chains = [Chain(number, [args]) for number, *args in tasks]
        return [result for (result,) in self.chains(partial(_apart, function), chains, report, **bar)]

    def chains(self, function, chains, report=None, *, label="", unit="task", verbose=0, callback=None):
        """Carry out `Chain` after `Chain`; return the results of each, a list of lists.

        ``report(number of the chain)`` is called after each task, one at a time, as results arrive; what it
        raises ends the work. The first failure of a task ends it too. `label`, `unit` and `verbose` are of
        the progress bar. ``callback(info)``, the user's, gets a `Round` after each task.

        Raises
        ------
        StradaskError
            If `callback` returns True.
        WorkerLost
            If inputs were lost, or tasks died with their workers, again and again.
        """
        n_tasks, self.unit = sum(len(chain.tasks) for chain in chains), unit
        history, last = History(), time.perf_counter()
        with Progress(n_tasks, label=label, unit=unit, verbose=verbose) as progress:

            def done(number):
                nonlocal last
                progress.advance(updates=1)
                if report is not None:
                    report(number)
                if callback is None:
                    return
                n_done, seconds, last = len(history) + 1, time.perf_counter() - last, time.perf_counter()
                history.record(round=n_done, seconds=seconds, updates=1)
                if callback(Round(n_done, n_tasks, math.nan, seconds, 1, history)) is True:
                    raise StradaskError(
                        f"the callback ended {label} after {n_done} of {n_tasks} {unit}s, before there was a "
                        "choice: the estimator is as it was"
                    )

            return self._run(function, chains, self._order(chains), done)

    def _order(self, chains):
        """Begin with one chain of each input: none waits for its input while there is other work."""
        seen: Counter[int] = Counter()
        later = []
        for chain in chains:
            later.append(seen[chain.input] > 0)
            seen[chain.input] += 1
        return sorted(range(len(chains)), key=later.__getitem__)

    def _run(self, function, chains, order, done):
        raise NotImplementedError


def _apart(function, data, last, *args):
    return function(data, *args)


class LocalTasks(Tasks):
    """On threads of this process. A `Load` runs when first needed; the last `n_held` of them are kept."""

    remote = False

    def __init__(self, n_jobs, inputs, n_held=None):
        self.n_jobs, self._inputs, self._n_held = n_jobs, list(inputs), n_held
        effective_n_jobs(n_jobs)  # refuses what is no number
        self._held: dict[int, Any] = {}  # the one that was used last stands last
        self._locks = [threading.Lock() for _ in self._inputs]
        self._holding = threading.Lock()

    def close(self):
        """Let go of the inputs."""
        self._held = {}

    def _input(self, number):
        source = self._inputs[number]
        if not isinstance(source, Load):
            return source
        with self._locks[number]:
            with self._holding:
                is_held = number in self._held
                value = self._held.pop(number, None)
                if not is_held and self._n_held is not None and len(self._held) >= self._n_held:
                    del self._held[next(iter(self._held))]
            if not is_held:
                value = source.function(*source.args)
            with self._holding:
                self._held[number] = value
            return value

    def _order(self, chains):
        if self._n_held is None:
            return super()._order(chains)
        return sorted(range(len(chains)), key=lambda k: chains[k].input)  # all of an input while it is held

    def _run(self, function, chains, order, done):
        reporting = threading.Lock()

        def work(number):
            chain, results = chains[number], []
            data, last = self._input(chain.input), chain.first
            for args in chain.tasks:
                last = function(data, last, *args)
                results.append(last)
                with reporting:
                    done(number)
            return results

        results = run_tasks([(work, (number,)) for number in order], self.n_jobs)
        return [chain for _, chain in sorted(zip(order, results, strict=True), key=lambda pair: pair[0])]


def check_ships(name, function):
    """Raise a DataError that says why a function cannot be shipped to workers, if it cannot."""
    from distributed.protocol.pickle import dumps, loads

    buffers: list = []
    try:  # Dask packs a failure inside a torch module as an error, which `loads` raises
        loads(dumps(function, buffer_callback=buffers.append), buffers=buffers)
    except Exception as error:  # what fails to pickle raises almost anything
        raise DataError(
            f"{name} cannot be shipped to workers: {error}; let it hold arrays, plain values and functions "
            "of modules that the workers can import, and no open files, locks or clients"
        ) from error
