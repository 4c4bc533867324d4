"""Reference posteriors of posteriordb as models, for tests.

``bayes_references.json`` holds of each the data, reduced to what its likelihood needs (of a normal regression
the triangle of (X, y), of votes their table), and mean, standard deviation and error of the mean of each
parameter: of 10,000 draws where posteriordb has them, else of 4,000 to 8,000 of Stan's, and for German credit
those of Inference Gym.
"""

import json
import math
from pathlib import Path

import numba as nb
import numpy as np

from stradask.algorithms.bayes.models.model import Model, Prior, regression

POSTERIORS = json.loads(Path(__file__).with_name("bayes_references.json").read_text())
# Priors of coefficients and of sigma. Half-normal ones of sigma are replaced by the half-Cauchy one that has
# the same slope where sigma is, which is known to a few parts in a hundred.
NORMAL = {
    "kidiq_momiq": (np.inf, 2.5),
    "kidiq_momhsiq": (np.inf, 2.5),
    "kidiq_interaction": (np.inf, 2.5),
    "earnings": (np.inf, np.inf),
    "mesquite": (np.inf, np.inf),
    "sblrc": (10.0, math.sqrt(200 - 1.04**2)),
    "radon_pooled": (10.0, math.sqrt(2 - 1.06**2)),
}


@nb.njit(nogil=True, error_model="numpy")
def eight_schools(q, g, data, meta):
    """q is z_1..z_8, mu, log tau; the effects are mu + tau z, the data y and then their standard errors."""
    mu, tau = q[8], math.exp(q[9])
    logp = -0.5 * mu * mu / 25.0 - math.log1p(tau * tau / 25.0) + q[9]
    g[8], g[9] = -mu / 25.0, 1.0 - 2.0 * tau * tau / (25.0 + tau * tau)
    for j in range(8):
        residual = (data[j] - mu - tau * q[j]) / data[8 + j] ** 2
        logp -= 0.5 * residual * (data[j] - mu - tau * q[j]) + 0.5 * q[j] * q[j]
        g[j] = residual * tau - q[j]
        g[8] += residual
        g[9] += residual * tau * q[j]
    return logp


@nb.njit(nogil=True, error_model="numpy")
def two_normals(q, g, data, meta):
    """q is mu_1, mu_2, the logarithms of the standard deviations, the logit of the first one's weight."""
    s, t, weight = math.exp(q[2]), math.exp(q[3]), 1.0 / (1.0 + math.exp(-q[4]))
    logp = -(q[0] ** 2 + q[1] ** 2 + s * s + t * t) / 8.0 + q[2] + q[3]
    logp += 5.0 * (math.log(weight) + math.log1p(-weight))
    g[0], g[1], g[2], g[3] = -q[0] / 4.0, -q[1] / 4.0, 1.0 - s * s / 4.0, 1.0 - t * t / 4.0
    g[4] = 5.0 - 10.0 * weight
    for y in data:
        u, v = (y - q[0]) / s, (y - q[1]) / t
        first, second = math.log(weight) - q[2] - u * u / 2.0, math.log1p(-weight) - q[3] - v * v / 2.0
        top = max(first, second)
        total = top + math.log(math.exp(first - top) + math.exp(second - top))
        share = math.exp(first - total)
        logp += total
        g[0] += share * u / s
        g[1] += (1.0 - share) * v / t
        g[2] += share * (u * u - 1.0)
        g[3] += (1.0 - share) * (v * v - 1.0)
        g[4] += share - weight
    return logp


@nb.njit(nogil=True, error_model="numpy")
def seeds(q, g, data, meta):
    """q is a_0, a_1, a_2, a_12, log sigma, z_1..z_21; data germinated, sown, x_1, x_2 of the plates in turn.

    The logit of a plate is a_0 + a_1 x_1 + a_2 x_2 + a_12 x_1 x_2 + sigma z; sigma^-2 ~ Gamma(0.001, 0.001).
    """
    n, sigma = len(data) // 4, math.exp(q[4])
    precision = math.exp(-2.0 * q[4])
    logp = 0.001 * (-2.0 * q[4] - precision)
    g[4] = 0.001 * (-2.0 + 2.0 * precision)
    for j in range(4):
        logp -= 0.5 * (q[j] / 1000.0) ** 2
        g[j] = -q[j] / 1e6
    for i in range(n):
        x1, x2, z = data[2 * n + i], data[3 * n + i], q[5 + i]
        f = q[0] + q[1] * x1 + q[2] * x2 + q[3] * x1 * x2 + sigma * z
        share = 1.0 / (1.0 + math.exp(-f))
        logp += data[i] * f + data[n + i] * min(math.log1p(-share), 0.0) - 0.5 * z * z
        slope = data[i] - data[n + i] * share
        g[0] += slope
        g[1] += slope * x1
        g[2] += slope * x2
        g[3] += slope * x1 * x2
        g[4] += slope * sigma * z
        g[5 + i] = slope * sigma - z
    return logp


def model(density, d, data, start=None):
    start = np.zeros(d) if start is None else np.array(start)
    names = tuple(f"q{j}" for j in range(d))
    return Model(density, np.array(data, dtype=float), np.zeros(1, np.int64), names, start)


def _rows_of_triangle(found):
    """As many rows as there are columns of (X, y) that have its cross products, with weights that make n."""
    height = len(found["triangle"])
    both = np.zeros((height, height))
    both[np.triu_indices(height)] = np.concatenate(found["triangle"])
    weight = found["rows"] / height
    both /= math.sqrt(weight)
    return both[:, :-1], both[:, -1], np.full(height, weight)


def credit():
    found = POSTERIORS["german"]
    columns = [[int(k) for k in (c.split() if " " in c else c)] for c in found["columns"]]
    X = np.array(columns, dtype=float).T
    X = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(X))])
    return X, np.array([int(k) for k in found["bad"]])


def votes():
    table = POSTERIORS["nes"]["votes"].items()
    income, vote = np.array([(int(i), v) for i, both in table for v in (0, 1) for _ in range(both[v])]).T
    return np.column_stack([np.ones(len(income)), income]), vote


def radon():
    found = POSTERIORS["radon_groups"]
    homes = [home for county in found["homes"] for home in county.split()]
    county = np.repeat(np.arange(85), [len(one.split()) for one in found["homes"]])
    ground = np.array([home[-1] == "g" for home in homes], dtype=float)
    y = np.log([int(home[:-1]) / 10 for home in homes])
    return np.column_stack([np.ones(len(y)), np.array(found["uranium"])[county], ground]), y, county


def made(name):
    """The model of a posterior, and what turns its values into the reference's parameters."""
    found = POSTERIORS[name]
    if name in NORMAL:
        X, y, weights = _rows_of_triangle(found)
        scale, own = NORMAL[name]
        return regression("normal", X, y, weights=weights, prior=Prior(scale=scale, own_scale=own)), None
    if name == "nes":
        X, y = votes()
        return regression("bernoulli", X, 2.0 * y - 1, prior=Prior(scale=np.inf)), None
    if name == "german":
        X, y = credit()
        return regression("bernoulli", X, 2.0 * y - 1, prior=Prior(scale=1.0)), None
    if name == "poisson":
        counts = np.array(found["counts"], dtype=float)
        year = (np.arange(1, 41) - 20.5) / np.arange(1, 41).std(ddof=1)
        return regression(
            "poisson", np.vander(year, 4, increasing=True), counts, prior=Prior(scale=np.inf)
        ), None
    if name == "eight_schools":

        def effects(q):
            mu, tau = q[:, 8:9], np.exp(q[:, 9:])
            return np.column_stack([mu + tau * q[:, :8], mu, tau])

        return model(eight_schools, 10, found["y"] + found["errors"]), effects
    if name == "mixture":

        def scales(q):
            return np.column_stack([q[:, :2], np.exp(q[:, 2:4]), 1 / (1 + np.exp(-q[:, 4:]))])

        return model(two_normals, 5, found["y"], [-2.0, 2.0, 0.0, 0.0, 0.0]), scales
    plates = found["n"] + found["N"] + found["x1"] + found["x2"]
    return model(seeds, 26, plates), lambda q: np.column_stack([q[:, :4], np.exp(q[:, 4])])
