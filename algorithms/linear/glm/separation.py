"""Whether an unpenalised model has no best coefficients, because a direction lowers its loss without end.

Where planes separate classes, or a combination of columns the rows without counts, the loss falls like
``exp(-t)`` along it: each Newton step moves the predictors of such rows by about 1, however far the fit has
come. At a minimum Newton steps move nothing.
"""

import numpy as np

from ...optimize.methods.conjugate_gradients import conjugate_gradients
from ...optimize.methods.preconditioner import BetweenClasses, Factors
from .objective import MultinomialObjective
from .rows import POISSON, SQUARED

_MOVED = 0.5  # of a predictor by a Newton step, after the fit
_MOVED_OF_CLASSES = 0.25  # of several classes: from the mean of the classes, half of what two are apart
_PRODUCTS, _RESIDUAL = 200, 1e-10  # of conjugate gradients
_NOTHING = 1e-8  # of the loss at the start: all classes are separated
_MOST = 2000  # parameters, for the step


def separated(objective, x, x0):
    """Whether the loss falls without end from x, where a fit has ended.

    `x0`: float64 ndarray; the start.
    """
    loss = getattr(objective, "loss", None)
    if objective.l2 > 0 or loss == SQUARED:
        return False
    value, g = objective.value_and_gradient(x)
    if loss != POISSON and value <= _NOTHING * objective.value_and_gradient(x0)[0]:
        return True
    if objective.n_parameters > _MOST or not g.any():
        return False
    if isinstance(objective, MultinomialObjective):
        return _moved_of_classes(objective, x, g) > _MOVED_OF_CLASSES
    d = Factors(objective).at(x).solve(g)
    return objective.rows.furthest(d[: objective.n_columns], float(d[objective.n_columns :].sum())) > _MOVED


def _moved_of_classes(objective, x, g):
    """How far a Newton step moves the predictors of a row, less their mean over the classes."""
    P = BetweenClasses(objective.hessian_diagonal(x), objective.n_classes)
    ridge = objective.ridge

    def product(v):
        return P.transposed(objective.hessian_product(x, P.direct(v))) + ridge * v

    right = P.transposed(g)
    most = min(_PRODUCTS, objective.n_parameters)
    u = conjugate_gradients(product, right, _RESIDUAL * np.linalg.norm(right), most)
    D = P.direct(u).reshape(-1, objective.n_classes)
    p = objective.n_columns
    return max(objective.rows.furthest(d[:p], float(d[p:].sum())) for d in np.ascontiguousarray(D.T))
