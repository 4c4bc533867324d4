"""The code of docs/write-your-own-program.md runs, and says what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "write-your-own-program.md"


@pytest.fixture
def blocks():
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) >= 6
    return found


def run_page(blocks, monkeypatch, folder):
    """Run blocks one after another, as one script; return its names."""
    monkeypatch.chdir(folder)
    # As of a script, so that a cluster pickles its classes whole.
    names = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def promised(block):
    """What the comments behind prints say."""
    return re.findall(r"print\(.*\)  # (.+)", block)


def test_the_page_runs_on_threads(blocks, monkeypatch, tmp_path, capsys):
    local = [block for block in blocks if "LocalCluster" not in block]
    names = run_page(local, monkeypatch, tmp_path)
    printed = capsys.readouterr().out.splitlines()
    expected = [line for block in local for line in promised(block)]
    assert len(expected) >= 2
    assert [line for line in printed if line in expected] == expected
    assert names["result"].n_rounds == 500
    assert (tmp_path / "nnls-state").is_dir()
    np.testing.assert_allclose(names["program"].coef, names["nnls"](names["X"], names["y"])[0], atol=1e-6)


@pytest.mark.cluster
def test_the_page_runs_on_two_processes(blocks, monkeypatch, tmp_path, capsys):
    end = next(i for i, block in enumerate(blocks) if "LocalCluster" in block)
    names = run_page(blocks[: end + 1], monkeypatch, tmp_path)
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2] == "True"
    assert int(printed[-1]) > 0
    np.testing.assert_array_equal(names["remote"].coef, names["program"].coef)
