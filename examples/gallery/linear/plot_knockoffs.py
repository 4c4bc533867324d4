"""
False discoveries under control
===============================

Knockoffs are copies of the columns that cannot matter. A column is chosen where it enters the model
well before its copy; the expected share of false choices stays below `fdr`.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

rng = np.random.default_rng(0)
X = rng.standard_normal((500, 100))
X[:, 1:] += 0.5 * X[:, :-1]
truth = np.zeros(100)
truth[::7] = rng.choice([-1.0, 1.0], 15)
y = X @ truth + 2 * rng.standard_normal(500)
knockoffs = sd.KnockoffSelection(fdr=0.2, random_state=0).fit(X, y)
chosen = knockoffs.support_
print(f"{chosen.sum()} columns, {(truth[chosen] == 0).sum()} of them false; 15 are true")

# %%
plt.bar(np.arange(100), knockoffs.statistics_, color=np.where(truth != 0, "C0", "C7"))
plt.axhline(knockoffs.threshold_, color="black", linestyle=":")
plt.xlabel("column")
plt.ylabel("statistic of the column against its copy")
plt.show()
