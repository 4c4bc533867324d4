"""Sparse linear models, and what is wrong with what they are given."""

import numpy as np

import stradask as sd

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 6))
Y = X @ [2.0, 0, 0, -1, 0, 0] + 0.1 * RNG.standard_normal(40)
LABELS = (Y > 0).astype(int)
MODELS = {
    "Lasso": (sd.Lasso, Y),
    "ElasticNet": (sd.ElasticNet, Y),
    "SparseLogisticRegression": (sd.SparseLogisticRegression, LABELS),
}
