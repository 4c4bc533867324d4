"""Predictions stay within the scale of the ratings; tables of three columns; what is asked of cold users."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import stradask as sd
from stradask.datasets import make_ratings
from stradask.errors import DataError, ModelFileError

EVERY = np.array([[u, j] for u in range(120) for j in range(50)])


@pytest.fixture(scope="module")
def ratings():
    return make_ratings(120, 50, 3, density=0.3, levels=[1, 2, 3, 4, 5], random_state=0)[0]


@pytest.fixture(scope="module")
def table(ratings):
    cells = ratings.tocoo()
    return pd.DataFrame({"user": cells.row, "item": cells.col, "rating": cells.data})


def fitted(X, y=None, **options):
    return sd.MatrixFactorization(3, random_state=0, max_iter=8, **options).fit(X, y)


@pytest.mark.parametrize("solver", ["als", "ccd", "gibbs", "sgd"])
def test_predictions_stay_within_the_ratings_unless_asked_otherwise(ratings, solver):
    options = {"reg": 1e-3, "reg_offset": 0, "max_iter": 60, "learning_rate": 0.2}
    model = sd.MatrixFactorization(3, solver=solver, random_state=0, **options).fit(ratings)
    free = model.predict(EVERY, clip=False)
    assert solver == "gibbs" or (free.max() > 5 and free.min() < 1)
    np.testing.assert_array_equal(model.predict(EVERY), np.clip(free, 1, 5))
    np.testing.assert_array_equal(model.rating_range_, [1, 5])
    cells = ratings.tocoo()
    missed = model.predict(np.column_stack([cells.row, cells.col])) - cells.data
    assert model.score(ratings) == pytest.approx(-np.sqrt(np.mean(missed**2)))


def test_scores_of_recommendations_are_not_clipped(ratings):
    """Clipped ones would be ties, in which the smaller id wins."""
    model = fitted(ratings)
    found = model.recommend(np.arange(120), 5, filter_seen=False)
    assert found.scores.max() > 5
    assert (np.diff(found.scores, axis=1) < 0).all()


def test_counts_are_not_clipped(ratings):
    model = fitted(ratings, implicit=True, reg=0.1)
    assert model.rating_range_ is None
    np.testing.assert_array_equal(model.predict(EVERY), model.predict(EVERY, clip=False))
    assert model.predict(EVERY).min() < 0


def test_ratings_of_no_weight_and_those_held_out(ratings, table):
    """The scale is that of the ratings of a weight above zero, the held-out ones among them."""
    pairs, y = table[["user", "item"]], table["rating"].astype(float).copy()
    y[0], weights = 9.0, np.ones(len(y))
    weights[0] = 0
    model = sd.MatrixFactorization(3, random_state=0, max_iter=2).fit(pairs, y, weights)
    assert model.rating_range_.tolist() == [1, 5]
    early = fitted(pairs, y, early_stopping=True)
    assert early.rating_range_.tolist() == [1, 9]


def test_the_scale_is_saved_and_new_ratings_widen_it(ratings, tmp_path):
    model = fitted(ratings)
    model.save(tmp_path / "model.npz")
    again = sd.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(EVERY), model.predict(EVERY))
    again.partial_fit([[0, 0], [1, 1]], [0.5, 3])
    assert again.rating_range_.tolist() == [0.5, 5]
    again.partial_fit([[2, 0]], [7])
    assert again.rating_range_.tolist() == [0.5, 7]
    assert model.rating_range_.tolist() == [1, 5]


def test_wrong_scales_are_refused(ratings, tmp_path):
    model = fitted(ratings)
    for wrong in (np.array([5.0, 1.0]), np.array([1.0, np.nan]), np.ones(3), "1 to 5"):
        model.rating_range_ = wrong
        model.save(tmp_path / "wrong.npz")
        with pytest.raises(ModelFileError, match="rating_range_"):
            sd.load(tmp_path / "wrong.npz")


@pytest.mark.parametrize("kind", ["numbers", "text", "categories", "nullable"])
def test_a_table_of_three_columns_is_fitted_by_its_ids(ratings, table, kind):
    if kind == "text":
        table = table.assign(user=[f"u{u:03}" for u in table["user"]])
    elif kind == "categories":
        table = table.assign(item=pd.Categorical([f"i{j:02}" for j in table["item"]]))
    elif kind == "nullable":
        table = table.astype({"user": "Int64", "rating": "Float64"})
    expected, model = fitted(ratings), fitted(table)
    np.testing.assert_array_equal(model.user_factors_, expected.user_factors_)
    user, cells = table["user"][3], ratings.tocoo()
    pair = table[["user", "item"]][3:4]
    assert model.predict(pair) == expected.predict([[cells.row[3], cells.col[3]]])
    found = model.recommend(user, 4).items
    assert set(found) <= set(table["item"])
    assert model.score(table) == pytest.approx(expected.score(ratings))
    model.partial_fit(table[:5])


def test_tables_that_are_not_of_users_items_and_ratings(table):
    model = sd.MatrixFactorization(2)
    said = r"takes ratings as.*a table of three columns.*table\[\['user', 'item', 'rating'\]\]"
    for wrong in (
        table.assign(time=0),
        table[["item", "user", "rating"]],
        table[["rating", "user", "item"]],
        table[["user", "item"]],
        table.pivot_table(index="user", columns="item", values="rating"),
    ):
        with pytest.raises(DataError, match=said) as e:
            model.fit(wrong)
        assert len(str(e.value)) < 300
    with pytest.raises(DataError, match=r"fit\(pandas.DataFrame\(R"):
        model.fit([("ann", "tea", 5), ("bob", "tea", 4)])
    with pytest.raises(DataError, match="clip must be True or False, got 5"):
        fitted(table).predict([[0, 1]], clip=5)


@pytest.mark.parametrize("options", [{}, {"solver": "gibbs"}, {"implicit": True, "loss": "bpr"}])
def test_users_without_ratings_get_what_all_like_best_and_a_warning(ratings, options):
    R = sparse.csr_array(sparse.vstack([ratings, sparse.csr_array((1, 50))]))
    model = fitted(R, **options)
    with pytest.warns(
        UserWarning, match="users without ratings, 1 of 2, all get the same.*liked best"
    ) as told:
        found = model.recommend([120, 0], 3)
    assert told[0].filename == __file__
    expected = model.predict([[120, j] for j in range(50)], clip=False)
    assert found.items[0].tolist() == np.argsort(-expected, kind="stable")[:3].tolist()
    assert found.scores[0, 0] > found.scores[0, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.recommend([0, 1], 3)


def test_dense_rows_and_others_ratings_are_answered_in_a_sentence(ratings):
    model = fitted(ratings)
    for dense in (ratings[[1]].toarray(), ratings[[1]].toarray()[0].astype(float)):
        with pytest.raises(DataError, match=r"as a sparse matrix, scipy.sparse.csr_array\("):
            model.recommend(dense, 3)
    with pytest.raises(DataError, match=r"True leaves out what users have rated in fit.*give exclude"):
        model.recommend([1, 2], 3, filter_seen=ratings)
    with pytest.raises(DataError, match=r"explain\(R\[\[u\]\], \[item\]\)"):
        model.explain([[1, 5], [2, 5]])
    with pytest.raises(DataError, match=r"1 items to explain: give the row.*ratings\[\[u\]\]"):
        model.explain(ratings, 5)
    assert model.recommend([1.0, 2.0], 3).items.shape == (2, 3)
