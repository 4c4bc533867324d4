"""Two processes beside two threads, where they own columns."""

import pytest

from stradask.benchmarks.experiments.linear.owned_columns import beside_threads, models


@pytest.mark.cluster
@pytest.mark.slow
def test_each_model_has_a_line():
    rows = beside_threads(1, shape=(300, 30))
    assert [row[0] for row in rows] == list(models())
    for _, processes, threads, ratio, rounds, _, sent, gap in rows:
        assert float(ratio) == pytest.approx(float(threads) / float(processes), rel=0.3)
        assert int(rounds) > 2
        assert float(sent) > 0
        assert float(gap) < 1e-5
