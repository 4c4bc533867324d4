"""
Coefficients with intervals
===========================

`GLM` fits by maximum likelihood and reports standard errors, here of a Poisson regression with an
exposure.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import stradask as sd

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.standard_normal((400, 4)), columns=["age", "dose", "weight", "noise"])
years = rng.uniform(0.5, 3.0, 400)
y = rng.poisson(years * np.exp(0.3 + X @ [0.4, -0.3, 0.2, 0.0]))
model = sd.GLM("poisson").fit(X, y, exposure=years)
print(model.summary())

# %%
model.plot()
plt.show()
