"""Metrics of NUTS: densities by closed forms, and the page by the record."""

import json
from pathlib import Path

import numpy as np
import pytest

from stradask.benchmarks.experiments.mcmc import metrics

ROOT = Path(__file__).parents[4]


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("kind", metrics.KINDS)
def test_densities_are_those_of_the_correlations(kind):
    model, condition = metrics.gaussian(kind, 6)
    q = np.arange(1.0, 7.0)
    logp, gradient = model.logp_grad(q)
    assert logp == pytest.approx(0.5 * q @ gradient)
    covariance = np.linalg.inv(-np.array([model.logp_grad(unit)[1] for unit in np.eye(6)]))
    scales = np.sqrt(np.diag(covariance))
    assert sorted(scales) == pytest.approx(np.logspace(-1, 1, 6))
    C = covariance / scales / scales[:, None]
    np.testing.assert_allclose(C, metrics.correlations(kind, 6), atol=1e-9)
    assert np.linalg.cond(C) == pytest.approx(condition)
    if kind == "autoregressive 0.9":
        assert C[0, 2] == pytest.approx(0.81)


def test_the_page_has_the_table_of_the_record():
    lines = (ROOT / "benchmarks/results/metrics/records.jsonl").read_text().splitlines()
    assert metrics.table(map(json.loads, lines)).strip() in (ROOT / "docs/mcmc-measured.md").read_text()
