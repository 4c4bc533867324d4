"""Penalties that are chosen by default."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import stradask as sd
from stradask.algorithms.factorization import tuning
from stradask.algorithms.factorization.matrix_factorization import MatrixFactorization
from stradask.algorithms.factorization.rules import RATINGS_FIRST, RATINGS_LADDER
from stradask.datasets import make_ratings, rating_split


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_the_default_ranks_within_a_few_percent_of_the_best_penalty(seed):
    R, _ = make_ratings(1200, 150, 5, density=0.15, noise=0.3, implicit=True, random_state=seed)
    observed, held = rating_split(R, random_state=seed)
    model = sd.MatrixFactorization(16, implicit=True, random_state=0).fit(observed)
    scale = model.reg_ * np.array([0.1, 0.25, 0.5, 1, 2, 4, 10])
    found = [
        sd.evaluate_ranking(
            sd.MatrixFactorization(16, implicit=True, reg=reg, random_state=0).fit(observed), held, 20
        )["ndcg"]
        for reg in scale
    ]
    assert sd.evaluate_ranking(model, held, 20)["ndcg"] == found[3]
    assert found[3] > 0.96 * max(found)
    assert found[3] > 1.1 * min(found)


def test_trials_climb_to_the_top_of_the_ladder(monkeypatch):
    R, _ = make_ratings(50, 20, 2, density=0.3, implicit=True, random_state=0)
    ladder = np.array(tuning.LADDER)
    for top in np.sort(np.concatenate([ladder, np.sqrt(ladder[1:] * ladder[:-1])])):
        tried = []

        def score(model, train, held, penalty, seed, top=top, tried=tried):
            tried.append(penalty)
            return -abs(np.log(penalty / top))

        monkeypatch.setattr(tuning, "_score", score)
        model = sd.MatrixFactorization(2, implicit=True, max_iter=1, alpha=2, random_state=0).fit(R)
        scale = np.sqrt(R.nnz / 50 + 20 / 2)
        assert model.reg_ == pytest.approx(top / scale)
        assert len(tried) == len(set(tried))


def test_trials_hold_out_a_part_of_each_user_and_leave_something():
    rng = np.random.default_rng(0)
    table = np.where(rng.random((60, 30)) < 0.2, rng.integers(-1, 4, (60, 30)), 0)
    table[0] = 0
    table[1] = np.eye(30, dtype=int)[3]
    R = sparse.csr_array(table.astype(float))
    train, held = tuning._parts(R, np.random.default_rng(1))
    np.testing.assert_array_equal((train + held).toarray(), table)
    assert not train.multiply(held).nnz
    liked = (table > 0).sum(axis=1)
    np.testing.assert_array_equal(
        np.diff(held.indptr), np.where(liked > 1, np.maximum(1, np.floor(0.2 * liked)), 0)
    )
    assert (held.data > 0).all()


def test_many_ratings_are_tried_on_a_part_of_the_users(monkeypatch):
    R, _ = make_ratings(400, 60, 3, density=0.2, implicit=True, random_state=0)
    shapes = []
    monkeypatch.setattr(tuning, "_MOST_RATINGS", 1000)
    monkeypatch.setattr(tuning, "_MOST_USERS", 20)

    def score(model, train, held, penalty, seed):
        shapes.append((train.shape[0], train.nnz + held.nnz, np.count_nonzero(np.diff(held.indptr))))
        return penalty

    monkeypatch.setattr(tuning, "_score", score)
    sd.MatrixFactorization(2, implicit=True, max_iter=1, random_state=0).fit(R)
    n_users, n_ratings, n_judges = shapes[0]
    assert 50 < n_users < 150
    assert n_judges == 20
    assert n_ratings < 1300


def test_nothing_to_hold_out_takes_the_first_step():
    R = sparse.csr_array(np.eye(6))
    model = sd.MatrixFactorization(2, implicit=True, max_iter=2, random_state=0).fit(R)
    assert model.reg_ == pytest.approx(tuning.LADDER[2] / np.sqrt(1 + 6 / 3))


@pytest.mark.parametrize("solver", ["als", "sgd", "ccd", "gibbs"])
def test_penalties_of_ratings_suit_any_scale(solver):
    """Ratings of other units give the same model in these units."""
    R, _ = make_ratings(80, 40, 3, density=0.25, noise=0.5, random_state=0)
    rows, columns = R.tocoo().coords
    pairs = np.column_stack([rows, columns])
    options = {"solver": solver, "dtype": "float64", "tol": 0, "max_iter": 6, "random_state": 0}
    model = MatrixFactorization(4, **options).fit(pairs, R.data)
    scaled = MatrixFactorization(4, **options).fit(pairs, 50 * R.data - 20)
    assert scaled.reg_ == pytest.approx(50 * model.reg_)
    np.testing.assert_allclose(scaled.reg_offset_, model.reg_offset_)
    if solver in ("sgd", "gibbs"):  # which begin at the same point in all units
        expected = 50 * model.predict(pairs, clip=False) - 20
        np.testing.assert_allclose(scaled.predict(pairs, clip=False), expected, rtol=1e-6)


def test_fits_that_are_worse_than_biases_say_so():
    """On ratings held out by trials or to end early, and else on those of the fit; others are silent."""
    rng = np.random.default_rng(0)
    b, c = rng.standard_normal(300), rng.standard_normal(200)
    cells = np.unique(rng.integers(0, [300, 200], (3000, 2)), axis=0)
    y = 3 + b[cells[:, 0]] + c[cells[:, 1]] + 0.5 * rng.standard_normal(len(cells))
    for options, message in (
        ({"bias": False}, "misses ratings held out by .* take bias=True"),
        ({"reg": 1e-4, "early_stopping": True, "n_iter_no_change": 15}, "held out by .* take a larger reg"),
        ({"reg": 1e3, "bias": False}, "misses its own ratings by .* take bias=True"),
    ):
        with pytest.warns(ConvergenceWarning, match=message):
            MatrixFactorization(8, solver="als", random_state=0, **options).fit(cells, y)
    for solver in ("als", "sgd", "gibbs"):
        MatrixFactorization(8, solver=solver, random_state=0).fit(cells, y)


def test_trials_for_ratings_find_the_penalty_of_the_least_error():
    """Noisy ratings are shrunk more, clear ones less; the middle stays where errors do not tell."""
    options = {"density": 0.3, "random_state": 0}
    found = {}
    for noise in (0.1, 2.0):
        R, _ = make_ratings(150, 80, 3, noise=noise, **options)
        model = MatrixFactorization(4, solver="als", random_state=0).fit(R)
        found[noise] = model.reg_ / R.data.std()
    assert found[0.1] < RATINGS_LADDER[RATINGS_FIRST] < found[2.0]
    few = MatrixFactorization(2, random_state=0).fit(R[:6])
    assert few.reg_ == pytest.approx(RATINGS_LADDER[RATINGS_FIRST] * R[:6].data.std())
