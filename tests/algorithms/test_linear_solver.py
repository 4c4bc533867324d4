"""The solver of the squared loss, against scikit-learn and against a gap recomputed in plain numpy."""

import itertools
import pickle
import re
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import ElasticNet as TheirElasticNet
from sklearn.linear_model import LinearRegression

from stradask.algorithms.linear import gram as gram_module
from stradask.algorithms.linear import squared as squared_module
from stradask.algorithms.linear.columns import columns_of, cut
from stradask.algorithms.linear.conjugate_gradients import KeptFactor
from stradask.algorithms.linear.copies import copies_of
from stradask.algorithms.linear.penalties import ElasticNet, Separable
from stradask.algorithms.linear.program import SparseLinearProgram, solve
from stradask.algorithms.linear.squared import Squared
from stradask.algorithms.linear.working_set import WorkingSet
from stradask.errors import DataError, ModelFileError

DOCS = Path(__file__).parents[2] / "docs" / "add-a-penalty.md"


def fit(
    X,
    y,
    penalties,
    *,
    weights=None,
    intercept=False,
    tol=1e-10,
    n_shards=1,
    start=None,
    remote=None,
    rounds=1000,
):
    working_set = WorkingSet(
        Squared(y, weights, intercept),
        penalties,
        n_features=X.shape[1],
        is_sparse=sparse.issparse(X),
        tol=tol,
        max_rounds=rounds,
        start=start,
    )
    if remote is None:
        solve(SparseLinearProgram(working_set, columns_of(X), n_shards=n_shards))
    else:
        bounds = np.cumsum([0, *remote])
        shards = [(a, X[:, a:b]) for a, b in itertools.pairwise(bounds)]
        solve(SparseLinearProgram(working_set, None, shards=shards))
    return working_set.solutions


def dense(solution, n_features):
    coef = np.zeros(n_features)
    coef[solution.features] = solution.coef
    return coef


def problem(n, p, *, seed=0, density=None, correlation=0.0, dtype=np.float64, shift=0.0, positive=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + correlation * rng.standard_normal((n, 1)) + shift
    if density is not None:
        X *= rng.random((n, p)) < density
    truth = rng.standard_normal(p) * (rng.random(p) < 0.3)
    y = X @ (abs(truth) if positive else truth) + rng.standard_normal(n) + shift
    X = np.asfortranarray(X, dtype=dtype)
    return (X if density is None else sparse.csc_array(X)), y


def reference_gap(X, y, coef, penalty, weights=None, intercept=False):
    """Relative gap by the definitions: weights and centring applied to dense copies, the best multiple of
    the residual, made orthogonal to unpenalised columns, as dual point."""
    X = X.toarray() if sparse.issparse(X) else X
    X, y = X.astype(float), y.astype(float)
    w = np.ones(len(y)) if weights is None else weights
    if intercept:
        X, y = X - np.average(X, axis=0, weights=w), y - np.average(y, weights=w)
    X, y = X * np.sqrt(w)[:, None], y * np.sqrt(w)
    features = np.arange(X.shape[1])
    l1, l2 = penalty.thresholds(features), penalty.ridges(features)
    r = y - X @ coef
    primal = r @ r / 2 + l1 @ abs(coef) + l2 @ coef**2 / 2
    # rows of the square penalty are appended; what has neither penalty is projected out
    A, target = np.vstack([X, np.diag(np.sqrt(l2))]), np.concatenate([y, np.zeros(X.shape[1])])
    theta = np.concatenate([r, -np.sqrt(l2) * coef])
    free = (l1 == 0) if not penalty.positive else np.zeros(X.shape[1], bool)
    if free.any():
        theta = theta - A[:, free] @ np.linalg.lstsq(A[:, free], theta, rcond=None)[0]
    slopes = A[:, ~free].T @ theta
    slopes = np.maximum(slopes, 0) if penalty.positive else abs(slopes)
    with np.errstate(divide="ignore"):
        limit = min((l1[~free][slopes > 0] / slopes[slopes > 0]).min(initial=np.inf), 1e300)
    s = np.clip(target @ theta / max(theta @ theta, 1e-300), 0, limit)
    return (primal - (s * (target @ theta) - s * s * (theta @ theta) / 2)) / (y @ y / 2)


def strength_max(X, y, weights=None, intercept=False, positive=False):
    w = np.ones(len(y)) if weights is None else weights
    v = w * (y - np.average(y, weights=w) if intercept else y)
    slopes = X.T @ v
    return (slopes if positive else abs(slopes)).max()


# --- against independent answers -----------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 40),
    p=st.integers(1, 60),
    seed=st.integers(0, 10**6),
    density=st.sampled_from([None, None, 0.2, 0.7]),
    dtype=st.sampled_from([np.float64, np.float32]),
    intercept=st.booleans(),
    weighted=st.booleans(),
    positive=st.booleans(),
    factors=st.sampled_from(["none", "some", "zeros"]),
    part=st.sampled_from([0.7, 0.1, 0.01]),
    ratio=st.sampled_from([1.0, 0.5]),
    shift=st.sampled_from([0.0, 3.0]),
)
def test_gap_recomputed_from_outside(
    n, p, seed, density, dtype, intercept, weighted, positive, factors, part, ratio, shift
):
    X, y = problem(n, p, seed=seed, density=density, dtype=dtype, shift=shift)
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 4, n) + 0.25 if weighted else None
    f = None if factors == "none" else rng.random(p) + 0.5
    if factors == "zeros" and not positive:
        f[: p // 4] = 0
    top = max(strength_max(X, y, weights, intercept), 1e-8)
    penalty = ElasticNet(part * top, ridge=(1 - ratio) * n, l1_factors=f, l2_factors=f, positive=positive)
    (solution,) = fit(X, y, [penalty], weights=weights, intercept=intercept, tol=1e-9)
    assert solution.reason == "gap"
    coef = dense(solution, p)
    assert reference_gap(X, y, coef, penalty, weights, intercept) <= 2e-9
    assert not positive or (coef >= 0).all()
    if intercept:
        w = np.ones(n) if weights is None else weights
        mean = np.average(y - X @ coef, weights=w)
        assert solution.intercept == pytest.approx(mean, abs=1e-6 * (1 + abs(y).max()))


@pytest.mark.parametrize("shape", [(80, 30), (40, 120)])
@pytest.mark.parametrize("density", [None, 0.2])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_equals_scikit_learn(shape, density, intercept, weighted, positive, l1_ratio):
    n, p = shape
    X, y = problem(n, p, density=density, shift=1.0, positive=positive)
    weights = np.random.default_rng(1).random(n) + 0.1 if weighted else None
    total = n if weights is None else weights.sum()
    alpha = 0.1 * strength_max(X, y, weights, intercept, positive) / total / l1_ratio
    penalty = ElasticNet(total * alpha * l1_ratio, total * alpha * (1 - l1_ratio), positive=positive)
    (solution,) = fit(X, y, [penalty], weights=weights, intercept=intercept, tol=1e-13)
    theirs = TheirElasticNet(
        alpha=alpha, l1_ratio=l1_ratio, fit_intercept=intercept, positive=positive, tol=1e-13, max_iter=10**6
    ).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(dense(solution, p), theirs.coef_, atol=1e-6)
    assert solution.intercept == pytest.approx(theirs.intercept_, abs=1e-6)
    assert len(solution.features) > 0


def test_objective_and_gap_are_reported_in_the_units_of_the_problem():
    X, y = problem(50, 80)
    penalty = ElasticNet(0.1 * strength_max(X, y), ridge=2.0)
    (solution,) = fit(X, y, [penalty], tol=1e-4)
    coef = dense(solution, 80)
    objective = np.sum((y - X @ coef) ** 2) / 2 + penalty.value(solution.coef, solution.features)
    assert solution.objective == pytest.approx(objective, rel=1e-12)
    assert solution.gap == pytest.approx(reference_gap(X, y, coef, penalty), rel=1e-6)
    assert solution.gap_absolute == pytest.approx(solution.gap * (y @ y) / 2, rel=1e-12)
    assert solution.updates > 0


# --- one program, however it is cut ---------------------------------------------------------------------


@pytest.mark.parametrize("density", [None, 0.2])
@pytest.mark.parametrize("where", ["here", "remote"])
def test_the_cut_does_not_change_a_bit(density, where):
    X, y = problem(40, 203, density=density, correlation=1.0)
    X = sparse.hstack([X, X[:, :50]]).tocsc() if density else np.asfortranarray(np.hstack([X, X[:, :50]]))
    f = np.random.default_rng(2).random(253) + 0.5
    f[[3, 200]] = 0
    penalties = [ElasticNet(part * strength_max(X, y), l1_factors=f) for part in (0.5, 0.1, 0.02)]
    whole = fit(X, y, penalties, intercept=True)
    parts = [(2, None), (7, None)] if where == "here" else [(1, [253]), (1, [1, 100, 2, 150])]
    for n_shards, remote in parts:
        others = fit(X, y, penalties, intercept=True, n_shards=n_shards, remote=remote)
        for one, other in zip(whole, others, strict=True):
            np.testing.assert_array_equal(one.features, other.features)
            np.testing.assert_array_equal(one.coef, other.coef)
            assert (one.gap, one.intercept, one.rounds) == (other.gap, other.intercept, other.rounds)


def test_cuts_cover_all_columns_with_equal_work():
    X = sparse.random_array((50, 300), density=0.2, format="csc", random_state=0)
    ranges = cut(columns_of(X), 4)
    assert [a for a, _ in ranges[1:]] == [b for _, b in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, 300)
    assert max(X[:, a:b].nnz for a, b in ranges) < 0.3 * X.nnz
    assert cut(columns_of(X[:, :2]), 5)[-1][1] == 2


def test_what_goes_to_a_worker_is_small_and_makes_the_same_state():
    X, y = problem(100, 50)
    working_set = WorkingSet(Squared(y), [ElasticNet(1.0)], n_features=50, is_sparse=False)
    program = SparseLinearProgram(working_set, None, shards=[(0, X)])
    sent = pickle.dumps(program)
    assert len(sent) < 2000
    there = pickle.loads(sent)
    states = [one.load((0, X)) for one in (program, there)]
    for one, state in zip((program, there), states, strict=True):
        one.sync(state, program.publish())
    for mine, theirs in zip(program.update(states[0], None), there.update(states[1], None), strict=True):
        np.testing.assert_array_equal(mine, theirs)


# --- paths and starts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [None, 0.3])
def test_a_path_is_its_single_fits(density):
    X, y = problem(60, 100, density=density)
    top = strength_max(X, y, intercept=True)
    penalties = [ElasticNet(part * top) for part in (1.5, 1.0, 0.5, 0.3, 0.1, 0.03, 0.03)]
    path = fit(X, y, penalties, intercept=True, tol=1e-12)
    assert [solution.strength for solution in path] == [penalty.strength for penalty in penalties]
    assert len(path[0].features) == len(path[1].features) == 0
    for penalty, point in zip(penalties, path, strict=True):
        (single,) = fit(X, y, [penalty], intercept=True, tol=1e-12)
        np.testing.assert_allclose(dense(point, 100), dense(single, 100), atol=1e-6)
    assert path[0].rounds == 1
    assert path[-1].updates == 0


def test_a_start_saves_the_work():
    X, y = problem(60, 100)
    penalty = ElasticNet(0.05 * strength_max(X, y))
    (cold,) = fit(X, y, [penalty])
    (warm,) = fit(X, y, [penalty], start=(cold.features, cold.coef))
    assert (warm.updates, warm.rounds) == (0, 2)
    np.testing.assert_allclose(warm.coef, cold.coef, rtol=1e-12)
    (wrong,) = fit(X, y, [penalty], start=(np.array([5, 70]), np.array([100.0, -100.0])))
    np.testing.assert_allclose(dense(wrong, 100), dense(cold, 100), atol=1e-4)


def test_arrays_of_a_checkpoint_start_a_fit():
    X, y = problem(60, 100)
    penalty = ElasticNet(0.05 * strength_max(X, y))

    def program():
        working_set = WorkingSet(Squared(y), [penalty], n_features=100, is_sparse=False, tol=1e-10)
        return SparseLinearProgram(working_set, columns_of(X))

    first, second = program(), program()
    solve(first)
    second.restore(first.arrays())
    solve(second)
    (one,), (other,) = first.working_set.solutions, second.working_set.solutions
    assert other.updates == 0
    np.testing.assert_allclose(dense(one, 100), dense(other, 100), rtol=1e-12)
    with pytest.raises(ModelFileError, match=r"outside 0 \.\.\. 99"):
        program().restore({"features": np.array([100]), "coef": np.ones(1)})
    with pytest.raises(ModelFileError, match="features and their coef"):
        program().restore({"coef": np.ones(1)})


def test_finish_keeps_the_model_so_far():
    X, y = problem(60, 100)
    penalties = [ElasticNet(part * strength_max(X, y)) for part in (0.5, 0.01)]
    working_set = WorkingSet(Squared(y), penalties, n_features=100, is_sparse=False, tol=1e-12)
    program = SparseLinearProgram(working_set, columns_of(X))
    state = program.load(program.shards[0])
    program.sync(state, program.publish())
    while len(working_set.solutions) < 1 or len(working_set.reports) < 6:
        program.sync(state, program.aggregate([], [program.update(state, None)]).message)
    working_set.finish()
    last = working_set.solutions[-1]
    assert (last.reason, working_set.done, len(working_set.solutions)) == ("stopped", "stopped", 2)
    assert last.gap == working_set.reports[-1].gap > 1e-12
    assert len(last.features) > 0
    working_set.finish()
    assert len(working_set.solutions) == 2


# --- odd columns and penalties ----------------------------------------------------------------------------


@pytest.mark.parametrize("density", [None, 0.3])
@pytest.mark.parametrize("p", [20, 150])
def test_no_penalty_is_least_squares(p, density):
    X, y = problem(60, p, density=density, shift=1.0)
    (solution,) = fit(X, y, [ElasticNet(0.0)], intercept=True, tol=1e-10)
    assert solution.reason == "gap"
    theirs = LinearRegression().fit(X.toarray() if density else X, y)
    mine = X @ dense(solution, p) + solution.intercept
    np.testing.assert_allclose(mine, theirs.predict(X.toarray() if density else X), atol=1e-7)


def test_no_penalty_on_many_columns(monkeypatch):
    from stradask.algorithms.linear import unpenalised

    monkeypatch.setattr(unpenalised, "MOST_DIRECT", 5)
    X, y = problem(60, 20)
    (solution,) = fit(X, y, [ElasticNet(0.0)], intercept=True, tol=1e-10)
    theirs = LinearRegression().fit(X, y)
    np.testing.assert_allclose(dense(solution, 20), theirs.coef_, atol=1e-8)


def test_a_ridge_alone_has_its_closed_form():
    X, y = problem(50, 20)
    f = np.linspace(0.5, 2, 20)
    (solution,) = fit(X, y, [ElasticNet(0.0, 3.0, l2_factors=f)], tol=1e-13)
    expected = np.linalg.solve(X.T @ X + 3 * np.diag(f), X.T @ y)
    np.testing.assert_allclose(dense(solution, 20), expected, atol=1e-6)


def test_unpenalised_features_close_to_others():
    """Descent that alternates between the two kinds would take for ever."""
    X, y = problem(8, 22, seed=120)
    f = np.random.default_rng(120).random(22) + 0.5
    f[:5] = 0
    penalty = ElasticNet(0.01 * strength_max(X, y), l1_factors=f)
    (solution,) = fit(X, y, [penalty], tol=1e-10)
    assert solution.reason == "gap"
    assert reference_gap(X, y, dense(solution, 22), penalty) < 1e-9


def test_unpenalised_features_may_depend_on_one_another():
    X, y = problem(50, 30, shift=2.0)
    X[:, 1] = 2 * X[:, 0]
    X[:, 2], X[:, 3] = 0.0, 7.0
    f = np.ones(30)
    f[:4] = 0
    penalty = ElasticNet(0.1 * strength_max(X, y, intercept=True), l1_factors=f)
    (solution,) = fit(X, y, [penalty], intercept=True, tol=1e-10)
    assert reference_gap(X, y, dense(solution, 30), penalty, intercept=True) < 1e-9
    assert not np.isin([2, 3], solution.features).any()


def test_positive_without_penalty_is_non_negative_least_squares():
    from scipy.optimize import nnls

    X, y = problem(50, 20)
    (solution,) = fit(X, y, [ElasticNet(0.0, positive=True)], tol=1e-9)
    assert solution.reason == "gap"
    np.testing.assert_allclose(dense(solution, 20), nnls(X, y)[0], atol=1e-6)


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
def test_constant_and_empty_and_double_columns(form):
    X, y = problem(50, 10)
    odd = np.column_stack([X, np.full(50, 1e6), np.zeros(50), X[:, 0]])
    penalty = ElasticNet(0.05 * strength_max(X, y, intercept=True))
    (solution,) = fit(form(odd), y, [penalty], intercept=True, tol=1e-10)
    (plain,) = fit(np.asfortranarray(X), y, [penalty], intercept=True, tol=1e-10)
    coef = dense(solution, 13)
    assert coef[10] == coef[11] == 0
    coef[0] += coef[12]
    np.testing.assert_allclose(coef[:10], dense(plain, 10), atol=1e-5)


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
@pytest.mark.parametrize(
    ("of_x", "of_y"), [(1e-300, 1), (1e290, 1), (1, 1e-300), (1, 1e300), (1e-200, 1e100)]
)
def test_scales_near_the_ends_of_float64(form, of_x, of_y):
    X, y = problem(40, 60)
    strength = 0.1 * strength_max(X, y)
    (plain,) = fit(np.asfortranarray(X), y, [ElasticNet(strength)], tol=1e-10)
    (scaled,) = fit(form(X * of_x), y * of_y, [ElasticNet(strength * of_x * of_y)], tol=1e-10)
    assert scaled.reason == "gap"
    np.testing.assert_allclose(
        dense(scaled, 60) * (of_x / of_y), dense(plain, 60), atol=1e-6 * abs(plain.coef).max()
    )


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_indices_of_either_width(index):
    X, y = problem(40, 60, density=0.3)
    expected = fit(X, y, [ElasticNet(5.0)])[0]
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    np.testing.assert_array_equal(fit(X, y, [ElasticNet(5.0)])[0].coef, expected.coef)


def test_targets_without_variance_give_the_zero_model():
    X, _ = problem(40, 60)
    (solution,) = fit(X, np.full(40, 3.0), [ElasticNet(0.1)], intercept=True)
    assert (solution.reason, len(solution.features), solution.intercept) == ("gap", 0, 3.0)
    assert fit(X, np.zeros(40), [ElasticNet(0.1)])[0].gap == 0


def test_an_unreachable_tolerance_ends():
    X, y = problem(40, 60)
    (solution,) = fit(X, y, [ElasticNet(0.01 * strength_max(X, y))], tol=0.0)
    assert solution.reason in ("gap", "stalled")
    assert solution.gap < 1e-13
    (cut_short,) = fit(X, y, [ElasticNet(0.01 * strength_max(X, y))], tol=1e-12, rounds=2)
    assert (cut_short.reason, cut_short.rounds) == ("max_rounds", 3)


# --- each way to the solution of a subproblem -------------------------------------------------------------


@pytest.mark.parametrize("density", [None, 0.2])
@pytest.mark.parametrize("way", ["descent", "products", "newton", "iterated"])
@pytest.mark.parametrize("positive", [False, True])
def test_every_way_leads_there(monkeypatch, density, way, positive):
    X, y = problem(60, 150, density=density, correlation=2.0, positive=positive)
    seconds = np.inf if way == "descent" else 0.0
    monkeypatch.setattr(Squared, "_products_cost", lambda *_: seconds)
    newton = -1.0 if way in ("newton", "iterated") else np.inf
    monkeypatch.setattr(gram_module.GramProblem, "_newton_cost", lambda *_: newton)
    if way == "iterated":
        monkeypatch.setattr(gram_module, "_LEAST_ITERATED", 2)
    steps = []
    newton_method = gram_module.proximal_newton

    def watched(*args, **kwargs):
        result = newton_method(*args, **kwargs)
        steps.append(result[-1])
        return result

    monkeypatch.setattr(gram_module, "proximal_newton", watched)
    weights = np.random.default_rng(0).random(60) + 0.5
    penalty = ElasticNet(0.02 * strength_max(X, y, weights, True, positive), ridge=0.1, positive=positive)
    (solution,) = fit(X, y, [penalty], weights=weights, intercept=True, tol=1e-9)
    assert solution.reason == "gap"
    assert reference_gap(X, y, dense(solution, 150), penalty, weights, True) < 2e-9
    assert (sum(steps) > 0) == (way in ("newton", "iterated"))


def test_too_many_columns_for_products(monkeypatch):
    monkeypatch.setattr(squared_module, "MOST_COLUMNS", 10)
    X, y = problem(60, 150)
    penalty = ElasticNet(0.02 * strength_max(X, y))
    (solution,) = fit(X, y, [penalty], tol=1e-9)
    assert solution.reason == "gap"
    assert reference_gap(X, y, dense(solution, 150), penalty) < 2e-9


def test_weights_of_zero_leave_rows_out():
    X, y = problem(60, 40)
    weights = np.ones(60)
    weights[20:] = 0
    penalty = ElasticNet(3.0)
    (weighted,) = fit(X, y, [penalty], weights=weights, intercept=True)
    (fewer,) = fit(np.asfortranarray(X[:20]), y[:20], [penalty], intercept=True)
    np.testing.assert_allclose(dense(weighted, 40), dense(fewer, 40), atol=1e-5)
    assert weighted.intercept == pytest.approx(fewer.intercept, abs=1e-5)


# --- penalties from outside -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page():
    code = "\n".join(re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL))
    names: dict = {}
    exec(compile(code.replace("cache=True", "cache=False"), DOCS.name, "exec"), names)  # a page has no file
    return names


def mcp_slope(b, strength, gamma):
    return np.sign(b) * np.maximum(strength - abs(b) / gamma, 0)


def test_the_page_finds_the_five_features(page):
    solution = page["solution"]
    np.testing.assert_array_equal(solution.features, np.arange(5))
    np.testing.assert_allclose(solution.coef, page["truth"][:5], atol=0.05)
    assert solution.reason == "gap"


@pytest.mark.parametrize("density", [None, 0.3])
def test_mcp_of_the_page_meets_its_optimality_conditions(page, density):
    X, y = problem(80, 120, density=density, shift=1.0)
    weights = np.random.default_rng(0).random(80) + 0.5
    f = np.random.default_rng(1).random(120) + 0.5
    f[7] = 0
    penalties = [page["MCP"](strength, 0.2, l1_factors=f) for strength in (60.0, 30.0, 15.0)]
    solutions = fit(X, y, penalties, weights=weights, intercept=True, tol=1e-8)
    A = X.toarray() if density else X
    for penalty, solution in zip(penalties, solutions, strict=True):
        coef = dense(solution, 120)
        residual = y - A @ coef - solution.intercept
        slopes = A.T @ (weights * residual)
        thresholds = penalty.strength * f
        violation = np.where(
            coef != 0, abs(slopes - mcp_slope(coef, thresholds, 0.2)), np.maximum(abs(slopes) - thresholds, 0)
        )
        assert violation.max() <= 2e-8 * penalty.strength
        assert abs(weights @ residual) < 1e-8
        assert 7 in solution.features
        objective = weights @ residual**2 / 2 + penalty.value(solution.coef, solution.features)
        assert solution.objective == pytest.approx(objective, rel=1e-10)


def test_mcp_in_one_dimension_is_the_minimum_of_a_grid(page):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((30, 1))
    for size in (0.1, 0.6, 2.0):
        y = size * x[:, 0] + 0.1 * rng.standard_normal(30)
        penalty = page["MCP"](10.0, 0.1)
        (solution,) = fit(np.asfortranarray(x), y, [penalty], tol=1e-10)
        grid = np.linspace(-3, 3, 6001)
        values = ((y[:, None] - x * grid) ** 2).sum(axis=0) / 2
        values += [penalty.value(np.array([b]), np.array([0])) for b in grid]
        assert dense(solution, 1)[0] == pytest.approx(grid[np.argmin(values)], abs=1e-3)


@numba.njit("float64(float64, float64, float64, float64)")
def _soft(z, step, strength, shape):
    return np.sign(z) * max(abs(z) - step * strength, 0.0)


class Absolute(Separable):
    prox = staticmethod(_soft)

    def value(self, coef, features):
        return self.thresholds(features) @ abs(coef)


@pytest.mark.parametrize("density", [None, 0.3])
def test_the_absolute_value_from_outside_is_the_lasso(density):
    X, y = problem(60, 100, density=density, shift=1.0)
    strength = 0.1 * strength_max(X, y, intercept=True)
    (lasso,) = fit(X, y * 1e5, [ElasticNet(strength * 1e5)], intercept=True, tol=1e-13)
    (mine,) = fit(X, y * 1e5, [Absolute(strength * 1e5, 0.0)], intercept=True, tol=1e-9)
    np.testing.assert_allclose(dense(mine, 100), dense(lasso, 100), atol=1e-3)
    assert mine.objective == pytest.approx(lasso.objective, rel=1e-9)


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ElasticNet(-1.0), "strength must be finite and not negative, got -1.0"),
        (lambda: ElasticNet(1.0, np.inf), "ridge must be finite"),
        (lambda: ElasticNet(1.0, l1_factors=[1, -2]), "l1_factors.*got -2.0 for feature 1"),
        (
            lambda: ElasticNet(1.0, l2_factors=[[1]]),
            "l2_factors must hold one finite number for each feature",
        ),
        (lambda: Absolute(np.nan, 0.0), "strength must be finite"),
        (lambda: columns_of(np.ones((3, 2))), "not in Fortran order.*asfortranarray"),
        (
            lambda: columns_of(np.ones((3, 2), int, order="F")),
            "X has type int64; convert it to float32 or float64",
        ),
        (lambda: columns_of(sparse.csr_array(np.eye(3))), "csr format; convert it with X.tocsc"),
    ],
)
def test_what_is_refused(make, words):
    with pytest.raises(DataError, match=words):
        make()


def test_no_penalties_are_refused():
    with pytest.raises(DataError, match="penalties is empty"):
        WorkingSet(Squared(np.ones(3)), [], n_features=2, is_sparse=False)


# --- parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [None, 0.3])
def test_a_strength_lost_in_rounding_is_least_squares(density):
    X, y = problem(60, 20, density=density, shift=1.0)
    (solution,) = fit(X, y, [ElasticNet(1e-20)], intercept=True, tol=1e-8)
    theirs = LinearRegression().fit(X.toarray() if density else X, y)
    assert solution.reason == "gap"
    np.testing.assert_allclose(dense(solution, 20), theirs.coef_, atol=1e-6)


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_with_copies_are_those_of_the_centred_columns(form, weighted):
    X, _ = problem(30, 8, shift=2.0)
    X[[3, 20], 1], X[::2, 6] = 0.0, 0.0  # columns complete, nearly so, and half empty
    w = np.random.default_rng(0).random(30) + 0.1 if weighted else np.ones(30)
    copies = copies_of(form is sparse.csc_array, 30, np.sqrt(w) if weighted else np.empty(0), centre=True)
    columns, chosen = columns_of(form(X)), np.array([4, 1, 6])
    copies.admit(columns, chosen[:2])
    copies.admit(columns, chosen[2:])
    A = X[:, chosen] - np.average(X[:, chosen], axis=0, weights=w)
    A = A * np.sqrt(w)[:, None] * copies.scales
    v, at = np.random.default_rng(1).standard_normal(30), np.array([2, 0])
    np.testing.assert_allclose(copies.dot(v), A.T @ v, atol=1e-12)
    np.testing.assert_allclose(copies.dot(v, at), A[:, at].T @ v, atol=1e-12)
    np.testing.assert_allclose(copies.gram(at), A[:, at].T @ A[:, at], atol=1e-12)
    np.testing.assert_allclose(copies.products(at[:1], at[:1]), A[:, at[:1]].T @ A[:, at[:1]], atol=1e-12)
    np.testing.assert_allclose(copies.products(at[1:], at), A[:, at[1:]].T @ A[:, at], atol=1e-12)
    np.testing.assert_allclose(copies.norms, (A**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(copies.means, np.average(X[:, chosen] * copies.scales, axis=0, weights=w))
    if copies.is_sparse:
        assert np.diff(copies.indptr).tolist() == [30, 30, 15]
        assert copies.shifts[:2].tolist() == [0, 0]
        assert copies.shifts[2] == copies.means[2]
    out = v.copy()
    copies.add(at, np.array([2.0, -1.0]), out)
    np.testing.assert_allclose(out, v + A[:, at] @ [2.0, -1.0], atol=1e-12)


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_copy_of_a_constant_column_is_zero(form, weighted):
    roots = np.sqrt(np.random.default_rng(0).random(30)) if weighted else np.empty(0)
    copies = copies_of(form is sparse.csc_array, 30, roots, centre=True)
    copies.admit(columns_of(form(np.full((30, 2), [0.1, 1e6 / 3]))), np.arange(2))
    assert copies.norms.tolist() == [0, 0]


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
def test_a_column_that_is_constant_where_it_counts_is_zero(form):
    """A row of weight 0 holds something else."""
    X = np.full((30, 1), 0.3)
    X[0] = 1e6
    copies = copies_of(form is sparse.csc_array, 30, np.append(0.0, np.ones(29)), centre=True)
    copies.admit(columns_of(form(X)), np.arange(1))
    assert copies.norms.tolist() == [0]


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("least", [2, 1000])
def test_newton_alone_reaches_the_solution(monkeypatch, positive, least):
    monkeypatch.setattr(gram_module, "_LEAST_ITERATED", least)
    A, y = problem(60, 150, correlation=2.0, positive=positive)
    c, y_y = A.T @ y, y @ y
    penalty = (np.full(150, 0.02 * abs(c).max()), np.full(150, 0.1), positive)
    gram = gram_module.GramProblem(A.T @ A)

    def gap_at(b, slopes):
        return gram_module.gram_gap(b, slopes, c, y_y, penalty)

    b, slopes, gap, _, steps = gram_module.proximal_newton(
        gram, np.zeros(150), c, y_y, penalty, gap_at, 1e-9 * y_y
    )
    assert gap <= 1e-9 * y_y
    assert 0 < steps < 80
    np.testing.assert_allclose(slopes, c - A.T @ (A @ b), atol=1e-8)
    mine = ElasticNet(0.02 * abs(c).max(), 0.1, positive=positive)
    assert reference_gap(A, y, b, mine) < 3e-9


def test_polishing_solves_for_the_signs_and_drops_what_would_change_its_own():
    A, y = problem(60, 30)
    c, y_y, l1 = A.T @ y, y @ y, np.full(30, 8.0)
    penalty = (l1, np.zeros(30), False)
    (solution,) = fit(A, y, [ElasticNet(8.0)], tol=1e-13)
    exact = dense(solution, 30)
    idle = np.flatnonzero(exact == 0)[0]
    start = exact * 1.01
    start[idle] = 1e-6
    gram = gram_module.GramProblem(A.T @ A)

    def gap_at(b, slopes):
        return gram_module.gram_gap(b, slopes, c, y_y, penalty)

    slopes = c - A.T @ (A @ start)
    b, rest, gap = gram._polish(start, slopes, c, gap_at(start, slopes), penalty, gap_at)
    assert gap <= 1e-11 * y_y < gap_at(start, slopes)
    assert b[idle] == 0
    np.testing.assert_allclose(b, exact, atol=1e-6)
    np.testing.assert_allclose(rest, c - A.T @ (A @ b), atol=1e-9)


def test_systems_near_the_last_one_use_its_factor():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((200, 120))
    G, kept = A.T @ A, KeptFactor()
    first = np.arange(100)
    for S, scale in ((first, 1.0), (np.setdiff1d(np.arange(102), [5]), 5.0), (np.arange(60, 120), 1.0)):
        right, diagonal = rng.standard_normal(len(S)), scale * (1 + rng.random(len(S)))
        z = kept.solve(G, S, right, diagonal)
        expected = np.linalg.solve(G[np.ix_(S, S)] + np.diag(diagonal), right)
        np.testing.assert_allclose(z, expected, rtol=1e-6, atol=1e-9)
        assert len(kept._columns) == (60 if len(S) == 60 else 100)
    assert kept.solve(np.zeros((120, 120)), first, np.ones(100), np.zeros(100)) is None
