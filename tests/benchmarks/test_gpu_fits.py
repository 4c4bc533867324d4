"""The fits with which a GPU is checked, on the emulator; and all of the check, where that is the GPU."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_emulator import HERE, MISSING, EmulatedDevice

from stradask.benchmarks import gpu_check, gpu_fits
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError, DeviceError
from stradask.kernels.cuda.device import standing_in
from stradask.kernels.cuda.launch import FOLDER, KERNEL

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
ARGS = {"samplers": ["saber", "light"], "tokens": 1e5, "sweeps": 3, "topics": None, "seconds": np.inf}
ARGS |= {"corpus": None}


@pytest.fixture
def emulated(monkeypatch):
    """Let fits run on the emulator, with a corpus and numbers of topics that suit it."""
    X, *_ = make_lda_corpus(30, 60, 4, mean_length=30, random_state=0)
    monkeypatch.setattr(gpu_fits, "corpus", lambda *_: X)
    monkeypatch.setattr(gpu_fits, "SAMPLERS", {"saber": [20], "light": [30]})
    monkeypatch.setattr(gpu_fits, "_COPIED", 2**20)
    with standing_in(EmulatedDevice()) as device:
        yield device


def _fits(kind, **options):
    return list(gpu_fits.FITS[kind](SimpleNamespace(**(ARGS | options))))


def test_small_fits(emulated):
    records = _fits("small")
    assert [record["what"].split(",")[0] for record in records] == ["saber", "saber", "light", "light"]
    assert [record["what"].split(",")[1] for record in records] == [" 64 topics", " 800 topics"] * 2
    known = {name for file in FOLDER.rglob("*.cu") for name, _ in KERNEL.findall(file.read_text("utf-8"))}
    assert known - set(emulated.launches) == set()  # the sanitizers see all there are


def test_agreement_tells_both_log_likelihoods(emulated):
    saber, shares, light, _ = _fits("agreement")
    assert shares["result"] == "passed"
    assert shares["what"] == "saber, inference on 200 documents"
    assert saber["log_likelihood"] == pytest.approx(saber["log_likelihood_cpu"], rel=1e-12)
    assert saber["result"] == "passed"
    assert "0.00 % apart" in saber["detail"]
    assert light["log_likelihood"] != light["log_likelihood_cpu"]


def test_speed_is_that_of_the_last_sweeps(emulated):
    copies, drawn, saber, saber_there, light, light_there = _fits("speed")
    assert copies["bandwidth"] > 0
    assert drawn["detail"].startswith("30 documents, 60 words, ")
    assert (saber["sampler"], saber["n_components"], light["n_components"]) == ("saber", 20, 30)
    for record in (saber, light):
        assert len(record["sweep_seconds"]) == 3
        later = np.mean(record["sweep_seconds"][1:])
        assert record["tokens_per_second"] == pytest.approx(record["tokens"] / later, rel=0.05)
        assert " M tokens/s in sweeps 2 to 3, " in record["detail"]
    assert saber["detail"].endswith("% of the bandwidth")
    for record, there, parts in ((saber_there, saber, 1), (light_there, light, 10)):
        assert record["on"] == "cpu"
        assert record["what"].endswith(" tokens, CPU")
        assert there["tokens"] == gpu_fits.corpus()[: 30 // parts].sum()
        assert record["tokens"] == gpu_fits.corpus()[: -(-3 // parts)].sum()
        assert (
            f"the GPU is {there['tokens_per_second'] / record['tokens_per_second']:.0f} x" in record["detail"]
        )


def test_what_is_prepared_takes_nothing_of_the_time_for_sweeps(emulated, monkeypatch):
    """A corpus of 100 million tokens takes half a minute; ten sweeps of it may take one second."""
    now = [0.0]

    class Fit:
        log_likelihood_ = (-7.0,)

        def __init__(self, *_, **options):
            self.sweeps = options["max_iter"]

        def fit(self, X, callback):
            now[0] += 30.0
            for sweep in range(self.sweeps):
                now[0] += 3.0 if sweep < 10 else 1.0
                if callback(None):
                    break
            return self

    monkeypatch.setattr("stradask.algorithms.topics.lda.LatentDirichletAllocation", Fit)
    monkeypatch.setattr(gpu_fits.time, "perf_counter", lambda: now[0])
    X, place = gpu_fits.corpus(), ("saber", 20, "cuda")
    tokens = int(X.sum())
    for seconds, last, mean in ((100, 30, 1.0), (20, 8, 3.0), (0, 2, 3.0)):
        _, detail, figures = gpu_fits.time_sweeps(X, place, 30, seconds, {})
        assert figures["sweep_seconds"][0] == 33
        assert len(figures["sweep_seconds"]) == last
        assert figures["tokens_per_second"] == tokens / mean
        assert f"in sweeps {max(last - 9, 2)} to {last}, " in detail


def test_without_numba_the_cpu_is_not_timed(emulated, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert [record.get("on") for record in _fits("speed")] == [None, None, "cuda", "cuda"]


def test_a_drawn_corpus_is_read(emulated, monkeypatch, tmp_path):
    assert len(_fits("corpus", corpus=tmp_path / "kept.npz")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["kept.npz"]
    monkeypatch.setattr(gpu_fits, "corpus", None)
    _, drawn, *_ = _fits("speed", corpus=tmp_path / "kept.npz", samplers=[])
    assert drawn["detail"].startswith("30 documents, 60 words, ")


@pytest.mark.parametrize(("sampler", "n_topics"), list(gpu_fits.BITS))
def test_the_known_bits_are_those_of_the_emulator_and_the_cpu(sampler, n_topics):
    X = gpu_fits.known_corpus()
    with standing_in(EmulatedDevice(seed=2)) as device:
        model = gpu_fits.fit(X, sampler, n_topics, 3, "cuda")[0]
    assert gpu_fits.bits(model) == gpu_fits.BITS[sampler, n_topics]
    assert {"sample", "sweep"} & set(device.launches)
    if sampler == "saber":
        assert gpu_fits.bits(gpu_fits.fit(X, sampler, n_topics, 3, "cpu")[0]) == gpu_fits.bits(model)


def test_bits_that_are_others_are_a_failure(emulated, monkeypatch):
    monkeypatch.setattr(gpu_fits, "BITS", {("saber", 64): 1, ("light", 64): gpu_fits.BITS["light", 64]})
    records = _fits("bits")
    assert [record["result"] for record in records] == ["failed"] * 2 + ["passed"] * 2
    assert records[0]["detail"] == "0xfd3af5bf, not 0x1"
    assert records[1]["what"] == "topics of saber, 64 topics, 11 KB shared"
    assert emulated.shared_memory == 227 * 1024


def test_no_sweep_and_no_case_begins_when_the_time_is_up(emulated):
    model, seconds = gpu_fits.fit(gpu_fits.corpus(), "light", 30, 50, "cuda", seconds=0)
    assert (model.n_iter_, len(seconds)) == (2, 2)  # the first has what is prepared: it tells no speed
    results = [record["result"] for record in _fits("speed", seconds=0)]
    assert results == ["passed"] * 2 + ["left out"] * 4


def test_a_case_that_breaks_off_is_a_record_and_the_next_one_begins(emulated, monkeypatch):
    real = gpu_fits.fit

    def fit(X, sampler, *rest):
        if sampler == "saber":
            raise DeviceError("no room\nfor it")
        return real(X, sampler, *rest)

    monkeypatch.setattr(gpu_fits, "fit", fit)
    monkeypatch.setattr(gpu_fits, "numba_works", lambda: False)
    for kind in ("speed", "agreement"):
        broken, *later = [r for r in _fits(kind) if r["what"].startswith(("saber", "light"))]
        assert (broken["result"], broken["detail"]) == ("failed", "DeviceError: no room for it")
        assert all(record["what"].startswith("light") for record in later)
        assert later[0]["result"] == "passed" or kind == "agreement"


def test_what_a_profiler_looks_at(emulated):
    assert (
        _fits("profile", topics=[7, 8], samplers=["saber"], sweeps=2)
        == [{"tokens": int(gpu_fits.corpus().sum())}] * 2
    )
    assert emulated.launches.count("sample") == 4  # a sweep is a launch: the tenth is one of the tenth sweep


@pytest.mark.parametrize("option", ["--tokens=10", "--sweeps=1"])
def test_numbers_that_make_no_sense(option):
    with pytest.raises(DataError, match="or more is needed"):
        gpu_fits.main(["small", option])


# In processes where the emulator is the GPU ----------------------------------------------------------------

STAND_IN = """
import os, sys, types
sys.modules.update(dict.fromkeys(os.environ["ABSENT"].split()))  # nobody finds them, nor can import them
runtime = types.SimpleNamespace(driverGetVersion=lambda: 13000, runtimeGetVersion=lambda: 12090)
cupy = sys.modules["cupy"] = types.ModuleType("cupy")
cupy.__version__, cupy.cuda = "0", types.SimpleNamespace(runtime=runtime)
from cuda_emulator import EmulatedDevice
from stradask.kernels.cuda import device
device._stand_in = EmulatedDevice()
"""
SANITIZER = """#!/bin/sh
shift 4
"$@" && echo "========= ERROR SUMMARY: 0 errors"
"""
NCU = """#!/bin/sh
for last; do if [ "$before" = --log-file ]; then file=$last; fi; before=$last; done
cat > "$file" <<END
"ID","Metric Name","Metric Unit","Metric Value"
"0","smsp__inst_executed.sum","inst","1,000,000"
"0","gpu__time_duration.sum","ns","10,000"
END
while [ "$1" != "$PYTHON" ]; do shift; done
exec "$@"
"""


@pytest.fixture
def where_it_is_the_gpu(tmp_path):
    """Give the environment of processes that lack some packages and have the emulator as their GPU."""
    (tmp_path / "sitecustomize.py").write_text(STAND_IN)
    for name, script in (("compute-sanitizer", SANITIZER), ("ncu", NCU)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)

    def lacking(absent):
        environment = os.environ | {"ABSENT": absent, "PYTHON": sys.executable}
        environment["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(HERE), str(gpu_check.ROOT)])
        return environment

    return lacking


@pytest.mark.slow
@pytest.mark.parametrize(
    ("absent", "parts"),
    [
        (
            "dask distributed pooch hypothesis",
            ["bits", "speed", "sanitizer", "agreement", "counters", "bench"],
        ),
        (
            "dask distributed pooch hypothesis numba llvmlite",
            ["bits", "tests", "speed", "sanitizer", "agreement"],
        ),
    ],
)
def test_all_of_it(absent, parts, where_it_is_the_gpu, tmp_path):
    command = [sys.executable, "-m", "stradask.benchmarks.gpu_check", "--out", str(tmp_path / "out")]
    X = make_lda_corpus(60, 50, 4, mean_length=30, random_state=0)[0].tocoo()
    lines = [f"{d + 1} {w + 1} {n}" for d, w, n in zip(X.row, X.col, X.data, strict=True)]
    (tmp_path / "docword.txt").write_text("\n".join(["60", "50", str(len(lines)), *lines]) + "\n")
    command += ["--minutes=60", "--tokens=1e4", "--sweeps=2", "--topics=20", "--parts", *parts]
    command += ["--dataset", str(tmp_path / "docword.txt")]
    environment = where_it_is_the_gpu(absent)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    records = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]
    logs = (log.read_text()[-3000:] for log in (tmp_path / "out").glob("*.log"))
    told = done.stdout + done.stderr + "".join(logs)
    assert {record["part"] for record in records} == set(parts), told
    assert {record["device"] for record in records} == {"emulated GPU"}
    without = {"tests", "agreement"} if "numba" in absent else set()
    for record in records:
        expected = "left out" if record["part"] in without else "passed"
        if (record["part"], record["what"][:5]) != (
            "agreement",
            "light",
        ):  # of so few sweeps the chains differ
            assert record["result"] == expected, (record, told)


@pytest.mark.slow
def test_tests_marked_gpu_run_where_there_is_one(where_it_is_the_gpu):
    file = str(HERE / "test_topic_inference_cuda.py")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "default", "-m", "gpu", file]
    environment = where_it_is_the_gpu("dask distributed pooch")
    done = subprocess.run(
        command, cwd=gpu_check.ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout
