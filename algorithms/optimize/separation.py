"""Whether an unpenalised model has no best coefficients, because a direction lowers its loss without end.

Where a plane separates the classes, or a combination of columns the rows without counts, the loss falls like
``exp(-t)`` along it: each Newton step moves the predictors of such rows by about 1, however far the fit has
come. At a minimum Newton steps move nothing.
"""

from .preconditioner import Factors
from .rows import POISSON, SQUARED

_MOVED = 0.5  # of a predictor by a Newton step, after the fit
_NOTHING = 1e-8  # of the loss at the start: all classes are told apart
_MOST = 2000  # parameters, for the step


def separated(objective, x, x0):
    """Tell whether the loss falls without end from x, where a fit has ended.

    Parameters
    ----------
    objective : LinearObjective or MultinomialObjective
    x : float64 ndarray
    x0 : float64 ndarray
        The start.
    """
    loss = getattr(objective, "loss", None)
    if objective.l2 > 0 or loss == SQUARED:
        return False
    value, g = objective.value_and_gradient(x)
    if loss != POISSON and value <= _NOTHING * objective.value_and_gradient(x0)[0]:
        return True
    if loss is None or objective.n_parameters > _MOST or not g.any():
        return False
    d = Factors(objective).at(x).solve(g)
    return objective.rows.furthest(d[: objective.n_columns], float(d[objective.n_columns :].sum())) > _MOVED
