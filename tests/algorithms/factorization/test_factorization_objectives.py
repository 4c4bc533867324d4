"""Matrix factorization: objectives of all solvers against dense ones, fixed points, and exact answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rating_problems import pairs_of
from scipy import sparse, stats

from stradask.algorithms.factorization.choose import settings_of
from stradask.algorithms.factorization.matrix_factorization import MatrixFactorization, program_of
from stradask.algorithms.factorization.reading import read_ratings
from stradask.datasets import make_ratings
from stradask.datasets.split import rating_split
from stradask.scheduler import run

SOLVERS = ("als", "ccd", "sgd")

# Fits of a few iterations, or without biases, are worse than biases.
pytestmark = pytest.mark.filterwarnings("ignore:MatrixFactorization with solver")


@pytest.fixture(scope="module")
def ratings():
    return make_ratings(60, 40, 3, density=0.3, noise=0.3, random_state=0)[0]


@pytest.fixture(scope="module")
def counts():
    return make_ratings(30, 20, 3, density=0.3, implicit=True, random_state=1)[0]


def objective(model, R, weights=None, exponent=1.0):
    """The objective and its gradients with respect to factors and biases, over a dense table."""
    given = sparse.csr_array((np.ones(R.nnz), R.indices, R.indptr), shape=R.shape).toarray()
    W = given if weights is None else weights
    given = W > 0
    n, m = (
        (given.sum(axis=axis) + offset) ** exponent * model.reg_
        for axis, offset in zip((1, 0), model.reg_offset_, strict=True)
    )
    of_b, of_c = model.bias_reg_
    P, Q, b, c = model.user_factors_, model.item_factors_, model.user_bias_, model.item_bias_
    miss = R.toarray() - model.mean_ - b[:, None] - c - P @ Q.T
    value = (W * miss**2).sum() + n @ (P**2).sum(1) + m @ (Q**2).sum(1) + of_b * b @ b + of_c * c @ c
    slopes = {
        "P": n[:, None] * P - (W * miss) @ Q,
        "Q": m[:, None] * Q - (W * miss).T @ P,
        "b": of_b * b - (W * miss).sum(1),
        "c": of_c * c - (W * miss).sum(0),
    }
    return value, slopes


def implicit_objective(model, R, alpha, exponent):
    """The same over all cells for implicit feedback."""
    dense = R.toarray()
    stored = sparse.csr_array((np.ones(R.nnz), R.indices, R.indptr), shape=R.shape).toarray() > 0
    C, T = np.where(stored, alpha * np.abs(dense), 1.0), (dense > 0).astype(float)
    n, m = (
        (stored.sum(axis=axis) + offset) ** exponent * model.reg_
        for axis, offset in zip((1, 0), model.reg_offset_, strict=True)
    )
    P, Q = model.user_factors_, model.item_factors_
    miss = C * (T - P @ Q.T)
    value = (C * (T - P @ Q.T) ** 2).sum() + n @ (P**2).sum(1) + m @ (Q**2).sum(1)
    return value, {"P": n[:, None] * P - miss @ Q, "Q": m[:, None] * Q - miss.T @ P}


# Objectives and fixed points ------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["als", "ccd"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("non_negative", [True, False])
@pytest.mark.parametrize("exponent", [1, 0.6, 0])
def test_the_objective_is_the_one_stated_and_never_rises(ratings, solver, bias, non_negative, exponent):
    R = abs(ratings)
    model = MatrixFactorization(
        3, solver=solver, bias=bias, non_negative=non_negative, reg_exponent=exponent, dtype="float64",
        tol=0, random_state=0, max_iter=12,
    ).fit(R)  # fmt: skip
    values = model.history_["objective"]
    assert values[-1] == pytest.approx(objective(model, R, exponent=exponent)[0])
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert values[-1] < 0.9 * values[0]
    if non_negative:
        assert min(model.user_factors_.min(), model.item_factors_.min()) == 0
    if not bias:
        assert model.mean_ == 0
        assert not model.user_bias_.any()
        assert not model.item_bias_.any()


@pytest.mark.parametrize("solver", ["als", "ccd"])
def test_in_the_end_the_gradient_is_zero(ratings, solver):
    """With weights, of which some are zero: the objective is that of the others, with mean 1."""
    weights = 37 * np.random.default_rng(2).random(ratings.nnz)
    weights[ratings.indptr[3:9]] = 0
    table = sparse.csr_array((weights, ratings.indices, ratings.indptr), shape=ratings.shape).toarray()
    table /= weights[weights > 0].mean()
    options = {
        "solver": solver,
        "dtype": "float64",
        "tol": 0,
        "reg": 0.1,
        "reg_offset": 1.0,
        "random_state": 0,
    }
    short = MatrixFactorization(2, max_iter=3, **options).fit(*pairs_of(ratings), weights)
    long = MatrixFactorization(2, max_iter=1500, **options).fit(*pairs_of(ratings), weights)
    sizes = [
        max(abs(slope).max() for slope in objective(model, ratings, table)[1].values())
        for model in (short, long)
    ]
    assert sizes[0] > 1e-2
    assert sizes[1] < 1e-6


def test_als_and_ccd_find_the_same_minimum_of_one_factor(ratings):
    options = {"dtype": "float64", "tol": 0, "reg": 0.2, "random_state": 0, "max_iter": 400}
    found = [MatrixFactorization(1, solver=solver, **options).fit(ratings) for solver in ("als", "ccd")]
    cells = pairs_of(ratings)[0]
    np.testing.assert_allclose(found[0].predict(cells), found[1].predict(cells), atol=1e-6)


def test_gradient_descent_comes_near_the_minimum(ratings):
    """Over many epochs at a falling rate it reaches the objective of least squares, from above."""
    options = {"dtype": "float64", "reg": 0.1, "random_state": 0}
    best = MatrixFactorization(3, solver="als", tol=0, max_iter=500, **options).fit(ratings)
    found = MatrixFactorization(3, solver="sgd", max_iter=600, learning_rate=0.3, **options).fit(ratings)
    least, reached = objective(best, ratings)[0], objective(found, ratings)[0]
    assert 0.999 * least < reached < 1.02 * least


@pytest.mark.parametrize("exponent", [1, 0.5, 0])
def test_gradient_descent_has_the_same_objective_at_any_scale_of_the_ratings(ratings, exponent):
    """Ratings times s^2 and factors times s: the same fit where the penalty of the factors grows with s^2."""
    options = {
        "solver": "sgd",
        "dtype": "float64",
        "max_iter": 400,
        "reg_exponent": exponent,
        "random_state": 0,
    }
    model = MatrixFactorization(2, reg=0.3, learning_rate=0.3, **options).fit(100 * ratings)
    value, slopes = objective(model, 100 * ratings, exponent=exponent)
    assert max(abs(slopes["P"]).max(), abs(slopes["b"]).max()) < 1e-3 * value
    assert model.history_["objective"][-1] == pytest.approx(value, rel=1e-2)


@pytest.mark.parametrize(("exponent", "offset"), [(0, "auto"), (0.5, "auto"), (1, "auto"), (1, 0)])
@pytest.mark.parametrize("non_negative", [True, False])
def test_the_implicit_objective_is_over_all_cells_and_never_rises(counts, non_negative, exponent, offset):
    R = counts.copy()
    R.data[::7] *= -1  # dislikes
    R.data[3] = 0  # a cell left out
    model = MatrixFactorization(
        3, implicit=True, alpha=4, reg=0.1, reg_exponent=exponent, reg_offset=offset,
        non_negative=non_negative, dtype="float64", tol=0, random_state=0, max_iter=10,
    ).fit(R)  # fmt: skip
    values = model.history_["objective"]
    constant = 4 * R.data[R.data > 0].sum()
    expected = implicit_objective(model, R, 4, exponent)[0]
    assert model.reg_offset_.tolist() == ([20 / 4, 30 / 4] if offset == "auto" else [0, 0])
    assert values[-1] == pytest.approx(expected)
    assert expected < constant  # which is the objective of factors of 0
    assert (np.diff(values) <= 1e-12 * values[0]).all()


def test_the_implicit_gradient_ends_at_zero(counts):
    model = MatrixFactorization(
        2, implicit=True, alpha=3, reg=0.3, dtype="float64", tol=0, random_state=0, max_iter=800
    ).fit(counts)
    slopes = implicit_objective(model, counts, 3, 0.5)[1]
    assert abs(model.user_factors_).max() > 0.1
    # The fit ends when the objective no longer falls: to about the root of its rounding, on any machine.
    rounding = np.finfo(float).eps * model.history_["objective"][-1]
    assert max(abs(slope).max() for slope in slopes.values()) < 20 * np.sqrt(rounding)


def test_users_of_implicit_feedback_solve_their_normal_equations_after_many_turns(counts):
    """Users and items are each in turned coordinates: a model of single precision has them in one."""
    model = MatrixFactorization(
        5, implicit=True, alpha=3, reg=2.0, reg_exponent=0, tol=0, random_state=0, max_iter=400
    ).fit(counts)
    Q, cells = model.item_factors_.astype(float), counts.toarray()
    assert abs(Q).max() > 0.1
    for u, row in enumerate(cells):
        confidence = np.where(row != 0, 3 * abs(row), 1)
        exact = np.linalg.solve(
            Q.T @ (confidence[:, None] * Q) + 2 * np.eye(5), Q.T @ (confidence * (row > 0))
        )
        np.testing.assert_allclose(model.user_factors_[u], exact, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_held_out_ratings_are_predicted_to_the_noise(solver):
    """A table of rank 3, of which a fifth is held out: the error is that of the noise, and little more."""
    rng = np.random.default_rng(0)
    P, Q = rng.standard_normal((300, 3)), rng.standard_normal((200, 3))
    R = sparse.random_array((300, 200), density=0.4, rng=rng, format="csr")
    rows = np.repeat(np.arange(300), np.diff(R.indptr))
    R.data = 3 + (P[rows] * Q[R.indices]).sum(1) + 0.2 * rng.standard_normal(R.nnz)
    observed, held_out = rating_split(R)
    model = MatrixFactorization(3, solver=solver, reg=0.005, reg_offset=0, max_iter=40, random_state=0).fit(
        observed
    )
    assert 0.19 < -model.score(held_out) < 0.22


# Exact answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("solver", "options"),
    [
        ("als", {"max_iter": 100}),
        ("ccd", {"max_iter": 300}),
        ("sgd", {"max_iter": 400, "learning_rate": 0.3}),
    ],
)
def test_a_full_table_of_low_rank_is_found_exactly(solver, options, bias):
    rng = np.random.default_rng(0)
    table = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 20))
    model = MatrixFactorization(
        2,
        solver=solver,
        bias=bias,
        reg=1e-9,
        bias_reg=1e-9,
        tol=0,
        dtype="float64",
        random_state=0,
        **options,
    ).fit(sparse.csr_array(table))
    cells = np.argwhere(np.ones(table.shape))
    np.testing.assert_allclose(model.predict(cells), table.ravel(), atol=1e-7)


def test_a_full_table_is_approximated_as_by_the_singular_values():
    """With penalties so small the minimum is that of Eckart and Young."""
    rng = np.random.default_rng(1)
    table = rng.standard_normal((12, 9))
    model = MatrixFactorization(
        3, solver="als", bias=False, reg=1e-10, max_iter=400, tol=0, dtype="float64", random_state=0
    ).fit(sparse.csr_array(table))
    U, s, V = np.linalg.svd(table)
    best = (U[:, :3] * s[:3]) @ V[:3]
    np.testing.assert_allclose(model.user_factors_ @ model.item_factors_.T, best, atol=1e-3)
    assert model.history_["objective"][-1] == pytest.approx((s[3:] ** 2).sum(), rel=1e-6)


@settings(max_examples=12, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    K=st.integers(1, 4),
    solver=st.sampled_from(["als", "ccd", "sgd"]),
    seed=st.integers(0, 2**31 - 1),
    exponent=st.sampled_from([0, 0.5, 1, 2]),
    bias=st.booleans(),
)
def test_objectives_are_those_of_dense_tables_of_any_shape(shape, K, solver, seed, exponent, bias):
    rng = np.random.default_rng(seed)
    given_cells = rng.random(shape) < 0.6
    given_cells[0, 0] = True
    table = np.where(given_cells, rng.standard_normal(shape), 0)
    R = sparse.csr_array((table[given_cells], np.nonzero(given_cells)), shape=shape)
    model = MatrixFactorization(
        K, solver=solver, reg=0.3, bias_reg=0.7, reg_offset=1.5, reg_exponent=exponent, bias=bias,
        dtype="float64", max_iter=3, tol=0, random_state=seed % 1000,
        learning_rate=1e-12 if solver == "sgd" else 0.1,
    ).fit(R)  # fmt: skip
    n, m = ((given_cells.sum(axis=a) + 1.5) ** exponent for a in (1, 0))
    P, Q, b, c = model.user_factors_, model.item_factors_, model.user_bias_, model.item_bias_
    miss = table - model.mean_ - b[:, None] - c - P @ Q.T
    value = (given_cells * miss**2).sum()
    value += 0.3 * (n @ (P**2).sum(1) + m @ (Q**2).sum(1)) + 0.7 * (b @ b + c @ c)
    # Gradient descent at next to no rate: what is met on the way is the objective in the end.
    assert model.history_["objective"][-1] == pytest.approx(value, rel=1e-8)


def test_non_negative_tables_of_low_rank_are_found_exactly():
    """A block matrix, whose non-negative factors are unique."""
    rng = np.random.default_rng(0)
    table = np.kron(np.eye(2), np.ones((15, 10))) * np.outer(rng.random(30) + 1, rng.random(20) + 1)
    indptr, indices = np.arange(0, 601, 20), np.tile(np.arange(20), 30)
    R = sparse.csr_array((table.ravel(), indices, indptr), shape=table.shape)  # zeros are ratings
    for solver in ("als", "ccd"):
        model = MatrixFactorization(
            2, solver=solver, non_negative=True, bias=False, reg=1e-9, tol=0, max_iter=500,
            dtype="float64", random_state=0,
        ).fit(R)  # fmt: skip
        np.testing.assert_allclose(model.user_factors_ @ model.item_factors_.T, table, atol=1e-6)


def test_preferences_of_low_rank_are_found_exactly():
    """Two kinds of users, each of which has all of its items and none of the others."""
    table = np.kron(np.eye(2), np.ones((6, 5)))
    model = MatrixFactorization(
        2, implicit=True, alpha=5, reg=1e-8, max_iter=300, tol=0, dtype="float64", random_state=0
    ).fit(sparse.csr_array(table))
    np.testing.assert_allclose(model.user_factors_ @ model.item_factors_.T, table, atol=1e-7)


def test_gibbs_sampling_comes_near_a_full_table_of_low_rank():
    """Without biases: the mean rating is one more direction."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 20))
    model = MatrixFactorization(3, solver="gibbs", max_iter=100, dtype="float64", random_state=0)
    model.fit(sparse.csr_array(table))
    np.testing.assert_allclose(model.predict(np.argwhere(table)), table.ravel(), atol=0.05)


# Where gradients that are drawn must vanish -----------------------------------------------------------


def ranking_slopes(model, chosen):
    """Expected step of every row, over all pairs that may be drawn, and the sum of its parts' sizes."""
    P, Q, c = model.user_factors_, model.item_factors_, model.item_bias_
    n, reg, known = chosen.shape[1], model.reg, chosen.any(axis=0)
    slopes = [np.zeros_like(P), np.zeros_like(Q), np.zeros_like(c)]
    sizes = [np.zeros_like(P), np.zeros_like(Q), np.zeros_like(c)]

    def add(which, row, pull, penalty):
        slopes[which][row] += pull - penalty
        sizes[which][row] += abs(pull)

    for u, i in np.argwhere(chosen):
        others = np.flatnonzero(~chosen[u] & known)
        share = (1 - (1 - len(others) / n) ** 3) / len(others)  # one of three draws is another item
        for j in others:
            z = share / (1 + np.exp(c[i] - c[j] + P[u] @ (Q[i] - Q[j])))
            add(0, u, z * (Q[i] - Q[j]), share * reg * P[u])
            for item, sign in ((i, 1), (j, -1)):
                add(1, item, sign * z * P[u], share * reg / 2 * Q[item])
                add(2, item, sign * z, share * reg / 2 * c[item])
    return slopes, sizes


def test_ranking_ends_where_the_expected_gradient_is_zero():
    """All pairs of a chosen and another item, against the loss as it is stated, penalties included."""
    rng = np.random.default_rng(0)
    chosen = rng.random((12, 8)) < 0.4
    chosen[:, 7] = False  # nobody's choice: never drawn
    options = {"implicit": True, "loss": "bpr", "reg": 0.05, "n_blocks": 1, "dtype": "float64"}
    off = []
    for max_iter in (3, 12_000):
        model = MatrixFactorization(2, max_iter=max_iter, learning_rate=0.5, random_state=0, **options)
        slopes, sizes = ranking_slopes(model.fit(sparse.csr_array(chosen * 1.0)), chosen)
        off.append([abs(slope).max() / size.max() for slope, size in zip(slopes, sizes, strict=True)])
    assert max(off[0]) > 0.2
    assert max(off[1]) < 0.07
    assert max(off[1][1:]) < 0.03  # items


# The posterior ------------------------------------------------------------------------------------------


def slow_gibbs(cells, values, shape, n_sweeps, rng):
    """Bayesian factorization with one factor and biases, one number at a time: all cells, and precisions."""
    X, biases, tau = [0.1 * rng.standard_normal(n) for n in shape], [np.zeros(n) for n in shape], [1.0, 1.0]
    target, precision, found = (values - values.mean()) / values.std(), 1.5, []
    for _ in range(n_sweeps):
        for side in (0, 1):
            x, other = X[side], X[1 - side]
            n, mean = len(x), x.mean()
            scale = 1 / (1 + ((x - mean) ** 2).sum() + n * 2 / (n + 2) * mean**2)
            prior = stats.wishart.rvs(df=1 + n, scale=scale, random_state=rng)
            centre = n * mean / (n + 2) + rng.standard_normal() / np.sqrt((n + 2) * prior)
            for row in range(n):
                at = cells[:, side] == row
                q, of_others = other[cells[at, 1 - side]], biases[1 - side][cells[at, 1 - side]]
                a = prior + precision * q @ q
                b = prior * centre + precision * q @ (target[at] - of_others - biases[side][row])
                x[row] = b / a + rng.standard_normal() / np.sqrt(a)
                a = tau[side] + precision * at.sum()
                b = precision * (target[at] - of_others - x[row] * q).sum()
                biases[side][row] = b / a + rng.standard_normal() / np.sqrt(a)
            scale = 1 / (1 + biases[side] @ biases[side])
            tau[side] = stats.wishart.rvs(df=1 + n, scale=scale, random_state=rng)
        table = np.outer(*X) + np.add.outer(*biases)
        miss = target - table[tuple(cells.T)]
        precision = rng.gamma(len(values) / 2) / (0.5 * miss @ miss)
        found.append([*table.ravel(), *np.log([precision, *tau])])
    return np.array(found)


def test_draws_are_those_of_another_sampler_of_the_same_posterior():
    """Means and deviations of predictions and of the noise over a long chain, within errors by batches."""
    rng = np.random.default_rng(1)
    table = np.outer(rng.standard_normal(5) + 1, rng.standard_normal(4)) + 0.5 * rng.standard_normal((5, 4))
    cells = np.argwhere(rng.random((5, 4)) < 0.8)
    values = table[tuple(cells.T)]
    model = MatrixFactorization(1, solver="gibbs", dtype="float64", max_iter=1000)
    entries, ids, features = read_ratings(model, cells, values, None)
    model.solver_, model.bias_reg_, model.reg_offset_ = "gibbs", None, (0.0, 0.0)
    program, draws = program_of(model, entries, settings_of(model), features, 3), []

    draw_priors = program._draw_priors

    def keep(rows, round_):
        users, items = (factors[:, 0] for factors, _ in rows)
        table = np.outer(users, items) + np.add.outer(*(biases for _, biases in rows))
        # The priors are those drawn for the next sweep, of which the distribution is the same.
        priors = draw_priors(rows, round_)
        draws.append([*table.ravel(), *np.log([program.precision, *(prior["bias"] for prior in priors)])])
        return priors

    program._draw_priors = keep
    run(program, program.schedule, max_rounds=1000)
    ours, theirs = np.array(draws)[100:], slow_gibbs(cells, values, table.shape, 1000, rng)[100:]
    assert [len(part) for part in ids] == [5, 4]
    for moment in (lambda x: x, lambda x: (x - theirs.mean(0)) ** 2):
        batches = [moment(chain).reshape(30, -1, chain.shape[1]).mean(1) for chain in (ours, theirs)]
        errors = np.sqrt(sum(batch.var(0, ddof=1) / 30 for batch in batches))
        gaps = abs(batches[0].mean(0) - batches[1].mean(0)) / errors
        assert gaps.max() < 4.5


def test_draws_go_on_where_ratings_have_no_noise():
    users, items = np.nonzero(np.random.default_rng(1).random((120, 40)) < 0.25)
    R = sparse.csr_array((1.0 + (3 * users) % 5, (users, items)), shape=(120, 40))  # by the user alone
    model = MatrixFactorization(8, solver="gibbs", random_state=0).fit(R)
    assert -0.2 < model.score(R) < 0
