"""Structured models: seconds to a relative duality gap, for groups, several targets, counts and survival."""

import numpy as np

from ...errors import DataError, shortened
from ..gaps import norms_gap, poisson_gap, survival_gap
from ..linear_cases import SNR, ar_design
from . import Problem
from ._linear import LinearObjective

SIZES = {"wide": (300, 3000), "square": (2000, 2000), "tall": (10_000, 300)}
QUICK_SIZES = {"wide": (100, 600), "square": (400, 400), "tall": (2000, 100)}
KINDS = ("group", "multitask", "poisson", "cox")
GROUP_SIZE, N_TARGETS = 5, 5
N_INFORMATIVE, N_GROUPS = 30, 20


class Objective(LinearObjective):
    """Four models without an intercept on dense designs whose neighbouring columns correlate.

    - "group": 1/2n |y - X b|^2 + alpha sum_g sqrt(5) |b_g|, groups of 5 consecutive columns;
    - "multitask": 1/2n |Y - X B|^2 + alpha sum_j |B_j|, 5 targets;
    - "poisson": 1/n sum_i (exp f_i - y_i f_i) + alpha |b|_1 with f = X b;
    - "cox": 1/n times minus the logarithm of the partial likelihood, without ties, + alpha |b|_1.

    A data set is KIND-SIZE, such as "group-wide"; sizes are "wide" (300 x 3,000), "square" (2,000 x 2,000)
    and "tall" (10,000 x 300). The target of "cox" has two columns, times and events.
    """

    family = "structured"
    default_datasets = tuple(f"{kind}-{size}" for kind in KINDS for size in SIZES)
    defaults = {**LinearObjective.defaults, "divisor": (10, 50)}  # noqa: RUF012

    def __init__(self, dataset, *, seed, parameters, quick=False):
        if dataset not in self.default_datasets:
            known = ", ".join(self.default_datasets)
            raise DataError(f"--dataset: {shortened(dataset)} is none of {known}")
        if parameters["intercept"]:
            raise DataError("--param: intercept=True: these models are compared without an intercept")
        self.kind, self.size = dataset.split("-")
        super().__init__(dataset, seed=seed, parameters=parameters, quick=quick)
        if self.kind == "multitask":
            self.coef_shape = N_TARGETS, self.X.shape[1]

    def load(self, dataset, *, seed, quick):
        """Draw the design and the target."""
        n, p = (QUICK_SIZES if quick else SIZES)[self.size]
        rng = np.random.default_rng(seed)
        X = ar_design(rng, n, p)
        coef = np.zeros((p, N_TARGETS if self.kind == "multitask" else 1))
        if self.kind == "group":
            groups = rng.choice(p // GROUP_SIZE, N_GROUPS, replace=False)
            informative = (GROUP_SIZE * groups[:, None] + np.arange(GROUP_SIZE)).ravel()
        else:
            informative = rng.choice(p, N_INFORMATIVE, replace=False)
        coef[informative] = rng.standard_normal((len(informative), coef.shape[1]))
        signal = X @ coef
        signal /= signal.std(axis=0)
        if self.kind == "multitask":
            return X, np.asfortranarray(signal + rng.standard_normal(signal.shape) / SNR)
        f = signal[:, 0]
        if self.kind == "group":
            return X, f + rng.standard_normal(n) / SNR
        if self.kind == "poisson":
            return X, rng.poisson(np.exp(f)).astype(float)
        time, censored = rng.exponential(np.exp(-f)), rng.exponential(2.0, n)
        return X, np.column_stack([np.minimum(time, censored), time <= censored])

    def gap(self, X, y, coef, alpha, intercept=None):
        """Return the relative gap and the objective."""
        if self.kind == "poisson":
            return poisson_gap(X, y, coef, alpha)
        if self.kind == "cox":
            return survival_gap(X, y[:, 0], y[:, 1] > 0, coef, alpha)
        if self.kind == "group":
            return norms_gap(X, y[:, None], coef[:, None], alpha * np.sqrt(GROUP_SIZE), GROUP_SIZE)
        return norms_gap(X, y, coef.T, alpha, 1)

    def alpha_max(self, X, y):
        """Return the smallest penalty at which all coefficients are 0."""
        n = len(y)
        if self.kind == "group":
            norms = np.linalg.norm((X.T @ y).reshape(-1, GROUP_SIZE), axis=1)
            return float(norms.max() / np.sqrt(GROUP_SIZE) / n)
        if self.kind == "multitask":
            return float(np.linalg.norm(X.T @ y, axis=1).max() / n)
        if self.kind == "poisson":
            return float(np.abs(X.T @ (y - 1)).max() / n)
        order = np.argsort(-y[:, 0])
        events, at_risk = y[order, 1], np.arange(1, n + 1)
        rates = np.cumsum((events / at_risk)[::-1])[::-1]
        return float(np.abs(X[order].T @ (rates - events)).max() / n)

    def problems(self):
        """Return the penalties to be solved for."""
        return [
            Problem(f"/{divisor:g}", self.kind, {"alpha": self.largest_alpha / divisor}, self.targets)
            for divisor in self.divisors
        ]

    def settings(self):
        """See `LinearObjective`."""
        return super().settings() | {"call": self.kind, "group_size": GROUP_SIZE}

    @property
    def targets(self):
        """The gaps to be reached."""
        return 1e-4, 1e-6
