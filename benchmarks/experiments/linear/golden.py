"""Whether linear estimators are as right and as fast as at another commit: a row for each problem.

``python -m stradask.benchmarks.experiments.linear.golden WORD ... --against CHECKOUT`` fits each problem
whose line in `golden_problems` has all the words (without words: every problem) by this checkout and by
another one, in turn, each in a process of one thread. Without ``--against`` the other side is the record,
which ``--write`` renews. A row has milliseconds of CPU, calls of the package's functions in a fit, by how
much the objective is worse, as a share of that of the model without columns, and how far apart coefficients
are. ``--first`` times a fit with an empty cache of compiled code as well. The exit status is 1 if an
objective is worse by more than ``--tol``.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ...run import describe_machine
from .golden_problems import CASES, FIRST

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "benchmarks" / "results" / "golden" / "linear.json"
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
_TITLES = f"{'problem':68}{'ms':>9}{'base ms':>9}{'ratio':>6}{'calls':>7}{'base':>7}{'worse':>9}{'apart':>9}"


class Side:
    """A process that fits with one checkout; with a cache of compiled code of its own if asked for."""

    def __init__(self, checkout, cache=None):
        checkout = Path(checkout).resolve()
        variables = os.environ | _ONE_THREAD | {"PYTHONPATH": str(checkout)}
        variables |= {"NUMBA_CACHE_DIR": cache} if cache else {}
        python = checkout / ".venv" / "bin" / "python"
        command = [str(python) if python.exists() else sys.executable]
        command.append(str(Path(__file__).with_name("golden_problems.py")))
        pipe = subprocess.PIPE
        self.process: Any = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=variables)
        root = self._read()
        if Path(root) != checkout:
            raise SystemExit(f"{checkout}: the package was imported from {root}")

    def ask(self, method, line, *arguments):
        """Send a request and return the answer."""
        print(json.dumps([method, line, arguments]), file=self.process.stdin, flush=True)
        answer = self._read()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _read(self):
        return json.loads(self.process.stdout.readline())

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def measure(line, sides, rounds):
    """One row for each side: coefficients, median seconds of alternating batches, calls."""
    rows = {name: side.ask("look", line) for name, side in sides.items()}  # compiles
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for k in range(rounds):
        for name in list(sides)[:: 1 if k % 2 else -1]:
            seconds[name].append(sides[name].ask("time", line, 0.03)["seconds"])
    for name, side in sides.items():
        median = float(f"{statistics.median(seconds[name]):.4g}")
        rows[name] |= {"seconds": median} | side.ask("calls", line)
    return rows


def measure_first(line, checkout):
    """CPU seconds of the first fit by a fresh process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        side = Side(checkout, folder)
        seconds = side.ask("time", line, 0.0)["seconds"]
        side.close()
    return round(seconds, 2)


def shown(line, new, base, tol):
    """Return the text of a row, and whether the objective is worse than that of the base."""
    text = f"{line:68}{1e3 * new['seconds']:9.2f}"
    if base is None:
        return f"{text}{'':15}{new['calls']:7}  gap {new['gap']:.1e}", False
    worse = (new["objective"] - base["objective"]) / max(abs(base["zero"]), 1e-300)
    apart = abs(new["dot"] - base["dot"]) / max(base["norm"], 1e-300)
    text += f"{1e3 * base['seconds']:9.2f}{new['seconds'] / base['seconds']:6.2f}"
    text += f"{new['calls']:7}{base['calls']:7}"
    text += f"{worse:9.1e}{apart:9.1e}"
    if "first" in new and "first" in base:
        text += f"  first {new['first']} of {base['first']}"
    is_worse = not worse <= tol
    return text + ("  WORSE" if is_worse else ""), is_worse


def main(arguments=None):
    """Print a row a problem; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="only problems whose lines have all of these")
    parser.add_argument("--against", metavar="CHECKOUT")
    parser.add_argument("--compare", metavar="FILE", type=Path, default=RECORD)
    parser.add_argument("--write", action="store_true", help=f"put this checkout's rows into {RECORD.name}")
    parser.add_argument("--first", action="store_true", help="time fits with an empty cache, too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tol", type=float, default=1e-4)
    options = parser.parse_args(arguments)
    chosen = [line for line in CASES if set(options.words) <= set(line.split())]
    if not chosen:
        parser.error(f"no problem has all of these words: {' '.join(options.words)}")
    checkouts = {"new": ROOT} | ({"base": options.against} if options.against else {})
    record = json.loads(options.compare.read_text())["rows"] if options.compare.exists() else {}
    sides = {name: Side(checkout) for name, checkout in checkouts.items()}
    rows, ratios, status = {}, [], 0
    print(_TITLES)
    for line in chosen:
        try:
            both = measure(line, sides, options.rounds)
            for name in sides if options.first and line in FIRST else ():
                both[name]["first"] = measure_first(line, checkouts[name])
        except RuntimeError as error:
            print(f"{line:68}  {error}", flush=True)
            status = 1
            continue
        rows[line], base = both["new"], both.get("base", record.get(line))
        text, is_worse = shown(line, rows[line], base, options.tol)
        ratios += [rows[line]["seconds"] / base["seconds"]] if base else []
        status |= is_worse
        print(text, flush=True)
    for side in sides.values():
        side.close()
    if ratios:
        above = sum(ratio > 1.1 for ratio in ratios)
        print(
            f"ratios: {len(ratios)}, median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}, ",
            end="",
        )
        print(f"above 1.1: {above}")
    if options.write:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        rows = {line: row for line in CASES if (row := rows.get(line, record.get(line)))}
        lines = [f"{json.dumps(line)}: {json.dumps(row)}" for line, row in rows.items()]
        machine = json.dumps(describe_machine())
        RECORD.write_text(f'{{"machine": {machine}, "rows": {{\n' + ",\n".join(lines) + "\n}}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
