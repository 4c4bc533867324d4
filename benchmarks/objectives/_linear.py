"""Shared by the linear families: problems at fractions of the largest penalty, and their arrays."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...errors import DataError
from . import Problem

SAMPLE_COLUMNS = 200
TARGETS = (1e-4, 1e-6, 1e-8)  # a quick look leaves out the last


class LinearObjective(ABC):
    """Time to a relative duality gap on one design, at penalties alpha_max / divisor.

    Parameters are ``divisor`` (a number or several) and ``intercept``; for data sets see `linear_cases`.
    """

    procedure = "solving"
    defaults: ClassVar[dict] = {"divisor": (10, 100, 1000), "intercept": False}
    quick_defaults: ClassVar[dict] = {"divisor": (10, 100)}
    max_seconds, quick_max_seconds = 10.0, 2.0
    load: Callable[..., tuple[Any, np.ndarray]]
    gap: Callable[..., tuple[float, float]]

    def __init__(self, dataset, *, seed, parameters, quick=False):
        self.dataset = dataset
        self.seed = seed
        self.quick = quick
        self.divisors = _checked_divisors(parameters["divisor"])
        self.intercept = parameters["intercept"]
        if not isinstance(self.intercept, bool):
            raise DataError(f"--param: intercept is {self.intercept!r}; give True or False")
        self.X, self.y = self.load(dataset, seed=seed, quick=quick)
        if not np.any(self.y != self.y[0]):
            raise DataError(f"--dataset: the target of {dataset} is constant; nothing is to be learnt")
        self.coef_shape = self.X.shape[1:]
        self.largest_alpha = self.alpha_max(self.X, self.y)

    @abstractmethod
    def alpha_max(self, X, y):
        """Return the smallest penalty at which all coefficients are 0."""

    def describe(self):
        """Return the facts of the data for the records."""
        is_dense = isinstance(self.X, np.ndarray)
        return {
            "name": Path(self.dataset).name.partition(".")[0] + (" (quick)" if self.quick else ""),
            "fingerprint": self._fingerprint(),
            "train_rows": self.X.shape[0],
            "train_columns": self.X.shape[1],
            "train_nonzeros": int(self.X.size if is_dense else self.X.nnz),
            "storage": "dense" if is_dense else "CSC",
            "alpha_max": self.largest_alpha,
        }

    def settings(self):
        """Settings that every solver is given."""
        return {"intercept": self.intercept}

    @property
    def targets(self):
        """The gaps to be reached."""
        return TARGETS[:-1] if self.quick else TARGETS

    def problems(self):
        """Return the penalties to be solved for."""
        return [
            Problem(f"/{divisor:g}", "solve", {"alpha": self.largest_alpha / divisor}, self.targets)
            for divisor in self.divisors
        ]

    def arrays(self):
        """The design (dense, or the three arrays of CSC) and the target."""
        return arrays_of(self.X, self.y)

    def sample(self):
        """The first columns of the design, and two penalties, to warm up on."""
        X = self.X[:, :SAMPLE_COLUMNS]
        largest = self.alpha_max(X, self.y)
        return arrays_of(X, self.y) | {"alphas": np.array([largest / 5, largest / 50])}

    def evaluate(self, problem, arrays):
        """Judge ``coef`` (n_features,), a row a class where there are several, and ``intercept``.

        Returns the relative ``gap``, the ``objective`` of the mean loss and ``nonzeros``. DataError for
        coefficients of another shape or not finite, or an intercept where none was asked for.
        """
        coef = np.asarray(arrays["coef"], dtype=np.float64)
        intercept = float(arrays["intercept"])
        if coef.shape != self.coef_shape:
            raise DataError(f"coef has the shape {coef.shape}; one of {self.coef_shape} is needed")
        if not (np.isfinite(coef).all() and math.isfinite(intercept)):
            raise DataError("the coefficients are not finite")
        if not self.intercept and intercept != 0:
            raise DataError(f"the intercept is {intercept:g}; none was asked for")
        alpha = self.alpha_of(problem, arrays)
        gap, objective = self.gap(self.X, self.y, coef, alpha, intercept if self.intercept else None)
        return {"gap": gap, "objective": objective, "nonzeros": int(np.count_nonzero(coef))}

    def alpha_of(self, problem, arrays):
        """Return the penalty that a solution is for."""
        return problem.arguments["alpha"]

    def _fingerprint(self):
        digest = hashlib.sha256()
        for array in self.arrays().values():
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def arrays_of(X, y):
    """Return a design (the array, or the three arrays of CSC) and the target by name."""
    if isinstance(X, np.ndarray):
        return {"X": np.asfortranarray(X), "y": y}
    return {"values": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape), "y": y}


def _checked_divisors(divisors):
    divisors = divisors if isinstance(divisors, tuple | list) else (divisors,)
    for divisor in divisors:
        if isinstance(divisor, bool) or not isinstance(divisor, Real) or not 1 < float(divisor) < math.inf:
            raise DataError(
                f"--param: divisor is {divisor!r}; numbers above 1 are needed, such as divisor=10,100"
            )
    return divisors
