"""A group lasso whose groups are scheduled: the program and the problem of ``stradask bench strads``.

Minimised is, with groups of k consecutive columns and L_g the largest eigenvalue of X_g^T X_g::

    P(b) = |y - X b|^2 / 2 + strength * sqrt(k) * sum_g |b_g|

A block is a group, a shard some rows with their part of the residual r. In a round every shard returns its
part of X_g^T r, the coordinator adds the parts and makes a proximal step along each group of the set::

    z = b_g + X_g^T r / L_g,      b_g <- max(0, 1 - strength * sqrt(k) / (L_g |z|)) z
"""

import time
from dataclasses import dataclass

import numpy as np

from ...errors import DataError, ModelFileError
from ...scheduler import Outcome, Program
from ..gaps import norms_gap

_DIVERGED = 1e6  # times the objective at zero
_CERTAIN = 1e-9  # relative gap of the minimum that runs are compared with


class GroupBlocks(Program):
    """The program. `X`: float64 (n, p); `size`: columns of a group; `strength`: in units of the squares."""

    saved = ("residual",)

    def __init__(self, X, y, strength, size, *, n_shards):
        self.n_blocks = X.shape[1] // size
        groups = np.ascontiguousarray(X.T).reshape(self.n_blocks, size, len(y))
        rows = np.array_split(np.arange(len(y)), n_shards)
        self.shards = [(np.ascontiguousarray(groups[:, :, part]), y[part]) for part in rows]
        self.curvature = np.linalg.eigvalsh(groups @ groups.transpose(0, 2, 1))[:, -1]
        self.charge = strength * np.sqrt(size)
        self.coef = np.zeros((self.n_blocks, size))
        self.primal = 0.5 * float(y @ y)
        self.ceiling = _DIVERGED * self.primal

    def __getstate__(self):
        """Pickle without the data."""
        return {**self.__dict__, "shards": ()}

    def load(self, data):
        """Columns of the rows of a shard, by groups, and the residual."""
        return {"groups": data[0], "residual": data[1].copy()}

    def update(self, state, task):
        """Push: slopes along the groups."""
        return state["groups"][task.blocks] @ state["residual"]

    def sync(self, state, message):
        """Take changes into the residual."""
        blocks, change = message
        residual = state["residual"]
        residual -= change.ravel() @ state["groups"][blocks].reshape(-1, len(residual))

    def measure(self, state):
        """A shard's part of the squares."""
        return state["residual"] @ state["residual"]

    def aggregate(self, tasks, partials):
        """Pull: a proximal step along each group of the set."""
        blocks, slopes = tasks[0].blocks, sum(partials)
        old, curvature = self.coef[blocks], self.curvature[blocks]
        z = old + slopes / curvature[:, None]
        norms = np.maximum(np.linalg.norm(z, axis=1), np.finfo(float).tiny)
        self.coef[blocks] = np.maximum(0, 1 - self.charge / (curvature * norms))[:, None] * z
        change = self.coef[blocks] - old
        priorities = np.linalg.norm(change, axis=1) * np.sqrt(curvature)  # how far predictions may move
        moved = priorities > 0
        return Outcome((blocks[moved], change[moved]), priorities=priorities, updates=len(blocks))

    def objective(self, parts):
        """Return the objective."""
        self.primal = 0.5 * sum(parts) + self.charge * np.linalg.norm(self.coef, axis=1).sum()
        return self.primal

    def stop(self, history):
        """End a run that diverges."""
        return "diverged" if self.primal > self.ceiling else False

    def arrays(self):
        """See `Program.arrays`."""
        return {"coef": self.coef}

    def restore(self, arrays):
        """See `Program.restore`."""
        coef = arrays.get("coef", self.primal)
        if np.shape(coef) != self.coef.shape or np.asarray(coef).dtype != np.float64:
            raise ModelFileError(f"the checkpoint must hold coef, float64 of shape {self.coef.shape}")
        self.coef = coef


@dataclass(frozen=True)
class GroupProblem:
    """Groups in clusters, with the minimum: `optimum` is the least objective, `scale` that at zero.

    `limit` is the sum of all L_g over ``lambda_max(X^T X)``: about as many may be in flight at random.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    size: int
    strength: float
    optimum: float
    scale: float
    limit: float

    def program(self, n_shards):
        """Return the program."""
        return GroupBlocks(self.X, self.y, self.strength, self.size, n_shards=n_shards)

    def conflicts(self, rho):
        """Return which groups have an RV coefficient of rho^2 or more, the squared correlation of one column.

        It is ``|X_g^T X_h|^2 / (|X_g^T X_g| |X_h^T X_h|)`` with Frobenius norms (Robert and Escoufier, 1976).
        """
        n_groups = self.X.shape[1] // self.size
        products = (self.X.T @ self.X).reshape(n_groups, self.size, n_groups, self.size)
        squares = np.einsum("gihj,gihj->gh", products, products)
        own = np.sqrt(np.diag(squares))
        return squares >= rho**2 * np.outer(own, own)

    def own_solvers(self):
        """Return the estimator that solves this, by name, as a function of the tolerance."""
        return {"GroupLasso": lambda tol: _fitted(self.X, self.y, self.strength, self.size, tol)}

    def gap(self, coef):
        """Return the relative duality gap of coefficients."""
        return _judged(self.X, self.y, coef, self.strength, self.size)[0]


def _fitted(X, y, strength, size, tol):
    from ...algorithms.linear.structured.regressors import GroupLasso

    model = GroupLasso(size, alpha=strength / len(y), fit_intercept=False, tol=tol, max_iter=1000)
    return model.fit(X, y).coef_


def _judged(X, y, coef, strength, size):
    return norms_gap(X, y[:, None], coef[:, None], strength * np.sqrt(size) / len(y), size)


def make_groups(name, *, n, n_groups, size, n_clusters, seed):
    """Draw groups of independent columns; groups of one cluster correlate by 0.9, column by column."""
    rng = np.random.default_rng(seed)
    cluster = rng.permutation(n_groups) % n_clusters
    factors = rng.standard_normal((n, n_clusters, size))[:, cluster]
    X = np.sqrt(0.9) * factors + np.sqrt(0.1) * rng.standard_normal((n, n_groups, size))
    X = X.reshape(n, -1)
    X = np.asfortranarray((X - X.mean(axis=0)) / X.std(axis=0))
    coef = np.zeros((n_groups, size))
    coef[rng.choice(n_groups, max(1, n_groups // 15), replace=False)] = 1
    signal = X @ (coef * rng.standard_normal(coef.shape)).ravel()
    y = signal + rng.standard_normal(n) * signal.std() / 3
    y -= y.mean()
    slopes = np.linalg.norm((X.T @ y).reshape(n_groups, size), axis=1)
    strength = float(slopes.max() / np.sqrt(size) / 10)
    gap, objective = _judged(X, y, _fitted(X, y, strength, size, 1e-10), strength, size)
    if gap > _CERTAIN:
        raise DataError(f"the minimum of {name} is known only to a relative gap of {gap:.1e}")
    program = GroupBlocks(X, y, strength, size, n_shards=1)
    limit = float(program.curvature.sum() / np.linalg.eigvalsh(X @ X.T)[-1])
    return GroupProblem(name, X, y, size, strength, objective * n, float(0.5 * y @ y), limit)


def least_seconds(fit, repeats=3):
    """Return the least CPU seconds of some calls, and what the last one returned."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        result = fit()
        times.append(time.process_time() - began)
    return min(times), result
