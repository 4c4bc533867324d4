"""Measures of a ranking, against loops over users and places."""

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import stradask as sd
from stradask.algorithms.factorization.matrix_factorization import MatrixFactorization
from stradask.algorithms.factorization.ranking import evaluate_ranking, ranking_metrics
from stradask.datasets import make_ratings
from stradask.datasets.split import rating_split
from stradask.errors import DataError


def slowly(recommended, relevant, k):
    """The definitions, one user and one place at a time."""
    sums = dict.fromkeys(("precision", "recall", "map", "ndcg", "mrr"), 0.0)
    users = [u for u in range(len(recommended)) if (relevant[u] > 0).any()]
    for u in users:
        wanted = {int(j) for j in np.flatnonzero(relevant[u] > 0)}
        hits = [j in wanted for j in recommended[u][:k]]
        sums["precision"] += sum(hits) / k
        sums["recall"] += sum(hits) / len(wanted)
        best = min(k, len(wanted))
        sums["map"] += sum(sum(hits[: p + 1]) / (p + 1) for p in range(len(hits)) if hits[p]) / best
        gain = sum(1 / math.log2(p + 2) for p in range(len(hits)) if hits[p])
        sums["ndcg"] += gain / sum(1 / math.log2(p + 2) for p in range(best))
        sums["mrr"] += next((1 / (p + 1) for p in range(len(hits)) if hits[p]), 0.0)
    return {name: total / len(users) for name, total in sums.items()} | {"n_users": len(users)}


@pytest.mark.parametrize("k", [1, 3, 8, 20])
@pytest.mark.parametrize("n_places", [1, 5, 12])
def test_measures_agree_with_their_definitions(k, n_places):
    rng = np.random.default_rng(k + 100 * n_places)
    relevant = (rng.random((40, 12)) < 0.2) * rng.integers(-1, 4, (40, 12))
    relevant[7] = 0
    recommended = np.array([rng.permutation(12)[:n_places] for _ in range(40)])
    recommended[3, -1] = -1
    found = ranking_metrics(recommended, sparse.csr_array(relevant), k)
    assert found == pytest.approx(slowly(recommended, relevant, k))


def test_a_perfect_ranking_scores_one():
    relevant = sparse.csr_array([[1, 1, 0, 0], [0, 0, 1, 0]])
    found = ranking_metrics([[0, 1, 2], [2, 3, 0]], relevant, k=3)
    assert (found["ndcg"], found["map"], found["mrr"], found["recall"]) == (1, 1, 1, 1)
    assert found["precision"] == 0.5


def test_what_was_seen_is_left_out_and_the_rest_is_judged():
    R, _ = make_ratings(60, 25, 3, density=0.3, implicit=True, random_state=0)
    observed, held_out = rating_split(R, test_size=0.3)
    model = MatrixFactorization(3, implicit=True, alpha=5, reg=2, random_state=0).fit(observed)
    scores = model.user_factors_ @ model.item_factors_.T
    scores[observed.toarray() > 0] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")
    order = np.where(np.isneginf(np.take_along_axis(scores, order, axis=1)), -1, order)
    for k in (4, 30):
        found = evaluate_ranking(model, held_out, k)
        users = np.flatnonzero(np.diff(held_out.indptr))
        lists = [[j for j in row[:k] if j >= 0] for row in order[users]]
        assert found.pop("coverage") == len(set().union(*lists)) / 25
        bits = -np.log2(np.maximum((observed.toarray() > 0).sum(axis=0), 1) / 60)
        assert found.pop("novelty") == pytest.approx(np.mean([bits[row].mean() for row in lists]))
        assert found == pytest.approx(slowly(order, held_out.toarray(), k))
        several = evaluate_ranking(model, held_out, [2, k])
        assert several[f"ndcg@{k}"] == found["ndcg"]
        each = evaluate_ranking(model, held_out, k, by_user=True)
        assert each["recall"].mean() == pytest.approx(found["recall"])
        np.testing.assert_array_equal(each["user_ids"], users)
    assert model.score(held_out) == pytest.approx(evaluate_ranking(model, held_out, 10)["ndcg"])


@pytest.mark.parametrize(
    ("recommended", "message"),
    [
        ([[0, 3]], "columns are from 0 to 2"),
        ([[0, -2]], "-2 in row 0"),
        ([[1, 1]], "holds 1 twice in row 0"),
        ([[0.5, 1]], "must be integers"),
        ([[0], [1]], r"shape \(1, n_places\)"),
        ([0, 1], r"shape \(1, n_places\)"),
    ],
)
def test_wrong_rankings_are_refused(recommended, message):
    with pytest.raises(DataError, match=message):
        ranking_metrics(recommended, sparse.csr_array([[1, 0, 1]]), k=2)


def test_nothing_relevant_and_wrong_k_are_refused():
    with pytest.raises(DataError, match="no user has a relevant item"):
        ranking_metrics([[0]], sparse.csr_array(np.array([[-1, 0]])), k=2)
    for k in (0, 1.5, True):
        with pytest.raises(DataError, match="k must be an integer"):
            ranking_metrics([[0]], sparse.csr_array([[1, 0]]), k=k)


def test_another_shape_is_refused():
    R, _ = make_ratings(20, 10, 2, density=0.4, random_state=0)
    model = MatrixFactorization(2, random_state=0, max_iter=2).fit(R)
    with pytest.raises(DataError, match=r"held_out has the shape \(20, 9\)"):
        evaluate_ranking(model, R[:, :9])


@pytest.mark.parametrize("model", [sd.EASE(10), sd.MatrixFactorization(2, implicit=True, random_state=0)])
def test_relevant_cells_that_were_in_fit_are_told(model):
    counts, _ = make_ratings(50, 20, 2, density=0.3, implicit=True, random_state=0)
    observed, held_out = rating_split(counts)
    model.fit(observed)
    expected = sd.evaluate_ranking(model, held_out)  # without a warning
    seen, n = held_out + observed, observed.nnz
    with pytest.warns(UserWarning, match=f"{n} of {counts.nnz} relevant cells were in fit.*as misses"):
        found = sd.evaluate_ranking(model, seen)
    assert found["recall"] < expected["recall"]


@pytest.mark.parametrize(
    "model",
    [MatrixFactorization(3, reg=0.05, random_state=0), sd.EASE(10.0), sd.ItemKNN(5), sd.Popularity()],
    ids=str,
)
def test_a_model_without_its_training_data_is_judged_by_what_is_observed(model, tmp_path):
    observed, held_out = rating_split(make_ratings(60, 25, 3, density=0.3, implicit=True, random_state=0)[0])
    model.fit(observed).save(tmp_path / "model.npz", training=False)
    found = sd.load(tmp_path / "model.npz")
    with pytest.raises(DataError, match="observed="):
        evaluate_ranking(found, held_out)
    assert evaluate_ranking(found, held_out, [3, 8], observed=observed) == pytest.approx(
        evaluate_ranking(model, held_out, [3, 8])
    )
    with pytest.raises(DataError, match=r"observed has the shape \(59, 25\)"):
        evaluate_ranking(found, held_out, observed=observed[:59])


def test_items_are_excluded_for_all_or_for_each_user():
    R = make_ratings(40, 25, 3, density=0.3, random_state=0)[0]
    model = MatrixFactorization(3, reg=0.05, random_state=0).fit(R)
    scores = model.predict(np.argwhere(np.ones((2, 25))), clip=False).reshape(2, 25)
    more = sparse.random_array((2, 25), density=0.4, random_state=np.random.default_rng(0)).tocsr()
    for options, gone in (
        ({"exclude": more}, (R[:2].toarray() != 0) | (more.toarray() != 0)),
        ({"exclude": more, "filter_seen": False}, more.toarray() != 0),
        ({"exclude": [3, 9, 11]}, (R[:2].toarray() != 0) | np.isin(np.arange(25), [3, 9, 11])),
        (
            {"exclude": [3, 9, 11], "items": [1, 3, 5], "filter_seen": False},
            ~np.isin(np.arange(25), [[1, 5]] * 2),
        ),
    ):
        left = np.where(gone, -np.inf, scores)
        items = model.recommend([0, 1], 2, **options).items
        assert items.tolist() == np.argsort(-left, axis=1)[:, :2].tolist()
    for wrong, message in (
        (more[:1], r"exclude has the shape \(1, 25\), but a matrix needs \(2, 25\)"),
        (np.ones((2, 25)), "give a vector of ids"),
        (np.arange(25), "leaves no item"),
        ([99], "the item 99 was not in fit"),
    ):
        with pytest.raises(DataError, match=message):
            model.recommend([0, 1], exclude=wrong)


def test_users_without_ratings_are_told_once(monkeypatch):
    """Not once a batch; other warnings pass."""
    monkeypatch.setattr("stradask.algorithms.factorization.ranking._BATCH", 4)
    counts = make_ratings(30, 20, 2, density=0.4, implicit=True, random_state=0)[0]
    observed, unknown = counts.tolil(), np.arange(0, 30, 3)
    observed[unknown] = 0
    model = MatrixFactorization(2, implicit=True, random_state=0).fit(sparse.csr_array(observed))
    in_fit = pytest.warns(UserWarning, match="relevant cells were in fit")
    with in_fit, pytest.warns(UserWarning, match="users without ratings") as caught:
        evaluate_ranking(model, counts)
    told = [str(warning.message) for warning in caught if "without ratings" in str(warning.message)]
    assert len(told) == 1
    assert told[0].startswith("users without ratings, 10 of 30, all get the same items")


def test_what_cannot_be_judged_is_refused():
    held_out = sparse.csr_array((3, 3))
    with pytest.raises(DataError, match=r"model must be MatrixFactorization.* got 'ours'"):
        evaluate_ranking("ours", held_out)
    with pytest.raises(NotFittedError):
        evaluate_ranking(sd.EASE(), held_out)
    model = sd.Popularity().fit(sparse.csr_array(np.ones((3, 2))))
    with pytest.raises(DataError, match=r"held_out has the shape \(3, 3\)"):
        evaluate_ranking(model, held_out)
    with pytest.raises(DataError, match="held_out has no stored value"):
        evaluate_ranking(model, sparse.csr_array((3, 2)))
