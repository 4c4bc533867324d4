"""L-BFGS from the solution of a sample of the rows, preconditioned by the Hessian of a sample.

For many rows and few parameters, p:

1. The problem of 15 p random rows (at least 4,000) is solved to its own sampling error, which gives a start
   w_s.
2. Rows are added to the sample as long as their Hessian takes but a part of a pass over all rows, and the
   solution is corrected on them.
3. The Cholesky factor of the sample's Hessian H_s there is a change of variables. With ``e = sqrt(p / rows)``
   the condition number of ``H_s^(-1) H`` is about ``((1 + e) / (1 - e))^2``, however the columns are scaled
   or correlated: a handful of passes over all rows is left.
4. L-BFGS on all rows. After every 8 steps without success four times the rows are taken, and Newton's method
   when these are half of all.

Where the Hessian of the first sample takes longer than a pass over all rows, the sample's problem is solved
with the diagonal of its Hessian. If few steps did that, the columns correlate little, and the diagonal serves
for all rows, too; else the Hessian follows. What the diagonal then takes for a minimum is held against the
Newton decrement with the sample's Hessian (`Excess`), since flat directions show in neither.

Columns of a sparse matrix that a sample would hardly see (rare values of a category) decide how many passes
it takes: where a few weighted rows are all that is known of a column, its coefficient is far off, and one
that is not seen at all gets steps far too long. So all rows of such columns are in the sample, each standing
for itself, up to as many as are drawn. Where a column is hardly seen nevertheless (in a dense matrix), its
entry of the diagonal is raised to that of all rows.

Rows are drawn in blocks of 8, so that a sample reads whole cache lines, by a seed of its own that is
always the same.
"""

import functools

import numpy as np

from ...optimize.methods.excess import Excess
from ...optimize.methods.lbfgs import minimize_lbfgs
from ...optimize.methods.newton import minimize_newton
from ...optimize.methods.preconditioner import Cholesky, Factors, far_means, scaling_at, scaling_of
from ...optimize.stages import LBFGS_SHARE, Stages
from .rows import CALL, row_costs

_ROWS_PER_PARAMETER, _LEAST_ROWS = 15, 4_000  # of the sample
_BLOCK, _STEPS, _GROWTH = 8, 8, 4  # rows side by side; steps before the sample grows, and how much
_CORRECTIONS = 10  # steps on a larger sample
_NEAR = 3  # of them, over which its Hessian hardly changes
_SAMPLE_STEPS, _SAMPLE_TOL = 40, 0.02  # tolerance in units of p / rows, the sample's own relative error
_ADDED = 0.3  # of a pass over all rows: what the Hessian of a larger sample may take
_BY_HESSIAN = 6  # steps on all rows with a sample's Hessian, about
_PATIENCE = 25  # steps of the diagonal on all rows
_ASSURED = 0.5  # of a tolerance: the decrement of a sample of 15 rows a parameter may be that much too small
_RARE = 100.0  # entries of a column expected in a sample, or all of its rows are taken
_SEEN = 10.0  # rows that made a column's entry of the diagonal, or that of all rows is taken


def minimize_sketch(objective, x0, *, max_iter=1000, tol_decrease=1e-6, callback=None, solve_sample=True):
    """Minimise; see the module.

    `x0`, `max_iter`, `tol_decrease`, `callback`: see `minimize_newton`; steps on samples are not counted.
    `solve_sample`: begin from the solution of the sample's problem; False where `x0` is better than that.
    """
    stages = Stages(objective, x0, max_iter, callback)
    n_rows = sample_size(objective)
    attempt = 0
    while not stages.over:
        if n_rows >= objective.most_sampled:
            stages.run(minimize_newton, tol_decrease=tol_decrease)
            break
        sample = sample_of(objective, n_rows, seed=attempt)
        if attempt == 0 and solve_sample:
            stages.x, preconditioner, n_rows = _solved(objective, sample, stages.x)
        else:
            preconditioner = _preconditioner(objective, sample, stages.x)
        by_hessian = isinstance(preconditioner, Cholesky)
        stages.run(
            minimize_lbfgs,
            most=_STEPS if by_hessian else _PATIENCE,
            preconditioner=preconditioner,
            excess=None if by_hessian else _excess(sample, tol_decrease),
            tol_gradient=0.0,
            tol_decrease=LBFGS_SHARE * tol_decrease,
        )
        n_rows *= _GROWTH if by_hessian else 1
        attempt += 1
    return stages.result()


def _excess(sample, tol):
    return Excess(sample, _ASSURED * tol, functools.partial(scaling_at, sample), False)


def sample_size(objective):
    """Rows of the first sample: more where weights leave few rows that count."""
    n_rows = max(_LEAST_ROWS, _ROWS_PER_PARAMETER * objective.n_parameters)
    return min(objective.n_rows, int(n_rows / objective.share_that_counts))


def sampled_rows(n, n_wanted, seed):
    """Draw rows in blocks of 8, without repetition; their numbers, rising."""
    n_blocks = max(1, n_wanted // _BLOCK)
    blocks = np.random.default_rng(seed).choice(n // _BLOCK, min(n_blocks, n // _BLOCK), replace=False)
    return (np.sort(blocks)[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()


def sample_of(objective, n_rows, seed):
    """The objective on random rows, and on all that have an entry in a column which these would hardly see.

    The latter are at most as many as the former, and stand for themselves alone.
    """
    rows = sampled_rows(objective.n_rows, n_rows, seed)
    whole = objective.rows.rows_of_rare_columns(_RARE * objective.n_rows / len(rows), len(rows))
    others = rows[~np.isin(rows, whole)]
    return objective.sample(others, whole) if len(others) else objective.sample(rows)


def _solved(objective, sample, x):
    """The solution of a sample, a preconditioner for all rows there, and the rows that were drawn for it."""
    n_rows = sample_size(objective)
    row, hessian_row = row_costs(objective.rows)
    a_pass, hessian = objective.n_rows * row + CALL, sample.n_rows * hessian_row
    more = min(int(_ADDED * a_pass / hessian_row), objective.most_sampled)
    if more >= 2 * sample.n_rows:  # then their Hessian takes less than a pass, too
        objective.rows.expect(sampled_rows(objective.n_rows, more, seed=0))
    if hessian > a_pass:
        result = _descent(sample, x, scaling_of(sample, x), int(_BY_HESSIAN + hessian / a_pass))
        if result.success:
            return result.x, scaling_of(sample, result.x), n_rows
        x = result.x
    x = _descent(sample, x, Factors(sample).at(x), _SAMPLE_STEPS).x
    if more < 2 * sample.n_rows:
        return x, _preconditioner(objective, sample, x), n_rows
    n_rows = more
    larger = sample_of(objective, n_rows, seed=0)
    factor = _preconditioner(objective, larger, x)
    result = _descent(larger, x, factor, _CORRECTIONS)
    if result.nit > _NEAR:
        factor = _preconditioner(objective, larger, result.x)
    return result.x, factor, n_rows


def _descent(sample, x, preconditioner, max_iter):
    """L-BFGS to the sampling error."""
    return minimize_lbfgs(
        sample.value_and_gradient,
        x,
        preconditioner=preconditioner,
        max_iter=max_iter,
        tol_gradient=0.0,
        tol_decrease=_SAMPLE_TOL * sample.n_parameters / sample.n_rows,
        precision=sample.precision,
    )


def _preconditioner(objective, sample, x):
    """Cholesky factor of the sample's Hessian, its diagonal raised to that of all rows where it must be."""
    H, means = sample.hessian(x), None
    if objective.fit_intercept:
        means = far_means(np.diagonal(H), H[-1])
        H = H if means is None else sample.hessian(x, means)
    hardly = np.flatnonzero(sample.rows_behind_diagonal(x) < _SEEN) if means is None else np.arange(len(H))
    if len(hardly):
        H[hardly, hardly] = np.maximum(H[hardly, hardly], objective.hessian_diagonal(x, means)[hardly])
    return Cholesky(H, means, objective.ridge)
