"""What a model-parallel algorithm is, apart from where and in which order it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError, shortened


@dataclass(eq=False)
class Task:
    """One update: what a program knows of it.

    Attributes
    ----------
    round, step : int
        Counted from 0; a step's number begins anew in each round.
    shard : int
        Whose state is given.
    blocks : int or ndarray of int64
        The block that is here now (rotation), or the set of blocks to update together.
    value : ndarray or None
        The travelling block itself (or what `Program.unpack` makes of it), to be changed in place or
        replaced by another array; None for a program whose blocks do not travel.
    """

    round: int
    step: int
    shard: int
    blocks: Any
    value: np.ndarray | None = None

    def rng(self, seed: int) -> np.random.Generator:
        """Return the random stream of this round, shard and (first) block, the same wherever it runs.

        The three indices fill the upper words of the counter of a Philox generator, which counts
        draws in the lowest: streams stay 2**64 draws apart. A shard that meets a block twice in a round draws
        the same numbers twice.
        """
        first = int(np.atleast_1d(self.blocks)[0])
        counter = [0, self.round, first, self.shard]
        return np.random.Generator(np.random.Philox(key=seed, counter=counter))


@dataclass(frozen=True)
class Outcome:
    """What `Program.aggregate` makes of the partial results of a round (or step).

    Attributes
    ----------
    message : object, optional
        Given to `Program.sync` of every shard before anything else is asked of it. Arrays, plain values,
        and tuples, lists and dicts of them; None sends nothing.
    objective : float, default=nan
        If it is known without asking the shards (see `Program.measure`).
    updates : int, default=0
        How many updates were made: coordinates visited, tokens drawn...
    priorities : ndarray or tuple of (ids, values), optional
        For the schedule: one number for each block of the round, how much it changed; or the priorities of
        any blocks by their numbers, for instance of neighbours. Blocks of the round that are not among the
        ids have the priority 0.
    done : bool or str, default=False
        True, or a reason, ends the run after this round.
    gap : float, default=nan
        How far a program that ends by a tolerance is from the end, in the units of the tolerance, if it is
        known. The progress bar shows it, and then no time left: the most rounds say nothing of that.
    figures : dict of str to float, optional
        Numbers of the program's own, for `stop` and callbacks: they are ``history.figures`` after the round.
    """

    message: Any = None
    objective: float = np.nan
    updates: int = 0
    priorities: Any = None
    done: bool | str = False
    gap: float = np.nan
    figures: dict[str, float] | None = None


def barriers(program, steps):
    """Cut steps where the program wants its partial results combined: pairs of a first number, and steps."""
    size = {"round": len(steps), "step": 1}.get(program.barrier, program.barrier) or 1
    return [(first, steps[first : first + size]) for first in range(0, len(steps), size)]


def is_built_in(value):
    """Whether the class of an object is stradask's, not a user's."""
    return is_built_in_class(type(value))


def is_built_in_class(kind):
    """Whether a class is stradask's, not a user's."""
    return kind.__module__.startswith("stradask.")


def is_nothing(partial):
    """Whether `Program.join` left nothing of a partial result."""
    return partial is None or (type(partial) in (tuple, list, dict) and not partial)


def own_figures(program, figures):
    """Check `Outcome.figures`."""
    try:
        return {str(name): float(value) for name, value in figures.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(
            f"{type(program).__name__} gives figures that are not a dict of numbers: {shortened(figures)}"
        ) from error


class Program:
    """A model-parallel algorithm: shards of data, blocks of the model, and what an update is.

    A program never sees threads, Dask or time. Its methods run in two places. The coordinator asks
    `aggregate`, `objective`, `publish`, `collect`, `arrays` and `restore`; they may keep what they like in
    ``self``. Where a shard lies, `load`, `sync`, `update` and `measure` are called, on a copy of the program
    without its `shards`; they may change the state of that shard and nothing of ``self``. A round goes as
    in STRADS:

    1. the *schedule* says which blocks meet which shards;
    2. `update` (push) works on one shard and returns a partial result;
    3. `aggregate` (pull) combines the partial results, always in the order of steps and shards, so that
       the sum does not depend on where they were computed;
    4. `sync` tells every shard what came of it.

    Attributes
    ----------
    shards : sequence
        For each shard what `load` needs: arrays, a sparse matrix, a file and a range, a Dask future... It
        is kept, and read again if a worker is lost.
    n_blocks : int
        Parts of the model that a schedule may name.
    travels : bool, default=False
        True if blocks are arrays that move from shard to shard (`block` makes them), as in
        matrix factorization by rotation.
    barrier : {"round", "step"} or int, default="round"
        When `aggregate` is called: after each round, after each step of it, or after so many steps.
    joins : bool, default=False
        True if workers put together among themselves what their shards receive at a barrier (`join`). Then a
        round is one call of each worker, whatever `barrier` says, and `aggregate` is called once a round.
    takes_together : bool, default=False
        Where it `joins`: whether a worker's thread does several tasks of a step in one call, by
        `update_together`. For tasks so small that calls of `update` would cost much of their time.
    saved : tuple of str, default=()
        Arrays of a shard's state (a dict) that updates change and that cannot be had from `load` and
        `publish`. A program without any (and without travelling blocks) loses nothing with a worker: the
        round is done again. Otherwise the rounds since the last snapshot are.
    twins : sequence of int, optional
        For each shard the first one whose saved arrays are equal to its own after every round, as those of
        replicas are: snapshots and checkpoints hold them once.
    keeps_copies : bool, default=False
        Who keeps the snapshots from which rounds are done again: the coordinator, or, where they have more
        than 16 MiB, the workers, each its own parts and another one's. For states that grow with the data.
    measure_every : int, default=1
        Rounds between two calls of `measure`; 0 never measures.
    shard_weights : sequence of float, optional
        Work of each shard, in any unit. Where a program tells it, shards move between two rounds to workers
        that were seen to be faster, and to workers that join.
    spreads : bool, default=False
        Without `shard_weights`: whether shards move, with their whole state, between two rounds to workers
        that join where others have more shards than threads, as to the one that replaces a lost one.
    loads_at_once : int, optional
        Shards that one process loads at the same time, where that takes memory; by default as it has threads.
    on_disk : bool, default=False
        Whether states and blocks are so large that workers have them, and snapshots, in files (`arrive`).
    unit : str, default="update"
        What `Outcome.updates` counts, for the progress bar.
    format_name : str, default=""
        The name of the program in checkpoints, its class by default. A class that is renamed keeps the old
        name, so that checkpoints go on.
    may_rise : bool, default=False
        True if rounds draw from a distribution: an objective that rises is then no sign of divergence.

    See Also
    --------
    run : Runs a program.

    References
    ----------
    Kim, Ho, Lee, Zheng, Dai, Gibson, Xing, "STRADS: a distributed framework for scheduled model
    parallel machine learning", EuroSys 2016.

    Examples
    --------
    Non-negative least squares by scheduled coordinate descent, on rows that lie in shards:

    >>> import numpy as np
    >>> from stradask.scheduler import DynamicSchedule, Outcome, Program, run
    >>> class NonNegativeLeastSquares(Program):
    ...     '''min |y - X b|^2 / 2 over b >= 0: a block is a coefficient, a shard is some rows.'''
    ...     saved = ("residual",)
    ...     def __init__(self, X, y, n_shards):
    ...         parts = np.array_split(np.arange(len(y)), n_shards)
    ...         self.shards = [(X[rows], y[rows]) for rows in parts]
    ...         self.n_blocks = X.shape[1]
    ...         self.norms = (X**2).sum(axis=0)
    ...         self.coef = np.zeros(X.shape[1])
    ...     def load(self, data):
    ...         return {"X": data[0], "residual": data[1].copy()}
    ...     def update(self, state, task):
    ...         return state["X"][:, task.blocks].T @ state["residual"]
    ...     def aggregate(self, tasks, partials):
    ...         blocks, slope = tasks[0].blocks, sum(partials)
    ...         old = self.coef[blocks]
    ...         self.coef[blocks] = np.maximum(0, old + slope / self.norms[blocks])
    ...         change = self.coef[blocks] - old
    ...         return Outcome((blocks, change), priorities=abs(change), updates=len(blocks))
    ...     def sync(self, state, message):
    ...         blocks, change = message
    ...         state["residual"] -= state["X"][:, blocks] @ change
    ...     def measure(self, state):
    ...         return state["residual"] @ state["residual"] / 2
    ...     def objective(self, parts):
    ...         return sum(parts)
    ...     def arrays(self):
    ...         return {"coef": self.coef}
    ...     def restore(self, arrays):
    ...         self.coef = arrays["coef"]
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((60, 8)), rng.standard_normal(60)
    >>> program = NonNegativeLeastSquares(X, y, n_shards=2)
    >>> schedule = DynamicSchedule(size=2, random_state=0)
    >>> result = run(program, schedule, max_rounds=200)
    >>> from scipy.optimize import nnls
    >>> bool(np.allclose(program.coef, nnls(X, y)[0], atol=1e-6))
    True
    """

    shards: Sequence = (None,)
    n_blocks: int = 1
    travels: bool = False
    barrier: str | int = "round"
    joins: bool = False
    takes_together: bool = False
    saved: tuple[str, ...] = ()
    twins: Sequence[int] | None = None
    keeps_copies: bool = False
    measure_every: int = 1
    shard_weights: Sequence[float] | None = None
    spreads: bool = False
    loads_at_once: int | None = None
    on_disk: bool = False
    unit: str = "update"
    format_name: str = ""
    may_rise: bool = False

    @property
    def is_users(self) -> bool:
        """Whether code of a user runs in it, which is tried in the first round."""
        return not is_built_in(self)

    # Where a shard lies ---------------------------------------------------------------------------

    def load(self, data: Any) -> Any:
        """Make the state of a shard from its entry in `shards`; the same from any worker at any time.

        Parameters
        ----------
        data : object
            The entry of `shards`.

        Returns
        -------
        object
            A dict, or another object whose arrays are read and set by name, if `saved` names some of them.
        """
        return data

    def renew(self, state: Any) -> Any:
        """Make of a used state what `load` would make of the shard now, without reading its data again.

        Asked where workers were lost, of those that are left. Arrays that updates change are made anew, not
        written into.

        Parameters
        ----------
        state : object
            As `load`, `sync` and `update` left it. It is not used any more.

        Returns
        -------
        object
            None, as here, where the shard must be read again.
        """
        return None

    def arrive(self, folder: str) -> None:
        """Take the folder of a worker for files, where the program is `on_disk`; called before all else."""

    def files(self) -> Any:
        """Make what copies arrays into files, by its method `put`; None, as here, if they stay in memory."""
        return None

    def put_away(self, state: Any) -> None:
        """Release the memory of a shard in files, whose arrays were read."""

    def adopt(self, state: Any) -> Any:
        """Take the state of a shard that another worker had; return it, perhaps with arrays in files."""
        return state

    def report(self, state: Any) -> Any:
        """Tell the coordinator of a shard that was loaded: plain values and arrays, ``session.reports``.

        Parameters
        ----------
        state : object
            As `load` made it.
        """

    def block(self, block: int) -> Any:
        """Make the first value of a travelling block.

        Parameters
        ----------
        block : int

        Returns
        -------
        ndarray
            Or, where there is a `pack`, anything.
        """
        raise NotImplementedError(f"{type(self).__name__} has travelling blocks and must say how they begin")

    def pack(self, block: int, value: Any) -> Any:
        """Write a travelling block for its way to another process, and for snapshots.

        A program whose blocks are arrays that travel as they lie leaves this and `unpack` as they are.

        Parameters
        ----------
        block : int
        value : object
            As `block`, `unpack` or an `update` left it. It is not used any more, or not before the result.

        Returns
        -------
        ndarray
            Its length may be another each time.
        """
        return value

    def unpack(self, block: int, packed: Any) -> Any:
        """Make of a packed block what `update` works on; where it lies, on a thread that computes.

        Parameters
        ----------
        block : int
        packed : ndarray
            From `pack`; perhaps out of a checkpoint's file.

        Returns
        -------
        object
        """
        return packed

    def sync(self, state: Any, message: Any) -> None:
        """Take into a shard's state what `aggregate` published.

        Parameters
        ----------
        state : object
            Of the shard, changed in place.
        message : object
            `Outcome.message`.
        """

    def update(self, state: Any, task: Any) -> Any:
        """Push: work on one shard.

        Parameters
        ----------
        state : object
            Of the shard; what belongs to it alone may be changed.
        task : Task

        Returns
        -------
        object
            Partial result: arrays, plain values, and tuples, lists and dicts of them.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what an update is")

    def update_together(self, states: Any, tasks: Any) -> Any:
        """Push: work on several shards, for tasks of one step, on one thread; where it `takes_together`.

        Returns
        -------
        list
            A partial result of each task. What `join` takes out of them may be in any of them.
        """
        return [self.update(state, task) for state, task in zip(states, tasks, strict=True)]

    def join(self, partials: Any) -> Any:
        """Put together what all shards receive at a barrier; where `joins`, on workers and the coordinator.

        It is called with the partial results of some shards, with what it returned for others, and for the
        coordinator with what is `reported` of all barriers of a round. Any grouping and order must give the
        same bits: sums of integers, maxima, unions.

        Parameters
        ----------
        partials : list of object
            Partial results, from which it may take what only it needs, or results of its own.

        Returns
        -------
        object
            Arrays, plain values, and tuples, lists and dicts of them; None for nothing.
        """
        raise NotImplementedError(f"{type(self).__name__} joins partial results and must say how")

    def message_of(self, state: Any, joined: Any) -> Any:
        """Make of what was joined the message for `sync` of all shards of a worker, from the state of one.

        What it makes once, all shards of the worker may refer to.
        """
        return joined

    def reported(self, joined: Any, message: Any) -> Any:
        """Return what the coordinator receives of what was joined, by default all; None for nothing.

        Asked on workers, with what `message_of` made of it.
        """
        return joined

    def measure(self, state: Any) -> Any:
        """Compute a shard's part of the objective, after a round and its `sync`; None if there is none."""
        return None

    def run_steps(self, states: Any, blocks: Any, round: int, first: int, steps: Any, n_jobs: int) -> Any:
        """Carry out steps on threads of this process in another way than task by task, with the same result.

        For tasks so small that calls of `update` from Python would keep the threads from working.

        Returns
        -------
        tuple or None
            The partial results in the order of the tasks, after `join`, and what all of them joined is; None
            where the session should call `update`.
        """
        return None

    def read_ahead(self, state: Any, block: int | None = None) -> Any:
        """Fetch data of a shard that are on disk: it will be worked on after those that are now.

        Asked in one process, where a schedule of travelling blocks takes shards in turns; and on workers,
        where the program is `on_disk`, with the block that the shard meets next.
        """

    # At the coordinator -----------------------------------------------------------------------------

    def hear(self, joined: Any) -> None:
        """Pull what is `reported` of all barriers of a round; before `aggregate`, where `joins`."""

    def aggregate(self, tasks: Any, partials: Any) -> Any:
        """Pull: combine the partial results of a round (or of some steps, see `barrier`).

        Parameters
        ----------
        tasks : list of Task
            What was done, in the order of steps and shards; their `value` is None. Where `joins`, only those
            of which `join` left something, perhaps none.
        partials : list
            What `update` returned for each.

        Returns
        -------
        Outcome or None
        """
        return None

    def objective(self, parts: Any) -> Any:
        """Compute the objective from what `measure` returned for each shard, in the order of shards."""
        return np.nan

    def publish(self) -> Any:
        """Make the message to a shard that was loaded just now, at the start or after a worker was lost.

        Returns
        -------
        object
            A message for `sync`, made from the coordinator's present state; None for nothing. What `saved`
            names is already in its place when it comes, and it must not change that.
        """
        return None

    def collect(self, ask: Any) -> Any:
        """Take in what shards and blocks hold: at the end of a run, and before a snapshot for callbacks.

        Parameters
        ----------
        ask : callable
            ``ask(function)`` calls ``function(session, messages)``, which hands the messages to a method of
            the session, and returns what that returned. Should a worker be lost meanwhile, rounds are done
            again and the question is repeated. All that is held: ``ask(lambda session, messages:
            session.snapshot(messages))``.

        Returns
        -------
        object
            For `Run.fetched`; None where the program keeps what it took in.
        """
        return None

    def arrays(self) -> dict[str, Any]:
        """What the coordinator's side must keep, for checkpoints and lost workers: a dict of arrays."""
        return {}

    def restore(self, arrays: Any) -> None:
        """Go on from what `arrays` gave; raise ModelFileError for arrays that do not fit."""
