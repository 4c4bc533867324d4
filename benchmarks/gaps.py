"""The outside judge of l1-penalised models: duality gaps by plain NumPy, no code of the library.

A gap bounds from above how far an objective is from its minimum, whoever made the coefficients. Both are
relative to the objective of the zero model (with its best intercept), so that a figure means the same on
every data set.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import entr, expit


def lasso_gap(X, y, coef, alpha, intercept=None):
    """Return the relative duality gap (P - D) / P(0) of a Lasso, and its objective P / n.

    P(b) = 1/2 |y - X b - b0|^2 + n alpha |b|_1 and, for any s with |s X^T r|_inf <= n alpha, D(s) = s y.r -
    s^2 |r|^2 / 2, r being the residual; with an intercept (not None), the residual less its mean (a dual
    point sums to 0 then). The best s is y.r / |r|^2, clipped to what is allowed. `alpha` is that of
    scikit-learn's ``Lasso``.

    Examples
    --------
    With one column the solution is known: the least-squares coefficient 2, drawn towards 0 by alpha = 0.5.

    >>> import numpy as np
    >>> from stradask.benchmarks.gaps import lasso_gap
    >>> X, y = np.array([[1.0], [-1.0]]), np.array([2.0, -2.0])
    >>> lasso_gap(X, y, np.array([1.5]), 0.5)
    (0.0, 0.875)
    >>> lasso_gap(X, y, np.array([0.0]), 0.5)
    (0.5625, 2.0)
    """
    penalty = alpha * len(y)
    residual = y - X @ coef - (intercept or 0.0)
    objective = 0.5 * residual @ residual + penalty * np.abs(coef).sum()
    target = y
    if intercept is not None:
        residual, target = residual - residual.mean(), y - y.mean()
    square = residual @ residual
    scale = (target @ residual) / square if square > 0 else 0.0
    limit = _limit(penalty, X.T @ residual)
    scale = min(max(scale, -limit), limit)
    dual = scale * (target @ residual) - 0.5 * scale**2 * square
    return float((objective - dual) / (0.5 * target @ target)), float(objective / len(y))


def logistic_gap(X, y, coef, alpha, intercept=None):
    """Return the relative duality gap of an l1-penalised logistic regression, and its objective P / n.

    P(b) = sum_i log(1 + exp(-y_i f_i)) + n alpha |b|_1 with f = X b + b0 and y_i = +-1. With
    u_i = 1 / (1 + exp(y_i f_i)) and any s in [0, 1] with |s X^T (y u)|_inf <= n alpha the dual objective is
    the sum of the binary entropies of s u_i. With an intercept (not None), f for the dual point is moved
    to where the sum of y u is 0. `alpha` is 1 / (C n) in scikit-learn's ``LogisticRegression``.

    Examples
    --------
    The zero model is the solution where alpha is at least the largest |X^T y| / 2n.

    >>> import numpy as np
    >>> from stradask.benchmarks.gaps import logistic_gap
    >>> X, y = np.array([[1.0], [-1.0]]), np.array([1.0, -1.0])
    >>> gap, objective = logistic_gap(X, y, np.zeros(1), 0.5)
    >>> round(gap, 12), round(objective, 6)
    (0.0, 0.693147)
    """
    penalty = alpha * len(y)
    decision = X @ coef
    objective = np.logaddexp(0, -y * (decision + (intercept or 0.0))).sum() + penalty * np.abs(coef).sum()
    if intercept is None:
        at_zero = len(y) * np.log(2)
    else:
        decision += _best_intercept(decision, y)
        share = (y > 0).mean()
        at_zero = len(y) * (entr(share) + entr(1 - share))
    u = expit(-y * decision)
    scaled = min(1.0, _limit(penalty, X.T @ (y * u))) * u
    dual = np.sum(entr(scaled) + entr(1 - scaled))
    return float((objective - dual) / at_zero), float(objective / len(y))


def _limit(penalty, correlations):
    """Return the largest s with |s c|_inf <= penalty."""
    largest = np.abs(correlations).max()
    return penalty / largest if largest > 0 else 1.0


def _best_intercept(decision, y):
    """Return the shift at which the residuals y u sum to 0."""
    reach = np.abs(decision).max() + 40 + np.log(len(y))  # beyond it one class has no residual left
    return brentq(lambda shift: np.sum(y * expit(-y * (decision + shift))), -reach, reach, xtol=1e-14)
