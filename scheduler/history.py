"""The history of a fit, round by round, and what its workers did."""

import itertools
import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

# Column name -> dtype of the array and the value of a round that does not report it.
_COLUMNS = {
    "round": (np.int64, None),
    "seconds": (np.float64, None),
    "objective": (np.float64, math.nan),
    "updates": (np.int64, 0),
    "bytes_sent": (np.int64, 0),
    "waiting": (np.float64, 0.0),
    "staleness": (np.float64, 0.0),
}


_ACTIVITY = {
    "round": np.int64,
    "step": np.int64,
    "worker": np.str_,
    "working": np.float64,
    "waiting": np.float64,
    "sending": np.float64,
    "bytes_sent": np.int64,
}
_MOST_ROWS = 100_000  # then the oldest go


class Activity:
    """What the workers of a cluster did: one row for each worker and step, at most the newest 100,000.

    The columns are

    - ``round``, ``step``: round, from 1, and the first of the steps that were requested together, from 0;
    - ``worker``: address;
    - ``working``: seconds of updates, summed over its threads;
    - ``waiting``: seconds without work because a block was missing, at barriers, and until the slowest worker
      was done;
    - ``sending``: seconds that blocks were on their way from it, summed over blocks; it works on others
      meanwhile;
    - ``bytes_sent``: bytes of these blocks and of partial results.

    Rounds that were done again after a loss have their rows twice. A row takes about 200 bytes.

    Examples
    --------
    >>> from stradask.scheduler.history import Activity
    >>> activity = Activity()
    >>> activity.record(1, 0, "tcp://a:1", 0.5, 0.25, 0.0, 80)
    >>> activity.as_dict()["working"]
    array([0.5])
    """

    def __init__(self):
        self._rows: deque = deque(maxlen=_MOST_ROWS)

    def __len__(self):
        return len(self._rows)

    def record(self, *row):
        """Append a row, its values in the order of the columns."""
        self._rows.append(row)

    def of_round(self, number):
        """Return the rows of a round done just now, newest first, as dicts."""
        newest = itertools.takewhile(lambda row: row[0] == number, reversed(self._rows))
        return [dict(zip(_ACTIVITY, row, strict=True)) for row in newest]

    def as_dict(self):
        """Return the columns as a dict of numpy arrays of equal length."""
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(_ACTIVITY)
        return {
            name: np.array(column, dtype)
            for (name, dtype), column in zip(_ACTIVITY.items(), columns, strict=True)
        }


class History:
    """The record of a fit: one row a round, about 250 bytes.

    The columns are

    - ``round``: rounds done when the row was written (1 after the first round);
    - ``seconds``: wall time of that round alone; ``cumsum`` gives the time since the start;
    - ``objective``: value after the round, NaN where it was not measured;
    - ``updates``: updates of the round (tokens sampled, coordinates visited...);
    - ``bytes_sent``: bytes that left a worker, 0 on one machine;
    - ``waiting``: seconds that workers waited for others, summed over the workers;
    - ``staleness``: mean age, in rounds, of the values that the round read.

    Attributes
    ----------
    figures : dict of str to float
        The program's own numbers after the newest round (`Outcome.figures`). They are not in checkpoints.

    Examples
    --------
    >>> from stradask.scheduler.history import History
    >>> history = History()
    >>> history.record(round=1, seconds=0.5, updates=100)
    >>> history.record(round=2, seconds=0.25, updates=100, objective=-7.5)
    >>> len(history)
    2
    >>> history.as_dict()["seconds"].cumsum()
    array([0.5 , 0.75])
    """

    def __init__(self):
        self._columns: dict[str, list] = {name: [] for name in _COLUMNS}
        self.figures: dict[str, float] = {}

    def __len__(self):
        return len(self._columns["round"])

    def scaled(self, unit):
        """Return a copy whose objectives are in another unit."""
        copy = History()
        copy._columns = {name: list(column) for name, column in self._columns.items()}
        copy.figures = dict(self.figures)
        copy._columns["objective"] = [unit * value for value in self._columns["objective"]]
        return copy

    def record(self, *, round, seconds, **figures):
        """Append the row of a round, whose number must grow; `figures` are columns by name.

        Raises TypeError for a figure that is not a column and ValueError for a round that does not grow.
        """
        unknown = figures.keys() - _COLUMNS.keys()
        if unknown:
            raise TypeError(f"unknown figures {sorted(unknown)}; the columns are {list(_COLUMNS)}")
        rounds = self._columns["round"]
        if rounds and round <= rounds[-1]:
            raise ValueError(f"round {round} cannot follow round {rounds[-1]}")
        row = {"round": round, "seconds": seconds, **figures}
        for name, (_, absent) in _COLUMNS.items():
            self._columns[name].append(row.get(name, absent))

    @property
    def last_round(self):
        """Round of the newest row, 0 if there is none."""
        return self._columns["round"][-1] if len(self) else 0

    def recent_objectives(self, n):
        """Return at most the last `n` measured objectives, the newest first."""
        measured = (float(v) for v in reversed(self._columns["objective"]) if not math.isnan(v))
        return list(itertools.islice(measured, n))

    def objectives_from(self, row):
        """Return pairs of round and objective, from a row on; NaN where it was not measured."""
        columns = (self._columns[name][row:] for name in ("round", "objective"))
        return list(zip(*columns, strict=True))

    def as_dict(self):
        """Return the columns as a dict of fresh numpy arrays of equal length."""
        return {name: np.array(self._columns[name], dtype=dtype) for name, (dtype, _) in _COLUMNS.items()}

    @classmethod
    def from_dict(cls, columns):
        """Rebuild a history from `as_dict`; ValueError for missing, unknown or unequal columns."""
        if columns.keys() != _COLUMNS.keys():
            raise ValueError(f"a history has the columns {list(_COLUMNS)}, not {list(columns)}")
        history = cls()
        rows = [np.asarray(columns[name], dtype=dtype).tolist() for name, (dtype, _) in _COLUMNS.items()]
        for row in zip(*rows, strict=True):
            history.record(**dict(zip(_COLUMNS, row, strict=True)))
        return history


@dataclass(frozen=True)
class Run:
    """The result of `run`.

    Attributes
    ----------
    history : History
        One row a round, those before a checkpoint included.
    n_rounds : int
        Rounds done in all.
    reason : str
        ``"finished"`` (all rounds), ``"converged"`` or what `Outcome.done` or `stop` said, ``"time"``,
        ``"callback"``, ``"interrupted"``, or ``"diverged"``: the objective is no finite number any more, or
        is at its highest after all rounds and rises without slowing.
    n_recoveries : int
        How often the session was opened again after workers were lost.
    fetched : object
        What `Program.collect` returned.
    activity : Activity, optional
        What each worker did in each step of this call; None on threads.
    """

    history: History
    n_rounds: int
    reason: str
    n_recoveries: int = 0
    fetched: Any = None
    activity: Activity | None = None
