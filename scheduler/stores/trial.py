"""The trial of a user's program in its first round: does it do on workers what it does on threads?

On a cluster `update`, `sync` and `measure` run on copies of the program, made when the run begins. What they
write into ``self`` is lost there, and what the coordinator changes in ``self`` does not reach them.
"""

import contextlib
import copy
import random
from collections import deque
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ...errors import DataError, WorkerLost, in_brief
from ..program import Task
from .saved import MOST_TRIED, alike, can_be_tried, n_bytes

_MOST_VALUES = 10_000  # in a container
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)


class _WatchedTask(Task):
    """A task that notes whether its value is read."""

    is_read = False

    def __getattribute__(self, name):
        if name == "value":
            self.is_read = True
        return super().__getattribute__(name)


def update(program, state, task):
    """Call `Program.update`; name a value that is None because `Program.travels` was forgotten."""
    try:
        return program.update(state, task)
    except (TypeError, ValueError, AttributeError) as error:
        if program.travels:
            raise
        watched = _WatchedTask(task.round, task.step, task.shard, task.blocks)
        with contextlib.suppress(Exception):
            program.update(state, watched)
        if not watched.is_read:
            raise
        raise DataError(
            f"{type(program).__name__}.update reads task.value, which is None because travels is False "
            f"({in_brief(error)}): set travels = True if blocks are arrays that move from shard to shard, "
            "made by the method block, or keep them in the states of shards"
        ) from error


def copied(program):
    """Return a copy of a program with the same shards; None if it is large or cannot be copied."""
    shards = vars(program).get("shards")
    try:
        if n_bytes(_attributes(program)) > MOST_TRIED:
            return None
        return copy.deepcopy(program, {id(shards): shards})
    except Exception:  # it holds a lock, a file or the like: almost anything may be raised
        return None


def without_shards(program):
    """Return a copy of a program without its shards, for the workers."""
    bare = copy.copy(program)
    with contextlib.suppress(AttributeError):  # a property, which holds nothing
        bare.shards = ()
    return bare


def check_on_workers(program, session, as_opened, messages, task):
    """Raise DataError if a program does other things on workers than on threads; see `fault`."""
    with contextlib.suppress(WorkerLost):  # the next call finds it, too
        if found := session.fault(program, as_opened, messages, task):
            raise DataError(f"{type(program).__name__}: {found}; run(..., check=False) leaves this check out")


def fault(program, as_opened, state, messages, task):
    """Say what a program does differently on workers, which have it `as_opened`, and the remedy; or "".

    It is tried on copies, with the state of a shard, its next messages, and a task of the round that was.
    """
    before = program, as_opened and without_shards(as_opened)
    tried, there = copied(program), as_opened and copied(before[1])
    if tried is None or there is None or not all(map(can_be_tried, (state, messages))):
        return ""
    if task is not None and program.travels:
        task = copy.copy(task)
        try:  # workers call it when the run begins
            task.value = copied(before[1]).block(task.blocks)
        except Exception:  # a block that is made once only
            return ""

    def answers(program):
        """List what the methods answer and leave; the last is whether they ended."""
        own, said, ended = copy.deepcopy((state, messages, task)), [], False
        try:
            for message in own[1]:
                program.sync(own[0], message)
            said.append(program.measure(own[0]))
            if own[2] is not None:
                said += [program.update(own[0], own[2]), own[2].value]
            ended = True
        except Exception as error:  # which comes from the rounds, too, if it is no sign of a difference
            said.append(type(error).__name__)
        return [*said, own[0], ended]

    try:
        right, on_workers = answers(tried), answers(there)
    except Exception:  # the state cannot be copied
        return ""
    if not right[-1]:
        return ""
    # What the round wrote is in the program on threads, and in that of the workers on a cluster.
    new = _changed(program, tried) | _changed(before[1], there)
    if written := _written(tried, new, answers):
        draws = any(isinstance(vars(program).get(name), _GENERATORS) for name in written)
        remedy = "Draw random numbers from task.rng(seed)" if draws else "Return it from update to aggregate"
        return (
            f"its update, sync or measure writes {_list_attributes(written)}. On a cluster they run on "
            "copies of the program, where that is lost, and on threads several at once. "
            f"{remedy}, or keep it in the state"
        )
    if alike(right, on_workers) or not alike(right, answers(copied(program))):  # or random by itself
        return ""
    differ = _changed(before[1], program) | {"shards"}

    def suffices(name):
        tried = copied(before[1])
        setattr(tried, name, getattr(copied(program), name))
        return alike(right, answers(tried))

    read = set(filter(suffices, differ)) or differ
    if read == {"shards"}:
        return (
            "its update, sync or measure reads self.shards, which workers have not: let load put what they "
            "need into the state"
        )
    return (
        f"its update, sync or measure depends on {_list_attributes(read)}, which workers have as it was when "
        "the run began. Send what shards need as Outcome.message, and let sync keep it in their states"
    )


def _changed(before, after):
    """Return the names of attributes whose values differ."""
    return {name for name, value in _attributes(after).items() if not _equal(value, vars(before).get(name))}


def _written(tried, new, answers):
    """Return the `new` attributes that the methods write each time; on `tried` they were called once.

    A cache is written the first time only.
    """
    if not new:
        return new
    before, noted = {name: _leaves(vars(tried).get(name)) for name in new}, set()
    # A copy of the attribute would be without what it has cached, as an index of pandas is.
    contents = {name: {k: _noted(leaf) for k, leaf in leaves.items()} for name, leaves in before.items()}

    with contextlib.suppress(TypeError):  # a class that must not have others below it

        class Noting(type(tried)):  # type: ignore[misc]  # the class of a user's program
            """Notes the names of attributes that are set."""

            def __setattr__(self, name, value):
                noted.add(name)
                super().__setattr__(name, value)

        tried.__class__ = Noting
    answers(tried)

    def again(name):
        value = vars(tried).get(name)
        after = _leaves(value)
        replaced = after.keys() != before[name].keys() or any(after[k] is not before[name][k] for k in after)
        if name in noted or replaced or not all(alike(_content(after[k]), contents[name][k]) for k in after):
            return True
        # Perhaps what is written into an array is there already.
        arrays = [leaf for leaf in after.values() if type(leaf) is np.ndarray and leaf.flags.writeable]
        for array in arrays:
            array.flags.writeable = False
        said = answers(tried) if arrays else [True]
        for array in arrays:
            array.flags.writeable = True
        return not said[-1] and said[-3] == "ValueError"

    return set(filter(again, new))


def _list_attributes(names):
    return ", ".join(f"self.{name}" for name in sorted(names))


def _attributes(program):
    return {name: value for name, value in vars(program).items() if name != "shards"}


def _equal(one, other):
    one, other = _leaves(one), _leaves(other)
    return one.keys() == other.keys() and all(alike(_content(one[k]), _content(other[k])) for k in one)


def _content(leaf):
    if isinstance(leaf, np.random.Generator):
        return leaf.bit_generator.state
    if isinstance(leaf, np.random.RandomState):
        return leaf.get_state()
    return leaf.getstate() if isinstance(leaf, random.Random) else leaf


def _noted(leaf):
    """Return the content of a leaf as it is now."""
    content = _content(leaf)
    return copy.deepcopy(content) if isinstance(content, (np.ndarray, dict, list, tuple, set)) else content


def _leaves(value):
    """Return what an attribute holds, in containers and objects, by its path."""
    leaves: dict[tuple, Any] = {}
    left: list[tuple[tuple, Any]] = [((), value)]
    seen = set()
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            inner = value
        elif isinstance(value, (list, tuple, deque)):
            inner = dict(enumerate(value))
        elif hasattr(value, "__dict__") and not isinstance(
            value, (type, ModuleType, FunctionType, *_GENERATORS)
        ):
            inner = vars(value)
        else:
            leaves[path] = value
            continue
        if len(inner) > _MOST_VALUES:
            raise ValueError(f"{len(inner)} values to compare")
        if id(value) not in seen:
            seen.add(id(value))
            left += [((*path, key), each) for key, each in inner.items()]
    return leaves
