"""The penalty, chosen by fits on part of the ratings."""

import warnings

import numpy as np
from scipy import sparse
from sklearn.base import clone

from ...errors import InterruptedFitWarning
from .early_stopping import compare_with_biases, squared_errors
from .ranking import evaluate_ranking
from .rules import FIRST_STEP, LADDER, RATINGS_FIRST, RATINGS_LADDER, TRIALS_FROM, TRIALS_TO
from .solvers.sides import deviation

_ITERATIONS = 8  # of a trial
_SHARE = 0.2  # of each user's choices that trials are judged by
_MOST_RATINGS, _MOST_USERS = 300_000, 3000  # of trials, and to judge by
_PLACES = 20  # of a list of recommendations, in NDCG: as in `stradask bench recommend`
_LOG_LADDER = np.log([LADDER[0] ** 2 / LADDER[1], *LADDER, LADDER[-1] ** 2 / LADDER[-2]])


def chosen_reg(model, entries, seed):
    """Return `reg` for implicit feedback: the best NDCG@20 on choices that trials do not see.

    Trials climb `LADDER` from its third step in the direction in which NDCG rises, then look halfway to the
    steps next to the best: five to ten fits of eight iterations on at most 300,000 ratings, of users drawn at
    random.
    """
    rng = np.random.default_rng([seed, 1])
    sample = entries.sample()  # all, or some users of ratings that stay on a cluster
    R = sample.matrix(sample.values / sample.dtype.type(model.alpha))
    if len(sample) < len(entries) or len(sample) > _MOST_RATINGS:
        users = rng.permutation(np.flatnonzero(np.diff(R.indptr)))
        enough = np.searchsorted(np.cumsum(np.diff(R.indptr)[users]), _MOST_RATINGS) + 1
        R = R[np.sort(users[:enough])]
    train, held = _parts(R, rng)
    step: float = FIRST_STEP
    if held.nnz:
        scores: dict[float, float] = {}

        def score(step):
            if step not in scores:
                scores[step] = _score(model, train, held, _penalty_at(step), seed)
            return scores[step]

        direction = 1 if score(step + 1) > score(step) else -1
        step += direction == 1
        while 0 <= step + direction < len(LADDER) and score(step + direction) > score(step):
            step += direction
        step = max((step, step - 0.5, step + 0.5), key=score)
    return _penalty_at(step) / scale_of(model, entries.shape, len(entries))


def _penalty_at(step):
    """The penalty of a step of `LADDER`, or halfway between two; beyond its ends as much further."""
    return float(np.exp(np.interp(step, [-1, *range(len(LADDER)), len(LADDER)], _LOG_LADDER)))


def chosen_reg_of_ratings(model, entries, seed):
    """Return `reg` for ratings: the least squared error on a fifth of them that trials do not see.

    Trials climb `RATINGS_LADDER`, times the deviation of the ratings, from its middle, three to six fits. A
    step is taken only where the errors fall by more than the standard error of their difference, so that few
    ratings stay in the middle. Fewer than 500 and more than 200,000 do without: a part of the users of a
    larger table has so few ratings of each item that it takes larger penalties.
    """
    rng = np.random.default_rng([seed, 1])
    sample = entries.sample()
    scale = deviation(sample, sample.average(lambda values: values))
    few_or_many = not TRIALS_FROM <= len(entries) <= TRIALS_TO
    if few_or_many or len(sample) < len(entries) or model.solver_ == "gibbs":  # which learns its own priors
        return RATINGS_LADDER[RATINGS_FIRST] * scale
    out = rng.random(len(sample)) < _SHARE
    train, held = sample.chosen(~out), sample.chosen(out)
    if not (len(train) and len(held)):
        return RATINGS_LADDER[RATINGS_FIRST] * scale
    errors: dict[int, np.ndarray] = {}

    def error(step):
        if step not in errors:
            errors[step] = _squared_errors(model, train, held, RATINGS_LADDER[step] * scale, seed)
        return errors[step]

    def better(step, than):
        falls = error(than) - error(step)
        return falls.mean() > falls.std() / np.sqrt(len(falls))

    step, direction = RATINGS_FIRST, 0
    while 0 <= step < len(RATINGS_LADDER):
        moves = (-1, 1) if direction == 0 else (direction,)
        found = [k for k in moves if 0 <= step + k < len(RATINGS_LADDER) and better(step + k, step)]
        if not found:
            break
        direction = found[0]
        step += direction
    compare_with_biases(model, error(step), train, held)
    return RATINGS_LADDER[step] * scale


def _squared_errors(model, train, held, reg, seed):
    """Weighted squared errors of held-out ratings, by a fit of the same solver."""
    trial = _trial_of(model, reg, seed).set_params(reg="auto")
    trial.reg_, trial.bias_reg_, trial.reg_offset_ = reg, model.bias_reg_, model.reg_offset_
    trial.user_ids_, trial.item_ids_ = (np.arange(n) for n in train.shape)
    trial.solver_ = model.solver_
    sides, _ = _fitted(trial._solve, train, (None, None), seed, None, None, train.pattern, None)
    return squared_errors(sides, held)


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
    trial = _trial_of(model, reg, seed).set_params(max_iter=_ITERATIONS)
    _fitted(trial.fit, train)
    return evaluate_ranking(trial, held, _PLACES)["ndcg"]


def _trial_of(model, reg, seed):
    options = {
        "engine": "local",
        "checkpoint": None,
        "early_stopping": False,
        "random_state": seed,
        "verbose": 0,
    }
    return clone(model).set_params(reg=reg, **options)


def _fitted(fit, *given):
    """Fit a trial; Ctrl-C in it ends the whole fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptedFitWarning)
        try:
            return fit(*given)
        except InterruptedFitWarning:
            raise KeyboardInterrupt from None
