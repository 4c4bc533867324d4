"""How costs grow: the exponents, what is marked, and the command."""

import contextlib
import json
import time
import warnings

import numpy as np
import pytest

from stradask.benchmarks.experiments import growth, growth_sweeps


def quadratic(size):
    """A fit that takes size squared bytes, and time that is counted by the test's clock."""
    return lambda: np.ones(size**2, np.uint8)


def test_memory_of_a_square_is_seen_and_marked(monkeypatch):
    monkeypatch.setattr(growth, "_seconds", lambda fit, clock: 1.0)
    sides = (2000, 4000, 8000)  # 4 MB and more, beside which what other threads allocate is little
    sweep = growth_sweeps.Sweep("squares", "side", sides, quadratic, 1.0, 1.0)
    told = []
    record = growth.measure(sweep, told.append)
    assert record["exponent"] == pytest.approx(0, abs=1e-9)
    assert record["bytes_exponent"] == pytest.approx(2, abs=0.1)
    assert growth.too_steep(record)
    assert not growth.too_steep(record | {"bytes_promised": 2.0})
    assert len(told) == 3
    assert growth.table([record]).endswith("WORSE")
    assert growth.table([record | {"bytes_promised": 2.0}]).endswith("PASS")


@pytest.mark.slow
def test_the_command_measures_and_leaves_records_and_a_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(growth, "_ENOUGH", 0.01)
    squares = growth_sweeps.Sweep("squares", "side", (100, 200, 400), quadratic, 2.0, 2.0)
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


def test_every_kind_of_cost_is_promised_for_every_family():
    sizes = {}
    for sweep in growth_sweeps.sweeps():
        sizes.setdefault(sweep.family.partition(",")[0], set()).add(sweep.size)
    assert set(sizes) == {"lda", "lasso", "logistic", "factorization", "mcmc"}
    assert all({"threads", "workers"} <= found for found in sizes.values())
    assert {"documents", "tokens a document", "words", "topics"} <= sizes["lda"]
    assert {"rows", "columns", "non-zeros", "penalties"} <= sizes["lasso"]
    assert {"rows", "columns", "non-zeros"} <= sizes["logistic"]
    assert {"ratings", "factors"} <= sizes["factorization"]
    assert {"rows", "columns", "draws"} <= sizes["mcmc"]
    assert len(growth.steepest()) == len({tuple(row[:2]) for row in growth.steepest()})


@pytest.mark.slow
def test_a_place_is_entered_for_each_size_and_left():
    entered = []

    @contextlib.contextmanager
    def place(size):
        entered.append(size)
        yield f"at {size}"
        entered.append(-size)

    def make(where):
        return lambda: entered.append(where) if entered[-1] != where else None

    sweep = growth_sweeps.Sweep("f", "workers", (1, 2), make, -1, 1, place=place, clock=time.perf_counter)
    growth.measure(sweep)
    assert entered == [1, "at 1", -1, 2, "at 2", -2]


def test_small_sizes_of_every_family_are_fitted():
    """What `make` returns fits; the cheapest of each family."""
    seen = set()
    for sweep in growth_sweeps.sweeps(quick=True):
        if sweep.place is contextlib.nullcontext and sweep.family not in seen:
            seen.add(sweep.family)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                sweep.make(max(2, sweep.sizes[0] // 2))()
    assert seen == {sweep.family for sweep in growth_sweeps.sweeps() if sweep.place is contextlib.nullcontext}


@pytest.mark.slow
@pytest.mark.cluster
def test_all_sweeps_run(tmp_path, monkeypatch):
    monkeypatch.setattr(growth, "_ENOUGH", 0.0)
    assert growth.main(["--quick", "--out", str(tmp_path)]) in (0, 1)  # times so short
    found = [json.loads(line)["sweep"] for line in (tmp_path / "growth.jsonl").read_text().splitlines()]
    assert [(r["family"], r["size"]) for r in found] == [tuple(row[:2]) for row in growth.steepest()]
