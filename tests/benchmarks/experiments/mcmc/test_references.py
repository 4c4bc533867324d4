"""Comparisons with reference draws, and coverage: by closed forms."""

import numpy as np
import pytest

import stradask as sd
from stradask.benchmarks.experiments.mcmc import coverage, posteriordb


def test_names_of_entries_count_from_one_in_the_reference():
    draws = np.random.default_rng(0).normal([0.0, 5.0, 2.0], [1.0, 2.0, 1.0], (4000, 3))
    posterior = sd.Posterior(draws, {"beta": (2,), "sigma": ()})
    reference = {
        "beta[1]": {"mean": 0.0, "sd": 1.0},
        "beta[2]": {"mean": 5.0, "sd": 2.0},
        "spread": {"mean": 3.0, "sd": 1.0},
    }
    found = posteriordb.compared(posterior, reference, {"spread": "sigma"})
    assert found["parameters"] == 3
    assert found["error"] == pytest.approx(np.sqrt(1 / 3), abs=0.03)
    assert found["sd_ratio"] < 1.05
    assert found["least_ess"] == pytest.approx(4000, rel=0.1)
    record = {
        "name": "a",
        "method": "nuts",
        "first": 2.0,
        "later": 0.5,
        "verdict": "Good.",
        "level": 0,
    } | found
    assert "**wrong**" in posteriordb.table([record])
    assert "**wrong**" not in posteriordb.table([record | {"error": 0.02}])


def test_coverage_is_that_of_the_draws(monkeypatch):
    def model(rng, seed):
        mean = rng.normal()
        draws = mean + rng.normal() + rng.normal(0, 1, (4000, 1))
        return sd.Posterior(draws, {"mean": ()}), {"mean": mean}

    monkeypatch.setitem(coverage.MODELS, "right", model)
    found = coverage.run("right", 300)
    assert found["coverage"]["mean"]["0.9"] == pytest.approx(0.9, abs=0.05)
    assert found["coverage"]["mean"]["0.5"] == pytest.approx(0.5, abs=0.09)
    assert (found["refused"], found["warned"]) == (0, 0)
