"""
A posterior and its diagnostics
===============================

Draws of a Bayesian logistic regression by NUTS, with a verdict in words and the marginals of the
coefficients.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

import stradask as sd

data = load_breast_cancer()
X = StandardScaler().fit_transform(data.data[:, :5])
posterior = sd.BayesianLogisticRegression(n_samples=500, random_state=0).fit(X, data.target).posterior_
print(posterior.diagnostics)

# %%
plt.violinplot(posterior.draws[:, :5], showmedians=True, orientation="horizontal")
plt.yticks(np.arange(1, 6), data.feature_names[:5])
plt.axvline(0, color="grey", linestyle=":")
plt.xlabel("coefficient")
plt.tight_layout()
plt.show()
