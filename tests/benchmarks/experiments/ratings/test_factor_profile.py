"""The profile of least squares of counts: parts that add up, and operations as they are counted."""

import time

import pytest

from stradask.benchmarks.experiments.ratings import factor_profile
from stradask.datasets import make_ratings


def test_a_clock_counts_inner_calls_once():
    clock = factor_profile.Clock()
    inner = clock.timed("inner", lambda: sum(range(300_000)))
    began = time.process_time()
    clock.timed("outer", lambda: (inner(), sum(range(300_000))))()
    assert clock.spent["inner"] + clock.spent["outer"] <= time.process_time() - began
    assert min(clock.spent.values()) > 0


def test_a_table_of_parts_and_their_shares(monkeypatch):
    R = make_ratings(200, 60, 3, density=0.2, implicit=True, random_state=0)[0]
    monkeypatch.setattr(factor_profile, "load_ratings", lambda *args, **given: R)
    monkeypatch.setattr(factor_profile, "_PRODUCT", 256)
    (record,) = factor_profile.measure("drawn", factors=(16,))
    assert set(record["milliseconds"]) == {"steps", "turns", "gram"}
    assert record["operations"]["steps"] == pytest.approx(20e-9 * R.nnz * 16)
    assert record["operations"]["turns"] == pytest.approx(4e-9 * 260 * 256)
    share = factor_profile.rate(record, "steps") / record["blas"]
    assert f"{share:.2f}" in factor_profile.table([record]).text()
    assert f"{R.nnz:,} counts of 60 items by 200 users" in factor_profile.setting([record])
