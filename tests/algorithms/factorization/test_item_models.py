"""Item models against dense computations, closed forms, optimality conditions and scikit-learn."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet

import stradask as sd
from stradask.datasets import make_ratings, rating_split
from stradask.errors import DataError, ModelFileError

MODELS = {
    "ease": lambda **more: sd.EASE(20, **more),
    "ease, sparse": lambda **more: sd.EASE(20, n_neighbors=7, **more),
    "slim": lambda **more: sd.SLIM(1.0, 5.0, **more),
    "knn": lambda **more: sd.ItemKNN(9, similarity="cosine", **more),
    "bm25": lambda **more: sd.ItemKNN(9, similarity="bm25", **more),
}


@pytest.fixture(scope="module")
def counts():
    return make_ratings(150, 40, 3, density=0.2, implicit=True, random_state=0)[0]


@pytest.fixture(scope="module")
def X(counts):
    """Choices as a dense table of 0 and 1."""
    return (counts.toarray() > 0).astype(float)


def weights(model):
    W = model.item_weights_
    return W.toarray() if sparse.issparse(W) else W


# What they compute --------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [True, False])
def test_ease_is_the_minimum_of_its_objective_in_closed_form(counts, binary):
    table = (counts.toarray() > 0) * 1.0 if binary else counts.toarray()
    B = weights(sd.EASE(15.0, binary=binary).fit(counts))
    for j in range(table.shape[1]):  # ridge regression of each item on the others
        others = np.arange(table.shape[1]) != j
        A = table[:, others]
        expected = np.linalg.solve(A.T @ A + 15.0 * np.eye(A.shape[1]), A.T @ table[:, j])
        np.testing.assert_allclose(B[others, j], expected, atol=2e-6 * np.abs(expected).max())
    assert not np.diagonal(B).any()


def test_sparse_ease_keeps_the_largest_weights_of_each_item(counts):
    whole, model = weights(sd.EASE(15.0).fit(counts)), sd.EASE(15.0, n_neighbors=6).fit(counts)
    assert sparse.issparse(model.item_weights_)
    for j in range(40):
        expected = np.where(np.abs(whole[:, j]) >= np.sort(np.abs(whole[:, j]))[-6], whole[:, j], 0)
        np.testing.assert_allclose(weights(model)[:, j], expected, rtol=1e-6)


@pytest.mark.parametrize("l1", [0.5, 3.0])
@pytest.mark.parametrize("l2", [0.0, 8.0])
def test_slim_fulfils_the_optimality_conditions_and_equals_scikit_learn(X, counts, l1, l2):
    model = sd.SLIM(l1, l2, tol=1e-9).fit(counts)
    W = weights(model).astype(float)
    assert (W >= 0).all()
    assert model.dual_gap_ <= 1e-9
    slopes = X.T @ (X - X @ W) - l2 * W
    np.fill_diagonal(slopes, 0)
    scale = X.sum(axis=0)
    assert (slopes <= l1 + 1e-4 * scale).all()
    assert (np.abs(slopes - l1)[W > 0] <= 1e-3).all()
    for j in range(0, 40, 7):
        others = np.arange(40) != j
        alpha = (l1 + l2) / len(X)
        net = ElasticNet(alpha, l1_ratio=l1 / (l1 + l2), positive=True, fit_intercept=False, tol=1e-10)
        net.fit(X[:, others], X[:, j])
        np.testing.assert_allclose(W[others, j], net.coef_, atol=2e-4)


def test_slim_of_many_items_grows_its_working_set(monkeypatch):
    from stradask.algorithms.factorization.items import slim

    counts = make_ratings(400, 300, 5, density=0.1, implicit=True, random_state=1)[0]
    whole = weights(sd.SLIM(0.5, 1.0, tol=1e-8).fit(counts))
    monkeypatch.setattr(slim, "_FIRST", 3)
    grown = sd.SLIM(0.5, 1.0, tol=1e-8).fit(counts)
    assert grown.dual_gap_ <= 1e-8
    np.testing.assert_allclose(weights(grown), whole, atol=2e-5)
    few = weights(sd.SLIM(0.5, 1.0, tol=1e-8, n_neighbors=4).fit(counts))
    assert ((few > 0).sum(axis=0) <= 4).all()
    kept = few > 0
    np.testing.assert_allclose(few[kept], whole[kept], atol=2e-5)
    assert (few.min(axis=0, where=kept, initial=np.inf) + 1e-4 >= np.where(kept, 0, whole).max(axis=0)).all()


def test_slim_says_which_gap_it_ended_at(counts, monkeypatch):
    from stradask.algorithms.factorization.items import slim

    monkeypatch.setattr(slim, "_SWEEPS", 0)
    with pytest.warns(ConvergenceWarning, match="of 40 items are above tol"):
        model = sd.SLIM(0.5, 1.0).fit(counts)
    assert model.dual_gap_ > 1e-4


def dense_similarity(table, similarity, shrinkage):
    n_items, popular = table.shape[1], (table > 0).sum(axis=1)
    idf = np.maximum(np.log(n_items) - np.log1p(popular), 0)[:, None]
    if similarity == "cosine":
        W = table
    elif similarity == "tfidf":
        W = np.sqrt(table) * idf
    else:
        lengths = table.sum(axis=0)
        W = table * 2.2 / (1.2 * (0.25 + 0.75 * lengths / lengths.mean()) + table) * idf
    norms = np.ones(n_items) if similarity == "bm25" else np.linalg.norm(W, axis=0)
    S = (W.T @ W) / (np.outer(norms, norms) + shrinkage)
    np.fill_diagonal(S, 0)
    return S


@pytest.mark.parametrize("similarity", ["cosine", "tfidf", "bm25"])
@pytest.mark.parametrize(("binary", "shrinkage"), [(True, 0.0), (False, 4.0)])
def test_neighbours_are_those_of_a_dense_computation(counts, similarity, binary, shrinkage):
    table = (counts.toarray() > 0) * 1.0 if binary else counts.toarray()
    S = dense_similarity(table, similarity, shrinkage)
    model = sd.ItemKNN(8, similarity=similarity, binary=binary, shrinkage=shrinkage).fit(counts)
    W = weights(model)
    for j in range(40):
        least = np.sort(S[:, j])[-8]
        assert (W[:, j] > 0).sum() == min(8, (S[:, j] > 0).sum())
        kept = W[:, j] > 0
        np.testing.assert_allclose(W[kept, j], S[kept, j], rtol=1e-5)
        assert (S[kept, j] >= least * (1 - 1e-9)).all()


def test_ties_of_neighbours_go_to_the_lower_number():
    model = sd.ItemKNN(2, similarity="cosine").fit(sparse.csr_array(np.ones((5, 6))))
    np.testing.assert_array_equal(
        np.argwhere(weights(model).T > 0)[:, 1].reshape(6, 2)[:3], [[1, 2], [0, 2], [0, 1]]
    )


def test_popularity_counts_users_or_adds_values(counts):
    table = counts.toarray()
    np.testing.assert_array_equal(sd.Popularity().fit(counts).item_scores_, (table > 0).sum(axis=0))
    sums = sd.Popularity(binary=False).fit(counts).item_scores_
    np.testing.assert_allclose(sums, table.sum(axis=0), rtol=1e-6)


# What they share ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_scores_recommendations_and_explanations_are_those_of_the_weights(counts, X, name):
    model = MODELS[name]().fit(counts)
    scores = X @ weights(model)
    pairs = np.array([[3, 5], [149, 0], [3, 6], [3, 400], [-7, 5]])
    expected = [scores[3, 5], scores[149, 0], scores[3, 6], 0, 0]
    np.testing.assert_allclose(model.predict(pairs), expected, atol=1e-5 * np.abs(scores).max())
    unseen = np.where(X > 0, -np.inf, scores)
    found = model.recommend([3, 149], n=6)
    np.testing.assert_allclose(found.scores, np.sort(unseen[[3, 149]])[:, :-7:-1], rtol=1e-4)
    np.testing.assert_allclose(scores[[[3], [149]], found.items], found.scores, rtol=1e-4)
    some = model.recommend([3], n=3, items=[1, 2, 30], filter_seen=False)
    np.testing.assert_allclose(some.scores[0], np.sort(scores[3, [1, 2, 30]])[::-1], rtol=1e-4)
    item = int(found.items[0, 0])
    reasons = model.explain(3, item, n=40)
    there = reasons.items >= 0
    assert set(reasons.items[there]) <= set(np.flatnonzero(X[3]))
    np.testing.assert_allclose(reasons.scores[there].sum(), scores[3, item], rtol=1e-4)
    assert (np.diff(reasons.scores[there]) <= 0).all()
    row = model.explain(counts[[3]], [item], n=40)
    np.testing.assert_array_equal(row.items[0], reasons.items)
    like = model.similar_items(4, n=39)
    there = like.items >= 0
    np.testing.assert_allclose(like.scores[there], weights(model)[4][like.items[there]])
    assert 4 not in like.items
    assert there.sum() == np.count_nonzero(weights(model)[4])


def test_popularity_of_many_items_scores_them_once():
    """Of 5,000 items the same, and ties in the same order, as by sorting."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((40, 5000), density=0.01, rng=rng, format="csr")
    model = sd.Popularity().fit(X)
    order = np.argsort(-np.bincount(X.indices, minlength=5000), kind="stable")
    found = model.recommend(np.arange(40), 7, exclude=[order[0]])
    for user in range(40):
        own = X.indices[slice(*X.indptr[user : user + 2])]
        assert found.items[user].tolist() == order[1:][~np.isin(order[1:], own)][:7].tolist()
    np.testing.assert_array_equal(found.scores, model.item_scores_[found.items])
    np.testing.assert_array_equal(model.predict([[3, order[0]], [99, 0]]), [model.item_scores_[order[0]], 0])


@pytest.mark.parametrize("name", [*MODELS, "popularity"])
def test_new_users_ids_tables_and_threads_change_nothing(counts, name):
    make = MODELS.get(name, sd.Popularity)
    model, cells = make().fit(counts), counts.tocoo()
    found = model.recommend(np.arange(150), 5)
    for one, other in zip(found, model.recommend(counts, 5), strict=True):
        np.testing.assert_array_equal(one, other)
    names = np.array([f"u{u:03}" for u in range(150)])
    table = pd.DataFrame({"user": names[cells.row], "item": cells.col, "rating": cells.data})
    shuffled = table.sample(frac=1, random_state=0)
    again = make(n_jobs=3).fit(shuffled)
    assert again.user_ids_.tolist() == names.tolist()
    for one, other in zip(found, again.recommend(names, 5), strict=True):
        np.testing.assert_array_equal(one, other)
    single = again.recommend("u007", 5)
    assert single.items.shape == (5,)
    np.testing.assert_array_equal(single.items, found.items[7])
    assert clone(model).get_params() == model.get_params()


def test_files_and_dask_frames_are_read(counts, tmp_path):
    dask_frames, cells = pytest.importorskip("dask.dataframe"), counts.tocoo()
    lines = [f"{u},{j},{x:g}" for u, j, x in zip(cells.row, cells.col, cells.data, strict=True)]
    (tmp_path / "choices.csv").write_text("\n".join(lines) + "\n")
    table = pd.DataFrame({"user": cells.row, "item": cells.col, "rating": cells.data})
    expected = sd.EASE(20).fit(counts).item_weights_
    for form in (str(tmp_path / "choices.csv"), dask_frames.from_pandas(table, npartitions=3)):
        np.testing.assert_array_equal(sd.EASE(20).fit(form).item_weights_, expected)


def test_recommendations_as_a_table(counts):
    model = sd.ItemKNN(3).fit(counts)
    found = model.recommend([7, 3], 40)
    table = found.to_frame([7, 3])
    assert table.columns.tolist() == ["user", "rank", "item", "score"]
    for row, user in enumerate([7, 3]):
        own, there = table[table["user"] == user], np.isfinite(found.scores[row])
        assert own["item"].tolist() == found.items[row][there].tolist()
        assert own["rank"].tolist() == list(range(1, there.sum() + 1))
    single = model.recommend(7, 5)
    assert single.to_frame(7)["item"].tolist() == single.items.tolist()
    assert single.to_frame()["user"].tolist() == [0] * 5
    with pytest.raises(DataError, match="there are 2 rows: one id each"):
        found.to_frame([7])


def test_equal_scores_go_to_the_item_of_more_users_and_empty_users_get_the_most_popular():
    X = np.zeros((8, 5))
    X[0, 0] = X[1:4, 1] = X[2:8, 4] = 1  # 0 goes with nothing
    for model in (sd.ItemKNN(3), sd.EASE(1.0), sd.SLIM(0.1, 0.1)):
        model.fit(sparse.csr_array(X))
        assert model.recommend(0, 3).items.tolist() == [4, 1, 2]
        with pytest.warns(UserWarning, match="users without ratings, 1 of 1"):
            assert model.recommend(sparse.csr_array((1, 5)), 3).items.tolist() == [[4, 1, 0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sd.Popularity().fit(sparse.csr_array(X)).recommend(0, 3).items.tolist() == [4, 1, 2]


def test_a_stored_zero_is_seen_and_counts_for_nothing(counts):
    R = counts.tolil()
    unseen = np.flatnonzero(counts[[0]].toarray()[0] == 0)
    expected = sd.EASE(20).fit(counts)
    cells = counts.tocoo()
    rows, columns = np.append(cells.row, 0), np.append(cells.col, unseen[0])
    R = sparse.csr_array((np.append(cells.data, 0.0), (rows, columns)), shape=counts.shape)
    model = sd.EASE(20).fit(R)
    np.testing.assert_array_equal(model.item_weights_, expected.item_weights_)
    assert unseen[0] in expected.recommend(0, 40).items
    assert unseen[0] not in model.recommend(0, 40).items


@pytest.mark.parametrize("name", [*MODELS, "popularity"])
def test_a_model_saved_without_its_training_data_recommends_by_what_it_is_given(counts, name, tmp_path):
    model = MODELS.get(name, sd.Popularity)().fit(counts)
    found = model.recommend([0, 5], 4)
    model.save(tmp_path / "m.npz").save(tmp_path / "small.npz", training=False)
    assert model.interactions_ is not None
    small = sd.load(tmp_path / "small.npz")
    assert (tmp_path / "small.npz").stat().st_size < (tmp_path / "m.npz").stat().st_size
    for one, other in zip(found, small.recommend(counts[[0, 5]], 4), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(DataError, match="saved without its training data"):
        small.recommend([0])
    with pytest.raises(DataError, match="training must be True or False"):
        model.save(tmp_path / "no.npz", training="no")


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("item_weights_", np.zeros((3, 3), np.float32)),
        ("item_weights_", np.zeros((40, 40))),
        ("item_counts_", np.zeros(3, int)),
        ("interactions_", sparse.csr_array((2, 40), dtype=np.float32)),
        ("item_ids_", np.zeros(40)),
    ],
)
def test_a_damaged_model_is_refused(counts, attribute, value, tmp_path):
    model = sd.EASE(20).fit(counts)
    setattr(model, attribute, value)
    model.save(tmp_path / "m.npz")
    with pytest.raises(ModelFileError, match="makes no sense"):
        sd.load(tmp_path / "m.npz")


def test_score_is_ndcg_of_what_was_held_out(counts):
    observed, held = rating_split(counts, random_state=0)
    model = sd.EASE(20).fit(observed)
    expected = sd.evaluate_ranking(model, held)["ndcg"]
    assert model.score(held) == expected
    cells = held.tocoo()
    assert model.score(np.column_stack([cells.row, cells.col]), cells.data) == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda R: sd.EASE().fit(-R), "knows no dislikes: leave out"),
        (lambda R: sd.EASE().fit(0 * R), "no user has chosen an item"),
        (lambda R: sd.EASE().fit(R.toarray()), "scipy sparse matrix"),
        (lambda R: sd.EASE(memory_limit="10kB").fit(R), "EASE of 40 items takes .* GB, and memory_limit"),
        (lambda R: sd.SLIM(memory_limit=1000).fit(R), r"SLIM of 40 items, 1,\d\d\d pairs"),
        (lambda R: sd.EASE(memory_limit="much").fit(R), "no amount of memory"),
        (lambda R: sd.EASE(0).fit(R), "'reg' parameter of EASE"),
        (lambda R: sd.ItemKNN(similarity="jaccard").fit(R), "'similarity' parameter"),
        (lambda R: sd.EASE().fit(R).recommend(150), "the user 150 was not in fit"),
        (lambda R: sd.EASE().fit(R).recommend(R[:, :5]), "has 5 columns"),
        (lambda R: sd.EASE().fit(R).recommend(0, 0), "n must be"),
        (lambda R: sd.EASE().fit(R).explain(0), "explain needs items"),
        (lambda R: sd.EASE().fit(R).explain([0, 1], [2]), "2 users, but 1 items"),
        (lambda R: sd.EASE().fit(R).similar_items(40), "the item 40 was not in fit"),
        (lambda R: sd.EASE().fit(R).recommend(-R), "knows no dislikes"),
        (lambda R: sd.EASE().fit([[0, 1], [0, 1]], [1, 1]), "several ratings"),
    ],
)
def test_mistakes_are_named(counts, call, message):
    with pytest.raises(ValueError, match=message):
        call(counts)
