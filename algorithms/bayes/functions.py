"""Compiled functions for log likelihoods of your own, with derivatives: call them in ``numba.njit`` code."""

from ...kernels.bayes.functions.elementary import exp, log, log1p, log1p_exp, logistic
from ...kernels.bayes.functions.gaussian_process import (
    cholesky_gradient,
    multivariate_normal,
    squared_exponential,
    squared_exponential_gradient,
)
from ...kernels.bayes.functions.hidden_markov import hidden_markov
from ...kernels.bayes.functions.ode import solve_ode, solve_ode_gradient

__all__ = [
    "cholesky_gradient", "exp", "hidden_markov", "log", "log1p", "log1p_exp", "logistic",
    "multivariate_normal", "solve_ode", "solve_ode_gradient", "squared_exponential",
    "squared_exponential_gradient",
]  # fmt: skip
