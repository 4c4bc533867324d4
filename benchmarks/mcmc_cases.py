"""Posteriors of the MCMC benchmark, with moments from quadrature or importance sampling.

Five kinds of model, each with parameters that may be any real numbers:

- "logistic": ``y_i ~ Bernoulli(1 / (1 + exp(-x_i b)))``, ``b_j ~ N(0, scale)``; parameters b.
- "eight-schools": ``y_j ~ N(mu + tau z_j, s_j)``, ``z_j ~ N(0, 1)``, ``mu ~ N(0, 5)``, ``tau ~
  half-Cauchy(5)``; what is judged are (mu, log tau).
- "poisson-gamma": ``y_i ~ Poisson(l_i)``, ``l_i ~ Gamma(a, rate b)`` integrated out; log a, log b N(0, 1).
- "mixture": ``y_i ~ w N(m, s) + (1 - w) N(m + g, s)``; ``m ~ N(0, 5)``, log g and log s N(0, 1), logit w
  N(0, 1.5); parameters (m, log g, log s, logit w).
- "saturation": ``y_i ~ N(e^a (2k + 1) x_i / (k + x_i), s)``, ``k = e^b``, x uniform on (0, 1), s known; a,
  the logarithm of the response to 1/2, N(0, 1), b N(0, 1.5): doses too small to tell k, that of half the
  largest response, from any larger one. So b has a long shoulder, and Laplace's approximation misses it.

Means, standard deviations and quantiles come from quadrature, or from importance sampling about the mode in
plain numpy, whose k-hat and effective number of draws are asked for.
"""

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from ..algorithms.bayes.posterior.psis import importance_ess, psis
from ..errors import DataError

PRIOR_SCALE = 2.5
FREEDOM = 7
DRAWS, LEAST_ESS, MOST_K_HAT = 20_000, 4_000, 0.5
LEVELS = (0.05, 0.95)
SCHOOLS = np.array([[28.0, 8, -3, 7, -1, 1, 18, 12], [15.0, 10, 16, 11, 9, 11, 10, 18]])
# name: (kind, rows and columns, the same for a quick look)
CASES = {
    "logistic": ("logistic", (50_000, 50), (5_000, 20)),
    "covtype": ("logistic", (581_012, 54), (20_000, 54)),
    "rare": ("logistic", (40_000, 20), (8_000, 10)),
    "credit": ("logistic", (1_000, 25), (1_000, 25)),
    "eight-schools": ("eight-schools", (8, 1), (8, 1)),
    "poisson-gamma": ("poisson-gamma", (2_000, 1), (500, 1)),
    "mixture": ("mixture", (2_000, 1), (500, 1)),
    "saturation": ("saturation", (100_000, 1), (20_000, 1)),
}
RACES = {"saturation": 5}  # shards against what else can be done in the same time
_NOISE = 0.03  # of "saturation", in roots of the number of rows


@dataclass(frozen=True)
class Truth:
    """Means, standard deviations, quantiles (2, d) of 5 and 95 %, and how they are known."""

    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray
    how: str


def load(name, *, seed, quick=False):
    """Return the kind of a case and its arrays, drawn from a seed (the eight schools are fixed)."""
    if name not in CASES:
        raise DataError(f"--dataset: {name!r} is none of {', '.join(CASES)}")
    kind, *sizes = CASES[name]
    n, d = sizes[quick]
    rng = np.random.default_rng(seed)
    if kind == "eight-schools":
        return kind, {"y": SCHOOLS[0], "s": SCHOOLS[1]}
    if kind == "poisson-gamma":
        return kind, {"y": rng.poisson(rng.gamma(2.0, 1 / 0.5, n)).astype(float)}
    if kind == "mixture":
        return kind, {"y": np.where(rng.random(n) < 0.3, 0.0, 2.5) + rng.standard_normal(n)}
    if kind == "saturation":
        x, s = rng.random(n), _NOISE * np.sqrt(n)
        return kind, {"x": x, "y": 9 * x / (4 + x) + s * rng.standard_normal(n), "s": np.full(n, s)}
    X = _columns(name, n, d, rng)
    b = rng.standard_normal(d) / np.sqrt(d) * (1 if name in ("covtype", "rare") else 2)
    b[0] = -5.0 if name == "rare" else 0.5
    y = (rng.random(n) < special.expit(X @ b)).astype(float)
    return kind, {"X": X, "y": y}


def _columns(name, n, d, rng):
    """A column of ones and normal ones; of covtype and credit most say which of some groups a row is of."""
    X = rng.standard_normal((n, d))
    X[:, 0] = 1.0
    groups = {"covtype": ((10, 14), (14, 54)), "credit": ((8, 12), (12, 17), (17, 25))}.get(name, ())
    for first, last in groups:
        shares = rng.dirichlet(np.full(last - first + 1, 2.0))
        X[:, first:last] = np.eye(last - first + 1)[rng.choice(last - first + 1, n, p=shares)][:, 1:]
    return X


def log_density(kind, arrays, Q):
    """Log densities (K,) at parameters Q (K, d), up to a constant; not of the eight schools."""
    Q, y = np.atleast_2d(Q), arrays["y"]
    if kind == "logistic":
        eta = arrays["X"] @ Q.T
        return (special.log_expit((2 * y - 1)[:, None] * eta)).sum(axis=0) - (Q**2).sum(1) / (
            2 * PRIOR_SCALE**2
        )
    if kind == "poisson-gamma":
        a, b = np.exp(Q.T[:, :, None])
        counts, times = np.unique(y, return_counts=True)
        terms = special.gammaln(a + counts) - special.gammaln(a) + a * np.log(b) - (a + counts) * np.log1p(b)
        return terms @ times - (Q**2).sum(axis=1) / 2
    if kind == "saturation":
        x, s = arrays["x"], arrays["s"]
        k = np.exp(Q[:, 1:])
        rest = (y - np.exp(Q[:, :1]) * (2 * k + 1) * x / (k + x)) / s
        return -0.5 * (rest**2).sum(axis=1) - Q[:, 0] ** 2 / 2 - Q[:, 1] ** 2 / 4.5
    m, log_g, log_s, logit_w = Q.T
    s = np.exp(log_s)
    two = np.stack([-0.5 * ((y[:, None] - at) / s) ** 2 for at in (m, m + np.exp(log_g))])
    two += np.stack([special.log_expit(logit_w), special.log_expit(-logit_w)])[:, None] - log_s
    prior = m**2 / 50 + log_g**2 / 2 + log_s**2 / 2 + logit_w**2 / 4.5
    return np.logaddexp(*two).sum(axis=0) - prior


def start(kind, arrays):
    """Return a starting point near the mode."""
    if kind == "mixture":
        low, high = np.quantile(arrays["y"], [0.2, 0.7])
        return np.array([low, np.log(high - low), 0.0, -0.5])
    if kind == "saturation":
        return np.array([0.0, 0.5])
    return np.zeros(arrays["X"].shape[1] if kind == "logistic" else 2)


def truth(kind, arrays, seed=0):
    """Return the `Truth` of a case; DataError if importance sampling cannot be trusted."""
    known = {"eight-schools": _schools, "saturation": _saturation}
    return known[kind](arrays) if kind in known else _by_importance(kind, arrays, seed)


def _schools(arrays):
    """Given tau all is normal: one quadrature over log tau."""
    log_tau = np.linspace(-14, 7, 40_001)
    tau = np.exp(log_tau)
    variance = arrays["s"][:, None] ** 2 + tau**2
    precision = 1 / 25 + (1 / variance).sum(axis=0)
    mean = (arrays["y"][:, None] / variance).sum(axis=0) / precision
    quadratic = (arrays["y"][:, None] ** 2 / variance).sum(axis=0) - precision * mean**2
    logp = -0.5 * (np.log(variance).sum(axis=0) + np.log(precision) + quadratic)
    logp += log_tau - np.log1p(tau**2 / 25)
    weights = special.softmax(logp)
    means = np.array([weights @ mean, weights @ log_tau])
    seconds = np.array([weights @ (mean**2 + 1 / precision), weights @ log_tau**2])
    sd = np.sqrt(seconds - means**2)

    def below(mu):
        return weights @ special.ndtr((mu - mean) * np.sqrt(precision))

    reach = means[0] + 20 * sd[0] * np.array([-1, 1])
    of_mu = [optimize.brentq(lambda mu, level=level: below(mu) - level, *reach) for level in LEVELS]
    of_tau = np.interp(LEVELS, np.cumsum(weights), log_tau)
    return Truth(means, sd, np.column_stack([of_mu, of_tau]), "quadrature")


def _saturation(arrays):
    """A sum over a grid; given b the response is linear in e^a, and two sums over rows serve all a."""
    a, b = np.linspace(-1.5, 1.5, 601), np.linspace(-4, 10, 701)
    x, y, s = (arrays[name] for name in ("x", "y", "s"))
    sums = np.empty((2, len(b)))
    for i, k in enumerate(np.exp(b)):
        shape = (2 * k + 1) * x / (k + x) / s
        sums[:, i] = shape @ (y / s), shape @ shape
    slope = np.exp(a)[:, None]
    logp = slope * sums[0] - slope**2 * sums[1] / 2 - a[:, None] ** 2 / 2 - b**2 / 4.5
    joint = special.softmax(logp)
    pairs = ((a, joint.sum(axis=1)), (b, joint.sum(axis=0)))
    mean = np.array([weights @ at for at, weights in pairs])
    sd = np.sqrt([weights @ (at - m) ** 2 for (at, weights), m in zip(pairs, mean, strict=True)])
    # The sum up to a point of the grid is that up to half a step beyond it.
    ends = [np.interp(LEVELS, np.cumsum(w), at + (at[1] - at[0]) / 2) for at, w in pairs]
    return Truth(mean, sd, np.stack(ends, axis=1), "quadrature")


def _by_importance(kind, arrays, seed):
    rng = np.random.default_rng([seed, 1])
    mode, root = _mode(kind, arrays)
    d = len(mode)
    z = rng.standard_normal((DRAWS, d)) / np.sqrt(rng.chisquare(FREEDOM, DRAWS) / FREEDOM)[:, None]
    Q = mode + z @ root.T
    size = max(1, 20_000_000 // len(arrays["y"]))  # a block of predictors in 160 MB
    logp = np.concatenate([log_density(kind, arrays, Q[i : i + size]) for i in range(0, DRAWS, size)])
    log_weights, k_hat = psis(logp + (FREEDOM + d) / 2 * np.log1p((z**2).sum(axis=1) / FREEDOM))
    ess = importance_ess(log_weights)
    if not (k_hat < MOST_K_HAT and ess > LEAST_ESS):
        raise DataError(f"the truth of {kind} is not known: k-hat {k_hat:.2f}, worth {ess:.0f} draws")
    weights = special.softmax(log_weights)
    mean = weights @ Q
    sd = np.sqrt(weights @ (Q - mean) ** 2)
    how = f"{DRAWS} weighted draws, worth {ess:.0f}, k-hat {k_hat:.2f}"
    return Truth(mean, sd, _weighted_quantiles(Q, weights), how)


def _weighted_quantiles(Q, weights):
    """Quantiles (2, d) of weighted draws."""
    quantiles = []
    for column in Q.T:
        order = np.argsort(column)
        quantiles.append(np.interp(LEVELS, np.cumsum(weights[order]), column[order]))
    return np.stack(quantiles, axis=1)


def _mode(kind, arrays):
    """The mode and a root of the inverse Hessian there."""
    if kind == "logistic":
        X, y = arrays["X"], arrays["y"]
        b = start(kind, arrays)
        for _ in range(50):
            p = special.expit(X @ b)
            precision = (X.T * (p * (1 - p))) @ X + np.eye(len(b)) / PRIOR_SCALE**2
            step = np.linalg.solve(precision, X.T @ (y - p) - b / PRIOR_SCALE**2)
            b = b + step
            if np.abs(step).max() < 1e-10:
                break
        return b, np.linalg.cholesky(np.linalg.inv(precision))

    def objective(q):
        return -log_density(kind, arrays, q)[0]

    least = optimize.minimize(objective, start(kind, arrays), tol=1e-10)
    h = 1e-3 * np.eye(len(least.x))
    pairs = (least.x + i * u + j * v for u in h for v in h for i in (1, -1) for j in (1, -1))
    values = log_density(kind, arrays, np.array(list(pairs))).reshape(len(h), len(h), 4)
    precision = -(values @ np.array([1, -1, -1, 1])) / 4e-6
    return least.x, np.linalg.cholesky(np.linalg.inv((precision + precision.T) / 2))
