"""
Your own density, in shards
==============================

The rows are cut into four shards that are sampled apart. The combined draws are compared with those
of all rows.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

rng = np.random.default_rng(0)
x = rng.gamma(3.0, 1 / 2.0, 2000)


def log_likelihood(q, x):
    """Of a gamma distribution; q: logarithms of shape and rate."""
    from math import lgamma

    shape, rate = np.exp(q)
    return len(x) * (shape * q[1] - lgamma(shape)) + (shape - 1) * np.log(x).sum() - rate * x.sum()


def log_prior(q):
    """Standard normal, three times as wide."""
    return -0.5 * (q @ q) / 9


options = {"names": ["log shape", "log rate"], "n_samples": 400, "n_chains": 2, "random_state": 0}
whole = sd.sample(log_likelihood, log_prior, x, [0.0, 0.0], **options)
shards = sd.sample(log_likelihood, log_prior, x, [0.0, 0.0], n_shards=4, **options)
print(shards.diagnostics)

# %%
for posterior, name in ((whole, "all rows"), (shards, "four shards, combined")):
    plt.plot(*np.exp(posterior.draws).T, ".", markersize=3, alpha=0.5, label=name)
plt.plot(3.0, 2.0, "k+", markersize=14)
plt.xlabel("shape")
plt.ylabel("rate")
plt.legend()
plt.show()
