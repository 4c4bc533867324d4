"""The runner end to end, with small solvers written here and with scikit-learn's."""

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_devices import emulated
from cuda_emulator import EmulatedDevice

from stradask import datasets
from stradask.benchmarks import command, run, solvers
from stradask.benchmarks.runs import environments, worker
from stradask.errors import DataError, StradaskError
from stradask.kernels.cuda.device import standing_in, why_no_device

# A model that knows word frequencies only; it assigns every token to topic 0.
UNIGRAM = """
import time
import numpy as np

class Solver:
    name = "unigram"
    method = "word frequencies"
    requires = ("numpy",)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        self.data = data
        self.ballast = np.ones(20 * 2**20, np.uint8) if len(data.indptr) > 201 else None

    def run(self, watch):
        while True:
            time.sleep(0.005)
            if not watch.tick(self.data.counts.sum(), self.snapshot):
                return

    def snapshot(self):
        ballast = np.ones(100 * 2**20, np.uint8)
        counts = np.bincount(self.data.indices, weights=self.data.counts, minlength=int(self.data.n_words))
        rows = np.repeat(np.arange(len(self.data.indptr) - 1), np.diff(self.data.indptr))
        zeros = np.zeros_like(rows)
        return {
            "topic_word": np.tile(counts / counts.sum(), (self.settings.n_components, 1)) + 0 * ballast[0],
            "doc_topic": np.column_stack([rows, zeros, self.data.counts]),
            "word_topic": np.column_stack([self.data.indices, zeros, self.data.counts]),
        }
"""

BODY = """
import os, signal, time
import numpy as np

class Solver:
    name = "{name}"
    method = "none"
    requires = ("{requires}",)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        self.data = data

    def run(self, watch):
        {body}
"""


def write_solver(folder, name, body, requires="numpy"):
    (folder / f"lda_{name}.py").write_text(BODY.format(name=name, body=body, requires=requires))


@pytest.fixture(scope="module")
def docword(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "docword.txt"
    counts, *_ = datasets.make_lda_corpus(300, n_features=80, n_components=4, mean_length=30, random_state=0)
    datasets.save_uci_bow(counts, path)
    return str(path)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of solvers in place of the package's own."""
    place = tmp_path / "solvers" / "lda"
    place.mkdir(parents=True)
    (place / "lda_unigram.py").write_text(UNIGRAM)
    monkeypatch.setattr(solvers, "FOLDER", place.parent)
    return place


def plan(docword, tmp_path, **changes):
    settings = {
        "datasets": (docword,),
        "parameters": {"n_components": 4},
        "max_seconds": 0.3,
        "repeats": 1,
        "out": tmp_path / "out",
    }
    return run.Plan("lda", **(settings | changes))


def test_systems_take_turns_and_a_crash_is_named_while_the_others_go_on(docword, folder, tmp_path):
    write_solver(folder, "crash", 'raise RuntimeError("the engine fell off")')
    records = run.run(plan(docword, tmp_path, repeats=2))
    assert [(record["solver"], record["repeat"]) for record in records] == [
        ("crash", 0),
        ("unigram", 0),
        ("crash", 1),
        ("unigram", 1),
    ]
    assert [record["status"] for record in records] == ["failed", "ok", "failed", "ok"]
    assert records[0]["error"] == "RuntimeError: the engine fell off"
    assert [record["seed"] for record in records] == [0, 0, 1, 1]


def test_a_record_says_what_was_measured_and_where(docword, folder, tmp_path):
    (record,) = run.run(plan(docword, tmp_path, n_jobs=2))
    snapshots = record["snapshots"]
    seconds = [snapshot["seconds"] for snapshot in snapshots]
    assert seconds == sorted(seconds)
    assert snapshots  # how many goes by the clock, as tests with a clock of their own show
    assert record["training_seconds"] == seconds[-1] >= 0.3
    assert record["work"] == record["steps"] * record["data"]["train_tokens"]
    assert record["data"]["train_documents"] == 270
    assert record["data"]["split_seed"] == 0
    assert record["settings"]["n_jobs"] == 2
    assert record["versions"]["numpy"] == np.__version__
    assert record["machine"]["cores"] >= 1
    # All is one topic: perplexity is that of word frequencies, and below the number of words.
    assert 20 < snapshots[0]["held_out_perplexity"] < 80
    assert snapshots[0]["joint_log_likelihood"] < 0


def test_snapshots_do_not_count_as_memory(docword, folder, tmp_path):
    (record,) = run.run(plan(docword, tmp_path))
    if not record["peak_without_snapshots"]:
        pytest.skip("this system cannot reset the peak")
    # 20 MB belong to the solver, 100 to each of its snapshots.
    assert 20 <= record["peak_mb"] - record["memory_before_mb"] < 80


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""

    class Clock:
        now = 0.0

    monkeypatch.setattr(worker.time, "perf_counter", lambda: Clock.now)
    return Clock


def test_the_stopwatch_stands_still_during_snapshots(clock, tmp_path):
    watch = worker.Stopwatch([1.0, 4.0, 9.0], tmp_path)

    def snapshot():
        clock.now += 100
        return {"at": np.array(len(watch.snapshots))}

    went_on = []
    while not went_on or went_on[-1]:
        clock.now += 1.5
        went_on.append(watch.tick(10, snapshot))
    assert went_on == [True] * 5 + [False]
    assert [(s["seconds"], s["work"], s["steps"]) for s in watch.snapshots] == [
        (1.5, 10, 1),
        (4.5, 30, 3),
        (9.0, 60, 6),
    ]
    assert [worker.read_arrays(tmp_path / s["file"]).at for s in watch.snapshots] == [0, 1, 2]


def test_a_step_past_several_checkpoints_takes_one_snapshot(clock):
    watch = worker.Stopwatch([1.0, 2.0, 3.0, 20.0], folder=None)
    for seconds in (5, 5, 15):
        clock.now += seconds
        watch.tick(1, dict)
    assert [s["seconds"] for s in watch.snapshots] == [5.0, 25.0]
    assert watch.over


def test_a_solver_that_begins_anew_is_timed_from_there(clock):
    watch = worker.Stopwatch([2.0, 6.0], folder=None)
    for seconds in (3, 5, 7):
        watch.restart()
        clock.now += seconds
        watch.tick(10 * seconds, dict)
    assert [(s["seconds"], s["work"]) for s in watch.snapshots] == [(3.0, 30), (7.0, 70)]


def test_a_quick_look_warms_up_side_by_side_and_times_one_after_another(docword, folder, tmp_path):
    note = tmp_path / "note"
    body = f"""open({str(note)!r}, "a").write(f"{{self.settings.name}} {{watch.max_ticks}}\\n")
        topics = np.full((4, int(self.data.n_words)), 1 / int(self.data.n_words))
        while watch.tick(1, lambda: {{"topic_word": topics}}):
            pass"""
    for name in ("first", "second"):
        write_solver(folder, name, body.replace("{self.settings.name}", name))
    write_solver(folder, "never", "os._exit(3)")
    told = []
    records = run.run(plan(docword, tmp_path, repeats=None, quick=True, max_seconds=0.05), tell=told.append)
    assert {record["solver"]: record["status"] for record in records} == {
        "first": "ok",
        "never": "failed",
        "second": "ok",
        "unigram": "ok",
    }
    lines = note.read_text().splitlines()  # warm-ups of two steps, then runs without a limit
    assert sorted(lines[:2]) == ["first 2", "second 2"]
    assert lines[2:] == ["first None", "second None"]
    assert any("4 systems have imported and compiled" in line for line in told)
    assert next(r["error"] for r in records if r["solver"] == "never") == "ended with status 3"


@pytest.mark.parametrize(
    ("body", "limit", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", None, "killed by SIGSEGV"),
        ("time.sleep(600)", 1.5, "not ready; stopped after 2 s"),
        ("os._exit(0)", None, "ended with status 0"),
        ("watch.tick(1, dict)", None, "stopped before the watch did"),
        ("while watch.tick(1, lambda: {'topic_word': np.zeros((4, 3))}): pass", None, "shape"),
        ("while watch.tick(1, lambda: {'other': np.zeros(3)}): pass", None, "topic_word"),
    ],
    ids=["signal", "timeout", "silent", "early", "wrong shape", "no topics"],
)
def test_what_goes_wrong_in_a_solver_is_a_record(docword, folder, tmp_path, body, limit, said):
    write_solver(folder, "bad", body)
    started = time.monotonic()
    records = run.run(plan(docword, tmp_path, against=("bad",), time_limit=limit))
    assert time.monotonic() - started < 300
    assert [(record["solver"], record["status"]) for record in records] == [("bad", "failed")]
    assert said in records[0]["error"]


def test_processes_that_a_solver_left_behind_are_ended(docword, folder, tmp_path):
    note = tmp_path / "pid"
    body = f"pid = os.fork(); pid or time.sleep(600); open({str(note)!r}, 'w').write(str(pid)); os._exit(0)"
    write_solver(folder, "parent", body)
    run.run(plan(docword, tmp_path, against=("parent",)))
    child = int(note.read_text())
    deadline = time.monotonic() + 60
    while _is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running(child)


def _is_running(pid):
    if sys.platform == "linux":
        try:
            return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_peer_without_an_environment_is_skipped_by_name(docword, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    write_solver(folder, "absent", "pass", requires="no-such-distribution-as-this==1.0")
    wanted = plan(docword, tmp_path, against=("unigram", "absent"), repeats=2, environments=tmp_path / "envs")
    records = run.run(wanted)
    assert [(record["solver"], record["status"]) for record in records] == [
        ("absent", "unavailable"),
        ("unigram", "ok"),
        ("unigram", "ok"),
    ]
    assert "no-such-distribution-as-this" in records[0]["error"]


def test_an_environment_is_made_once_and_holds_the_peer(tmp_path, monkeypatch):
    links = tmp_path / "links"
    links.mkdir()
    write_wheel(links)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    peer = solvers.SolverFile(tmp_path / "lda_tinypeer.py", "tinypeer", "none", ("stradask-tinypeer==1.0",))
    python = environments.interpreter_for(peer, tmp_path / "envs")
    assert python != environments.Path(sys.executable)
    code = "import stradask_tinypeer; print(stradask_tinypeer.__file__)"
    told = environments.subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert str(tmp_path / "envs") in told.stdout
    (links / "stradask_tinypeer-1.0-py3-none-any.whl").unlink()
    assert environments.interpreter_for(peer, tmp_path / "envs") == python


def write_wheel(folder):
    """Write a wheel with one empty module, by hand: no index is needed to install it."""
    import zipfile

    info = "stradask_tinypeer-1.0.dist-info"
    files = {
        "stradask_tinypeer.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: stradask-tinypeer\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / "stradask_tinypeer-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


def arguments(*words):
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    return parser.parse_args(["lda", *map(str, words)])


@pytest.mark.slow
def test_ours_and_scikit_learn_by_the_command(docword, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    options = ("--against", "sklearn", "--max-seconds", 0.5, "--repeats", 1, "--param", "n_components=4")
    assert command.main(arguments("--dataset", docword, "--out", out, *options)) == 0
    printed = capsys.readouterr().out
    for words in ("stradask", "sklearn", "million tokens a second", "times ours", "held-out perplexity at"):
        assert words in printed
    ours, theirs = run.read_records(out / "records.jsonl")
    assert (ours["solver"], theirs["solver"]) == ("stradask", "sklearn")
    assert ours["ours"]
    assert ours["snapshots"][-1]["joint_log_likelihood"] < 0
    assert theirs["snapshots"][-1]["joint_log_likelihood"] is None
    assert "scikit-learn" in theirs["versions"]
    # Both learn the four topics: far below the 80 words, and like each other.
    ours, theirs = (record["snapshots"][-1]["held_out_perplexity"] for record in (ours, theirs))
    assert ours == pytest.approx(theirs, rel=0.15)
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_json_prints_the_records_and_a_failure_is_the_exit_status(docword, folder, tmp_path, capsys):
    write_solver(folder, "crash", 'raise RuntimeError("broken")')
    out = tmp_path / "out"
    options = ("--max-seconds", 0.1, "--repeats", 1, "--param", "n_components=4", "--json")
    assert command.main(arguments("--dataset", docword, "--out", out, *options)) == 1
    records = json.loads(capsys.readouterr().out)
    assert records == run.read_records(out / "records.jsonl")
    assert [record["status"] for record in records] == ["failed", "ok"]


def test_an_interrupt_keeps_what_is_finished(docword, folder, tmp_path, capsys, monkeypatch):
    real, calls = run.PROCEDURES["training"], []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setitem(run.PROCEDURES, "training", interrupted)
    options = ("--max-seconds", 0.1, "--param", "n_components=4", "--json")
    assert command.main(arguments("--dataset", docword, "--out", tmp_path, *options)) == 130
    assert len(run.read_records(tmp_path / "records.jsonl")) == 1
    assert "1 finished run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--against", "vowpal"), "unknown peer 'vowpal'.*sklearn"),
        (("--against", "stradask"), "unknown peer 'stradask'"),
        (("--repeats", "0"), "--repeats is 0"),
        (("--max-seconds", "nan"), "--max-seconds is nan"),
        (("--seed", "-1"), "--seed is -1"),
        (("--dataset", "no-such-file"), "no-such-file.*synthetic"),
        (("--solvers", "no-such-folder"), "no-such-folder"),
    ],
)
def test_wrong_options_are_errors_that_name_them(words, said, tmp_path):
    with pytest.raises(DataError, match=said):
        command.main(arguments("--out", tmp_path / "out", *words))
    assert not (tmp_path / "out").exists()


def test_an_unknown_family_names_the_known_ones():
    with pytest.raises(DataError, match=r"'lad'.*lda"):
        run.run(run.Plan("lad"))


def test_a_file_that_is_no_solver_is_named(folder):
    (folder / "lda_empty.py").write_text("class Solver:\n    name = 'empty'\n")
    with pytest.raises(DataError, match=r"lda_empty\.py: not a solver file"):
        solvers.find_solvers("lda")


def test_two_solvers_of_one_name_are_an_error(folder):
    (folder / "lda_zweiter.py").write_text(UNIGRAM)
    with pytest.raises(DataError, match="'unigram' is taken"):
        solvers.find_solvers("lda")


def test_a_broken_line_of_records_is_named(tmp_path):
    path = tmp_path / "records.jsonl"
    run.append_record(path, {"a": 1})
    run.append_record(path, {"a": 2})
    assert run.read_records(path) == [{"a": 1}, {"a": 2}]
    with path.open("a") as file:
        file.write('{"a": ')
    with pytest.raises(DataError, match="line 3"):
        run.read_records(path)


def test_the_package_lists_its_solvers_ours_first():
    known = solvers.find_solvers("lda")
    assert next(iter(known)) == "stradask"
    assert {"gensim", "sklearn", "tomotopy", "topica"} <= set(known)
    ours = [(solver.name, solver.device) for solver in known.values() if solver.is_ours]
    assert ours == [("stradask", "cpu"), ("stradask-light-gpu", "cuda"), ("stradask-saber-gpu", "cuda")]


@pytest.mark.skipif(why_no_device() is None, reason="there is a GPU")
def test_without_a_gpu_its_solvers_are_left_out_by_name(docword, tmp_path):
    here = run.Plan("lda", against=(), datasets=(str(docword),), device="cuda", out=tmp_path)
    assert len(here.solvers()) == 3
    assert [solver.name for solver in dataclasses.replace(here, device="cpu").solvers()] == ["stradask"]
    for solver in here.solvers()[1:]:
        with pytest.raises(environments.PeerUnavailable, match=r"pip install|device='cpu'"):
            run._python_of(solver, here, print)


@emulated
@pytest.mark.parametrize(("sampler", "kernel"), [("saber", "sample"), ("light", "sweep")])
def test_solvers_of_a_gpu_train_there(sampler, kernel, monkeypatch):
    monkeypatch.syspath_prepend(str(solvers.FOLDER / "lda"))
    found = solvers.find_solvers("lda")[f"stradask-{sampler}-gpu"]
    settings = run.find_objective("lda").defaults | {"n_components": 3, "n_jobs": 1, "seed": 0}
    solver = worker.load_solver(found.path)(SimpleNamespace(**settings))
    X = datasets.make_lda_corpus(12, n_features=20, n_components=3, mean_length=15, random_state=0)[0].tocsr()
    parts = {"indptr": X.indptr, "indices": X.indices, "counts": X.data, "n_words": 20}
    solver.set_data(SimpleNamespace(**parts))
    watch = worker.Stopwatch([np.inf], folder=None, max_ticks=1)
    with standing_in(EmulatedDevice()) as device:
        solver.run(watch)
    assert kernel in device.launches
    assert (watch.ticks, watch.work) == (1, X.sum())
    assert solver.model.word_topic_counts_.sum() == X.sum()


def test_families_without_a_gpu_say_so():
    with pytest.raises(DataError, match="--device: lasso has no solver that runs on a GPU"):
        run.Plan("lasso", device="cuda")


def test_windows_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(run.sys, "platform", "win32")
    with pytest.raises(StradaskError, match="takes Linux or macOS; on Windows, run them in WSL"):
        run.run_all([])
