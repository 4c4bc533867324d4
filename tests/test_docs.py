"""The pages of docs/: every page and every public name is there, and the code that they show runs."""

import re
from pathlib import Path

import pytest

import stradask
from stradask import datasets, errors, scheduler

DOCS = Path(__file__).parents[1] / "docs"


def blocks(name):
    text = (DOCS / name).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def names_of(room):
    parts = (DOCS / "api.md").read_text(encoding="utf-8").split(".. currentmodule:: ")[1:]
    listed = [part.split("```")[0].splitlines() for part in parts]
    return {line.strip() for lines in listed if lines[0] == room for line in lines[5:] if line.strip()}


@pytest.mark.parametrize("room", [stradask, datasets, scheduler, errors])
def test_the_reference_lists_every_public_name(room):
    if room is errors:
        public = {name for name, value in vars(errors).items() if isinstance(value, type)}
    else:
        public = {name for name in room.__all__ if not name.startswith("_")}
    assert names_of(room.__name__) == public - {"datasets", "errors", "scheduler"}


def test_the_index_lists_every_page():
    toctrees = re.findall(
        r"```{toctree}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL
    )
    listed = [line for tree in toctrees for line in tree.splitlines() if line and not line.startswith(":")]
    assert len(listed) == len(set(listed))
    assert set(listed) == {path.stem for path in DOCS.glob("*.md")} - {"index"}


def test_links_between_pages_lead_somewhere():
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_a_combiner_of_ones_own(capsys, monkeypatch):
    from stradask.algorithms.bayes.combine import COMBINERS

    monkeypatch.setattr("stradask.algorithms.bayes.combine.COMBINERS", dict(COMBINERS))
    names: dict = {}
    found = blocks("add-a-combiner.md")
    assert len(found) == 2
    for block in found:
        exec(compile(block, "add-a-combiner.md", "exec"), names)
    assert capsys.readouterr().out.split() == ["True", "True"]
    assert "diagonal" not in COMBINERS


@pytest.mark.parametrize("page", sorted({path.name for path in DOCS.glob("*.md")} - {"design.md"}))
def test_code_that_needs_a_cluster_or_data_is_python_at_least(page):
    for block in blocks(page):
        compile(block, page, "exec")
