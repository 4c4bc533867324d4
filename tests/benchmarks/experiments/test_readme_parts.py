"""README.md and docs/benchmarks.md are written from records."""

import re
import shutil
from pathlib import Path

import pytest

from stradask.benchmarks import recipes, run
from stradask.benchmarks.experiments import package, readme
from stradask.benchmarks.objectives import families
from stradask.benchmarks.pages.page import fill_part

ROOT = Path(__file__).parents[3]
MARKS = [part.mark for part in readme.PARTS.values() if part.page == "benchmarks.md"]


def solved(solver, gaps, *, repeat=0, ours=False, **changes):
    """A record of a Lasso: seconds and gaps."""
    solves = [{"tolerance": g, "gap": g, "cpu_seconds": s, "seconds": s, "beyond_mb": 1.0} for s, g in gaps]
    made = {
        "run": "2",
        "family": "lasso",
        "procedure": "solving",
        "machine": {"processor": "abacus"},
        "data": {"name": "a"},
        "settings": {"max_seconds": 10.0, "n_jobs": 1},
        "solver": solver,
        "ours": ours,
        "repeat": repeat,
        "status": "ok",
        "problem": "/10",
        "measure": "gap",
        "targets": [1e-4, 1e-6],
        "over_time": False,
        "warm_up_seconds": 1.0,
        "solves": solves,
    }
    return made | changes


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A checkout with the two pages, and records of one family."""
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    results = tmp_path / "benchmarks" / "results" / "lasso"
    results.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    for made in (
        solved("old", [(0.1, 1e-7)], run="1"),
        solved("stradask", [(2.0, 1e-7)], ours=True),
        solved("slow", [(0.1, 1e-5), (8.0, 1e-7)]),
        solved("stradask", [(4.0, 1e-7)], ours=True, repeat=1),
        solved("slow", [(16.0, 1e-7)], repeat=1),
        {**solved("none", []), "status": "unavailable", "error": "no such package"},
    ):
        run.append_record(results / "records.jsonl", made)
    parts = "".join(f"<!-- bench {name} -->\nstale\n<!-- /bench {name} -->\n" for name in readme.TITLES)
    parts += "".join(f"<!-- {mark} -->\nstale\n<!-- /{mark} -->\n" for mark in MARKS)
    (tmp_path / "docs" / "benchmarks.md").write_text(f"before\n{parts}after\n")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def test_all_parts_are_written_from_the_last_runs(tree):
    pytest.importorskip("matplotlib")
    readme.main([])
    page = (tree / "docs" / "benchmarks.md").read_text()
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "stale" not in page
    lasso = page.split("<!-- bench lasso -->")[1].split("<!-- /bench lasso -->")[0].splitlines()
    assert "| seconds | stradask | slow | ours / best peer |" in lasso
    assert "| a /10 to gap 1e-6 | 3.00 (2.00..4.00) | 12.00 (8.00..16.00) | 0.25 (slow) |" in lasso
    assert any(line.endswith("1 thread(s), abacus, 2 alternating run(s).") for line in lasso)
    assert any("no such package" in line for line in lasso)
    assert (tree / "docs" / "bench-lasso.png").read_bytes().startswith(b"\x89PNG")
    assert "`stradask bench mcmc --full --out benchmarks/results`" in page
    shown = (tree / "README.md").read_text().split("<!-- bench -->")[1].split("<!-- /bench -->")[0]
    assert shown.strip().splitlines()[2:] == ["| Lasso | slow | 1 | 4.00 |  | 0 |"]


def test_a_second_machine_is_named_with_what_it_measured():
    on = [("abacus", "a"), ("abacus", "b"), ("quipu", "c"), ("quipu", "d"), ("quipu", "c")]
    records = [
        {"settings": {"n_jobs": 1}, "machine": {"processor": name}, "data": {"name": data}, "repeat": 0}
        for name, data in on
    ]
    assert readme.machine(records[:2]) == "1 thread(s), abacus, 1 alternating run(s)"
    assert readme.machine(records) == "1 thread(s), abacus; c, d: quipu, 1 alternating run(s)"


def test_one_part_leaves_the_others(tree):
    pytest.importorskip("matplotlib")
    readme.main(["lasso"])
    assert (tree / "docs" / "benchmarks.md").read_text().count("stale") == len(readme.TITLES) + len(MARKS) - 1


def test_an_unknown_name_is_an_error(tree, capsys):
    with pytest.raises(SystemExit):
        readme.main(["laso"])
    assert "laso: there are lda-20news" in capsys.readouterr().err


def test_the_last_run_of_each_data_set_counts():
    def of(run, name, procedure="solving"):
        return {"run": run, "data": {"name": name}, "procedure": procedure}

    records = [of("first", "a"), of("other", "b"), of("again", "a")]
    assert {record["run"] for record in readme.latest(records)} == {"other", "again"}
    topics = [of("first", "a", "training"), of("other", "b", "training")]
    assert {record["run"] for record in readme.latest(topics)} == {"other"}


def test_runs_without_their_core_are_not_ranked():
    made = {"procedure": "training", "status": "ok", "cpu_seconds": 9.0, "training_seconds": 10.0}
    made["solver"] = "stradask"
    assert not readme.starved([made])
    assert readme.starved([made, made | {"cpu_seconds": 1.5}])
    assert not readme.starved([made, made | {"cpu_seconds": 1.5, "solver": "warplda"}])
    assert not readme.starved([solved("stradask", [(1.0, 1e-7)])])


def test_pages_have_a_part_for_every_folder_that_recipes_fill():
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- bench ([\w-]+) -->", page)) == set(readme.TITLES)
    assert set(readme.TITLES) == set(recipes.FULL) - set(run.COMPARISONS)
    assert sorted(name for names in readme.IN_SHORT.values() for name in names) == sorted(readme.TITLES)
    assert {recipes.family_of(recipes.FULL[name][0]) for name in readme.TITLES} == set(families())


@pytest.mark.skipif(not (ROOT / readme.RESULTS).exists(), reason="a source archive holds no records")
def test_readme_and_page_are_those_of_the_records():
    shown = (ROOT / "README.md").read_text(encoding="utf-8")
    found = {name: readme.latest(records) for name in readme.TITLES if (records := readme.records_of(name))}
    assert fill_part(shown, "bench", readme.in_short(found), "README.md") == shown
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for records in found.values():
        assert readme.table(records) in page


def test_the_package_tells_what_it_weighs(tmp_path, monkeypatch):
    assert {"numpy", "scipy", "numba", "dask"} <= package.required("stradask")
    assert "matplotlib" not in package.required("stradask")  # an extra
    assert "llvmlite" in package.brought("stradask") - package.required("stradask")
    monkeypatch.setattr(package, "ROOT", tmp_path)
    monkeypatch.setattr(package, "RUNS", 1)
    assert package.wheel_bytes() is None
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "stradask-0.1.0-py3-none-any.whl").write_bytes(bytes(1_234_567))
    said = package.line()
    assert said.startswith("The wheel is 1.2 MB and pure Python.")
    assert re.search(r"10 direct dependencies, \d+ in all\. .* takes \d+ ms more", said)
