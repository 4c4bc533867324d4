"""
Topics of a collection of texts
===============================

Fit latent Dirichlet allocation to the documentation of NumPy and Dask, and draw which topics are
alike.
"""

import matplotlib.pyplot as plt

import stradask as sd

X, vocabulary = sd.datasets.load_docstrings(packages=["numpy", "dask"])
lda = sd.LatentDirichletAllocation(n_components=9, max_iter=100, random_state=0).fit(X)
print(lda.topics(vocabulary, n_words=6))

# %%
# Topics that share words are near each other in the tree.
lda.plot_topics("dendrogram", vocabulary=vocabulary)
plt.show()
