"""The picture of a cross-validated path."""

import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import stradask as sd
from stradask.errors import StradaskError

mpl.use("agg")
rng = np.random.default_rng(0)
N, P = 70, 25
X = rng.standard_normal((N, P)) * rng.uniform(0.3, 3, P)
Y = X @ (rng.standard_normal(P) * (rng.random(P) < 0.3)) + rng.standard_normal(N) + 3


def test_plot_draws_paths_scores_and_choices():
    frame = pd.DataFrame(X, columns=[f"column {j}" for j in range(P)])
    model = sd.LassoCV(alphas=12, eps=0.02).fit(frame, Y)
    upper, lower = model.plot(n_named=4)
    x = -np.log10(model.alphas_)
    named = np.argsort(-abs(model.coef_), kind="stable")[:4]
    # Four coloured paths, zero, and the two penalties.
    assert len(upper.lines) == 7
    for line, feature in zip(upper.lines[:4], named, strict=True):
        np.testing.assert_allclose(line.get_xdata(), x)
        np.testing.assert_allclose(line.get_ydata(), model.coef_path_[[feature]].toarray().ravel())
    assert {text.get_text() for text in upper.texts} == {f"column {j}" for j in named}
    for ax in (upper, lower):
        places = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 2]
        for alpha in (model.alpha_min_, model.alpha_1se_):
            assert np.isclose(places, -np.log10(alpha)).any()
    np.testing.assert_allclose(lower.lines[0].get_ydata(), model.mse_path_.mean(axis=1))
    assert lower.get_ylabel() == "mean squared error"
    (above,) = upper.child_axes
    last = int(np.count_nonzero(model.coef_path_[:, [-1]].toarray()))
    assert above.get_xticklabels()[-1].get_text() == str(last)
    plt.close("all")


def test_plot_shows_the_chosen_share_and_takes_axes():
    model = sd.ElasticNetCV(l1_ratio=[0.2, 1.0], alphas=6, eps=0.05, scoring="r2").fit(X, Y)
    axes = Figure().subplots(2)
    found = model.plot(axes)
    assert found.tolist() == axes.tolist()
    at = [0.2, 1.0].index(model.l1_ratio_)
    np.testing.assert_allclose(axes[1].lines[0].get_ydata(), model.scores_mean_[at])
    np.testing.assert_allclose(axes[1].lines[0].get_xdata(), -np.log10(model.alphas_[at]))
    assert axes[1].get_ylabel() == "R²"


def test_plot_of_a_model_of_zeros():
    model = sd.LassoCV(alphas=[1e3, 1e2]).fit(X, Y)
    upper, _ = model.plot(Figure().subplots(2))
    assert not upper.texts


def test_plot_without_matplotlib_says_so(monkeypatch):
    model = sd.LassoCV(alphas=3).fit(X, Y)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(StradaskError, match=r"pip install 'stradask\[plot\]'"):
        model.plot()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("refit", [True, False])
def test_plot_of_a_search_over_c(n_classes, refit):
    y = np.digitize(Y, np.quantile(Y, np.arange(1, n_classes) / n_classes))
    model = sd.LogisticRegressionCV(Cs=4, cv=3, l1_ratios=[0.0, 0.5], scoring="neg_log_loss", refit=refit)
    upper, lower = model.fit(X, y).plot()
    means = model.scores_.mean(axis=0)
    at = means.max(axis=1).argmax()
    np.testing.assert_allclose(lower.lines[0].get_xdata(), np.log10(model.Cs_))
    np.testing.assert_allclose(lower.lines[0].get_ydata(), -means[at])
    coefs = model.coefs_paths_[:, at, :, :, :P].mean(axis=0)
    sizes = coefs[:, 0] if n_classes == 2 else np.linalg.norm(coefs, axis=1)
    drawn = [line.get_ydata() for line in upper.lines if len(line.get_xdata()) == 4]
    assert drawn
    assert all((np.abs(sizes.T - line).max(axis=1) < 1e-12).any() for line in drawn)
    plt.close("all")
