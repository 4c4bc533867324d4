"""Two modes of known shares: how often draws that lack one are called trusted, and the errors of the shares.

Each posterior is a mixture of two densities of one family in d dimensions: normal, Student's t with 3 degrees
of freedom, or skewed (logarithms of Gamma(2) variables, independent and of unit variance). The first lies at
the start, the second some standard deviations of the wider one away in a random direction. The share of a
mode is the mean of its responsibility over the draws.

    python -m stradask.benchmarks.experiments.mcmc.several_modes
"""

import argparse
import itertools
import math
import time
import warnings

import numba as nb
import numpy as np

import stradask as sd
from stradask.errors import PosteriorWarning

FAMILIES = ("normal", "student", "skewed")
NORMAL, STUDENT, SKEWED = range(3)
FREEDOM = 3.0
DIMENSIONS, DISTANCES = (2, 5, 10), (6, 20, 60, 200)
WRONG = 0.05  # error of a share that is trusted
_MEAN, _SD = 1 - 0.5772156649015329, math.sqrt(math.pi**2 / 6 - 1)  # of the logarithm of a Gamma(2) variable
SHAPES = {  # shares and scales of the two
    "equal": ((0.5, 0.5), (1.0, 1.0)),
    "shares .1, .9": ((0.1, 0.9), (1.0, 1.0)),
    "shares .9, .1": ((0.9, 0.1), (1.0, 1.0)),
    "scales 1, 10": ((0.5, 0.5), (1.0, 10.0)),
    "scales 10, 1": ((0.5, 0.5), (10.0, 1.0)),
}


@nb.njit
def _component(q, g, kind, middle, scale):
    """Log density of one component, normalised, and its gradient."""
    d, total = len(q), 0.0
    for j in range(d):
        z = (q[j] - middle[j]) / scale
        if kind == SKEWED:
            u = _MEAN + _SD * z
            e = math.exp(u)
            total += 2.0 * u - e + math.log(_SD)
            g[j] = (2.0 - e) * _SD / scale
        else:
            total += z * z
            g[j] = -z / scale
    total_scale = d * math.log(scale)
    if kind == NORMAL:
        return -0.5 * total - 0.5 * d * math.log(2 * math.pi) - total_scale
    if kind == STUDENT:
        for j in range(d):
            g[j] *= (FREEDOM + d) / (FREEDOM + total)
        constant = math.lgamma(0.5 * (FREEDOM + d)) - math.lgamma(0.5 * FREEDOM)
        constant -= 0.5 * d * math.log(FREEDOM * math.pi)
        return constant - 0.5 * (FREEDOM + d) * math.log1p(total / FREEDOM) - total_scale
    return total - total_scale


@nb.njit
def log_mixture(q, data, g):
    """Log density of the mixture; rows of data are (kind, log share, scale, middle)."""
    d = len(q)
    first, second = np.empty(d), np.empty(d)
    one = data[0, 1] + _component(q, first, data[0, 0], data[0, 3:], data[0, 2])
    two = data[1, 1] + _component(q, second, data[1, 0], data[1, 3:], data[1, 2])
    largest = max(one, two)
    if largest == -np.inf:  # too far out for the exponential
        return largest
    total = largest + math.log(math.exp(one - largest) + math.exp(two - largest))
    parts = math.exp(one - total), math.exp(two - total)
    for j in range(d):
        if parts[0] > 0.0:  # else its gradient may be no number
            g[j] += parts[0] * first[j]
        if parts[1] > 0.0:
            g[j] += parts[1] * second[j]
    return total


def problem(family, d, distance, shape, seed):
    """Return the data of a mixture: (2, 3 + d)."""
    shares, scales = SHAPES[shape]
    way = np.random.default_rng(seed).standard_normal(d)
    middles = np.stack([np.zeros(d), distance * max(scales) * way / np.linalg.norm(way)])
    head = np.column_stack([np.full(2, FAMILIES.index(family)), np.log(shares), scales])
    return np.column_stack([head, middles])


@nb.njit
def _responsibilities(Q, data):
    out, g = np.empty(len(Q)), np.empty(Q.shape[1])
    for i in range(len(Q)):
        one = data[0, 1] + _component(Q[i], g, data[0, 0], data[0, 3:], data[0, 2])
        two = data[1, 1] + _component(Q[i], g, data[1, 0], data[1, 3:], data[1, 2])
        out[i] = 1 / (1 + math.exp(min(two - one, 700.0)))
    return out


def run(family, d, distance, shape, seed):
    """Sample a mixture; return the error of the first share, the level of the verdict, and seconds."""
    data = problem(family, d, distance, shape, seed)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        posterior = sd.sample(log_mixture, None, data, np.full(d, 0.1), random_state=seed, n_jobs=1)
    seconds = time.process_time() - began
    error = float(_responsibilities(posterior.draws, data).mean()) - SHAPES[shape][0][0]
    return error, posterior.diagnostics.level, seconds


def main():
    """Print a table with a row for each family and shape."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=1, help="runs of each problem")
    seeds = parser.parse_args().seeds
    run("student", 2, 6, "equal", 0)  # compiles
    print("| family, shares or scales | runs | trusted | wrong ones | both modes | largest error | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for family, shape in itertools.product(FAMILIES, SHAPES):
        cells = itertools.product(DIMENSIONS, DISTANCES, range(seeds))
        rows = [run(family, d, distance, shape, 1 + seed) for d, distance, seed in cells]
        errors, levels, seconds = map(np.array, zip(*rows, strict=True))
        wrong = (levels == 0) & (np.abs(errors) > WRONG)
        both = np.abs(errors) < min(SHAPES[shape][0]) - 1e-6  # neither share is 0
        largest = np.abs(errors[both & (levels == 0)]).max(initial=0.0)
        figures = len(rows), int((levels == 0).sum()), int(wrong.sum()), int(both.sum())
        row = " | ".join(map(str, figures))
        print(f"| {family}, {shape} | {row} | {largest:.3f} | {np.median(seconds):.2f} |", flush=True)


if __name__ == "__main__":
    main()
