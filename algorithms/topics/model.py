"""What a fitted topic model can do: infer, score, and be read."""

from numbers import Integral

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ...datasets.split import split_tokens
from ...errors import DataError
from ...scheduler.threads import effective_n_jobs, run_tasks
from .._base import Estimator
from .._validation import check_counts, check_vocabulary
from . import reading
from .evaluation import complete, document_chunks, padded_columns, padded_vector, words_at_hand

_FOLD_IN = 2  # purpose of a random stream; 1 is a sweep
_BURN_IN, _KEPT = 15, 25  # sweeps of transform


class TopicModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Base of the topic models; a fit sets these attributes, from which everything here follows.

    Attributes
    ----------
    word_topic_counts_ : CSR array of shape (n_features, n_components)
    doc_topic_counts_ : CSR array of shape (n_samples, n_components)
    doc_topic_prior_, topic_word_prior_ : ndarrays of shapes (n_components,), (n_features,)
    history_ : dict of arrays
    """

    # Using --------------------------------------------------------------------------------------

    def transform(self, X):
        """Infer topic shares of documents.

        Gibbs sampling with the topics fixed, 15 sweeps and then 25 that are averaged. The random stream
        follows from `random_state` and the document's own words, so a document gets the same answer
        whatever stands beside it; with ``random_state=None`` too.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts. A document without words gets the prior's mean.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows sum to 1.
        """
        check_is_fitted(self, "word_topic_counts_")
        self._validate_params()
        from ...kernels import topic_inference as kernels

        X = check_counts(self, X, reset=False)
        words, (rows,) = words_at_hand(X)
        phi = padded_columns(self._word_probabilities(words))
        alpha = padded_vector(self.doc_topic_prior_, phi.shape[1])
        keys = kernels.content_keys(X.indptr, X.indices, X.data)
        seed = np.uint64(self.random_state if isinstance(self.random_state, Integral) else 0)
        theta = np.empty((X.shape[0], len(self.doc_topic_prior_)))
        fixed = (
            X.indptr,
            rows,
            X.data,
            phi,
            alpha,
            theta.shape[1],
            keys,
            seed,
            _FOLD_IN,
            _BURN_IN,
            _KEPT,
            theta,
        )
        tasks = [(kernels.fold_in, (*chunk, *fixed)) for chunk in document_chunks(X.shape[0])]
        run_tasks(tasks, effective_n_jobs(self.n_jobs))
        return theta

    def score(self, X, y=None):
        """Compute the held-out log-likelihood per token of documents, by document completion.

        Half of each document's tokens (drawn with a fixed seed) tell its topic shares by 20 EM steps, the
        other half is scored. Natural logarithm; higher is better.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts, best of documents that were not in `fit`.
        y : None
            Ignored.

        Returns
        -------
        float
        """
        check_is_fitted(self, "word_topic_counts_")
        X = check_counts(self, X, reset=False)
        observed, held_out = split_tokens(X, random_state=0)
        if held_out.sum() == 0:
            raise DataError("X has no document of two tokens or more: there is nothing to hold out")
        return complete(
            self._word_probabilities, observed, held_out, self.doc_topic_prior_, n_jobs=self.n_jobs
        )

    def perplexity(self, X):
        """Compute ``exp(-score(X))``: lower is better, the number of words for a model that knows nothing."""
        return float(np.exp(-self.score(X)))

    def topics(self, vocabulary=None, n_words=10):
        """List the most probable words of each topic.

        Parameters
        ----------
        vocabulary : sequence of str of length n_features, optional
            By default `vocabulary_`, if it was set (`stradask fit --vocab` does), else the feature names seen
            in `fit`, else the indices.
        n_words : int, default=10
            A smaller vocabulary is listed whole.

        Returns
        -------
        Topics
            A list of lists of words that prints as a table; its `shares` and `probabilities` are arrays.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> sorted(sorted(words) for words in lda.topics(["cat", "dog", "sun", "sea"], n_words=2))
        [['cat', 'dog'], ['sea', 'sun']]
        """
        check_is_fitted(self, "word_topic_counts_")
        if vocabulary is None:
            names = getattr(self, "feature_names_in_", [str(w) for w in range(self.n_features_in_)])
            vocabulary = getattr(self, "vocabulary_", names)
        vocabulary = check_vocabulary(vocabulary, self.n_features_in_)
        top, weights = reading.top_words(self.word_topic_counts_, self.topic_word_prior_, n_words)
        tokens = np.asarray(self.word_topic_counts_.sum(axis=0)).ravel()
        words = [[vocabulary[w] for w in row] for row in top.tolist()]
        probabilities = weights / (tokens + self.topic_word_prior_.sum())[:, None]
        return reading.Topics(words, tokens / tokens.sum(), probabilities)

    def coherence(self, X, measure="npmi", n_words=10):
        """Compute each topic's coherence against counts.

        ``"umass"`` is the mean of log((D(i, j) + 1) / D(j)) over pairs of the topic's `n_words` most probable
        words, j the more probable; ``"npmi"`` the mean of log(p(i, j) / p(i) p(j)) / -log p(i, j), between
        -1 and 1. D counts the documents of `X` that hold the words, p = D / n_samples.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Reference counts.
        measure : {"npmi", "umass"}, default="npmi"
        n_words : int, default=10
            At least 2.

        Returns
        -------
        ndarray of shape (n_components,)
            Higher is better; the mean over topics is what papers quote.

        References
        ----------
        Mimno et al., "Optimizing semantic coherence in topic models", EMNLP 2011 (UMass); Bouma,
        "Normalized (pointwise) mutual information in collocation extraction", GSCL 2009; Lau, Newman,
        Baldwin, EACL 2014 (NPMI).
        """
        check_is_fitted(self, "word_topic_counts_")
        if measure not in ("npmi", "umass"):
            raise DataError(f"measure={measure!r} is unknown: take 'npmi' or 'umass'")
        top, _ = reading.top_words(self.word_topic_counts_, self.topic_word_prior_, n_words)
        if top.shape[1] < 2:
            raise DataError(f"n_words={n_words}: coherence is about pairs, take at least 2 words")
        X = check_counts(self, X, reset=False, need_tokens=True)
        return reading.coherence(top, X, measure)

    # Reading ------------------------------------------------------------------------------------

    @property
    def components_(self):
        """Topic-word counts plus prior."""
        return self._fitted("word_topic_counts_").toarray().T + self.topic_word_prior_

    @property
    def topic_word_(self):
        """Word probabilities of each topic."""
        components = self.components_
        components /= components.sum(axis=1, keepdims=True)
        return components

    @property
    def doc_topic_(self):
        """Topic shares of the fitted documents."""
        shares = self._fitted("doc_topic_counts_").toarray() + self.doc_topic_prior_
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    @property
    def log_likelihood_(self):
        """Trace of the joint log-likelihood per token."""
        objective = self._fitted("history_")["objective"]
        return objective[~np.isnan(objective)]

    @property
    def _n_features_out(self):
        return len(self.doc_topic_prior_)

    def _fitted(self, name):
        """Return an attribute of a fit; AttributeError without one, as `hasattr` and scikit-learn expect."""
        if name not in vars(self):
            raise AttributeError(f"this {type(self).__name__} has no {name!r}: it is not fitted yet")
        return vars(self)[name]

    def _word_probabilities(self, words):
        """phi of the given words only, words x topics."""
        totals = np.asarray(self.word_topic_counts_.sum(axis=0)).ravel() + self.topic_word_prior_.sum()
        return (self.word_topic_counts_[words].toarray() + self.topic_word_prior_[words, None]) / totals

    def _check_state(self):
        """Hold what a model file says against itself: kernels and products trust these shapes."""
        super()._check_state()
        if "word_topic_counts_" not in vars(self):
            return
        shape = self.word_topic_counts_.shape
        sound = {
            "word_topic_counts_": shape[0] == self.n_features_in_
            and self.word_topic_counts_.data.min(initial=1) >= 0,
            "doc_topic_counts_": self.doc_topic_counts_.shape[1] == shape[1]
            and self.doc_topic_counts_.data.min(initial=1) >= 0,
            "doc_topic_prior_": (self.doc_topic_prior_ > 0).all()
            and self.doc_topic_prior_.shape == shape[1:],
            "topic_word_prior_": (self.topic_word_prior_ > 0).all()
            and self.topic_word_prior_.shape == shape[:1],
        }
        wrong = [name for name, fits in sound.items() if not fits]
        if wrong:
            raise DataError(
                f"{' and '.join(wrong)} cannot be those of a model of {self.n_features_in_} words"
            )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags
