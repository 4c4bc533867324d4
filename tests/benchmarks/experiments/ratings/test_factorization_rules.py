"""The record of the rules of matrix factorization can be made anew."""

import json

import numpy as np
import pytest

from stradask.algorithms.factorization import rules
from stradask.benchmarks.experiments.ratings import factorization_rules
from stradask.datasets import make_ratings


def test_rows_of_ratings_and_counts(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(factorization_rules, "RATINGS", ((60, 30, 2, 0.3, 0.5),))
    monkeypatch.setattr(factorization_rules, "COUNTS", ((80, 30, 2, 0.3, 0.3, 0.5),))
    monkeypatch.setattr(factorization_rules, "_ALPHAS", (3,))
    monkeypatch.setattr(factorization_rules, "RECORD", tmp_path / "new" / "records.jsonl")
    R = make_ratings(50, 20, 2, density=0.3, levels=np.arange(1, 6), random_state=0)[0].tocoo()
    lines = [f"{u},{j},{r:g}" for u, j, r in zip(R.row, R.col, R.data, strict=True)]
    (tmp_path / "ratings.csv").write_text("\n".join(lines) + "\n")
    factorization_rules.main(["--data", str(tmp_path / "ratings.csv"), "--write"])
    rows = [json.loads(line) for line in (tmp_path / "new" / "records.jsonl").read_text().splitlines()]
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
    assert [row["rule"] for row in rows] == ["solver"] * 2 + ["counts"] * 2
    assert all(0 < row[name] < 3 for row in rows[:2] for name in ("als", "sgd", "biases"))
    assert {row["auto"] for row in rows[:2]} == {"als"}
    assert all(0 < row["default"] <= 1 and 0 < row["tuned"] <= 1 for row in rows[2:])
    with pytest.raises(SystemExit):
        factorization_rules.main(["--rules", "solver", "--write"])


def test_the_record_supports_the_rules():
    rows = [json.loads(line) for line in factorization_rules.RECORD.read_text().splitlines()]
    ratings = [row for row in rows if row["rule"] == "solver"]
    for row in ratings:
        chosen = "sgd" if row["ratings"] >= rules.DESCENT_FROM else "als"
        assert row[chosen] <= 1.001 * min(row["als"], row["sgd"])
        assert row[chosen] <= row["biases"]
    counts = [row for row in rows if row["rule"] == "counts"]
    assert len(ratings) >= 8
    assert len(counts) >= 8
    assert sum(row["shown"] for row in counts) >= len(counts) / 4
    near = [row["default"] / row["tuned"] > 0.97 for row in counts]
    assert sum(near) >= 0.9 * len(counts)
