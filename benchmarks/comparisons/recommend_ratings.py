"""Predictors of ratings on one protocol: the second table of ``stradask bench recommend``.

Ratings are divided as choices are (see `recommend`), and every system tries the same number of settings,
drawn once from its grid by the seed. The one with the least RMSE on the validation part is fitted anew to
both parts, and judged once by the test part. All predictions are kept within the range of the ratings that
were learnt from. The interval is of users: 1.96 standard errors of the RMSE by the delta method, the squares
of each user's errors and their number being drawn together. A system with a random start is fitted from
several.
"""

import contextlib
import importlib.util
import io
import time
from types import SimpleNamespace

import numpy as np
from scipy import sparse

from ... import datasets
from ...algorithms.factorization.matrix_factorization import MatrixFactorization
from ..objectives._ratings import load_ratings
from .recommend import SEEDS, System, parts, settings_of

_SWEEPS = 30  # of the alternated biases: their objective no longer falls in 8 digits


def systems():
    """The systems by name; LIBMF where it is installed."""
    penalties = (0.03, 0.04, 0.05, 0.07, 0.1, 0.14)
    found = {
        "biases": System(
            Biases, {"user_reg": (1.0, 3.0, 5.0, 10.0, 20.0), "item_reg": (1.0, 3.0, 5.0, 10.0)}
        ),
        "MatrixFactorization, als": System(
            _factors("als", max_iter=15), {"n_components": (8, 16, 32, 64), "reg": penalties}, seeded=True
        ),
        "MatrixFactorization, sgd": System(
            _factors("sgd", max_iter=30),
            {"n_components": (32, 64), "reg": penalties, "learning_rate": (0.04, 0.06, 0.08)},
            seeded=True,
        ),
        "MatrixFactorization, gibbs": System(
            _factors("gibbs"), {"n_components": (8, 16, 32, 64), "max_iter": (24, 40, 60)}, seeded=True
        ),
        "MatrixFactorization, defaults": System(_factors("auto"), {}, seeded=True),
    }
    if importlib.util.find_spec("libmf") is not None:
        grid = {"n_components": (32, 64), "penalty": penalties, "rate": (0.05, 0.1), "iterations": (20, 40)}
        found["LIBMF"] = System(Libmf, grid)
    return found


def _factors(solver, **fixed):
    def make(random_state=0, **settings):
        return MatrixFactorization(solver=solver, random_state=random_state, **fixed, **settings)

    return make


class Biases:
    r"""Biases alone, by alternating least squares.

    Minimises :math:`\sum (r_{ui} - \mu - b_u - c_i)^2 + \lambda_u \|b\|^2 + \lambda_i \|c\|^2`, where mu is
    the mean of the ratings.
    """

    def __init__(self, user_reg, item_reg):
        self._regs = user_reg, item_reg

    def fit(self, R):
        """Fit to ratings."""
        cells = R.tocoo()
        self._mean, self._range = cells.data.mean(), (cells.data.min(), cells.data.max())
        left = cells.data - self._mean
        sides = [(cells.row, R.shape[0], self._regs[0]), (cells.col, R.shape[1], self._regs[1])]
        biases = [np.zeros(n) for _, n, _ in sides]
        for sweep in range(2 * _SWEEPS):
            own, other = sweep % 2, 1 - sweep % 2
            rows, n, reg = sides[own]
            sums = np.bincount(rows, left - biases[other][sides[other][0]], n)
            biases[own] = sums / (np.bincount(rows, minlength=n) + reg)
        self._biases = biases
        return self

    def predict(self, pairs):
        """Predict the ratings of pairs of rows and columns."""
        users, items = pairs.T
        return np.clip(self._mean + self._biases[0][users] + self._biases[1][items], *self._range)


class Libmf:
    """LIBMF by its Python binding, on one thread; see `solvers.mf.mf_libmf`."""

    def __init__(self, n_components, penalty, rate, iterations):
        self._given = n_components, penalty, rate, iterations

    def fit(self, R):
        """Fit to ratings."""
        from ..solvers.mf.mf_libmf import Solver

        n_components, penalty, rate, iterations = self._given
        solver = Solver(SimpleNamespace(n_components=n_components, n_jobs=1, penalties=1))
        solver.rate, solver.shape = rate, list(R.shape)
        cells = R.tocoo()
        solver.triples = np.column_stack([cells.row, cells.col, cells.data]).astype(np.float32)
        with contextlib.redirect_stdout(io.StringIO()):  # its import prints where its library is
            model = solver.fit(penalty, iterations)
        self._found = solver.arrays(model, penalty)
        self._range = cells.data.min(), cells.data.max()
        return self

    def predict(self, pairs):
        """Predict the ratings of pairs of rows and columns."""
        found = self._found
        users, items = pairs.T
        products = np.einsum("ij,ij->i", found["user_factors"][users], found["item_factors"][items])
        return np.clip(products + found["user_bias"][users] + found["item_bias"][items], *self._range)


def errors(model, R):
    """Errors of a model on ratings, and the rows of these."""
    cells = R.tocoo()
    return model.predict(np.column_stack([cells.row, cells.col])) - cells.data, cells.row


def rmse(model, R):
    """Root mean square error on ratings."""
    return float(np.sqrt(np.mean(errors(model, R)[0] ** 2)))


def half_width(misses, users):
    """1.96 standard errors of the RMSE where users are drawn, by the delta method."""
    _, users = np.unique(users, return_inverse=True)
    squares, counts = np.bincount(users, misses**2), np.bincount(users)
    mean = squares.sum() / counts.sum()
    apart = squares - mean * counts
    n = len(counts)
    return float(1.96 * np.sqrt(n / (n - 1) * (apart @ apart)) / counts.sum() / (2 * np.sqrt(mean)))


def measure(system, train, validation, test, budget, seed):
    """Tune and judge a system: figures of a record."""
    tried = settings_of(system, budget, seed)
    began = time.process_time()
    scores = [rmse(system.make(**settings).fit(train), validation) for settings in tried]
    tuning = time.process_time() - began
    best = tried[int(np.argmin(scores))]
    whole = _joined(train, validation)
    began = time.process_time()
    model = system.make(**best).fit(whole)
    seconds = time.process_time() - began
    misses, users = errors(model, test)
    found = {
        "settings": best,
        "tried": len(tried),
        "validation_rmse": min(scores),
        "tuning_seconds": tuning,
        "seconds": seconds,
        "figures": {"rmse": float(np.sqrt(np.mean(misses**2))), "mae": float(np.abs(misses).mean())},
        "half_width": half_width(misses, users),
    }
    if system.seeded:
        again = [rmse(system.make(random_state=k, **best).fit(whole), test) for k in range(1, SEEDS)]
        found["by_seed"] = [found["figures"]["rmse"], *again]
    return found


def _joined(train, validation):
    """The ratings of two parts, also those of 0."""
    one, two = train.tocoo(), validation.tocoo()
    where = [np.concatenate(pair) for pair in zip(one.coords, two.coords, strict=True)]
    return sparse.csr_array((np.concatenate([one.data, two.data]), tuple(where)), shape=train.shape)


def ratings(name, seed, quick):
    """A table of ratings, of a file or drawn."""
    if name.startswith(("generated", "movielens-")):
        R = load_ratings(name, seed, implicit=False, quick=quick)
    else:
        R = datasets.read_ratings(name).matrix
    return sparse.csr_array(R)[:600] if quick else sparse.csr_array(R)


def records(name, seed, budget, quick):
    """Yield the system, the facts of the data and the figures of each system."""
    train, validation, test = parts(ratings(name, seed, quick), seed)
    data = {"name": name.rpartition("/")[2], "users": train.shape[0], "items": train.shape[1]}
    data |= {"train": int(train.nnz), "validation": int(validation.nnz), "test": int(test.nnz)}
    for label, system in systems().items():
        yield label, data, measure(system, train, validation, test, budget, seed)


def columns():
    """The columns of the table."""
    return {
        "RMSE": lambda record: f"{record['figures']['rmse']:.4f} ± {record['half_width']:.4f}",
        "of starts, least and most": lambda record: (
            f"{min(record['by_seed']):.4f}, {max(record['by_seed']):.4f}" if "by_seed" in record else ""
        ),
        "mean absolute error": lambda record: f"{record['figures']['mae']:.4f}",
        "fit, s": lambda record: f"{record['seconds']:.3g}",
        "tuning, s": lambda record: f"{record['tuning_seconds']:.3g}",
        "settings tried": lambda record: str(record["tried"]),
    }
