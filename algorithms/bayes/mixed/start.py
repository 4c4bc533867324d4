"""First looks at the rows of a mixed model: a fit without groups, and the size of effects by moments."""

import numpy as np
from scipy import special

from . import families
from .priors import location

_NEWTON_STEPS, _FEW = 30, 1e-8  # of the fit without groups
_LEAST_INFORMATION = 1e-6  # on an effect in units of its column, so that that of few rows can be inverted
_OUTER = 0.8  # part of the information on the effects of outer groups, from which these are centred
_LEAST_SPREAD = 0.05  # of effects, where the first look sees none: in units of the predictor


def pooled(family, X, design):
    """Coefficients of a fit without groups, by least squares or Newton steps, and the own parameters."""
    coefs, aux = np.zeros(X.shape[1]), {}
    if family in ("normal", "student_t"):
        target, root = design.y - design.offsets, np.sqrt(design.weights)
        coefs = np.linalg.lstsq(X * root[:, None], target * root, rcond=None)[0]
        size = np.sqrt(np.average((target - X @ coefs) ** 2, weights=design.weights))
        aux["sigma"] = max(size, 1e-3 * target.std(), 1e-150)
        return coefs, aux | ({"freedom": 5.0} if family == "student_t" else {})
    if family == "ordered":
        shares = np.cumsum(np.bincount(design.y.astype(int), design.weights, design.n_levels) + 0.5)
        aux["cut"] = special.logit(shares[:-1] / shares[-1])
    aux |= {"negative_binomial": {"overdispersion": 0.5}, "gamma": {"shape": 1.0}}.get(family, {})
    if design.intercept:
        coefs[-1], _ = location(family, design)
    for _ in range(_NEWTON_STEPS):
        slope, curve = families.slopes(family, X @ coefs + design.offsets, design.y, aux)
        gradient = X.T @ (design.weights * slope) - 1e-2 * coefs
        hessian = (X * (design.weights * np.maximum(curve, _FEW))[:, None]).T @ X + 1e-2 * np.eye(len(coefs))
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / max(np.abs(step).max(initial=0.0), _FEW))
        coefs = coefs + step
        if np.abs(step).max(initial=0.0) < 1e-6:
            break
    return coefs, aux


def first_looks(family, f, design, aux):
    """Standard deviations (k,) of the effects of each term, by moments, and a bit for each column to centre.

    With the slope s and the information J (k, k) of a group's log likelihood ``J^-1 s`` is a Newton step to
    its effects, with variances of those and of the diagonal of J^-1. Steps of nested terms are measured from
    their mean in the outer group. A column is centred where the rows of most groups
    say more of their effects than the other groups do. Of outer groups they say what they say of the mean of
    the inner ones, which vary about it; this is rough, so that much more is asked for.
    """
    terms = design.terms
    looks = [_steps(family, f, design, term, aux) for term in terms]
    raw = [_moment(*pair) for pair in looks]
    inside = [_inner(terms, t) for t in range(len(terms))]
    found: dict[int, tuple] = {}
    for t in sorted(range(len(terms)), key=lambda t: -len(terms[t].levels)):  # inner ones first
        term, square, (steps, variances) = terms[t], raw[t].copy(), looks[t]
        inner, parents = inside[t]
        for j, column in enumerate(term.columns):
            if inner is not None and column in terms[inner].columns:
                i = terms[inner].columns.index(column)
                one = 1 / (found[inner][0][i] ** 2 + found[inner][2][:, i])
                variances[:, j] = 1 / np.bincount(parents, one, len(term.levels))
                square[j] = _moment(steps[:, [j]], variances[:, [j]])[0]
            for p, (within, parents_of) in enumerate(inside):
                if within == t and column in terms[p].columns:
                    square[j] = _moment_within(steps[:, j], variances[:, j], parents_of)
        spreads = np.maximum(
            np.sqrt(np.maximum(square, 0)), _LEAST_SPREAD / np.sqrt(np.mean(term.Z**2, axis=0))
        )
        shares = spreads**2 / (spreads**2 + variances)
        least = 0.5 if inner is None else _OUTER
        bits = int(((shares > least).mean(axis=0) > 0.5) @ 2 ** np.arange(len(spreads)))
        found[t] = spreads, bits, variances
    return [found[t][:2] for t in range(len(terms))]


def _moment(steps, variances):
    """Second moments of steps (G, k) beyond their variances."""
    trust = 1 / variances**2
    return ((steps**2 - variances) * trust).sum(axis=0) / trust.sum(axis=0)


def _moment_within(steps, variances, parents):
    """The same of the distances of steps (G,) from their mean in the outer group."""
    trust = 1 / variances**2
    whole = np.bincount(parents, trust)
    apart = steps - (np.bincount(parents, trust * steps) / np.maximum(whole, 1e-300))[parents]
    freedom = 1 - trust / whole[parents]
    if not freedom.any():
        return 0.0
    return (trust * apart**2).sum() / (trust * freedom).sum() - (trust * variances).sum() / trust.sum()


def _inner(terms, t):
    """The next finer term whose groups lie each in one group of term t, and in which; or None, None."""
    found: tuple = None, None
    for c, other in enumerate(terms):
        if len(other.levels) <= len(terms[t].levels):
            continue
        parents = np.zeros(len(other.levels), dtype=np.int64)
        parents[other.groups] = terms[t].groups
        nested = (parents[other.groups] == terms[t].groups).all()
        if nested and (found[0] is None or len(other.levels) < len(terms[found[0]].levels)):
            found = c, parents
    return found


def _steps(family, f, design, term, aux):
    """Newton steps to the effects, and their variances (G, k)."""
    slope, curve = families.slopes(family, f, design.y, aux)
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
    variances = np.maximum(np.diagonal(inverse, axis1=1, axis2=2), 1e-150)
    steps = (inverse @ scores[:, :, None])[:, :, 0]
    return steps, variances
