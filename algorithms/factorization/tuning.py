"""The penalty of implicit feedback, chosen by fits on part of the ratings."""

import warnings

import numpy as np
from scipy import sparse
from sklearn.base import clone

from ...errors import InterruptedFitWarning
from .ranking import evaluate_ranking
from .rules import FIRST_STEP, LADDER

_ITERATIONS = 8  # of a trial
_SHARE = 0.2  # of each user's choices that trials are judged by
_MOST_RATINGS, _MOST_USERS = 300_000, 3000  # of trials, and to judge by
_PLACES = 20


def chosen_reg(model, entries, seed):
    """Return `reg` for implicit feedback: the best NDCG@20 on choices that trials do not see.

    Trials climb `LADDER` from its third step in the direction in which NDCG rises, three to eight fits of
    eight iterations on at most 300,000 ratings, of users drawn at random.
    """
    rng = np.random.default_rng([seed, 1])
    sample = entries.sample()  # all, or some users of ratings that stay on a cluster
    R = sample.matrix(sample.values / sample.dtype.type(model.alpha))
    if len(sample) < len(entries) or len(sample) > _MOST_RATINGS:
        users = rng.permutation(np.flatnonzero(np.diff(R.indptr)))
        enough = np.searchsorted(np.cumsum(np.diff(R.indptr)[users]), _MOST_RATINGS) + 1
        R = R[np.sort(users[:enough])]
    train, held = _parts(R, rng)
    step = FIRST_STEP
    if held.nnz:
        scores: dict[int, float] = {}

        def score(step):
            if step not in scores:
                scores[step] = _score(model, train, held, LADDER[step], seed)
            return scores[step]

        direction = 1 if score(step + 1) > score(step) else -1
        step += direction == 1
        while 0 <= step + direction < len(LADDER) and score(step + direction) > score(step):
            step += direction
    return LADDER[step] / scale_of(model, entries.shape, len(entries))


def scale_of(model, shape, n_ratings):
    """What `reg` is times in the penalty of a user with the mean number of ratings."""
    from .choose import exponent_of, implicit_offsets

    return (n_ratings / shape[0] + implicit_offsets(model, shape)[0]) ** exponent_of(model)


def _parts(R, rng):
    """Hold out a share of each user's choices, at least one of two and more."""
    rows = np.repeat(np.arange(R.shape[0]), np.diff(R.indptr))
    chosen = R.data > 0
    counts = np.bincount(rows[chosen], minlength=R.shape[0])
    wanted = np.where(counts > 1, np.maximum(1, _SHARE * counts), 0).astype(np.int64)
    order = np.lexsort((rng.random(R.nnz), ~chosen, rows))  # choices first
    rank = np.empty(R.nnz, np.int64)
    rank[order] = np.arange(R.nnz) - R.indptr[:-1].astype(np.int64)[rows]
    out = chosen & (rank < wanted[rows])
    train, held = (
        sparse.csr_array((R.data[part], (rows[part], R.indices[part])), shape=R.shape) for part in (~out, out)
    )
    judges = np.flatnonzero(np.diff(held.indptr))
    if len(judges) > _MOST_USERS:
        judges = rng.choice(judges, _MOST_USERS, replace=False)
        held = sparse.diags_array(np.isin(np.arange(R.shape[0]), judges).astype(held.dtype)) @ held
        held.eliminate_zeros()
    return train, sparse.csr_array(held)


def _score(model, train, held, penalty, seed):
    reg = penalty / scale_of(model, train.shape, train.nnz)
    trial = clone(model).set_params(
        reg=reg, max_iter=_ITERATIONS, engine="local", checkpoint=None, random_state=seed, verbose=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptedFitWarning)  # Ctrl-C ends the whole fit
        try:
            trial.fit(train)
        except InterruptedFitWarning:
            raise KeyboardInterrupt from None
    return evaluate_ranking(trial, held, _PLACES)["ndcg"]
