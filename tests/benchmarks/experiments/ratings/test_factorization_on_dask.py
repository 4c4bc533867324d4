"""Worker processes against threads: that both are measured, alternate, and agree."""

import pytest

from stradask.benchmarks.experiments.ratings import factorization_on_dask
from stradask.benchmarks.objectives._ratings import load_ratings


@pytest.mark.cluster
def test_workers_and_threads_are_compared(capsys, monkeypatch):
    R = load_ratings("generated-10m", 0, implicit=False, quick=True)
    assert R.nnz == pytest.approx(100_000, rel=0.01)
    assert set(R.data) == {0.5 * level for level in range(1, 11)}
    monkeypatch.setattr(factorization_on_dask, "load_ratings", lambda *args, **options: R)
    factorization_on_dask.main(["--repeats", "1", "--epochs", "3", "--factors", "8"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("equal to the bit")
    assert float(lines[-1].split()[1].rstrip(",")) > 0
    assert '"bytes_sent_an_epoch"' in lines[0]
    with pytest.raises(SystemExit):
        factorization_on_dask.main(["--epochs", "1"])
