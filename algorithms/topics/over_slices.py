"""What a fitted model of topics over slices of time can do: infer, score, and be read."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Matrix, Names, Vector
from ...errors import DataError
from .._intervals import check_level
from ..inputs.dask_arrays import is_dask
from ..inputs.matrices import check_counts
from .corpus.shard_input import check_at_hand
from .covariates import check_order
from .lda import LatentDirichletAllocation
from .model import TopicModel
from .reading.comparison import TopicPrevalence, check_topics, prevalence
from .reading.over_time import WordTrajectories, beta_interval, place_of, slice_codes
from .reading.top_words import check_whole
from .reading.uncertainty import columns_of
from .samplers.chains import WordChains, is_chain, log_deviations, rates_of

PARTS = ("words", "eta", "others")  # of a chain
_NOTHING = -1  # the slice of no document
_LEAST, _NEARLY_NONE = 1e-3, 1e-12  # tokens of a topic, and of the prior, of one slice's model


class TopicsOverSlices(TopicModel):
    """The use of `DynamicTopicModel`, whose fit sets the attributes."""

    n_components: int
    n_jobs: Any
    random_state: Any

    # Using --------------------------------------------------------------------------------------

    def at(self, slice: Any = None) -> LatentDirichletAllocation:
        """Return the topics of one slice as a fitted `LatentDirichletAllocation`.

        Its topics are those of the slice, weighted by their tokens in it, and its documents those of the
        slice, so that `topics`, `transform`, `score`, `coherence`, `explore` and all else are about this
        slice. It takes 12 bytes for each topic and word.

        Parameters
        ----------
        slice : label, optional
            One of `slices_`, or a date in it; by default the last one.

        Returns
        -------
        LatentDirichletAllocation
        """
        check_is_fitted(self, "chains_")
        return self._at(len(self.slices_) - 1 if slice is None else self._place(slice))

    def _place(self, label):
        return place_of(label, self.slices_, vars(self).get("slice_unit_"))  # older files have no unit

    def _at(self, t):
        model = LatentDirichletAllocation(
            self.n_components, n_jobs=self.n_jobs, random_state=self.random_state
        )
        own = self.doc_slices_ == t
        weights = np.maximum(self.slice_totals_[:, t], _LEAST)[:, None] * self._probabilities(t)
        model.word_topic_counts_ = sparse.csr_array(weights.T)
        model.doc_topic_counts_ = sparse.csr_array(self.doc_topic_counts_[np.flatnonzero(own)])
        model.doc_topic_prior_ = self.doc_topic_prior_
        model.topic_word_prior_ = np.full(self.n_features_in_, _NEARLY_NONE)
        model.seed_prior_ = model.doc_labels_ = None
        model.history_, model.n_batch_iter_, model.n_iter_ = self.history_, 1, self.n_iter_
        for name in ("n_features_in_", "feature_names_in_", "vocabulary_"):
            if name in self.__dict__:
                setattr(model, name, getattr(self, name))
        return model

    def _chain(self, k):
        words, eta, others = (self.chains_[k][name] for name in PARTS)
        return WordChains.of(words, eta, others, self.n_features_in_)

    def _probabilities(self, t):
        """Words' probabilities of all topics in one slice."""
        found = np.empty((len(self.chains_), self.n_features_in_))
        for k in range(len(found)):
            chain = self._chain(k)
            level = chain.levels[t]
            found[k] = np.exp(chain.others[t] - level)
            found[k, chain.words] = np.exp(chain.eta[:, t] - level)
        return found

    def _by_slice(self, X, codes, ask):
        """Ask the model of each slice of some documents; rows of the answers in the order of X."""
        X = check_counts(type(self).__name__, X, need_tokens=False)  # names have been compared
        out = np.empty((X.shape[0], len(self.doc_topic_prior_)))
        for t in np.unique(codes):
            rows = np.flatnonzero(codes == t)
            model = self._at(t)
            vars(model).pop("feature_names_in_", None)
            out[rows] = ask(model, X[rows])
        return out

    def _codes(self, X, slices):
        """Places of the slices of documents; without any, the last one."""
        n_documents = X.shape[0]
        if slices is None:
            return np.full(n_documents, len(self.slices_) - 1)
        check_order(X, slices)
        labels, codes, _ = slice_codes(slices, n_documents, vars(self).get("slice_unit_"))
        used = np.unique(codes)
        places = np.full(len(labels), _NOTHING)
        places[used] = [self._place(label) for label in labels[used]]
        return places[codes]

    def transform(  # type: ignore[override]
        self, X: Matrix, *, slices: Any = None, n_sweeps: int | None = None, tol: float | None = None
    ) -> Array:
        """Infer topic shares of documents, by the topics of their slices.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts.
        slices : array-like of shape (n_samples,), optional
            Labels or dates as in `fit`, of slices that the model has. By default the last slice, to which new
            documents are nearest.
        n_sweeps, tol
            As in `LatentDirichletAllocation.transform`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows sum to 1.
        """
        check_is_fitted(self, "chains_")
        self._validate_params()
        self._refuse_dask(X)
        check_at_hand(X)
        counts = check_counts(self, X, reset=False)
        codes = self._codes(X if hasattr(X, "columns") else counts, slices)
        return self._by_slice(
            counts, codes, lambda model, rows: model.transform(rows, n_sweeps=n_sweeps, tol=tol)
        )

    def _refuse_dask(self, X):
        if is_dask(X):
            raise DataError("X is a Dask collection: pass its blocks one by one, with their slices")

    def score(  # type: ignore[override]
        self, X: Matrix, y: Vector | None = None, *, slices: Any = None
    ) -> float:
        """Compute the held-out log-likelihood per token, by document completion.

        Parameters
        ----------
        X, y
            As in `LatentDirichletAllocation.score`.
        slices : array-like of shape (n_samples,), optional
            As in `transform`.

        Returns
        -------
        float
        """
        check_is_fitted(self, "chains_")
        self._refuse_dask(X)
        check_at_hand(X)
        counts = check_counts(self, X, reset=False)
        codes = self._codes(X if hasattr(X, "columns") else counts, slices)
        found = [self._at(t)._completed(counts[np.flatnonzero(codes == t)]) for t in np.unique(codes)]
        n_tokens = sum(n for _, n in found)
        if n_tokens == 0:
            raise DataError("X has no document of two tokens or more: there is nothing to hold out")
        return float(sum(total for total, _ in found) / n_tokens)

    def perplexity(self, X: Matrix, *, slices: Any = None) -> float:  # type: ignore[override]
        """Compute ``exp(-score(X, slices=slices))``; lower is better."""
        return float(np.exp(-self.score(X, slices=slices)))

    # Reading ------------------------------------------------------------------------------------

    def shares_over_time(self) -> TopicPrevalence:
        """Compute the share of each topic in the slices that have documents, by their tokens.

        Returns
        -------
        TopicPrevalence
            `groups` (the slices), `shares` (slices x topics), `tokens`, and a method `plot`.
        """
        check_is_fitted(self, "chains_")
        found = prevalence(self.doc_topic_counts_, self.doc_slices_)
        return TopicPrevalence(self.slices_[found.groups], found.shares, found.tokens)

    def over_time(
        self,
        topic: int,
        words: Any = None,
        *,
        n_words: int = 8,
        level: float = 0.9,
        vocabulary: Names | None = None,
    ) -> WordTrajectories:
        """Follow a topic's words from slice to slice.

        Parameters
        ----------
        topic : int
        words : sequence of str or int, optional
            Words to follow, or their columns. By default `n_words` of those that are among the most
            probable in some slice: the ones whose probability changes most.
        n_words : int, default=8
        level : float, default=0.9
            Probability of the intervals: those of Clopper and Pearson for as many tokens as mode and
            curvature of the logarithms are worth. That topics of tokens are not known widens them (Louis,
            1982): the variance of each word's tokens over the draws of the fit is information that is
            missing.
        vocabulary : sequence of str of length n_features, optional
            As in `topics`.

        Returns
        -------
        WordTrajectories
            `probabilities`, `low` and `high`, slices x words, and `top_words` of each slice; prints as a
            table; `plot` draws it.

        Raises
        ------
        DataError
            If there is no such topic or word.
        """
        check_is_fitted(self, "chains_")
        level = check_level(level)
        k = int(check_topics([topic], len(self.doc_topic_prior_))[0])
        n_words = min(check_whole("n_words", n_words), self.n_features_in_)
        names = self._vocabulary(vocabulary)
        chain = self._chain(k)
        levels = chain.levels
        # Only words that the topic has somewhere, and those that are asked for, are looked at.
        own = chain.words
        if len(own) < n_words:
            own = np.arange(self.n_features_in_)
        weights = np.exp(chain.of_words(own) - levels).T
        top = np.argsort(-weights, axis=1, kind="stable")[:, :n_words]
        if words is None:
            shown = np.unique(top)
            moved = np.argsort(-np.ptp(weights[:, shown], axis=0), kind="stable")
            columns = own[shown[moved[:n_words]]]
        else:
            columns = columns_of(words, names, self.n_features_in_)
        logs = chain.of_words(columns) - levels
        rates = rates_of(chain, self.slice_totals_[k], self.topic_word_prior_[0], self.n_features_in_)
        left = np.ones(self.n_features_in_)
        left[chain.words] = self.chains_[k].get("information", 1.0)  # models of before have none
        deviations = log_deviations(chain, columns, rates, self.drift_**2, information=left[columns])
        mode = np.exp(logs).T
        low, high = beta_interval(mode, deviations.T**2, level)
        followed = [str(names[w]) for w in columns]
        listed = [[str(names[w]) for w in own[row]] for row in top]
        return WordTrajectories(k, self.slices_, followed, mode, low, high, level, listed)

    def _check_state(self):
        super()._check_state()
        n_topics, n_words, n_slices = len(self.doc_topic_prior_), self.n_features_in_, len(self.slices_)
        codes, totals = self.doc_slices_, self.slice_totals_
        fits = codes.dtype.kind in "iu" and codes.shape == self.doc_topic_counts_.shape[:1]
        fits = fits and self.slices_.ndim == 1 and 0 <= codes.min() <= codes.max() < n_slices
        fits = fits and totals.shape == (n_topics, n_slices) and bool((totals >= 0).all())
        fits = fits and np.isfinite(totals).all() and 0 < self.drift_ <= 1
        fits = fits and np.ptp(self.topic_word_prior_) == 0 and len(self.chains_) == n_topics
        fits = fits and self.n_iter_ >= 0 and isinstance(self.history_, dict)
        parts = [[own[name] for name in PARTS] for own in self.chains_]
        for own in self.chains_:
            left = own.get("information", np.ones(len(own["words"]), np.float32))
            fits = fits and left.shape == own["words"].shape and bool(((left > 0) & (left <= 1)).all())
        if not (fits and all(is_chain(own[0], own[1], own[2], n_words, n_slices) for own in parts)):
            raise DataError("slices_, doc_slices_, slice_totals_ or chains_ cannot be those of this model")
