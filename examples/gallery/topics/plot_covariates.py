"""
Topics and covariates
=====================

Which topics does a package write about more than another, and do long texts have other topics than short
ones? `DMRTopicModel` fits topics and the effects of covariates on their shares together.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

corpus = sd.datasets.load_docstrings(packages=["numpy", "dask"])
package = np.array([name.partition(".")[0] for name in corpus.names])
words = np.asarray(corpus.X.sum(axis=1)).ravel()
covariates = {"package": package, "log10_words": np.log10(1 + words)}
dmr = sd.DMRTopicModel(8, max_iter=800, random_state=0)
dmr.fit(corpus.X, covariates=covariates, vocabulary=corpus.vocabulary)
names = [" ".join(top) for top in dmr.topics(n_words=3)]

# %%
# Change of each topic's share from dask (the reference) to numpy, with 90 % posterior intervals.
_, ax = plt.subplots(layout="constrained")
dmr.effects().plot("package=numpy", names=names, ax=ax)
plt.show()

# %%
# Shares expected in docstrings of numpy that have 3 to 1,000 words.
rows = {"package": ["numpy"] * 30, "log10_words": np.linspace(0.6, 3, 30)}
_, ax = plt.subplots(layout="constrained")
dmr.expected_shares(rows).plot(x=10 ** rows["log10_words"], names=names, topics=[0, 1, 2, 3], ax=ax)
ax.set(xscale="log", xlabel="words")
plt.show()
