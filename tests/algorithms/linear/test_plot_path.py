"""Pictures of paths, and of coefficients with intervals."""

import numpy as np
import pytest

import stradask as sd
from stradask.errors import DataError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((50, 8))
Y = X[:, :2] @ [2.0, -1.0] + RNG.standard_normal(50)


def test_the_largest_columns_of_a_path_are_named():
    alphas, coefs, _ = sd.lasso_path(X, Y)
    ax = sd.plot_path(alphas, coefs, names=[f"gene{j}" for j in range(8)], n_named=2)
    assert [text.get_text() for text in ax.texts] == ["gene1", "gene0"]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), coefs[0])
    tasks = sd.MultiTaskLasso().path(X, np.column_stack([Y, -Y]), alphas=10)
    assert sd.plot_path(*tasks[:2]).get_ylabel() == "norm of the coefficients"
    with pytest.raises(DataError, match=r"what path\(...\) returned"):
        sd.plot_path(alphas, coefs.T)
    with pytest.raises(DataError, match="names has 1"):
        sd.plot_path(alphas, coefs, names=["a"])


def test_intervals_are_those_of_the_summary():
    model = sd.GLM().fit(X, Y)
    ax = model.plot(0.9)
    assert [label.get_text() for label in ax.get_yticklabels()][:2] == ["intercept", "x0"]
    ends = [segment[:, 0] for segment in ax.collections[0].get_segments()]
    np.testing.assert_allclose(ends[1:], model.confidence_interval(0.9)[:-1])
    np.testing.assert_allclose(ax.lines[1].get_xdata()[1:], model.coef_)
