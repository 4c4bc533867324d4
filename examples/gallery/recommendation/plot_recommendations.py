"""
How many factors?
=================

The error on held-out ratings against the number of factors. The ratings were drawn from eight.
"""

import matplotlib.pyplot as plt

import stradask as sd

ratings, _ = sd.datasets.make_ratings(1000, 400, 8, density=0.1, random_state=0)
train, test = sd.datasets.rating_split(ratings, random_state=0)
numbers = [1, 2, 4, 8, 16, 32]
errors = [-sd.MatrixFactorization(k, random_state=0).fit(train).score(test) for k in numbers]

# %%
plt.semilogx(numbers, errors, "o-", base=2)
plt.axhline(0.5, color="grey", linestyle=":", label="the noise")
plt.xlabel("n_components")
plt.ylabel("held-out RMSE")
plt.legend()
plt.show()
