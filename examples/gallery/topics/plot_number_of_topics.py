"""
How many topics?
================

Held-out perplexity tells how well a model predicts words it has not seen. It falls until there are
as many topics as the text has, and rises slowly beyond.
"""

import matplotlib.pyplot as plt

import stradask as sd

X, true_topics, _ = sd.datasets.make_lda_corpus(1500, 400, 12, random_state=0)
train, test = X[:1200], X[1200:]
numbers = [3, 6, 9, 12, 18, 27, 40]
perplexities = [
    sd.LatentDirichletAllocation(k, max_iter=60, random_state=0).fit(train).perplexity(test) for k in numbers
]

# %%
# The corpus was drawn from 12 topics.
plt.plot(numbers, perplexities, "o-")
plt.axvline(12, color="grey", linestyle=":")
plt.xlabel("n_components")
plt.ylabel("held-out perplexity")
plt.show()
