"""Topics of a text collection, end to end: how many, which, who writes about them, where a new text belongs.

The texts are the documentation of the packages that are installed, which every machine has; with the names of
word-count files (``docword.*.txt.gz``, and a vocabulary) the same lines serve any collection.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.feature_extraction.text import CountVectorizer

import stradask as sd

NEW = """Return the eigenvalues of a symmetric band matrix. The lower or upper part of the matrix is stored in
diagonal ordered form, and eigenvectors are computed as well unless eigenvalues only are asked for."""


def main(numbers=(20, 50, 100, 200), max_iter=200, most=None, out=Path()):
    """Run the story.

    Parameters
    ----------
    numbers : sequence of int
        Numbers of topics to try.
    max_iter : int
        Sweeps of each fit.
    most : int or None
        Documents to take.
    out : Path
        Folder of the picture and the model.
    """
    corpus = sd.datasets.load_docstrings()
    X, vocabulary = corpus
    X, names = X[:most], list(corpus.names)[:most]
    occurring = np.unique(X.indices)  # a part of the texts does not hold every word
    X, vocabulary = X[:, occurring], vocabulary[occurring]
    print(f"{X.shape[0]:,} texts, {X.sum():,} words of {X.shape[1]:,}")

    # How many topics? Every tenth text is held out, and half of its words predict the other half.
    test = np.arange(X.shape[0]) % 10 == 0
    perplexities = {}
    for n in numbers:
        lda = sd.LatentDirichletAllocation(n, max_iter=max_iter, n_jobs=-1, random_state=0)
        perplexities[n] = lda.fit(X[~test]).perplexity(X[test])
        print(f"{n:>5} topics: perplexity {perplexities[n]:,.0f}")
    best = min(perplexities, key=perplexities.__getitem__)

    # The model, of all texts. Relevance ranks words by what sets a topic apart.
    lda = sd.LatentDirichletAllocation(best, max_iter=max_iter, n_jobs=-1, random_state=0).fit(X)
    topics = lda.topics(vocabulary, n_words=7, rank_by="relevance")
    print(topics)

    # What is behind a topic: its texts, and how coherent its words are.
    coherence = lda.coherence(X)
    clearest = int(np.argmax(coherence))
    print(
        f"\nmost coherent is topic {clearest}: {' '.join(topics[clearest])}; texts that are nearly all of it:"
    )
    for i in lda.representative_documents(clearest, n_documents=3).indices:
        print(f"  {names[i]}")

    # Who writes about what.
    packages = np.array([name.split(".")[0] for name in names])
    by_package = lda.topics_by_group(packages)
    for package, shares in zip(by_package.groups, by_package.shares, strict=True):
        print(f"{package:>14}  {shares.max():4.0%}  {' '.join(topics[shares.argmax()])}")

    # Where a new text belongs: counted with the vocabulary of the model.
    counts = CountVectorizer(vocabulary=vocabulary).transform([NEW])
    shares = lda.transform(counts)[0]
    print("\na text about eigenvalues:")
    for k in np.argsort(-shares)[:2]:
        print(f"  {shares[k]:4.0%}  {' '.join(topics[k])}")

    lda.save(out / "topics.npz")  # no pickle; sd.load("topics.npz")
    draw(perplexities, by_package, topics).savefig(out / "topics-story.png", dpi=100)
    print(f"\nmodel in {out / 'topics.npz'}, picture in {out / 'topics-story.png'}")
    return lda, perplexities


def draw(perplexities, by_package, topics, most=12):
    """Perplexity by number of topics; next to it, packages by the topics that most divide them."""
    figure = Figure(figsize=(10.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.6))
    left.plot(list(perplexities), list(perplexities.values()), "o-")
    left.set(xlabel="topics", ylabel="perplexity of held-out texts", xscale="log")
    left.set_xticks(list(perplexities), [str(n) for n in perplexities])
    left.minorticks_off()
    left.spines[["top", "right"]].set_visible(False)
    shown = np.argsort(-by_package.shares.std(axis=0))[:most]
    right.imshow(by_package.shares[:, shown].T, aspect="auto", cmap="Blues")
    right.set_xticks(range(len(by_package.groups)), by_package.groups, rotation=60, ha="right")
    right.set_yticks(range(len(shown)), [" ".join(topics[k][:4]) for k in shown], fontsize=8)
    right.set_title("share of a topic in a package's documentation", fontsize=10)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder of picture and model")
    main(out=parser.parse_args().out)
