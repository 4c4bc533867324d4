"""Modes that chains which were asked for by name may not have seen.

"auto" looks for modes before it samples. Chains of NUTS, HMC, slices and the others begin near the start. Of
modes that lie apart, or of a narrow one within a wide one, all may know the same one, and R-hat is 1.00.
So modes are looked for afterwards, for the diagnostics alone: with random numbers of their own, and few
evaluations of the density compared with those of the chains.
"""

from dataclasses import replace

import numpy as np

from ....scheduler.threads import single_threaded_blas
from .laplace import MOST_MODES, Budget, Mode, find_mode, heaviest, scattered

_PART = 0.05  # of the evaluations that the draws took
_FEW, _PART_OF_FEW = 1000, 0.25  # where these are few
_ELSEWHERE = 2**32 - 1  # in the place of a shard's number: random numbers that no chain has


def look_for_modes(model, sample, seed):
    """Look for modes about chains that were sampled without a search for any.

    Parameters
    ----------
    model : Model
    sample : Sample
    seed : int

    Returns
    -------
    Sample
        With the modes that were found; unchanged where modes were looked for already, where the density is
        known to be concave, and where no mode with a definite Hessian is found.

    Notes
    -----
    The first search begins at the draw with the highest density, the others at points scattered about it, by
    the covariance of the draws, and about the start. An error that the density raises so far out ends that
    search alone, as chains never came there. Ctrl-C ends the search, and keeps the draws.
    """
    if sample.n_searches or not sample.states or model.concave:
        return sample
    known = _place_of(sample)
    if known is None:
        return sample
    total = float(sample.statistic("n_gradients").sum())
    budget = Budget(max(_PART * total, min(_FEW, _PART_OF_FEW * total)))
    modes: list[Mode] = []
    n = 0
    try:
        with single_threaded_blas():
            for start in _starts(model, known, len(sample.chains), seed):
                if budget.left <= 0 or len(modes) == MOST_MODES:
                    break
                n += 1
                mode = _search(model, start, known, modes, budget)
                if mode is not None and not any(one is mode or one.is_near(mode.q) for one in modes):
                    modes.append(mode)
    except KeyboardInterrupt:
        sample = replace(sample, reason=f"{sample.reason}; the search for other modes was stopped")
    model.take_tally()  # of places where no chain was
    if not modes:
        return sample
    modes = heaviest(modes)
    return replace(sample, modes=tuple(modes), n_modes=len(modes), n_searches=n)


def _place_of(sample):
    """The draw with the highest density, with the covariance of all; None where that is singular."""
    draws = sample.stacked().reshape(-1, sample.chains[0].draws.shape[1])
    logps = sample.stacked("log_densities").ravel()
    try:
        A = np.linalg.cholesky(np.atleast_2d(np.cov(draws.T)))
    except np.linalg.LinAlgError:
        return None
    best = int(logps.argmax())
    return Mode(draws[best], A, np.eye(len(A)), float(logps[best])) if np.isfinite(A).all() else None


def _starts(model, known, n_pairs, seed):
    yield known.q
    points = scattered(model, known, n_pairs, seed, _ELSEWHERE)
    while True:
        try:
            yield next(points)
        except Exception:  # no finite density there
            return


def _search(model, start, known, modes, budget):
    """A mode, or None, where the density may fail as it likes."""
    try:
        return find_mode(model, start, scales=known.A, known=modes, budget=budget)
    except Exception:
        return None
