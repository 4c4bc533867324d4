"""
Groups of columns enter together
================================

The group lasso keeps or drops whole groups, for instance the dummy columns of a category or the
powers of a variable.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

rng = np.random.default_rng(0)
groups = np.repeat(np.arange(30), 4)
X = rng.standard_normal((200, 120))
truth = np.where(groups < 3, rng.standard_normal(120), 0.0)
y = X @ truth + 2 * rng.standard_normal(200)
grouped = sd.GroupLasso(groups, alpha=0.2).fit(X, y)
single = sd.Lasso(alpha=0.2).fit(X, y)

# %%
# The Lasso scatters single columns over many groups.
figure, axes = plt.subplots(3, 1, sharex=True, sharey=True, layout="constrained")
for ax, coef, name in zip(
    axes, (truth, grouped.coef_, single.coef_), ("truth", "GroupLasso", "Lasso"), strict=True
):
    ax.stem(coef, markerfmt=" ", basefmt="grey")
    ax.set_title(f"{name}: {len(np.unique(groups[coef != 0]))} groups", loc="left")
    for edge in range(0, 121, 4):
        ax.axvline(edge - 0.5, color="grey", linewidth=0.2)
axes[-1].set_xlabel("column")
plt.show()
