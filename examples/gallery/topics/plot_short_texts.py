"""
Topics of short texts
=====================

A text of a few words says little of shares of topics. `GSDMM` gives each text one topic, and leaves topics
empty that no text wants.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

corpus = sd.datasets.load_docstrings(packages=["numpy", "dask", "numba"])
short = corpus.X.copy()
rng = np.random.default_rng(0)
short.data = rng.binomial(short.data, 0.2)  # a fifth of the words stands for a short text
short.eliminate_zeros()
model = sd.GSDMM(40, max_iter=60, random_state=0).fit(short, vocabulary=corpus.vocabulary)

# %%
# Topics by the number of their texts, with their most probable words.
order = np.argsort(-model.topic_document_counts_)[:12][::-1]
words = model.topics(n_words=4)
figure, ax = plt.subplots(layout="constrained")
ax.barh(range(len(order)), model.topic_document_counts_[order], color="#4477aa")
ax.set_yticks(range(len(order)), [" ".join(words[k]) for k in order])
ax.set_xlabel("texts")
plt.show()

# %%
# The topic of a new text, in closed form.
new, _ = sd.text_counts(["sort an array along an axis"], vocabulary=corpus.vocabulary)
" ".join(words[model.predict(new)[0]])
