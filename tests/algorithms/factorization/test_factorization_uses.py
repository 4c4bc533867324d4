"""Matrix factorization: Gibbs sampling, rankings by pairs, new ratings, explanations, a map."""

import warnings

import numpy as np
import pytest
from rating_problems import pairs_of
from scipy import sparse

import stradask as sd
from stradask.algorithms.factorization.matrix_factorization import MatrixFactorization
from stradask.algorithms.factorization.solvers.gibbs import draw_prior
from stradask.datasets import make_ratings
from stradask.datasets.split import rating_split
from stradask.errors import DataError


@pytest.fixture(scope="module")
def ratings():
    return make_ratings(60, 40, 3, density=0.3, noise=0.3, random_state=0)[0]


# Gibbs sampling ------------------------------------------------------------------------------------------


def test_priors_are_drawn_from_the_normal_wishart():
    """Means over many draws against the posterior's closed forms."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2)) @ np.array([[1.0, 0.3], [0, 0.5]]) + [0.5, -1]
    n, strength = len(X), 2.0
    mean = X.mean(0)
    scatter = np.eye(2) + (X - mean).T @ (X - mean) + n * strength / (n + strength) * np.outer(mean, mean)
    draws = [draw_prior(X, rng) for _ in range(4000)]
    means, precisions = (np.array(part) for part in zip(*draws, strict=True))
    expected = (2 + n) * np.linalg.inv(scatter)
    np.testing.assert_allclose(precisions.mean(0), expected, rtol=0.03)
    np.testing.assert_allclose(means.mean(0), n * mean / (n + strength), atol=0.01)
    # Marginally the mean is a t of n + K - K + 1 degrees of freedom.
    df = n + 1
    covariance = scatter / ((n + strength) * df) * df / (df - 2)
    np.testing.assert_allclose(np.cov(means.T), covariance, rtol=0.15, atol=2e-4)


def test_gibbs_predicts_to_the_noise_without_a_penalty_to_tune():
    rng = np.random.default_rng(0)
    P, Q = rng.standard_normal((200, 3)), rng.standard_normal((120, 3))
    R = sparse.random_array((200, 120), density=0.3, rng=rng, format="csr")
    rows = np.repeat(np.arange(200), np.diff(R.indptr))
    R.data = 3 + (P[rows] * Q[R.indices]).sum(1) + 0.3 * rng.standard_normal(R.nnz)
    observed, held_out = rating_split(R)
    errors = [
        -MatrixFactorization(3, solver="gibbs", reg=reg, max_iter=40, random_state=0)
        .fit(observed)
        .score(held_out)
        for reg in (0.003, 0.1)
    ]
    assert max(errors) < 0.34
    model = MatrixFactorization(3, solver="gibbs", bias=False, random_state=0).fit(observed)
    assert not model.user_bias_.any()


def test_gibbs_knows_the_biases_of_rows_of_few_ratings():
    """Five ratings a user, two an item: near the best prediction by biases, of the variances of the data."""
    rng = np.random.default_rng(0)
    biases = rng.normal(0, 0.9, 2000), rng.normal(0, 0.6, 5000)
    cells = np.unique(rng.integers(0, [2000, 5000], (10000, 2)), axis=0)
    y = 7 + biases[0][cells[:, 0]] + biases[1][cells[:, 1]] + rng.normal(0, 1.4, len(cells))
    train = rng.random(len(y)) < 0.8
    ones = (np.ones(train.sum()), np.arange(train.sum()))
    design = sparse.hstack(
        [
            sparse.csr_array((ones[0], (ones[1], cells[train, k])), (train.sum(), n))
            for k, n in enumerate((2000, 5000))
        ]
    )
    ridge = sparse.diags_array(np.repeat([1.4**2 / 0.9**2, 1.4**2 / 0.6**2], [2000, 5000]))
    best = sparse.linalg.spsolve((design.T @ design + ridge).tocsc(), design.T @ (y[train] - y[train].mean()))
    expected = y[train].mean() + best[cells[~train, 0]] + best[2000 + cells[~train, 1]]
    model = MatrixFactorization(8, solver="gibbs", random_state=0).fit(cells[train], y[train])
    found = model.predict(cells[~train], clip=False)
    errors = [np.sqrt(np.mean((some - y[~train]) ** 2)) for some in (found, expected, y[train].mean())]
    assert errors[0] < 1.01 * errors[1] < 0.95 * errors[2]
    assert np.corrcoef(found, expected)[0, 1] > 0.95


# New ratings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["als", "sgd", "gibbs"])
def test_new_ratings_are_taken_in(solver):
    """Of known and new users and items: almost as good as a fit to all."""
    R, _ = make_ratings(300, 120, 3, density=0.3, noise=0.3, random_state=0)
    observed, held_out = rating_split(R)
    pairs, y = pairs_of(observed)
    first = (np.random.default_rng(0).random(len(y)) < 0.6) & (pairs[:, 0] < 280) & (pairs[:, 1] > 9)
    options = {"n_components": 3, "solver": solver, "random_state": 0}
    whole = MatrixFactorization(**options).fit(pairs, y)
    model = MatrixFactorization(**options).fit(pairs[first], y[first])
    before = -model.score(*pairs_of(held_out))
    model.partial_fit(pairs[~first], y[~first])
    after = -model.score(*pairs_of(held_out))
    assert after < 0.9 * before
    assert after < 1.1 * -whole.score(*pairs_of(held_out))
    np.testing.assert_array_equal(model.seen_.toarray(), whole.seen_.toarray())
    np.testing.assert_array_equal(model.item_ids_, whole.item_ids_)


def test_the_rows_of_new_ratings_are_at_the_minimum_stated(ratings):
    """Items that have so many ratings that they stay: a user's row against dense least squares."""
    options = {"n_components": 2, "solver": "als", "dtype": "float64", "random_state": 0, "reg": 0.1}
    model = MatrixFactorization(**options).fit(ratings)
    old = {
        name: getattr(model, name).copy()
        for name in ("user_factors_", "user_bias_", "item_factors_", "item_bias_")
    }
    model.seen_ = sparse.csr_array(np.ones((60, 40), np.int8))  # 40 old ratings a user, 60 an item
    unrated = [j for j in range(40) if j % 3 == 0]
    new = sparse.csr_array((np.full(len(unrated), 4.0), ([7] * len(unrated), unrated)), shape=(60, 40))
    model.partial_fit(new)
    Q, c = model.item_factors_[unrated], model.item_bias_[unrated]
    moved_to = np.append(
        model.user_factors_[7] - old["user_factors_"][7], model.user_bias_[7] - old["user_bias_"][7]
    )
    # The items' rows were solved for after the user's: a last time for the user.
    C = np.zeros((3, 3))
    C[:2, :2] = old["item_factors_"].T @ old["item_factors_"] / 40 * 40
    C[2, 2] = 40
    X = np.column_stack([Q, np.ones(len(Q))])
    t = 4.0 - model.mean_ - c - old["user_bias_"][7] - Q @ old["user_factors_"][7]
    of_factors = 0.1 * (40 + len(Q) + model.reg_offset_[0])
    A = X.T @ X + C + np.diag([of_factors, of_factors, model.bias_reg_[0]])
    np.testing.assert_allclose(moved_to, np.linalg.solve(A, X.T @ t), rtol=0.02, atol=1e-3)
    others = np.arange(60) != 7
    np.testing.assert_array_equal(model.user_factors_[others], old["user_factors_"][others])
    still = np.setdiff1d(np.arange(40), unrated)
    np.testing.assert_array_equal(model.item_factors_[still], old["item_factors_"][still])


def test_a_first_partial_fit_is_a_fit_and_text_is_text(ratings):
    pairs, y = pairs_of(ratings)
    one = MatrixFactorization(2, random_state=0).partial_fit(pairs, y)
    np.testing.assert_array_equal(
        one.item_factors_, MatrixFactorization(2, random_state=0).fit(pairs, y).item_factors_
    )
    before = dict(vars(one))
    with pytest.raises(DataError, match="users are whole numbers, but text are given"):
        one.partial_fit([["ann", "tea"]], [3])
    assert vars(one) == before
    model = MatrixFactorization(2, implicit=True, loss="bpr", random_state=0).fit(abs(ratings))
    with pytest.raises(DataError, match="partial_fit solves least squares"):
        model.partial_fit(abs(ratings))


# Explanations, and users like others -------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"implicit": True, "alpha": 5, "reg": 2}])
def test_what_ratings_add_sums_to_the_prediction(ratings, options):
    R = abs(ratings)
    model = MatrixFactorization(3, dtype="float64", random_state=0, **options).fit(R)
    new = R[[4, 9, 30]]
    items = [0, 17, 39]
    found = model.explain(new, items, n=40)
    scores = np.array(
        [
            model.recommend(new[[k]], 1, items=[item], filter_seen=False).scores[0, 0]
            for k, item in enumerate(items)
        ]
    )
    amounts = np.where(np.isneginf(found.scores), 0, found.scores)
    np.testing.assert_allclose(amounts.sum(1) + model.mean_ + model.item_bias_[items], scores)
    for row in range(3):
        there = np.isfinite(found.scores[row])
        assert sorted(found.items[row][there]) == new[[row]].indices.tolist()
        assert (np.diff(found.scores[row][there]) <= 0).all()
        assert (found.items[row][~there] == -1).all()


def test_explanations_that_there_are_not_are_refused(ratings):
    R = abs(ratings)
    model = MatrixFactorization(2, non_negative=True, random_state=0).fit(R)
    with pytest.raises(DataError, match="no sum over the user's ratings"):
        model.explain(R[:1], [0])
    model = MatrixFactorization(2, implicit=True, loss="bpr", random_state=0, max_iter=2).fit(R)
    with pytest.raises(DataError, match="explain solves least squares"):
        model.explain(R[:1], [0])
    with pytest.raises(DataError, match="folding in new users solves least squares"):
        model.transform(R[:1])
    with pytest.raises(DataError, match="loss='bpr' ranks choices"):
        MatrixFactorization(2, loss="bpr").fit(R)
    with pytest.raises(DataError, match="learns from values above zero"):
        MatrixFactorization(2, implicit=True, loss="bpr").fit(-R)
    model = MatrixFactorization(2, random_state=0).fit(R)
    with pytest.raises(DataError, match="ratings have 2 rows, but there are 1 items"):
        model.explain(R[:2], [0])


def test_similar_users_have_the_highest_cosine(ratings):
    model = MatrixFactorization(3, random_state=0).fit(ratings)
    found = model.similar_users([4, 17], 6)
    P = model.user_factors_ / np.linalg.norm(model.user_factors_, axis=1, keepdims=True)
    for row, u in enumerate((4, 17)):
        cosines = P @ P[u]
        cosines[u] = -2
        assert found.items[row].tolist() == np.argsort(-cosines)[:6].tolist()


# A map of items --------------------------------------------------------------------------------------------


def test_the_map_of_items_is_that_of_the_singular_values(ratings):
    model = MatrixFactorization(3, random_state=0).fit(ratings)
    centred = model.item_factors_ - model.item_factors_.mean(axis=0)
    U, s, _ = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
    found = model.item_map()
    np.testing.assert_allclose(np.abs(found), np.abs(U[:, :2] * s[:2]), atol=1e-5)
    np.testing.assert_array_equal(MatrixFactorization(1, random_state=0).fit(ratings).item_map()[:, 1], 0)


def test_the_picture_has_the_most_rated_items_and_titles_apart(ratings):
    from matplotlib.figure import Figure

    model = MatrixFactorization(3, random_state=0).fit(ratings)
    counts = np.bincount(ratings.indices, minlength=40)
    ax = Figure().add_subplot()
    assert model.plot_items([f"T{j}" for j in range(40)], n_items=12, n_titles=4, ax=ax) is ax
    points = ax.collections[0].get_offsets()
    best = np.argsort(-counts, kind="stable")[:12]
    np.testing.assert_allclose(points, model.item_map()[best])
    written = [text.get_text() for text in ax.texts]
    assert written[0] == f"T{best[0]}"
    assert 1 < len(written) <= 4
    assert {text[1:] for text in written} <= {str(j) for j in best}
    with pytest.raises(DataError, match="titles has 3 entries"):
        model.plot_items(["a", "b", "c"], ax=ax)


def test_users_without_ratings_get_the_most_popular_items_and_a_warning():
    X = sparse.csr_array(np.array([[0, 0, 1.0, 0], [0, 1, 1, 0], [0, 1, 1, 1], [0, 0, 0, 0]]))
    model = MatrixFactorization(2, implicit=True, random_state=0, max_iter=3).fit(X)
    with pytest.warns(UserWarning, match="users without ratings, 1 of.*most ratings"):
        assert model.recommend([3], 3).items.tolist() == [[2, 1, 3]]
    with pytest.warns(UserWarning, match="most ratings"):
        assert model.recommend(sparse.csr_array((1, 4)), 2, items=[0, 1, 3]).items.tolist() == [[1, 3]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.recommend([0, 1])


def test_ways_to_ask_that_are_answered_with_what_to_pass():
    X = sparse.csr_array(np.array([[5.0, 0, 1, 0], [0, 4, 1, 0], [2, 1, 0, 3]]))
    model = MatrixFactorization(2, random_state=0, max_iter=3).fit(X)
    with pytest.raises(DataError, match="filter_seen must be True or False, got a csr_array"):
        model.recommend([0], filter_seen=X)
    with pytest.raises(DataError, match=r"users has the shape \(3, 4\).*csr_array\(users\)"):
        model.recommend(X.toarray())
    for given in (0, [0], [[0, 1]]):
        with pytest.raises(DataError, match=r"ratings must be a sparse matrix of shape \(n_users, 4\)"):
            model.explain(given, [1])


@pytest.mark.parametrize("options", [{}, {"implicit": True, "reg": 0.5}])
def test_a_model_saved_without_its_training_data(options, tmp_path):
    R = abs(make_ratings(60, 30, 2, density=0.3, random_state=0)[0])
    model = MatrixFactorization(3, random_state=0, **options).fit(R)
    model.save(tmp_path / "whole.npz").save(tmp_path / "small.npz", training=False)
    assert model.seen_ is not None
    assert (tmp_path / "small.npz").stat().st_size < (tmp_path / "whole.npz").stat().st_size
    small = sd.load(tmp_path / "small.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # users are not taken for such without ratings
        found = small.recommend([3, 5], 4, filter_seen=False)
    for one, other in zip(found, model.recommend([3, 5], 4, filter_seen=False), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(small.recommend(R[[3]], 4).items, model.recommend(R[[3]], 4).items)
    np.testing.assert_array_equal(small.item_map(), model.item_map())
    with pytest.raises(DataError, match="recommend can go without by filter_seen=False"):
        small.recommend([3])
    with pytest.raises(DataError, match="this needs the rated cells"):
        small.partial_fit(R)
    again = small.fit(R)
    np.testing.assert_array_equal(again.recommend([3], 4).items, model.recommend([3], 4).items)
    small.save(tmp_path / "again.npz")
    assert sd.load(tmp_path / "again.npz").seen_ is not None


# Draws of Gibbs sampling -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn():
    R = make_ratings(300, 150, 3, density=0.2, noise=0.6, random_state=0)[0]
    observed, held_out = rating_split(R, by="rating", random_state=0)
    options = {"solver": "gibbs", "max_iter": 40, "random_state": 0}
    return observed, held_out, options, MatrixFactorization(6, n_draws=20, **options).fit(observed)


def test_intervals_of_new_ratings_cover_as_they_say(drawn):
    _, held_out, _, model = drawn
    cells = held_out.tocoo()
    mean, deviation = model.predict(np.column_stack([cells.row, cells.col]), clip=False, return_std=True)
    scaled = np.abs(cells.data - mean) / deviation
    for width, share in ((0.6745, 0.5), (1.645, 0.9), (1.96, 0.95)):
        error = 3 * np.sqrt(share * (1 - share) / len(scaled))
        assert share - 0.03 - error < np.mean(scaled < width) < share + 0.03 + error
    noise = np.sqrt(model.variance_draws_.mean())
    assert 0.55 < noise < 0.75  # that of the data is 0.6
    assert (deviation > noise).all()


def test_draws_kept_are_those_whose_mean_the_model_is(drawn, tmp_path):
    observed, _, options, some = drawn
    plain = MatrixFactorization(6, **options).fit(observed)
    np.testing.assert_array_equal(plain.user_factors_, some.user_factors_)
    every = MatrixFactorization(6, n_draws=38, **options).fit(observed)
    ones = np.ones(300), np.ones(150)
    for draws, columns in (
        (every.user_draws_, [every.user_factors_, every.user_bias_, ones[0]]),
        (every.item_draws_, [every.item_factors_, ones[1], every.item_bias_]),
    ):
        means = np.column_stack(columns)
        assert draws.shape == (38, *means.shape)
        np.testing.assert_allclose(draws[:, :, :6].mean(axis=0), columns[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(draws[:, :, 6:].mean(axis=0), means[:, 6:], atol=0.15)  # less noise
    assert all(np.isin(draw, every.variance_draws_) for draw in some.variance_draws_)
    pairs = [[3, 4], [299, 149], [3, 150]]
    _, deviation = every.predict(pairs, return_std=True)
    products = np.einsum("dk,dk->d", every.user_draws_[:, 3], every.item_draws_[:, 4])
    assert deviation[0] == pytest.approx(np.sqrt(products.var() + every.variance_draws_.mean()), rel=1e-5)
    assert np.isnan(deviation[2])
    threads = MatrixFactorization(6, n_draws=20, n_jobs=3, **options).fit(observed)
    np.testing.assert_array_equal(threads.item_draws_, some.item_draws_)
    some.save(tmp_path / "m.npz")
    loaded = sd.load(tmp_path / "m.npz")
    found, expected = (model.predict(pairs, return_std=True)[1] for model in (loaded, some))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(DataError, match="return_std=True needs draws"):
        plain.predict(pairs, return_std=True)
    with pytest.raises(DataError, match="return_std must be"):
        plain.predict(pairs, return_std=2)
    loaded.partial_fit(observed)
    with pytest.raises(DataError, match="return_std=True needs draws"):
        loaded.predict(pairs, return_std=True)


def test_draws_go_on_from_a_checkpoint(drawn, tmp_path):
    observed, _, options, _ = drawn

    def stop(info):
        return info.round == 11

    folder = str(tmp_path / "c")
    short = {**options, "max_iter": 24}
    MatrixFactorization(6, n_draws=10, checkpoint=folder, **short).fit(observed, callback=stop)
    found = MatrixFactorization(6, n_draws=10, checkpoint=folder, **short).fit(observed)
    expected = MatrixFactorization(6, n_draws=10, **short).fit(observed)
    np.testing.assert_array_equal(found.user_draws_, expected.user_draws_)
    np.testing.assert_array_equal(found.variance_draws_, expected.variance_draws_)


@pytest.mark.parametrize("options", [{"solver": "als"}, {"solver": "gibbs", "max_iter": 5}, {}])
def test_draws_that_no_solver_keeps_are_refused(options):
    with pytest.raises(DataError, match="n_draws=10 keeps draws of solver='gibbs', at most"):
        MatrixFactorization(2, n_draws=10, **options).fit(sparse.csr_array(np.eye(4)))
