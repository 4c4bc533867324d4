"""``stradask bench recommend``: splits, tuning by the validation part alone, and the figures of records."""

import json

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.benchmarks.comparisons import recommend, recommend_ratings
from stradask.cli.arguments import main
from stradask.datasets import make_ratings


@pytest.fixture(scope="module")
def choices():
    R = make_ratings(120, 40, 3, density=0.25, implicit=True, random_state=0)[0]
    R.data[:] = 1
    return sparse.csr_array(R)


def test_parts_are_a_division_of_the_choices_of_each_user(choices):
    train, validation, test = recommend.parts(choices, 0)
    np.testing.assert_array_equal((train + validation + test).toarray(), choices.toarray())
    assert max((part.toarray() > 0).sum() for part in (validation, test)) < 0.25 * choices.nnz
    assert not train.multiply(test).nnz + validation.multiply(test).nnz + train.multiply(validation).nnz


def test_a_system_is_tuned_on_the_validation_part_and_judged_by_the_test_part(choices):
    train, validation, test = recommend.parts(choices, 0)
    system = recommend.System(sd.EASE, {"reg": (1.0, 10.0, 100.0, 1000.0)})
    found = recommend.measure(system, train, validation, test, 3, seed=1)
    tried = recommend.settings_of(system, 3, 1)
    assert found["tried"] == len(tried) == 3
    scores = [sd.evaluate_ranking(sd.EASE(**one).fit(train), validation, 20)["ndcg"] for one in tried]
    assert found["settings"] == tried[int(np.argmax(scores))]
    assert found["validation_ndcg"] == max(scores)
    model = sd.EASE(**found["settings"]).fit(sparse.csr_array(train + validation))
    assert found["figures"] == sd.evaluate_ranking(model, test, [10, 20, 100])
    each = sd.evaluate_ranking(model, test, 20, by_user=True)["ndcg"]
    assert found["half_width"] == pytest.approx(1.96 * each.std(ddof=1) / len(each) ** 0.5)


def test_the_grid_of_factors_is_that_of_the_default_penalty(choices):
    model = (
        recommend.systems()["MatrixFactorization"].make(penalty=30.0, n_components=4, alpha=3.0).fit(choices)
    )
    scale = np.sqrt(choices.nnz / 120 + 40 / 3)
    assert model.reg_ * scale == pytest.approx(30)
    assert model.n_iter_ == recommend.ITERATIONS


@pytest.fixture(scope="module")
def ratings():
    return sparse.csr_array(make_ratings(80, 30, 2, density=0.3, levels=np.arange(1, 6), random_state=0)[0])


def test_alternated_biases_are_the_least_squares(ratings):
    model = recommend_ratings.Biases(3.0, 5.0).fit(ratings)
    cells = ratings.tocoo()
    design = np.zeros((cells.nnz, 110))
    design[np.arange(cells.nnz), cells.row] = design[np.arange(cells.nnz), 80 + cells.col] = 1
    penalty = np.diag(np.repeat([3.0, 5.0], [80, 30]))
    solution = np.linalg.solve(design.T @ design + penalty, design.T @ (cells.data - cells.data.mean()))
    np.testing.assert_allclose(np.concatenate(model._biases), solution, atol=1e-6)
    pairs = np.column_stack([cells.row, cells.col])
    expected = np.clip(cells.data.mean() + design @ solution, 1, 5)
    np.testing.assert_allclose(model.predict(pairs), expected, atol=1e-6)


def test_the_interval_of_an_error_is_that_of_drawing_users():
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(300), rng.integers(1, 40, 300))
    misses = rng.normal(size=len(users)) * rng.uniform(0.5, 1.5, 300)[users]
    squares, counts = np.bincount(users, misses**2), np.bincount(users)
    drawn = rng.integers(0, 300, (4000, 300))
    spread = np.sqrt(squares[drawn].sum(axis=1) / counts[drawn].sum(axis=1)).std()
    assert recommend_ratings.half_width(misses, users) == pytest.approx(1.96 * spread, rel=0.06)


def test_a_predictor_is_tuned_on_the_validation_part(ratings):
    train, validation, test = recommend.parts(ratings, 0)
    system = recommend_ratings.systems()["biases"]
    found = recommend_ratings.measure(system, train, validation, test, 4, seed=1)

    def error(settings, learnt, judged):
        cells = judged.tocoo()
        predicted = system.make(**settings).fit(learnt).predict(np.column_stack([cells.row, cells.col]))
        return np.sqrt(np.mean((predicted - cells.data) ** 2))

    tried = recommend.settings_of(system, 4, 1)
    scores = [error(settings, train, validation) for settings in tried]
    assert found["settings"] == tried[int(np.argmin(scores))]
    assert found["figures"]["rmse"] == pytest.approx(error(found["settings"], train + validation, test))


def test_the_command_line_has_a_row_for_each_system(choices, tmp_path, capsys):
    cells = choices.tocoo()
    rows = zip(cells.row, cells.col, strict=True)
    lines = [f"{u},{j},{1 + (3 * u + 5 * j) % 7 % 5}" for u, j in rows]
    (tmp_path / "choices.csv").write_text("\n".join(lines) + "\n")
    arguments = ["--quick", "--dataset", str(tmp_path / "choices.csv"), "--out", str(tmp_path / "out")]
    assert main(["bench", "recommend", *arguments]) == 0
    shown = capsys.readouterr().out
    records = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]
    parts = {kind: [one for one in records if one["table"] == kind] for kind in ("choices", "ratings")}
    assert [record["system"] for record in parts["choices"]] == list(recommend.systems())
    assert [record["system"] for record in parts["ratings"]] == list(recommend_ratings.systems())
    for record in parts["ratings"]:
        assert f"{record['figures']['rmse']:.4f} ± {record['half_width']:.4f}" in shown
        assert len(record.get("by_seed", "123")) == recommend.SEEDS
    for record in parts["choices"]:
        assert record["system"] in shown
        assert f"{record['figures']['ndcg@20']:.4f} ±" in shown
        assert ("iteration_seconds" in record) == ("Factor" in record["system"] or "ALS" in record["system"])
    assert "NDCG@20" in (tmp_path / "out" / "report.html").read_text()
    assert main(["bench", "recommend", "--param", "a=1", *arguments]) == 2
    assert main(["bench", "recommend", "--against", "sklearn", *arguments]) == 2
    assert "not sklearn" in capsys.readouterr().err
