"""What bounds least squares of counts with 64 to 512 factors.

    python -m stradask.benchmarks.experiments.ratings.factor_profile --dataset ml-1m.csv.gz --out DIR

CPU seconds of the three parts of an iteration (see `factorization.solvers.implicit`) on one thread: steps of
conjugate gradients over the counts, products that turn rows into other axes, and Gram matrices with their
axes. Next to them is what each part must do. With N counts, R users and items and K factors in 4 bytes each,
a first residual and two steps are three passes over the counts of either side, the last of which needs a
curvature alone: 20 N K operations, for which 24 N K bytes of rows are fetched. Turns take 4 R K^2 operations,
Gram matrices R K^2 by symmetry (their axes, of K^3, are not counted). Two ceilings are measured in the same
process: a product of matrices by BLAS, and the steps themselves with all rows in the first-level cache, which
says what the fetching costs.
"""

import argparse
import contextlib
import json
import statistics
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from ....algorithms.factorization.matrix_factorization import MatrixFactorization
from ....algorithms.factorization.solvers import implicit
from ....kernels.factorization.lanes import LANES
from ....kernels.vector import aligned
from ....scheduler.threads import single_threaded_blas
from ...objectives._ratings import load_ratings
from ...pages.tables import Table
from ...run import about_run

FACTORS = (64, 128, 256, 512)
ITERATIONS = 8
_OPTIONS: dict[str, Any] = {"alpha": 10, "reg": 10, "reg_exponent": 0, "tol": 0, "random_state": 0}
_REPEATS = 3
_BYTES = 24 / 20  # of rows fetched for an operation of the steps
_PRODUCT = 2048  # rows and columns of the product that is the ceiling
_CACHED, _ROWS, _COUNTS = 2**14, 2000, 96  # bytes of rows in cache; rows that take steps, and their counts


class Clock:
    """CPU seconds by part; those of a part that is called within another count for the inner one."""

    def __init__(self):
        self.spent, self._inner = {}, []

    def timed(self, part, function):
        """The function, whose time is added to a part."""

        def run(*args, **given):
            self._inner.append(0.0)
            began = time.process_time()
            try:
                return function(*args, **given)
            finally:
                whole = time.process_time() - began
                self.spent[part] = self.spent.get(part, 0.0) + whole - self._inner.pop()
                if self._inner:
                    self._inner[-1] += whole

        return run


def profile(R, n_components):
    """CPU milliseconds of an iteration by part, the medians of some fits after one that warms up."""
    found = []
    for _ in range(_REPEATS + 1):
        clock, own = Clock(), implicit.ImplicitFeedback
        with contextlib.ExitStack() as stack:
            for owner, name, part in (
                (implicit, "conjugate_rows", "steps"),
                (own, "update", "turns"),
                (own, "shared_by", "gram"),
                (implicit, "turned", "turns"),
                (implicit, "axes_of", "gram"),
            ):
                stack.enter_context(
                    mock.patch.object(owner, name, _method(clock, part, getattr(owner, name)))
                )
            MatrixFactorization(n_components, implicit=True, max_iter=ITERATIONS, **_OPTIONS).fit(R)
        found.append({part: 1e3 * seconds / ITERATIONS for part, seconds in clock.spent.items()})
    return {part: statistics.median(one[part] for one in found[1:]) for part in found[0]}


def _method(clock, part, function):
    """A timed function, which a class binds as a method."""
    timed = clock.timed(part, function)
    return lambda *args, **given: timed(*args, **given)


def needs(R, n_components):
    """Operations of an iteration by part, in 1e9."""
    N, n_rows, K = R.nnz, sum(R.shape), n_components
    operations = {"steps": 20 * N * K, "turns": 4 * n_rows * K**2, "gram": n_rows * K**2}
    return {part: 1e-9 * number for part, number in operations.items()}


def cached_ceiling(n_components):
    """1e9 operations a second of the steps where all counts are of a few rows, 16 KiB in all."""
    K = n_components
    n_items = max(_CACHED // (4 * K), 1)
    rng = np.random.default_rng(0)
    indptr = np.arange(0, _ROWS * _COUNTS + 1, _COUNTS)
    indices = rng.integers(n_items, size=_ROWS * _COUNTS).astype(np.int32)
    values, others = np.ones(len(indices), np.float32), aligned((n_items, K), np.float32)
    others[:] = rng.random(others.shape)
    spectrum, ridge = np.ones(K, np.float32), np.ones(_ROWS, np.float32)
    drawn, vectors = np.zeros((1, K), np.float32), (0,) * (K // LANES)
    seconds = []
    for _ in range(_REPEATS + 1):
        factors, losses = aligned((_ROWS, K), np.float32), np.empty(_ROWS)
        factors[:] = 0.01
        began = time.process_time()
        implicit.conjugate_rows(
            0, _ROWS, indptr, indices, values, others, spectrum, drawn, ridge, implicit._STEPS, factors,
            losses, vectors,
        )  # fmt: skip
        seconds.append(time.process_time() - began)
    return 10e-9 * len(indices) * K / statistics.median(seconds[1:])


def blas_ceiling():
    """1e9 operations a second of a product of matrices of float32, on one thread."""
    A = np.random.default_rng(0).random((_PRODUCT, _PRODUCT), dtype=np.float32)
    out, seconds = np.empty_like(A), []
    with single_threaded_blas():
        for _ in range(_REPEATS + 1):
            began = time.process_time()
            np.matmul(A, A, out=out)
            seconds.append(time.process_time() - began)
    return 2e-9 * _PRODUCT**3 / statistics.median(seconds[1:])


def measure(name, seed=0, factors=FACTORS):
    """Yield a record for each number of factors."""
    R = load_ratings(name, seed, implicit=True, quick=False)
    common = about_run("factor-profile") | {
        "data": {"name": Path(name).name, "users": R.shape[0], "items": R.shape[1], "counts": int(R.nnz)},
        "blas": blas_ceiling(),
    }
    for K in factors:
        yield common | {
            "n_components": K,
            "milliseconds": profile(R, K),
            "operations": needs(R, K),
            "cached": cached_ceiling(K),
        }


def rate(record, part):
    """1e9 operations a second of a part."""
    return 1e3 * record["operations"][part] / record["milliseconds"][part]


def table(records):
    """A row for each number of factors."""

    def cell(part):
        return lambda record: (
            f"{record['milliseconds'][part]:.1f} ms, {rate(record, part) / record['blas']:.2f}"
        )

    def most(record):
        parts = {"steps": "steps over counts", "turns": "turns", "gram": "Gram matrices"}
        return parts[max(record["milliseconds"], key=record["milliseconds"].__getitem__)]

    columns = {
        "steps over counts: CPU, share of BLAS": cell("steps"),
        "share of the steps in cache": lambda record: f"{rate(record, 'steps') / record['cached']:.2f}",
        "rows fetched, GB/s": lambda record: f"{_BYTES * rate(record, 'steps'):.0f}",
        "turns: CPU, share of BLAS": cell("turns"),
        "Gram matrices and axes: CPU, share of BLAS": cell("gram"),
        "an iteration": lambda record: f"{sum(record['milliseconds'].values()):.0f} ms",
        "most time": most,
    }
    return Table.of([(str(record["n_components"]), record) for record in records], columns, "factors", "")


def setting(records):
    """Data and ceilings in words."""
    first, data = records[0], records[0]["data"]
    cached = ", ".join(f"{one['cached']:.0f} ({one['n_components']})" for one in records)
    return (
        f"{data['name']}: {data['counts']:,} counts of {data['items']:,} items by {data['users']:,} users. "
        f"One thread of {first['machine']['processor']}, CPU time, medians of {_REPEATS} fits of "
        f"{ITERATIONS} iterations while other work ran. BLAS multiplies matrices at {first['blas']:.0f} G "
        f"operations a second; the steps with all rows in the first-level cache reach {cached}."
    )


def main(arguments=None):
    """Print the table; write the records."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--dataset", default="generated", metavar="NAME", help="as for stradask bench implicit"
    )
    parser.add_argument("--n-components", nargs="+", type=int, default=FACTORS, metavar="K")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of records.jsonl")
    options = parser.parse_args(arguments)
    records = list(measure(options.dataset, factors=options.n_components))
    print(table(records).text())
    print(setting(records))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(record) + "\n" for record in records]
        (options.out / "records.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
