"""How the cost of a fit grows: ``python -m stradask.benchmarks.experiments.growth``, 15 minutes.

One size at a time is doubled while all else stays, and the CPU seconds and the memory of a fit beyond its
input are measured on one thread; of threads and workers the seconds on the clock. The slope of the last
points on log axes is the exponent; next to it is the one that the documentation promises, and one that is
larger by more than 0.2 is reported as WORSE. What is measured, and what is promised, is in `growth_sweeps`.
"""

import argparse
import gc
import sys
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np

from ..pages.tables import Table
from ..run import append_record, describe_machine
from .growth_sweeps import sweeps

TOLERATED = 0.2  # beyond the promised exponent
_LAST = 4  # points for the slope: smaller sizes tell of fixed costs
_ENOUGH = 0.5  # seconds of repeated fits


def measure(sweep, tell=lambda line: None):
    """Measure one sweep; return sizes, seconds, bytes, their exponents and the promised ones."""
    seconds, memory = [], []
    for size in sweep.sizes:
        with sweep.place(size) as where, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a few sweeps are not enough, and that is not the question
            fit = sweep.make(where)
            fit()  # compiled, and in the cache
            seconds.append(_seconds(fit, sweep.clock))
            memory.append(_peak(fit))
        tell(f"{sweep.family}, {size:,} {sweep.size}: {seconds[-1]:.4f} s, {memory[-1] / 2**20:.2f} MB")
    return {
        "family": sweep.family,
        "size": sweep.size,
        "sizes": list(sweep.sizes),
        "seconds": seconds,
        "bytes": memory,
        "exponent": exponent(sweep.sizes, seconds),
        "promised": sweep.promised,
        "bytes_exponent": exponent(sweep.sizes, memory),
        "bytes_promised": sweep.promised_memory,
    }


def steepest():
    """Return the promised exponents as rows of strings: family, size, seconds, bytes."""
    return [[s.family, s.size, f"{s.promised:g}", f"{s.promised_memory:g}"] for s in sweeps()]


def exponent(sizes, costs):
    """Return the slope of the last points on log axes.

    Examples
    --------
    >>> from stradask.benchmarks.experiments.growth import exponent
    >>> round(exponent([1, 2, 4, 8], [3.0, 12.0, 48.0, 192.0]), 6)
    2.0
    """
    x, y = np.log(sizes[-_LAST:]), np.log(np.maximum(costs[-_LAST:], 1e-9))
    return float(np.polyfit(x, y, 1)[0])


def too_steep(record):
    """Return whether seconds or bytes grow faster than is promised."""
    return (
        record["exponent"] > record["promised"] + TOLERATED
        or record["bytes_exponent"] > record["bytes_promised"] + TOLERATED
    )


def _seconds(fit, clock=time.process_time):
    """Return the fewest seconds of several fits by a clock."""
    spent: list[float] = []
    while len(spent) < 2 or (sum(spent) < _ENOUGH and len(spent) < 20):
        gc.collect()
        started = clock()
        fit()
        spent.append(clock() - started)
    return min(spent)


def _peak(fit):
    """Return the most bytes that Python and NumPy held beyond those of before."""
    gc.collect()
    tracemalloc.start()
    fit()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


HEADER = [
    "family",
    "size",
    "from",
    "to",
    "seconds",
    "exponent",
    "promised",
    "MB",
    "exponent",
    "promised",
    "",
]


def rows(records):
    """Return the figures as rows of strings, a verdict last."""
    lines = []
    for r in records:
        megabytes = [value / 2**20 for value in r["bytes"]]
        seconds = [f"{value:.3g}" for value in (r["seconds"][0], r["seconds"][-1])]
        lines.append(
            [
                r["family"],
                r["size"],
                f"{r['sizes'][0]:,}",
                f"{r['sizes'][-1]:,}",
                " to ".join(seconds),
                f"{r['exponent']:.2f}",
                f"{r['promised']:g}",
                f"{megabytes[0]:.2f} to {megabytes[-1]:.2f}",
                f"{r['bytes_exponent']:.2f}",
                f"{r['bytes_promised']:g}",
                "WORSE" if too_steep(r) else "PASS",
            ]
        )
    return lines


def table(records):
    """Return the figures as lines of text."""
    return Table(rows(records), HEADER).text()


def picture(records):
    """Return a figure of seconds and bytes over sizes, both relative to the first point, on log axes.

    A panel a family; the dotted line grows as the size does.
    """
    from matplotlib.figure import Figure

    from ..pages.page import COLOURS

    families = list(dict.fromkeys(record["family"].partition(",")[0] for record in records))
    figure = Figure(figsize=(3.1 * len(families), 6.2), layout="constrained")
    panels = figure.subplots(2, len(families), sharex="col", squeeze=False)
    for column, family in zip(panels.T, families, strict=True):
        own = [record for record in records if record["family"].partition(",")[0] == family]
        for axes, key in zip(column, ("seconds", "bytes"), strict=True):
            for i, record in enumerate(own):
                sizes, costs = np.array(record["sizes"], float), np.array(record[key], float)
                style = {"marker": "o", "markersize": 3, "color": COLOURS[i % len(COLOURS)]}
                style["linestyle"] = "-" if i < len(COLOURS) else "--"
                name = f"{record['family'].partition(', ')[2]} {record['size']}".strip()
                axes.plot(sizes / sizes[0], costs / costs[0], label=name, **style)
            most = max(record["sizes"][-1] / record["sizes"][0] for record in own)
            axes.plot([1, most], [1, most], color="0.6", linestyle=":", linewidth=1)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        column[0].set_title(family)
        column[0].legend(fontsize=7, frameon=False)
        column[1].set_xlabel("size, relative")
    panels[0][0].set_ylabel("seconds, relative")
    panels[1][0].set_ylabel("memory beyond the input, relative")
    return figure


def main(arguments=None):
    """Run the command; return 1 where something grows faster than promised."""
    parser = argparse.ArgumentParser(
        prog="python -m stradask.benchmarks.experiments.growth", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="three small sizes: does it run?")
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="sweeps whose family and size contain this"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", default=Path("stradask-bench"))
    args = parser.parse_args(arguments)
    chosen = [sweep for sweep in sweeps(args.quick) if args.only in f"{sweep.family} {sweep.size}"]
    if not chosen:
        parser.error(f"--only {args.only!r}: no sweep of that name")
    args.out.mkdir(parents=True, exist_ok=True)
    records = []
    for sweep in chosen:
        records.append(measure(sweep, lambda line: print(line, file=sys.stderr, flush=True)))
        record = {
            "family": "growth",
            "machine": describe_machine(),
            "quick": args.quick,
            "sweep": records[-1],
        }
        append_record(args.out / "growth.jsonl", record)
    print(table(records))
    try:
        picture(records).savefig(args.out / "growth.png", dpi=120)
    except ModuleNotFoundError:
        print("no picture: matplotlib is not installed (pip install 'stradask[plot]')", file=sys.stderr)
    return int(any(map(too_steep, records)))


if __name__ == "__main__":
    sys.exit(main())
