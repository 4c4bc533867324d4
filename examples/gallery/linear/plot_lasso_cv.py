"""
Choose the penalty by cross-validation
======================================

`LassoCV` fits a path on each fold. The solid line is the best mean error, the dashed one the
largest penalty within one standard error of it: fewer columns, nearly the same prediction.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

X, y, truth = sd.datasets.make_sparse_regression(
    300, 2000, n_informative=10, density=0.05, snr=4.0, random_state=0
)
model = sd.LassoCV(eps=0.02).fit(X, y)
sparing = sd.LassoCV(eps=0.02, rule="1se").fit(X, y)
for name, fitted in (("best mean", model), ("one standard error", sparing)):
    columns = np.flatnonzero(fitted.coef_)
    true = np.isin(columns, np.flatnonzero(truth)).sum()
    print(f"{name:<19} alpha {fitted.alpha_:.4f}: {len(columns)} columns, {true} of the 10 true ones")

# %%
model.plot(n_named=0)
plt.show()
