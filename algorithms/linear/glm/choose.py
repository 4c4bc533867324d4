"""Which method minimises a penalised linear objective: the rule of ``solver="auto"``.

For p parameters and n rows of k entries each, the least of three estimates of time is taken, in passes over
the data and Hessians:

- *Newton-Cholesky*: 6 Hessians and 6 passes (for the squared loss 1 and 2), and a factor each time.
- *Sketch* (`sketch`): 9 passes, whatever the scales of the columns and however they correlate; on a sample of
  15 p rows, which must be less than half of all, 2 Hessians and 20 passes.
- *Diagonal*: L-BFGS preconditioned by the diagonal of the Hessian, about 35 passes. Nothing in the shape
  of the data says how many it will be (the squared loss takes conjugate gradients instead, with the same
  preconditioner and fewer passes): where it has not arrived after 25 steps (60 if neither of the others
  can follow, 8 if a step's vectors then cost more than its pass), it hands over: to the sketch if p and n
  allow, to Newton-Cholesky where a Hessian costs few passes, else to Newton's method with conjugate
  gradients, and where that has not arrived after 20 steps either, to Newton-Cholesky. Sparse rows, fewer
  than the columns, begin with Newton's method or L-BFGS in the space of the rows (`row_newton`).

L-BFGS with the diagonal, and that of multinomial models, is believed to have converged where `excess` proves
it. `Ridge` asks `ridge_system` first.

What a row costs in a pass and in a Hessian was measured; only ratios matter, which vary little between
machines: a pass waits for memory (dense) or for scattered entries (sparse), a Hessian is a product of dense
blocks, about ten times as fast an operation, or k^2 / 2 scattered entries. A Newton fit that takes a few
milliseconds anyway is preferred: its last step leaves an error of the order of rounding.
"""

import functools
from typing import Any

import numpy as np

from ...optimize.methods.excess import Excess
from ...optimize.methods.lbfgs import minimize_lbfgs
from ...optimize.methods.newton import minimize_newton, minimize_newton_cg, minimize_proximal_newton
from ...optimize.methods.preconditioner import (
    BetweenClasses,
    Cholesky,
    Diagonal,
    Factors,
    Repeated,
    less_class_means,
    scaling_at,
    scaling_of,
)
from ...optimize.methods.quadratic import minimize_quadratic
from ...optimize.stages import LBFGS_SHARE, Stages
from .row_newton import applies as row_newton_applies
from .row_newton import minimize_by_row_newton
from .row_space import applies as row_space_applies
from .row_space import minimize_by_rows
from .rows import CALL, SQUARED, row_costs
from .sketch import minimize_sketch, sample_size
from .small import applies as small_applies
from .small import minimize_small
from .small_multinomial import applies as small_multinomial_applies
from .small_multinomial import minimize_small_multinomial

NEWTON_MOST = 2000  # parameters: beyond, a Hessian and its factor take too much memory and time
_NEWTON_STEPS, _SKETCH_PASSES, _DIAGONAL_PASSES = 6, 9, 35  # see above
_SAMPLE_HESSIANS, _SAMPLE_PASSES = 2, 20  # of the sketch
_AT_ONCE = 5e6  # nanoseconds: a fit so short that nothing is gained by another method
_PROOF_PASSES = 10  # that a Hessian may cost which proves that L-BFGS has converged
_CHEAP_HESSIAN = (
    30  # passes: beyond, steps by conjugate gradients are tried first where L-BFGS has not arrived
)
_LATE_SKETCH_ROWS = 6  # a parameter
_LATE_NEWTON_MOST = 4000  # parameters, where all else has failed
_QUADRATIC_STEPS = 2  # of conjugate gradients: what one solve does not reach, more will not
_GRAM_MOST = 500  # columns of a multinomial model for one class's Hessian
_ROW_SPACE_PATIENCE = 250  # steps, of which each costs less than half of one with the diagonal
_PATIENCE, _LONG_PATIENCE = 25, 60  # steps of the diagonal, where the sketch can follow and where it cannot
_CONJUGATE_PATIENCE = 200  # steps of conjugate gradients for the squared loss
_ANEW = 100  # steps with one diagonal, at first: on badly scaled data it changes by orders of magnitude
_L1_FEW = 100  # columns for which whole Hessians pay with an l1 penalty, however few the rows
_THIN = 10  # entries a column: with fewer, the vectors of a step of L-BFGS cost more than its pass
_SHORT_PATIENCE = 8  # there
_FORCING, _QUADRATIC = 0.1, 1e-5  # residuals of Newton systems; a quadratic has but one


def minimise(objective, x0, *, solver="auto", max_iter=1000, tol=1e-6, callback=None):
    """Minimise a `LinearObjective`; return a result and the name of the first method.

    "newton": with the Hessian for up to 2,000 parameters, else with conjugate gradients. "sandblaster" or
    "lbfgs": L-BFGS with the diagonal of the Hessian; or another name of a method. `tol`: excess over the
    minimum, relative to the objective.
    """
    if solver in ("auto", "newton") and small_applies(objective):
        return _small(objective, x0, max_iter, callback, tol_decrease=tol), "newton"
    if solver == "newton":
        name = "newton" if objective.n_parameters <= NEWTON_MOST else "newton-cg"
    elif solver == "auto":
        name = method_for(objective)
    else:
        name = "lbfgs" if solver == "sandblaster" else solver
    options = {"max_iter": max_iter, "tol_decrease": tol, "callback": callback}
    if name == "lbfgs" and solver == "auto":
        return _diagonal_first(objective, x0, **options)
    return _METHODS[name](objective, x0, **options), name


def method_for(objective):
    """Return "newton", "sketch" or "lbfgs" by the module's rule, from the shape of the data alone."""
    p, n = objective.n_parameters, objective.n_rows
    row, hessian_row = row_costs(objective.rows)
    factor = 0.1 * p**3 / 3
    steps = 1 if objective.loss == SQUARED else _NEWTON_STEPS
    a_pass = n * row + CALL
    newton = steps * (n * hessian_row + a_pass + factor) + a_pass
    if newton <= _AT_ONCE and p <= NEWTON_MOST:
        return "newton"
    m = sample_size(objective)
    sample = m * (_SAMPLE_PASSES * row + _SAMPLE_HESSIANS * hessian_row) + _SAMPLE_HESSIANS * factor
    times = {"lbfgs": _DIAGONAL_PASSES * a_pass}
    if p <= NEWTON_MOST:
        times["newton"] = newton
        if m < objective.most_sampled:
            times["sketch"] = _SKETCH_PASSES * a_pass + _SAMPLE_PASSES * CALL + sample
    return min(times, key=lambda name: times[name])


def minimise_square(objective, x0, *, solver="auto", factor=None, max_iter=1000, tol=1e-6, callback=None):
    """Minimise a `LinearObjective` of the squared loss; return a result and ``(name, factor)``.

    Its Hessian is the same everywhere and for all targets: L-BFGS in the variables of its Cholesky factor
    takes the Newton step, and then corrects what rounding left. `factor`: from an earlier call.
    """
    by_hessian = solver == "newton" and objective.n_parameters <= NEWTON_MOST
    if not by_hessian and (solver != "auto" or method_for(objective) != "newton"):
        result, name = minimise(objective, x0, solver=solver, max_iter=max_iter, tol=tol, callback=callback)
        return result, (name, None)
    factor = factor or Factors(objective).at(x0)
    result = _lbfgs(
        objective, x0, preconditioner=factor, max_iter=max_iter, tol_decrease=tol, callback=callback
    )
    return result, ("newton", factor)


class SquareMinimiser:
    """`minimise_square` for one target after the other: those of equal penalty share a factor."""

    def __init__(self, solver):
        self._solver, self._l2, self._factor = solver, None, None

    def __call__(self, objective, x0, **options):
        """Minimise; return a result and a name."""
        factor = self._factor if objective.l2 == self._l2 else None
        result, (name, self._factor) = minimise_square(
            objective, x0, solver=self._solver, factor=factor, **options
        )
        self._l2 = objective.l2
        return result, name


def minimise_multinomial(objective, x0, *, solver="auto", max_iter=1000, tol=1e-6, callback=None):
    """Minimise a `MultinomialObjective` by L-BFGS, or few parameters by Newton's method; as `minimise`.

    In the space of the rows where these are sparse and fewer than half of the columns (`row_space`). Else,
    and where that has not arrived after many steps, preconditioned for each class alike, by the Hessian at
    zero where that is cheap, otherwise by its diagonal there; after many steps by that where they have led.
    """
    x0 = less_class_means(x0, objective.n_classes)
    stages = Stages(objective, x0, max_iter, callback)
    if solver in ("auto", "newton") and small_multinomial_applies(objective):
        stages.run(minimize_small_multinomial, tol_decrease=tol)
        if stages.over:
            return stages.result(), "newton"
    if row_space_applies(objective, x0):
        stages.run(minimize_by_rows, most=_ROW_SPACE_PATIENCE, tol_decrease=tol)
    if not stages.over:
        if objective.n_columns <= _GRAM_MOST:
            factor = Cholesky(objective.class_hessian(), ridge=objective.ridge)
            preconditioner: Any = Repeated(factor, objective.n_classes)
        else:
            preconditioner = Diagonal(objective.hessian_diagonal())

        def scaling(x):
            return BetweenClasses(objective.hessian_diagonal(x), objective.n_classes)

        excess = Excess(objective, tol, scaling, False) if _in_double(objective) else None
        stages.run_lbfgs(scaling, _ANEW, first=preconditioner, tol_decrease=tol, excess=excess)
    return stages.result(), "lbfgs"


def hessian_pays(n_rows, n_columns):
    """Whether `minimise_sparse` is faster than a working set of columns, where both could be taken.

    A working set makes more passes over the rows, and its systems are small where few coefficients are not
    zero. Both took as long for 16,000 rows and 250 columns; what depends on columns alone grows with their
    cube, and a little of it with the rows.
    """
    return n_columns <= _L1_FEW or (n_columns < NEWTON_MOST and 4 * n_rows >= n_columns**2)


def by_columns(shape, here):
    """Whether the working set solves an l1 penalty; on a cluster Hessians are summed where the rows are."""
    return shape[1] >= NEWTON_MOST or (here and not hessian_pays(*shape))


def minimise_sparse(objective, x0, *, l1, max_iter=1000, tol=1e-6, callback=None):
    """Minimise a `LinearObjective` plus ``l1 sum_j d_j |w_j|``, the intercept left out; as `minimise`.

    For up to a few thousand parameters.
    """
    weights = np.zeros(objective.n_parameters)
    weights[: objective.n_penalised] = l1 * objective.scales
    slow = functools.partial(minimize_proximal_newton, l1=weights)
    if small_applies(objective):
        result = _small(objective, x0, max_iter, callback, slow, l1=weights, tol_decrease=tol)
    else:
        result = slow(objective, x0, max_iter=max_iter, tol_decrease=tol, callback=callback)
    return result, "proximal-newton"


def _small(objective, x0, max_iter, callback, slow=minimize_newton, *, tol_decrease, **options):
    """Minimise by compiled steps, and where these end early by others."""
    stages = Stages(objective, x0, max_iter, callback)
    stages.run(minimize_small, tol_decrease=tol_decrease, **options)
    if not stages.over:
        stages.run(slow, tol_decrease=tol_decrease)
    return stages.result()


def _diagonal_first(objective, x0, *, max_iter, tol_decrease, callback):
    """Run L-BFGS with the diagonal, and another method if it is slow; returns as `minimise`."""
    p = objective.n_parameters
    small = p <= NEWTON_MOST and objective.n_rows >= _LATE_SKETCH_ROWS * p
    stages = Stages(objective, x0, max_iter, callback)
    name = "lbfgs"
    if row_newton_applies(objective, x0):
        name = stages.run(minimize_by_row_newton, tol_decrease=tol_decrease).method
        if stages.over:
            return stages.result(), name
    scaling = scaling_of(objective, stages.x)
    thin = objective.rows.n_entries < _THIN * p
    most = _PATIENCE if small else _SHORT_PATIENCE if thin else _LONG_PATIENCE
    if objective.loss == SQUARED:
        name, most = "newton-cg", _PATIENCE if small else _CONJUGATE_PATIENCE
        stages.run(minimize_quadratic, most=most, scaling=scaling, tol_decrease=tol_decrease)
    else:
        stages.run(
            minimize_lbfgs,
            most=most,
            preconditioner=scaling,
            excess=_excess(objective, tol_decrease),
            tol_gradient=0.0,
            tol_decrease=LBFGS_SHARE * tol_decrease,
        )
    if not stages.over and small:
        stages.run(minimize_sketch, solve_sample=False, tol_decrease=tol_decrease)
    elif not stages.over and p <= NEWTON_MOST and _hessian_passes(objective) <= _CHEAP_HESSIAN:
        stages.run(minimize_newton, tol_decrease=tol_decrease)
    elif not stages.over:
        factors = p <= _LATE_NEWTON_MOST  # what comes last has all steps that are left
        steps = _QUADRATIC_STEPS if objective.loss == SQUARED else _LONG_PATIENCE // 3
        last = stages.run(_newton_cg, most=steps if factors else None, tol_decrease=tol_decrease)
        missed = factors and last.success and _excess(objective, tol_decrease)(last.x, last.fun, last.jac) > 1
        if factors and (missed or not stages.over):  # conjugate gradients may not have found a flat direction
            stages.run(minimize_newton, tol_decrease=tol_decrease)
    return stages.result(), name


def _newton_cg(objective, x0, **options):
    forcing = _QUADRATIC if objective.loss == SQUARED else _FORCING
    return minimize_newton_cg(
        objective, x0, scaling=functools.partial(scaling_of, objective), forcing=forcing, **options
    )


def _lbfgs(objective, x0, *, preconditioner, **options):
    return minimize_lbfgs(
        objective.value_and_gradient,
        x0,
        preconditioner=preconditioner,
        tol_gradient=0.0,
        precision=objective.precision,
        **options,
    )


def _lbfgs_by_diagonal(objective, x0, *, tol_decrease, max_iter, callback):
    stages = Stages(objective, x0, max_iter, callback)
    stages.run_lbfgs(
        functools.partial(scaling_at, objective),
        _ANEW,
        first=scaling_of(objective, x0),
        tol_decrease=tol_decrease,
        excess=_excess(objective, tol_decrease),
    )
    return stages.result()


def _excess(objective, tol):
    """The convergence test of L-BFGS: by a factor where it costs no more than a few passes."""
    by_factor = objective.n_parameters <= NEWTON_MOST and _hessian_passes(objective) <= _PROOF_PASSES
    return Excess(objective, tol, functools.partial(scaling_at, objective), by_factor)


def _hessian_passes(objective):
    """The cost of a Hessian and its factor in passes over the rows."""
    row, hessian_row = row_costs(objective.rows)
    p, n = objective.n_parameters, objective.n_rows
    return (n * hessian_row + 0.1 * p**3 / 3) / (n * row + CALL)


def _in_double(objective):
    """Whether gradients are precise enough to tell the excess from rounding."""
    return objective.rows.dtype == np.float64


_METHODS: dict[str, Any] = {
    "newton": minimize_newton,
    "newton-cg": _newton_cg,
    "sketch": minimize_sketch,
    "lbfgs": _lbfgs_by_diagonal,
}
