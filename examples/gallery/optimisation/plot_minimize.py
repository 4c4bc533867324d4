"""
Minimise your own objective over portions of data
=================================================

`minimize` sums a function and its gradient over portions, on threads or on a cluster, and runs
L-BFGS; with `l1` it runs OWL-QN.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

rng = np.random.default_rng(0)
X = rng.standard_normal((3000, 50))
truth = np.where(np.arange(50) < 5, 1.0, 0.0)
y = np.where(X @ truth + rng.logistic(size=3000) > 0, 1, -1)


def loss(portion, w):
    """Logistic loss and its gradient."""
    X, y = portion
    margin = y * (X @ w)
    return np.logaddexp(0, -margin).sum(), -X.T @ (y / (1 + np.exp(margin)))


portions = [(X[rows], y[rows]) for rows in np.array_split(np.arange(3000), 4)]
smooth = sd.minimize(loss, np.zeros(50), portions)
sparse = sd.minimize(loss, np.zeros(50), portions, l1=40.0)
print(smooth.message, "|", sparse.message)

# %%
plt.stem(smooth.x, linefmt="C7", markerfmt="C7o", basefmt="grey", label="no penalty")
plt.stem(sparse.x, linefmt="C0", markerfmt="C0o", basefmt="grey", label="l1 = 40")
plt.legend()
plt.xlabel("parameter")
plt.show()
