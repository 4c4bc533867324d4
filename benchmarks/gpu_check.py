"""Every check that needs a GPU, in one command of ten minutes.

    python -m stradask.benchmarks.gpu_check --out gpu-check

It needs a checkout of the project (the tests are in it), Python with the packages of ``setup.cfg``, CuPy of
the driver's CUDA, and pytest with pytest-timeout; not dask, and no network. What tells most comes first: it

1. holds the topics of small fits against those that every machine draws, which needs nothing to compare with;
2. runs the tests marked ``gpu``;
3. times sweeps on a generated corpus with the shape of NYTimes (300,000 documents, 102,000 words, 100 million
   tokens; it is drawn while earlier parts run), as a share of the bandwidth that copies reach, and the CPU's
   over a tenth of it; of "light" all over a tenth, since the host takes a minute to lay 100 million out;
4. runs every kernel under the tools of compute-sanitizer, where that is installed: small fits of each
   sampler, their log-likelihoods, and inference, with and without room in shared memory;
5. compares the log-likelihood of each sampler with that of its CPU form after as many sweeps, and the topic
   shares of new documents;
6. counts instructions and bytes of a token, and what binds, by Nsight Compute (ncu), where that is installed;
7. runs ``stradask bench lda --device cuda --quick``, which judges by held-out perplexity.

A part has its share of what time is left, so that what one saves the later ones have; whatever happens in it,
the next one begins. Each record is a line of JSON in ``records.jsonl``, with the device's name; all that a
part says is in a file of its name next to it, at once. A table is printed last, and kept in ``table.txt``.
The exit status is 0 if all that ran is well, 1 if not, and 2 where there is no GPU to be used.
"""

import argparse
import contextlib
import csv
import functools
import glob
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .._version import __version__
from ..errors import DataError
from ..kernels.cuda.device import cuda_device, why_no_device
from .gpu_fits import SAMPLERS

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("synccheck", "racecheck", "memcheck")  # the slowest last: it has what time the others leave
FOUND = re.compile(r"Invalid|Error: Race|Potential|Barrier error|ERROR SUMMARY: [1-9]|hazard")  # of a tool's
TOOL_FOLDERS = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/*")  # searched after the PATH
SHARES = {
    "bits": 0.08,
    "tests": 0.24,
    "speed": 0.3,
    "sanitizer": 0.17,
    "agreement": 0.08,
    "counters": 0.08,
    "bench": 0.05,
}  # of the time, if all of it is used
NEEDS = {"tests": ("pytest", "pytest_timeout", "numba"), "agreement": ("numba",)}
COUNTERS = {
    "instructions": "smsp__inst_executed.sum",
    "bytes": "dram__bytes.sum",
    "issued": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "nanoseconds": "gpu__time_duration.sum",
}


def main(arguments=None):
    """Run the parts, each in a process of its own, and print the table."""
    begun = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="folder of records.jsonl")
    parser.add_argument("--minutes", type=float, default=9.5, help="in all (default: 9.5)")
    parser.add_argument("--parts", nargs="+", choices=SHARES, default=list(SHARES))
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument(
        "--topics", type=int, nargs="+", help="to time (default: some numbers of each sampler)"
    )
    parser.add_argument("--tokens", type=float, default=1e8, help="of the timed corpus (default: 1e8)")
    parser.add_argument("--sweeps", type=int, default=30)
    parser.add_argument("--dataset", default="docstrings", help="of `stradask bench lda`")
    args = parser.parse_args(arguments)
    for name, least in (("minutes", 0.1), ("tokens", 1e4), ("sweeps", 2)):
        if not getattr(args, name) >= least:
            raise DataError(f"--{name} is {getattr(args, name)}; {least:g} or more is needed")
    why = why_no_device()
    if why is not None:
        print(f"nothing was checked: {why}", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    common, records = describe(), []
    try:
        with (args.out / "records.jsonl").open("a", encoding="utf-8") as file, drawing(args):
            for record in all_records(args, begun + 60 * args.minutes):
                records.append(record)
                file.write(json.dumps(record | common) + "\n")
                file.flush()
                print(row(record), flush=True)
    finally:
        text = table(records, common)
        (args.out / "table.txt").write_text(f"{text.strip()}\n", encoding="utf-8")
        print(text)
    return int(any(record["result"] == "failed" for record in records))


def all_records(args, deadline):
    """Run the parts one after the other, each in its share of the time that is left."""
    for i, part in enumerate(args.parts):
        left = max(deadline - time.perf_counter(), 0)
        seconds = left * SHARES[part] / sum(SHARES[other] for other in args.parts[i:])
        for record in records_of(part, args, seconds):
            yield {"part": part} | record


def records_of(part, args, seconds):
    """Run a part; an error or a missing package is a record, too."""
    lacking = list(filter(None, map(why_not, NEEDS.get(part, ()))))
    if lacking:
        yield left_out(part, f"{' and '.join(lacking)}: what the GPU is held against needs it")
        return
    begun = time.perf_counter()
    try:
        yield from PARTS[part](args, seconds)
    except Exception as error:  # the next part is to have its turn, whatever this one met
        done = {"seconds": round(time.perf_counter() - begun, 1)}
        yield outcome(part, False, " ".join(f"{type(error).__name__}: {error}".split())[:300], done)


@functools.cache
def why_not(package):
    """Say why a package cannot be imported, None if it can; numba refuses a numpy that is newer than it."""
    command = [sys.executable, "-c", f"import {package}"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    if done.returncode == 0:
        return None
    absent = f"No module named {package!r}" in said
    return f"{package} is not installed" if absent else f"{package} cannot be imported ({said[:200]})"


@contextlib.contextmanager
def drawing(args):
    """Draw the timed corpus while earlier parts run; `args.drawn` waits for its file (None without)."""
    args.drawn = lambda seconds: None
    with tempfile.TemporaryDirectory() as folder, log_of(args, "corpus").open("ab") as log:
        if "speed" not in args.parts:
            yield
            return
        path = Path(folder, "corpus.npz")
        options = ["--tokens", str(args.tokens), "--corpus", str(path)]
        process = begin(fits("corpus", *options), log)

        def drawn(seconds):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(seconds, 0))
            return path if path.exists() else None

        args.drawn = drawn
        try:
            yield
        finally:
            end(process)


def describe():
    """The device, and the versions of what drives it."""
    import cupy

    device, runtime = cuda_device(), cupy.cuda.runtime
    return {
        "device": device.name,
        "n_processors": device.n_processors,
        "free_gb": round(device.free_memory() / 2**30, 1),
        "driver_cuda": runtime.driverGetVersion(),
        "cupy": cupy.__version__,
        "cupy_cuda": runtime.runtimeGetVersion(),
        "stradask": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


# The parts: each gives records of what, result ("passed", "failed", "left out"), detail, seconds ---------


def run_tests(args, seconds):
    """Run the tests that need a GPU; no other files are collected, whatever they would import."""
    all_tests = sorted((ROOT / "tests").rglob("test_*.py"))
    # The marks stand in the file, or with the KINDS of tests/cuda/cuda_devices.py.
    files = [path for path in all_tests if re.search(r"\b(mark\.gpu|KINDS)\b", path.read_text("utf-8"))]
    if not files:
        yield left_out("pytest -m gpu", f"there are no tests in {ROOT / 'tests'}: run it from a checkout")
        return
    # A warning of another version of a package is none of a GPU's.
    options = ["-v", "-W", "default", "-m", "gpu", "-p", "no:cacheprovider"]
    done = timed([sys.executable, "-m", "pytest", *options, *map(str, files)], seconds, log_of(args, "tests"))
    closing = (done["output"].strip().splitlines() or ["no output"])[-1].strip("= ")
    if isinstance(done["status"], str):
        passed, failed = (len(re.findall(rf" {word}\b", done["output"])) for word in ("PASSED", "FAILED"))
        closing = f"{passed} passed, {failed} failed, then {done['status']} in {closing.split('::')[-1][:80]}"
    broken = re.findall(r"^FAILED \S*?::(\S+)", done["output"], re.MULTILINE)
    well = done["status"] == 0 and "passed" in closing
    yield outcome("pytest -m gpu", well, ", ".join([closing, *broken[:5]]), done)


def run_sanitizer(args, seconds):
    """Fit a small model under each tool: some ten to a thousand times as slow as without."""
    program = tool("compute-sanitizer")
    if program is None:
        yield left_out("compute-sanitizer", "it is not installed (it comes with the CUDA toolkit)")
        return
    deadline = time.perf_counter() + seconds
    cases = list(itertools.product(TOOLS, args.samplers))
    for i, (name, sampler) in enumerate(cases):
        command = [program, "--tool", name, "--error-exitcode", "9", *fits("small", "--samplers", sampler)]
        share = (deadline - time.perf_counter()) / (len(cases) - i)
        done = timed(command, share, log_of(args, "sanitizer"))
        errors = [line for line in done["output"].splitlines() if "ERROR SUMMARY" in line or "hazard" in line]
        refused = "not supported" in done["output"] or "Unable to" in done["output"]
        refused |= isinstance(done["status"], str) and not FOUND.search(done["output"])  # nothing up to then
        if done["status"] == 9 or not refused:
            what = errors[-1].strip("= ") if errors else last_line(done)
            yield outcome(f"{name}, {sampler}", done["status"] == 0, what, done)
        else:
            yield left_out(f"{name}, {sampler}", last_line(done))


def run_bench(args, seconds):
    """Run the benchmark of topic models, with nothing to download; its records are kept with ours."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--device", "cuda", "--quick", "--against", "--dataset", args.dataset, "--json"]
        command = [sys.executable, "-m", "stradask", "bench", "lda", *options, "--out", folder]
        # Texts are kept there; the user's own folder is asked of pooch, which may not be installed.
        done = timed(command, seconds, log_of(args, "bench"), STRADASK_DATA=folder)
        kept = Path(folder, "records.jsonl")
        records = [json.loads(line) for line in kept.read_text("utf-8").splitlines()] if kept.exists() else []
    for record in records:
        if record["status"] != "ok":
            yield outcome(f"bench lda, {record['solver']}", False, record["error"], done)
            continue
        last, metric = record["snapshots"][-1], record["metrics"][0]
        detail = f"{metric['label']} {last[metric['key']]:.1f} after {last['seconds']:.1f} s"
        rate = {"tokens_per_second": last["work"] / last["seconds"], "bench": record}
        yield outcome(f"bench lda, {record['solver']}", True, detail, done) | rate
    if done["status"] != 0 and all(record["status"] == "ok" for record in records):
        yield outcome("bench lda", False, last_line(done), done)


def run_counters(args, seconds):
    """Let Nsight Compute look at the sampling kernel of one sweep of a corpus a tenth as large."""
    program = tool("ncu")
    if program is None:
        yield left_out("ncu", "it is not installed (it comes with the CUDA toolkit)")
        return
    deadline, tokens = time.perf_counter() + seconds, max(args.tokens / 10, 1e4)
    cases = args.topics or SAMPLERS["saber"]
    for i, n_topics in enumerate(cases):
        what, sizes = f"sample, {n_topics:,} topics", ["--tokens", str(tokens), "--sweeps", "10"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "counters.csv")
            options = ["--csv", "--print-units", "base", "--log-file", str(path), "--clock-control", "none"]
            options += ["--kernel-name", "sample", "--launch-skip", "9", "--launch-count", "1"]
            options += ["--metrics", ",".join(COUNTERS.values())]
            command = [
                program,
                *options,
                *fits("profile", "--samplers", "saber", "--topics", str(n_topics), *sizes),
            ]
            share = (deadline - time.perf_counter()) / (len(cases) - i)
            done = timed(command, share, log_of(args, "counters"))
            output = path.read_text("utf-8", errors="replace") if path.exists() else ""
        fitted = [line for line in done["output"].splitlines() if line.startswith("{")]
        counts = counters(output)
        if fitted and "instructions" in counts:
            detail, figures = counted(counts, json.loads(fitted[0])["tokens"])
            yield outcome(what, True, detail, done) | figures
        else:
            errors = [line for line in output.splitlines() if "ERROR" in line] or [last_line(done)]
            yield left_out(what, f"ncu counts nothing here: {errors[0].strip('= ')}")


def counters(output):
    """Read the counters of a launch from what ncu writes as CSV, with messages before and after it."""
    rows = list(csv.reader(line for line in output.splitlines() if line.startswith('"')))
    if not rows or not {"Metric Name", "Metric Value"} <= set(rows[0]):
        return {}
    name, value = (rows[0].index(column) for column in ("Metric Name", "Metric Value"))
    names, counts = {metric: short for short, metric in COUNTERS.items()}, {}
    for fields in rows[1:]:
        with contextlib.suppress(ValueError, IndexError):  # "n/a": a counter that this GPU does not have
            counts[names.get(fields[name])] = float(fields[value].replace(",", ""))
    counts.pop(None, None)
    return counts


def counted(counts, tokens):
    """Return counters divided by tokens."""
    by_token = [f"{counts[name] / tokens:.0f} {name}" for name in ("instructions", "bytes") if name in counts]
    shares = {"issued": "issue slots", "l1": "L1", "l2": "L2", "dram": "memory", "warps": "warps"}
    used = [f"{counts[name]:.0f} % of {words}" for name, words in shares.items() if name in counts]
    detail = ", ".join([" and ".join(by_token), *used])
    return f"a token: {detail}", {"counters": counts, "tokens": tokens}


def run_fits(kind):
    """Make the part that fits models in one process and reads a record from each line that it prints."""

    def run(args, seconds):
        options = ["--samplers", *args.samplers, "--tokens", str(args.tokens), "--sweeps", str(args.sweeps)]
        options += ["--topics", *map(str, args.topics)] if args.topics else []
        begun = time.perf_counter()
        corpus = args.drawn(0.5 * seconds) if kind == "speed" else None
        options += ["--corpus", str(corpus)] if corpus else []
        seconds -= time.perf_counter() - begun
        command = fits(kind, *options, "--seconds", f"{0.9 * seconds:.1f}")
        done = timed(command, seconds, log_of(args, kind))
        lines = [line for line in done["output"].splitlines() if line.startswith("{")]
        yield from map(json.loads, lines)
        if done["status"] != 0:
            yield outcome(kind, False, last_line(done), done)

    return run


PARTS = {
    "bits": run_fits("bits"),
    "tests": run_tests,
    "speed": run_fits("speed"),
    "sanitizer": run_sanitizer,
    "agreement": run_fits("agreement"),
    "counters": run_counters,
    "bench": run_bench,
}


def fits(*arguments):
    """Give the command that fits."""
    return [sys.executable, "-m", "stradask.benchmarks.gpu_fits", *arguments]


def tool(name):
    """Find a program of NVIDIA's on the PATH or where it is installed; None if there is none."""
    folders = [os.environ.get("PATH", os.defpath)]
    folders += itertools.chain.from_iterable(sorted(glob.glob(folder)) for folder in TOOL_FOLDERS)
    return shutil.which(name, path=os.pathsep.join(folders))


def log_of(args, part):
    """The file of a part's output."""
    return args.out / f"{part}.log"


def timed(command, seconds, log, **variables):
    """Run a command for so long at most, its output at the end of a file; its processes end with it."""
    begun = time.perf_counter()
    with log.open("ab") as file:
        first = file.tell()
        process = begin(command, file, **variables)
        try:
            status: int | str = process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            status = "its time was up"
        finally:
            end(process)
    output = log.read_bytes()[first:].decode("utf-8", errors="replace")
    return {"status": status, "output": output, "seconds": round(time.perf_counter() - begun, 1)}


def begin(command, file, **variables):
    """Start a command in a session of its own; its output goes to a file."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **variables}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True
    )


def end(process):
    """End a command with all its processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_line(done):
    """Return a command's last line of output and its status."""
    lines = done["output"].strip().splitlines() or ["no output"]
    return f"{lines[-1][:200]} (status: {done['status']})"


def outcome(what, well, detail, done):
    """A record of something that ran."""
    return {
        "what": what,
        "result": "passed" if well else "failed",
        "detail": detail,
        "seconds": done["seconds"],
    }


def left_out(what, why):
    """A record of something that could not run here."""
    return {"what": what, "result": "left out", "detail": why, "seconds": 0.0}


# The table ------------------------------------------------------------------------------------------


def row(record):
    """A line of the table."""
    part, what, result, seconds, detail = (
        record[name] for name in ("part", "what", "result", "seconds", "detail")
    )
    return f"{part:<10} {what:<46} {result:<9} {seconds:>6.1f} s  {detail}"


def table(records, common):
    """All that was seen, in a few lines."""
    counts = {word: sum(r["result"] == word for r in records) for word in ("passed", "failed", "left out")}
    head = f"\n{common['device']}, driver of CUDA {common['driver_cuda'] // 1000}, CuPy {common['cupy']}"
    closing = ", ".join(f"{n} {word}" for word, n in counts.items())
    return "\n".join([head, *map(row, records), closing])


if __name__ == "__main__":
    sys.exit(main())
