"""The page about Bayesian models: its code runs as it is written, and its numbers are those that come out."""

import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGE, OWN = DOCS / "mcmc.md", DOCS / "own-models.md"


def test_code_of_the_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 7
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["m"].n_shards_ == 3
    assert abs(names["m"].coef_[0, 0] - 1) < 0.1
    assert len(list((tmp_path / "run.ckpt").iterdir())) == 4 * 4 * 11
    assert names["grouped"].posterior_.names[2:5] == ["intercept", "group_sd", "group[town 0]"]
    assert abs(names["grouped"].posterior_.mean()["group_sd"] - 0.8) < 0.3
    assert abs(names["mixture"].mean()["means"] - [-3, 2]).max() < 0.3
    assert names["posterior"].names == ["mean", "log sd"]
    assert abs((names["apart"]["theta"] > 0).mean() - 0.25) < 0.06
    assert abs(names["apart"].log_evidence[0] - np.log(4 / 3)) < 0.1
    assert abs(names["posterior"].mean()["mean"] - 3) < 0.1
    assert abs(names["found"].draws.mean() - 1) < 0.1  # of the product


def test_own_models_are_as_their_page_shows(capsys):
    text = OWN.read_text(encoding="utf-8")
    names: dict = {}
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block, str(OWN), "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    (shown,) = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for line, one in zip(printed, shown.splitlines(), strict=True):
        assert line.split()[0] == one.split()[0]
        for number, other in zip(line.split()[1:], one.split()[1:], strict=True):
            if re.fullmatch(r"-?[\d.]+(e-?\d+)?", number):
                assert abs(float(number) - float(other)) <= 0.011 * abs(float(other))
            else:
                assert number == other
    assert names["simulated"].shape == (4000,)
    apart = abs(names["faster"].mean()["beta"] - names["posterior"].mean()["beta"])
    assert (apart < 0.1 * names["posterior"].sd()["beta"]).all()
