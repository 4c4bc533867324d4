"""Topics of short texts: pairs of words that occur together have one topic each (biterm topic model)."""

import itertools
from typing import Any

import numpy as np
from scipy import sparse

from ...errors import DataError
from .inference import without_unseen
from .short_texts import NOTHING, ShortTextModel

_AT_ONCE = 2**16  # pairs whose probabilities are in memory together
_PAIRS_AT_ONCE = 2**22  # of new documents: some 100 MB
_NO_PAIRS = "X has no document of two words or more, and BitermTopicModel needs pairs: fit GSDMM"


class BitermTopicModel(ShortTextModel):
    r"""Topic model of short texts: pairs of words that occur together have one topic each.

    A text of a few words says little of its shares of topics, and the whole corpus says much of which words
    occur together. A biterm is an unordered pair of tokens of one text, of L tokens it has L (L - 1) / 2. All
    biterms of the corpus share one distribution of topics::

        theta ~ Dirichlet(alpha),  phi_k ~ Dirichlet(beta)
        z_b ~ theta,  both words of b ~ phi_(z_b)

    A sweep draws each biterm's topic from

    .. math:: p(z_b = k \mid \text{rest}) \propto (m_k + \alpha_k)
              \frac{(C_{vk} + \beta_v) (C_{wk} + \beta_w + [v = w])}
                   {(C_k + \sum_u \beta_u) (C_k + \sum_u \beta_u + 1)},   b = (v, w)

    with m_k the biterms and C_wk their tokens of the topic, without this biterm. The topics of a text follow
    from those of its biterms:

    .. math:: p(z = k \mid d) = \frac{1}{|B_d|} \sum_{b \in B_d} p(z_b = k \mid b)

    Unlike `GSDMM`, a text may have several topics. Texts of one word tell the fit nothing, and have
    p(z | w) afterwards. There is no window: of long texts, whose biterms grow with the square of their
    length, take `LatentDirichletAllocation`.

    Threads and workers: as in `GSDMM`, groups of documents see each other's changes after a sweep, and the
    model is the same *bitwise* for any `n_jobs`, from files and on a cluster, with the same groups. With one
    group, as below 100,000 tokens and with ``exact=True``, every sweep is an exact Gibbs sweep.

    Memory: 16 bytes a biterm, 4 for each word of `X` and topic, and as much again for each thread of several
    groups. A sweep takes time by biterms times topics.

    Parameters
    ----------
    n_components : int, default=40
        Number of topics. Most keep biterms, unlike those of `GSDMM`.
    doc_topic_prior : float or array of shape (n_components,), default=None
        alpha, of the biterms of the corpus; None is 0.1.
    topic_word_prior : float or array of shape (n_features,), default=None
        beta; None is 0.1.
    max_iter : int, default=100
        Sweeps over all biterms.
    exact : bool, default=False
    n_groups : int, default=None
        These as in `GSDMM`.
    engine : str or distributed.Client, default="local"
    n_jobs : int, default=None
    checkpoint : str or path, default=None
        These as in `LatentDirichletAllocation`.
    random_state : int, RandomState or None, default=None
        The same int gives the same model.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    theta_ : ndarray of shape (n_components,)
        Shares of the topics among the biterms: (m_k + alpha_k) / sum.
    topic_biterm_counts_ : ndarray of int, shape (n_components,)
        Biterms of each topic, as last drawn.
    word_topic_counts_ : CSR array of shape (n_features, n_components)
        Tokens of biterms: a token of a text of L words counts L - 1 times.
    doc_topic_counts_ : CSR array of shape (n_samples, n_components), or None
        Tokens of documents by the shares of their biterms, as last drawn (of a text of one word p(z | w)).
        None after a fit to files or Dask's data.
    doc_topic_ : ndarray of shape (n_samples, n_components)
        The same as shares; `transform` gives probabilities. A document without words has `theta_`.
    components_, topic_word_
        As in `LatentDirichletAllocation`.
    doc_topic_prior_, topic_word_prior_ : ndarrays of shapes (n_components,), (n_features,)
    log_likelihood_ : ndarray
        Trace of log p(w, z) of the biterms per token of theirs, one value every 10 sweeps and one after the
        last.
    history_, worker_history_, n_iter_, n_features_in_, feature_names_in_, vocabulary_
        As in `LatentDirichletAllocation`.

    Raises
    ------
    DataError
        If `X` does not hold counts, no document has two words, or a prior has the wrong shape.

    See Also
    --------
    GSDMM : One topic a text.

    References
    ----------
    Yan, Guo, Lan, Cheng, "A biterm topic model for short texts", WWW 2013.

    Examples
    --------
    >>> import stradask as sd
    >>> texts = ["cat and dog", "a dog, a cat", "sun on the sea", "sea and sun"] * 10
    >>> X, words = sd.text_counts(texts, stop_words="english")
    >>> model = sd.BitermTopicModel(2, random_state=0).fit(X, vocabulary=words)
    >>> topics = model.predict(X[:4])
    >>> bool(topics[0] == topics[1] != topics[2] == topics[3])
    True
    """

    _label, _units = "biterms", "topic_biterm_counts_"

    def _program(self, corpus, alpha, beta, seed, X):
        from .samplers.mixture import BitermProgram, check_number_of_pairs, check_pairs

        if not any(corpus.n_pairs):
            raise DataError(_NO_PAIRS)
        if X is not None:
            check_pairs(X)
        for n_pairs in corpus.n_pairs:
            check_number_of_pairs(n_pairs, corpus.longest)
        return BitermProgram(corpus, alpha, beta, seed, reads=X is not None)

    def _take(self, documents, rows, X):
        weights, prior = self.topic_biterm_counts_, self.doc_topic_prior_
        self.theta_ = (weights + prior) / (weights.sum() + prior.sum())
        self.doc_topic_counts_ = None
        if documents is None:
            return
        pairs = sparse.csr_array(sparse.vstack(documents, format="csr"))
        if rows is not None:
            pairs = pairs[np.argsort(np.concatenate(rows))]
        lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
        each = lengths / np.maximum(np.asarray(pairs.sum(axis=1)).ravel(), 1)
        tokens = pairs.astype(np.float32)
        tokens.data *= np.repeat(each, np.diff(pairs.indptr)).astype(np.float32)
        if len(single := np.flatnonzero(lengths == 1)):
            own = sparse.csr_array(self._shares(X[single]).astype(np.float32))
            place = (np.ones(len(single), np.float32), (single, np.arange(len(single))))
            tokens = tokens + sparse.csr_array(place, shape=(len(lengths), len(single))) @ own
        self.doc_topic_counts_ = sparse.csr_array(tokens)

    # Using --------------------------------------------------------------------------------------

    def _shares(self, X):
        from .samplers.mixture import numbers_of_pairs

        chunks = np.cumsum(numbers_of_pairs(X)) // _PAIRS_AT_ONCE
        edges = [0, *(np.flatnonzero(np.diff(chunks)) + 1), X.shape[0]]
        return np.concatenate([self._shares_at_once(X[a:b]) for a, b in itertools.pairwise(edges)])

    def _shares_at_once(self, X):
        from .samplers.mixture import pairs_of_words

        shares = np.zeros((X.shape[0], len(self.doc_topic_prior_)))
        units = pairs_of_words(X, whole=True)
        documents = np.repeat(np.arange(X.shape[0]), units.of_documents)
        for part, probabilities, _ in self._posterior(units, at_once=_AT_ONCE):
            own = documents[part]
            firsts = np.flatnonzero(np.diff(own, prepend=-1))
            shares[own[firsts]] += np.add.reduceat(probabilities, firsts, axis=0)
        return shares / units.of_documents[:, None]

    @property
    def log_probability(self) -> Any:
        """Not there: pairs of words have a probability in this model, documents have none; see `score`."""
        raise AttributeError(
            "BitermTopicModel gives pairs of words a probability, and whole documents none: take score(X)"
        )

    @property
    def _doc_topic_weights(self):
        """Tokens by topic; a document without tokens has the shares of the corpus."""
        return self.doc_topic_counts_, NOTHING * self.theta_

    def _token_topics(self, X, n_sweeps, whole):
        """Words of a document by its shares, and by what the topics say of the word."""
        seen, known = ~self.unseen[X.indices], without_unseen(self, X)
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        words, places = np.unique(X.indices, return_inverse=True)
        own = self._shares(known)[rows] * self._word_probabilities(words)[places]
        own /= own.sum(axis=1, keepdims=True)
        best = own.argmax(axis=1)
        topics = np.where(seen, best, -1)
        shares = np.where(seen, own[np.arange(len(best)), best], np.nan)
        return topics, shares, np.where(seen[:, None], own, np.nan) if whole else None

    def _check_state(self):
        super()._check_state()
        theta: Any = self.theta_
        fits = theta.shape == self.doc_topic_prior_.shape and theta.dtype == np.float64
        if not (fits and (theta > 0).all() and abs(theta.sum() - 1) < 1e-6):
            raise DataError("theta_ cannot be that of the topics of a model")
