"""Everything that is to be seen on a GPU, in one command of ten minutes.

    python -m stradask.benchmarks.gpu_check --out gpu-check

It needs a checkout of the project (the tests are in it), Python with the packages of ``setup.cfg``, CuPy of
the driver's CUDA, and pytest with pytest-timeout; not dask, and no network. In turn it

1. runs the tests marked ``gpu``;
2. runs every kernel under the tools of compute-sanitizer, where that is installed: small fits of each
   sampler, their log-likelihoods, and inference, with and without room in shared memory;
3. compares the log-likelihood of each sampler with that of its CPU form after as many sweeps, and the topic
   shares of new documents;
4. runs ``stradask bench lda --device cuda --quick``, which judges by held-out perplexity;
5. times sweeps on a generated corpus with the shape of NYTimes (300,000 documents, 102,000 words, 100
   million tokens).

Each record is a line of JSON in ``records.jsonl``, written at once, with the device's name; a table is
printed last. The exit status is 0 if all that ran is well, 1 if not, and 2 where there is no GPU to be used.
"""

import argparse
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from .._version import __version__
from ..errors import DataError
from ..kernels.device import cuda_device, why_no_device

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("memcheck", "racecheck", "synccheck")
# Of the log-likelihood of a token, between a GPU and the CPU: one chain for both, and two of one kind.
TOLERANCE = {"saber": 0.002, "light": 0.02}
SHARES_APART = 1e-3  # of topic shares: the chains draw the same topics on both
SCARCE = 3 * 1024  # bytes of shared memory in which 300 topics have no room
SHARES = {
    "tests": 0.25,
    "sanitizer": 0.2,
    "agreement": 0.15,
    "bench": 0.1,
    "speed": 0.3,
}  # of the time, if all of it is used
SAMPLERS = {"saber": [1000, 10_000], "light": [10_000, 100_000]}  # and the numbers of topics to time


def main(arguments=None):
    """Run the parts, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="folder of records.jsonl")
    parser.add_argument("--minutes", type=float, default=10, help="in all (default: 10)")
    parser.add_argument("--parts", nargs="+", choices=SHARES, default=list(SHARES))
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--tokens", type=float, default=1e8, help="of the timed corpus (default: 1e8)")
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--fit", choices=("small", "agreement", "speed"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    for name, least in (("minutes", 0.1), ("tokens", 1e4), ("sweeps", 2)):
        if not getattr(args, name) >= least:
            raise DataError(f"--{name} is {getattr(args, name)}; {least} or more is needed")
    if args.fit:
        for record in FITS[args.fit](args):
            print(json.dumps(record), flush=True)
        return 0
    why = why_no_device()
    if why is not None:
        print(f"nothing was checked: {why}", file=sys.stderr)
        return 2
    records = []
    args.out.mkdir(parents=True, exist_ok=True)
    common = describe()
    with (args.out / "records.jsonl").open("a", encoding="utf-8") as file:
        for part in args.parts:
            for record in PARTS[part](args, 60 * args.minutes * SHARES[part]):
                records.append({"part": part} | record)
                file.write(json.dumps(records[-1] | common) + "\n")
                file.flush()
                print(row(records[-1]), flush=True)
    print(table(records, common))
    return int(any(record["result"] == "failed" for record in records))


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
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    files = [path for path in found if "mark.gpu" in path.read_text("utf-8")]
    if not files:
        yield left_out("pytest -m gpu", f"there are no tests in {ROOT / 'tests'}: run it from a checkout")
        return
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *map(str, files)]
    done = timed(command, seconds)
    closing = (done["output"].strip().splitlines() or ["no output"])[-1]
    well = done["status"] == 0 and "passed" in closing
    yield outcome("pytest -m gpu", well, closing, done)


def run_sanitizer(args, seconds):
    """Fit a small model under each tool: some ten to a thousand times as slow as without."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        yield left_out("compute-sanitizer", "it is not installed (it comes with the CUDA toolkit)")
        return
    for sampler, tool in itertools.product(args.samplers, TOOLS):
        command = [program, "--tool", tool, "--error-exitcode", "9", *own_command(args, "small", [sampler])]
        done = timed(command, seconds / len(TOOLS) / len(args.samplers))
        found = [line for line in done["output"].splitlines() if "ERROR SUMMARY" in line or "hazard" in line]
        refused = "not supported" in done["output"] or "Unable to" in done["output"]
        if done["status"] == 9 or not refused:
            what = found[-1].strip("= ") if found else last_line(done)
            yield outcome(f"{tool}, {sampler}", done["status"] == 0, what, done)
        else:
            yield left_out(f"{tool}, {sampler}", last_line(done))


def run_bench(args, seconds):
    """Run the benchmark of topic models, with nothing to download; its records are kept beside ours."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--device", "cuda", "--quick", "--against", "--dataset", "docstrings", "--json"]
        command = [sys.executable, "-m", "stradask", "bench", "lda", *options, "--out", folder]
        done = timed(command, seconds)
        kept = Path(folder, "records.jsonl")
        found = [json.loads(line) for line in kept.read_text("utf-8").splitlines()] if kept.exists() else []
    for record in found:
        if record["status"] != "ok":
            yield outcome(f"bench lda, {record['solver']}", False, record["error"], done)
            continue
        last, metric = record["snapshots"][-1], record["metrics"][0]
        detail = f"{metric['label']} {last[metric['key']]:.1f} after {last['seconds']:.1f} s"
        rate = {"tokens_per_second": last["work"] / last["seconds"], "bench": record}
        yield outcome(f"bench lda, {record['solver']}", True, detail, done) | rate
    if done["status"] != 0 and all(record["status"] == "ok" for record in found):
        yield outcome("bench lda", False, last_line(done), done)


def run_fits(kind):
    """Make the part that fits models in one process and reads a record from each line that it prints."""

    def run(args, seconds):
        done = timed(own_command(args, kind, args.samplers), seconds)
        lines = [line for line in done["output"].splitlines() if line.startswith("{")]
        yield from map(json.loads, lines)
        if done["status"] != 0:
            yield outcome(kind, False, last_line(done), done)

    return run


PARTS = {
    "tests": run_tests,
    "sanitizer": run_sanitizer,
    "agreement": run_fits("agreement"),
    "bench": run_bench,
    "speed": run_fits("speed"),
}


def own_command(args, kind, samplers):
    """This program again, to fit."""
    sizes = ["--tokens", str(args.tokens), "--sweeps", str(args.sweeps), "--minutes", str(args.minutes)]
    return [
        sys.executable,
        "-m",
        "stradask.benchmarks.gpu_check",
        "--fit",
        kind,
        *sizes,
        "--samplers",
        *samplers,
    ]


def timed(command, seconds):
    """Run a command for so long at most; its whole group of processes ends with it."""
    begun = time.perf_counter()
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        status = "its time was up"
    return {"status": status, "output": output, "seconds": round(time.perf_counter() - begun, 1)}


def last_line(done):
    """What a command said last, and how it ended."""
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


# Fits, in the child ----------------------------------------------------------------------------------


def fit(X, sampler, n_components, sweeps, device, seconds=np.inf):
    """Fit, and return the model and the seconds of its sweeps; no sweep begins after so many seconds."""
    from ..algorithms.topics.lda import LatentDirichletAllocation

    clock = [time.perf_counter()]

    def watch(info):
        clock.append(time.perf_counter())
        return clock[-1] - clock[0] > seconds

    model = LatentDirichletAllocation(
        n_components,
        sampler=sampler,
        device=device,
        n_jobs=-1,
        max_iter=sweeps,
        doc_topic_prior=min(50 / n_components, 0.1),
        random_state=0,
    ).fit(X, callback=watch)
    return model, np.diff(clock)


def corpus(tokens, n_words=102_000, seed=1):
    """Draw a corpus with documents as long as those of NYTimes."""
    from ..datasets.generators import make_lda_corpus

    n_documents = max(int(tokens / 333), 30)
    X, *_ = make_lda_corpus(n_documents, n_words, 100, mean_length=333, random_state=seed)
    return X


def fit_small(args):
    """Fit and infer so little that a tool which follows every access is done with it."""
    X, device = corpus(5000, 500), cuda_device()
    before = device.shared_memory
    for sampler, (n_topics, shared) in itertools.product(args.samplers, ((64, before), (300, SCARCE))):
        try:
            device.shared_memory = shared  # the variants of the sources for topics that do not fit
            model, _ = fit(X, sampler, n_topics, 2, "cuda")
            model.transform(X[:2], n_sweeps=10)
            found = {"log_likelihood": float(model.log_likelihood_[-1]), "score": model.score(X[:4])}
        finally:
            device.shared_memory = before
        yield {"what": f"{sampler}, {n_topics} topics, {shared:,} bytes of shared memory"} | found


def fit_agreement(args):
    """Compare the log-likelihood after as many sweeps on the GPU and on the CPU."""
    X = corpus(1e6, 20_000)
    for sampler in args.samplers:
        begun = time.perf_counter()
        values = []
        for device in ("cuda", "cpu"):
            model, _ = fit(X, sampler, 200, args.sweeps, device)
            values.append(float(model.log_likelihood_[-1]))
        apart = abs(values[0] / values[1] - 1)
        yield {
            "what": f"{sampler}, 200 topics, {int(X.sum()):,} tokens",
            "result": "passed" if apart < TOLERANCE[sampler] else "failed",
            "detail": f"log-likelihood {values[0]:.4f}, CPU {values[1]:.4f}: {100 * apart:.2f} % apart",
            "log_likelihood": values[0],
            "log_likelihood_cpu": values[1],
            "seconds": round(time.perf_counter() - begun, 1),
        }
        yield agreement_of_shares(model, X[:200], sampler)


def agreement_of_shares(model, X, sampler):
    """Compare the topic shares of documents, and their score, on the GPU and on the CPU."""
    begun = time.perf_counter()
    here, score = model.set_params(device="cpu").transform(X, n_sweeps=50), model.score(X)
    there, other = model.set_params(device="cuda").transform(X, n_sweeps=50), model.score(X)
    apart = float(abs(there - here).max())
    well = apart < SHARES_APART and abs(other / score - 1) < SHARES_APART
    detail = f"topic shares {apart:.1e} apart at most, scores {other:.4f} and {score:.4f}"
    done = {"seconds": round(time.perf_counter() - begun, 1)}
    return outcome(f"{sampler}, inference on {X.shape[0]} documents", well, detail, done)


def fit_speed(args):
    """Time the sweeps after the first, which lays out the corpus and compiles."""
    X = corpus(args.tokens)
    tokens = int(X.sum())
    cases = [(sampler, n) for sampler in args.samplers for n in SAMPLERS[sampler]]
    for sampler, n_components in cases:
        begun = time.perf_counter()
        allotted = 60 * args.minutes * SHARES["speed"] / (len(cases) + 1)
        model, seconds = fit(X, sampler, n_components, args.sweeps, "cuda", allotted)
        rate = tokens / statistics.median(seconds[1:] if len(seconds) > 1 else seconds)
        yield {
            "what": f"{sampler}, {n_components:,} topics, {tokens / 1e6:.0f} M tokens",
            "result": "passed",
            "detail": f"{rate / 1e6:,.0f} M tokens/s, log-likelihood {model.log_likelihood_[-1]:.4f}",
            "sampler": sampler,
            "n_components": n_components,
            "tokens": tokens,
            "tokens_per_second": rate,
            "sweep_seconds": [round(float(s), 4) for s in seconds],
            "log_likelihood": float(model.log_likelihood_[-1]),
            "seconds": round(time.perf_counter() - begun, 1),
        }


FITS = {"small": fit_small, "agreement": fit_agreement, "speed": fit_speed}


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
