"""Densities of a vector as loops over rows with the elementary functions of `sd.functions`.

Another library's environment loads these by path: their file needs numba and numpy alone.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np

_FILE = Path(__file__).parents[3] / "kernels" / "bayes" / "functions" / "elementary.py"
_SPEC: Any = importlib.util.spec_from_file_location("elementary", _FILE)
fn = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(fn)
log1p, log1p_exp, logistic = fn.log1p, fn.log1p_exp, fn.logistic

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"reassoc", "nsz", "contract"}}


@nb.njit(**_OPTIONS)
def student(q, data, g):
    """The density of `peers_worker.student_density`."""
    X, y = data
    n, d = X.shape
    precision = np.exp(-q[d])
    r = (y - X @ q[:d]) * precision
    total, by_log_sigma = 0.0, 0.0
    for i in range(n):
        u = 0.25 * r[i] * r[i]
        total += log1p(u)
        slope = 1.25 * r[i] / (1.0 + u)
        by_log_sigma += slope * r[i]
        r[i] = slope * precision
    g[:d] += X.T @ r - 0.04 * q[:d]
    g[d] += by_log_sigma - q[d] - n
    return -2.5 * total - n * q[d] - 0.5 * q[d] * q[d] - 0.02 * (q[:d] ** 2).sum()


@nb.njit(**_OPTIONS)
def logit(q, data, g):
    """y_i ~ Bernoulli(logistic(x_i q)), flat in q."""
    X, y = data
    f = X @ q
    total = 0.0
    for i in range(len(y)):
        total += y[i] * f[i] - log1p_exp(f[i])
        f[i] = y[i] - logistic(f[i])
    g[:] += X.T @ f
    return total


def looped(name, data):
    """Density, data and names of the entries of q of a model of `LOOPS`."""
    if name == "student":
        X, y = np.array(data["X"]), np.array(data["y"])
        return student, (X, y), [*(f"beta[{j}]" for j in range(X.shape[1])), "log_sigma"]
    X = np.column_stack([np.ones(data["N"]), data["income"]])
    return logit, (X, np.array(data["vote"], float)), ["alpha", "beta[0]"]


def named(name, data):
    """The same, for the named parameter q."""
    density, rows, names = looped(name, data)

    @nb.njit
    def of_q(p, data, g):
        return density(p.q, data, g.q)

    return of_q, rows, names


LOOPS = ("student", "nes_logit_data-nes_logit_model")
