"""First looks at the rows of a mixed model: a fit without groups, and the size of effects by moments."""

import numpy as np

from . import families

_NEWTON_STEPS, _FEW = 30, 1e-8  # of the fit without groups
_LEAST_INFORMATION = 1e-6  # on an effect in units of its column, so that that of few rows can be inverted
_LEAST_SPREAD = 0.05  # of effects, where the first look sees none: in units of the predictor


def _own_start(family, X, design):
    """The family's own parameters, about."""
    y = design.y
    if family in ("normal", "student_t"):
        rest = y - design.offsets
        rest = rest - X @ np.linalg.lstsq(X, rest, rcond=None)[0] if X.shape[1] else rest
        sigma = max(np.sqrt(np.average(rest**2, weights=design.weights)), 1e-3 * np.abs(y).max(), 1e-150)
        return {"sigma": sigma} | ({"freedom": 5.0} if family == "student_t" else {})
    if family == "ordered":
        shares = np.cumsum(np.bincount(y.astype(int), design.weights, design.n_levels) + 0.5)
        shares = shares[:-1] / shares[-1]
        return {"cut": np.log(shares / (1 - shares))}
    return {"negative_binomial": {"overdispersion": 0.5}, "gamma": {"shape": 1.0}}.get(family, {})


def pooled(family, X, design):
    """Coefficients of a fit without groups, by Newton steps with a ridge, and the own parameters."""
    own, coefs = _own_start(family, X, design), np.zeros(X.shape[1])
    if design.intercept and family in ("poisson", "negative_binomial", "gamma"):
        coefs[-1] = np.log(max(np.average(design.y, weights=design.weights), 0.5 / len(X)))
    for _ in range(_NEWTON_STEPS):
        slope, curve = families.slopes(family, X @ coefs + design.offsets, design.y, own)
        gradient = X.T @ (design.weights * slope) - 1e-2 * coefs
        hessian = (X * (design.weights * np.maximum(curve, _FEW))[:, None]).T @ X + 1e-2 * np.eye(len(coefs))
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / max(np.abs(step).max(initial=0.0), _FEW))
        coefs = coefs + step
        if np.abs(step).max(initial=0.0) < 1e-6:
            break
    return coefs, own


def first_look(family, f, design, term, own):
    """Standard deviations (k,) of the effects, by moments, and a bit for each column to centre.

    With the slope s and the information J (k, k) of a group's log likelihood ``J^-1 s`` is a Newton step to
    its effects, with variances of those and of the diagonal of J^-1. A column is centred where the rows of
    most groups say more of their effects than the other groups do.
    """
    slope, curve = families.slopes(family, f, design.y, own)
    (G, k), Z = (len(term.levels), len(term.columns)), term.Z
    scores, J = np.empty((G, k)), np.empty((G, k, k))
    for i in range(k):
        scores[:, i] = np.bincount(term.groups, design.weights * slope * Z[:, i], G)
        for j in range(k):
            J[:, i, j] = np.bincount(
                term.groups, design.weights * np.maximum(curve, 0) * Z[:, i] * Z[:, j], G
            )
    sizes = np.sqrt(np.mean(Z**2, axis=0))
    inverse = np.linalg.inv(J + np.diag(_LEAST_INFORMATION * sizes**2))
    variances = np.maximum(np.diagonal(inverse, axis1=1, axis2=2), 0)
    steps = (inverse @ scores[:, :, None])[:, :, 0]
    trust = 1 / variances**2
    squares = ((steps**2 - variances) * trust).sum(axis=0) / trust.sum(axis=0)
    spreads = np.maximum(np.sqrt(np.maximum(squares, 0)), _LEAST_SPREAD / sizes)
    shares = spreads**2 / (spreads**2 + variances)
    return spreads, int(((shares > 0.5).mean(axis=0) > 0.5) @ 2 ** np.arange(k))
