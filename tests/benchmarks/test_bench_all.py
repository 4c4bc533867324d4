"""``stradask bench`` over all families: recipes, their folders, and what all share."""

import argparse
import math
from importlib.util import find_spec

import pytest

from stradask.benchmarks import command, linear_cases, overview, recipes, run, solvers
from stradask.benchmarks.objectives import families
from stradask.benchmarks.scheduling import ssp, strads
from stradask.errors import DataError


def arguments(*words):
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


ALL = [*families(), *run.COMPARISONS]


def test_a_quick_look_covers_every_family_once_or_more(tmp_path):
    [(out, jobs)] = command.jobs_of(arguments("--quick", "--out", tmp_path, "--n-jobs", 2))
    assert out == tmp_path
    there = {name for name in ALL if find_spec(recipes.NEEDS.get(name, "json"))}
    assert {job.family for job in jobs} == there
    assert all(job.quick and job.n_jobs == 2 and job.out == tmp_path for job in jobs)
    assert all(job.against is None for job in jobs)  # those that are installed
    [(_, jobs)] = command.jobs_of(arguments("--quick", "--against"))
    assert {job.family for job in jobs if job.against is None} == set(run.COMPARISONS) & there


@pytest.mark.parametrize("family", ALL)
def test_a_full_run_covers_the_recipes_of_a_family(family, tmp_path):
    for lines in recipes.FULL.values():
        for line in lines:
            names = vars(arguments(*line.split()))["dataset"] or []
            for name in names:
                if name.endswith(command.SUFFIXES):
                    (tmp_path / name).touch()
    folders = command.jobs_of(arguments(family, "--full", "--data", tmp_path, "--out", tmp_path / "out"))
    assert {out.name for out, _ in folders} == set(recipes.full(family))
    assert all(job.family == family and not job.quick for _, jobs in folders for job in jobs)
    for _, jobs in folders:
        for job in jobs:
            known = {} if family in run.COMPARISONS else solvers.find_solvers(family)
            assert set(job.against or ()) <= known.keys()


def test_every_family_has_a_recipe_for_its_tables():
    assert {recipes.family_of(lines[0]) for lines in recipes.FULL.values()} == set(ALL)
    for lines in recipes.FULL.values():
        assert len({recipes.family_of(line) for line in lines}) == 1


def test_data_that_are_not_there_are_left_out_by_name(tmp_path, capsys):
    (tmp_path / "news20.svm.txt.gz").touch()
    in_a_folder = tmp_path / "sparse" / "dorothea.svm.txt.gz"
    in_a_folder.parent.mkdir()
    in_a_folder.touch()
    [(out, [drawn, read])] = command.jobs_of(arguments("lasso", "--full", "--data", tmp_path))
    assert out.name == "lasso"
    assert drawn.dataset == ["a", "b", "d", str(in_a_folder)]
    assert read.dataset == ["c", str(tmp_path / "news20.svm.txt.gz")]
    assert "rcv1_small.svm.txt.gz, debian_size.svm.txt.gz" in capsys.readouterr().err
    with pytest.raises(DataError, match="has none of the files that implicit --full runs on"):
        command.jobs_of(arguments("implicit", "--full", "--data", tmp_path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "which benchmark.*--quick.*lda.*strads"),
        ("--full", "--full needs a family"),
        ("lad --full", "no benchmark of the name 'lad'"),
        ("lad", "no benchmark of the name 'lad'"),
        ("--quick --dataset a", "--dataset does not go with --quick without a family"),
        ("--quick --max-seconds 3", "--max-seconds does not go with"),
        ("--quick --against sklearn", "peers are of one family"),
        ("lasso --full --param divisor=10", "--param does not go with --full"),
        ("lasso --full --quick", "--quick does not go with --full"),
    ],
)
def test_what_does_not_go_together(words, said, tmp_path):
    with pytest.raises(DataError, match=said):
        command.main(arguments(*words.split(), "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.fixture
def small(monkeypatch):
    """Problems that take a moment."""
    design = linear_cases.REGRESSIONS["a"][0][0]
    monkeypatch.setitem(linear_cases.REGRESSIONS, "a", (None, (design, 50, 200, 5)))
    monkeypatch.setattr(ssp, "QUICK", {"n": 200, "p": 4, "clocks": 30})
    monkeypatch.setattr(strads, "QUICK", {"n": 60, "p": 100, "n_groups": 5})


SSP = "ssp --param cluster=False threads=False"
STRADS = "strads --dataset independent --param cluster=False sizes=8"


def test_two_families_make_one_page(small, tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(recipes, "QUICK", (SSP, STRADS))
    assert command.main(arguments("--quick", "--out", tmp_path)) == 0
    printed = capsys.readouterr().out
    records = run.read_records(tmp_path / "records.jsonl")
    assert {record["family"] for record in records} == {"ssp", "strads"}
    page = (tmp_path / "report.html").read_text()
    assert page.count("<h2>stradask bench ssp") == page.count("<h2>stradask bench strads") == 1
    assert page.count("<h3>How it was measured</h3>") == 1
    assert page.count("<img ") == 4  # speed-ups; one of ssp, two of strads
    found = overview.comparisons(records)
    assert [c.family for c in found] == ["ssp", "ssp", "strads"]
    assert all(f"{c.family}: {c.problem}" in printed and f"{c.family}: {c.problem}" in page for c in found)


@pytest.mark.slow
def test_systems_and_schedules_make_one_page(small, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    lasso = "lasso --dataset a --param divisor=10 --max-seconds 5 --against sklearn"
    monkeypatch.setattr(recipes, "QUICK", (lasso, STRADS))
    assert command.main(arguments("--quick", "--out", tmp_path)) == 0
    found = overview.comparisons(run.read_records(tmp_path / "records.jsonl"))
    assert [c.family for c in found] == ["lasso", "strads"]
    assert found[0].other == "sklearn"
    assert found[0].speedup.median == pytest.approx(found[0].theirs.median / found[0].ours.median)
    assert min(*found[0].warm_up, *found[0].memory) >= 0
    assert "<h2>stradask bench lasso</h2>" in (tmp_path / "report.html").read_text()


def test_a_family_that_fails_leaves_what_was_found(small, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "QUICK", (SSP, "strads --dataset nothing"))
    with pytest.raises(DataError, match="not 'nothing'"):
        command.main(arguments("--quick", "--out", tmp_path))
    assert len(run.read_records(tmp_path / "records.jsonl")) == 10
    assert "stradask bench ssp" in (tmp_path / "report.html").read_text()


def training(solver, points, *, repeat=0, ours=False):
    metric = {"key": "rmse", "label": "test RMSE", "lower_is_better": True}
    return {
        "family": "mf",
        "procedure": "training",
        "metrics": [metric],
        "data": {"name": "tiny"},
        "solver": solver,
        "ours": ours,
        "repeat": repeat,
        "status": "ok",
        "warm_up_seconds": 3.0 if ours else 1.0,
        "memory_before_mb": 100.0,
        "peak_mb": 150.0 if ours else 300.0,
        "snapshots": [{"seconds": s, "rmse": v} for s, v in points],
    }


def test_quality_is_compared_at_the_level_that_both_reach():
    ours = training("stradask", [(1.0, 2.0), (2.0, 1.0), (4.0, 0.5)], ours=True)
    slow = training("slow", [(1.0, 2.0), (10.0, 1.0)])
    good = training("good", [(2.0, 2.0), (4.0, 1.0), (8.0, 0.25)])
    [alone] = overview.comparisons([ours, slow])
    # Slow ends at 1.0 (and a thousandth): ours was there after two seconds.
    assert alone.other == "slow"
    assert alone.speedup.median == pytest.approx(10.0 / 2.0, rel=0.01)
    assert alone.memory == (50.0, 200.0)
    assert alone.warm_up == (3.0, 1.0)
    [both] = overview.comparisons([slow, good, ours])
    # Ours ends at 0.5: good is there after 4 + 4 * 2/3 seconds.
    assert both.other == "good"
    assert both.speedup.median == pytest.approx((4 + 8 / 3) / 4.0, rel=0.01)
    assert overview.comparisons([slow, good]) == []
    assert overview.comparisons([slow | {"status": "failed", "error": "fell"}, ours])[0].other is None


def solving(solver, solves, *, repeat=0, ours=False):
    return {
        "family": "lasso",
        "procedure": "solving",
        "data": {"name": "a"},
        "settings": {"n_jobs": 1},
        "problem": "/10",
        "measure": "gap",
        "targets": [1e-4, 1e-6],
        "solver": solver,
        "ours": ours,
        "repeat": repeat,
        "status": "ok",
        "warm_up_seconds": 1.0,
        "solves": [{"cpu_seconds": s, "seconds": s, "gap": g, "beyond_mb": 5.0} for s, g in solves],
    }


def test_ratios_are_of_one_round_and_the_finest_target():
    records = []
    for repeat, factor in enumerate((1.0, 2.0, 4.0)):  # the machine grows slower
        records.append(solving("a", [(factor, 1e-7)], repeat=repeat, ours=True))
        records.append(solving("b", [(0.1, 1e-5), (3 * factor, 1e-6)], repeat=repeat))
        records.append(solving("c", [(0.1, 1e-3)], repeat=repeat))
    [found] = overview.comparisons(records)
    assert found.other == "b"
    assert (found.speedup.low, found.speedup.median, found.speedup.high) == pytest.approx((3, 3, 3))
    assert (found.ours.median, found.theirs.median) == (2.0, 6.0)
    [alone] = overview.comparisons([record for record in records if record["solver"] != "b"])
    assert math.isinf(alone.speedup.median)
    assert "only ours" in overview.table([record for record in records if record["solver"] != "b"])
    never = [record | {"solves": []} if record["ours"] else record for record in records]
    assert overview.comparisons(never)[0].speedup.median == 0


def test_samplers_are_compared_by_effective_draws_ours_by_its_own_choice():
    common = {"family": "mcmc", "procedure": "sampling", "data": {"name": "x"}, "status": "ok", "repeat": 0}
    common |= {"cpu_seconds": 2.0, "warm_up_seconds": 1.0}
    ours = common | {"solver": "stradask", "ours": True}
    records = [
        ours | {"problem": "chains", "tail_ess": 500.0},
        ours | {"problem": "auto", "tail_ess": 4000.0},
        common | {"solver": "peer", "ours": False, "problem": "chains", "tail_ess": 1000.0},
    ]
    [found] = overview.comparisons(records)
    assert (found.ours.median, found.theirs.median) == (0.5, 2.0)
    assert found.speedup.median == 4.0
    assert math.isnan(found.memory[0])


def test_the_middle_of_many():
    comparisons = overview.comparisons(
        [solving("a", [(1.0, 1e-7)], ours=True), solving("b", [(3.0, 1e-7)])]
        + [
            record | {"problem": "/100"}
            for record in (solving("a", [(1.0, 1e-7)], ours=True), solving("b", [(0.5, 1e-7)]))
        ]
    )
    spread = overview.middle(comparisons)
    assert (spread.median, spread.low, spread.high) == pytest.approx((1.75, 0.5, 3.0))
    assert math.isnan(overview.middle([]).median)
