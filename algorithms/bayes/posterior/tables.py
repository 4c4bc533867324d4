"""Names, shapes and checks of the arrays of a `Posterior`."""

import math

import numpy as np

from ....errors import DataError, in_brief, shortened


def as_floats(words, values):
    """Return an array of float64, or raise a DataError that begins with the words."""
    try:
        return np.asarray(values, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{words}: {in_brief(error)}") from error


def finite(name, values, ndim):
    """Check an array of finite numbers with so many axes, none of length 0."""
    array = as_floats(f"{name} must be an array of numbers", values)
    if array.ndim != ndim or not array.size:
        raise DataError(f"{name} must have {ndim} dimensions, none of length 0, got the shape {array.shape}")
    if not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise DataError(f"{name} holds {array[place]} at {place}: every draw must be finite")
    return array


def checked_variables(variables, d):
    """Check names and shapes of variables, which have d entries in all."""
    checked = {}
    for name, shape in variables.items():
        sides = tuple(int(side) for side in shape)
        if not isinstance(name, str) or not name or any(side < 1 for side in sides):
            raise DataError(
                f"variables must map names to shapes of positive sides, got {shortened(name)}: "
                f"{shortened(shape)}"
            )
        checked[name] = sides
    total = sum(math.prod(shape) for shape in checked.values())
    if total != d:
        raise DataError(f"the variables {checked} have {total} parameters in all, the draws {d}")
    return checked


def is_text(shape):
    """Whether a shape is the names of a vector's entries."""
    return len(shape) > 0 and all(isinstance(entry, str) for entry in shape)


def shape_of(stored):
    """Return a shape, or names of entries, as it was before it was stored."""
    return stored if is_text(stored) else tuple(stored)


def names_of(variable, shape, labels=None):
    """Name the columns of a variable: "scale", "coef[0]", "table[1,2]", "group[north]"."""
    if not shape:
        return [variable]
    if labels is not None:
        return [f"{variable}[{label}]" for label in labels]
    return [f"{variable}[{','.join(map(str, place))}]" for place in np.ndindex(*shape)]


def column_names(variables):
    """Name all columns of variables, whose shapes are tuples or the names of a vector's entries."""
    return [
        name
        for variable, shape in variables.items()
        for name in names_of(variable, shape, shape if is_text(shape) else None)
    ]


def by_name(variables, draws):
    """Split the last axis into variables."""
    values, first = {}, 0
    for name, shape in variables.items():
        size = math.prod(shape)
        values[name] = draws[..., first : first + size].reshape((*draws.shape[:-1], *shape))
        first += size
    return values


def in_chains(values, chains):
    """Give the first axis of each array to chains, one after another."""
    return {name: v.reshape(chains, len(v) // chains, *v.shape[1:]) for name, v in values.items()}


def normalised(log_weights, n):
    """Check logarithms of n weights, and let the weights sum to one."""
    weights = np.asarray(log_weights, dtype=np.float64)
    if weights.shape != (n,):
        raise DataError(f"log_weights must have one number for each of {n} draws, got {weights.shape}")
    if np.isnan(weights).any() or not np.isfinite(weights.max()):
        raise DataError("log_weights must be numbers or -inf, one of them finite and none inf")
    highest = weights.max()
    return weights - highest - math.log(np.exp(weights - highest).sum())


def quantile_levels(name, values):
    """Check a quantile's level, or a vector of them."""
    levels = as_floats(f"{name} must be a number or a vector of numbers", values)
    if levels.ndim > 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise DataError(
            f"{name} must be a number or a vector of numbers between 0 and 1, got {shortened(values)}"
        )
    return levels


def of_draws(log_likelihood, n_draws):
    """Check log-likelihoods of observations, a row a draw."""
    values = as_floats("log_likelihood must be True, False or an array of numbers", log_likelihood)
    if values.ndim != 2 or len(values) != n_draws:
        raise DataError(
            f"log_likelihood must have a row for each of {n_draws} draws, and a column for each observation, "
            f"got the shape {values.shape}"
        )
    return values


def weighted_quantiles(draws, weights, levels):
    """Quantiles of weighted draws, (levels, d).

    A draw stands in the middle of its weight; between two draws quantiles go in a straight line.
    """
    order = np.argsort(draws, axis=0)
    sums = np.cumsum(weights[order], axis=0)
    values = np.take_along_axis(draws, order, axis=0)
    middles = (sums - weights[order] / 2) / sums[-1]
    columns = [np.interp(levels, middles[:, j], values[:, j]) for j in range(values.shape[1])]
    return np.stack(columns, axis=-1)
