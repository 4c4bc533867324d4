"""Perplexity of the slice after the last one, by drift, and words of a topic over a hundred slices.

    python -m stradask.benchmarks.experiments.topics.topics_over_time docword.rfc.txt.gz vocab.rfc.txt \
        --picture docs/topics-over-time.png

The documents must be in the order of time.
"""

import argparse
import time

import numpy as np
from scipy import sparse

import stradask as sd

_DRIFTS = (0.02, 0.1, 0.2, None)
_FOLLOWED = ("bbn", "imp", "nic", "mail", "domain", "dns")


def cut(X, n_slices, n_documents, n_words, part, seed=0):
    """So many documents a slice, part of their tokens, and the most frequent words; and the slices."""
    X = sparse.csr_array(X).copy()
    X.data = np.random.default_rng(seed).binomial(X.data, part).astype(X.data.dtype)
    rows = np.linspace(0, X.shape[0] - 1, (n_slices + 1) * n_documents).astype(int)
    X, slices = X[rows], np.repeat(np.arange(n_slices + 1), n_documents)
    words = np.sort(np.argsort(-np.asarray(X[slices < n_slices].sum(axis=0)).ravel())[:n_words])
    X = sparse.csr_array(X[:, words])
    X.eliminate_zeros()
    held = np.asarray(X.sum(axis=1)).ravel() > 1
    return X[held], slices[held], words


def main(arguments=None):
    """Print the table, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("docword")
    parser.add_argument("vocab")
    parser.add_argument("--slices", type=int, default=99)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--part", type=float, default=0.08)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--max-iter", type=int, default=100)
    parser.add_argument("--picture")
    args = parser.parse_args(arguments)
    with open(args.vocab, encoding="utf-8") as file:
        names = np.array(file.read().split())
    X = sd.datasets.read_uci_bow(args.docword)
    X, slices, words = cut(X, args.slices, args.documents, args.words, args.part)
    now = slices < args.slices
    lda = sd.LatentDirichletAllocation(args.topics, random_state=0).fit(X[now])
    print(f"{X[now].sum():,} tokens; LDA {lda.perplexity(X[~now]):.0f}")
    for drift in _DRIFTS:
        begun = time.process_time()
        model = sd.DynamicTopicModel(args.topics, drift=drift, max_iter=args.max_iter, random_state=0)
        model.fit(X[now], slices=slices[now])
        seconds = time.process_time() - begun
        print(f"drift {model.drift_:.3f}: {model.perplexity(X[~now]):.0f} in {seconds:.1f} CPU s")
    if args.picture:
        draw(X, slices, names[words], args)


def draw(X, slices, names, args):
    """Draw words of the topic that has most of the first one."""
    from matplotlib.figure import Figure

    model = sd.DynamicTopicModel(args.topics, max_iter=args.max_iter, random_state=0)
    model.fit(X, slices=slices, vocabulary=names)
    followed = [word for word in _FOLLOWED if word in set(names)] or names[:6].tolist()
    first = int(np.flatnonzero(names == followed[0])[0])
    topic = int(model.at(model.slices_[0]).topic_word_[:, first].argmax())
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = model.over_time(topic, followed).plot(figure.subplots())
    axes.set_xlabel("slice")
    figure.savefig(args.picture, dpi=100)


if __name__ == "__main__":
    main()
