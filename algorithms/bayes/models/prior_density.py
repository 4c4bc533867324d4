"""What a prior of `priors` is: a density by its code, its arguments, and the parameters that it takes."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from ....errors import DataError, shortened
from ....kernels.bayes import transforms
from ....kernels.bayes.densities import parameter_priors as codes

_ANY = (transforms.FREE, transforms.SHIFTED, transforms.BETWEEN, transforms.ORDERED)


@dataclass(frozen=True, eq=False)
class PriorDensity:
    """A prior density; made by the functions of `priors`.

    `arguments` are (name, value) in the order of ``kernels.bayes.densities.parameter_priors``; `support` says
    which parameters it takes: "any", "not negative", "positive", "unit", "interval", "simplex", "cholesky" or
    "vector". `constant` is the part of the log density of each entry that depends on no parameter.
    """

    name: str
    code: int
    arguments: tuple[tuple[str, Any], ...]
    support: str = "any"
    constant: Any = 0.0

    def __repr__(self):
        pairs = [(name, value) for name, value in self.arguments if name]
        shown = (f"{name}={value!r}" if isinstance(value, str) else f"{name}={shortened(value.tolist(), 40)}"
                 for name, value in pairs)  # fmt: skip
        return f"{self.name}({', '.join(shown)})"

    @property
    def is_by_entry(self):
        """Whether entries are independent, and arguments one number for each."""
        return self.code not in (codes.POWERS, codes.MULTIVARIATE)

    def references(self):
        """Names of parameters among the arguments."""
        return [value for _, value in self.arguments if isinstance(value, str)]

    def log_constant(self, parameter):
        """Sum over all entries of the part of the log density that depends on no parameter."""
        if self.code == codes.POWERS:
            alpha, k = self.arguments[0][1], parameter.size
            if self.support == "simplex":
                rows = np.broadcast_to(alpha, parameter.shape).reshape(-1, k)
                return float(sum(map(_dirichlet_constant, rows)))
            return parameter.n_copies * _lkj_constant(float(alpha), k)
        if self.code == codes.MULTIVARIATE:
            return self.constant * parameter.n_values / parameter.shape[-1]
        return float(np.broadcast_to(self.constant, parameter.shape).sum())

    def powers(self, parameter):
        """Powers of the entries of a simplex (of all copies if they differ), or of a triangle's diagonal."""
        alpha, k = self.arguments[0][1], parameter.size
        if self.support == "simplex":
            return np.broadcast_to(alpha - 1, parameter.shape if alpha.ndim > 1 else k).ravel()
        return 2 * (float(alpha) - 1) * np.eye(k).ravel()

    def check(self, name, parameter):
        """Refuse a parameter that is outside of the density's support."""
        takes, remedy = _SUPPORTS[self.support]
        if not takes(self, parameter):
            raise DataError(f"priors[{name!r}] is {self}, but {name} is {parameter.words}: {remedy}")


def inverse_root(covariance):
    """Inverse of the lower Cholesky factor."""
    return np.tril(np.linalg.solve(np.linalg.cholesky(covariance), np.eye(len(covariance))))


def _dirichlet_constant(alpha):
    return float(special.gammaln(alpha.sum()) - special.gammaln(alpha).sum())


def _lkj_constant(eta, k):
    """Partial correlations are beta variables on (-1, 1): k - j of the j-th column."""
    j = np.arange(1, k)
    b = eta + (k - 1 - j) / 2
    return -float(((k - j) * ((2 * b - 1) * math.log(2) + special.betaln(b, b))).sum())


def _within(prior, parameter):
    bounds = dict(prior.arguments)
    inside = bounds["low"] <= parameter.low and parameter.high <= bounds["high"]
    return parameter.kind == transforms.BETWEEN and bool(inside)


def _fits(prior, parameter):
    k = len(dict(prior.arguments)["mean"])
    return parameter.kind in _ANY and parameter.shape[-1:] == (k,)


def _fits_simplex(prior, parameter):
    alpha = dict(prior.arguments)["concentration"]
    shapes = ((), (1,), (parameter.size,), parameter.shape)
    return parameter.kind == transforms.SIMPLEX and alpha.shape in shapes


_SUPPORTS = {
    "any": (lambda prior, p: p.kind in _ANY, "take dirichlet for a simplex, lkj for a correlation matrix"),
    "not negative": (lambda prior, p: p.kind in _ANY and p.low >= 0, "take positive(), or another prior"),
    "positive": (lambda prior, p: p.is_positive, "take positive(), or another prior"),
    "unit": (
        lambda prior, p: p.kind == transforms.BETWEEN and (p.low, p.high) == (0, 1),
        "take unit(), or another prior",
    ),
    "interval": (_within, "take interval() or unit() inside these bounds"),
    "simplex": (_fits_simplex, "take a simplex(k) of as many entries, or a concentration for each entry"),
    "cholesky": (lambda prior, p: p.kind == transforms.TRIANGLE, "take cholesky(k)"),
    "vector": (_fits, "its last axis must have as many entries as mean"),
}
