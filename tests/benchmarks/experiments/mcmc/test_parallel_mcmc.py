"""The comparison of parallel MCMC: a small run, what is counted, and its table."""

import json

import numpy as np
import pytest
from scipy.stats import norm

from stradask.benchmarks.experiments.mcmc import parallel_mcmc
from stradask.benchmarks.mcmc_cases import Truth


@pytest.mark.slow
def test_a_small_run_keeps_its_record_and_shows_it(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_mcmc, "N_WARMUP", 100)
    parallel_mcmc.main(["--quick", "--out", str(tmp_path)])
    (record,) = map(json.loads, (tmp_path / "records.jsonl").read_text().splitlines())
    runs = {run["method"]: run for run in record["runs"]}
    assert runs.keys() == {*parallel_mcmc.METHODS, "coreset", "full chain"}
    assert runs["auto"]["mean_error"] < 0.05  # 4,000 weighted draws
    assert all(run["mean_error"] < 2 for run in runs.values())
    draws = 2 * 200 * 20  # chains, draws, parameters
    assert runs["consensus"]["sent"] == 8 * draws
    assert runs["consensus"]["messages"] == 1
    assert runs["auto"]["sent"] >= 8 * (2 * draws + parallel_mcmc.N_DRAWS)
    assert runs["auto"]["messages"] >= 2
    text = parallel_mcmc.table(record)
    assert (tmp_path / "table.md").read_text().startswith(text)
    assert (tmp_path / "errors.png").stat().st_size > 10_000
    assert runs["coreset"]["messages"] == 1 + parallel_mcmc.QUICK_STEPS[0]
    assert f"| {runs['swiss']['mean_error']:.3f} |" in text
    figure = parallel_mcmc.picture(record)
    assert figure.axes[0].get_title() == "logistic"
    assert {line.get_label() for line in figure.axes[0].lines} >= runs.keys()
    sent = {line.get_label(): line.get_xdata()[0] for line in figure.axes[1].lines}
    assert sent["consensus"] == 8 * draws / 1000


def test_errors_are_in_posterior_standard_deviations():
    rng = np.random.default_rng(0)
    known = Truth(np.array([1.0, -2.0]), np.array([1.0, 3.0]), np.zeros((2, 2)), "known")
    draws = known.mean + known.sd * (0.5 + 2 * rng.standard_normal((200_000, 2)))
    found = parallel_mcmc.errors(draws, None, known)
    assert found["mean_error"] == pytest.approx(0.5, abs=0.02)
    assert found["sd_error"] == pytest.approx(np.log(2), abs=0.02)
    shift = norm.logpdf((draws - known.mean) / known.sd) - norm.logpdf(
        draws, known.mean + known.sd / 2, 2 * known.sd
    )
    weights = shift.sum(axis=1)
    weighed = parallel_mcmc.errors(draws, weights - np.log(np.exp(weights).sum()), known)
    assert max(weighed.values()) < 0.02
