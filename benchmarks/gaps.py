"""The outside judge of sparse models: duality gaps by plain NumPy, no code of the library.

A gap bounds from above how far an objective is from its minimum, for coefficients of any solver. Both are
relative to the objective of the zero model (with its best intercept), so that a figure means the same on
every data set.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import entr, expit

from ..errors import DataError


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


def norms_gap(X, Y, coef, alpha, size):
    """Return the relative gap, and the objective, of least squares with a norm of each `size` rows of coef.

    P(B) = 1/2n |Y - X B|^2 + alpha sum_g |B_g|. The dual point is the residual, scaled: see `lasso_gap`.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.benchmarks.gaps import norms_gap
    >>> X, Y = np.array([[1.0], [-1.0]]), np.array([[2.0], [-2.0]])
    >>> norms_gap(X, Y, np.array([[1.5]]), 0.5, 1)
    (0.0, 0.875)
    """
    n, residual = len(Y), Y - X @ coef
    sizes = np.linalg.norm(coef.reshape(-1, size * coef.shape[1]), axis=1)
    objective = 0.5 * np.sum(residual**2) / n + alpha * sizes.sum()
    slopes = np.linalg.norm((X.T @ residual).reshape(len(sizes), -1), axis=1)
    limit, square, along = _limit(alpha * n, slopes), np.sum(residual**2), np.sum(residual * Y)
    scale = min(max(along / square, -limit), limit) if square > 0 else 0.0
    dual = (scale * along - 0.5 * scale**2 * square) / n
    return float((objective - dual) / (0.5 * np.sum(Y**2) / n)), float(objective)


def poisson_gap(X, y, coef, alpha):
    """Return the relative gap, and the objective, of l1-penalised counts with the mean exp(X b).

    P(b) = 1/n sum_i (exp f_i - y_i f_i) + alpha |b|_1. For s in [0, 1] the dual point is s (y - exp f): with
    m_i = y_i - s (y_i - exp f_i) the dual objective is 1/n sum_i (m_i - m_i log m_i). The gap is relative to
    the loss of the zero model above that of a model that knows y.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.benchmarks.gaps import poisson_gap
    >>> gap, objective = poisson_gap(np.eye(2), np.array([3.0, 1.0]), np.array([np.log(2), 0.0]), 0.5)
    >>> round(gap, 12), round(objective, 6)
    (0.0, 0.806853)
    """
    n, f = len(y), X @ coef
    mean = np.exp(f)
    objective = np.mean(mean - y * f) + alpha * np.abs(coef).sum()
    shares = y - min(1.0, _limit(alpha * n, X.T @ (y - mean))) * (y - mean)
    dual = np.mean(shares + entr(shares))
    return float((objective - dual) / (1 - np.mean(y + entr(y)))), float(objective)


def survival_gap(X, time, event, coef, alpha):
    """Return the relative gap, and the objective, of l1-penalised Cox regression without ties.

    P(b) is 1/n times the sum over events i of log sum_{time_j >= time_i} exp(f_j) - f_i, plus alpha |b|_1. A
    dual point has for each event a distribution q over those at risk, here s times that of their risks and
    1 - s at the one who dies; the dual objective is 1/n times the sum of the entropies of the q. The gap is
    relative to the loss of the zero model.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.benchmarks.gaps import survival_gap
    >>> X, time, event = np.array([[1.0], [0.0]]), np.array([1.0, 2.0]), np.array([True, True])
    >>> gap, objective = survival_gap(X, time, event, np.zeros(1), 0.25)
    >>> round(gap, 12), round(objective, 6)
    (0.0, 0.346574)
    """
    n, order = len(time), np.argsort(-time, kind="stable")
    if len(np.unique(time[event])) < event.sum():
        raise DataError("times of events are tied: the gap is that of distinct times")
    f, event, X = (X @ coef)[order], event[order], X[order]
    top = f.max()
    risk, each = np.exp(f - top), np.flatnonzero(event)
    sums = np.cumsum(risk)
    zero = np.log(np.flatnonzero(event) + 1.0).sum() / n
    objective = (np.log(sums[each]) + top - f[each]).sum() / n + alpha * np.abs(coef).sum()
    rates = np.cumsum((event / sums)[::-1])[::-1]
    s = min(1.0, _limit(alpha * n, X.T @ (risk * rates - event)))
    # The entropy of q: of the others, whose logarithms are known, and of the one who dies.
    others = np.cumsum(risk * (f - top))[each] - risk[each] * (f[each] - top)
    apart = 1 - risk[each] / sums[each]
    entropy = -s * others / sums[each] + apart * (entr(s) + s * np.log(sums[each]))
    entropy += entr(1 - s + s * risk[each] / sums[each])
    return float((objective - entropy.sum() / n) / zero), float(objective)


def _limit(penalty, correlations):
    """Return the largest s with |s c|_inf <= penalty."""
    largest = np.abs(correlations).max()
    return penalty / largest if largest > 0 else 1.0


def _best_intercept(decision, y):
    """Return the shift at which the residuals y u sum to 0."""
    reach = np.abs(decision).max() + 40 + np.log(len(y))  # beyond it one class has no residual left
    return brentq(lambda shift: np.sum(y * expit(-y * (decision + shift))), -reach, reach, xtol=1e-14)
