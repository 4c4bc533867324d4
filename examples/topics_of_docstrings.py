"""Topics of the documentation on this machine, and which package writes about what."""

import numpy as np

import stradask as sd

corpus = sd.datasets.load_docstrings()
X, vocabulary = corpus
lda = sd.LatentDirichletAllocation(30, random_state=0, n_jobs=-1, verbose=1).fit(X)
topics = lda.topics(vocabulary, n_words=6)
print(topics)

packages = np.array([name.split(".")[0] for name in corpus.names])
for package in sorted(set(packages)):
    share = lda.doc_topic_[packages == package].mean(axis=0)
    print(f"{package:>12}  {share.max():4.0%}  {' '.join(topics[share.argmax()])}")
