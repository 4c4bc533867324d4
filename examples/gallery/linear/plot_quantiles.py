"""
Quantiles instead of the mean
=============================

Where the spread grows with a variable, the mean says little. Quantile regressions show the whole
band.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, 500))
y = 1 + 0.5 * x + rng.standard_normal(500) * (0.2 + 0.2 * x)

# %%
# Nine in ten points lie between the outer lines.
plt.plot(x, y, ".", color="grey", markersize=3)
for quantile in (0.05, 0.5, 0.95):
    model = sd.QuantileRegressor(quantile, alpha=0.0).fit(x[:, None], y)
    plt.plot(x, model.predict(x[:, None]), label=f"quantile {quantile}")
    print(f"below quantile {quantile}: {(y < model.predict(x[:, None])).mean():.1%} of the points")
plt.legend()
plt.show()
