"""Tables of a fitted mixed model under its draws, and rows for pictures of its effects."""

import numpy as np

from ....errors import DataError, shortened
from ..._intervals import interval_of_draws
from ..._table import Table
from ..models.groups import text_of
from . import families
from .draws import Predictors
from .priors import AUXILIARY

_LINES = 5  # values of a second column of numbers up to which each has a line of its own
_GRID = 50  # places of a column of numbers
_NOISE = np.pi**2 / 3  # variance of the logistic distribution


def interval(draws, level):
    """Columns mean, sd, low and high of draws (n, columns)."""
    low, high = interval_of_draws(draws, level)
    return {"mean": draws.mean(axis=0), "sd": draws.std(axis=0), "low": low, "high": high}


def _note(level):
    return f"low and high: intervals of {100 * level:g} % with equal tails"


def effects(posterior, groups, columns, level, total):
    """See `ReadableMixedModel.effects`; `columns` are the names of each term's."""
    if not groups:
        raise DataError("the formula has no effects of groups, such as (x | group)")
    parts, rows = [], []
    coefs = {name: posterior["coef"][:, j] for j, name in enumerate(posterior.labels.get("coef", ()))}
    if "intercept" in posterior.variables:
        coefs["Intercept"] = posterior["intercept"]
    for term, levels in groups.items():
        for column in columns[term]:
            common = coefs.get(column, 0.0) if total else 0.0
            parts.append(posterior[f"{term}:{column}"] + np.reshape(common, (-1, 1)))
            rows += [f"{term}[{label}] {column}" for label in text_of(levels)]
    return Table(rows, interval(np.concatenate(parts, axis=1), level), _note(level))


def variances(posterior, family, columns, level):
    """See `ReadableMixedModel.variances`."""
    parts, rows = [], []
    squares = {}
    for term, names in columns.items():
        sds = posterior[f"sd_{term}"]
        parts.append(sds)
        rows += [f"sd_{term}[{name}]" for name in names]
        if f"cor_{term}" in posterior.variables:
            parts.append(posterior[f"cor_{term}"])
            rows += [f"cor_{term}[{pair}]" for pair in posterior.labels[f"cor_{term}"]]
        if "Intercept" in names:
            squares[term] = sds[:, names.index("Intercept")] ** 2
    aux = {name: posterior[name] for name in AUXILIARY.get(family, ()) if name != "cut"}
    parts += [values[:, None] for values in aux.values()]
    rows += list(aux)
    noise = _predictor_variance(family, aux)
    if noise is not None and squares:
        whole = sum(squares.values()) + noise
        parts += [(one / whole)[:, None] for one in squares.values()]
        rows += [f"icc_{term}" for term in squares]
    if not parts:
        raise DataError(f"a model of family={family!r} without effects of groups has no variances")
    return Table(rows, interval(np.concatenate(parts, axis=1), level), _note(level))


def _predictor_variance(family, aux):
    """Variance of a row about its predictor, on the scale of this; None where there is none."""
    if family in ("logistic", "binomial", "ordered"):
        return _NOISE
    return families.variance(family, 0.0, aux) if family in ("normal", "student_t") else None


def r_squared(family, design, values, level):
    """See `ReadableMixedModel.r2`."""
    aux = Predictors(family, design).aux(values)
    n, trials, variance, noise = len(design.y), design.trials, {}, 0.0
    for groups in (True, False):
        total, square, first = 0.0, 0.0, 0
        centre = None
        for mean in Predictors(family, design, groups).means(values, 0):
            here = slice(first, first + mean.shape[1])
            first = here.stop
            # Sums of squares are taken about the first rows' mean, so that they do not cancel.
            centre = mean.mean(axis=1, keepdims=True) if centre is None else centre
            total, square = total + (mean - centre).sum(axis=1), square + ((mean - centre) ** 2).sum(axis=1)
            if groups:
                rest = families.variance(family, mean, aux, 1.0 if trials is None else trials[here])
                noise = noise + np.broadcast_to(rest, mean.shape).sum(axis=1) / n
        variance[groups] = square / n - (total / n) ** 2
    whole = variance[True] + noise
    shares = np.stack([variance[True] / whole, variance[False] / whole], axis=1)
    return Table(["conditional", "marginal"], interval(shares, level), _note(level))


def effect_rows(known, data, column, by, groups):
    """Rows over a column, others at typical values; and labels and slices of the lines of `by`."""
    frame = known.frame(data)
    for name in (column, *([] if by is None else [by])):
        if name not in frame.columns:
            raise DataError(
                f"{'column' if name == column else 'by'}={shortened(name)} is no column of data; there are "
                f"{shortened(', '.join(map(str, frame.columns)), 100)}"
            )
    if by == column:
        raise DataError(f"by={shortened(by)} is the column itself")
    factors = {name for term in known.terms for name in term.factors}
    places = _grid(frame[column], 0)
    lines = [None] if by is None else _grid(frame[by], _LINES)
    n = len(places)
    rows = {
        name: np.repeat(_typical(known, frame[name], name), n * len(lines))
        for name in map(str, frame.columns)
        if name not in factors
    }
    rows |= _given_groups(known, groups, n * len(lines))
    rows[column] = np.tile(places, len(lines))
    if by is not None:
        rows[by] = np.repeat(np.asarray(lines), n)
    shown = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in lines]
    return rows, [(label if by else None, slice(i * n, (i + 1) * n)) for i, label in enumerate(shown)]


def _is_number(values):
    kind = getattr(values.dtype, "kind", "O")
    return kind in "iuf"


def _grid(values, most):
    """Places of a column: all of few, else quartiles, or a line of numbers where `most` is 0."""
    known = np.unique(np.asarray(values.dropna()))
    if not _is_number(values) or len(known) <= most:
        return known.tolist()
    if most:
        return np.quantile(np.asarray(values, float), [0.25, 0.5, 0.75]).tolist()
    return np.linspace(known[0], known[-1], _GRID)


def _typical(known, values, name):
    """The mean of numbers, the most frequent category, and that of trials and of C(name)."""
    if _is_number(values) and not known.is_category(name):
        return float(np.mean(np.asarray(values, dtype=float)))
    found, counts = np.unique(np.asarray(values), return_counts=True)
    return found[counts.argmax()]


def _given_groups(known, groups, n):
    """Columns of the groups that effects are those of."""
    if groups is None:
        return {}
    factors = {name: part for term, parts in zip(known.terms, known.factors, strict=True)
               for name, part in zip(term.factors, parts, strict=True)}  # fmt: skip
    missing = set(factors) - set(groups)
    if missing or set(groups) - set(factors):
        raise DataError(
            f"groups={shortened(groups)} must name one group of each of {', '.join(factors) or 'no column'}"
        )
    for name, label in groups.items():
        if label not in factors[name].tolist():
            raise DataError(f"groups has {name}={shortened(label)}, which the fit did not see")
    return {name: np.repeat(np.asarray([label]), n) for name, label in groups.items()}
