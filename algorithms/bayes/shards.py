"""Subposteriors: which rows a shard has, and their chains.

A shard's density is the prior to the power 1/M times the likelihood of its rows. Shards are drawn
independently, with random numbers named by the shard, and meet only afterwards: see ``collect`` and
``combine``.
"""

import numpy as np

from ...errors import DataError, StradaskError
from ...scheduler.history import History
from ...scheduler.loop import iterate
from ...scheduler.threads import effective_n_jobs, run_tasks
from .models import default_shards
from .sampling import sample_model


def number_of_shards(n_shards, n_rows, n_params):
    """Check the parameter `n_shards`.

    Parameters
    ----------
    n_shards : int or "auto"
        "auto" leaves at least 100 rows a parameter to each shard.
    n_rows, n_params : int

    Returns
    -------
    int

    Raises
    ------
    DataError
        If there are more shards than rows, or none.
    """
    if n_shards == "auto":
        return default_shards(n_rows, n_params)
    if not 1 <= n_shards <= n_rows:
        raise DataError(
            f"n_shards={n_shards}, but there are {n_rows} rows: take from 1 to {n_rows}, or 'auto'"
        )
    return int(n_shards)


def cut_rows(n_rows, n_shards, seed, groups=None):
    """Deal rows out to shards, at random; of each group every shard gets its share.

    Parameters
    ----------
    n_rows, n_shards, seed : int
    groups : ndarray of int, shape (n_rows,), optional
        For instance the class of each row.

    Returns
    -------
    list of ndarray of int
        Sorted rows of each shard.

    Raises
    ------
    DataError
        If a group has fewer rows than there are shards.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.bayes.shards import cut_rows
    >>> shards = cut_rows(10, 2, seed=0, groups=np.array([0, 1, 1, 1, 0, 0, 1, 1, 1, 0]))
    >>> [len(rows) for rows in shards]
    [5, 5]
    """
    order = np.random.Generator(np.random.Philox(seed)).permutation(n_rows)
    if groups is not None:
        _, counts = np.unique(groups, return_counts=True)
        if counts.min() < n_shards:
            raise DataError(
                f"a class has {counts.min()} rows, too few for {n_shards} shards: take fewer shards, so that "
                "each has rows of every class"
            )
        order = order[np.argsort(groups[order], kind="stable")]
    return [np.sort(order[m::n_shards]) for m in range(n_shards)]


def sample_shards(models, *, n_jobs=None, verbose=0, callback=None, **settings):
    """Draw from the density of every shard.

    Parameters
    ----------
    models : list of Model
        Their priors to the power 1/M.
    n_jobs : int, optional
        Threads; each takes a shard after the other. The draws do not depend on them.
    verbose : int, default=0
    callback : callable, optional
        ``callback(info)`` after so many shards as there are threads.
    **settings
        Of `sample_model`.

    Returns
    -------
    samples : list of Sample
    history : History

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C stopped it before the last shard.
    StradaskError
        If the callback did.
    """
    n_jobs, samples, history = effective_n_jobs(n_jobs), [], History()

    def step(r):
        shards = range(r * n_jobs, min((r + 1) * n_jobs, len(models)))
        tasks = [lambda m=m: sample_model(models[m], shard=m, weighted=False, **settings) for m in shards]
        samples.extend(run_tasks(tasks, n_jobs))
        return {"updates": sum(sample.stacked().shape[1] for sample in samples[-len(shards) :])}

    n_rounds = -(-len(models) // n_jobs)
    _, end = iterate(
        step, n_rounds, history=history, label="shards", unit="draw", verbose=verbose, callback=callback
    )
    if len(samples) < len(models) or any("stopped" in sample.reason for sample in samples):
        kind = StradaskError if end == "callback" else KeyboardInterrupt
        raise kind(f"stopped after {len(samples)} of {len(models)} shards: a part of them cannot be combined")
    return samples, history
