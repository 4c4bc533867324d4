"""A trial whether a snapshot restores a shard: parts that `saved` forgets would be lost with a worker."""

import copy
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ..program import Program, Task
from .saved import check_same_form
from .shared_store import StoredPart, saved_block, saved_shard

_MOST_BYTES = 2**26  # of a shard's state, of which the trial makes three copies
_RTOL = 1e-6  # what `publish` gives may be summed in another order than what `sync` was given


class Probe(NamedTuple):
    """The data from which the first shard is made again, and its next task.

    `saved` are its arrays in the snapshot, or a `StoredPart`; `message` is `Program.publish`'s; `task` its
    next update in the round, or None; `packed` the block that travels there, a `StoredPart`, or None.
    """

    saved: Any
    message: Any
    task: Task | None
    packed: Any


def check_restores(program):
    """Refuse a program whose rounds cannot be done again when a worker is lost."""
    kind = type(program)
    if kind.aggregate is not Program.aggregate and kind.restore is Program.restore:
        raise DataError(
            f"{kind.__name__} changes its coordinator in aggregate, but has no arrays and restore: without "
            "them its rounds cannot be done again when a worker is lost"
        )


def check_forgotten(program, session, snapshot, plan, round_):
    """Make the first shard again from a snapshot of now; raise DataError if it differs.

    The shard and its copy must give the same `measure` and `update` (in the `plan` of the next round).
    Entries that only hold work space or are made again when needed do not count: no result depends on them.
    This is done on the shard's worker, where its entry in `shards` is read again. Large states are not tried
    nor, on a cluster, entries that Dask would have to compute.
    """
    places = ((n, blocks) for n, step in enumerate(plan) for shard, blocks in step if shard == 0)
    step, blocks = next(places, (0, None))
    packed = saved_block(snapshot, blocks) if program.travels and blocks is not None else None
    saved = saved_shard(snapshot, 0, program.saved)
    task = None if blocks is None else Task(round_, step, 0, blocks)
    differ = session.differing(program, Probe(saved, program.publish(), task, packed))
    if differ:
        raise DataError(
            f"{type(program).__name__}.saved = {tuple(program.saved)} forgets a part of the state: a shard "
            f"that is loaded again and restored differs in {', '.join(differ)}, and its measure or update "
            "gives another result. Name in saved the arrays that updates change, or send them with publish"
        )


def can_be_tried(state):
    """Whether a state is small enough to be copied."""
    return _n_bytes(state) <= _MOST_BYTES


def differing(program, state, entry, trial):
    """Make a shard again, and name the parts that differ if its results do; [] if it cannot be copied."""
    if not can_be_tried(state):
        return []
    try:
        there = copy.deepcopy(state)
    except (
        TypeError,
        AttributeError,
        NotImplementedError,
        copy.Error,
    ):  # it holds a lock, a file or the like
        return []
    again = program.load(entry)
    for name, array in dict(trial.saved.items()).items():
        check_same_form(f"shard-0/{name}", array, again[name])
        again[name] = array.copy()
    if trial.message is not None:
        program.sync(again, trial.message)
    own, other = _parts(there), _parts(again)
    differ = sorted(
        name
        for name in own.keys() | other.keys()
        if name not in own or name not in other or not _alike(own[name], other[name])
    )
    if not differ or _alike(*[_answers(program, one, trial) for one in (there, again)]):
        return []
    return differ


def _answers(program, state, trial):
    """Measure a shard and do its next update, on copies."""
    answers = [program.measure(copy.deepcopy(state))]
    if trial.task is not None:
        task, packed = copy.copy(trial.task), trial.packed
        if packed is not None:
            packed = packed.value() if isinstance(packed, StoredPart) else packed
            task.value = program.unpack(task.blocks, packed.copy())
        answers += [program.update(copy.deepcopy(state), task), task.value]
    return answers


def _parts(state):
    """Return the parts of a state by name."""
    if isinstance(state, dict):
        return {repr(name): value for name, value in state.items()}
    if isinstance(state, (list, tuple)) and not hasattr(state, "_fields"):
        return {f"[{number}]": value for number, value in enumerate(state)}
    names = [*getattr(state, "_fields", ()), *getattr(state, "__dict__", ())]
    for kind in type(state).__mro__:
        slots = vars(kind).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    found = {f".{name}": getattr(state, name) for name in names if hasattr(state, name)}
    return found or {f"the {type(state).__name__}": state}


def _n_bytes(state):
    return sum(getattr(value, "nbytes", 0) for value in _parts(state).values())


def _alike(one, other):
    """Whether two values are equal up to rounding; values that cannot be compared count as equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, np.random.Generator) and isinstance(other, np.random.Generator):
        return _alike(one.bit_generator.state, other.bit_generator.state)
    if isinstance(one, (np.ndarray, np.generic, float)) or isinstance(other, (np.ndarray, np.generic, float)):
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape:
            return False
        if one.dtype.kind not in "biufc" or other.dtype.kind not in "biufc":
            return one.dtype == object or bool(np.array_equal(one, other))
        scale = np.abs(one).max(initial=0, where=np.isfinite(one)) if one.size else 0
        return bool(np.allclose(one, other, rtol=_RTOL, atol=_RTOL * scale, equal_nan=True))
    if isinstance(one, (int, str, bytes, type(None))) or isinstance(other, (int, str, bytes, type(None))):
        return one == other
    return True
