"""Two workers beside two threads: both are measured, and find the same model."""

import re

import pytest

from stradask.benchmarks.experiments.linear import two_workers


@pytest.mark.slow
@pytest.mark.cluster
def test_fits_on_workers_and_threads_are_timed(capsys, monkeypatch):
    monkeypatch.setattr(two_workers, "CASES", {"tenth": (800, 4, 2), "several": (1800, 4, 3)})
    two_workers.main(["--cases", "tenth", "several", "--repeats", "1", "--divide", "2"])
    line = capsys.readouterr().out.splitlines()[-1]
    name, *seconds = re.fullmatch(r"(\w+): ([\d.]+); ([\d.]+) \(([\d.]+)\); ([\d.]+)", line).groups()
    assert name == "several"
    assert all(float(number) > 0 for number in seconds[:2])


def test_a_model_that_differs_is_an_error(monkeypatch):
    import distributed

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    monkeypatch.setattr(two_workers, "_SAME", 0.0)
    spread = two_workers.spread
    monkeypatch.setattr(two_workers, "spread", lambda client, array: spread(client, array[::-1] * 2))
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
        pytest.raises(AssertionError, match="Not equal"),
    ):
        two_workers.measure(client, (300, 3, 2), 0)
