"""Topics of short texts: a mixture with one topic for each document (GSDMM)."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Matrix, Vector
from ...errors import DataError
from ..inputs.indices import narrow_csr
from ..inputs.matrices import check_counts
from .corpus.shard_input import is_sharded
from .inference import without_unseen
from .short_texts import NOTHING, ShortTextModel


class GSDMM(ShortTextModel):
    r"""Topic model of short texts: one topic a text, by collapsed Gibbs sampling.

    A Dirichlet multinomial mixture. A text of a few words says little of shares of topics; here all its
    words are of one::

        pi ~ Dirichlet(alpha),  phi_k ~ Dirichlet(beta)
        z_d ~ pi,  w_di ~ phi_(z_d)

    A sweep draws each document's topic from

    .. math:: p(z_d = k \mid \text{rest}) \propto (m_k + \alpha_k)
              \frac{\prod_w \prod_{j=0}^{n_{dw} - 1} (C_{wk} + \beta_w + j)}
                   {\prod_{i=0}^{L_d - 1} (C_k + \sum_w \beta_w + i)}

    with m_k the documents and C_wk the tokens of the topic, without this document. Topics that no
    document wants become empty: with `n_components` a good deal larger than the number of topics there are,
    the rest ends without documents.

    Threads and workers: from 100,000 tokens on documents are divided into groups by their sizes alone. A
    group sees its own changes at once, and those of the others after the sweep; the first sweep only draws
    topics at random. The model is the same *bitwise* for any `n_jobs`, from files and on a cluster, with the
    same groups. With one group, as in smaller corpora and with ``exact=True``, every sweep is an exact Gibbs
    sweep.

    Memory: 4 bytes for each word of `X` and topic, as much again for each thread of several groups, and 2 a
    document. A sweep takes time by tokens times topics.

    Parameters
    ----------
    n_components : int, default=40
        Number of topics at most.
    doc_topic_prior : float or array of shape (n_components,), default=None
        alpha; None is 0.1.
    topic_word_prior : float or array of shape (n_features,), default=None
        beta; None is 0.1. Larger values make fewer and broader topics.
    max_iter : int, default=100
        Sweeps over all documents.
    exact : bool, default=False
        Keep all documents in one group, on one thread.
    n_groups : int, default=None
        Groups of documents; None takes 1 to 64, by the sizes of `X` alone. More groups than threads or
        workers gain nothing, and make another model.
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
    labels_ : ndarray of int, shape (n_samples,)
        The topic of each document, as last drawn; -1 of a document without words.
    topic_document_counts_ : ndarray of int, shape (n_components,)
        Documents of each topic, without those that have no words.
    components_, topic_word_, word_topic_counts_, doc_topic_counts_
        As in `LatentDirichletAllocation`; all tokens of a document are of its topic.
    doc_topic_ : ndarray of shape (n_samples, n_components)
        1 for the topic of `labels_`, else 0, to rounding; `fit_transform` gives probabilities.
    doc_topic_prior_, topic_word_prior_ : ndarrays of shapes (n_components,), (n_features,)
    log_likelihood_ : ndarray
        Trace of log p(w, z) per token, one value every 10 sweeps and one after the last.
    history_, worker_history_, n_iter_, n_features_in_, feature_names_in_, vocabulary_
        As in `LatentDirichletAllocation`.

    Raises
    ------
    DataError
        If `X` does not hold counts, or a prior has the wrong shape.

    See Also
    --------
    LatentDirichletAllocation : Documents of several topics.
    BitermTopicModel : Short texts of several topics.

    References
    ----------
    Yin, Wang, "A Dirichlet multinomial mixture model-based approach for short text clustering", KDD 2014;
    Nigam, McCallum, Thrun, Mitchell, "Text classification from labeled and unlabeled documents using EM",
    Machine Learning 2000 (the model).

    Examples
    --------
    >>> import stradask as sd
    >>> texts = ["cat and dog", "a dog, a cat", "sun on the sea", "sea and sun"] * 10
    >>> X, words = sd.text_counts(texts, stop_words="english")
    >>> model = sd.GSDMM(5, random_state=0).fit(X, vocabulary=words)
    >>> labels = model.labels_[:4]
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    >>> model.transform(X[:1]).shape
    (1, 5)
    """

    _label, _units = "GSDMM", "topic_document_counts_"

    def _program(self, corpus, alpha, beta, seed, X):
        from .samplers.mixture import MixtureProgram

        return MixtureProgram(corpus, alpha, beta, seed)

    def fit_transform(self, X: Matrix, y: Vector | None = None, **fit_params: Any) -> Array:
        """Fit, and return the probabilities of each document's topics given the topics of all others.

        Parameters
        ----------
        X, y, **fit_params
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows sum to 1. Of files and Dask's data the result is that of `transform`.
        """
        self.fit(X, y, **fit_params)
        if is_sharded(X):
            return self.transform(X)
        X, held = check_counts(self, X, reset=False), self.labels_ >= 0
        shares = np.empty((X.shape[0], len(self.doc_topic_prior_)))
        shares[held], shares[~held] = self._shares(X[held], self.labels_[held]), self._shares(X[~held])
        return shares

    def _take(self, documents, rows, X):
        labels = np.concatenate(documents).astype(np.int64)
        self.labels_ = labels if rows is None else labels[np.argsort(np.concatenate(rows))]
        n_topics = len(self.doc_topic_prior_)
        self.topic_document_counts_ = np.bincount(labels[labels >= 0], minlength=n_topics)
        self.doc_topic_counts_ = None
        if X is not None:
            lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel().astype(np.int32)
            held = np.flatnonzero(lengths)
            indptr = np.concatenate([[0], np.cumsum(lengths > 0)])
            self.doc_topic_counts_ = narrow_csr(lengths[held], self.labels_[held], indptr, n_topics)

    # Using --------------------------------------------------------------------------------------

    def _of_documents(self, X, own=None):
        """Probabilities of topics of documents, and log p(w)."""
        from .samplers.mixture import documents_as_units

        parts = list(self._posterior(documents_as_units(X), own))
        return parts[0][1:] if parts else (np.empty((0, len(self.doc_topic_prior_))), np.empty(0))

    def _shares(self, X, own=None):
        return self._of_documents(X, own)[0]

    def log_probability(self, X: Matrix) -> Array:  # type: ignore[override]
        """Compute log p(w) of documents, each by itself, given the fitted ones; exact.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts. Words that were not in the fit have the probability that `topic_word_prior` gives them.

        Returns
        -------
        ndarray of shape (n_samples,)
            Natural logarithms, of the words in an order; 0 for a document without words.
        """
        check_is_fitted(self, "word_topic_counts_")
        return self._of_documents(check_counts(self, X, reset=False))[1]

    @property
    def _doc_topic_weights(self):
        """All tokens of a document are of its topic; one without tokens has them all alike."""
        return self.doc_topic_counts_, np.full(len(self.doc_topic_prior_), NOTHING)

    def _token_topics(self, X, n_sweeps, whole):
        """All words of a document have its probabilities."""
        known = ~self.unseen[X.indices]
        of_documents = self._shares(without_unseen(self, X))
        best, rows = of_documents.argmax(axis=1), np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        topics = np.where(known, best[rows], -1)
        shares = np.where(known, of_documents[rows, best[rows]], np.nan)
        return topics, shares, np.where(known[:, None], of_documents[rows], np.nan) if whole else None

    def _check_state(self):
        super()._check_state()
        n_topics, labels = len(self.doc_topic_prior_), self.labels_
        fits = labels.ndim == 1 and labels.dtype.kind in "iu"
        fits = fits and (self.doc_topic_counts_ is None or len(labels) == self.doc_topic_counts_.shape[0])
        fits = fits and -1 <= labels.min(initial=0) <= labels.max(initial=0) < n_topics
        if not (
            fits
            and (np.bincount(labels[labels >= 0], minlength=n_topics) == self.topic_document_counts_).all()
        ):
            raise DataError("labels_ and topic_document_counts_ cannot be those of one model")
