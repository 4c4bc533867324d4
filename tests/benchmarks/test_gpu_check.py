"""The check of a GPU where there is none: it says so, and its parts degrade one by one."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from stradask.benchmarks import gpu_check
from stradask.errors import DataError


@pytest.fixture
def args(tmp_path):
    given = {
        "samplers": ["saber"],
        "topics": None,
        "tokens": 1e5,
        "sweeps": 3,
        "parts": ["speed"],
        "dataset": "d",
    }
    return SimpleNamespace(**given, out=tmp_path, drawn=lambda seconds: None)


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
        monkeypatch.setattr(gpu_check, "drawing", contextlib.nullcontext)
        status = gpu_check.main(["--out", str(tmp_path), "--parts", *parts])
        return status, _records(tmp_path)

    return run


def _records(folder):
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def _part(*results):
    done = {"seconds": 1.5}
    return lambda args, seconds: [gpu_check.outcome(f"case {seconds:.0f}", r, "", done) for r in results]


def test_records_and_table(on_a_gpu, capsys, tmp_path):
    status, records = on_a_gpu(
        tests=_part(True), speed=lambda *_: [gpu_check.left_out("a tool", "not there")]
    )
    assert status == 0
    assert [(r["part"], r["result"], r["device"]) for r in records] == [
        ("tests", "passed", "Tesla Test"),
        ("speed", "left out", "Tesla Test"),
    ]
    out = capsys.readouterr().out
    assert out.endswith("1 passed, 0 failed, 1 left out\n")
    assert "Tesla Test, driver of CUDA 13, CuPy 14" in out
    assert (tmp_path / "table.txt").read_text() in out


def test_one_failure_is_the_status(on_a_gpu):
    assert on_a_gpu(tests=_part(True, False))[0] == 1


def test_a_part_that_breaks_off_is_a_record_and_the_next_one_begins(on_a_gpu):
    def broken(args, seconds):
        yield gpu_check.outcome("begun", True, "", {"seconds": 0.0})
        raise OSError("no space left")

    status, records = on_a_gpu(sanitizer=broken, bench=_part(True))
    assert status == 1
    assert [(r["part"], r["result"]) for r in records] == [
        ("sanitizer", "passed"),
        ("sanitizer", "failed"),
        ("bench", "passed"),
    ]
    assert records[1]["detail"] == "OSError: no space left"
    assert {r["device"] for r in records} == {"Tesla Test"}


def test_what_was_seen_before_an_interrupt_is_told(on_a_gpu, tmp_path, capsys):
    def interrupted(args, seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_a_gpu(tests=_part(True), speed=interrupted)
    assert capsys.readouterr().out.endswith("1 passed, 0 failed, 0 left out\n")
    assert len(_records(tmp_path)) == 1


def test_time_that_a_part_leaves_is_for_the_later_ones(monkeypatch):
    given = {}

    def part(name, taken):
        def run(args, seconds):
            given[name] = seconds
            clock[0] += taken * seconds
            return []

        return run

    clock = [100.0]
    monkeypatch.setattr(gpu_check.time, "perf_counter", lambda: clock[0])
    parts = {name: part(name, 0.5 if name == "bits" else 1) for name in gpu_check.PARTS}
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    assert not list(gpu_check.all_records(SimpleNamespace(parts=list(parts)), 700.0))
    assert given["bits"] == pytest.approx(48)
    assert given["tests"] == pytest.approx((600 - 24) / 0.92 * 0.24)
    assert clock[0] == pytest.approx(700)


@pytest.mark.parametrize("part", ["tests", "agreement"])
def test_without_numba_what_needs_the_cpu_is_left_out(monkeypatch, part, args):
    monkeypatch.setattr(gpu_check, "why_not", lambda name: "numba is no good" if name == "numba" else None)
    (record,) = gpu_check.records_of(part, args, 60)
    assert (record["result"], record["detail"][:17]) == ("left out", "numba is no good:")


def test_a_package_that_is_there_may_be_no_good(monkeypatch, tmp_path):
    """numba raises ImportError beside a numpy that it does not know."""
    (tmp_path / "picky.py").write_text("raise ImportError('picky needs NumPy 2.4 or less')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    expected = "picky cannot be imported (ImportError: picky needs NumPy 2.4 or less)"
    assert gpu_check.why_not("picky") == expected
    assert gpu_check.why_not("nowhere_at_all") == "nowhere_at_all is not installed"
    assert gpu_check.why_not("json") is None


def test_the_corpus_is_drawn_beside_the_other_parts(monkeypatch, args):
    script = "import sys; open(sys.argv[-1], 'w').close()"
    monkeypatch.setattr(gpu_check, "fits", lambda *given: [sys.executable, "-c", script, *given])
    with gpu_check.drawing(args):
        path = args.drawn(60)
        assert (path.name, path.exists()) == ("corpus.npz", True)
    assert not path.exists()
    monkeypatch.setattr(gpu_check, "fits", lambda *given: ["sleep", "60"])
    begun = time.monotonic()
    with gpu_check.drawing(args):
        assert args.drawn(0.1) is None
    args.parts = ["tests"]
    with gpu_check.drawing(args):
        assert args.drawn(60) is None
    assert time.monotonic() - begun < 45


def test_a_command_whose_time_is_up_ends_with_its_children(tmp_path):
    script = "import subprocess, sys; print('begun', flush=True); subprocess.run(['sleep', '60'])"
    done = gpu_check.timed([sys.executable, "-c", script], 1, tmp_path / "log")
    assert (done["status"], done["output"]) == ("its time was up", "begun\n")
    assert done["seconds"] < 30
    assert gpu_check.last_line(done) == "begun (status: its time was up)"


def test_what_a_command_leaves_behind_is_not_waited_for(tmp_path):
    """Nor what it says beside text."""
    script = "import subprocess, os; p = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    script += "os.write(1, b'%d \\xff' % p.pid)"
    (tmp_path / "log").write_text("before\n")
    begun = time.monotonic()
    done = gpu_check.timed([sys.executable, "-c", script], 50, tmp_path / "log")
    assert time.monotonic() - begun < 45
    number, rest = done["output"].split(" ")
    os.kill(int(number), 9)
    assert (done["status"], rest) == (0, "\ufffd")
    assert (tmp_path / "log").read_bytes().startswith(b"before\n")


def test_the_tests_of_a_gpu_are_found_and_their_closing_line_told(monkeypatch, args):
    seen = []

    def pretend(command, seconds, log):
        seen.extend(command)
        return {"status": 0, "output": "..\n==== 5 passed in 3.2s ====\n", "seconds": 3.2}

    monkeypatch.setattr(gpu_check, "timed", pretend)
    (record,) = gpu_check.run_tests(args, 60)
    assert (record["result"], record["detail"]) == ("passed", "5 passed in 3.2s")
    assert any(name.endswith("test_philox_cuda.py") for name in seen)


@pytest.mark.parametrize(
    ("status", "output", "detail"),
    [
        (1, "a.py::one FAILED [1%]\nFAILED a.py::one - no\n= 1 failed in 1s =\n", "1 failed in 1s, one"),
        (
            "its time was up",
            "a.py::x PASSED\na.py::y FAILED\na.py::z ",
            "1 passed, 1 failed, then its time was up in z",
        ),
        (0, "5 skipped in 0.1s\n", "5 skipped in 0.1s"),  # that all skip is no success
    ],
)
def test_tests_that_fail_or_skip_or_take_too_long(monkeypatch, args, status, output, detail):
    monkeypatch.setattr(gpu_check, "timed", lambda *_: {"status": status, "output": output, "seconds": 0.1})
    (record,) = gpu_check.run_tests(args, 60)
    assert (record["result"], record["detail"]) == ("failed", detail)


COLLECT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("dask", "distributed", "hypothesis", "pooch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_they_need_neither_dask_nor_hypothesis(monkeypatch, args):
    given, done = [], {"status": 1, "output": "", "seconds": 0.0}
    monkeypatch.setattr(gpu_check, "timed", lambda command, *_: given.extend(command) or done)
    list(gpu_check.run_tests(args, 60))
    options = given[given.index("pytest") + 1 :]
    command = [sys.executable, "-c", COLLECT, "--collect-only", "-p", "no:hypothesispytest", *options]
    done = subprocess.run(
        command, cwd=gpu_check.ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "test_light_cuda.py" in done.stdout


@pytest.mark.parametrize(
    ("status", "output", "result"),
    [
        (0, "========= ERROR SUMMARY: 0 errors\n", "passed"),
        (9, "========= Invalid write\n========= ERROR SUMMARY: 3 errors\n", "failed"),
        (1, "Traceback\nDataError: no\n", "failed"),
        ("its time was up", "", "left out"),
        ("its time was up", "========= Invalid __global__ write of size 4 bytes\n", "failed"),
        (1, "========= Error: Device not supported.\n", "left out"),
    ],
)
def test_what_a_sanitizer_says(monkeypatch, args, status, output, result):
    monkeypatch.setattr(gpu_check, "tool", lambda name: f"/bin/{name}")
    monkeypatch.setattr(gpu_check, "timed", lambda *_: {"status": status, "output": output, "seconds": 1.0})
    records = list(gpu_check.run_sanitizer(args, 60))
    assert [r["what"] for r in records] == [f"{tool}, saber" for tool in gpu_check.TOOLS]
    assert {r["result"] for r in records} == {result}


@pytest.mark.parametrize(("part", "name"), [("sanitizer", "compute-sanitizer"), ("counters", "ncu")])
def test_without_a_tool(monkeypatch, args, part, name):
    monkeypatch.setattr(gpu_check, "tool", lambda name: None)
    (record,) = gpu_check.records_of(part, args, 60)
    assert (record["what"], record["result"]) == (name, "left out")
    assert "it comes with the CUDA toolkit" in record["detail"]


def test_a_tool_is_found_where_it_is_installed_beside_the_path(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_check, "TOOL_FOLDERS", (str(tmp_path / "nsight*"),))
    assert gpu_check.tool("ncu-of-a-test") is None
    folder = tmp_path / "nsight-1"
    folder.mkdir()
    (folder / "ncu-of-a-test").write_text("#!/bin/sh\n")
    (folder / "ncu-of-a-test").chmod(0o755)
    assert gpu_check.tool("ncu-of-a-test") == str(folder / "ncu-of-a-test")


SECTION = '"0","7","sample","Command line profiler metrics"'
NCU = f"""==PROF== Connected to process 7
==PROF== Profiling "sample" - 0: 0%....100% - 2 passes
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
{SECTION},"smsp__inst_executed.sum","inst","1,200,000"
{SECTION},"dram__bytes.sum","byte","3,500,000"
{SECTION},"lts__throughput.avg.pct_of_peak_sustained_elapsed","%","n/a"
{SECTION},"gpu__time_duration.sum","ns","20,000.5"
{SECTION},"smsp__issue_active.avg.pct_of_peak_sustained_active","%","61.5"
"""
NO_COUNTERS = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"


@pytest.mark.parametrize(
    ("said", "result", "detail"),
    [
        (NCU, "passed", "a token: 120 instructions and 350 bytes, 62 % of issue slots"),
        (NO_COUNTERS, "left out", "ncu counts nothing here: ERROR== ERR_NVGPUCTRPERM - The user does not"),
        ("", "left out", 'ncu counts nothing here: {"tokens": 10000} (status: 0)'),
    ],
)
def test_what_ncu_counts(monkeypatch, args, said, result, detail):
    def pretend(command, seconds, log):
        Path(command[command.index("--log-file") + 1]).write_text(said)
        return {"status": 0, "output": '{"tokens": 10000}\n', "seconds": 1.0}

    monkeypatch.setattr(gpu_check, "tool", lambda name: f"/bin/{name}")
    monkeypatch.setattr(gpu_check, "timed", pretend)
    records = list(gpu_check.run_counters(args, 60))
    assert [r["what"] for r in records] == ["sample, 1,000 topics", "sample, 10,000 topics"]
    assert {r["result"] for r in records} == {result}
    assert records[0]["detail"].startswith(detail)
    if result == "passed":
        assert records[0]["counters"]["nanoseconds"] == 20_000.5


def test_sweeps_are_timed_on_the_corpus_that_was_drawn(monkeypatch, args, tmp_path):
    args.drawn, given = lambda seconds: tmp_path / "corpus.npz", []
    done = {"status": 0, "output": "", "seconds": 1.0}
    monkeypatch.setattr(gpu_check, "timed", lambda command, *_: given.extend(command) or done)
    assert not list(gpu_check.PARTS["speed"](args, 60))
    assert given[given.index("--corpus") + 1] == str(tmp_path / "corpus.npz")
    given.clear()
    assert not list(gpu_check.PARTS["agreement"](args, 60))
    assert "--corpus" not in given


def test_fits_that_break_off_keep_what_was_done(monkeypatch, args):
    output = '{"what": "a", "result": "passed"}\nTraceback\nKilled\n'
    monkeypatch.setattr(gpu_check, "timed", lambda *_: {"status": -9, "output": output, "seconds": 1.0})
    records = list(gpu_check.PARTS["speed"](args, 60))
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
def test_what_the_benchmark_says(monkeypatch, args, status, solvers, results):
    measured = {"snapshots": [{"pp": 700.5, "seconds": 2.0, "work": 10}]}
    told = {
        "ok": measured | {"metrics": [{"label": "perplexity", "key": "pp"}]},
        "failed": {"error": "it broke"},
        "unavailable": {"error": "no GPU"},
    }

    def pretend(command, seconds, log, STRADASK_DATA):
        lines = [json.dumps({"solver": "s", "status": one} | told[one]) for one in solvers]
        if lines:
            (Path(command[-1]) / "records.jsonl").write_text("\n".join(lines) + "\n")
        return {"status": status, "output": "end", "seconds": 3.0}

    monkeypatch.setattr(gpu_check, "timed", pretend)
    records = list(gpu_check.run_bench(args, 60))
    assert [record["result"] for record in records] == results
    if results[0] == "passed":
        assert records[0]["detail"] == "perplexity 700.5 after 2.0 s"
        assert records[0]["tokens_per_second"] == 5


def test_the_shares_of_the_time_add_up_to_all_of_it():
    assert sum(gpu_check.SHARES.values()) == pytest.approx(1)
    assert gpu_check.SHARES.keys() == gpu_check.PARTS.keys()
    assert gpu_check.NEEDS.keys() <= gpu_check.PARTS.keys()


def test_the_command_that_the_page_names():
    command = [sys.executable, "-m", "stradask.benchmarks.gpu_check", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "--minutes" in done.stdout
