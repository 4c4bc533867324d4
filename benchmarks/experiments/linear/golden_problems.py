"""The problems of `golden`, and the process that fits them: run by its path, with any checkout's package.

A line of `CASES` is an estimator, a loss, a design, a strength (a share of the largest slope at zero, or "-":
the estimator's), parameters of the estimator and words of the fit. Groups are of five columns.
"""

import ast
import json
import sys
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
from scipy import sparse, special

DESIGNS = {  # rows, columns, correlation of neighbours, density
    "small": (442, 10, 0.5, 1.0),
    "tall": (5000, 50, 0.5, 1.0),
    "wide": (100, 5000, 0.3, 1.0),
    "square": (400, 400, 0.5, 1.0),
    "correlated": (500, 2000, 0.9, 1.0),
    "csc": (4000, 20_000, 0.0, 0.002),
    "csr": (3000, 2000, 0.0, 0.01),
}
CASES = """
Lasso squared small .1
Lasso squared small .001
Lasso squared small .05 weights
SparseGLM squared small .1 penalty='l1'
Lasso squared tall .1
Lasso squared wide .1
Lasso squared wide .01
SparseGLM squared wide .01 penalty='l1'
Lasso squared square .05
Lasso squared correlated .05
Lasso squared correlated .05 float32
SparseGLM squared correlated .05 penalty='l1'
Lasso squared csc .1
Lasso squared csc .01
SparseGLM squared csc .1 penalty='l1'
SparseGLM squared csc .01 penalty='l1'
Lasso squared csr .05
Lasso squared csc .05 dask
Lasso targets square .1
ElasticNet squared tall .1 l1_ratio=.5 weights
ElasticNet squared wide .05 l1_ratio=.5 float32
ElasticNet squared csc .02 l1_ratio=.5
SparseGLM squared square .1 penalty='elastic-net' l1_ratio=.5 offset
SparseGLM squared wide .1 penalty='l1' dask
lasso_path squared wide - n_alphas=50
enet_path squared csc - n_alphas=20 eps=.05 l1_ratio=.8
LassoCV squared tall - alphas=100 cv=5
LassoCV squared wide - alphas=50 eps=.02 cv=3
ElasticNetCV squared small - alphas=100 l1_ratio=.5 cv=5
SparseGLMCV squared square - alphas=30 eps=.02 cv=3
RidgeCV squared tall -
Ridge squared tall - alpha=10.
Ridge squared wide - alpha=1.
Ridge squared csr - alpha=1.
SparseLogisticRegression logistic small .1
SparseGLM logistic small .1 penalty='l1'
SparseLogisticRegression logistic tall .05 weights
SparseLogisticRegression logistic wide .05
SparseLogisticRegression logistic square .1 offset
SparseLogisticRegression logistic correlated .05
SparseLogisticRegression logistic csc .05
SparseGLM logistic csc .05 penalty='l1'
GroupLogisticRegression logistic csc .05 groups=None
SparseLogisticRegression logistic csc .1 dask
SparseLogisticRegression multinomial square .1
SparseLogisticRegressionCV logistic square - alphas=30 eps=.02 cv=3
LogisticRegression logistic tall - C=1.
LogisticRegression multinomial tall - C=.01
LogisticRegression logistic tall - C=.005 l1_ratio=1.
GroupLogisticRegression logistic wide .2 groups=5
GroupLogisticRegression multinomial square .2 groups=None
SparsePoissonRegressor poisson square .1
SparsePoissonRegressor poisson tall .1 offset
SparseGLM poisson csc .05 penalty='l1'
PoissonRegressor poisson tall - alpha=.01
GLM poisson tall - family='poisson'
GLM gamma small - family='gamma'
SparseGLM gamma tall .05 penalty='l1'
GroupLasso squared tall .1 groups=5
GroupLasso squared wide .1 groups=5
GroupLasso squared square .1 groups=5 l1_ratio=.5
GroupLasso squared wide .3 groups=5 dask
GroupLassoCV squared square - groups=5 alphas=20 eps=.05 cv=3
MultiTaskLasso targets square .1
MultiTaskElasticNetCV targets small - l1_ratio=.5 alphas=30 cv=3
CoxRegression cox square .1
CoxRegression cox small - alpha=0.
QuantileRegressor quantile tall .1
QuantileRegressor quantile square .1
HuberRegressor huber tall -
SparseGLM huber square .1 penalty='l1'
SparseGLM squared square .1 penalty='mcp'
SparseGLM squared wide .2 penalty='scad'
SparseGLM logistic square .2 penalty='mcp'
""".strip().splitlines()
SMOOTH = ("LogisticRegression", "Ridge", "RidgeCV", "PoissonRegressor", "GLM", "HuberRegressor")
FIRST = """
Lasso squared small .1
Lasso squared csc .1
SparseLogisticRegression logistic csc .05
SparseGLM logistic small .1 penalty='l1'
GroupLasso squared square .1 groups=5 l1_ratio=.5
QuantileRegressor quantile square .1
CoxRegression cox square .1
LassoCV squared tall - alphas=100 cv=5
""".strip().splitlines()


class Problem:
    """The data of a line, its estimator, and the objective; the same numbers for every checkout."""

    def __init__(self, line):
        self.line, words = line, line.split()
        self.name, self.loss, design, share, *words = words
        self.options = {k: ast.literal_eval(v) for k, _, v in (w.partition("=") for w in words) if v}
        self.words, rng = set(words), np.random.default_rng(zlib.crc32(f"{self.loss} {design}".encode()))
        n, p, correlation, density = DESIGNS[design]
        if density < 1:
            X = sparse.random(n, p, density, design, random_state=rng, data_rvs=rng.standard_normal)
        else:
            X = rng.standard_normal((n, p))
            for j in range(1, p):
                X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
            X = X.astype(np.float32) if "float32" in words else X
        columns = rng.choice(p, min(p // 2, 200 if density < 1 else 10), replace=False)
        z = np.ravel(
            X.tocsc()[:, columns] @ rng.standard_normal(len(columns)) if density < 1 else X[:, columns].sum(1)
        )
        self.X, self.y = X, self._draw_target(rng, (z - z.mean()) / z.std())
        self.w = rng.integers(1, 4, n).astype(float) if "weights" in words else np.ones(n)
        self.offset = 0.3 * rng.standard_normal(n) if "offset" in words else np.zeros(n)
        self.fit = {"sample_weight": self.w} if "weights" in words else {}
        self.fit |= {"offset": self.offset} if "offset" in words else {}
        self.options |= {"loss": self.loss} if self.name == "SparseGLM" else {}
        if share != "-":
            self.options["alpha"] = float(share) * self._largest_slope()

    def _draw_target(self, rng, z):
        n, normal = len(z), rng.standard_normal(len(z))
        if self.loss == "targets":
            return z[:, None] * [1.0, -1.0, 2.0, 0.5] + rng.standard_normal((n, 4))
        if self.loss == "cox":
            times, censored = rng.exponential(size=n) * np.exp(-0.7 * z), rng.exponential(2, n)
            return np.stack([np.minimum(times, censored), times <= censored], 1).astype(float)
        return {
            "squared": lambda: z + 0.5 * normal,
            "logistic": lambda: (rng.random(n) < special.expit(2 * z)).astype(int),
            "multinomial": lambda: np.argmax(np.outer(z, [-2, 0, 1, 2]) + rng.gumbel(size=(n, 4)), 1),
            "poisson": lambda: rng.poisson(np.exp(0.7 * z)).astype(float),
            "gamma": lambda: np.exp(0.5 * z) * rng.gamma(2, 0.5, n),
        }.get(self.loss, lambda: z + 0.3 * rng.standard_t(2, n))()

    def _largest_slope(self):
        y = self.y
        y = np.eye(4)[y] if self.loss == "multinomial" else y
        r = y - np.average(y, axis=0, weights=self.w)
        if self.loss == "cox":
            order = np.argsort(y[:, 0])
            r = y[:, 1] - np.cumsum(y[order, 1] / np.arange(len(y), 0, -1))[np.argsort(order)]
        elif self.loss in ("quantile", "huber"):
            r = np.clip(y - np.median(y), -1, 1) if self.loss == "huber" else 0.5 - (y < np.median(y))
        return float(np.abs(self.X.T @ (self.w * r.T).T).max() / self.w.sum())

    def objective(self, coef, intercept, alpha, width=1.0):
        """Mean loss and penalties, without the package."""
        W, y, w = np.atleast_2d(np.asarray(coef, float)), self.y, self.w / self.w.sum()
        f = self.X @ W.T + np.ravel(intercept)
        f = f if self.loss in ("targets", "multinomial") else f[:, 0] + self.offset
        if self.loss == "cox":
            order = np.argsort(-y[:, 0])
            loss = y[order, 1] * (np.logaddexp.accumulate(f[order]) - f[order])
        else:
            loss = {
                "squared": lambda: (y - f) ** 2 / 2,
                "targets": lambda: ((y - f) ** 2).sum(axis=1) / 2,
                "logistic": lambda: np.logaddexp(0, f) - y * f,
                "multinomial": lambda: special.logsumexp(f, axis=1) - f[np.arange(len(y)), y],
                "poisson": lambda: np.exp(f) - y * f + special.xlogy(y, y) - y,
                "gamma": lambda: y * np.exp(-f) + f - np.log(y) - 1,
                "quantile": lambda: np.abs(y - f) / 2,
                "huber": lambda: (
                    width * (2 * special.huber(1.35, (y - f) / width) + 1)
                    if self.name == "HuberRegressor"
                    else special.huber(1.35, y - f)
                ),
            }[self.loss]()
        return float(w @ loss) + self._penalty(W, alpha)

    def _penalty(self, W, alpha):
        ratio = self.options.get(
            "l1_ratio", 0.0 if self.name in SMOOTH or self.name.startswith("Group") else 1.0
        )
        l1, l2, size = np.abs(W).sum(), (W**2).sum() / 2, np.abs(W)
        kind, groups = self.options.get("penalty", "l1"), self.options.get("groups", 1)
        if self.name == "LogisticRegression":
            alpha = 1 / (self.options["C"] * len(self.y))
        elif self.name in ("Ridge", "RidgeCV", "HuberRegressor"):
            alpha *= (2 if self.name == "HuberRegressor" else 1) / len(self.y)
        elif self.name.startswith("Group"):
            groups = groups or 1
            norms = np.linalg.norm(W.reshape(len(W), -1, groups), axis=(0, 2))
            return alpha * (ratio * l1 + (1 - ratio) * np.sqrt(groups) * norms.sum())
        elif self.name.startswith("MultiTask"):
            l1 = np.linalg.norm(W, axis=0).sum()
        elif kind == "mcp":
            return np.where(size < 3 * alpha, alpha * size - size**2 / 6, 1.5 * alpha**2).sum()
        elif kind == "scad":
            bent = (2 * 3.7 * alpha * size - size**2 - alpha**2) / 5.4
            return np.where(
                size < alpha, alpha * size, np.where(size < 3.7 * alpha, bent, 2.35 * alpha**2)
            ).sum()
        return alpha * (ratio * l1 + (1 - ratio) * l2)


class Fitter:
    """Fits a problem; Dask workers, where a line asks for them, count in its CPU seconds."""

    def __init__(self, line, root, client):
        self.problem, self.root, self.client = Problem(line), root, client
        self.options = self.problem.options | ({"engine": client} if client else {})

    def fit(self):
        """Return the fitted model, or a path."""
        import stradask as sd

        problem, estimator = self.problem, getattr(sd, self.problem.name)
        if problem.name.endswith("_path"):
            return estimator(problem.X, problem.y, **self.options)
        return estimator(**self.options).fit(problem.X, problem.y, **problem.fit)

    def clock(self):
        """CPU seconds of this process and of workers."""
        workers = sum(self.client.run(time.process_time).values()) if self.client else 0.0
        return time.process_time() + workers

    def time(self, fill):
        """CPU seconds of a fit, the mean of as many as fill some seconds."""
        began, count = self.clock(), 0
        while not count or (self.clock() - began < fill and count < 200):
            self.fit()
            count += 1
        return {"seconds": (self.clock() - began) / count}

    def calls(self):
        """Count calls of the package's Python functions in a fit."""
        calls = 0

        def profile(frame, event, argument):
            nonlocal calls
            name = frame.f_code.co_filename
            calls += (
                event == "call" and name.startswith(self.root) and name != __file__ and ".venv" not in name
            )

        sys.setprofile(profile)
        try:
            self.fit()
        finally:
            sys.setprofile(None)
        return {"calls": calls}

    def look(self):
        """Objective, that without columns, gap, and a few numbers that tell coefficients apart."""
        model, problem = self.fit(), self.problem
        if isinstance(model, tuple):
            alphas, coef, gaps = model
            value = np.mean([problem.objective(b, 0.0, a) for a, b in zip(alphas, coef.T, strict=True)])
            zero, gap = problem.objective(0 * coef[:, 0], 0.0, 0.0), np.max(gaps)
        else:
            coef, intercept = model.coef_, getattr(model, "intercept_", 0.0)
            alpha = getattr(model, "alpha_", getattr(model, "alpha", 0.0))
            width, gap = getattr(model, "scale_", 1.0), np.max(getattr(model, "dual_gap_", np.nan))
            value = problem.objective(coef, intercept, alpha, width)
            zero = problem.objective(0 * coef, np.mean(intercept), 0.0, width)
        coef = np.asarray(coef, np.float64)
        drawn = np.random.default_rng(0).standard_normal(coef.size) @ coef.ravel()
        names, norm = ("objective", "zero", "gap", "norm", "dot"), np.linalg.norm(coef)
        figures = zip(names, (value, zero, gap, norm, drawn), strict=True)
        return {k: float(f"{v:.12g}") for k, v in figures} | {"nonzero": int(np.count_nonzero(coef))}


def serve():
    """Answer requests, a line each: the method of a `Fitter`, its line and its arguments."""
    import numba  # noqa: F401  its import is not the package's time

    import stradask as sd

    root, fitter, client = str(Path(sd.__file__).resolve().parents[1]), None, None
    print(json.dumps(root), flush=True)
    warnings.simplefilter("ignore")
    for method, line, arguments in map(json.loads, sys.stdin):
        try:
            if "dask" in line.split() and client is None:
                from distributed import Client, LocalCluster

                client = Client(LocalCluster(2, threads_per_worker=1, dashboard_address=":0"))
            if fitter is None or fitter.problem.line != line:
                fitter = Fitter(line, root, client if "dask" in line.split() else None)
            answer = getattr(fitter, method)(*arguments)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
