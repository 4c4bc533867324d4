"""Serving: fewer scores where norms tell, exports to indexes, and ranking by draws."""

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.factorization.serving import exports, recommend
from stradask.datasets import make_ratings
from stradask.errors import DataError, StradaskError


def model_of(users, items, *, bias=None, seen=None, dtype="float32"):
    """A model of given factors, as of a file."""
    model = sd.MatrixFactorization(users.shape[1], implicit=bias is None, reg=1.0, dtype=dtype, max_iter=1)
    shape = len(users), len(items)
    cells = sparse.csr_array(np.eye(*shape)) if seen is None else seen
    model.fit(cells)
    model.user_factors_, model.item_factors_ = users.astype(dtype), items.astype(dtype)
    model.item_bias_ = np.zeros(shape[1], dtype) if bias is None else bias.astype(dtype)
    return model


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["spread", "equal norms", "ties", "biases", "negative"])
def test_items_are_left_out_only_where_their_norm_rules_them_out(kind, dtype, monkeypatch):
    """All scores, sorted, are the answer; small chunks make many chances to leave off too soon."""
    rng = np.random.default_rng(0)
    users, items = rng.standard_normal((60, 5)), rng.standard_normal((300, 5))
    items *= rng.lognormal(0, 1.5, (300, 1))
    bias = None
    if kind == "equal norms":
        items /= np.linalg.norm(items, axis=1, keepdims=True)
    elif kind == "ties":  # whole numbers: products are exact
        users, items = rng.integers(-2, 3, (60, 5)), rng.integers(-2, 3, (300, 5))
    elif kind == "biases":
        bias = rng.standard_normal(300)
    elif kind == "negative":  # all scores below 0, where bounds are above
        users, items = abs(users), -abs(items)
    seen = sparse.random_array((60, 300), density=0.1, random_state=rng).tocsr()
    model = model_of(users, items, bias=bias, seen=seen, dtype=dtype)
    monkeypatch.setattr(recommend, "_PRUNED_FROM", 1)
    monkeypatch.setattr(recommend, "_CHUNK", 16)
    monkeypatch.setattr(recommend, "_BATCH", 25)
    scores = model.user_factors_ @ model.item_factors_.T + model.item_bias_
    some = np.sort(rng.permutation(300)[:120])
    for n, options, gone in (
        (1, {}, seen.toarray() != 0),
        (10, {"filter_seen": False}, np.zeros((60, 300), bool)),
        (200, {"items": some}, (seen.toarray() != 0) | ~np.isin(np.arange(300), some)),
        (10, {"exclude": seen, "filter_seen": False}, seen.toarray() != 0),
    ):
        left = np.where(gone, -np.inf, scores)
        order = np.argsort(-left, axis=1, kind="stable")[:, : min(n, 120 if "items" in options else n)]
        best = np.take_along_axis(left, order, axis=1)
        found = model.recommend(np.arange(60), n, **options)
        finite = np.isfinite(best)
        np.testing.assert_array_equal(np.isfinite(found.scores), finite)
        shift = model.user_bias_[:, None] + np.float32(model.mean_)
        np.testing.assert_allclose((found.scores - shift)[finite], best[finite], rtol=2e-5, atol=2e-5)
        if kind == "ties":
            np.testing.assert_array_equal(found.items, np.where(finite, order, -1))
        assert (found.items[~finite] == -1).all()
    threads = model.set_params(n_jobs=2).recommend(np.arange(60), 10)
    np.testing.assert_array_equal(
        threads.items, model.set_params(n_jobs=1).recommend(np.arange(60), 10).items
    )


def test_most_items_of_small_norm_are_never_scored(monkeypatch):
    rng = np.random.default_rng(0)
    items = rng.standard_normal((9000, 8)) * np.geomspace(1, 1e-3, 9000)[:, None]
    model = model_of(rng.standard_normal((50, 8)), items)
    asked = []
    merge = recommend.merge_best
    monkeypatch.setattr(
        recommend, "merge_best", lambda scores, *more: (asked.append(scores.size), merge(scores, *more))
    )
    model.recommend(np.arange(50), 10)
    assert sum(asked) < 0.25 * 50 * 9000


@pytest.mark.parametrize("kind", ["hnswlib", "faiss", "faiss M"])
def test_an_index_finds_the_items_that_are_recommended(kind):
    pytest.importorskip(kind.split()[0])
    R, _ = make_ratings(80, 60, 3, density=0.3, random_state=0)
    model = sd.MatrixFactorization(4, reg=0.05, random_state=0).fit(R)
    vectors = model.query_vectors([3, 4, 5])
    expected = model.recommend([3, 4, 5], 5, filter_seen=False)
    if kind == "hnswlib":
        numbers, far = model.to_hnswlib().knn_query(vectors, k=5)
        products = 1 - far
    else:
        products, numbers = model.to_faiss(M=16 if "M" in kind else None).search(vectors, 5)
    assert model.item_ids_[numbers].tolist() == expected.items.tolist()
    shift = (model.mean_ + model.user_bias_[[3, 4, 5]])[:, None]
    np.testing.assert_allclose(products + shift, expected.scores, rtol=1e-4)


def test_exports_say_what_is_missing(monkeypatch):
    model = sd.MatrixFactorization(2, reg=0.05, random_state=0).fit(
        make_ratings(20, 10, 2, density=0.5, random_state=0)[0]
    )

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(exports.importlib, "import_module", absent)
    with pytest.raises(
        StradaskError, match="to_hnswlib needs hnswlib, which is not installed: pip install hnswlib"
    ):
        model.to_hnswlib()
    with pytest.raises(StradaskError, match="to_faiss needs faiss-cpu, which is not installed"):
        model.to_faiss()
    with pytest.raises(DataError, match="M must be an integer of at least 2, got 1"):
        model.to_hnswlib(M=1)


def test_thompson_ranks_by_draws_as_often_as_they_say():
    """The first item of a user is that of one of the draws, each as likely."""
    R, _ = make_ratings(30, 20, 2, density=0.3, noise=1.0, random_state=0)
    model = sd.MatrixFactorization(2, solver="gibbs", n_draws=8, max_iter=30, random_state=0).fit(R)
    scores = np.einsum("dk,dik->di", model.user_draws_[:, 4], model.item_draws_)
    scores[:, R[[4]].indices] = -np.inf
    best, times = np.unique(scores.argmax(axis=1), return_counts=True)
    found = model.recommend(np.full(4000, 4), 1, thompson=True, random_state=0)
    shown, counts = np.unique(found.items, return_counts=True)
    assert shown.tolist() == best.tolist()
    assert len(best) > 1
    np.testing.assert_allclose(counts / 4000, times / 8, atol=0.04)
    again = model.recommend([4, 7], 3, thompson=True, random_state=5, items=[0, 2, 4, 6, 8])
    assert (
        again.items.tolist()
        == model.recommend([4, 7], 3, thompson=True, random_state=5, items=[0, 2, 4, 6, 8]).items.tolist()
    )
    for wrong in (sd.MatrixFactorization(2, reg=0.05).fit(R), model):
        with pytest.raises(DataError, match="thompson=True ranks by draws"):
            wrong.recommend(R[:2] if wrong is model else [0], thompson=True)
    with pytest.raises(DataError, match="thompson must be True or False, got 'yes'"):
        model.recommend([0], thompson="yes")
