"""The lasso on shards of rows, against scikit-learn and against the same rows in one piece."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import ElasticNet as Reference

from stradask.algorithms.linear.sparse.distributed import by_columns
from stradask.algorithms.linear.sparse.penalties import L1L2
from stradask.algorithms.linear.sparse.rows import GramSquared, RowProgram
from stradask.algorithms.linear.sparse.working_set import WorkingSet
from stradask.errors import DataError, ModelFileError
from stradask.scheduler.engine import run
from stradask.scheduler.schedules.static import StaticSchedule


def _problem(n=120, p=30, seed=0, correlated=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 1.5
    if correlated:
        X = X @ (np.eye(p) + 0.9 * np.tri(p, k=-1)) / 3
    y = X[:, :4] @ [2.0, -1.0, 0.5, 3.0] + rng.standard_normal(n) + 7
    return X, y, rng.uniform(0.2, 2, n)


def _fit(X, y, penalties, *, weights=None, fit_intercept=True, n_shards=3, tol=1e-12, start=None):
    working_set = WorkingSet(
        GramSquared(y, weights, fit_intercept=fit_intercept),
        penalties,
        n_features=X.shape[1],
        is_sparse=sparse.issparse(X),
        tol=tol,
        start=start,
    )
    cuts = np.linspace(0, len(y), n_shards + 1).astype(int)
    pieces = [X[a:b] for a, b in itertools.pairwise(cuts)]
    program = RowProgram(working_set, pieces, np.diff(cuts), by_columns)
    done = run(program, StaticSchedule(1, n_shards=n_shards), max_rounds=500)
    return working_set, done


def _full(solution, p):
    coef = np.zeros(p)
    coef[solution.features] = solution.coef
    return coef


@pytest.mark.parametrize(
    ("kind", "weighted", "fit_intercept", "l1_ratio", "positive"),
    [  # each pair of levels
        ("dense", False, False, 0.4, False),
        ("dense", True, True, 1.0, True),
        ("float32", False, True, 1.0, False),
        ("float32", True, False, 0.4, True),
        ("csr", False, True, 0.4, True),
        ("csr", True, False, 1.0, False),
    ],
)
def test_it_is_scikit_learns_solution(kind, weighted, fit_intercept, l1_ratio, positive):
    X, y, weights = _problem()
    given = {"dense": X, "float32": X.astype(np.float32), "csr": sparse.csr_array(np.where(X > 1.5, X, 0))}[
        kind
    ]
    weights = weights if weighted else None
    total, alpha = (len(y) if weights is None else weights.sum()), 0.05
    penalty = L1L2(total * alpha * l1_ratio, total * alpha * (1 - l1_ratio), positive=positive)
    working_set, done = _fit(given, y, [penalty], weights=weights, fit_intercept=fit_intercept)
    plain = given.toarray() if sparse.issparse(given) else given.astype(np.float64)
    reference = Reference(
        alpha, l1_ratio=l1_ratio, fit_intercept=fit_intercept, positive=positive, tol=1e-13, max_iter=100_000
    ).fit(plain, y, sample_weight=weights)
    solution = working_set.solutions[0]
    assert done.reason == solution.reason == "gap"
    np.testing.assert_allclose(_full(solution, 30), reference.coef_, atol=2e-6 if kind == "float32" else 1e-7)
    assert solution.intercept == pytest.approx(reference.intercept_, abs=1e-5)


@pytest.mark.parametrize("correlated", [False, True])
def test_a_path_agrees_with_single_fits_and_gaps_are_true(correlated):
    X, y, weights = _problem(correlated=correlated)
    strengths = [300.0, 100.0, 30.0, 3.0, 0.3]
    working_set, _ = _fit(X, y, [L1L2(s) for s in strengths], weights=weights, tol=1e-9)
    w = weights / weights.sum()
    root = np.sqrt(weights)
    A, b = root[:, None] * (X - w @ X), root * (y - w @ y)
    for strength, solution in zip(strengths, working_set.solutions, strict=True):
        alone = _fit(X, y, [L1L2(strength)], weights=weights, tol=1e-9, n_shards=1)[0].solutions[0]
        np.testing.assert_allclose(_full(solution, 30), _full(alone, 30), atol=2e-4)
        r = b - A @ _full(solution, 30)
        s = min(max(b @ r / (r @ r), 0), strength / np.abs(A.T @ r).max())
        primal = r @ r / 2 + strength * np.abs(solution.coef).sum()
        gap = primal - (s * (b @ r) - s * s * (r @ r) / 2)
        assert gap <= 1.1e-9 * (b @ b) / 2 + 1e-11 * (b @ b)
        assert solution.objective == pytest.approx(primal)


def test_factors_of_zero_are_never_penalised():
    X, y, _ = _problem()
    factors = np.ones(30)
    factors[[0, 5]] = 0
    working_set, _ = _fit(X, y, [L1L2(1e9, l1_factors=factors)])
    solution = working_set.solutions[0]
    design = np.column_stack([np.ones(len(y)), X[:, [0, 5]]])
    expected = np.linalg.lstsq(design, y, rcond=None)[0]
    assert solution.features.tolist() == [0, 5]
    np.testing.assert_allclose([solution.intercept, *solution.coef], expected, rtol=1e-9)


def test_a_free_feature_may_be_held_above_zero():
    X, y, _ = _problem()
    factors = np.ones(30)
    factors[[0, 1]] = 0  # the slope of the second is negative
    solution = _fit(X, y, [L1L2(1e9, l1_factors=factors, positive=True)], tol=1e-8)[0].solutions[0]
    assert solution.reason == "gap"
    assert solution.features.tolist() == [0]
    slope, intercept = np.polyfit(X[:, 0], y, 1)
    np.testing.assert_allclose([solution.coef[0], solution.intercept], [slope, intercept], rtol=1e-6)


def test_constant_columns_get_no_coefficient():
    X, y, _ = _problem()
    X[:, 3] = 1e6
    working_set, _ = _fit(X, y, [L1L2(1e-3)], tol=1e-8)
    assert working_set.solutions[0].reason == "gap"
    assert 3 not in working_set.solutions[0].features


def test_it_starts_from_given_coefficients_and_takes_fewer_visits():
    X, y, _ = _problem(correlated=True)
    cold, _ = _fit(X, y, [L1L2(1.0)])
    solution = cold.solutions[0]
    warm, _ = _fit(X, y, [L1L2(1.0)], start=(solution.features, solution.coef))
    assert warm.solutions[0].updates < solution.updates
    np.testing.assert_allclose(_full(warm.solutions[0], 30), _full(solution, 30), atol=1e-6)


def test_messages_are_as_small_as_the_module_says():
    X, y, _ = _problem()
    sent = []

    class Watched(RowProgram):
        def aggregate(self, tasks, partials):
            before = len(self.working_set.sub.features)
            outcome = super().aggregate(tasks, partials)
            for arrays in partials:
                if isinstance(arrays, np.ndarray):
                    assert arrays.shape == (X.shape[1],)
                else:
                    m = len(arrays[2])
                    assert sum(array.size for array in arrays) == m * (before + m + 2)
            sent.append(sum(np.asarray(value).nbytes for value in outcome.message.values()))
            return outcome

    working_set = WorkingSet(GramSquared(y), [L1L2(20.0)], n_features=30, is_sparse=False)
    program = Watched(working_set, [X[:50], X[50:]], [50, 70], by_columns)
    assert run(program, StaticSchedule(1, n_shards=2), max_rounds=99).reason == "gap"
    assert len(sent) >= 3
    assert max(sent) <= 16 * 30 + 8


def test_a_shard_of_the_wrong_shape_is_named():
    X, y, _ = _problem()
    working_set = WorkingSet(GramSquared(y), [L1L2(20.0)], n_features=30, is_sparse=False)
    with pytest.raises(DataError, match=r"shape \(50, 29\), but 50 rows of 30"):
        run(
            RowProgram(working_set, [X[:50, 1:], X[50:]], [50, 70], by_columns),
            StaticSchedule(1, n_shards=2),
            max_rounds=9,
        )


def _program(penalties, tol):
    X, y, _ = _problem()
    working_set = WorkingSet(GramSquared(y), penalties, n_features=30, is_sparse=False, tol=tol)
    return RowProgram(working_set, [X], [len(y)], by_columns)


def test_arrays_of_a_checkpoint_start_a_fit():
    first, second = (_program([L1L2(20.0)], 1e-10) for _ in range(2))
    run(first, StaticSchedule(1, n_shards=1), max_rounds=500)
    second.restore(first.arrays())
    run(second, StaticSchedule(1, n_shards=1), max_rounds=500)
    (one,), (other,) = first.working_set.solutions, second.working_set.solutions
    np.testing.assert_allclose(_full(one, 30), _full(other, 30), rtol=1e-9)
    with pytest.raises(ModelFileError, match=r"outside 0 \.\.\. 29"):
        _program([L1L2(20.0)], 1e-10).restore({"features": np.array([30]), "coef": np.ones(1)})
    with pytest.raises(ModelFileError, match="features and their coef"):
        _program([L1L2(20.0)], 1e-10).restore({"coef": np.ones(1)})
