"""Ratings and counts of interactions, drawn from a factor model that is known.

As in `generators`: the data and what they were drawn from, never dense, the same for the same seed and
version of numpy.
"""

from typing import Any

import numpy as np
from scipy import sparse

from .._typing import Matrix, RandomState
from ..errors import DataError, shortened
from ._common import (
    check_generator,
    check_number,
    check_sizes,
    compressed,
    distinct_draws,
    float_array,
    rank_in_rows,
    shares,
)


def make_ratings(
    n_users: int = 1000,
    n_items: int = 500,
    n_components: int = 8,
    *,
    density: float = 0.05,
    popularity_exponent: float = 0.8,
    activity_sigma: float = 0.8,
    mean: float = 3.5,
    noise: float = 0.5,
    levels: Any = None,
    implicit: bool = False,
    random_state: RandomState | np.random.Generator | None = None,
) -> tuple[Matrix, Any]:
    r"""Draw ratings from a factor model with biases, popular items and busy users.

    User `u` would rate item `i` :math:`\mu + b_u + c_i + p_u \cdot q_i` plus normal noise; biases
    have standard deviation 0.4 and the product of the factors 0.7, so that ratings on a scale
    from 1 to 5 spread as those of MovieLens do. Who rates what: the number of ratings of a user is
    log-normal, and the user takes different items one after another, in proportion to a power of
    their rank (shuffled over the items).

    With ``implicit=True`` values count how often a user came back, and what is rated depends on
    taste: a user looks at up to twice as many items, takes those liked best (by the same score and
    logistic noise of scale `noise`), and the count is 1 plus a Poisson variable of mean
    :math:`\exp(b_u + c_i + p_u \cdot q_i)`.

    Parameters
    ----------
    n_users, n_items, n_components : int, default=1000, 500, 8
        Numbers of users, items and factors.
    density : float, default=0.05
        Share of user-item pairs that are rated, above 0 and up to 1. Each user rates one item
        at least, and no item twice.
    popularity_exponent : float, default=0.8
        The item of rank r (from 1) is taken in proportion to r to minus this power, from 0 (all
        items equally popular) to 1.5.
    activity_sigma : float, default=0.8
        Standard deviation of the logarithm of the number of ratings of a user, before it is
        limited to what is possible; 0 makes all users equally busy.
    mean : float, default=3.5
        Mean rating; not used with ``implicit=True``.
    noise : float, default=0.5
        Standard deviation of the noise of a rating.
    levels : array-like of float, default=None
        The ratings that can be given, such as ``[1, 2, 3, 4, 5]``; each rating becomes the
        nearest of them. None leaves real numbers. 0 may not be among them: a sparse matrix would
        take it for no rating.
    implicit : bool, default=False
        Counts of interactions instead of ratings.
    random_state : int, Generator, RandomState or None, default=None
        Seed, for the same data again.

    Returns
    -------
    R : csr_matrix of float64, shape (n_users, n_items)
        Ratings (or counts); sorted indices, no duplicates, no stored zeros.
    truth : Bunch
        ``user_factors`` (n_users, n_components), ``item_factors`` (n_items, n_components),
        ``user_biases`` (n_users,), ``item_biases`` (n_items,) and ``mean`` (0 if implicit).

    Raises
    ------
    DataError
        If a parameter is out of its range.

    Examples
    --------
    >>> from stradask.datasets import make_ratings
    >>> R, truth = make_ratings(100, 50, 3, levels=[1, 2, 3, 4, 5], random_state=0)
    >>> R.shape, truth.item_factors.shape, float(R.max())
    ((100, 50), (50, 3), 5.0)
    """
    check_sizes(n_users=n_users, n_items=n_items, n_components=n_components)
    check_number("density", density, 1 / n_items, 1)
    check_number("popularity_exponent", popularity_exponent, 0, 1.5)
    check_number("activity_sigma", activity_sigma, 0)
    check_number("noise", noise, 0)
    check_number("mean", mean)
    levels = _check_levels(levels, implicit)
    from sklearn.utils import Bunch  # here, because scikit-learn imports pandas where that is installed

    rng = check_generator(random_state)

    spread = np.sqrt(0.7) * n_components**-0.25
    truth = Bunch(
        user_factors=rng.normal(scale=spread, size=(n_users, n_components)),
        item_factors=rng.normal(scale=spread, size=(n_items, n_components)),
        user_biases=rng.normal(scale=0.4, size=n_users),
        item_biases=rng.normal(scale=0.4, size=n_items),
        mean=0.0 if implicit else float(mean),
    )
    popularity = rng.permutation(np.arange(1.0, n_items + 1) ** -popularity_exponent)
    activity = np.exp(activity_sigma * rng.standard_normal(n_users))
    counts = shares(activity, np.ones(n_users), density * n_users * n_items, n_items)
    looked_at = np.minimum(2 * counts, n_items) if implicit else counts
    indptr, items = distinct_draws(rng, looked_at, popularity)
    users = np.repeat(np.arange(n_users), looked_at)
    ratings = _scores(truth, users, items)
    if implicit:
        liked = ratings + rng.logistic(scale=noise, size=len(ratings))
        best = rank_in_rows(-liked, users, indptr) < counts[users]
        items = items[best]
        ratings = 1.0 + rng.poisson(np.exp(ratings[best]))
        indptr = np.concatenate([[0], np.cumsum(counts)])
    else:
        ratings += noise * rng.standard_normal(len(ratings))
        if levels is not None:
            ratings = levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, ratings)]
    return compressed(sparse.csr_matrix, ratings, items, indptr, (n_users, n_items)), truth


def _check_levels(levels, implicit):
    if levels is None:
        return None
    if implicit:
        raise DataError("levels must be None with implicit=True: interactions are counted, not rated")
    vector = np.unique(float_array("levels", levels))
    if vector.size == 0 or (vector == 0).any():
        raise DataError(f"levels must be one or more numbers other than 0; got {shortened(levels)}")
    return vector


def _scores(truth, users, items):
    scores = truth.mean + truth.user_biases[users] + truth.item_biases[items]
    for p, q in zip(truth.user_factors.T, truth.item_factors.T, strict=True):  # no pairs x factors array
        scores += p[users] * q[items]
    return scores
