"""Rows of three classes for torch estimators, and a model of them."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 10), dtype=np.float32)
    return X, np.array(["ham", "jam", "spam"])[(X[:, 0] > 0) + (X[:, 1] > 0).astype(int)]


@pytest.fixture(scope="module")
def one(data):
    from torch_nets import classifier

    return classifier().fit(*data)
