"""
Watch a fit converge
====================

Estimators keep the objective of each step in `history_`. `plot_history` draws several fits in one
picture.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

rng = np.random.default_rng(0)
X = rng.standard_normal((20_000, 40)) * 10.0 ** rng.uniform(-1, 1, 40)
y = X @ rng.standard_normal(40) / 10 + rng.logistic(size=20_000) > 0
solvers = "auto", "newton-cholesky", "lbfgs"
models = [sd.LogisticRegression(solver=solver, tol=1e-9).fit(X, y) for solver in solvers]

# %%
# Columns of different scales cost L-BFGS some steps.
sd.plot_history(*models, x="round", excess=True, labels=list(solvers))
plt.show()
