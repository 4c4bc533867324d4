"""Which share of the machine each kernel reaches: ``stradask bench ceilings``.

A kernel must move so many bytes from memory, reach so many places of a table, and do so many operations for
each unit of its work, whatever the program. Three ceilings are measured on one thread, by loops that do
nothing else: reading as many bytes as the kernel streams (GB/s), reaching places of a table of the same size
(millions a second), and multiplying matrices by BLAS (operations a second). The largest of the three times is
what a unit takes at best; the share is that time over the one that was measured, all of them by the
processor's clock. What a kernel does beyond (random numbers, exponentials, divisions) is not counted, so that
a share of one half is good.
"""

import functools
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numba as nb
import numpy as np

from .. import datasets
from ..errors import DataError
from .pages.page import Page
from .pages.tables import Table
from .run import about_run

REPEATS = 5
LEAST_SECONDS = 0.1  # of a repeat
WHOLE, QUICK = 1, 4  # a quick look takes problems of a fourth of the size, and fewer kernels


class Kernel(NamedTuple):
    """A kernel and the least that a unit of its work needs.

    ``make(parts)`` returns a function that runs and returns (units, seconds), and the units of one round
    over the data. A quick look takes those that are ``quick``: what its other families have compiled.
    """

    name: str
    unit: str
    make: Callable
    bytes: float
    places: float
    table: int
    operations: float
    dtype: str = "float64"
    quick: bool = True


@nb.njit(nogil=True, cache=True, error_model="numpy")
def _reach(table, places):
    """Sum the entries at random places."""
    total = 0.0
    for i in range(len(places)):
        total += table[np.uint32(places[i])]
    return total


@nb.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "nsz"})
def _read(source):
    """Sum all numbers, of eight places at once: a core reads several streams faster than one."""
    n, total = len(source) // 8, 0.0
    for i in range(n):
        total += (source[i] + source[n + i]) + (source[2 * n + i] + source[3 * n + i])
        total += (source[4 * n + i] + source[5 * n + i]) + (source[6 * n + i] + source[7 * n + i])
    return total


def _timed(call):
    started = time.process_time()
    call()
    return time.process_time() - started


def _least(call):
    """Least seconds of a few calls, after one that compiles."""
    call()
    return min(_timed(call) for _ in range(REPEATS))


def reading(n_bytes):
    """Return bytes a second of one thread that reads an array of this size again and again."""
    source = np.ones(max(2**16, int(n_bytes) // 8))
    return source.nbytes / _least(lambda: _read(source))


def reaching(table_bytes, parts=WHOLE):
    """Places a second, of a table of that size."""
    table = np.ones(max(1, table_bytes // 8))
    places = np.random.default_rng(0).integers(len(table), size=2**22 // parts, dtype=np.uint32)
    return len(places) / _least(lambda: _reach(table, places))


def multiplying(dtype):
    """Operations a second of one thread, in a product of matrices."""
    from threadpoolctl import threadpool_limits

    A = np.ones((700, 700), dtype)
    with threadpool_limits(1):
        return 2 * len(A) ** 3 / _least(lambda: A @ A)


# Kernels ------------------------------------------------------------------------------------------------


def _repeated(call, units):
    """A function that calls often enough to be timed, and the units of a call."""

    def run():
        times, spent = 0, 0.0
        while spent < LEAST_SECONDS:
            spent += _timed(call)
            times += 1
        return units * times, spent

    return run, units


def _iterations(fit, units):
    """A function that fits and counts the iterations after the first, and the units of an iteration."""

    def run():
        ends: list[float] = []
        fit(callback=lambda info: ends.append(time.process_time()))
        return units * (len(ends) - 1), ends[-1] - ends[0]

    return run, units


def _lda(sampler, n_components):
    def make(parts):
        from ..algorithms.topics.lda import LatentDirichletAllocation

        X, *_ = datasets.make_lda_corpus(10_000 // parts, 5000, 50, mean_length=150, random_state=0)
        lda = LatentDirichletAllocation(n_components, sampler=sampler, max_iter=8, random_state=0)
        return _iterations(functools.partial(lda.fit, X), int(X.sum()))

    return make


def _dense_pass(dtype):
    def make(parts):
        from ..kernels.linear.glm_dense import dense_gradient
        from ..kernels.linear.glm_losses import LOGISTIC

        X = np.random.default_rng(0).standard_normal((400_000 // parts, 64), dtype=np.float32).astype(dtype)
        y, none = np.sign(X[:, 0]), np.empty(0, dtype)
        coef, gradient = np.zeros(64, dtype), np.zeros(65)
        arguments = (LOGISTIC, X, y, none, coef, 0.0, np.empty(0), gradient, np.empty(0))
        return _repeated(lambda: dense_gradient(*arguments), X.size)

    return make


N_COLUMNS = 50_000


def _sparse_pass(parts):
    from ..kernels.linear.glm_losses import LOGISTIC
    from ..kernels.linear.glm_sparse import csr_gradient

    X = datasets.make_sparse_regression(100_000 // parts, N_COLUMNS, density=1e-3, random_state=0)[0].tocsr()
    y, coef, gradient = np.ones(X.shape[0]), np.zeros(N_COLUMNS), np.zeros(N_COLUMNS + 1)
    none = np.empty(0)
    arguments = (X.data, X.indices, X.indptr, y, none, coef, 0.0, none, gradient, none)
    return _repeated(lambda: csr_gradient(LOGISTIC, *arguments), X.nnz)


def _dense_scores(parts):
    from ..kernels.linear.columns import dense_dot

    X = np.asfortranarray(np.random.default_rng(0).standard_normal((2000, 8000 // parts)))
    columns, out = np.arange(X.shape[1]), np.empty((1, X.shape[1]))
    residual = np.ones((1, len(X)))
    return _repeated(lambda: dense_dot(X.T, columns, residual, out), X.size)


N_ROWS = 20_000


def _sparse_scores(parts):
    from ..kernels.linear.columns import csc_dot

    X = datasets.make_sparse_regression(N_ROWS, 200_000 // parts, density=1e-3, random_state=0)[0].tocsc()
    columns, out = np.arange(X.shape[1]), np.empty((1, X.shape[1]))
    residual = np.ones((1, N_ROWS))
    return _repeated(lambda: csc_dot(X.data, X.indices, X.indptr, columns, residual, out), X.nnz)


RATINGS, USERS, ITEMS, FACTORS = 800_000, 8000, 2000, 32


def _factors(solver):
    def make(parts):
        from ..algorithms.factorization.matrix_factorization import MatrixFactorization

        users = USERS // parts
        R, _ = datasets.make_ratings(users, ITEMS, 8, density=RATINGS / USERS / ITEMS, random_state=0)
        mf = MatrixFactorization(FACTORS, solver=solver, max_iter=8, tol=0.0, random_state=0)
        return _iterations(functools.partial(mf.fit, R), R.nnz)

    return make


def kernels():
    """Return the kernels; bytes, places and operations are of one unit.

    Gibbs: for each topic an addition, a product and a running sum. Warp: both passes read and write a topic
    and a proposal, and one order must be reached from the other. Light: two proposals, each judged by the
    counts of two topics in the document and of the word. Passes: an entry (sparse: and its index) is read
    once, multiplied twice. Factors: a product of two rows and a step of both; least squares: half a matrix of
    factors x factors for each rating in both halves, and a Cholesky factor for each row.
    """
    solves = (USERS + ITEMS) / RATINGS * FACTORS**3 / 3
    single = "float32"
    return [
        Kernel("lda, gibbs, 100 topics", "tokens", _lda("gibbs", 100), 8, 0, 0, 3 * 100, single),
        Kernel("lda, warp, 1,000 topics", "tokens", _lda("warp", 1000), 16, 2, 4 * 2**20, 0, single),
        Kernel("lda, light, 1,000 topics", "tokens", _lda("light", 1000), 8, 8, 4 * 2**20, 0, single, False),
        Kernel("GLM pass, dense", "entries", _dense_pass(np.float64), 8, 0, 0, 4, quick=False),
        Kernel("GLM pass, dense float32", "entries", _dense_pass(np.float32), 4, 0, 0, 4, single),
        Kernel("GLM pass, CSR", "entries", _sparse_pass, 12, 2, 8 * N_COLUMNS, 4),
        Kernel("Lasso scores, dense", "entries", _dense_scores, 8, 0, 0, 2),
        Kernel("Lasso scores, CSC", "entries", _sparse_scores, 12, 1, 8 * N_ROWS, 2),
        Kernel("factors, sgd", "ratings", _factors("sgd"), 12, 0, 0, 12 * FACTORS, single),
        Kernel("factors, als", "ratings", _factors("als"), 8, 0, 0, 2 * FACTORS**2 + solves, single, False),
    ]


def share(kernel, rate, ceilings):
    """Return the share of the machine that a rate (units a second) is, and what bounds it.

    `ceilings` has ``bytes``, ``places`` (None without places) and ``operations`` a second.
    """
    least = {
        "reading": kernel.bytes / ceilings["bytes"],
        "reaching": kernel.places / ceilings["places"] if kernel.places else 0.0,
        "multiplying": kernel.operations / ceilings["operations"],
    }
    bound = max(least, key=least.__getitem__)
    return rate * least[bound], bound


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench ceilings`` ask for."""
    for name in ("against", "dataset", "param"):
        if getattr(args, name):
            raise DataError(f"--{name}: ceilings measures this machine and has nothing of that kind")
    parts = QUICK if args.quick else WHOLE
    common = about_run("ceilings")
    operations = {dtype: multiplying(dtype) for dtype in ("float32", "float64")}
    for kernel in kernels():
        if args.quick and not kernel.quick:
            continue
        run, units = kernel.make(parts)
        run()  # compiles
        rate = statistics.median(units / seconds for units, seconds in (run() for _ in range(3)))
        ceilings = {
            "bytes": reading(kernel.bytes * units),  # now, as others use the machine, too
            "places": reaching(kernel.table, parts) if kernel.places else None,
            "operations": operations[kernel.dtype],
        }
        reached, bound = share(kernel, rate, ceilings)
        needs = {name: getattr(kernel, name) for name in ("bytes", "places", "operations", "unit")}
        record = {"kernel": kernel.name, "rate": rate, "share": reached, "bound": bound, **needs}
        on_record({**common, **record, "ceilings": ceilings})
        tell(f"{kernel.name}: {rate / 1e6:.3g} M {kernel.unit} a second, {reached:.0%} of {bound}")


def shares_table(records):
    """Return the table of kernels: rates, what a unit needs, and the share of the machine."""
    columns = {
        "M a second": lambda r: f"{r['rate'] / 1e6:.3g}",
        "of": lambda r: r["unit"],
        "bytes": lambda r: f"{r['bytes']:g}",
        "places": lambda r: f"{r['places']:g}",
        "operations": lambda r: f"{r['operations']:,.0f}",
        "bound by": lambda r: r["bound"],
        "share": lambda r: f"{r['share']:.0%}",
    }
    return Table.of(((r["kernel"], r) for r in records), columns, "kernel", setting(records))


def setting(records):
    """Return a sentence with the ceilings."""
    read = [record["ceilings"]["bytes"] for record in records]
    operations = [record["ceilings"]["operations"] for record in records]  # of float32 and of float64
    speeds = " to ".join(dict.fromkeys(f"{rate / 1e9:.1f}" for rate in (min(read), max(read))))
    return (
        f"One thread of {records[0]['machine']['processor']}: reads {speeds} GB/s, multiplies "
        f"{min(operations) / 1e9:.0f} to {max(operations) / 1e9:.0f} G operations a second; bytes, places "
        "and operations are what a unit needs at least."
    )


def table(records):
    """Return the table as text."""
    return f"{shares_table(records).text()}\n{setting(records)}"


def page(records):
    """Return the page of a run."""
    whole = Page("stradask bench ceilings: shares of the machine")
    return whole.text((__doc__ or "").partition("\n\n")[2]).table(*shares_table(records))
