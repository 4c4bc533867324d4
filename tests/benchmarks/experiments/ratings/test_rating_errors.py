"""Errors over folds: every rating is held out once, and settings do not look at what is held out."""

import json

import numpy as np
import pytest
from scipy import sparse

from stradask.benchmarks.experiments.ratings import rating_errors
from stradask.datasets import make_ratings


def test_every_rating_is_held_out_once():
    R, _ = make_ratings(20, 15, 2, density=0.4, random_state=0)
    parts = list(rating_errors.folds(R, 4, seed=0))
    np.testing.assert_array_equal(sum(held.toarray() for _, held in parts), R.toarray())
    for learned, held in parts:
        np.testing.assert_array_equal((learned + held).toarray(), R.toarray())
        assert held.nnz in (R.nnz // 4, R.nnz // 4 + 1)
        assert not learned.multiply(held).nnz


def test_errors_are_of_clipped_predictions():
    """One rating of each user is known, all of them 3 and 5: nothing above 5 is predicted."""
    learned = sparse.csr_array([[5.0, 5, 0], [5, 5, 5], [3, 3, 3]])
    held = sparse.csr_array([[0, 0, 5.0], [0, 0, 0], [0, 0, 0]])
    found, seconds = rating_errors.error(learned, held, 1, solver="als", n_components=1, reg=1e-3)
    assert 0 <= found < 0.5
    assert seconds > 0
    held = sparse.csr_array([[0, 0, 9.0], [0, 0, 0], [0, 0, 0]])
    assert rating_errors.error(learned, held, 1, solver="als", n_components=1)[0] >= 4


def test_a_line_tells_errors_and_the_settings_chosen(tmp_path, capsys, monkeypatch):
    R = make_ratings(60, 30, 2, density=0.4, noise=0.2, random_state=0)[0].tocoo()
    lines = [f"{u},{i},{r}" for u, i, r in zip(R.row, R.col, R.data, strict=True)]
    (tmp_path / "r.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setitem(
        rating_errors.GRIDS, "als", ({"max_iter": 10}, {"reg": (50.0, 0.05), "n_components": (2,)})
    )
    rating_errors.main(["--dataset", str(tmp_path / "r.csv"), "--solvers", "als", "--first", "2"])
    line = capsys.readouterr().out.strip()
    told = json.loads(line.partition(";")[2])
    assert told == {"solver": "als", "max_iter": 10, "reg": 0.05, "n_components": 2}
    assert 0.15 < float(line.split()[2]) < 0.6
    with pytest.raises(SystemExit):
        rating_errors.main(["--folds", "1"])
