"""A user's density of a vector of real numbers: ``log_likelihood(q, data)``, with a gradient or without.

Only the prior is raised to a power in a subposterior, so that prior and likelihood are two functions. A
gradient is optional: without one it is taken by central differences, at the cost of 2 d evaluations each.
Where there is one it is compared with differences before anything is sampled, component by component.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ....errors import DataError, shortened
from ..posterior.tables import as_floats
from .named import named_model


def user_model(log_likelihood, log_prior, data, start, *, names=None, constrain=None, **options):
    """Make a model of a user's own functions; for these see `sample`, for `options` `named_model`.

    Compiled functions run without the interpreter, on as many threads as there are chains; Python ones wait
    for each other, and are some hundred times slower. ``constrain(Q)`` turns parameters (K, d) into the
    values to be shown (K, columns), for functions of plain Python.

    >>> import numpy as np
    >>> from stradask.algorithms.bayes.models.density import user_model
    >>> def log_likelihood(q, x):
    ...     return -0.5 * ((x - q[0]) ** 2).sum(), np.array([(x - q[0]).sum()])
    >>> model = user_model(log_likelihood, None, np.array([1.0, 2.0]), [0.0])
    >>> model.logp_grad([1.0])
    (-0.5, array([1.]))
    """
    start = checked_start(start)
    layout = VectorLayout(len(start), names, constrain)
    return named_model(log_likelihood, log_prior, data, start, layout=layout, **options)


def checked_start(start):
    """Return a vector of finite numbers, or raise a DataError."""
    start = as_floats("start must be a vector of numbers, one a parameter", start).copy()
    if start.ndim != 1 or not len(start) or not np.isfinite(start).all():
        raise DataError(f"start must be a vector of finite numbers, one a parameter, got {start}")
    return start


def checked_names(names, d):
    """Return d names of parameters, by default ``q[0]`` and so on, or raise a DataError; None is any d."""
    if names is not None and not isinstance(names, Iterable):
        raise DataError(
            f"names must be {'' if d is None else f'{d} '}different strings, got {shortened(names)}"
        )
    names = tuple(f"q[{j}]" for j in range(d)) if names is None else tuple(names)
    d = len(names) if d is None else d
    if not all(isinstance(name, str) for name in names) or len(names) != d or len(set(names)) != d:
        raise DataError(
            f"names must be {d} different strings, one for each entry of start, got {shortened(names)}"
        )
    return names


class VectorLayout:
    """A vector of d real numbers as the values of a density: functions take it as it is.

    `names` are those of its entries. See `NamedLayout` for the methods.
    """

    letter, form, needed = "q", None, ("log_likelihood",)
    tables = np.zeros(0, np.int64), np.zeros(0)
    watched = np.zeros(0, np.int64)

    def __init__(self, d, names=None, constrain=None):
        self.names, self.n_values, self._constrain = checked_names(names, d), d, constrain
        self.variables: dict[str, Any] = {"theta": (d,)} if names is None else dict.fromkeys(self.names, ())

    def named(self, values):
        """Return values (d,) as functions get them."""
        return values

    def at(self, q):
        """Return q (d,) as functions get it, which may write into it."""
        return q.copy()

    def flat(self, gradient, what):
        """Return a gradient that a function gave; checked."""
        gradient = np.asarray(gradient, dtype=np.float64)
        if gradient.shape != (self.n_values,):
            raise DataError(
                f"the gradient of {what} has the shape {gradient.shape}, its argument {(self.n_values,)}: "
                "return one number a parameter, or no gradient to have it differenced"
            )
        return gradient

    def all_named(self, draws):
        """Return values (K, d) as a list of K vectors."""
        return list(draws.copy())

    def slots(self):
        """Zeros for the derivatives in the values."""
        return np.zeros(self.n_values)

    def values(self, Q):
        """Points Q (K, d), or the values that `constrain` computes from them."""
        return Q if self._constrain is None else self._constrain(Q)

    def rows(self, data):
        """Return data as compiled functions get them: floats of one or two axes."""
        x = as_floats("data of a compiled log_likelihood must be an array of numbers", data)
        if x.ndim not in (1, 2):
            raise DataError(f"data of a compiled log_likelihood must have one or two axes, got {x.ndim}")
        return x
