"""
A map of items
==============

Items whose factors are alike are neighbours. The model saw ratings only; the colours are genres
that it does not know.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse

import stradask as sd

rng = np.random.default_rng(0)
genre = np.repeat([0, 1, 2], 60)
taste = rng.standard_normal((1000, 3))
scores = 3.5 + taste @ (np.eye(3)[:, genre] + 0.3 * rng.standard_normal((3, 180)))
seen = rng.random(scores.shape) < 0.1
ratings = sparse.csr_array(np.where(seen, scores + 0.4 * rng.standard_normal(scores.shape), 0.0))
titles = [f"{('western', 'opera', 'thriller')[g]} {i % 60}" for i, g in enumerate(genre)]
model = sd.MatrixFactorization(6, random_state=0).fit(ratings)

# %%
figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
model.plot_items(titles, n_titles=24, ax=ax)
plt.show()
