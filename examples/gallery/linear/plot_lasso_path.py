"""
The path of the Lasso
=====================

Coefficients of the diabetes data for a hundred penalties, computed in one call.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

import stradask as sd

X, y = load_diabetes(return_X_y=True, as_frame=True)
alphas, coefs, _ = sd.lasso_path(X.to_numpy(), y.to_numpy() - y.mean())

# %%
# The variables that join first are named.
sd.plot_path(alphas, coefs, names=list(X.columns))
plt.show()
