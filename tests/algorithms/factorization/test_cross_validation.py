"""Cross-validation of recommenders against loops by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

import stradask as sd
from stradask.algorithms.factorization import cross_validation
from stradask.datasets import make_ratings
from stradask.errors import DataError


@pytest.fixture(scope="module")
def ratings():
    return make_ratings(80, 30, 3, density=0.3, random_state=0)[0]


def folds_of(R, model, **options):
    """What is fitted and what is judged in each fold, by a model that notes them."""
    seen = []

    class Noting(type(model)):
        def fit(self, X, y=None):
            seen.append(X.matrix.toarray())
            return super().fit(X, y)

    noting = Noting(**model.get_params())
    found = sd.cross_validate(noting, R, **options)
    return found, seen


@pytest.mark.filterwarnings("ignore:users without ratings")  # in the loop by hand
@pytest.mark.parametrize("by", ["user", "rating"])
def test_every_rating_is_held_out_once_and_measures_are_those_of_the_fold(ratings, by):
    ratings = abs(ratings)
    model = sd.EASE(20.0)
    metrics = ["ndcg@5", "recall@20", "precision@5", "map@5", "coverage@5", "novelty@5", "mrr@20"]
    found, trained = folds_of(ratings, model, metrics=metrics, n_splits=4, by=by)
    whole = ratings.toarray()
    held = [whole - part for part in trained]
    np.testing.assert_allclose(sum(held), whole)
    for part, left in zip(trained, held, strict=True):
        assert not ((part != 0) & (left != 0)).any()
        sizes = (left != 0).sum(axis=1) if by == "user" else np.array([(left != 0).sum()])
        all_sizes = (whole != 0).sum(axis=1) if by == "user" else np.array([(whole != 0).sum()])
        assert (np.abs(sizes - all_sizes / 4) < 1).all()
    for fold in range(4):
        fitted = clone(model).fit(sparse.csr_array(trained[fold]))
        for name in metrics:
            base, k = name.split("@")
            expected = sd.evaluate_ranking(fitted, sparse.csr_array(held[fold]), int(k))[base]
            assert found[f"test_{name}"][fold] == pytest.approx(expected)
    assert (found["fit_time"] > 0).all()
    assert (found["score_time"] > 0).all()


def test_errors_of_ratings_in_all_forms(ratings):
    model = sd.MatrixFactorization(3, solver="als", max_iter=4, random_state=0)
    found = sd.cross_validate(model, ratings, metrics=("rmse", "mae"), n_splits=3)
    assert (found["test_mae"] <= found["test_rmse"]).all()
    cells = ratings.tocoo()
    table = pd.DataFrame({"user": cells.row, "item": cells.col, "rating": cells.data})
    for form in ((table,), (table[["user", "item"]], cells.data), (sparse.coo_array(ratings),)):
        again = sd.cross_validate(model, *form, metrics=("rmse", "mae"), n_splits=3)
        np.testing.assert_allclose(again["test_rmse"], found["test_rmse"])
    assert list(sd.cross_validate(model, ratings, n_splits=2)) == ["test_rmse", "fit_time", "score_time"]
    own = cross_validation._folds(ratings, 3, "user", np.random.RandomState(0))
    cells = ratings.tocoo()
    out = own == 0
    rest = sparse.csr_array((cells.data[~out], (cells.row[~out], cells.col[~out])), shape=ratings.shape)
    predicted = clone(model).fit(rest).predict(np.column_stack([cells.row[out], cells.col[out]]))
    assert found["test_mae"][0] == pytest.approx(np.abs(predicted - cells.data[out]).mean())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": "ndcg"}, "such as 'ndcg@10'"),
        ({"metrics": ["ndcg@0"]}, "'ndcg@0' is unknown"),
        ({"metrics": []}, "metrics must be names"),
        ({"metrics": "rmse"}, "rmse is of ratings, which EASE"),
        ({"n_splits": 1}, "n_splits must be"),
        ({"by": "item"}, "give 'user' or 'rating'"),
        ({"n_splits": 10**6}, "leave one without any"),
    ],
)
def test_mistakes(ratings, options, message):
    with pytest.raises(DataError, match=message):
        sd.cross_validate(sd.EASE(), ratings, **options)


@pytest.mark.parametrize(
    ("model", "X", "message"),
    [
        (sd.Ridge(), None, r"must be a recommender, such as EASE\(\), got Ridge"),
        (sd.EASE, None, "must be a recommender"),
        (sd.EASE(), "plays.csv", "X is a str, but folds are made of ratings in this process"),
    ],
)
def test_other_models_and_places(ratings, model, X, message):
    with pytest.raises(DataError, match=message):
        sd.cross_validate(model, ratings if X is None else X)


def test_repeated_cells_are_refused():
    twice = sparse.coo_array((np.ones(3), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    with pytest.raises(DataError, match="several ratings"):
        sd.cross_validate(sd.EASE(), twice, n_splits=2)
