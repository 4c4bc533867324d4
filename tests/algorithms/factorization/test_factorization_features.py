"""Features of users and items: objective, closed forms, new ids, model files; new counts of old models."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from stradask import load
from stradask.algorithms.factorization import update
from stradask.algorithms.factorization.features import ridge_regression
from stradask.algorithms.factorization.items.popularity import Popularity
from stradask.algorithms.factorization.matrix_factorization import MatrixFactorization
from stradask.algorithms.factorization.ranking import evaluate_ranking
from stradask.datasets import make_ratings
from stradask.datasets.split import rating_split
from stradask.errors import DataError

OPTIONS = {"n_components": 2, "solver": "als", "dtype": "float64", "tol": 0, "random_state": 0}
IMPLICIT = {"implicit": True, "alpha": 4, "reg": 2}


@pytest.fixture(scope="module")
def ratings():
    """Thirty users, of whom the last two have none; twenty items, of which the last has none."""
    R = make_ratings(28, 19, 2, density=0.4, noise=0.2, random_state=0)[0].tocoo()
    return sparse.csr_array((R.data, (R.row, R.col)), shape=(30, 20))


@pytest.fixture(scope="module")
def features():
    rng = np.random.default_rng(1)
    return {"user_features": rng.standard_normal((30, 3)), "item_features": rng.standard_normal((20, 2))}


def fitted(R, features, **options):
    return MatrixFactorization(**{**OPTIONS, **options}).fit(abs(R), **features)


def with_one(table):
    return np.column_stack([table, np.ones(len(table))])


def objective(model, R, features):
    """The one stated, over dense tables; also its slopes in the weights of features."""
    rated = [np.asarray((R != 0).sum(axis=axis)).ravel() for axis in (1, 0)]
    P, Q = (np.column_stack([model.user_factors_, model.user_bias_]),
            np.column_stack([model.item_factors_, model.item_bias_]))  # fmt: skip
    products = P[:, :-1] @ Q[:, :-1].T
    if model.implicit:
        value = model.alpha * abs(R.toarray())
        c = np.where(value > 0, value, 1.0)
        terms = c * ((value > 0) - products) ** 2
        terms = terms[rated[0] > 0][:, rated[1] > 0]
    else:
        terms = (R != 0).toarray() * (R.toarray() - model.mean_ - P[:, -1:] - Q[:, -1] - products) ** 2
    total, slopes = terms.sum(), []
    for side, (Y, what) in enumerate(((P, "user"), (Q, "item"))):
        present = rated[side] > 0
        exponent = 0.5 if model.implicit else 1
        n = model.reg_ * present * (rated[side] + model.reg_offset_[side]) ** exponent
        of_bias = model.reg_ if model.implicit else model.bias_reg_[side]
        n = np.column_stack([np.tile(n, (Y.shape[1] - 1, 1)).T, of_bias * present])
        rho = model.feature_reg * np.append(np.full(Y.shape[1] - 1, model.reg_), of_bias)
        X, A = np.zeros((len(Y), 1)), np.zeros((1, Y.shape[1]))
        if f"{what}_features" in features:
            X, A = with_one(features[f"{what}_features"]), getattr(model, f"{what}_feature_weights_")
        total += (n * (Y - X @ A) ** 2).sum() + (rho * A**2).sum()
        slopes.append(rho * A - X.T @ (n * (Y - X @ A)))
    return total, slopes


def test_ridge_regressions_are_those_of_dense_matrices():
    rng = np.random.default_rng(0)
    X, Y = sparse.random_array((40, 7), density=0.4, rng=rng, format="csr"), rng.standard_normal((40, 3))
    n = rng.integers(0, 5, 40).astype(float)
    dense = X.toarray()
    expected = np.linalg.solve(dense.T @ (n[:, None] * dense) + 2 * np.eye(7), dense.T @ (n[:, None] * Y))
    for table in (X, dense):
        np.testing.assert_allclose(
            ridge_regression(table, n, 2.0, Y, rng.random((7, 3))), expected, atol=1e-9
        )


@pytest.mark.parametrize("options", [{}, IMPLICIT], ids=["ratings", "counts"])
@pytest.mark.parametrize("sides", [("user", "item"), ("item",)])
def test_the_objective_is_the_one_stated_and_never_rises(ratings, features, options, sides):
    chosen = {f"{what}_features": features[f"{what}_features"] for what in sides}
    model = fitted(ratings, chosen, max_iter=12, **options)
    R = abs(ratings)
    value, _ = objective(model, R, chosen)
    assert model.history_["objective"][-1] == pytest.approx(value, rel=1e-9)
    assert (np.diff(model.history_["objective"]) <= 1e-9 * value).all()
    assert (model.user_feature_weights_ is None) == ("user" not in sides)


@settings(max_examples=10, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    n_features=st.integers(0, 9),
    implicit=st.booleans(),
    seed=st.integers(0, 2**31 - 1),
)
def test_objectives_are_those_of_dense_tables_of_any_shape(shape, n_features, implicit, seed):
    rng = np.random.default_rng(seed)
    table = rng.random(shape) * (rng.random(shape) < 0.5)
    table[0, 0] = 1
    R = sparse.csr_array(table)
    chosen = {"item_features": rng.standard_normal((shape[1], n_features))}
    model = fitted(R, chosen, max_iter=2, **(IMPLICIT if implicit else {}))
    assert model.history_["objective"][-1] == pytest.approx(objective(model, R, chosen)[0], rel=1e-8)


@pytest.mark.parametrize("options", [{"reg": 0.1}, IMPLICIT], ids=["ratings", "counts"])
def test_in_the_end_no_small_move_of_factors_or_weights_gains(ratings, features, options):
    """The minimum: rows by their dense normal equations, the weights by their slopes."""
    model = fitted(ratings, features, max_iter=400, **options)
    R = abs(ratings)
    value, slopes = objective(model, R, features)
    for slope, name in zip(slopes, ("user", "item"), strict=True):
        np.testing.assert_allclose(
            slope, 0, atol=1e-5 * abs(getattr(model, f"{name}_feature_weights_")).max()
        )
    rng = np.random.default_rng(0)
    for _ in range(20):
        for name in ("user_factors_", "item_factors_", "user_feature_weights_", "item_feature_weights_"):
            old = getattr(model, name)
            setattr(model, name, old + 1e-3 * rng.standard_normal(old.shape))
            assert objective(model, R, features)[0] > value
            setattr(model, name, old)


@pytest.mark.parametrize("options", [{}, IMPLICIT], ids=["ratings", "counts"])
def test_rows_without_ratings_have_the_factors_of_their_features(ratings, features, options):
    model = fitted(ratings, features, max_iter=5, **options)
    expected = with_one(features["user_features"])[28:] @ model.user_feature_weights_
    np.testing.assert_allclose(model.user_factors_[28:], expected[:, :2], rtol=1e-9)
    np.testing.assert_allclose(model.user_bias_[28:], expected[:, 2], rtol=1e-9)
    # New ones likewise: joined to the model, or folded in.
    new = np.random.default_rng(5).standard_normal((3, 3))
    expected = with_one(new) @ model.user_feature_weights_
    best = model.recommend(sparse.csr_array((3, 20)), n=4, user_features=new)
    model.add_users([41, 40, 50], new).add_items([77], [[0.5, -1]])
    np.testing.assert_allclose(model.user_factors_[[31, 30, 32]], expected[:, :2], rtol=1e-9)
    pairs = [[41, 77], [40, 77], [50, 3]]
    q = np.vstack([model.item_factors_[[20, 20, 3]].T, np.ones(3)])
    shift = model.mean_ + model.item_bias_[[20, 20, 3]]
    np.testing.assert_allclose(model.predict(pairs), shift + np.einsum("ij,ji->i", expected, q), rtol=1e-9)
    found = model.recommend([41, 40, 50], n=4, items=np.arange(20))
    np.testing.assert_array_equal(found.items, best.items)
    assert 77 in model.recommend([41], n=21).items


def test_new_users_with_few_ratings_are_between_their_features_and_their_ratings(ratings, features):
    """Folded in: the dense solution; many features may be sparse."""
    model = fitted(ratings, features, max_iter=5)
    x = np.array([[0.3, -1, 2]])
    new = sparse.csr_array(([4.0, 1.0], ([0, 0], [3, 8])), shape=(1, 20))
    Q = np.column_stack([model.item_factors_, np.ones(20)])[[3, 8]]
    target = np.array([4.0, 1.0]) - model.mean_ - model.item_bias_[[3, 8]]
    mean = (with_one(x) @ model.user_feature_weights_)[0]
    of_factors = model.reg_ * (2 + model.reg_offset_[0])
    ridge = np.array([of_factors, of_factors, model.bias_reg_[0]])
    expected = np.linalg.solve(Q.T @ Q + np.diag(ridge), Q.T @ target + ridge * mean)
    for table in (x, sparse.csr_array(x)):
        np.testing.assert_allclose(model.transform(new, user_features=table)[0], expected, rtol=1e-9)
    sparse_features = {name: sparse.csr_array(table) for name, table in features.items()}
    other = fitted(ratings, sparse_features, max_iter=5)
    np.testing.assert_allclose(other.user_factors_, model.user_factors_, rtol=1e-6)


def test_features_predict_what_ratings_do_not_tell():
    """Factors linear in features: new items are predicted to near the noise, and without them are not."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((150, 4)), rng.standard_normal((90, 4))
    A, B = rng.standard_normal((4, 3)), rng.standard_normal((4, 3))
    table = 3 + (x @ A) @ (y @ B).T / 3 + 0.2 * rng.standard_normal((150, 90))
    R = sparse.csr_array(np.where(rng.random((150, 90)) < 0.2, table, 0))
    rows, columns = np.mgrid[:150, 70:90].reshape(2, -1)
    pairs, truth = np.column_stack([rows, columns]), table[rows, columns]
    model = MatrixFactorization(3, reg=0.03, random_state=0, max_iter=60)
    model.fit(R[:, :70], user_features=x, item_features=y[:70])
    blind = np.sqrt(np.mean((model.mean_ + model.user_bias_[rows] - truth) ** 2))
    model.add_items(np.arange(70, 90), y[70:])
    error = np.sqrt(np.mean((model.predict(pairs) - truth) ** 2))
    assert error < 0.35
    assert error < 0.3 * blind


@pytest.mark.parametrize("options", [{}, IMPLICIT], ids=["ratings", "counts"])
def test_files_pairs_threads_and_new_ratings(ratings, features, options, tmp_path):
    cells = abs(ratings).tocoo()
    pairs = [[f"u{u:02}", f"i{j:02}"] for u, j in zip(cells.row, cells.col, strict=True)]
    order = np.random.default_rng(0).permutation(30)
    named = {
        "user_features": ([f"u{u:02}" for u in order], features["user_features"][order]),
        "item_features": ([f"i{j:02}" for j in range(20)], features["item_features"]),
    }
    whole = fitted(ratings, features, max_iter=4, **options)
    model = MatrixFactorization(**{**OPTIONS, **options}, max_iter=4, n_jobs=3)
    model.fit(pairs, cells.data, **named)
    np.testing.assert_array_equal(model.user_factors_, whole.user_factors_)
    np.testing.assert_array_equal(model.item_feature_weights_, whole.item_feature_weights_)
    model.save(tmp_path / "model.npz")
    other = load(tmp_path / "model.npz").add_users(["z"], [[1, 2, 3]])
    model.add_users(["z"], [[1, 2, 3]])
    np.testing.assert_array_equal(other.predict([["z", "i03"]]), model.predict([["z", "i03"]]))
    # New ratings of one who had features alone: as if folded in, given the items.
    model.partial_fit([["z", "i03"], ["z", "i05"]], [4, 2])
    assert model.seen_[[30]].sum() == 2
    with pytest.raises(DataError, match=r"'new' is new, and .* call add_users"):
        model.partial_fit([["new", "i03"]], [4])


def test_workers_and_checkpoints_change_no_bit(ratings, features, tmp_path):
    import distributed

    options = {"max_iter": 7, "dtype": "float32"}
    near = fitted(ratings, features, **options)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as cluster:
        far = fitted(ratings, features, engine=cluster.scheduler_address, **options)
    np.testing.assert_array_equal(far.user_factors_, near.user_factors_)
    np.testing.assert_array_equal(far.item_feature_weights_, near.item_feature_weights_)
    kept = {**options, "checkpoint": tmp_path / "state"}
    fitted(ratings, features, **{**kept, "max_iter": 5})
    np.testing.assert_array_equal(fitted(ratings, features, **kept).item_factors_, near.item_factors_)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"user_features": np.ones((29, 2))}, "user_features has 29 rows, but 30 are needed"),
        ({"item_features": np.ones(20)}, "must have two dimensions"),
        ({"item_features": np.full((20, 1), np.nan)}, "item_features holds NaN"),
        ({"user_features": [["m"]] * 30}, "must hold numbers"),
        ({"user_features": np.full((30, 1), 1e200)}, r"holds 1e\+200: bring it to a scale of about 1"),
        ({"user_features": np.ma.masked_equal(np.eye(30), 1)}, "user_features is a masked array with hidden"),
        ({"user_features": np.zeros((30, 1), "datetime64[s]")}, "user_features holds times"),
        ({"user_features": np.zeros((30, 1), complex)}, "user_features must hold real numbers, got complex"),
        ({"user_features": (np.arange(30), np.ones((30, 1)))}, "user_features"),
    ],
)
def test_wrong_features_are_refused(ratings, given, message):
    with pytest.raises(DataError, match=message):
        fitted(ratings, given)


def test_questions_that_features_cannot_answer_are_refused(ratings, features):
    model = fitted(ratings, {"user_features": features["user_features"]}, max_iter=2)
    empty = sparse.csr_array((1, 20))
    for question, message in (
        (lambda: model.transform(empty), "fitted with user_features"),
        (lambda: model.transform(empty, user_features=[[1, 2]]), "2 columns, but 3 are needed"),
        (lambda: model.add_items([50], [[1, 2]]), "fitted without item_features"),
        (lambda: model.add_users([3], [[1, 2, 3]]), "must be new and different: 3"),
        (lambda: model.add_users([50, 51, 51], np.ones((3, 3))), "must be new and different: 51"),
        (lambda: model.add_users(["ann"], [[1, 2, 3]]), "users are whole numbers, but text are given"),
        (lambda: model.recommend([3], user_features=[[1, 2, 3]]), "goes with new users"),
        (
            lambda: MatrixFactorization(2, non_negative=True).fit(ratings, **features),
            "go with non_negative=False",
        ),
        (
            lambda: MatrixFactorization(2).fit([["a", "b"]], [3], user_features=(["c"], [[1]])),
            "no row for the user 'a'",
        ),
        (lambda: MatrixFactorization(2).fit([["a", "b"]], [3], user_features=[[1]]), "a pair"),
    ):
        with pytest.raises(DataError, match=message):
            question()


# New counts ----------------------------------------------------------------------------------------------


@pytest.fixture
def one_round(monkeypatch):
    """The users' rows are solved for once, with the items as they were."""
    monkeypatch.setattr(update, "_ROUNDS", 1)
    R, _ = make_ratings(60, 30, 2, density=0.3, implicit=True, random_state=0)
    return MatrixFactorization(**{**OPTIONS, **IMPLICIT}, reg_exponent=0, max_iter=10).fit(R)


def test_new_users_of_counts_are_as_if_folded_in(one_round):
    model = one_round
    new = sparse.csr_array(([2.0, -1.0, 3.0], ([60, 60, 60], [1, 4, 9])), shape=(61, 30))
    expected = model.transform(new[[60]])[0]
    model.partial_fit(new)
    np.testing.assert_allclose(model.user_factors_[60], expected, rtol=1e-9)
    assert model.seen_.shape == (61, 30)


def test_new_counts_of_an_old_user_are_at_the_minimum_stated(one_round):
    """Against the dense formula, for a cell that was stored, one that was not, and a dislike."""
    model = one_round
    o, Q, seen = model.user_factors_[7].copy(), model.item_factors_.copy(), model.seen_.toarray()[7] > 0
    others = model.user_factors_[:7].copy()
    c = model.confidence_
    cells = [int(np.flatnonzero(seen)[0]), *np.flatnonzero(~seen)[:2].tolist()]
    counts = np.array([1.5, 2.5, -2.0])
    model.partial_fit(sparse.csr_array((counts, ([7] * 3, cells)), shape=(60, 30)))
    H = Q.T @ Q + (c - 1) * Q[seen].T @ Q[seen] + model.reg * np.eye(2)
    A, b = H.copy(), H @ o
    for cell, value in zip(cells, 4 * counts, strict=True):
        q = Q[cell]
        A += abs(value) * np.outer(q, q)
        b += abs(value) * (value > 0) * q
        if not seen[cell]:
            A -= np.outer(q, q)
    np.testing.assert_allclose(model.user_factors_[7], np.linalg.solve(A, b), rtol=1e-9)
    np.testing.assert_array_equal(model.user_factors_[:7], others)
    assert model.confidence_ == pytest.approx((c * 540 + 4 * 6) / 543, rel=1e-6)


@pytest.mark.parametrize(("exponent", "offset"), [(0, 0), (1, 0), (0.5, 3)])
def test_counts_that_are_all_alike_end_as_in_a_fit_to_all(monkeypatch, exponent, offset):
    """Then those of old cells are known: slopes of the whole objective end at zero in the rows rated anew."""
    monkeypatch.setattr(update, "_ROUNDS", 300)
    R, _ = make_ratings(40, 30, 2, density=0.3, implicit=True, random_state=0)
    R.data[:] = 1
    first = R.tocoo()
    kept = np.arange(R.nnz) % 5 > 0
    first = sparse.csr_array((first.data[kept], (first.row[kept], first.col[kept])), shape=R.shape)
    options = {**OPTIONS, **IMPLICIT, "reg_exponent": exponent, "reg_offset": offset}
    model = MatrixFactorization(**options, max_iter=300).fit(first)
    new = sparse.csr_array(R - first).toarray() > 0
    model.partial_fit(sparse.csr_array(R - first))
    P, Q, held = model.user_factors_, model.item_factors_, R.toarray() > 0
    for X, Y, held_by, rows in ((P, Q, held, new.any(axis=1)), (Q, P, held.T, new.any(axis=0))):
        n = (held_by.sum(axis=1, keepdims=True) + offset) ** exponent
        slopes = np.where(held_by, 4 * (X @ Y.T - 1), X @ Y.T) @ Y + 2 * n * X
        np.testing.assert_allclose(slopes[rows], 0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:users without ratings, 2 of")  # before the second half of the counts
@pytest.mark.parametrize("non_negative", [False, True])
def test_new_counts_are_taken_in(non_negative):
    R, _ = make_ratings(300, 100, 3, density=0.2, implicit=True, random_state=0)
    observed, held_out = rating_split(R)
    first = observed.copy()
    first.data[np.random.default_rng(0).random(first.nnz) < 0.4] = 0
    first.eliminate_zeros()
    second = sparse.csr_array(observed - first)
    options = {"implicit": True, "alpha": 5, "reg": 3, "random_state": 0, "non_negative": non_negative}
    model = MatrixFactorization(3, **options).fit(first)
    before = evaluate_ranking(model, held_out)["ndcg"]
    model.partial_fit(second)
    assert (model.seen_.toarray() == (observed.toarray() > 0)).all()
    after = evaluate_ranking(model, held_out)["ndcg"]
    whole = evaluate_ranking(MatrixFactorization(3, **options).fit(observed), held_out)["ndcg"]
    assert after > 0.5 * (before + whole)
    assert not non_negative or model.user_factors_.min() >= 0


def test_non_negative_ratings_are_taken_in(one_round):
    R = abs(make_ratings(60, 30, 2, density=0.3, noise=0.3, random_state=0)[0])
    model = MatrixFactorization(**{**OPTIONS, "non_negative": True}).fit(R)
    o, Q, n = model.user_factors_[7].copy(), model.item_factors_.copy(), model.seen_[[7]].nnz
    counts = np.bincount(model.seen_.indices, minlength=30)
    old_bias, mean, c = model.user_bias_[7], model.mean_, model.item_bias_.copy()
    model.partial_fit(sparse.csr_array(([0.1, 9.0], ([7, 7], [3, 8])), shape=(60, 30)))
    X = np.column_stack([Q, np.ones(30)])[[3, 8]]
    x, o = np.append(model.user_factors_[7], model.user_bias_[7]), np.append(o, old_bias)
    C = np.eye(3)
    C[:2, :2] = (Q.T * counts / counts.sum()) @ Q
    of_factors = model.reg_ * (n + 2 + model.reg_offset_[0])
    H = n * C + np.diag([of_factors, of_factors, model.bias_reg_[0]])
    slope = X.T @ (X @ x - (np.array([0.1, 9.0]) - mean - c[[3, 8]])) + H @ (x - o)
    bound = np.append(x[:2] == 0, False)
    np.testing.assert_allclose(slope[~bound], 0, atol=1e-8)
    assert (x[:2] >= 0).all()
    assert (slope[bound] >= 0).all()


# Other solvers and losses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["als", "ccd", "gibbs", "sgd"])
def test_cold_items_are_predicted_by_features_with_every_solver(solver):
    rng = np.random.default_rng(0)
    about = rng.standard_normal((120, 3))
    likes = 3 + rng.standard_normal((300, 3)) @ about.T
    rated = rng.random(likes.shape) < 0.2
    R = sparse.csr_array(np.where(rated, likes + 0.3 * rng.standard_normal(likes.shape), 0))
    warm = R.copy().tolil()
    warm[:, 110:] = 0
    options = {
        "solver": solver,
        "reg": 0.02,
        "reg_offset": 0,
        "feature_reg": 1.0,
        "max_iter": 30,
        "random_state": 0,
    }
    model = MatrixFactorization(4, dtype="float64", **options).fit(
        sparse.csr_array(warm), item_features=about
    )
    rows, columns = np.nonzero(rated[:, 110:])
    pairs = np.column_stack([rows, columns + 110])
    misses = model.predict(pairs, clip=False) - likes[pairs[:, 0], pairs[:, 1]]
    assert np.sqrt(np.mean(misses**2)) < 0.35 * likes.std()
    counts, X = np.bincount(warm.tocsr().indices, minlength=120)[:110], np.column_stack([about, np.ones(120)])
    if solver != "als":  # against the normal equations
        N, Y = counts[:, None], model.item_factors_[:110]
        A = np.linalg.solve(X[:110].T @ (N * X[:110]) + np.eye(4), X[:110].T @ (N * Y))
        np.testing.assert_allclose(model.item_feature_weights_[:, :4], A, atol=1e-6)
        np.testing.assert_allclose(model.item_factors_[110:], X[110:] @ A, atol=1e-6)
    model.add_items([500], about[[111]])
    np.testing.assert_allclose(model.predict([[0, 500]]), model.predict([[0, 111]]))


@pytest.mark.parametrize("loss", ["squared", "bpr", "warp", "logistic"])
def test_cold_users_are_ranked_for_by_features_with_every_loss(loss):
    rng = np.random.default_rng(0)
    about = rng.standard_normal((400, 3))
    likes = about @ rng.standard_normal((3, 100))
    choices = likes > np.quantile(likes, 0.9, axis=1, keepdims=True)
    warm, cold = choices.copy(), choices.copy()
    warm[350:], cold[:350] = False, False
    options = {"implicit": True, "loss": loss, "feature_reg": 1.0, "max_iter": 30, "random_state": 0}
    model = MatrixFactorization(6, **options).fit(sparse.csr_array(warm.astype(float)), user_features=about)
    found = evaluate_ranking(model, sparse.csr_array(cold.astype(float)), 10)["ndcg"]
    popular = evaluate_ranking(
        Popularity().fit(sparse.csr_array(warm.astype(float))), sparse.csr_array(cold.astype(float)), 10
    )
    assert found > 0.6
    assert found > 2 * popular["ndcg"]
