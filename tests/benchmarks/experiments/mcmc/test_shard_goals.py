"""Combined shards against the truth, a chain of all rows, and intervals that must cover."""

import json

import numpy as np
import pytest

from stradask.benchmarks.experiments.mcmc import shard_goals


def test_a_small_run_keeps_its_record(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_goals, "QUICK", {"rows": 2_000, "columns": 4, "n_seeds": 2, "n_sets": 2})
    monkeypatch.setattr(shard_goals, "TRUTH", 10_000)
    monkeypatch.setattr(shard_goals, "PROPOSALS", 2_000)
    monkeypatch.setattr(shard_goals, "COVERED", {"rows": 1_000, "columns": 3})
    shard_goals.main(["--quick", "--out", str(tmp_path)])
    (record,) = map(json.loads, (tmp_path / "records.jsonl").read_text().splitlines())
    assert record["error"] < 0.15
    assert all(run["k_hat"] < 0.7 for run in record["runs"])
    assert 0 <= record["covered"] <= 1
    assert min(record["chain_seconds"].values()) > 0
    spent = np.median([run["shard_seconds"] + run["combine_seconds"] for run in record["runs"]])
    part = record["parts_of_a_chain"]["nuts"]
    assert part == pytest.approx(spent / record["chain_seconds"]["nuts"], rel=0.01)
    assert f"| {record['error']:.3f} |" in shard_goals.table(record)


def test_the_truth_is_that_of_a_closed_form(monkeypatch):
    # One column, and a grid.
    X, y, _ = shard_goals.data_set(400, 1, 3)
    mean, sd, worth = shard_goals.truth(X, y)
    grid = np.linspace(-4, 4, 8001)
    logp = -np.logaddexp(0, -(X * y[:, None]) @ grid[None]).sum(axis=0) - grid**2 / (2 * 0.25)
    p = np.exp(logp - logp.max()) / np.exp(logp - logp.max()).sum()
    assert worth > 50_000
    assert mean[0] == pytest.approx(p @ grid, abs=0.02 * sd[0])
    assert sd[0] == pytest.approx(np.sqrt(p @ (grid - p @ grid) ** 2), rel=0.02)


@pytest.mark.slow
def test_intervals_of_combined_shards_cover():
    found = shard_goals.coverage(2_000, 5, 200, lambda line: None)
    assert 0.86 < found["covered"] < 0.94
    assert found["largest_k_hat"] < 0.7
