"""What a program saves in snapshots and checkpoints: its checks, and a trial whether it restores a shard.

Parts of a shard that `Program.saved` forgets would be lost with a worker.
"""

import copy
import sys
from collections import deque
from numbers import Real
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError, ModelFileError, shortened
from ..program import Program, Task
from .copies import Copies
from .shared_store import StoredPart, StoredState

MOST_TRIED = 2**26  # of a shard's state, of which the trial makes three copies
_RTOL = 1e-6  # what `publish` gives may be summed in another order than what `sync` was given


def check_saved(program, state):
    """Check that a state has the arrays that `Program.saved` names."""
    for name in program.saved:
        try:
            array = state[name]
        except (
            TypeError,
            LookupError,
            AttributeError,
        ):  # a state that has no arrays by name, or not this one
            array = None
        if not isinstance(array, np.ndarray):
            raise DataError(
                f"saved names {shortened(name)}, but the state that {type(program).__name__}.load makes has "
                "no such array"
            )


def check_twins(program):
    """Check that `Program.twins` names for each shard one that is saved."""
    twins, n = list(program.twins), len(program.shards)
    if len(twins) != n or any(not 0 <= twin < n or twins[twin] != twin for twin in twins):
        raise DataError(
            f"twins of {type(program).__name__} must name, for each of {n} shards, one that is its own twin, "
            f"got {shortened(twins)}"
        )


def twin_of(program, shard):
    """Return the shard that is saved in the place of this one; see `Program.twins`."""
    return shard if program.twins is None else program.twins[shard]


def is_saved(program, shard):
    """Whether snapshots hold arrays of a shard."""
    return bool(program.saved) and twin_of(program, shard) == shard


def check_complete(program, names):
    """Check that a snapshot has all names that a program saves, and no others."""
    shards = [s for s in range(len(program.shards)) if is_saved(program, s)]
    wanted = {f"shard-{s}/{name}" for s in shards for name in program.saved}
    if program.travels:
        wanted |= {f"block-{b}" for b in range(program.n_blocks)}
    if odd := wanted ^ set(names):
        raise ModelFileError(f"the checkpoint is of other shards or blocks: {min(odd)}; remove the folder")


def check_same_form(name, array, there):
    """Check the shape and dtype of an array of a snapshot, which may come from a file."""
    if array.shape != there.shape or array.dtype != there.dtype:
        raise ModelFileError(
            f"the checkpoint's array {name} is {array.dtype}{array.shape}, but the program has "
            f"{there.dtype}{there.shape}; remove the folder to start anew"
        )


def laid_over(program, block, packed, there):
    """Unpack a saved block; an array must have the form of the one that it replaces."""
    if type(there) is np.ndarray:
        check_same_form(f"block-{block}", packed, program.pack(block, there))
    return program.unpack(block, packed.copy())


def identity_of(program, schedule):
    """Return what a checkpoint belongs to, in addition to the caller's fingerprint."""
    return {
        "program": program.format_name or type(program).__name__,
        "schedule": type(schedule).__name__,
        "n_shards": len(program.shards),
        "n_blocks": int(program.n_blocks),
    }


def saved_shard(snapshot, shard, names):
    """Return a snapshot's arrays of a shard, or the `StoredPart` or `CopiedPart` that has them."""
    if isinstance(snapshot, (StoredState, Copies)):
        return snapshot.part(f"shard-{shard}") or {}
    return {name: snapshot[f"shard-{shard}/{name}"] for name in names} if snapshot else {}


def saved_block(snapshot, block):
    """Return a snapshot's array of a block, or what refers to it (as `saved_shard`); None if nothing."""
    if isinstance(snapshot, (StoredState, Copies)):
        return snapshot.part(f"block-{block}")
    return snapshot.get(f"block-{block}")


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


def first_task(plan, round_):
    """Return the first task of the first shard in a plan, or None."""
    tasks = (Task(round_, n, *pair) for n, step in enumerate(plan) for pair in step)
    return next((task for task in tasks if task.shard == 0), None)


def check_forgotten(program, session, snapshot, plan, round_):
    """Make the first shard again from a snapshot of now; raise DataError if it differs.

    The shard and its copy must give the same `measure` and `update` (in the `plan` of the next round).
    Entries that only hold work space or are made again when needed do not count: no result depends on them.
    This is done on the shard's worker, where its entry in `shards` is read again. Large states are not tried
    nor, on a cluster, entries that Dask would have to compute.
    """
    task = first_task(plan, round_)
    packed = saved_block(snapshot, task.blocks) if program.travels and task is not None else None
    saved = saved_shard(snapshot, 0, program.saved)
    differ = session.differing(program, Probe(saved, program.publish(), task, packed))
    if differ:
        raise DataError(
            f"{type(program).__name__}.saved = {tuple(program.saved)} forgets a part of the state: a shard "
            f"that is loaded again and restored differs in {', '.join(differ)}, and its measure or update "
            "gives another result. Name in saved the arrays that updates change, or send them with publish"
        )


def can_be_tried(state):
    """Whether a state is small enough to be copied."""
    return n_bytes(state) <= MOST_TRIED


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
        if name not in own or name not in other or not alike(own[name], other[name])
    )
    if not differ or alike(*[_answers(program, one, trial) for one in (there, again)]):
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


def n_bytes(value):
    """Return the bytes of arrays, tables and all else in a value; above `MOST_TRIED` it counts no further."""
    total: Any = 0
    left, seen = [value], set[int]()
    while left and total <= MOST_TRIED:
        value = left.pop()
        if id(value) in seen or isinstance(value, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(value))
        if callable(usage := getattr(value, "memory_usage", None)):  # of pandas
            total += int(np.sum(usage()))
            continue
        size = getattr(value, "nbytes", None)
        if isinstance(size, Real):
            total += size
            continue
        total += sys.getsizeof(value)
        left += value if isinstance(value, (set, frozenset, deque)) else _parts(value).values()
    return total


def alike(one, other):
    """Whether two values are equal up to rounding; values that cannot be compared count as equal."""
    if one is None or other is None:
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, np.random.Generator) and isinstance(other, np.random.Generator):
        return alike(one.bit_generator.state, other.bit_generator.state)
    if isinstance(one, (np.ndarray, np.generic, float)) or isinstance(other, (np.ndarray, np.generic, float)):
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape:
            return False
        if one.dtype.kind not in "biufc" or other.dtype.kind not in "biufc":
            return one.dtype == object or bool(np.array_equal(one, other))
        scale = np.abs(one).max(initial=0, where=np.isfinite(one)) if one.size else 0
        return bool(np.allclose(one, other, rtol=_RTOL, atol=_RTOL * scale, equal_nan=True))
    plain = (int, str, bytes, set, frozenset)
    if isinstance(one, plain) or isinstance(other, plain):
        return one == other
    return True
