"""Formats of factors: that each has its error and its bytes."""

import pytest

from stradask.benchmarks.experiments.ratings import factor_formats
from stradask.benchmarks.objectives._ratings import load_ratings


@pytest.mark.cluster
def test_each_format_has_an_error_and_bytes(capsys, monkeypatch):
    R = load_ratings("generated-10m", 0, implicit=False, quick=True)[:300]
    monkeypatch.setattr(factor_formats, "load_ratings", lambda *args, **options: R)
    factor_formats.main(["--seeds", "1", "--epochs", "3", "--factors", "8"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["as", "float32", "float16", "bfloat16", "log8"]
    apart = [float(line[line.index("error") + 2]) for line in lines]
    assert apart[:2] == [0, 0]
    assert all(abs(value) < 0.05 for value in apart)
    sent = [float(line[-4]) for line in lines]
    assert sent[0] == sent[1] > sent[2] == sent[3] > sent[4] > 0
