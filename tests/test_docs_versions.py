"""A site of pages keeps a folder for each version, lists them, and leads to the newest release."""

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "docs" / "versions.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("docs_versions", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(tmp_path, text):
    folder = tmp_path / "html"
    (folder / "_static").mkdir(parents=True, exist_ok=True)
    (folder / ".doctrees").mkdir(exist_ok=True)
    (folder / "index.html").write_text(text)
    return folder


def test_versions_are_listed_and_the_first_page_leads_to_the_newest_release(script, tmp_path):
    site = tmp_path / "site"
    script.add(built(tmp_path, "of main"), site, "dev")
    assert "url=dev/index.html" in (site / "index.html").read_text()
    for name in ("0.9.0", "0.10.0", "0.11.0rc1", "0.2.0"):
        script.add(built(tmp_path, name), site, name)
    assert json.loads((site / "versions.json").read_text()) == [
        "dev",
        "0.11.0rc1",
        "0.10.0",
        "0.9.0",
        "0.2.0",
    ]
    assert "url=0.10.0/index.html" in (site / "index.html").read_text()
    assert (site / "dev" / "index.html").read_text() == "of main"
    assert not (site / "dev" / ".doctrees").exists()


def test_a_version_is_replaced_whole(script, tmp_path):
    site = tmp_path / "site"
    folder = built(tmp_path, "old")
    (folder / "gone.html").write_text("")
    script.add(folder, site, "0.2.0")
    (folder / "gone.html").unlink()
    script.add(built(tmp_path, "new"), site, "0.2.0")
    assert (site / "0.2.0" / "index.html").read_text() == "new"
    assert not (site / "0.2.0" / "gone.html").exists()
    assert sorted(path.name for path in site.iterdir()) == [
        ".nojekyll",
        "0.2.0",
        "index.html",
        "versions.json",
    ]


@pytest.mark.parametrize("name", ["main", "../up", ""])
def test_a_name_that_is_no_version_is_refused(script, tmp_path, name):
    with pytest.raises(SystemExit, match="VERSION is"):
        script.add(built(tmp_path, ""), tmp_path / "site", name)
    assert not (tmp_path / "site").exists()


def test_pages_that_are_not_built_are_refused(script, tmp_path):
    with pytest.raises(SystemExit, match="make docs"):
        script.add(tmp_path, tmp_path / "site", "dev")
