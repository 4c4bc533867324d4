"""
Survival curves of a Cox regression
===================================

Times to an event, some of them censored. The unpenalised model has standard errors; its curves show
what a covariate changes.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

rng = np.random.default_rng(0)
X = np.column_stack([rng.integers(0, 2, 400), rng.standard_normal(400)])
event_at = rng.exponential(np.exp(-(1.0 * X[:, 0] + 0.5 * X[:, 1])) * 10)
censored_at = rng.uniform(0, 20, 400)
y = np.column_stack([np.minimum(event_at, censored_at), event_at <= censored_at])
model = sd.CoxRegression(alpha=0.0).fit(X, y)
print(model.summary())

# %%
# Treatment 0 and 1 for an average patient.
model.plot_survival([[0, 0], [1, 0]], labels=["untreated", "treated"])
plt.show()
