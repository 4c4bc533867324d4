"""L-BFGS preconditioned by the Hessian of a sample of the rows.

For many rows and few parameters, p:

1. The problem of 15 p random rows (at least 4,000) is solved to its own sampling error, which gives a start
   w_s.
2. The Cholesky factor of the sample's Hessian H_s there is a change of variables. With ``e = sqrt(p / rows)``
   the condition number of ``H_s^(-1) H`` is about ``((1 + e) / (1 - e))^2``, however the columns are scaled
   or correlated: a handful of passes over all rows is left. Entries of the diagonal are raised to those of
   all rows, as a column that the sample hardly saw would get steps far too long.
3. L-BFGS on all rows. After every 8 steps without success four times the rows are taken, and Newton's method
   when these are half of all.

Rows are drawn in blocks of 8, so that a sample reads whole cache lines, by a seed of its own that is
always the same.
"""

import numpy as np

from .lbfgs import minimize_lbfgs
from .newton import minimize_newton
from .preconditioner import Cholesky, Factors, far_means
from .stages import LBFGS_SHARE, Stages

_ROWS_PER_PARAMETER, _LEAST_ROWS = 15, 4_000
_BLOCK, _STEPS, _GROWTH = 8, 8, 4
_SAMPLE_STEPS, _SAMPLE_TOL = 40, 0.02  # tolerance in units of p / rows, the sample's own relative error


def minimize_sketch(objective, x0, *, max_iter=1000, tol_decrease=1e-6, callback=None, solve_sample=True):
    """Minimise; see the module.

    Parameters
    ----------
    objective : LinearObjective
    x0, max_iter, tol_decrease, callback
        See `minimize_newton`; steps on samples are not counted.
    solve_sample : bool, default=True
        Begin from the solution of the sample's problem; False where `x0` is better than that.

    Returns
    -------
    OptimizeResult
    """
    stages = Stages(objective, x0, max_iter, callback)
    n_rows = sample_size(objective)
    attempt = 0
    while not stages.over:
        if 2 * n_rows >= objective.n_rows:
            stages.run(minimize_newton, tol_decrease=tol_decrease)
            break
        sample = objective.sample(sampled_rows(objective.n_rows, n_rows, seed=attempt))
        if attempt == 0 and solve_sample:
            stages.x = _solution(sample, stages.x, _SAMPLE_TOL * objective.n_parameters / n_rows)
        stages.run(
            minimize_lbfgs,
            most=_STEPS,
            preconditioner=_preconditioner(objective, sample, stages.x),
            tol_gradient=0.0,
            tol_decrease=LBFGS_SHARE * tol_decrease,
        )
        n_rows *= _GROWTH
        attempt += 1
    return stages.result()


def sample_size(objective):
    """Rows of the first sample."""
    return max(_LEAST_ROWS, _ROWS_PER_PARAMETER * objective.n_parameters)


def sampled_rows(n, n_wanted, seed):
    """Draw rows in blocks of 8, without repetition; their numbers, rising.

    Examples
    --------
    >>> from stradask.algorithms.optimize.sketch import sampled_rows
    >>> sampled_rows(20, 8, seed=0).tolist()
    [8, 9, 10, 11, 12, 13, 14, 15]
    """
    n_blocks = max(1, n_wanted // _BLOCK)
    blocks = np.random.default_rng(seed).choice(n // _BLOCK, min(n_blocks, n // _BLOCK), replace=False)
    return (np.sort(blocks)[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()


def _solution(sample, x, tol):
    return minimize_lbfgs(
        sample.value_and_gradient,
        x,
        preconditioner=Factors(sample).at(x),
        max_iter=_SAMPLE_STEPS,
        tol_gradient=0.0,
        tol_decrease=tol,
        precision=sample.precision,
    ).x


def _preconditioner(objective, sample, x):
    """Cholesky factor of the sample's Hessian, its diagonal raised to that of all rows."""
    H, means = sample.hessian(x), None
    if objective.fit_intercept:
        means = far_means(np.diagonal(H), H[-1])
        H = H if means is None else sample.hessian(x, means)
    places = np.arange(len(H))
    H[places, places] = np.maximum(H[places, places], objective.hessian_diagonal(x, means))
    return Cholesky(H, means)
