"""Stability selection against a loop of its own; its bounds against formulas, optimisation and simulation."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.pipeline import make_pipeline

import stradask as sd
from stradask.algorithms.linear.selection.bounds import error_bounds, r_concave_tail, unimodal_factor
from stradask.errors import DataError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 30))
Y = X[:, :3] @ [1.0, -1.0, 1.0] + RNG.standard_normal(60)


def largest_tail(mean, at, n, r, rng):
    """Maximise ``P(X >= at)`` over r-concave laws on 0..n: ``f^r`` is convex for r < 0, on a range from 0."""
    best = 0.0
    for k in range(at, n + 1):
        places = np.arange(k + 1)

        def law(g):
            f = np.maximum(g, 1e-9) ** (1 / r)
            return f / f.sum()

        constraints = [
            {"type": "eq", "fun": lambda g: places @ law(g) - mean * n},  # noqa: B023
            {"type": "ineq", "fun": lambda g: np.diff(g, 2)},
            {"type": "ineq", "fun": lambda g: g - 1e-3},
        ]
        for _ in range(4):
            start = 1 + rng.uniform(0.2, 3) * places + rng.uniform(0, 1) * places**2
            found = minimize(
                lambda g: -law(g)[at:].sum(),
                start,
                constraints=constraints,
                method="SLSQP",
                options={"maxiter": 300},
            )
            if abs(places @ law(found.x) - mean * n) < 1e-7 and np.diff(found.x, 2).min(initial=0) > -1e-7:
                best = max(best, -found.fun)
    return best


@pytest.mark.parametrize(("mean", "at", "r"), [(0.2, 4, -0.5), (0.1, 3, -0.25), (0.25, 5, -0.5)])
def test_the_bound_for_r_concave_laws_is_their_largest_tail(mean, at, r):
    bound = r_concave_tail(mean, at, 6, r)
    best = largest_tail(mean, at, 6, r, np.random.default_rng(1))
    assert best <= bound * (1 + 1e-5)
    assert best >= bound * 0.98


def test_bounds_by_their_formulas():
    found = error_bounds(10, 200, 0.75, 50)
    assert found["meinshausen_buhlmann"] == pytest.approx(100 / (0.5 * 200))
    assert found["unimodal"] == pytest.approx(0.5 / (2 * (2 * 0.75 - 1 - 0.01)))
    assert unimodal_factor(0.05, 0.9, 50) == pytest.approx(4 * 0.11 / 1.02)
    assert unimodal_factor(0.05, 0.5, 50) == np.inf
    for threshold in (0.6, 0.75, 0.9, 1.0):
        found = error_bounds(10, 200, threshold, 50)
        assert 0 <= found["r_concave"] <= found["unimodal"] <= found["meinshausen_buhlmann"]
    assert error_bounds(10, 20, 0.51, 50) == dict.fromkeys(found, 10.0 / 0.51)  # Markov's inequality


@pytest.mark.parametrize(
    "estimator", [sd.Lasso(0.2), sd.GroupLasso(3, alpha=0.2), sd.CoxRegression(0.1)], ids=repr
)
def test_frequencies_are_those_of_a_loop_over_halves(estimator):
    y = np.exp(Y) if isinstance(estimator, sd.CoxRegression) else Y
    model = sd.StabilitySelection(estimator, n_pairs=4, threshold=0.6, random_state=3).fit(X, y)
    rng, counts = np.random.RandomState(3), np.zeros(30)
    for _ in range(4):
        order = rng.permutation(60)
        for half in (np.sort(order[:30]), np.sort(order[30:])):
            counts += estimator.fit(X[half], y[half]).coef_ != 0
    np.testing.assert_array_equal(model.frequencies_, counts / 8)
    assert model.q_ == counts.sum() / 8
    np.testing.assert_array_equal(model.get_support(), counts / 8 >= 0.6)
    assert model.transform(X).shape == (60, model.support_.sum())
    threads = sd.StabilitySelection(estimator, n_pairs=4, random_state=3, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(threads.frequencies_, model.frequencies_)


@pytest.mark.parametrize(
    "estimator", [sd.Lasso(), sd.ElasticNet(l1_ratio=0.8), sd.SparseGLM("huber")], ids=repr
)
def test_paths_are_followed_as_long_as_few_columns_are_chosen(estimator):
    model = sd.StabilitySelection(estimator, n_selected=4, n_pairs=5, random_state=0).fit(X, Y)
    assert model.frequencies_.sum() <= 4
    assert set(model.get_support(indices=True)) <= {0, 1, 2}
    assert (model.frequencies_[:3] > 0.5).all()


def test_bad_input_is_refused():
    with pytest.raises(DataError, match="follows a path"):
        sd.StabilitySelection(sd.SparseLogisticRegression(), n_selected=3).fit(X, Y > 0)
    with pytest.raises(ValueError, match="threshold"):
        sd.StabilitySelection(threshold=1.5).fit(X, Y)
    with pytest.raises(DataError, match="halves need 4"):
        sd.StabilitySelection().fit(X[:3], Y[:3])
    with pytest.raises(DataError, match="sample_weight has 3"):
        sd.StabilitySelection().fit(X, Y, sample_weight=[1, 2, 3])

    with pytest.raises(DataError, match="LassoCV does not have"):
        sd.StabilitySelection(sd.LassoCV(), n_selected=3).fit(X, Y)
    with pytest.raises(DataError, match="give each row one"):
        sd.StabilitySelection().fit(X, Y, sample_weight=2.0)
    with pytest.raises(DataError, match="Pipeline has no coef_"):
        sd.StabilitySelection(make_pipeline(sd.Lasso())).fit(X, Y)


def test_a_half_that_is_too_small_is_named_without_a_second_fit(monkeypatch):
    rounds, fit = [], sd.SparseLogisticRegression.fit

    def noted(model, X, *args, **options):
        rounds.append((len(X), model.max_iter))
        return fit(model, X, *args, **options)

    monkeypatch.setattr(sd.SparseLogisticRegression, "fit", noted)
    model = sd.StabilitySelection(sd.SparseLogisticRegression(), n_pairs=3, random_state=0)
    with pytest.raises(DataError, match=r"SparseLogisticRegression refuses one of 30 of 60 .* holds 1 class"):
        model.fit(X, np.arange(60) == 3)
    assert rounds[-1] == (60, 1)
    with pytest.raises(DataError, match=r"^y contains NaN in row 7: SparseLogisticRegression"):
        model.fit(X, np.where(np.arange(60) == 7, np.nan, Y > 0))


def test_a_choice_of_all_columns_says_nothing():
    with pytest.warns(UserWarning, match="every fit chose all 5 columns.*a stronger penalty than Lasso's"):
        model = sd.StabilitySelection(sd.Lasso(alpha=1e-9), n_pairs=2).fit(X[:, :5], Y)
    assert model.error_bounds_["meinshausen_buhlmann"] == 5


@pytest.mark.slow
def test_false_choices_are_as_few_as_the_bounds_say():
    rng, wrong, bound = np.random.default_rng(5), [], None
    for seed in range(40):
        Z = rng.standard_normal((80, 60))
        y = Z[:, :3] @ [1.0, -1.0, 1.0] + rng.standard_normal(80)
        model = sd.StabilitySelection(n_selected=8, threshold=0.6, n_pairs=25, random_state=seed).fit(Z, y)
        wrong.append(model.support_[3:].sum())
        bound = model.error_bounds_
    assert np.mean(wrong) <= bound["unimodal"] <= bound["meinshausen_buhlmann"]
