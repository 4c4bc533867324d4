"""Matrix factorization: the same on any number of threads, recommendations, and stopping."""

import numpy as np
import pytest
from rating_problems import pairs_of
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import stradask as sd
from stradask.algorithms.factorization.matrix_factorization import MatrixFactorization
from stradask.datasets import make_ratings
from stradask.errors import DataError

SOLVERS = ("als", "ccd", "sgd")
ALL = (*SOLVERS, "gibbs")
# Fits of a few iterations, or without biases, are worse than biases.
pytestmark = pytest.mark.filterwarnings("ignore:MatrixFactorization with solver")


@pytest.fixture(scope="module")
def ratings():
    return make_ratings(60, 40, 3, density=0.3, noise=0.3, random_state=0)[0]


@pytest.fixture(scope="module")
def counts():
    return make_ratings(30, 20, 3, density=0.3, implicit=True, random_state=1)[0]


# The same for any order, form and number of threads --------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"solver": solver} for solver in ALL]
    + [
        {"implicit": True},
        {"non_negative": True, "solver": "als"},
        {"solver": "sgd", "early_stopping": True},
    ],
)
def test_threads_and_forms_change_no_bit(ratings, options):
    def fitted(n_jobs, X, y=None):
        return MatrixFactorization(5, max_iter=4, n_jobs=n_jobs, random_state=3, **options).fit(X, y)

    R = abs(ratings)
    one = fitted(1, R)
    pairs, y = pairs_of(R)
    mixed = np.random.default_rng(0).permutation(len(y))
    for other in (fitted(2, R), fitted(5, R.tocsc()), fitted(2, pairs[mixed], y[mixed])):
        for name in ("user_factors_", "item_factors_", "user_bias_", "item_bias_"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        np.testing.assert_array_equal(one.history_["objective"], other.history_["objective"])
    three = MatrixFactorization(5, max_iter=4, random_state=4, **options).fit(R)
    assert not np.array_equal(one.user_factors_, three.user_factors_)


@pytest.mark.parametrize(
    "options",
    [*({"solver": solver} for solver in ALL), {"implicit": True}, {"implicit": True, "loss": "bpr"}],
)
def test_weights_are_relative_and_one_of_zero_leaves_a_rating_out(ratings, options):
    """The first user has weights of zero alone, and is not in the model. Drawn choices have no other ones."""
    pairs, y = pairs_of(abs(ratings))
    weights = np.random.default_rng(0).random(len(y)) if "loss" not in options else np.ones(len(y))
    weights *= (np.arange(len(y)) % 3 > 0) * (pairs[:, 0] > 0)

    def fitted(*data):
        return MatrixFactorization(3, dtype="float64", random_state=0, max_iter=3, **options).fit(*data)

    counted = weights > 0
    expected = fitted(pairs[counted], y[counted], weights[counted])
    for factor in (1e-6, 20, 1e6):
        found = fitted(pairs, np.where(counted, y, 9), factor * weights)
        assert found.user_ids_.tolist() == expected.user_ids_.tolist()
        assert 0 not in found.user_ids_
        for name in ("predict", "transform"):
            X = pairs[counted] if name == "predict" else ratings
            if name == "predict" or "loss" not in options:
                np.testing.assert_allclose(getattr(found, name)(X), getattr(expected, name)(X), rtol=1e-7)
        assert found.seen_.nnz == counted.sum()
    alike = fitted(pairs, y, np.full(len(y), 0.1))
    np.testing.assert_array_equal(alike.user_factors_, fitted(pairs, y).user_factors_)


def test_descent_bears_weights_of_a_thousand_times_the_others(ratings):
    pairs, y = pairs_of(ratings)
    weights = np.where(np.arange(len(y)) % 50 == 0, 1e3, 1)
    model = MatrixFactorization(3, solver="sgd", random_state=0, max_iter=60).fit(pairs, y, weights)
    misses = model.predict(pairs) - y
    assert np.sqrt(np.average(misses**2, weights=weights)) < 0.2 * y.std()


@pytest.mark.parametrize("text", [False, True])
def test_tables_of_arrow_are_those_of_pandas(ratings, text):
    arrow = pytest.importorskip("pyarrow")
    (users, items), y = pairs_of(ratings)[0].T, pairs_of(ratings)[1]
    columns = {"user": users.astype(str) if text else users, "item": items, "rating": y}
    table, options = arrow.table(columns), {"random_state": 0, "max_iter": 3}
    model = MatrixFactorization(3, **options).fit(table)
    expected = MatrixFactorization(3, **options).fit(table.to_pandas())
    np.testing.assert_array_equal(model.user_ids_, expected.user_ids_)
    np.testing.assert_array_equal(model.user_factors_, expected.user_factors_)
    assert model.score(table) == expected.score(table.to_pandas())


def test_a_stored_zero_is_a_rating():
    R = sparse.csr_array((np.array([0.0, 4.0, 4.0, 0.0]), ([0, 0, 1, 1], [0, 1, 1, 2])), shape=(2, 3))
    model = MatrixFactorization(1, random_state=0).fit(R)
    assert model.mean_ == 2
    assert model.seen_.nnz == 4
    np.testing.assert_array_equal(model.recommend([0, 1], 2).items, [[2, -1], [0, -1]])
    np.testing.assert_array_equal(model.recommend(0, 9, filter_seen=False).items.shape, (3,))


def test_users_and_items_without_ratings_have_zeros(ratings):
    R = ratings.tolil()
    R[5], R[:, 7] = 0, 0
    for options in [{"solver": solver} for solver in SOLVERS] + [{"implicit": True}]:
        model = MatrixFactorization(3, random_state=0, max_iter=2, **options).fit(R)
        assert not model.user_factors_[5].any()
        assert not model.item_factors_[7].any()
        assert model.predict([[5, 7]]) == pytest.approx(model.mean_)
        assert np.isfinite(model.predict(pairs_of(ratings)[0])).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_more_factors_than_rows_and_a_single_rating(solver):
    model = MatrixFactorization(6, solver=solver, random_state=0).fit([["ann", "tea"]], [4])
    assert model.predict([["ann", "tea"], ["bob", "tea"], ["bob", "ale"]]) == pytest.approx(4, abs=1e-3)
    assert model.recommend("ann", 2).items.tolist() == [""]
    assert model.recommend("ann", 2, items=[]).items.tolist() == [""]


# Using the model ------------------------------------------------------------------------------------


def test_predictions_are_the_formula_and_unknown_ids_have_nothing(ratings):
    model = MatrixFactorization(3, random_state=0).fit(ratings)
    pairs = np.array([[3, 4], [59, 0], [60, 4], [3, 99], [-1, -1]])
    found = model.predict(pairs)
    for (u, j), value in zip(pairs[:2], found[:2], strict=True):
        expected = model.mean_ + model.user_bias_[u] + model.item_bias_[j]
        assert value == pytest.approx(expected + model.user_factors_[u] @ model.item_factors_[j])
    assert found[2] == pytest.approx(model.mean_ + model.item_bias_[4])
    assert found[3] == pytest.approx(model.mean_ + model.user_bias_[3])
    assert found[4] == pytest.approx(model.mean_)
    cells, y = pairs_of(ratings)
    assert model.score(ratings) == pytest.approx(-np.sqrt(np.mean((model.predict(cells) - y) ** 2)))
    assert model.score(cells, y) == pytest.approx(model.score(ratings))


@pytest.mark.parametrize("n", [41, 10**12])
def test_more_than_there_are_is_all_that_there_are(ratings, n):
    model = MatrixFactorization(3, random_state=0).fit(ratings)
    for found, width in (
        (model.recommend([3, 4], n), 40),
        (model.recommend([3, 4], n, items=[7, 8, 8]), 2),
        (model.recommend(ratings[:2], n), 40),
        (model.similar_items([3, 4], n), 40),
        (model.similar_users([3, 4], n + 20), 60),
        (model.explain(ratings[:2], [0, 1], n), 40),
    ):
        assert found.items.shape == found.scores.shape == (2, width)
    assert model.similar_items(3, n).items.tolist()[-1] == -1  # itself
    everything = np.setdiff1d(np.arange(40), ratings[[3]].indices)
    assert np.sort(model.recommend(3, n).items[: len(everything)]).tolist() == everything.tolist()


@pytest.mark.parametrize("filter_seen", [True, False])
@pytest.mark.parametrize("items", [None, [2, 30, 11, 5, 2]])
def test_recommendations_are_those_of_a_full_sort(ratings, filter_seen, items):
    model = MatrixFactorization(3, random_state=0, n_jobs=2).fit(ratings)
    users = np.array([8, 0, 59, 8])
    found = model.recommend(users, 12, filter_seen=filter_seen, items=items)
    seen = ratings.toarray() != 0
    for row, u in enumerate(users):
        free = [j for j in range(40) if (items is None or j in items) and not (filter_seen and seen[u, j])]
        scores = model.predict([[u, j] for j in free]) if free else np.zeros(0)
        order = np.argsort(-scores, kind="stable")[:12]
        np.testing.assert_allclose(found.scores[row, : len(order)], scores[order], rtol=1e-5)
        assert found.items[row, : len(order)].tolist() == [free[j] for j in order]
        assert (found.items[row, len(order) :] == -1).all()
        assert np.isneginf(found.scores[row, len(order) :]).all()


def test_ids_are_those_of_the_caller(ratings):
    pairs, y = pairs_of(ratings)
    plain = MatrixFactorization(3, random_state=0).fit(pairs, y)
    named = np.array([[f"user{u:03}", f"item{j:03}"] for u, j in pairs])
    text = MatrixFactorization(3, random_state=0).fit(named, y)
    np.testing.assert_array_equal(plain.predict(pairs), text.predict(named))
    found, expected = text.recommend(["user004", "user001"], 5), plain.recommend([4, 1], 5)
    assert found.items.tolist() == [[f"item{j:03}" for j in row] for row in expected.items]
    np.testing.assert_array_equal(found.scores, expected.scores)
    # Mixed kinds in one table of objects: numbers for users, text for items.
    mixed = np.empty(named.shape, object)
    mixed[:, 0], mixed[:, 1] = [10**12 + int(u) for u in pairs[:, 0]], named[:, 1]
    both = MatrixFactorization(3, random_state=0).fit(mixed, y)
    assert both.recommend(10**12 + 4, 5).items.tolist() == found.items[0].tolist()


def test_ratings_of_a_file_bring_their_ids(ratings, tmp_path):
    cells = ratings.tocoo()
    lines = [
        f"u{u:02},{9 * i + 4},{r!r}"
        for u, i, r in zip(cells.row, cells.col, cells.data.tolist(), strict=True)
    ]
    (tmp_path / "r.csv").write_text("\n".join(lines) + "\n")
    read = sd.datasets.read_ratings(tmp_path / "r.csv")
    model, plain = (MatrixFactorization(3, random_state=0).fit(R) for R in (read, ratings))
    np.testing.assert_array_equal(model.user_factors_, plain.user_factors_)
    assert model.recommend("u04", 2).items.tolist() == (9 * plain.recommend(4, 2).items + 4).tolist()
    assert model.score(read) == plain.score(ratings)
    few = read._replace(matrix=read.matrix[:2], users=read.users[:2])
    assert model.score(few) == pytest.approx(plain.score(*pairs_of(ratings[:2])))
    model.partial_fit(few._replace(users=np.array(["u03", "zoe"])))
    assert "zoe" in model.user_ids_
    for wrong in (read.users[::-1], read.users[1:], np.repeat(read.users[:1], 60)):
        with pytest.raises(DataError, match="users must be 60 ascending ids"):
            model.fit(read._replace(users=wrong))


def test_similar_items_have_the_highest_cosine(ratings):
    model = MatrixFactorization(3, random_state=0).fit(ratings)
    found = model.similar_items([4, 17], 6)
    Q = model.item_factors_ / np.linalg.norm(model.item_factors_, axis=1, keepdims=True)
    for row, j in enumerate((4, 17)):
        cosines = Q @ Q[j]
        cosines[j] = -2
        assert found.items[row].tolist() == np.argsort(-cosines)[:6].tolist()
        np.testing.assert_allclose(found.scores[row], np.sort(cosines)[::-1][:6], rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("solver", SOLVERS)
def test_new_users_are_solved_for_exactly(ratings, bias, solver):
    model = MatrixFactorization(3, solver=solver, bias=bias, dtype="float64", random_state=0).fit(
        ratings[:50]
    )
    new = ratings[50:].tolil()
    new[2] = 0
    new = sparse.csr_array(new)
    found = model.transform(new)
    Q = np.column_stack([model.item_factors_, np.ones(40)]) if bias else model.item_factors_
    assert found.shape == (10, Q.shape[1])
    for row in range(10):
        columns = new.indices[new.indptr[row] : new.indptr[row + 1]]
        target = new[[row]].toarray()[0, columns] - model.mean_ - model.item_bias_[columns]
        ridge = np.full(Q.shape[1], model.reg_ * (max(len(columns), 1) + model.reg_offset_[0]))
        if bias:
            ridge[-1] = model.bias_reg_[0]
        A = Q[columns].T @ Q[columns] + np.diag(ridge)
        np.testing.assert_allclose(found[row], np.linalg.solve(A, Q[columns].T @ target), atol=1e-10)
    with pytest.warns(
        UserWarning, match="liked best" if bias else "users without ratings, 1 of.*most ratings"
    ):
        shown = model.recommend(new, 3)
    scores = (
        found[0, :3] @ model.item_factors_.T + model.mean_ + model.item_bias_ + (found[0, 3] if bias else 0)
    )
    scores[new[[0]].toarray()[0] != 0] = -np.inf
    assert shown.items[0].tolist() == np.argsort(-scores)[:3].tolist()


@pytest.mark.parametrize("non_negative", [True, False])
def test_new_users_of_implicit_feedback_reach_their_minimum(counts, non_negative):
    model = MatrixFactorization(
        3, implicit=True, alpha=4, reg=0.5, non_negative=non_negative, dtype="float64", random_state=0
    ).fit(counts[:20])
    new = counts[20:]
    x, Q = model.transform(new), model.item_factors_
    dense = new.toarray()
    C = np.where(dense > 0, 4 * dense, 1)
    penalty = 0.5 * np.sqrt((dense > 0).sum(axis=1) + dense.shape[1] / 4)[:, None]
    slope = penalty * x - (C * ((dense > 0) - x @ Q.T)) @ Q
    if non_negative:
        assert x.min() == 0
        slope = np.where((x == 0) & (slope > 0), 0, slope)
    np.testing.assert_allclose(slope, 0, atol=1e-9)


# Stopping, watching, keeping ------------------------------------------------------------------------


def test_it_stops_when_the_objective_hardly_changes(ratings):
    model = MatrixFactorization(2, solver="als", tol=1e-3, max_iter=200, random_state=0).fit(ratings)
    values = model.history_["objective"]
    falls = -np.diff(values) / values[:-1]
    assert 2 < model.n_iter_ == len(values) < 200
    assert falls[-1] <= 1e-3 < falls[-2]


@pytest.mark.parametrize("solver", SOLVERS)
def test_early_stopping_keeps_the_best_model(solver):
    ratings = make_ratings(60, 40, 3, density=0.5, noise=0.6, random_state=0)[0]
    looked_at = []
    model = MatrixFactorization(
        5, solver=solver, reg=0.001, early_stopping=True, validation_fraction=0.2, max_iter=200, tol=0,
        learning_rate=0.3, random_state=0,
    ).fit(ratings, callback=lambda info: looked_at.append(info.snapshot()))  # fmt: skip
    errors = model.validation_errors_
    assert len(errors) == model.n_iter_ < 60
    assert 0 < errors.argmin() == len(errors) - 4
    assert model.seen_.nnz == ratings.nnz
    best = looked_at[errors.argmin()]
    np.testing.assert_array_equal(model.user_factors_, best.user_factors_)
    np.testing.assert_array_equal(model.item_bias_, best.item_bias_)
    np.testing.assert_array_equal(best.validation_errors_, errors[: len(errors) - 3])
    assert not np.array_equal(model.user_factors_, looked_at[-1].user_factors_)


def test_callbacks_see_a_model_that_predicts(ratings):
    seen = []

    def watch(info):
        seen.append((info.round, info.snapshot().score(ratings)))
        return info.round == 3

    model = MatrixFactorization(3, random_state=0).fit(ratings, callback=watch)
    assert [r for r, _ in seen] == [1, 2, 3]
    assert model.n_iter_ == 3
    assert model.score(ratings) == seen[-1][1] > seen[0][1]


@pytest.mark.parametrize("n_components", [1, 3])
@pytest.mark.parametrize("options", [{"solver": s, "bias": False} for s in SOLVERS] + [{"implicit": True}])
def test_a_model_looked_at_does_not_change_any_more(ratings, options, n_components):
    looked_at = []

    def look(info):
        model = info.snapshot()
        looked_at.append((model, model.user_factors_.copy(), model.item_factors_.copy()))

    final = MatrixFactorization(n_components, random_state=0, max_iter=3, **options).fit(
        abs(ratings), callback=look
    )
    for model, users, items in looked_at:
        np.testing.assert_array_equal(model.user_factors_, users)
        np.testing.assert_array_equal(model.item_factors_, items)
    assert not np.array_equal(final.user_factors_, looked_at[0][1])


def test_it_behaves_as_scikit_learn_expects(ratings):
    model = MatrixFactorization(2, reg=0.2, random_state=0)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        model.predict([[0, 0]])
    assert model.fit(ratings) is model
    pairs, y = pairs_of(ratings)
    search = GridSearchCV(model, {"reg": [1e-3, 0.1, 30.0]}, cv=3).fit(pairs, y)
    assert search.best_params_ == {"reg": 0.1}
    assert MatrixFactorization(n_components=3).fit(pairs, y).solver_ == "als"


def test_auto_takes_gradient_descent_where_there_are_many_ratings():
    R = make_ratings(600, 500, 2, density=0.2, random_state=0)[0]
    assert R.nnz > 50_000
    assert MatrixFactorization(2, max_iter=1).fit(R).solver_ == "sgd"
    assert MatrixFactorization(2, max_iter=1, non_negative=True).fit(R).solver_ == "als"
    assert MatrixFactorization(2, max_iter=1, implicit=True).fit(R).solver_ == "als"
