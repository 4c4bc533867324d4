"""Ordinary problems: default parameters against scikit-learn, from ten rows to a hundred thousand.

Both sides fit the same problem with their default parameters. The objective of each model is computed here,
from coefficients, X and y; a side whose model lies further above the best one known than `LEVEL` gets
`MOST_ITERATIONS`, and then a tolerance ten times smaller until it does not. Then both take turns, one thread,
in CPU seconds of this process, each time as often as it takes to fill `LEAST` seconds. Problems are numbered:
rules of choice may be learned on even ones alone. Topics, factors and networks are in `everyday_models`.
"""

import functools
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import logsumexp, xlogy
from sklearn import datasets as toys
from sklearn import linear_model as theirs
from threadpoolctl import threadpool_limits

import stradask as ours

from ...errors import DataError
from ..pages.page import Page, where
from ..pages.tables import Table, number
from ..run import about_run
from . import everyday_models

ROUNDS, QUICK_ROUNDS = 5, 2
LEAST = 0.02  # CPU seconds of one side's turn
LEVEL = 1e-4  # of the objective of the model without columns
TIGHT, MOST_TIGHTER = 1e-10, 6
MOST_ITERATIONS = 10_000  # of a side that is to come nearer: its default may end it first
SIDES = ("stradask", "scikit-learn")

# Data --------------------------------------------------------------------------------------------------


def _regression(n, p, rank=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    if rank:
        X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p)) + 0.3 * X
    X = X * np.exp(rng.standard_normal(p)) + 2 * rng.standard_normal(p)
    coef = rng.standard_normal(p) * (rng.random(p) < max(0.3, 2 / p)) / X.std(axis=0)
    signal = (X - X.mean(axis=0)) @ coef
    return X, signal + (signal.std() + 0.1) * rng.standard_normal(n) + 1


def _sparse(n, p, density, seed=0):
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, p), density=density, format="csr", rng=rng)
    signal = X @ (rng.standard_normal(p) * (rng.random(p) < 0.2))
    return X, signal + signal.std() * rng.standard_normal(n)


def _one_hot(n, levels, columns, seed=0):
    rng = np.random.default_rng(seed)
    picked = rng.zipf(1.3, (n, columns)) % levels + levels * np.arange(columns)
    ends = np.arange(0, n * columns + 1, columns, dtype=np.int32)
    shape = n, levels * columns
    X = sparse.csr_array((np.ones(n * columns), picked.ravel().astype(np.int32), ends), shape=shape)
    signal = X @ rng.standard_normal(levels * columns)
    return X, signal + signal.std() * rng.standard_normal(n)


def _toy(name, scale=False):
    X, y = getattr(toys, f"load_{name}")(return_X_y=True)
    y = y[:, 0] if y.ndim == 2 else y
    return ((X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1) if scale else X), y


def _classes(make):
    """Labels of a regression: above the median or not."""

    def made():
        X, y = make()
        return X, (y > np.median(y)).astype(int)

    return made


def _counts(make):
    def made():
        X, y = make()
        means = np.exp(np.clip((y - y.mean()) / y.std(), -3, 3) / 2)
        return X, np.random.default_rng(0).poisson(means).astype(float)

    return made


_MADE = {
    "tiny 10 x 3": functools.partial(_regression, 10, 3),
    "small 100 x 5": functools.partial(_regression, 100, 5),
    "medium 1,000 x 20": functools.partial(_regression, 1000, 20),
    "correlated 500 x 50": functools.partial(_regression, 500, 50, 5),
    "broad 2,000 x 100": functools.partial(_regression, 2000, 100, 20),
    "wide 100 x 200": functools.partial(_regression, 100, 200),
    "tall 50,000 x 10": functools.partial(_regression, 50_000, 10),
    "long 100,000 x 30": functools.partial(_regression, 100_000, 30),
    "sparse 5,000 x 300": functools.partial(_sparse, 5000, 300, 0.02),
    "one-hot 20,000 x 200": functools.partial(_one_hot, 20_000, 50, 4),
}
_REGRESSIONS = {name: functools.partial(_toy, name) for name in ("diabetes", "linnerud")} | _MADE
_CLASSIFICATIONS = {
    "breast cancer": functools.partial(_toy, "breast_cancer"),
    "breast cancer, scaled": functools.partial(_toy, "breast_cancer", True),
    "iris": functools.partial(_toy, "iris"),
    "wine, scaled": functools.partial(_toy, "wine", True),
    "digits": functools.partial(_toy, "digits"),
} | {name: _classes(make) for name, make in _MADE.items()}
_SEVERAL = ("iris", "wine, scaled", "digits")
_TWO_CLASSES = {name: make for name, make in _CLASSIFICATIONS.items() if name not in _SEVERAL}

# Objectives ---------------------------------------------------------------------------------------------


def _least_squares(X, y, coef, intercept, alpha):
    r = y - X @ coef - intercept
    return 0.5 * float(r @ r) / len(y) + alpha * float(np.abs(coef).sum())


def _lasso(X, y, model):
    return _least_squares(X, y, model.coef_, model.intercept_, model.alpha)


def _chosen(X, y, model):
    return _least_squares(X, y, model.coef_, model.intercept_, model.alpha_)


def _ridge(X, y, model):
    r = y - X @ model.coef_ - model.intercept_
    return float(r @ r + model.coef_ @ model.coef_)


def _log_loss(X, y, model):
    f = X @ model.coef_.T + model.intercept_
    if f.shape[1] == 1:
        f = np.hstack([np.zeros_like(f), f])
    numbers = np.searchsorted(model.classes_, y)
    return float((logsumexp(f, axis=1) - f[np.arange(len(y)), numbers]).sum())


def _logistic(X, y, model):
    return _log_loss(X, y, model) + 0.5 * float((model.coef_**2).sum())


def _sparse_logistic(X, y, model):
    """Without the intercept, which liblinear penalises too."""
    return _log_loss(X, y, model) + float(np.abs(model.coef_).sum())


def _poisson(X, y, model):
    f = X @ model.coef_ + model.intercept_
    return float((np.exp(f) - y * f + xlogy(y, y) - y).mean() + 0.5 * model.coef_ @ model.coef_)


class _PathModel(NamedTuple):
    alphas: np.ndarray
    coefs: np.ndarray


def _path(X, y, model):
    """The mean over the path."""
    pairs = zip(model.alphas, model.coefs.T, strict=True)
    return float(np.mean([_least_squares(X, y, coef, 0.0, alpha) for alpha, coef in pairs]))


# Problems -----------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """What is fitted: ``fit(library, X, y, **tolerances)`` on each of `data`, and the objective of its
    model."""

    fit: Any
    data: dict
    objective: Any


def _alpha(X, y):
    """A twentieth of the penalty that leaves no column."""
    return float(np.abs(X.T @ (y - y.mean())).max() / len(y) / 20)


def _fit_lasso(library, X, y, **options):
    return library.Lasso(_alpha(X, y), **options).fit(X, y)


def _fit_path(library, X, y, **options):
    return _PathModel(*library.lasso_path(X, y, **options)[:2])


def _of(name, **fixed):
    return lambda library, X, y, **options: getattr(library, name)(**fixed, **options).fit(X, y)


def _fit_l1(library, X, y, **options):
    solver = {} if library is ours else {"solver": "liblinear"}
    return library.LogisticRegression(l1_ratio=1.0, fit_intercept=False, **solver, **options).fit(X, y)


def _some(data, *left_out):
    return {name: make for name, make in data.items() if name not in left_out}


TASKS = {
    "Lasso": Task(_fit_lasso, _REGRESSIONS, _lasso),
    "lasso_path": Task(_fit_path, _some(_REGRESSIONS, "linnerud", "long 100,000 x 30"), _path),
    "LassoCV": Task(_of("LassoCV"), _some(_REGRESSIONS, "tiny 10 x 3", "long 100,000 x 30"), _chosen),
    "Ridge": Task(_of("Ridge"), _REGRESSIONS, _ridge),
    "LogisticRegression": Task(_of("LogisticRegression"), _CLASSIFICATIONS, _logistic),
    "LogisticRegression, l1": Task(_fit_l1, _some(_TWO_CLASSES, "wide 100 x 200"), _sparse_logistic),
    "PoissonRegressor": Task(_of("PoissonRegressor"), {k: _counts(m) for k, m in _MADE.items()}, _poisson),
}
_QUICK = {"Lasso": ("diabetes",), "Ridge": ("tiny 10 x 3",), "LogisticRegression": ("breast cancer, scaled",)}


def problems(quick=False):
    """Pairs of a task's name and a data set's; the number of a problem is its place."""
    pairs = [(name, data) for name, task in TASKS.items() for data in task.data]
    models = list(everyday_models.PROBLEMS.items())
    if quick:
        pairs = [(name, data) for name, data in pairs if data in _QUICK.get(name, ())]
        models = [(name, problem) for name, problem in models if name in everyday_models.QUICK]
    return pairs + [(name, problem.dataset) for name, problem in models]


# Measuring ------------------------------------------------------------------------------------------------


def measure(name, data, rounds):
    """Compare both sides on one problem: a dict of figures, by side."""
    if name in everyday_models.PROBLEMS:
        return everyday_models.measure(everyday_models.PROBLEMS[name], rounds)
    task = TASKS[name]
    X, y = task.data[data]()
    libraries = dict(zip(SIDES, (ours, theirs), strict=True))
    fits = {side: functools.partial(task.fit, library, X, y) for side, library in libraries.items()}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        first = {side: _cpu_of(fit, 1) for side, fit in fits.items()}
        found: dict[str, Any] = {side: fit() for side, fit in fits.items()}
        values = {side: task.objective(X, y, model) for side, model in found.items()}
        tight = [task.objective(X, y, _tightest(fits[side], found[side])) for side in SIDES]
        best, unit = min([*values.values(), *tight]), _unit(name, y)
        options: dict[str, dict] = {side: {} for side in SIDES}
        for side in SIDES:
            for tenths in range(MOST_TIGHTER + 1):
                if values[side] - best <= LEVEL * unit:
                    break
                tighter = {"tol": 1e-4 * 0.1**tenths} if tenths else {}
                options[side] = {"max_iter": MOST_ITERATIONS, **tighter}
                fits[side] = functools.partial(task.fit, *fits[side].args, **options[side])
                values[side] = task.objective(X, y, fits[side]())
        counts = {side: max(1, int(LEAST / max(_cpu_of(fit, 1), 1e-5))) for side, fit in fits.items()}
        turns: dict[str, list] = {side: [] for side in SIDES}
        for number_ in range(rounds):
            for side in SIDES if number_ % 2 == 0 else SIDES[::-1]:
                turns[side].append(_cpu_of(fits[side], counts[side]))
    return {
        side: {
            "seconds": float(np.median(turns[side])),
            "turns": turns[side],
            "first": first[side],
            "tol": options[side].get("tol"),
            "max_iter": options[side].get("max_iter"),
            "excess": (values[side] - best) / unit,
        }
        for side in SIDES
    } | {"shape": list(X.shape)}


def _cpu_of(fit, count):
    began = time.process_time()
    for _ in range(count):
        fit()
    return (time.process_time() - began) / count


def _tightest(fit, model):
    """A model of a far smaller tolerance, at the penalty of `model` where that was chosen."""
    if not hasattr(model, "alpha_"):
        return fit(tol=TIGHT, max_iter=MOST_ITERATIONS)
    _, X, y = fit.args
    tight = theirs.Lasso(model.alpha_, tol=TIGHT, max_iter=MOST_ITERATIONS).fit(X, y)
    tight.alpha_ = model.alpha_
    return tight


def _unit(name, y):
    """The objective of a model without columns, about."""
    if name.startswith("Logistic"):
        return len(y) * float(np.log(len(np.unique(y))))
    spread = float(np.var(y))
    return spread * len(y) if name == "Ridge" else 1.0 if name == "PoissonRegressor" else spread / 2


def bench(*, quick, chosen, on_record, tell):
    """Run the problems of the chosen data sets: one record each."""
    common = about_run("everyday")
    for place, (name, data) in enumerate(problems(quick)):
        if data not in chosen:
            continue
        if lacks := everyday_models.missing(name):
            tell(f"{name}, {data}: left out, {lacks} is not installed")
            continue
        figures = measure(name, data, QUICK_ROUNDS if quick else ROUNDS)
        record = {"task": name, "data": {"name": data}, "place": place, **figures}
        on_record({**common, **record})
        tell(f"{name}, {data}: {ratio(record):.2f} of the CPU seconds of {peer_of(record)}")


def peer_of(record):
    """The name of the other side, scikit-learn where none is said."""
    return record.get("peer", SIDES[1])


def ratio(record):
    """Ours over the peer's CPU seconds."""
    return record[SIDES[0]]["seconds"] / record[peer_of(record)]["seconds"]


# Tables ---------------------------------------------------------------------------------------------------


def latest(records):
    """Return the last record of each problem, in the order of the problems."""
    last = {record["place"]: record for record in records}
    return [last[place] for place in sorted(last)]


def times_table(records):
    """One row a problem."""

    both = {"stradask": lambda record: record[SIDES[0]], "peer": lambda record: record[peer_of(record)]}

    def milliseconds(side, key):
        return lambda record: number(1e3 * both[side](record)[key])

    columns = {
        "ratio": lambda record: f"{ratio(record):.2f}",
        **{f"{side}, ms": milliseconds(side, "seconds") for side in both},
        **{f"first call: {side}": milliseconds(side, "first") for side in both},
        **{
            f"excess: {side}": lambda record, own=own: f"{own(record)['excess']:.0e}"
            for side, own in both.items()
        },
    }
    rows = [(_row_name(record), record) for record in records]
    return Table.of(rows, columns, "", "CPU milliseconds of a fit, and the excess of the objective or error")


def _row_name(record):
    peer = f" (peer: {record['peer']})" if "peer" in record else ""
    return f"{record['task']}: {record['data']['name']}{peer}"


def summary(records):
    """Say how many problems are behind, and the median ratios of both halves."""
    ratios = np.array([ratio(record) for record in records])
    halves = [ratios[[record["place"] % 2 == half for record in records]] for half in (0, 1)]
    medians = [f"{np.median(half):.2f}" if len(half) else "-" for half in halves]
    behind = int((ratios > 1).sum())
    return (
        f"{len(records)} problems, {behind} slower than the peer; median ratio {np.median(ratios):.2f} "
        f"(even numbers {medians[0]}, odd {medians[1]}), largest {ratios.max():.2f}"
    )


def table(records):
    """Return the table as text."""
    return f"{summary(records)}\n{times_table(records).text()}"


def page(records):
    """Return the page of a run of the benchmark."""
    whole = Page("stradask bench everyday: ordinary problems").text(
        f"Default parameters on both sides, one thread, on {where(records[0])}: medians of alternating "
        f"rounds in CPU seconds. {summary(records)}. A side whose objective lay more than {LEVEL:g} of the "
        f"model without columns above the best one known was given {MOST_ITERATIONS:,} iterations and then "
        "smaller tolerances. Topics, factors and networks are trained to the held-out error of the worse of "
        "both ends, and a little more. A first call is the "
        "first on that problem in this process: the first of a method also loads or compiles it."
    )
    return whole.table(*times_table(records)).add_facts(records[0], "machine")


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench everyday`` ask for."""
    if args.against:
        raise DataError("--against: everyday compares with scikit-learn, which is installed")
    if args.param:
        raise DataError("--param: everyday takes the default parameters")
    names = dict.fromkeys(data for _, data in problems(args.quick))
    unknown = [name for name in args.dataset or () if name not in names]
    if unknown:
        raise DataError(f"--dataset: everyday has no {unknown[0]!r}; it has {', '.join(map(repr, names))}")
    chosen = names if args.dataset is None else args.dataset
    bench(quick=args.quick, chosen=chosen, on_record=on_record, tell=tell)
