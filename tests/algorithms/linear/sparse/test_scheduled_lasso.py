"""Scheduled parallel coordinate descent: the right minimum, the true gap, and what scheduling buys."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn import linear_model
from sklearn.exceptions import ConvergenceWarning

from stradask.algorithms.linear.sparse.scheduling.scheduled import (
    Correlated,
    ScheduledElasticNet,
    scheduled_elastic_net,
)
from stradask.errors import DataError, ModelFileError
from stradask.scheduler import DynamicSchedule, StaticSchedule, run


def problem(n=40, p=25, seed=0, kind="dense", dtype=np.float64, mean=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + mean
    if kind == "sparse":
        X *= rng.random((n, p)) < 0.3
    X = X.astype(dtype)
    y = X[:, :3] @ [3.0, -2, 1] + 0.5 * rng.standard_normal(n) + 1
    return (sparse.csc_array(X) if kind == "sparse" else np.asfortranarray(X)), y


def alpha_of(X, y, share):
    dense = X.toarray() if sparse.issparse(X) else X
    return share * np.abs((dense - dense.mean(0)).T @ (y - y.mean())).max() / len(y)


def dense_of(X):
    return (X.toarray() if sparse.issparse(X) else X).astype(np.float64)


def gap_outside(X, y, coef, intercept, l1, l2, weights, positive, fit_intercept):
    """Objective and duality gap by plain numpy, from the textbook: augmented rows for the squares."""
    X, p = dense_of(X), X.shape[1]
    mean_x, mean_y = (
        (weights @ X / weights.sum(), weights @ y / weights.sum()) if fit_intercept else (0.0, 0.0)
    )
    A = np.vstack([np.sqrt(weights)[:, None] * (X - mean_x), np.diag(np.sqrt(np.broadcast_to(l2, p)))])
    target = np.concatenate([np.sqrt(weights) * (y - mean_y), np.zeros(p)])
    r = target - A @ coef
    slopes = A.T @ r
    worst = (np.maximum(slopes, 0) if positive else np.abs(slopes)) / l1
    theta = r * np.clip(target @ r / (r @ r), 0, 1 / max(worst.max(), 1e-300))
    fitted = X @ coef + intercept
    primal = 0.5 * weights @ (y - fitted) ** 2 + l1 @ np.abs(coef) + 0.5 * (l2 * coef**2).sum()
    return primal, primal - (target @ theta - theta @ theta / 2)


settings_of_a_fit = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["dense", "sparse"]),
        "dtype": st.sampled_from([np.float32, np.float64]),
        "centre": st.sampled_from([(0.0, False), (0.0, True), (5.0, True)]),  # mean of X, fit_intercept
        "positive": st.booleans(),
        "weighted": st.booleans(),
        "l1_ratio": st.sampled_from([1.0, 0.5]),
        "factors": st.booleans(),
        "size": st.sampled_from([1, 5, 32]),
        "n_shards": st.sampled_from([1, 3]),
        "lookahead": st.integers(0, 1),
        "n_schedulers": st.sampled_from([1, 2]),
        "seed": st.integers(0, 5),
    }
)


@pytest.mark.parametrize("n_examples", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_it_comes_to_scikit_learns_minimum_with_a_true_gap(n_examples):
    settings(max_examples=n_examples, deadline=None, phases=[Phase.explicit, Phase.generate])(
        given(settings_of_a_fit)(comes_to_scikit_learns_minimum_with_a_true_gap)
    )()


def comes_to_scikit_learns_minimum_with_a_true_gap(case):
    mean, fit_intercept = case["centre"]
    X, y = problem(p=12, seed=case["seed"], kind=case["kind"], dtype=case["dtype"], mean=mean)
    n, p = X.shape
    rng = np.random.default_rng(case["seed"])
    weights = rng.integers(0, 4, n).astype(float) if case["weighted"] else np.ones(n)
    factors = rng.uniform(0.5, 2, p) if case["factors"] else np.ones(p)
    alpha = alpha_of(X, y, 0.1)
    l1 = weights.sum() * alpha * case["l1_ratio"] * factors
    l2 = weights.sum() * alpha * (1 - case["l1_ratio"]) * factors
    program, schedule = scheduled_elastic_net(
        X,
        y,
        l1,
        l2,
        size=case["size"],
        tol=1e-9,
        fit_intercept=fit_intercept,
        sample_weight=weights if case["weighted"] else None,
        positive=case["positive"],
        n_shards=case["n_shards"],
        lookahead=case["lookahead"],
        n_schedulers=case["n_schedulers"],
        random_state=case["seed"],
    )
    result = run(program, schedule, stop=program.stop, max_rounds=5000)
    assert result.reason == "gap"
    primal, gap = gap_outside(
        X, y, program.coef, program.intercept, l1, l2, weights, case["positive"], fit_intercept
    )
    assert program.primal == pytest.approx(primal, rel=1e-9)
    assert gap <= 2e-9 * program.scale
    assert program.gap == pytest.approx(gap, abs=1e-11 * program.scale)
    if not case["factors"]:  # which scikit-learn does not have
        peer = linear_model.ElasticNet(
            alpha,
            l1_ratio=case["l1_ratio"],
            fit_intercept=fit_intercept,
            positive=case["positive"],
            tol=1e-12,
            max_iter=100_000,
        )
        peer.fit(dense_of(X), y, sample_weight=weights)
        np.testing.assert_allclose(program.coef, peer.coef_, atol=1e-3)
        np.testing.assert_allclose(program.intercept, peer.intercept_, atol=5e-3)


@pytest.mark.parametrize("order", ["cyclic", "permutation", "size", "balanced"])
def test_static_schedules_come_to_the_same_minimum(order):
    X, y = problem(n=60, p=20)
    l1 = 60 * alpha_of(X, y, 0.05)
    best, dynamic = scheduled_elastic_net(X, y, l1, size=4, tol=1e-12, random_state=0)
    run(best, dynamic, stop=best.stop, max_rounds=20_000)
    program = ScheduledElasticNet(X, y, l1, size=2, tol=1e-12)
    schedule = StaticSchedule(20, size=2, order=order, weights=np.arange(20), random_state=0)
    assert run(program, schedule, stop=program.stop, max_rounds=20_000).reason == "gap"
    np.testing.assert_allclose(program.coef, best.coef, atol=1e-6)


@pytest.mark.parametrize("positive", [False, True])
def test_columns_with_squares_alone_close_the_gap_too(positive):
    X, y = problem(n=60, p=12)
    l1, l2 = np.full(12, 60 * alpha_of(X, y, 0.2)), np.full(12, 3.0)
    l1[::2] = 0.0
    program, schedule = scheduled_elastic_net(
        X, y, l1, l2, size=4, tol=1e-13, positive=positive, random_state=0
    )
    assert run(program, schedule, stop=program.stop, max_rounds=5000).reason == "gap"
    b = program.coef
    slopes = X.T @ (y - X @ b - program.intercept) - l2 * b
    on = b != 0
    np.testing.assert_allclose(slopes[on], (l1 * np.sign(b))[on], atol=1e-4)
    off = np.maximum(slopes, 0) if positive else abs(slopes)
    assert (off[~on] <= l1[~on] + 1e-4).all()
    assert on[::2].any()


# Columns that carry nothing ---------------------------------------------------------------------------


def test_constant_zero_and_duplicate_columns():
    X, y = problem(n=50, p=8)
    X[:, 5], X[:, 6], X[:, 7] = 3.7, 0.0, X[:, 0]
    l1 = 50 * alpha_of(X, y, 0.1)
    program, schedule = scheduled_elastic_net(X, y, l1, size=8, tol=1e-11, random_state=0)
    assert run(program, schedule, stop=program.stop, max_rounds=50_000).reason == "gap"
    assert program.coef[5] == program.coef[6] == 0
    alone, schedule = scheduled_elastic_net(
        np.asfortranarray(X[:, :5]), y, l1, size=1, tol=1e-11, random_state=0
    )
    run(alone, schedule, stop=alone.stop, max_rounds=50_000)
    assert program.primal == pytest.approx(alone.primal, rel=1e-8)
    # The two copies may not be updated from one residual.
    assert program.coef[0] + program.coef[7] == pytest.approx(alone.coef[0], abs=1e-4)


def test_a_penalty_above_all_slopes_leaves_the_mean_alone():
    X, y = problem()
    program, schedule = scheduled_elastic_net(X, y, 1e6, random_state=0)
    assert run(program, schedule, stop=program.stop, max_rounds=100).reason == "gap"
    assert not program.coef.any()
    assert program.intercept == pytest.approx(y.mean())
    assert program.gap == pytest.approx(0, abs=1e-12)


# Correlations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_correlated_compares_weighted_correlations(kind, weighted, centred):
    X, _ = problem(n=30, p=12, kind=kind, mean=1.0)
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 3, 30).astype(float)
    A = dense_of(X)
    w = weights if weighted else np.ones(30)
    expected = np.cov(A.T, aweights=w, ddof=0) if centred else (A * w[:, None]).T @ A
    expected /= np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    left, right = np.array([3, 0, 7]), np.array([1, 2, 11, 3])
    between = np.abs(expected[np.ix_(left, right)])
    for rho in np.quantile(between, [0.2, 0.5, 0.8]) * 1.0001:
        depends = Correlated(X, rho, weights if weighted else None, centred=centred)
        np.testing.assert_array_equal(depends(left, right), between >= rho)
        np.testing.assert_array_equal(depends(left, left), np.abs(expected[np.ix_(left, left)]) >= rho)


# Promises ---------------------------------------------------------------------------------------------


def figures(**options):
    X, y = problem(n=80, p=60, seed=4)
    program, schedule = scheduled_elastic_net(
        X, y, 80 * alpha_of(X, y, 0.05), size=8, tol=1e-9, n_shards=4, n_schedulers=3, random_state=7
    )
    result = run(program, schedule, stop=program.stop, max_rounds=5000, **options)
    return program, result


def test_threads_and_the_session_change_no_bit():
    program, result = figures(n_jobs=1)
    again, result_again = figures(n_jobs=4)
    assert result.reason == result_again.reason == "gap"
    np.testing.assert_array_equal(program.coef, again.coef)
    np.testing.assert_array_equal(
        result.history.as_dict()["objective"], result_again.history.as_dict()["objective"]
    )


@pytest.mark.parametrize("lookahead", [0, 1])
def test_it_goes_on_from_a_checkpoint_as_if_never_stopped(tmp_path, lookahead):
    X, y = problem(n=80, p=60, seed=4)

    def fit(n_rounds, **options):
        program, schedule = scheduled_elastic_net(
            X,
            y,
            80 * alpha_of(X, y, 0.02),
            size=8,
            rho=0.3,
            tol=1e-12,
            n_shards=2,
            lookahead=lookahead,
            random_state=7,
        )
        return program, run(program, schedule, stop=program.stop, max_rounds=n_rounds, **options)

    whole, _ = fit(90)
    fit(37, checkpoint=tmp_path / "state")
    resumed, result = fit(90, checkpoint=tmp_path / "state")
    assert result.n_rounds == 90
    np.testing.assert_array_equal(whole.coef, resumed.coef)
    assert whole.gap == resumed.gap


def test_it_can_begin_from_coefficients():
    X, y = problem(n=50, p=30, mean=2.0)
    l1 = 50 * alpha_of(X, y, 0.1)
    cold, schedule = scheduled_elastic_net(X, y, l1, size=4, tol=1e-11, random_state=0)
    run(cold, schedule, stop=cold.stop, max_rounds=20_000)
    warm, schedule = scheduled_elastic_net(X, y, l1, size=4, tol=1e-10, coef=cold.coef, random_state=0)
    assert run(warm, schedule, stop=warm.stop, max_rounds=20_000).n_rounds == warm.measure_every
    np.testing.assert_allclose(warm.coef, cold.coef, atol=1e-5)


# What scheduling buys ----------------------------------------------------------------------------------
#
# All coefficients of a round are stepped from one residual: what U workers at a time do, without their
# chance. So these runs are the same on every machine.


def correlated(n=100, p=400, n_factors=10, correlation=0.9, seed=0):
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n, n_factors))
    X = np.sqrt(correlation) * factors[:, rng.integers(0, n_factors, p)]
    X += np.sqrt(1 - correlation) * rng.standard_normal((n, p))
    return _with_target(X, rng)


def independent(n=400, p=400, seed=0):
    rng = np.random.default_rng(seed)
    return _with_target(rng.standard_normal((n, p)), rng)


def _with_target(X, rng):
    X = np.asfortranarray((X - X.mean(0)) / X.std(0))
    y = X[:, rng.choice(X.shape[1], 20, replace=False)] @ rng.standard_normal(20)
    return X, y + rng.standard_normal(len(y)) * y.std() / 3


def outcome(X, y, policy, size):
    """Reason of the end and updates to a relative gap of 1e-4."""
    n, p = X.shape
    rho = 0.3 if policy == "priority and dependency" else None
    program = ScheduledElasticNet(X, y, n * alpha_of(X, y, 0.1), size=size, rho=rho, tol=1e-4)
    schedule = {
        "random": lambda: StaticSchedule(p, size=size, order="permutation", random_state=0),
        "priority": lambda: DynamicSchedule(p, size=size, oversample=1, random_state=0),
        "priority and dependency": lambda: DynamicSchedule(
            p, size=size, conflicts=Correlated(X, 0.3), random_state=0
        ),
    }[policy]()
    result = run(program, schedule, stop=program.stop, max_rounds=10_000)
    assert not program._shortens  # the schedule alone does it
    return result.reason, int(result.history.as_dict()["updates"].sum())


@pytest.mark.slow
def test_many_uncoordinated_updates_of_correlated_features_diverge():
    X, y = correlated()
    for policy in ("random", "priority"):
        with pytest.warns(ConvergenceWarning, match="ScheduledElasticNet diverged"):
            assert outcome(X, y, policy, 128)[0] == "diverged"


def test_uncoordinated_updates_of_correlated_features_diverge_and_scheduled_ones_do_not():
    X, y = correlated()
    for policy in ("random", "priority"):
        with pytest.warns(ConvergenceWarning, match="ScheduledElasticNet diverged"):
            assert outcome(X, y, policy, 32)[0] == "diverged"
    # Of ten groups of like columns a set holds ten: it asks for 32 in vain, and so it would for 128.
    assert outcome(X, y, "priority and dependency", 32)[0] == "gap"
    # A few in flight do no harm, and then drawing at random is as good.
    reason, updates = outcome(X, y, "random", 8)
    scheduled_reason, scheduled = outcome(X, y, "priority and dependency", 8)
    assert reason == scheduled_reason == "gap"
    assert updates < 1.5 * scheduled


def test_on_independent_features_plain_random_does_as_well():
    X, y = independent()
    for size in (8, 32, 128):
        reason, updates = outcome(X, y, "random", size)
        scheduled_reason, scheduled = outcome(X, y, "priority and dependency", size)
        assert reason == scheduled_reason == "gap"
        assert updates < 2 * scheduled


def test_if_dependent_columns_slip_through_shorter_steps_save_the_descent():
    X, y = correlated()
    size, l1 = 16, 100 * alpha_of(X, y, 0.1)
    # The schedule keeps no bound; the program is told one that holds for all pairs.
    program = ScheduledElasticNet(X, y, l1, size=size, rho=1.0, tol=1e-3)
    schedule = StaticSchedule(400, size=size, order="permutation", random_state=0)
    result = run(program, schedule, stop=program.stop, max_rounds=1500)
    objective = result.history.as_dict()["objective"]
    objective = objective[~np.isnan(objective)]
    rises = np.diff(np.concatenate([[program.scale], objective])) > 0
    assert rises.sum() == 1  # the one that was noticed
    assert program._shortens
    assert objective[-1] < objective.max() / 2


# What is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l1": -1.0}, "l1 must be finite and not negative"),
        ({"l1": np.ones(3)}, "l1 must be finite and not negative, one number or 25"),
        ({"l1": 1.0, "l2": np.nan}, "l2 must be finite and not negative"),
        ({"l1": np.arange(25.0)}, "column 0 has none"),
        ({"l1": 1.0, "rho": 0}, "rho must be above 0 and at most 1, got 0"),
        ({"l1": 1.0, "size": 0}, "size must be at least 1"),
    ],
)
def test_parameters_that_cannot_be_used(options, message):
    X, y = problem()
    with pytest.raises(DataError, match=message):
        scheduled_elastic_net(X, y, **options)


def test_a_checkpoint_of_another_program():
    X, y = problem()
    program = ScheduledElasticNet(X, y, 1.0)
    for wrong in ({}, {"coef": np.zeros(3)}, program.arrays() | {"coef": np.zeros(25, np.float32)}):
        with pytest.raises(ModelFileError, match="'coef'"):
            program.restore(wrong)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_a_column_that_overflows_is_named():
    X, y = problem()
    X[:, 7] *= 1e200
    program, schedule = scheduled_elastic_net(X, y, 1.0, size=25, random_state=0)
    with pytest.raises(DataError, match="column 7 of X is so large"):
        run(program, schedule, max_rounds=100)
