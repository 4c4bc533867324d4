"""Matrix factorization: what is refused."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.utils._param_validation import InvalidParameterError

from stradask.algorithms.factorization.matrix_factorization import MatrixFactorization
from stradask.datasets import make_ratings
from stradask.errors import DataError


@pytest.fixture(scope="module")
def ratings():
    return make_ratings(60, 40, 3, density=0.3, noise=0.3, random_state=0)[0]


def coo(values, rows, columns, shape=(2, 2)):
    return sparse.coo_array((values, (rows, columns)), shape=shape)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.eye(3), None, "scipy sparse matrix"),
        (sparse.csr_array((3, 3)), None, "R holds no rating"),
        (coo([1.0, np.nan], [0, 1], [1, 0]), None, "nan at row 1, column 0"),
        (coo([1.0, -np.inf], [0, 1], [1, 0]), None, "-inf at row 1, column 0"),
        (coo([1e16, 1.0], [0, 1], [1, 0]), None, r"1e\+16 at row 0, column 1"),
        (coo([1j, 1j], [0, 1], [1, 0]), None, "real numbers"),
        (coo([1.0, 2.0, 5.0], [1, 0, 1], [1, 0, 1]), None, "several ratings .* user 1 and item 1"),
        (coo([1.0], [0], [0]), [1], "y and sample_weight go with pairs"),
        ([[1, 2, 3]], [1], "two columns"),
        ([1, 2], [1], "two columns"),
        ([[1, 2]], [1, 2], "y has 2 rows"),
        ([[1, 2]], [np.nan], "y contains NaN"),
        ([[1, 2]], [1e20], r"1e\+20 at row 0"),
        ([[1, 2]], [[1, 2]], "y must be a vector"),
        ([[1, 2.5]], [1], "2.5 in row 0"),
        ([[1, np.nan]], [1], "nan in row 0"),
        (np.array([[1, None]], object), [1], "NoneType"),
        (np.array([["a", 1], [2, 1]], object), [1, 1], "int, str"),
        ([[1, 2], [1, 2]], [1, 2], "several ratings .* user 1 and item 2"),
        ([["a", "b"], ["a", "b"]], [1, 2], "user 'a' and item 'b'"),
        (np.zeros((0, 2), int), [], "y holds no rating"),
        ([[True, False]], [1], "bool"),
        (coo([2.0, 2.0], [0, 1], [1, 0]), None, "all 2 ratings are 2: .* set implicit=True"),
        ([["a", "x"], ["a\0", "y"]], [1, 2], r"'a\\x00', which ends with a NUL character"),
        (np.array([["a", "x"], ["a\0", "y"]], object), [1, 2], "users' ids holds .* NUL character"),
    ],
)
def test_wrong_ratings_are_refused(X, y, message):
    model = MatrixFactorization(2)
    with pytest.raises(DataError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "user_ids_")


def test_weights_of_choices_must_be_alike():
    """Losses of drawn choices took any weights, and ignored them."""
    pairs, model = [(0, 1), (1, 2), (2, 3)], MatrixFactorization(2, implicit=True, loss="warp", max_iter=2)
    with pytest.raises(DataError, match="loss='warp' draws every choice as often"):
        model.fit(pairs, [1, 1, 1], sample_weight=[1, 2, 0])
    assert len(model.fit(pairs, [1, 1, 1], sample_weight=[2, 2, 0]).user_ids_) == 2


def test_broken_index_arrays_are_refused(ratings):
    R = ratings.copy()
    R.indices[4] = 4000
    with pytest.raises(DataError, match="column index 4000"):
        MatrixFactorization(2).fit(R)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -1], "got -1 for rating 1"),
        ([np.nan, 1], "got nan for rating 0"),
        ([0, 0], "zero for every rating"),
        ([1], r"shape \(1,\)"),
        (["a", "b"], "must hold numbers"),
        (np.ma.array([1, 2], mask=[0, 1]), "sample_weight is a masked array with hidden values"),
    ],
)
def test_wrong_weights_are_refused(weights, message):
    with pytest.raises(DataError, match=message):
        MatrixFactorization(2).fit([[0, 0], [0, 1]], [1, 2], weights)


def test_hidden_ids_are_refused(ratings):
    hidden = np.ma.array([[0, 0], [0, 1]], mask=[[0, 0], [1, 0]])
    with pytest.raises(DataError, match="the array of pairs is a masked array with hidden values"):
        MatrixFactorization(2).fit(hidden, [1, 2])
    model = MatrixFactorization(2, max_iter=1, random_state=0).fit(ratings)
    with pytest.raises(DataError, match="ids of users is a masked array with hidden values"):
        model.recommend(hidden[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"implicit": True, "solver": "sgd"}, "implicit"),
        ({"implicit": True, "solver": "ccd"}, "implicit"),
        ({"non_negative": True, "solver": "sgd"}, "negative"),
        ({"early_stopping": True}, "2 ratings are 0"),
        ({"non_negative": True, "bias": False}, "rating -1 is below zero"),
    ],
)
def test_what_does_not_go_together_is_refused(options, message):
    with pytest.raises(DataError, match=message):
        MatrixFactorization(2, **options).fit([[0, 0], [0, 1]], [-1, 2])


@pytest.mark.parametrize(
    "options", [{"reg": 0}, {"n_components": 0}, {"alpha": -1}, {"solver": "svd"}, {"dtype": int}]
)
def test_wrong_parameters_are_refused(options, ratings):
    with pytest.raises(InvalidParameterError):
        MatrixFactorization(**options).fit(ratings)


def test_a_rate_that_is_too_high_is_told(ratings):
    with pytest.raises(DataError, match="diverged in epoch 1 with learning_rate=1e"):
        MatrixFactorization(3, solver="sgd", learning_rate=1e20, random_state=0).fit(ratings)


def test_wrong_questions_are_refused(ratings):
    model = MatrixFactorization(2, random_state=0, max_iter=2).fit(ratings)
    for users, message in [
        (60, "user 60 was not in fit"),
        ([-1], "user -1"),
        ("7", "user '7' was not in fit: the model's ids are whole numbers, for instance 0"),
        ([[1]], "vector"),
    ]:
        with pytest.raises(DataError, match=message):
            model.recommend(users)
    with pytest.raises(DataError, match="item 40 was not in fit"):
        model.similar_items(40)
    with pytest.raises(DataError, match="item 41 was not in fit"):
        model.recommend(0, items=[1, 41])
    for n in (0, 2.5, True):
        with pytest.raises(DataError, match="n must be an integer"):
            model.recommend(0, n)
    with pytest.raises(DataError, match="R has 39 columns"):
        model.transform(ratings[:, :39])
    with pytest.raises(DataError, match="X has 59 rows"):
        model.score(ratings[:59])
    with pytest.raises(DataError, match="scipy sparse matrix"):
        model.transform(ratings.toarray())
    with pytest.raises(DataError, match="two columns"):
        model.predict([1, 2])
