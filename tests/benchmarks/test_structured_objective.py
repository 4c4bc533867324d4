"""The benchmark of structured models: its judges against optimality, and its problems."""

import numpy as np
import pytest
from scipy.optimize import minimize

from stradask.benchmarks.gaps import norms_gap, poisson_gap, survival_gap
from stradask.benchmarks.objectives import find_objective
from stradask.errors import DataError

RNG = np.random.default_rng(2)
X = RNG.standard_normal((40, 3))


def objective(dataset, **options):
    kind = find_objective("structured")
    parameters = kind.defaults | options
    return kind(dataset, seed=0, parameters=parameters, quick=True)


@pytest.mark.parametrize("kind", ["group", "multitask", "poisson", "cox"])
def test_at_the_largest_penalty_zero_is_optimal_and_below_it_is_not(kind):
    case = objective(f"{kind}-wide")
    zero = {"coef": np.zeros(case.coef_shape), "intercept": 0.0}
    problem = case.problems()[0]
    assert problem.call == kind
    assert case.evaluate(problem, zero)["gap"] > 0.01
    at_most = problem.arguments["alpha"] * case.divisors[0] * (1 + 1e-9)
    assert case.gap(case.X, case.y, zero["coef"], at_most)[0] < 1e-6


def _l1_minimum(value, alpha):
    """Least ``value(b) + alpha |b|_1`` by a quasi-Newton method on positive and negative parts."""
    both = minimize(
        lambda z: value(z[:3] - z[3:]) + alpha * z.sum(),
        np.full(6, 0.1),
        bounds=[(0, None)] * 6,
        tol=1e-14,
        options={"maxfun": 100_000, "maxiter": 10_000},
    )
    return both.x[:3] - both.x[3:]


def test_the_gap_of_counts_vanishes_at_the_minimum_alone():
    y = RNG.poisson(np.exp(X[:, 0])).astype(float)
    coef = _l1_minimum(lambda b: np.mean(np.exp(X @ b) - y * (X @ b)), 0.1)
    assert abs(poisson_gap(X, y, coef, 0.1)[0]) < 1e-5
    assert poisson_gap(X, y, coef + 0.1, 0.1)[0] > 1e-3


def test_the_gap_of_survival_vanishes_at_the_minimum_alone():
    time, event = RNG.exponential(np.exp(-X[:, 0])), RNG.random(40) < 0.7

    def loss(b):  # the definition, event by event
        f = X @ b
        return sum(np.log(np.exp(f[time >= time[i]]).sum()) - f[i] for i in np.flatnonzero(event)) / 40

    coef = _l1_minimum(loss, 0.05)
    gap, value = survival_gap(X, time, event, coef, 0.05)
    assert abs(gap) < 1e-5
    np.testing.assert_allclose(value, loss(coef) + 0.05 * np.abs(coef).sum())
    assert survival_gap(X, time, event, coef + 0.1, 0.05)[0] > 1e-3


def test_the_gap_of_norms_vanishes_at_shrunk_coefficients_of_an_orthonormal_design():
    Q = np.linalg.qr(RNG.standard_normal((40, 4)))[0]
    Y = RNG.standard_normal((40, 2))
    V, alpha = Q.T @ Y / 40, 0.003
    sizes = np.repeat(np.linalg.norm(V.reshape(2, -1), axis=1), 2)[:, None]
    coef = 40 * V * np.maximum(1 - alpha / sizes, 0)
    assert abs(norms_gap(Q, Y, coef, alpha, 2)[0]) < 1e-12
    assert norms_gap(Q, Y, 1.1 * coef, alpha, 2)[0] > 1e-4


def test_unknown_data_and_intercepts_are_refused():
    with pytest.raises(DataError, match="'group-flat' is none of group-wide"):
        objective("group-flat")
    with pytest.raises(DataError, match="without an intercept"):
        objective("group-wide", intercept=True)
    with pytest.raises(DataError, match="tied"):
        survival_gap(X[:2], np.ones(2), np.ones(2, bool), np.zeros(3), 1.0)
