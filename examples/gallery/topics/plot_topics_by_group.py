"""
Topics of groups of documents
=============================

Which package writes about what? `topics_by_group` averages the topic shares of each group's words.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

corpus = sd.datasets.load_docstrings(packages=["numpy", "dask", "numba"])
lda = sd.LatentDirichletAllocation(8, max_iter=200, n_draws=40, random_state=0).fit(corpus.X)
packages = np.array([name.split(".")[0] for name in corpus.names])
table = lda.topics_by_group(packages)

# %%
# Rows are topics, named by their most probable words.
topics = lda.topics(corpus.vocabulary, n_words=3)
figure, ax = plt.subplots(layout="constrained")
image = ax.imshow(100 * table.shares.T, cmap="Blues", aspect="auto")
ax.set_xticks(range(len(table.groups)), table.groups)
ax.set_yticks(range(8), [" ".join(words) for words in topics])
figure.colorbar(image, label="% of the package's words")
plt.show()

# %%
# The model does not know for sure which word is of which topic: 90 % posterior intervals, from the draws.
sure = lda.topics_by_group(packages, level=0.9)
_, ax = plt.subplots(layout="constrained")
sure.plot(ax, topics=[0, 1, 2], names=[" ".join(words) for words in topics])
plt.show()
