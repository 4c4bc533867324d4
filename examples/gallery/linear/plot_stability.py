"""
Columns that are chosen again and again
=======================================

Stability selection fits the Lasso to many halves of the rows. Columns that are chosen in most of
them are kept, with a bound on the expected number of false ones.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

rng = np.random.default_rng(0)
X = rng.standard_normal((150, 100))
y = X[:, :5] @ [2.0, -1.5, 1.0, -1.0, 0.8] + rng.standard_normal(150)
selection = sd.StabilitySelection(sd.Lasso(), n_selected=12, threshold=0.75, random_state=0).fit(X, y)
print("chosen:", np.flatnonzero(selection.support_), "bounds on false ones:", selection.error_bounds_)

# %%
# The first five columns are the true ones.
colours = np.where(np.arange(100) < 5, "C0", "C7")
plt.bar(np.arange(100), selection.frequencies_, color=colours)
plt.axhline(0.75, color="black", linestyle=":")
plt.xlabel("column")
plt.ylabel("share of the halves")
plt.show()
