"""The models of the generic solver in use: cross-validation, files, callbacks, bad input, checks."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

import stradask as sd
from stradask.errors import DataError

RNG = np.random.default_rng(2)
N, P = 60, 12
X = RNG.standard_normal((N, P))
Y = X[:, :3] @ [1.0, -1.0, 1.0] + 0.5 * RNG.standard_normal(N)
COUNTS = RNG.poisson(np.exp(0.5 * Y)).astype(float)
MODELS = {
    "glm": (sd.SparseGLM("huber", "mcp", alpha=0.1), Y),
    "groups": (sd.GroupLasso([[0, 1, 2], *([j] for j in range(3, P))], alpha=0.1), Y),
    "copies": (sd.GroupLasso([[0, 1], [1, 2], *([j] for j in range(3, P))], alpha=0.1, overlap=True), Y),
    "classes": (sd.GroupLogisticRegression(3, alpha=0.02), np.where(Y > 0, "b", "a")),
    "tasks": (sd.MultiTaskLasso(0.1), np.column_stack([Y, X[:, 3]])),
    "counts": (sd.SparsePoissonRegressor(0.05), COUNTS),
    "quantile": (sd.QuantileRegressor(0.3, alpha=0.05), Y),
    "cox": (sd.CoxRegression(0.05), np.abs(Y)),
    "cv": (sd.SparseGLMCV(sd.GroupLasso(3), alphas=5, cv=3), Y),
}


def test_a_loss_of_ones_own_is_in_no_file(tmp_path):
    class Own(sd.Loss):
        def value(self, y, f):
            return (y - f) ** 4

        def gradient(self, y, f):
            return 4 * (f - y) ** 3

        def curvature(self, y, f):
            return 12 * (f - y) ** 2

    model = sd.SparseGLM(Own(), alpha=0.1).fit(X, Y)
    with pytest.raises(DataError, match="loss cannot be saved"):
        model.save(tmp_path / "model")


@pytest.mark.parametrize("name", [name for name in MODELS if name != "cv"])
def test_callback_history_and_warm_start(name):
    model, y = MODELS[name]
    seen = []
    model = (
        clone(model)
        .set_params(tol=1e-5 if name == "quantile" else 1e-9)
        .fit(X, y, callback=lambda info: seen.append(info.snapshot().coef_))
    )
    assert len(model.history_["objective"]) == len(seen) == model.n_iter_ > 1
    assert seen[0].shape == model.coef_.shape
    ended = clone(model).fit(X, y, callback=lambda info: True)
    assert ended.n_iter_ == 1
    assert ended.stopped_by_ == "stopped"
    again = clone(model).set_params(warm_start=True)
    again.coef_, again.intercept_ = model.coef_, getattr(model, "intercept_", 0.0)
    if name == "copies":
        again.group_coef_ = model.group_coef_
    again.fit(X, y)
    np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-5)
    assert again.n_iter_ < model.n_iter_ or name == "quantile"  # whose smoothing was not handed over
    with pytest.raises(DataError, match="warm_start=True goes on from a model of other columns"):
        again.set_params(**({"groups": None} if "groups" in again.get_params() else {})).fit(X[:, :5], y)


def test_too_few_passes_are_a_warning():
    with pytest.warns(ConvergenceWarning, match="max_iter=2 passes: the duality gap is"):
        sd.GroupLasso(3, alpha=0.01, tol=1e-12, max_iter=2).fit(X, Y)


@pytest.mark.parametrize(
    ("page", "lines"),
    [
        ("add-a-penalty", ["[0 1 2 3 4] [ 2.9 -2.   2.   4.  -3. ] kkt violation"]),
        (
            "structured-sparsity",
            [
                "[6 7 8] True",
                "[2] 0.7",
                "{'size': [0, 1], 'age': [2], 'city': [3, 4, 5], 'plan': [6, 7]}",
                "['size', 'city']",
            ],
        ),
    ],
)
def test_a_page_prints_what_it_says(page, lines, capsys):
    pytest.importorskip("pandas")
    text = (Path(__file__).parents[4] / "docs" / f"{page}.md").read_text(encoding="utf-8")
    names: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(compile(block, page, "exec"), names)
    assert capsys.readouterr().out.splitlines() == lines
    assert all(line in text for line in lines)


# Cross-validation -----------------------------------------------------------------------------------


def test_cross_validation_is_a_loop_over_folds():
    model = sd.SparseGLMCV(sd.SparsePoissonRegressor(tol=1e-9), alphas=[0.5, 0.1, 0.02], cv=4).fit(X, COUNTS)
    losses = np.zeros((3, 4))
    for k, (train, test) in enumerate(KFold(4).split(X)):
        for a, alpha in enumerate([0.5, 0.1, 0.02]):
            fold = sd.SparsePoissonRegressor(alpha, tol=1e-9).fit(X[train], COUNTS[train])
            mean = fold.predict(X[test])
            losses[a, k] = np.mean(mean - COUNTS[test] * np.log(mean))
    np.testing.assert_allclose(-model.scores_, losses, atol=1e-6)
    means = losses.mean(axis=1)
    best = means.argmin()
    assert model.alpha_min_ == model.alphas_[best]
    bound = means[best] + losses[best].std(ddof=1) / 2
    assert model.alpha_1se_ == model.alphas_[np.flatnonzero(means <= bound)[0]]
    single = sd.SparsePoissonRegressor(model.alpha_, tol=1e-9).fit(X, COUNTS)
    np.testing.assert_array_equal(model.coef_, single.coef_)
    wide = sd.SparseGLMCV(sd.SparsePoissonRegressor(), alphas=10, cv=4, rule="1se").fit(X, COUNTS)
    assert wide.alpha_ == wide.alpha_1se_ >= wide.alpha_min_
    assert wide.alphas_[0] == pytest.approx(sd.SparsePoissonRegressor().alpha_max(X, COUNTS))


def test_cross_validation_of_cox_is_by_the_likelihood_of_all_less_that_of_the_fit():
    times = np.exp(-Y)
    model = sd.SparseGLMCV(sd.CoxRegression(tol=1e-10), alphas=[0.1, 0.03], cv=KFold(3)).fit(X, times)

    def likelihood(coef, rows):
        one = sd.CoxRegression(1e9).fit(X[rows], times[rows], offset=X[rows] @ coef)
        return one.objective_ * len(rows)

    for k, (train, test) in enumerate(KFold(3).split(X)):
        coef = sd.CoxRegression(0.03, tol=1e-10).fit(X[train], times[train]).coef_
        rest = likelihood(coef, np.arange(N)) - likelihood(coef, train)
        assert model.scores_[1, k] == pytest.approx(-rest / len(test), abs=1e-6)


def test_cross_validation_of_classes_predicts_labels():
    labels = np.where(Y > 0, "b", "a")
    model = sd.SparseGLMCV(sd.GroupLogisticRegression(3), alphas=5).fit(X, labels, offset=np.zeros(N))
    assert set(model.predict(X)) <= {"a", "b"}
    assert model.predict_proba(X).shape == (N, 2)
    assert not hasattr(sd.SparseGLMCV(), "predict_proba")
    with pytest.raises(DataError, match="see also LassoCV"):
        sd.SparseGLMCV(sd.Lasso()).fit(X, Y)


# Bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (sd.GroupLasso([[0, 1]]), {}, "groups lacks column 2"),
        (
            sd.GroupLasso([list(range(P)), [0]]),
            {},
            "groups names column 0 in several groups: pass overlap=True",
        ),
        (sd.GroupLasso([[0, 0]]), {}, "names a column twice"),
        (sd.GroupLasso([[0, P]]), {}, "groups.0. holds 12"),
        (sd.GroupLasso(5), {}, "must divide the 12 columns"),
        (sd.GroupLasso([1, 2]), {}, "groups has the shape"),
        (
            sd.GroupLasso(3, penalty_factor=[1, 2]),
            {},
            "penalty_factor has the shape .2,.; pass a vector of 4",
        ),
        (sd.SparseGLM(penalty="group"), {}, "needs groups"),
        (sd.SparsePoissonRegressor(), {}, "y holds -.* in row .*: the targets of SparsePoissonRegressor"),
        (sd.SparsePoissonRegressor(), {"y": np.zeros(N)}, "at least one target above 0"),
        (sd.SparsePoissonRegressor(), {"y": COUNTS, "exposure": np.arange(N)}, "exposure is 0 in row 0"),
        (sd.GroupLasso(), {"exposure": np.ones(N)}, "exposure is for losses of positive means"),
        (sd.SparseGLM("gamma"), {"y": COUNTS}, "above 0"),
        (sd.SparseGLM("tweedie", loss_options={"power": 3}), {"y": COUNTS}, "power=3"),
        (sd.SparseGLM("quantile", loss_options={"quantile": 1}), {}, "quantile=1 must lie between"),
        (sd.SparseGLM("huber", loss_options={"width": 1}), {}, "loss_options has 'width'"),
        (sd.SparseGLM("logistic"), {}, "0, 1 or shares"),
        (sd.SparseGLM(bounds=(0.5, 1)), {}, "0 between them"),
        (sd.SparseGLM(bounds=(-1, 1), groups=3), {}, "not for groups"),
        (sd.SparseGLM(penalty="mcp", bounds=(-1, 1)), {}, "convex penalties"),
        (sd.SparseGLM(penalty="scad", gamma=1.5), {}, "must be above 2"),
        (sd.SparseGLM(penalty="slope", positive=True), {}, "not for this penalty"),
        (sd.SparseGLM(penalty="slope", penalty_factor=np.arange(P) + 1), {}, "sums over coefficients"),
        (sd.SparseGLM(penalty="slope", penalty_options={"weights": np.arange(P)}), {}, "falling"),
        (sd.MultiTaskLasso(), {}, "several targets"),
        (sd.GroupLogisticRegression(), {"y": np.zeros(N)}, "needs two classes"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(model, given, message):
    with pytest.raises(DataError, match=message) as caught:
        model.fit(X, **{"y": Y, **given})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("quantile", [0, 1.0, -0.5])
def test_quantiles_lie_between_0_and_1(quantile):
    with pytest.raises(ValueError, match="quantile"):
        sd.QuantileRegressor(quantile).fit(X, Y)


def test_quantiles_are_scored_by_their_loss():
    """R^2 is of means: -1.9 for the best 0.9 quantile of noise."""
    from sklearn.metrics import d2_pinball_score

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 2)), rng.standard_exponential(200)
    y += X[:, 0]
    for model in (
        sd.QuantileRegressor(0.9, alpha=1e-3),
        sd.SparseGLM("quantile", alpha=1e-3, loss_options={"quantile": 0.9}),
    ):
        score = model.fit(X, y).score(X, y)
        assert score == pytest.approx(d2_pinball_score(y, model.predict(X), alpha=0.9))
        assert 0 < score < 1
        assert model._score_name == "D2"


@pytest.mark.parametrize(("loss", "takes"), [("huber", "takes delta"), ("squared", "takes no options")])
def test_an_unknown_option_of_a_loss_is_named(loss, takes):
    with pytest.raises(DataError) as caught:
        sd.SparseGLM(loss, loss_options={"epsilon": 1}).fit([[1.0], [2.0]], [1.0, 2.0])
    assert str(caught.value) == f"loss_options has 'epsilon': loss='{loss}' {takes}"


@pytest.mark.parametrize("offset", [5.0, 20.0, 50.0])
def test_a_far_offset_without_an_intercept_moves_the_column_of_ones(offset):
    """The loss of coefficients of zero is e^offset; as the unit of the gap it let any model pass."""
    rng = np.random.default_rng(0)
    columns = np.column_stack([np.ones(300), rng.standard_normal((300, 3))])
    y = rng.poisson(np.exp(0.5 + 0.7 * columns[:, 1])).astype(float)
    model = sd.SparsePoissonRegressor(alpha=0, fit_intercept=False, tol=1e-8)
    expected = model.fit(columns, y).coef_.copy()
    moved = sd.SparsePoissonRegressor(alpha=1e-9, fit_intercept=False, tol=1e-8)
    found = moved.fit(columns, y, offset=np.full(300, offset)).coef_
    np.testing.assert_allclose(found, expected - offset * np.eye(4)[0], atol=1e-4)
