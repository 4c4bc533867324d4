"""
A regression that withstands outliers
=====================================

The Huber loss grows linearly for large residuals, so a few wrong points have a bounded influence.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

rng = np.random.default_rng(0)
x = rng.uniform(0, 10, 100)
y = 2 + 0.8 * x + 0.5 * rng.standard_normal(100)
y[x > 9.6] -= 12.0
X = x[:, None]
robust, squares = sd.HuberRegressor().fit(X, y), sd.Ridge(alpha=1e-6).fit(X, y)
print(f"slope 0.8: Huber {robust.coef_[0]:.3f}, least squares {squares.coef_[0]:.3f}")

# %%
ends = np.array([[0.0], [10.0]])
plt.plot(x, y, ".", color="grey")
plt.plot(ends, robust.predict(ends), label="Huber")
plt.plot(ends, squares.predict(ends), "--", label="least squares")
plt.legend()
plt.show()
