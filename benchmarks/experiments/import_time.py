"""How long ``import stradask`` takes beyond numpy, scipy and scikit-learn's base.

Run it as ``python -m stradask.benchmarks.experiments.import_time``. Every run is a fresh interpreter that has
imported numpy, scipy.sparse and sklearn.base before its clock starts; the cases alternate, so that a
busy spell of the machine falls on all of them, and the median is printed. What a case imports is
looked up in one more run without that base, because scikit-learn itself imports pandas where it is
installed.
"""

import argparse
import json
import statistics
import subprocess
import sys

LIMIT = 0.3  # seconds; what `import stradask` may take
HEAVY = ("numba", "llvmlite", "dask", "distributed", "cupy", "matplotlib", "pandas", "pooch", "tqdm")

CASES = {
    "nothing": "pass",
    "import stradask": "import stradask",
    "import stradask.datasets": "import stradask.datasets",
    "sd.LatentDirichletAllocation": "import stradask as sd; sd.LatentDirichletAllocation",
}

_BASE = "import numpy, scipy.sparse, sklearn.base"
_PROGRAM = """
import json, sys, time
{base}
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
print(json.dumps([seconds, list(sys.modules)]))
"""


def measure(statement, base=_BASE):
    """Return the seconds of a statement in a fresh interpreter, and all modules imported there."""
    program = _PROGRAM.format(base=base, statement=statement)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{statement!r} failed:\n{run.stderr}")
    return json.loads(run.stdout)


def compare(runs):
    """Return for each case its seconds, run by run, and the heavy packages that it imports."""
    heavy = {}
    for case, statement in CASES.items():  # these runs also write bytecode and warm the disk cache
        _, modules = measure(statement, base="")
        heavy[case] = [name for name in HEAVY if name in modules]
    seconds: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(runs):
        for case, statement in CASES.items():
            seconds[case].append(measure(statement)[0])
    return seconds, heavy


def main(arguments=None):
    """Print the table; the exit status is 1 when ``import stradask`` breaks a promise."""
    parser = argparse.ArgumentParser(
        prog="python -m stradask.benchmarks.experiments.import_time", description=__doc__
    )
    parser.add_argument("--runs", type=int, default=9, help="runs of each case (default: 9)")
    options = parser.parse_args(arguments)
    if options.runs < 1:
        parser.error(f"--runs must be at least 1; got {options.runs}")
    seconds, heavy = compare(options.runs)
    heading = f"{'median s':>10}{'lowest':>10}{'highest':>10}  heavy imports"
    print(f"{'beyond numpy, scipy, sklearn.base':34}{heading}")
    for case, taken in seconds.items():
        figures = (statistics.median(taken), min(taken), max(taken))
        names = ", ".join(heavy[case]) or "none"
        print(f"{case:34}" + "".join(f"{figure:10.4f}" for figure in figures) + f"  {names}")
    kept = statistics.median(seconds["import stradask"]) < LIMIT and not heavy["import stradask"]
    verdict = "kept" if kept else "broken"
    print(f"promise of import stradask (under {LIMIT} s, nothing heavy): {verdict}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
