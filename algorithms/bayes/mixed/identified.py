"""Parameters that only priors tell apart: dependent columns, effects of rows, terms of the same groups.

Such posteriors are proper and their chains may pass every check, so that nothing else would say so.
"""

import itertools
import warnings

import numpy as np
from scipy.linalg import solve_triangular

from ....errors import DataError

_DEPENDENT = 1e-12  # part of a column's square that is not that of others
_NAMED = 1e-6  # least coefficient, in standard units, of a column that is named
_ONE_ROW = {  # what a row's own effect is confounded with
    "student_t": "sigma is the spread between rows already, and only the shapes of the two tell them apart",
    "negative_binomial": "overdispersion is the spread between rows already, and only the shapes of the two "
    "tell them apart: family='poisson' has only this one",
    "gamma": "shape is the spread between rows already, and only the shapes of the two tell them apart",
    "logistic": "one class a row says nothing of a spread between rows",
    "binomial": "one trial a row says nothing of a spread between rows",
    "ordered": "one level a row says nothing of a spread between rows",
}


def check_identified(family, design):
    """Refuse an effect for each row beside normal noise; warn where only the priors tell parameters apart.

    Called by `fit`, whose caller is who gets the warnings.
    """
    for term in design.terms:
        if len(term.levels) == len(design.y) and _has_constant(term):
            _check_one_row(family, design, term)
    standard = (design.X - design.centres) / design.spreads
    said = _dependent(design.names, standard, design.weights)
    for term in design.terms:
        sizes = np.sqrt(np.average(term.Z**2, axis=0, weights=design.weights))
        standard = term.Z / np.where(sizes > 0, sizes, 1)
        said += _dependent(term.columns, standard, design.weights, f" of ({term.name})")
    for one, other in itertools.combinations(design.terms, 2):
        if set(one.columns) & set(other.columns) and _same_groups(one, other):
            warnings.warn(
                f"({one.name}) and ({other.name}) have the same groups under other labels: the data tell "
                f"only the sum of their effects. Leave ({other.name}) out",
                UserWarning,
                stacklevel=3,
            )
    if said:
        more = f"; ... ({len(said):,} in all)" if len(said) > 4 else ""
        warnings.warn(
            f"columns of the formula are linearly dependent: {'; '.join(said[:4])}{more}. The data do not "
            "say how an effect is shared out among them, and the draws of their coefficients are as wide as "
            "the priors let them be. Predictions for rows with the same dependence are not affected. Leave "
            "one column of each such set out to read its coefficients",
            UserWarning,
            stacklevel=3,
        )


def _check_one_row(family, design, term):
    if family == "normal":
        raise DataError(
            f"the groups of ({term.name}) are {len(design.y):,} single rows: with normal noise their effects "
            "are noise, and the data tell only the sum of the variances sd**2 + sigma**2. Leave the term "
            "out: sigma is the spread between rows"
        )
    if family == "poisson" or (family == "binomial" and (design.trials > 1).any()):
        return
    warnings.warn(
        f"the groups of ({term.name}) are {len(design.y):,} single rows: {_ONE_ROW[family]}. The prior "
        f"decides sd_{term.name}; leave the term out unless that is meant",
        UserWarning,
        stacklevel=4,
    )


def _has_constant(term):
    """Whether variances of a term's effects can add the same to all rows."""
    k = len(term.columns)
    pairs = [(i, j) for i in range(k) for j in range(i + 1) if term.correlated or i == j]
    products = np.column_stack([term.Z[:, i] * term.Z[:, j] for i, j in pairs])
    ones = np.ones(len(products))
    return np.allclose(products @ np.linalg.lstsq(products, ones, rcond=None)[0], 1.0, rtol=0, atol=_NAMED)


def _same_groups(one, other):
    """Whether two terms divide the rows alike."""
    G = len(one.levels)
    return len(other.levels) == G == len(np.unique(one.groups.astype(np.int64) * G + other.groups))


def _dependent(names, columns, weights, where=""):
    """Say which columns are combinations of which earlier ones.

    `columns` have a weighted mean square of 1. By a Cholesky decomposition of their products that leaves such
    columns out.
    """
    products = (columns * weights[:, None]).T @ columns / weights.sum()
    kept: list[int] = []
    found: list[str] = []
    L = np.zeros_like(products)
    for j, name in enumerate(names):
        m = len(kept)
        row = solve_triangular(L[:m, :m], products[kept, j], lower=True) if m else np.zeros(0)
        rest = products[j, j] - row @ row
        if rest > _DEPENDENT:
            L[m, :m], L[m, m] = row, np.sqrt(rest)
            kept.append(j)
        elif m:
            coefs = solve_triangular(L[:m, :m], row, lower=True, trans="T")
            parts = [str(names[i]) for i, coef in zip(kept, coefs, strict=True) if abs(coef) > _NAMED]
            few = parts if len(parts) < 5 else [*parts[:3], f"{len(parts) - 3:,} more"]
            others = " and ".join(filter(None, [", ".join(few[:-1]), *few[-1:]]))
            found.append(f"{name}{where} is a combination of {others}")
    return found
