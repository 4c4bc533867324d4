"""The picture of histories shows their numbers."""

import numpy as np
import pytest

import stradask as sd
from stradask.errors import DataError


@pytest.fixture(scope="module")
def models():
    pytest.importorskip("matplotlib")
    X, y, *_ = sd.datasets.make_sparse_classification(300, 40, n_informative=5, random_state=0)
    return [sd.LogisticRegression(C=10, solver=solver).fit(X, y) for solver in ("sandblaster", "newton")]


@pytest.mark.parametrize("x", ["seconds", "round", "updates"])
def test_lines_are_the_histories(models, x):
    ax = sd.plot_history(*models, x=x)
    for line, model in zip(ax.get_lines(), models, strict=True):
        at = model.history_[x]
        np.testing.assert_allclose(line.get_xdata(), np.cumsum(at) if x == "updates" else at)
        np.testing.assert_allclose(line.get_ydata(), model.history_["objective"])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["LogisticRegression"] * 2


def test_the_distance_from_the_best(models):
    ax = sd.plot_history(*models, excess=True, labels=["a", "b"])
    best = min(model.history_["objective"].min() for model in models)
    for line, model in zip(ax.get_lines(), models, strict=True):
        far = model.history_["objective"] - best
        np.testing.assert_allclose(line.get_ydata(), far[far > 0])
    assert ax.get_yscale() == "log"


def test_rounds_that_were_not_measured_are_left_out():
    pytest.importorskip("matplotlib")
    X = np.random.default_rng(0).poisson(1, (50, 20))
    lda = sd.LatentDirichletAllocation(3, max_iter=30, random_state=0).fit(X)
    (line,) = sd.plot_history(lda, x="round").get_lines()
    assert line.get_xdata().tolist() == [10, 20, 30]
    (line,) = sd.plot_history(lda, excess=True).get_lines()  # of an objective that rises
    assert len(line.get_ydata()) == 2


@pytest.mark.parametrize(
    ("arguments", "given", "said"),
    [
        ((), {}, "models is empty"),
        ((sd.Lasso(),), {}, "Lasso has no history_"),
        ((sd.Lasso(),), {"x": "time"}, "x is 'time'; there are seconds, round, updates"),
        ((sd.Lasso(),), {"labels": ["a", "b"]}, "2 names for 1 models"),
    ],
)
def test_mistakes(arguments, given, said):
    with pytest.raises(DataError, match=said):
        sd.plot_history(*arguments, **given)
