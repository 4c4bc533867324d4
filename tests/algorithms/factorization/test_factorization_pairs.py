"""Ranking losses of pairs: gradients against finite differences, draws against enumeration."""

import math

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.utils import check_random_state

from stradask.algorithms.factorization.early_stopping import hold_out
from stradask.algorithms.factorization.matrix_factorization import MatrixFactorization
from stradask.algorithms.factorization.ranking import evaluate_ranking
from stradask.algorithms.factorization.reading import read_ratings
from stradask.datasets import make_ratings, rating_split
from stradask.errors import DataError
from stradask.kernels.factorization.pairwise import BPR, LOGISTIC, WARP, is_stored, rank_block

LOSSES = {"bpr": BPR, "warp": WARP, "logistic": LOGISTIC}


def test_cells_are_looked_up():
    rng = np.random.default_rng(0)
    table = sparse.csr_array(rng.random((7, 9)) < 0.4).tocoo()
    order = np.lexsort((table.col, table.row))
    rows, columns = table.row[order].astype(np.int32), table.col[order].astype(np.int32)
    found = [[is_stored(2, 20, rows, columns, u, j) for j in range(9)] for u in range(7)]
    expected = np.zeros((7, 9), bool)
    expected[rows[2:20], columns[2:20]] = True
    np.testing.assert_array_equal(found, expected)


def loss_of(name, P, Q, user_bias, item_bias, n_items):
    """The loss of one user, the chosen item 0 and the other item 1, by its formula."""
    x = (user_bias if name == "logistic" else 0) + item_bias + Q @ P[0]
    if name == "bpr":
        return np.log1p(np.exp(x[1] - x[0]))
    if name == "logistic":
        return np.log1p(np.exp(-x[0])) + np.log1p(np.exp(x[1]))
    rank = n_items - 1  # the only other item is drawn at once, and the user has chosen one item
    return sum(1 / k for k in range(1, rank + 1)) * max(1 - x[0] + x[1], 0)


@pytest.mark.parametrize("name", LOSSES)
def test_a_step_is_the_gradient_by_finite_differences(name):
    """One cell and two items: which pair is drawn is known. Penalties are halves of ridge times squares."""
    rng = np.random.default_rng(3)
    many = 1e10  # squares so far: the rate is 1e-5 in both halves of a step, which then add up
    n_items, rate, shapes = 7, 1e-5, [(1, 3), (2, 3), (1,), (2,)]
    start = [0.5 * rng.standard_normal(shape) for shape in shapes]
    start[3][:] = -0.2, 0.3  # so that the margin is violated
    start[2] *= name == "logistic"  # else there are no biases of users

    def objective(flat):
        P, Q, b, c = (
            part.reshape(shape) for part, shape in zip(np.split(flat, [3, 9, 10]), shapes, strict=True)
        )
        penalties = 0.2 * ((P**2).sum() * 2 + (b**2).sum() * 2 * (name == "logistic"))  # the user moves twice
        penalties += 0.3 * ((Q**2).sum() + (c**2).sum())
        return loss_of(name, P, Q, b[0], c, n_items) + penalties / 4

    flat = np.concatenate([part.ravel() for part in start])
    steps = 1e-6 * np.eye(12)
    expected = np.array([(objective(flat + h) - objective(flat - h)) / 2e-6 for h in steps])
    P, Q = (np.pad(part, [(0, 0), (0, 13)]) for part in start[:2])
    p_own, q_own = np.array([[0, many, 0.2, 1.0]]), np.array([[0, many, 0.3, 1.0], [0, many, 0.3, 4.0]])
    p_own[:, 0], q_own[:, 0] = start[2], start[3]
    cells = np.zeros(1, np.int32), np.zeros(1, np.int32)
    rest = (1.0, 1 / 3, True, LOSSES[name], n_items, 5, 0, 0, (0,))
    loss = rank_block(0, 1, *cells, P, Q, p_own, q_own, *rest)
    assert loss == pytest.approx(loss_of(name, *start[:2], start[2][0], start[3], n_items))
    after = np.concatenate([P[:, :3].ravel(), Q[:, :3].ravel(), p_own[:, 0], q_own[:, 0]])
    np.testing.assert_allclose((flat - after) / rate, expected, atol=3e-4)
    q_own[1, 3] = 0  # an item without any choice is not drawn, and there is no other
    before = P.copy()
    assert rank_block(0, 1, *cells, P, Q, p_own, q_own, *rest) == 0
    np.testing.assert_array_equal(P, before)


def test_warp_draws_items_and_estimates_ranks_as_it_says():
    """The loss tells which item was taken after how many tries: frequencies are those by enumeration.

    Of ten items the user has chosen one; of the others three violate the margin. Draws of the chosen item are
    no tries for the estimate, but are among the 32.
    """
    n, tries = 10, 32
    scores = np.array([0.3, -1.2, -2.0, -1.5, 0.0, -3.0, 1.7, -0.71, -4.0, -0.5])
    gaps = 1 - scores[0] + scores[1:]
    violating = gaps[gaps > 0]
    assert len(violating) == 3
    expected: dict = {}
    for t in range(1, tries + 1):
        weight = sum(1 / k for k in range(1, max((n - 1) // t, 1) + 1))
        ways = sum(math.comb(d - 1, t - 1) * 0.6 ** (t - 1) * 0.1 ** (d - t) for d in range(t, tries + 1))
        for gap in violating:
            key = round(weight * gap, 6)
            expected[key] = expected.get(key, 0) + 0.1 * ways
    assert sum(expected.values()) == pytest.approx(1, abs=1e-4)
    P, Q = np.zeros((1, 16)), np.zeros((n, 16))
    P[0, 0], Q[:, 0] = 1, scores
    p_own, q_own = np.array([[0, 1.0, 0, 1]]), np.tile([0, 1.0, 0, 1], (n, 1))
    cell = np.zeros(1, np.int32), np.zeros(1, np.int32)
    found: dict = dict.fromkeys(expected, 0)
    for round_ in range(20_000):  # a rate of 0 moves nothing
        loss = rank_block(0, 1, *cell, P, Q, p_own, q_own, 0.0, 1.0, False, WARP, n, 1, round_, 0, (0,))
        if loss:  # else all 32 tries failed, once in 90,000
            found[round(loss, 6)] += 1
    counts, shares = np.array(list(found.values())), np.array(list(expected.values()))
    assert stats.chisquare(counts, shares / shares.sum() * counts.sum()).pvalue > 1e-3


@pytest.mark.parametrize("loss", LOSSES)
def test_ranking_by_pairs_learns_to_rank(loss):
    R, _ = make_ratings(300, 100, 3, density=0.2, implicit=True, random_state=0)
    observed, held_out = rating_split(R)
    options = {"implicit": True, "loss": loss, "max_iter": 30, "random_state": 0}
    model = MatrixFactorization(4, **options).fit(observed)
    squares = MatrixFactorization(4, implicit=True, random_state=0).fit(observed)
    still = MatrixFactorization(4, **{**options, "max_iter": 1, "learning_rate": 1e-9}).fit(observed)
    models = model, squares, still
    found, other, chance = (evaluate_ranking(m, held_out)["ndcg"] for m in models)
    assert found > 0.8 * other
    assert found > 1.5 * chance
    assert model.history_["objective"][-1] < 0.97 * model.history_["objective"][0]
    assert model.user_bias_.any() == (loss == "logistic")
    threads = MatrixFactorization(4, n_jobs=3, **options).fit(observed)
    np.testing.assert_array_equal(model.item_factors_, threads.item_factors_)
    disliked = observed.copy()
    disliked.data *= np.where(np.arange(observed.nnz) % 5 == 0, -1, 1)
    assert MatrixFactorization(4, **options).fit(disliked).seen_.nnz == observed.nnz
    with pytest.raises(DataError, match=f"loss='{loss}' ranks choices"):
        MatrixFactorization(4, loss=loss).fit(observed)
    with pytest.raises(DataError, match=f"which loss='{loss}' does not"):
        model.transform(observed[:1])


@pytest.mark.parametrize(
    "options", [{}, {"non_negative": True}, *({"loss": loss} for loss in LOSSES)], ids=str
)
def test_early_stopping_keeps_the_model_that_ranks_best(options):
    R, _ = make_ratings(200, 80, 3, density=0.2, implicit=True, random_state=0)
    options = options | {"implicit": True, "reg": 1e-4, "max_iter": 40, "tol": 0, "n_iter_no_change": 4}
    model = MatrixFactorization(8, early_stopping=True, random_state=0, **options).fit(R)
    scores = model.validation_scores_
    assert len(scores) == model.n_iter_
    at = int(np.argmax(scores))
    assert len(scores) == min(at + 5, 40)
    seed = check_random_state(0).randint(2**31)
    entries, *_ = read_ratings(model, R, None, None)
    train, watch = hold_out(model, entries, np.random.default_rng(seed))
    held = ((R > 0).astype(int) - (train.pattern() > 0).astype(int)).tocsr()
    held.eliminate_zeros()
    assert held.nnz == round(0.1 * R.nnz)
    found = evaluate_ranking(model, held, 20, observed=train.pattern())
    assert found["ndcg"] == pytest.approx(scores[at])
    assert watch.score(model._sides) == pytest.approx(scores[at])
    assert model.seen_.nnz == R.nnz
