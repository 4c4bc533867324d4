"""The check of a GPU where there is none: it says so, and its parts degrade one by one."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_emulator import MISSING, EmulatedDevice

from stradask.benchmarks import gpu_check
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError
from stradask.kernels.device import standing_in
from stradask.kernels.launch import FOLDER, KERNEL

ARGS = SimpleNamespace(samplers=["saber"], tokens=1e5, sweeps=3, minutes=1)


def test_without_a_gpu_it_says_why_and_writes_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert gpu_check.main(["--out", str(tmp_path / "out")]) == 2
    assert "nothing was checked: CuPy is not installed: pip install" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--minutes=0", "--tokens=10", "--sweeps=1", "--minutes=nan"])
def test_numbers_that_make_no_sense(option):
    with pytest.raises(DataError, match="or more is needed"):
        gpu_check.main([option])


@pytest.fixture
def on_a_gpu(monkeypatch, tmp_path):
    """Run `main` as if there were a GPU, with parts that are given."""

    def run(**parts):
        monkeypatch.setattr(gpu_check, "why_no_device", lambda: None)
        common = {"device": "Tesla Test", "driver_cuda": 13000, "cupy": "14"}
        monkeypatch.setattr(gpu_check, "describe", lambda: common)
        monkeypatch.setattr(gpu_check, "PARTS", gpu_check.PARTS | parts)
        status = gpu_check.main(["--out", str(tmp_path), "--parts", *parts])
        return status, [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]

    return run


def _part(*results):
    done = {"seconds": 1.5}
    return lambda args, seconds: [gpu_check.outcome(f"case {seconds:.0f}", r, "", done) for r in results]


def test_records_and_table(on_a_gpu, capsys):
    status, records = on_a_gpu(
        tests=_part(True), speed=lambda *_: [gpu_check.left_out("a tool", "not there")]
    )
    assert status == 0
    assert [(r["part"], r["result"], r["device"]) for r in records] == [
        ("tests", "passed", "Tesla Test"),
        ("speed", "left out", "Tesla Test"),
    ]
    assert records[0]["what"] == "case 150"  # a quarter of ten minutes
    out = capsys.readouterr().out
    assert out.endswith("1 passed, 0 failed, 1 left out\n")
    assert "Tesla Test, driver of CUDA 13, CuPy 14" in out


def test_one_failure_is_the_status(on_a_gpu):
    assert on_a_gpu(tests=_part(True, False))[0] == 1


def test_a_command_whose_time_is_up_ends_with_its_children():
    script = "import subprocess, sys; print('begun', flush=True); subprocess.run(['sleep', '60'])"
    done = gpu_check.timed([sys.executable, "-c", script], 1)
    assert (done["status"], done["output"]) == ("its time was up", "begun\n")
    assert done["seconds"] < 10
    assert gpu_check.last_line(done) == "begun (status: its time was up)"


def test_the_tests_of_a_gpu_are_found_and_their_closing_line_told(monkeypatch):
    seen = []

    def pretend(command, seconds):
        seen.extend(command)
        return {"status": 0, "output": "..\n5 passed in 3.2s\n", "seconds": 3.2}

    monkeypatch.setattr(gpu_check, "timed", pretend)
    (record,) = gpu_check.run_tests(ARGS, 60)
    assert (record["result"], record["detail"]) == ("passed", "5 passed in 3.2s")
    assert any(name.endswith("test_philox_cuda.py") for name in seen)


COLLECT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("dask", "distributed", "hypothesis"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_they_need_neither_dask_nor_hypothesis(monkeypatch):
    given, done = [], {"status": 1, "output": "", "seconds": 0.0}
    monkeypatch.setattr(gpu_check, "timed", lambda command, _: given.extend(command) or done)
    list(gpu_check.run_tests(ARGS, 60))
    options = given[given.index("pytest") + 1 :]
    command = [sys.executable, "-c", COLLECT, "--collect-only", "-p", "no:hypothesispytest", *options]
    done = subprocess.run(
        command, cwd=gpu_check.ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "test_light_cuda.py" in done.stdout


def test_tests_that_all_skip_are_no_success(monkeypatch):
    skipped = {"status": 0, "output": "5 skipped in 0.1s\n", "seconds": 0.1}
    monkeypatch.setattr(gpu_check, "timed", lambda *_: skipped)
    (record,) = gpu_check.run_tests(ARGS, 60)
    assert record["result"] == "failed"


@pytest.mark.parametrize(
    ("status", "output", "result"),
    [
        (0, "========= ERROR SUMMARY: 0 errors\n", "passed"),
        (9, "========= Invalid write\n========= ERROR SUMMARY: 3 errors\n", "failed"),
        (1, "Traceback\nDataError: no\n", "failed"),
        ("its time was up", "", "failed"),
        (1, "========= Error: Device not supported.\n", "left out"),
    ],
)
def test_what_a_sanitizer_says(monkeypatch, status, output, result):
    monkeypatch.setattr(gpu_check.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(gpu_check, "timed", lambda *_: {"status": status, "output": output, "seconds": 1.0})
    records = list(gpu_check.run_sanitizer(ARGS, 60))
    assert [r["what"] for r in records] == [f"{tool}, saber" for tool in gpu_check.TOOLS]
    assert {r["result"] for r in records} == {result}


def test_without_a_sanitizer(monkeypatch):
    monkeypatch.setattr(gpu_check.shutil, "which", lambda name: None)
    assert [r["result"] for r in gpu_check.run_sanitizer(ARGS, 60)] == ["left out"]


def test_fits_that_break_off_keep_what_was_done(monkeypatch):
    output = '{"what": "a", "result": "passed"}\nTraceback\nKilled\n'
    monkeypatch.setattr(gpu_check, "timed", lambda *_: {"status": -9, "output": output, "seconds": 1.0})
    records = list(gpu_check.PARTS["speed"](ARGS, 60))
    assert [r["result"] for r in records] == ["passed", "failed"]
    assert records[1]["detail"] == "Killed (status: -9)"


@pytest.mark.parametrize(
    ("status", "solvers", "results"),
    [
        (0, ["ok", "ok"], ["passed", "passed"]),
        (1, ["ok", "failed"], ["passed", "failed"]),
        (0, ["unavailable"], ["failed"]),
        (1, [], ["failed"]),
        ("its time was up", ["ok"], ["passed", "failed"]),
    ],
)
def test_what_the_benchmark_says(monkeypatch, status, solvers, results):
    measured = {"snapshots": [{"pp": 700.5, "seconds": 2.0, "work": 10}]}
    told = {
        "ok": measured | {"metrics": [{"label": "perplexity", "key": "pp"}]},
        "failed": {"error": "it broke"},
        "unavailable": {"error": "no GPU"},
    }

    def pretend(command, seconds):
        lines = [json.dumps({"solver": "s", "status": one} | told[one]) for one in solvers]
        if lines:
            (Path(command[-1]) / "records.jsonl").write_text("\n".join(lines) + "\n")
        return {"status": status, "output": "end", "seconds": 3.0}

    monkeypatch.setattr(gpu_check, "timed", pretend)
    records = list(gpu_check.run_bench(ARGS, 60))
    assert [record["result"] for record in records] == results
    if results[0] == "passed":
        assert records[0]["detail"] == "perplexity 700.5 after 2.0 s"
        assert records[0]["tokens_per_second"] == 5


def test_the_shares_of_the_time_add_up_to_all_of_it():
    assert sum(gpu_check.SHARES.values()) == pytest.approx(1)
    assert gpu_check.SHARES.keys() == gpu_check.PARTS.keys()


def test_the_command_that_the_page_names():
    command = [sys.executable, "-m", "stradask.benchmarks.gpu_check", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "--minutes" in done.stdout


# The fits, on the emulator ---------------------------------------------------------------------------------


@pytest.fixture
def emulated(monkeypatch):
    """Let fits run on the emulator, with a corpus and numbers of topics that suit it."""
    if MISSING:
        pytest.skip(MISSING)
    X, *_ = make_lda_corpus(30, 60, 4, mean_length=30, random_state=0)
    monkeypatch.setattr(gpu_check, "corpus", lambda *_: X)
    monkeypatch.setattr(gpu_check, "SAMPLERS", {"saber": [20], "light": [30]})
    with standing_in(EmulatedDevice()) as device:
        yield device
    assert device.launches


def _fits(kind, **options):
    args = SimpleNamespace(**(vars(ARGS) | {"samplers": ["saber", "light"]} | options))
    return list(gpu_check.FITS[kind](args))


def test_small_fits(emulated):
    records = _fits("small")
    assert [record["what"].split(",")[0] for record in records] == ["saber", "saber", "light", "light"]
    assert [record["what"].split(",")[1] for record in records] == [" 64 topics", " 300 topics"] * 2
    known = {name for file in FOLDER.glob("*.cu") for name, _ in KERNEL.findall(file.read_text("utf-8"))}
    assert known - set(emulated.launches) == set()  # the sanitizers see all there are


def test_agreement_tells_both_log_likelihoods(emulated):
    saber, shares, light, _ = _fits("agreement")
    assert shares["result"] == "passed"
    assert shares["what"] == "saber, inference on 30 documents"
    assert saber["log_likelihood"] == pytest.approx(saber["log_likelihood_cpu"], rel=1e-12)
    assert saber["result"] == "passed"
    assert "0.00 % apart" in saber["detail"]
    assert light["log_likelihood"] != light["log_likelihood_cpu"]


def test_speed_is_that_of_the_sweeps_after_the_first(emulated):
    saber, light = _fits("speed")
    assert (saber["sampler"], saber["n_components"], light["n_components"]) == ("saber", 20, 30)
    for record in (saber, light):
        assert len(record["sweep_seconds"]) == 3
        after = sorted(record["sweep_seconds"][1:])
        assert record["tokens_per_second"] == pytest.approx(record["tokens"] / np.mean(after), rel=0.05)


def test_no_sweep_begins_when_the_time_is_up(emulated):
    model, seconds = gpu_check.fit(gpu_check.corpus(), "light", 30, 50, "cuda", seconds=0)
    assert (model.n_iter_, len(seconds)) == (1, 1)
