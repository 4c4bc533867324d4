"""Whether a snapshot gives back what a shard is: what `saved` forgets would be lost with a worker."""

import copy

import numpy as np

from ...errors import DataError
from ..program import Task
from .saved import check_same_form

_MOST_BYTES = 2**26  # of a shard's state, of which the trial makes three copies
_RTOL = 1e-6  # what `publish` gives may be summed in another order than what `sync` was given


def check_forgotten(program, session, snapshot, plan, round_):
    """Make the first shard again from a snapshot; raise DataError if it is another one.

    The shard and what was made again must answer `measure` and `update` alike. Entries that only hold work
    space or are made again when needed do not count: no answer depends on them. States that are no
    dict or are large are not tried.

    Parameters
    ----------
    program : Program
    session : LocalSession
    snapshot : dict of str to ndarray
        That of the session as it is now.
    plan : list
        Of the next round.
    round_ : int
        Its number.
    """
    state = session.states[0]
    if not isinstance(state, dict) or _n_bytes(state) > _MOST_BYTES:
        return
    try:
        there = copy.deepcopy(state)
    except TypeError:  # it holds a lock, a file or the like
        return
    again = program.load(program.shards[0])
    for name in program.saved:
        array = snapshot[f"shard-0/{name}"]
        check_same_form(f"shard-0/{name}", array, again[name])
        again[name] = array.copy()
    message = program.publish()
    if message is not None:
        program.sync(again, message)
    differ = sorted(
        str(name)
        for name in there.keys() | again.keys()
        if name not in there or name not in again or not _alike(there[name], again[name])
    )
    if not differ:
        return
    answers = [_answers(program, session, own, plan, round_) for own in (there, again)]
    if _alike(*answers):
        return
    named = ", ".join(map(repr, differ))
    raise DataError(
        f"{type(program).__name__}.saved = {tuple(program.saved)} forgets a part of the state: a shard that "
        f"is loaded again and restored differs in {named}, and its measure or update gives another result. "
        "Name in saved the arrays that updates change, or send them with publish"
    )


def _answers(program, session, state, plan, round_):
    """What a shard answers when it is measured and gets its next update, on copies."""
    answers = [program.measure(copy.deepcopy(state))]
    blocks = next((blocks for step in plan for shard, blocks in step if shard == 0), None)
    if blocks is not None:
        value = None if session.blocks is None else copy.deepcopy(session.blocks[blocks])
        answers += [program.update(copy.deepcopy(state), Task(round_, 0, 0, blocks, value)), value]
    return answers


def _n_bytes(state):
    return sum(getattr(value, "nbytes", 0) for value in state.values())


def _alike(one, other):
    """Whether two values are equal up to rounding; what cannot be compared is taken for equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
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
