"""What a fitted topic model can do: infer, score, and be read."""

import os
import warnings
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, FileName, Matrix, Names, Vector
from ...datasets.split import split_tokens
from ...errors import DataError, InterruptedFitWarning, in_brief, shortened
from ...kernels.cuda.device import device_for
from .._base import ENGINES
from ..inputs.dask_arrays import is_dask
from ..inputs.matrices import check_counts
from .blocks.draws import check_draws
from .corpus.blocks_of_documents import lazy_shares, score_of_blocks
from .corpus.shard_input import check_at_hand, given_documents
from .evaluation import complete
from .guidance import check_doc_labels
from .inference import (
    SPARSE_TOPICS,
    FixedTopics,
    completion,
    labelled_completion,
    labelled_shares,
    log_probabilities,
    sweeps_and_tolerance,
    topic_shares,
)
from .reading.estimator import ReadableTopics

if TYPE_CHECKING:
    from .reading.alignment import TopicAlignment

_FIRST_SEED = 1000  # of fits that others are compared with

# The checks of scikit-learn's check_estimator whose data are not counts.
_FRACTIONAL_CHECKS = """
    dict_unchanged dont_overwrite_parameters dtype_object estimator_sparse_array
    estimator_sparse_matrix estimator_sparse_tag estimators_dtypes estimators_fit_returns_self
    estimators_nan_inf estimators_overwrite_params estimators_pickle f_contiguous_array_estimator
    fit2d_1feature fit2d_1sample fit2d_predict1d fit_check_is_fitted fit_idempotent
    fit_score_takes_y methods_sample_order_invariance methods_subset_invariance n_features_in
    n_features_in_after_fitting pipeline_consistency readonly_memmap_input
    transformer_data_not_an_array transformer_general transformer_n_iter transformer_preserve_dtypes
""".split()  # noqa: SIM905 -- one name a line would fill a page


class TopicModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ReadableTopics):
    """Base of the topic models; a fit sets these attributes, from which everything here follows.

    Attributes
    ----------
    word_topic_counts_ : CSR array of shape (n_features, n_components)
    doc_topic_counts_ : CSR array of shape (n_samples, n_components)
    doc_topic_prior_, topic_word_prior_ : ndarrays of shapes (n_components,), (n_features,)
    seed_prior_ : CSR array of shape (n_features, n_components), or None
        Added to `topic_word_prior_`.
    doc_labels_ : CSR array of shape (n_samples, n_components), or None
        Factors of `doc_topic_prior_` of the fitted documents; new ones have that prior as it is.
    history_ : dict of arrays
    """

    # For check_estimator(model, expected_failed_checks=model._expected_failed_checks). Even with counts,
    # fit_transform differs from transform: it averages over the chain of the fit.
    _expected_failed_checks: ClassVar[dict] = {
        f"check_{name}": "the data of the check are fractional, and topic models take counts"
        for name in _FRACTIONAL_CHECKS
    }
    _parameter_constraints: ClassVar[dict] = {  # of the parameters that all topic models have
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "engine": ENGINES,
        "n_jobs": [None, Integral],
        "checkpoint": [None, str, os.PathLike],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    # Using --------------------------------------------------------------------------------------

    def transform(
        self, X: Matrix, *, n_sweeps: int | None = None, tol: float | None = None, doc_labels: Any = None
    ) -> Array:
        """Infer topic shares of documents: the posterior mean of theta with the topics fixed.

        Two Gibbs chains; after a warm-up their conditional probabilities are averaged and cleared of most of
        their noise. A document is done when half the distance of the two chains, which estimates the error of
        their mean, is at most `tol`. The random stream follows from `random_state` and the
        document's own words, so neither other documents nor `n_jobs` change its answer; with
        ``random_state=None`` too.

        With ``device="cuda"``, or ``"auto"`` and a GPU that can be used, a GPU draws the same topics, and the
        shares are those of the CPU to rounding. Labelled documents, Dask's data, and models of 16,384 topics
        or more are left to the CPU.

        Memory, a thread: 52 bytes for each topic and distinct word of the longest document; with 16,384
        topics or more 8 bytes for each non-zero count of its words, and 16 a topic. There the probabilities
        are averaged with their noise.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts; of names of files (as in `fit`; documents in the order of the names) and of a Dask array,
            chunked by rows, the result is a Dask array, and nothing is computed
            yet. A document without words gets the prior's mean. Words that had no count in `fit` are left
            out, with one warning that counts them: all topics know them equally little.
        n_sweeps : int, optional
            Passes over each document, both chains together, at least 10: all are made without `tol`, and at
            most so many with it. By default at most 200, or 2,000 where `tol` is given. The error falls with
            their root. With 16,384 topics or more all are made.
        tol : float, optional
            Monte Carlo error of a document's shares, as total variation (half the sum of the absolute errors
            over topics), at which it is done; 0.03 where neither this nor `n_sweeps` is given. By default,
            measured by a chain of 6,000 sweeps, mean errors were 0.029 for news of 124 words and 100 topics,
            0.022 for descriptions of 38 words and 100 topics (0.015 and 0.0095 with ``n_sweeps=200``, which
            takes 2.5 and 3 times the CPU), and 0.035 for reviews of 92 words and 50 topics, of which many end
            at 200 sweeps (0.028, 1.4 times). Chains that are both in the same of several modes agree too
            soon: single documents can be farther off.
        doc_labels : matrix of shape (n_samples, n_components), optional
            As in `fit`: a document has the topics of its labels only, the others have the share 0.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows sum to 1.
        """
        check_is_fitted(self, "word_topic_counts_")
        self._validate_params()
        n_sweeps, tol = sweeps_and_tolerance(n_sweeps, tol)
        X = given_documents(self, X)
        if is_dask(X):
            return lazy_shares(self, X, doc_labels, n_sweeps=n_sweeps, tol=tol)
        check_at_hand(X)
        X = check_counts(self, X, reset=False)
        options = {"n_sweeps": n_sweeps, "tol": tol, "random_state": self.random_state, "n_jobs": self.n_jobs}
        labels = check_doc_labels(doc_labels, X.shape[0], self.doc_topic_prior_)
        if labels is not None:
            return labelled_shares(FixedTopics.of(self), X, labels, **options)
        return topic_shares(FixedTopics.of(self), X, device=device_for(self.device), **options)

    def log_probability(
        self,
        X: Matrix,
        *,
        method: str = "left-to-right",
        n_particles: int = 20,
        n_moves: int | None = None,
        temperatures: Any = 100,
    ) -> Array:
        """Estimate log p(w) of whole documents, their topic shares integrated out.

        The sum over all assignments of topics to the document's tokens::

            p(w)  =  sum_z  [prod_n phi[z_n, w_n]]  Gamma(A) / Gamma(A + L)
                            prod_k Gamma(C_k + alpha_k) / Gamma(alpha_k)

        with A = sum(alpha), phi = `topic_word_`, of the tokens in a given order (for the bag of words add the
        log of the number of orders). Both methods give an estimate of p(w) whose mean is p(w), so that its
        logarithm is low by about half of its relative variance; more particles bring it up. `score` is a much
        faster measure, of the second half of a document given the first.

        - ``"left-to-right"`` adds token after token; before each, the topics of earlier tokens are drawn anew
          and particles that have become unlikely give way to likely ones. The cost grows with L squared
          unless `n_moves` bounds it.
        - ``"annealed"`` goes from the prior to the posterior in steps, a Gibbs sweep at each: about
          ``n_particles * temperatures`` draws a token.

        Memory, a thread: 4 bytes (annealed 12) for each topic and distinct word of the longest document, and
        4 for each topic and particle.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts. Words that had no count in `fit` have the probability that `topic_word_prior` gives them.
        method : {"left-to-right", "annealed"}, default="left-to-right"
        n_particles : int, default=20
        n_moves : int, optional
            Left-to-right: how many earlier tokens are drawn anew before each token, in turn. All by default;
            the mean of the weights is p(w) for any number, 0 too.
        temperatures : int or array of rising numbers that ends with 1, default=100
            Annealed: the powers of phi, or how many equal steps there are to 1.

        Returns
        -------
        ndarray of shape (n_samples,)
            Natural logarithms; 0 for a document without words. The same for any `n_jobs`, order and company.

        Raises
        ------
        DataError
            If `X` does not hold counts, or a parameter is out of its range.

        References
        ----------
        Wallach, Murray, Salakhutdinov, Mimno, "Evaluation methods for topic models", ICML 2009. Their
        left-to-right takes the plain mean of all particles at each token, and the product of such means is
        p(w) on average for a single particle only; here particles carry weights (Del Moral, Doucet, Jasra,
        "Sequential Monte Carlo samplers", JRSS B 2006). Buntine, "Estimating likelihoods for topic models",
        ACML 2009. Neal, "Annealed importance sampling", Statistics and Computing 2001.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> pure, mixed = lda.log_probability([[2, 2, 0, 0], [2, 0, 2, 0]])
        >>> bool(pure > mixed)
        True
        """
        check_is_fitted(self, "word_topic_counts_")
        self._validate_params()
        X = check_counts(self, X, reset=False)
        return log_probabilities(
            FixedTopics.of(self),
            X,
            method=method,
            n_particles=n_particles,
            n_moves=n_moves,
            temperatures=temperatures,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )

    def score(self, X: Matrix, y: Vector | None = None, *, doc_labels: Any = None) -> float:
        """Compute the held-out log-likelihood per token of documents, by document completion.

        Half of each document's tokens (drawn with a fixed seed) tell its topic shares by 20 EM steps, the
        other half is scored. Natural logarithm; higher is better. On a GPU, with `device` as in `transform`,
        the number is the CPU's to rounding.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts, best of documents that were not in `fit`. Of files and a Dask array every block is scored
            where it lies (and halved by itself, so that another cut gives a slightly different number).
        y : None
            Ignored.
        doc_labels : matrix of shape (n_samples, n_components), optional
            As in `fit`: a document has the topics of its labels only.

        Returns
        -------
        float
        """
        check_is_fitted(self, "word_topic_counts_")
        X = given_documents(self, X)
        if is_dask(X):
            total, n_tokens = score_of_blocks(self, X, doc_labels)
        else:
            check_at_hand(X)
            X = check_counts(self, X, reset=False)
            total, n_tokens = self._completed(
                X, check_doc_labels(doc_labels, X.shape[0], self.doc_topic_prior_)
            )
        if n_tokens == 0:
            raise DataError("X has no document of two tokens or more: there is nothing to hold out")
        return total / n_tokens

    def _completed(self, X, labels=None):
        """Log-likelihood of held-out tokens, and how many there are."""
        observed, held_out = split_tokens(X, random_state=0)
        n_tokens = int(held_out.sum())
        return (n_tokens * self._completion(observed, held_out, labels) if n_tokens else 0.0), n_tokens

    def _completion(self, observed, held_out, labels):
        if labels is not None:
            return labelled_completion(FixedTopics.of(self), observed, held_out, labels, n_jobs=self.n_jobs)
        device = device_for(self.device)
        if device is not None or self.word_topic_counts_.shape[1] >= SPARSE_TOPICS:
            return completion(FixedTopics.of(self), observed, held_out, n_jobs=self.n_jobs, device=device)
        return complete(
            self._word_probabilities, observed, held_out, self.doc_topic_prior_, n_jobs=self.n_jobs
        )

    def perplexity(self, X: Matrix, *, doc_labels: Any = None) -> float:
        """Compute ``exp(-score(X))``: lower is better, the number of words for a model that knows nothing."""
        return float(np.exp(-self.score(X, doc_labels=doc_labels)))

    # Reading ------------------------------------------------------------------------------------

    def explore(
        self,
        texts: Any = None,
        path: FileName = "topics.html",
        *,
        X: Matrix | None = None,
        vocabulary: Names | None = None,
        names: Names | None = None,
        groups: Vector | None = None,
        n_documents: int = 10_000,
    ) -> str:
        """Write a page on which to read the topics: their words, documents, and shares of groups.

        One file of HTML, which opens without a server or a network: a map and a list of topics, their words
        with a slider of relevance, the documents of each with the words marked that speak for it, shares over
        groups with 90 % intervals, similar topics, and a search. Intervals are of the posterior where the
        documents are those of a fit with `n_draws` of 19 or more, else over documents by the bootstrap; the
        page says which. Texts or X that are all of one length count as other documents than those of the
        fit: leave them out. Pointing at a word shows on the map which topics hold it. Keys: arrows change
        the topic, "/" searches. The address keeps what is shown.

        Parameters
        ----------
        texts : sequence of str or of lists of str, or Texts, optional
            Documents, of which each may be a list of words. They become part of the file. Without `X` their
            words are counted by `stradask.text_counts`: give X, too, where the fit counted them otherwise.
        path : path-like, default="topics.html"
            A file of that name is replaced.
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features), optional
            Counts of documents, with their texts or in place of them.
        vocabulary : sequence of str of length n_features, optional
            As in `topics`.
        names : sequence of str of length n_samples, optional
            Of the documents; numbers by default. Without texts and X of those of the fit.
        groups : array-like of shape (n_samples,), optional
            A label for each document, such as a year or a source. Three or more that are numbers or dates
            become a curve over time with a band.
        n_documents : int, default=10,000
            Documents on the page: the best 20 of each topic, and others by chance, which the search finds.

        Returns
        -------
        str
            The path.

        Raises
        ------
        DataError
            If lengths differ; if the model does not know its words and `texts` are given, or does not know
            most words of `texts`, or its fit counted them otherwise; if most words of `X` are not in `texts`.

        Examples
        --------
        >>> import tempfile
        >>> import stradask as sd
        >>> texts = ["soup and bread", "bread, soup and tea", "a quiet room", "room with a bed"] * 5
        >>> X, words = sd.text_counts(texts)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X, vocabulary=words)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = lda.explore(texts, f"{folder}/topics.html")
        ...     "<html" in open(path, encoding="utf-8").read()
        True
        """
        from .reading.explore import write_page

        self._fitted("word_topic_counts_")
        write_page(self, path, texts, X, vocabulary, names, groups, n_documents)
        return str(path)

    def stability(self, X: Matrix, n_seeds: int = 5, **fit_params: Any) -> "TopicAlignment":
        """Fit the model again from other seeds, and say which of its topics come back.

        Parameters
        ----------
        X : as in `fit`
            The documents of the fit.
        n_seeds : int, default=5
            Further fits, with ``random_state`` 1000, 1001, ..., without that of this model.
        **fit_params
            As in `fit`.

        Returns
        -------
        TopicAlignment
            Topics of the other fits matched with those of this model; see `stradask.align`.

        Raises
        ------
        DataError
            If `X` has other columns than the model, or `n_seeds` is no number above 0.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> lda.stability(X, n_seeds=2).found
        array([1., 1.])
        """
        from .reading.alignment import align

        check_is_fitted(self, "word_topic_counts_")
        if not isinstance(n_seeds, Integral) or isinstance(n_seeds, bool) or n_seeds < 1:
            raise DataError(f"n_seeds must be a number above 0, got {shortened(n_seeds)}")
        others: list[Any] = [self]
        seeds = range(_FIRST_SEED, _FIRST_SEED + int(n_seeds) + 1)
        for seed in [seed for seed in seeds if seed != self.random_state][: int(n_seeds)]:
            other: Any = clone(self)
            other.set_params(random_state=seed)
            if "checkpoint" in other.get_params():
                other.set_params(checkpoint=None)  # it belongs to the fit of this model
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", InterruptedFitWarning)
                    others.append(other.fit(X, **fit_params))
            except InterruptedFitWarning as error:  # half a fit says nothing of the topics
                raise KeyboardInterrupt(f"random_state={seed}: {error}") from error
            if getattr(other, "coef_names_", None) != getattr(self, "coef_names_", None):
                own, theirs = (in_brief(", ".join(model.coef_names_), 100) for model in (self, other))
                raise DataError(
                    f"the model was fitted with the columns {own}, and now there are {theirs}: pass the "
                    "covariates of the fit"
                )
            if other.word_topic_counts_.shape[0] != self.word_topic_counts_.shape[0]:
                raise DataError(
                    f"X has {other.word_topic_counts_.shape[0]} columns, but the model was fitted to "
                    f"{self.word_topic_counts_.shape[0]}: pass the documents of the fit"
                )
        return align(others)

    @property
    def components_(self) -> Array:
        """Topic-word counts plus prior."""
        self._fitted("word_topic_counts_")
        return self._word_topic_weights.toarray().T + self.topic_word_prior_

    @property
    def topic_word_(self) -> Array:
        """Word probabilities of each topic."""
        components = self.components_
        components /= components.sum(axis=1, keepdims=True)
        return components

    @property
    def doc_topic_(self) -> Array:
        """Topic shares of the fitted documents."""
        if self._fitted("doc_topic_counts_") is None:
            raise AttributeError(
                "the fit left the topics of its documents where they lay: take transform of the same X"
            )
        weights, prior = self._doc_topic_weights
        shares = weights.toarray() + prior
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    @property
    def log_likelihood_(self) -> Array:
        """Trace of the joint log-likelihood per token."""
        objective = self._fitted("history_")["objective"]
        return objective[~np.isnan(objective)]

    @property
    def _n_features_out(self):
        return len(self.doc_topic_prior_)

    def _fitted(self, name):
        """Return an attribute of a fit; AttributeError without one, as `hasattr` and scikit-learn expect."""
        if name not in vars(self):
            raise AttributeError(f"this {type(self).__name__} has no {shortened(name)}: it is not fitted yet")
        return vars(self)[name]

    def _word_probabilities(self, words):
        """phi of the given words only, words x topics."""
        weights = self._word_topic_weights
        totals = np.asarray(weights.sum(axis=0)).ravel() + self.topic_word_prior_.sum()
        return (weights[words].toarray() + self.topic_word_prior_[words, None]) / totals

    def _check_state(self):
        """Hold what a model file says against itself: kernels and products trust these shapes."""
        super()._check_state()
        shape = self.word_topic_counts_.shape
        sound = {
            "word_topic_counts_": shape[0] == self.n_features_in_
            and _are_counts(self.word_topic_counts_, shape[1]),
            "doc_topic_counts_": _are_counts(self.doc_topic_counts_, shape[1]),
            "doc_topic_prior_": _is_prior(self.doc_topic_prior_, shape[1:]),
            "topic_word_prior_": _is_prior(self.topic_word_prior_, shape[:1]),
            "n_batch_iter_": isinstance(self.n_batch_iter_, int),
            "seed_prior_": fits_weights(getattr(self, "seed_prior_", None), shape),
            "doc_labels_": fits_weights(
                getattr(self, "doc_labels_", None), getattr(self.doc_topic_counts_, "shape", None)
            ),
        }
        keywords = "keyword_counts_" in vars(self)
        check_draws(getattr(self, "draws_", []), shape, self.doc_topic_counts_, keywords)
        wrong = [name for name, fits in sound.items() if not fits]
        if wrong:
            raise DataError(
                f"{' and '.join(wrong)} cannot be those of a model of {self.n_features_in_} words"
            )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


def _are_counts(matrix, n_topics):
    """Whether an attribute can be counts of topics, or None where those of documents were left in shards."""
    return matrix is None or (
        matrix.shape[1] == n_topics
        and matrix.data.dtype.kind in "iuf"
        and bool((matrix.data >= 0).all() and np.isfinite(matrix.data).all())
    )


def _is_prior(values, shape):
    return values.dtype in (np.float32, np.float64) and values.shape == shape and bool((values > 0).all())


def fits_weights(matrix, shape):
    """Whether an attribute can be what is known beforehand: nothing, or a sparse matrix of finite weights."""
    if matrix is None:
        return True
    return (
        isinstance(matrix, (sparse.csr_array, sparse.csr_matrix))
        and matrix.shape == shape
        and bool(np.isfinite(matrix.data).all() and (matrix.data > 0).all())
    )
