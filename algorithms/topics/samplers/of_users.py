"""Samplers that are objects: what is asked of a user's, and what a checkpoint knows of it."""

import copy
from typing import Any

import numpy as np

from ....errors import DataError, in_brief, shortened
from ....scheduler.program import is_built_in, is_built_in_class
from ....scheduler.stores.saved import alike, can_be_tried

_NAMES = ("auto", "gibbs", "warp", "light", "saber", "both")
_BOUND = ("program", "schedule", "words", "barrier", "at_hand")  # what `Gibbs.bound` sets
_FITTING = ("fit", "publish", "update")


def name_or_object(sampler):
    """The name of a sampler, where an object is just what that name stands for; else the object."""
    if isinstance(sampler, str):
        return sampler
    from .gibbs import Gibbs
    from .light import Light
    from .warp import Warp

    name = {Gibbs: "gibbs", Light: "light", Warp: "warp"}.get(type(sampler))
    return name if name and vars(sampler) == vars(type(sampler)()) else sampler


def check_object(sampler):
    """Refuse what is no sampler, and a user's that could not be told from another or would not go on."""
    from .gibbs import Gibbs

    if isinstance(sampler, type):
        raise DataError(
            f"sampler={sampler.__name__} is a class: give an object of it, sampler={sampler.__name__}()"
        )
    if not isinstance(sampler, Gibbs):
        raise DataError(
            f"sampler={shortened(sampler)} is no sampler of topics: give a name, or an object of a class "
            "that inherits from stradask.algorithms.topics.samplers.gibbs.Gibbs"
        )
    if is_built_in(sampler):
        return
    kind = type(sampler)
    if sampler.name in _NAMES:
        raise DataError(f"{kind.__name__}.name = {sampler.name!r} is that of another sampler: choose another")
    base: Any = next(each for each in kind.__mro__ if is_built_in_class(each))
    changed = [name for name in _FITTING if getattr(kind, name) is not getattr(base, name)]
    if changed and (kind.restore is base.restore or kind.arrays is base.arrays):
        raise DataError(
            f"{kind.__name__} has its own {changed[0]}, but no arrays and restore: without them what it fits "
            "is lost when a fit goes on from a checkpoint, or from a lost worker. Let arrays return it as a "
            "dict of arrays ({} if all is in the priors), and restore take it back"
        )


def fingerprint_of(sampler):
    """What a checkpoint knows of an object: its class, and a hash of its parameters."""
    import joblib

    kind = type(sampler)
    try:
        parameters = joblib.hash(vars(sampler))
    except Exception as error:  # pickle lets through whatever a class raises
        raise DataError(
            f"checkpoint with sampler={kind.__name__}(): its parameters cannot be pickled "
            f"({in_brief(error)}), by which a checkpoint tells whether it goes on; leave checkpoint out"
        ) from error
    return {"class": f"{kind.__module__}.{kind.__qualname__}", "parameters": parameters}


def drawn_within_range(sampler, shard, task, totals):
    """Call a user's `draw`, and refuse topics beyond those there are: compiled code uses them as indices."""
    result = sampler.draw(shard, task, totals)
    first, *_, last = sampler.starts_of(shard, task.blocks)
    check_topics(sampler, f"draws in block {task.blocks} of the words", shard.topics[first:last])
    if task.value.tokens is not None:
        check_topics(sampler, f"writes into block {task.blocks} of the words", task.value.tokens)
    return result


def check_topics(sampler, act, topics):
    """Refuse topics of a user's sampler beyond those there are; `act` says how it came to them."""
    n_topics = sampler.program.n_topics
    if (largest := int(np.max(topics, initial=0))) >= n_topics:
        raise DataError(
            f"{type(sampler).__name__} {act} topic {largest:,}, but topics are 0 to {n_topics - 1:,}"
            f" (a negative number is stored as a large one): mend {type(sampler).__name__}"
        )


def check_writes_nothing(sampler, shard, task):
    """Refuse a sampler that writes into itself while it draws: copies of it draw on workers and threads.

    A task is done twice, on copies; what is written the first time only is a cache.
    """
    if not can_be_tried(shard):
        return
    tried = copy.copy(sampler)
    own = [name for name in vars(sampler) if name not in _BOUND]
    try:
        vars(tried).update(copy.deepcopy({name: vars(sampler)[name] for name in own}))
        copies = copy.deepcopy(((shard, task), (shard, task)))
    except Exception:  # it holds a lock, a file or the like: almost anything may be raised
        return
    for again, (own_shard, own_task) in enumerate(copies):
        if again:
            before = copy.deepcopy({n: value for n, value in vars(tried).items() if n not in _BOUND})
        drawn_within_range(tried, own_shard, own_task, own_shard.totals.copy())
        tried.end_sweep(own_shard, own_task)
    after = vars(tried)
    written = [name for name in after if name not in _BOUND and not alike(before.get(name), after[name])]
    if written:
        raise DataError(
            f"{type(sampler).__name__}: a sweep writes self.{written[0]}. It runs on copies, on workers, and "
            "on several threads at once, so that this is lost or mixed up: keep it in the shard, or return "
            "it from draw"
        )
