"""
Topics about subjects that you name
===================================

`KeyATM` takes a few keywords of the subjects that topics should be about, and learns the rest of their words.
Topics without keywords take what remains.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

corpus = sd.datasets.load_docstrings(packages=["numpy", "dask"])
subjects = {"files": ["file", "path"], "algebra": ["matrix", "vector"], "tasks": ["graph", "task"]}
key = sd.KeyATM(9, max_iter=200, random_state=0)
key.fit(corpus.X, seed_words=dict(enumerate(subjects.values())), vocabulary=corpus.vocabulary)
for (name, keywords), words in zip(subjects.items(), key.topics(n_words=8), strict=False):
    print(f"{name}, from {' and '.join(keywords)}: {' '.join(words)}")

# %%
# Shares of the subjects in both packages.
package = np.array([name.partition(".")[0] for name in corpus.names])
table = key.topics_by_group(package)
_, ax = plt.subplots(layout="constrained")
for place, group in enumerate(table.groups):
    ax.bar(np.arange(3) + 0.4 * place - 0.2, table.shares[place, :3], 0.4, label=group)
ax.set_xticks(range(3), list(subjects))
ax.set_ylabel("share of the words")
ax.legend()
plt.show()

# %%
# One page of HTML shows topics, words and documents, and opens without a server.
path = Path(tempfile.mkdtemp()) / "topics.html"
key.explore(X=corpus.X, path=path, groups=package)
print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
