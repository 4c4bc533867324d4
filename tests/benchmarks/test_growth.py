"""How costs grow: the exponents, what is marked, and the command."""

import json

import numpy as np
import pytest

from stradask.benchmarks import growth


def quadratic(size):
    """A fit that takes size squared bytes, and time that is counted by the test's clock."""
    return lambda: np.ones(size**2, np.uint8)


def test_memory_of_a_square_is_seen_and_marked(monkeypatch):
    monkeypatch.setattr(growth, "_seconds", lambda fit: 1.0)
    sweep = growth.Sweep("squares", "side", (500, 1000, 2000, 4000), quadratic, 1.0, 1.0)
    told = []
    record = growth.measure(sweep, told.append)
    assert record["exponent"] == pytest.approx(0, abs=1e-9)
    assert record["bytes_exponent"] == pytest.approx(2, abs=0.01)
    assert growth.too_steep(record)
    assert not growth.too_steep(record | {"bytes_promised": 2.0})
    assert len(told) == 4
    assert "grows faster than promised" in growth.table([record])


def test_the_command_measures_and_leaves_records_and_a_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(growth, "_ENOUGH", 0.01)
    squares = growth.Sweep("squares", "side", (100, 200, 400), quadratic, 2.0, 2.0)
    monkeypatch.setattr(growth, "sweeps", lambda quick: [squares] if quick else [])
    assert growth.main(["--quick", "--only", "squares", "--out", str(tmp_path)]) in (0, 1)  # times so short
    [record] = [json.loads(line) for line in (tmp_path / "growth.jsonl").read_text().splitlines()]
    assert record["sweep"]["sizes"] == [100, 200, 400]
    assert min(record["sweep"]["seconds"]) > 0
    assert (tmp_path / "growth.png").stat().st_size > 5000
    assert "squares" in capsys.readouterr().out


def test_a_name_that_no_sweep_has(tmp_path, capsys):
    with pytest.raises(SystemExit):
        growth.main(["--only", "nothing", "--out", str(tmp_path)])
    assert "no sweep of that name" in capsys.readouterr().err


def test_every_sweep_fits_its_smallest_size():
    for sweep in growth.sweeps(quick=True):
        assert callable(sweep.make(max(2, sweep.sizes[0] // 4)))
