"""The code of the pages on networks runs, and prints what they say."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.cluster
def test_training_torch_models(address, tmp_path, monkeypatch, capsys):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    import torch

    monkeypatch.chdir(tmp_path)
    names: dict = {"address": address}
    with torch.random.fork_rng():
        for block in blocks("torch.md"):
            exec(
                block.replace('"tcp://scheduler:8786"', "address")
                .replace("max_iter=20", "max_iter=5")
                .replace("max_iter=5, random", "max_iter=2, random"),
                names,
            )
    names["client"].close()
    printed = capsys.readouterr().out.splitlines()
    assert float(printed[0]) > 0.5
    assert printed[1] == printed[-1] == "True"
    assert "{'learning_rate': 0.1}" in printed


def test_a_stage_of_ones_own(capsys):
    names: dict = {}
    for block in blocks("your-own-stage.md"):
        exec(block, names)
    assert capsys.readouterr().out == "True\nTrue True\n"
