"""Lasso, elastic net and sparse logistic regression of columns in this process: solvers of `structured`.

A small dense problem takes `solving.small`, one of two classes and sparse columns the general solver.
"""

import numpy as np

from ..structured.solving.small import MOST_ENTRIES

_RANGE = 1e-200, 1e200  # of the loss without columns: beyond, squares under- or overflow


def is_small(design, penalties, offset=None):
    """Whether a design is dense, in float64 and in this process, and each of its columns penalised."""
    X, n_features = design.X, design.n_features
    if design.cut is not None or design.engine != "local" or type(X) is not np.ndarray:
        return False
    if X.dtype != np.float64 or X.size > MOST_ENTRIES or not (design.fit_intercept or offset is None):
        return False
    return all(penalty.strength > 0 and not len(penalty.unpenalised(n_features)) for penalty in penalties)
