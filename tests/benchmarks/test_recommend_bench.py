"""``stradask bench recommend``: splits, tuning by the validation part alone, and the figures of records."""

import json

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.benchmarks import recommend
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


def test_the_command_line_has_a_row_for_each_system(choices, tmp_path, capsys):
    cells = choices.tocoo()
    lines = [f"{u},{j},1" for u, j in zip(cells.row, cells.col, strict=True)]
    (tmp_path / "choices.csv").write_text("\n".join(lines) + "\n")
    arguments = ["--quick", "--dataset", str(tmp_path / "choices.csv"), "--out", str(tmp_path / "out")]
    assert main(["bench", "recommend", *arguments]) == 0
    shown = capsys.readouterr().out
    records = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]
    assert [record["system"] for record in records] == list(recommend.systems())
    for record in records:
        assert record["system"] in shown
        assert f"{record['figures']['ndcg@20']:.4f} ±" in shown
        assert ("iteration_seconds" in record) == ("Factor" in record["system"] or "ALS" in record["system"])
    assert "NDCG@20" in (tmp_path / "out" / "report.html").read_text()
    assert main(["bench", "recommend", "--param", "a=1", *arguments]) == 2
    assert main(["bench", "recommend", "--against", "libmf", *arguments]) == 2
    assert "not libmf" in capsys.readouterr().err
