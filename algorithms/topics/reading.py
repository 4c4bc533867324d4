"""Reading topics: their words, and how well those words go together."""

from numbers import Integral

import numpy as np

from ...errors import DataError


class Topics(list):
    """Topics as lists of words, most probable first; prints as a table.

    Attributes
    ----------
    shares : ndarray of shape (n_components,)
        Part of all tokens that each topic holds.
    probabilities : ndarray of shape (n_components, n_words)
        Probability of each listed word under its topic.
    """

    def __init__(self, words, shares, probabilities):
        super().__init__(words)
        self.shares = shares
        self.probabilities = probabilities

    def __str__(self):
        lines = (
            f"{k:>4}  {share:6.2%}  {' '.join(words) if share > 0 else '(no tokens)'}"
            for k, (share, words) in enumerate(zip(self.shares, self, strict=True))
        )
        return "\n".join(["topic  share  words", *lines])


def top_words(word_topic, beta, n_words):
    """Indices of each topic's most probable words and their ``C_wk + beta_w``, ties by index.

    One topic at a time, so that no more than a vector over the words is dense; fewer words than
    `n_words` are all listed.
    """
    if not isinstance(n_words, Integral) or n_words < 1:
        raise DataError(f"n_words={n_words!r} must be a whole number of at least 1")
    n_words = min(n_words, len(beta))
    by_topic = word_topic.tocsc()
    top = np.empty((by_topic.shape[1], n_words), np.int64)
    weights = np.empty(top.shape)
    for k in range(len(top)):
        entries = slice(by_topic.indptr[k], by_topic.indptr[k + 1])
        weight = beta.copy()
        weight[by_topic.indices[entries]] += by_topic.data[entries]
        least = np.partition(weight, -n_words)[-n_words]
        words = np.flatnonzero(weight >= least)
        top[k] = words[np.argsort(-weight[words], kind="stable")[:n_words]]
        weights[k] = weight[top[k]]
    return top, weights


def coherence(top, X, measure):
    """Mean coherence of each topic's words over all their pairs.

    With D(i) the number of documents of `X` that hold word i, D(i, j) those that hold both and
    p = D / n_documents::

        umass   log((D(i, j) + 1) / D(j)),  j before i in the topic
        npmi    log(p(i, j) / (p(i) p(j))) / -log p(i, j);  -1 where no document holds both,
                1 where every document does

    A UMass pair whose first word is in no document is left out.

    Parameters
    ----------
    top : int array of shape (n_components, n_words)
        Words of each topic, most probable first.
    X : CSR matrix of counts
    measure : {"npmi", "umass"}

    Returns
    -------
    ndarray of shape (n_components,)
    """
    words, place = np.unique(top, return_inverse=True)
    place = place.reshape(top.shape)
    present = X[:, words]
    present = (present > 0).astype(np.int64)
    together = np.asarray((present.T @ present).todense(), dtype=float)
    alone = together.diagonal()
    earlier, later = np.triu_indices(top.shape[1], k=1)
    j, i = place[:, earlier], place[:, later]
    both = together[i, j]
    with np.errstate(divide="ignore", invalid="ignore"):
        if measure == "umass":
            pairs = np.where(alone[j] > 0, np.log((both + 1) / alone[j]), np.nan)
            known = ~np.isnan(pairs)
            return np.where(known, pairs, 0).sum(axis=1) / known.sum(axis=1)
        n = X.shape[0]
        pmi = np.log(both * n / (alone[i] * alone[j]))
        pairs = pmi / -np.log(both / n)
    pairs = np.where(both == 0, -1.0, np.where(both == n, 1.0, pairs))
    return pairs.mean(axis=1)
