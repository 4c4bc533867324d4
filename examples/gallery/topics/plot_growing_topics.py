"""
New documents, new topics
=========================

`partial_fit` goes on with documents that arrive later. With `grow=` a model also gets new topics for
what it has not met; the topics that it has keep their numbers.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

corpus = sd.datasets.load_docstrings(packages=["numpy", "dask"])
package = np.array([name.partition(".")[0] for name in corpus.names])
numpy, dask = corpus.X[package == "numpy"], corpus.X[package == "dask"]
lda = sd.LatentDirichletAllocation(6, max_iter=150, random_state=0)
lda.fit(numpy[::2], vocabulary=corpus.vocabulary)
before = lda.topics(n_words=3)

# %%
# More documents of the same kind, then others, with four more topics to begin with.
lda.partial_fit(numpy[1::2])
lda.partial_fit(dask, grow=4)
after = lda.topics(n_words=3)

# %%
# Shares of the topics in both packages. The new ones, 6 to 9, belong to dask.
shares = [lda.transform(own).mean(axis=0) for own in (numpy, dask)]
_, ax = plt.subplots(layout="constrained")
place = np.arange(len(after))
ax.barh(place - 0.2, shares[0], 0.4, label="numpy")
ax.barh(place + 0.2, shares[1], 0.4, label="dask")
ax.set_yticks(place, [f"{k} {' '.join(words)}" for k, words in enumerate(after)])
ax.set_xlabel("mean share")
ax.legend()
plt.show()

# %%
# The old topics before and after.
for k, words in enumerate(before):
    print(k, " ".join(words), "->", " ".join(after[k]))
