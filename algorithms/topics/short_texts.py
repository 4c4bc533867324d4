"""Fitting models of short texts: units of a few tokens, documents or pairs of words, have one topic each."""

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Callback, Engine, FileName, Matrix, RandomState, Vector
from ...errors import DataError
from ...scheduler.engine import run
from ...scheduler.parameters import seed_from
from ...scheduler.stores.store import fingerprint_csr
from .._base import keep_parameters
from ..inputs.dask_arrays import is_dask
from ..inputs.matrices import check_counts, check_prior, check_vocabulary
from ..inputs.pieces import computed
from .blocks.groups import check_frequency
from .corpus.blocks_of_documents import lazy_shares
from .corpus.documents import Documents
from .corpus.shard_input import check_at_hand, given_documents
from .evaluation import padded_columns, words_at_hand
from .inference import without_unseen
from .model import TopicModel

_PRIOR = 0.1  # of units and of words
NOTHING = 1e-9  # of a prior, in shares of documents


class ShortTextModel(TopicModel):
    """The fit of `GSDMM` and `BitermTopicModel`.

    A subclass has `_program`, `_take` (what the fit knows of documents) and `_shares` (of new documents).
    """

    _parameter_constraints: ClassVar[dict] = {
        **TopicModel._parameter_constraints,
        "n_components": [Interval(Integral, 1, 2**16, closed="both")],
        "doc_topic_prior": [None, Interval(Real, 0, None, closed="neither"), "array-like"],
        "topic_word_prior": [None, Interval(Real, 0, None, closed="neither"), "array-like"],
        "exact": ["boolean"],
        "n_groups": [None, Interval(Integral, 1, 2**16, closed="both")],
    }
    # What the methods of topic models look at, and these models do not offer.
    sampler, device, n_draws = "gibbs", "cpu", 0
    optimize_priors, memory_limit, memmap_folder = False, None, None
    _label: str
    _units: str  # name of the attribute with how many units each topic has
    labels_: Array

    def __init__(
        self,
        n_components: int = 40,
        *,
        doc_topic_prior: Any = None,
        topic_word_prior: Any = None,
        max_iter: int = 100,
        exact: bool = False,
        n_groups: int | None = None,
        engine: Engine = "local",
        n_jobs: int | None = None,
        checkpoint: FileName | None = None,
        random_state: RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())

    def fit(
        self,
        X: Matrix,
        y: Vector | None = None,
        *,
        vocabulary: Any = None,
        n_features: int | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit topics to word counts of short texts.

        Ctrl-C stops after the running sweep and keeps the model so far, with a warning.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts of words in documents, or a corpus in files or of Dask's, as in
            `LatentDirichletAllocation.fit`.
        y : None
            Ignored.
        vocabulary, n_features, callback
            As in `LatentDirichletAllocation.fit`.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft:
            documents = Documents(draft, X, n_features, int(draft.n_components), begins=True)
            corpus = documents.corpus
            n_words = corpus.summary.n_words
            check_frequency(corpus.frequency)
            alpha = check_prior("doc_topic_prior", draft.doc_topic_prior, draft.n_components, _PRIOR)
            beta = check_prior("topic_word_prior", draft.topic_word_prior, n_words, _PRIOR)
            words = None if vocabulary is None else check_vocabulary(vocabulary, n_words)
            documents.warn_of_groups(False)
            program = draft._program(corpus, alpha, beta, seed_from(draft.random_state), documents.X)
            done = draft._run(program, documents, callback)
            draft._read(program, done.fetched, done.history, documents.X)
            for name in ("vocabulary_", "worker_history_"):  # of the last fit
                draft.__dict__.pop(name, None)
            if done.activity is not None:
                draft.worker_history_ = done.activity.as_dict()
            if words is not None:
                draft.vocabulary_ = words
        return self

    def _run(self, program, documents, callback):
        return run(
            program,
            program.schedule,
            max_rounds=self.max_iter,
            engine=documents.engine,
            n_jobs=documents.n_jobs,
            callback=callback,
            snapshot=lambda history, found: type(self)(**self.get_params())._read(
                program, found, history, documents.X
            ),
            checkpoint=self.checkpoint,
            checkpoint_every=program.measure_every,
            fingerprint=self._fingerprint(documents.digest, program),
            label=self._label,
            verbose=self.verbose,
        )

    def _program(self, corpus, alpha, beta, seed, X):
        raise NotImplementedError

    def _take(self, documents, rows, X):
        """Set what a fit says of documents, from those of each shard, and its rows of X."""
        raise NotImplementedError

    def _shares(self, X):
        """Shares of topics of new documents."""
        raise NotImplementedError

    def _fingerprint(self, X, program):
        parts = {"model": self._label, "alpha": program.alpha.tolist()}
        parts["X"] = X if isinstance(X, str) else fingerprint_csr(X)
        beta = program.beta
        parts["beta"] = float(beta[0]) if np.ptp(beta) == 0 else beta.tolist()
        return parts | ({"seed": int(self.random_state)} if isinstance(self.random_state, Integral) else {})

    def _read(self, program, found, history, X):
        """Take the model from what a program gathered; X is None where it is no matrix of this process."""
        self.n_features_in_, self.n_batch_iter_, self.n_iter_ = program.n_words, 1, len(history)
        self.word_topic_counts_ = found.words
        setattr(self, self._units, found.units)
        self.doc_topic_prior_, self.topic_word_prior_ = program.alpha, program.beta
        self._take(found.documents, program.rows, X)
        self.history_ = history.as_dict()
        if np.isnan(self.history_["objective"][-1]):
            self.history_["objective"][-1] = found.objective
        return self

    # Using --------------------------------------------------------------------------------------

    def _posterior(self, units, own=None, at_once=None) -> "Iterator[tuple[slice, Array, Array]]":
        """Probabilities of topics of units and log p(w), by parts; `own` are topics that the counts hold."""
        from ...kernels.lda.models.mixture import posterior

        held, alpha = getattr(self, self._units).astype(np.int64), self.doc_topic_prior_
        words, beta = self.word_topic_counts_.toarray().astype(np.int32), self.topic_word_prior_
        totals = words.sum(axis=0, dtype=np.int64)
        own, n_units = np.zeros(0, np.int64) if own is None else own, len(units.indptr) - 1
        step = at_once or max(n_units, 1)
        for first in range(0, n_units, step):
            last = min(first + step, n_units)
            out, log_sum = np.empty((last - first, len(alpha))), np.empty(last - first)
            place = (first, last, units.indptr, units.words, units.counts, own)
            posterior(*place, held, words, totals, alpha, beta, beta.sum(), out, log_sum)
            yield slice(first, last), out, log_sum - np.log(held.sum() + alpha.sum())

    def transform(self, X: Matrix) -> Array:  # type: ignore[override]
        """Compute shares of topics of new documents, given the topics of the fitted ones.

        In closed form, without a chain.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts. Words that were not in the fit are left out, with a warning. Of names of files and of a
            Dask array, chunked by rows, the result is a Dask array, and nothing is computed yet.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows sum to 1. The documents of the fit count themselves here.
        """
        check_is_fitted(self, "word_topic_counts_")
        X = given_documents(self, X)
        if is_dask(X):
            return lazy_shares(self, X)
        check_at_hand(X)
        X = check_counts(self, X, reset=False)
        return self._shares(without_unseen(self, X))

    def predict(self, X: Matrix) -> Array:
        """Return the most probable topic of each document.

        Parameters
        ----------
        X : as in `transform`

        Returns
        -------
        ndarray of int, shape (n_samples,)
            -1 of a document without words that the fit has seen.
        """
        shares = np.asarray(self.transform(X))
        X = given_documents(self, X)
        blocks = X.to_delayed() if is_dask(X) else [X]  # a list, also of a frame's
        counts = [check_counts(self, computed(X), reset=False) for X in getattr(blocks, "flat", blocks)]
        lengths = np.concatenate([block @ ~self.unseen for block in counts])
        return np.where(lengths > 0, shares.argmax(axis=1), -1)

    @property
    def unseen(self) -> Array:
        """Words that no document of the fit held."""
        return np.diff(self.word_topic_counts_.indptr) == 0

    def _completion(self, observed, held_out, labels):
        """Log-likelihood per held-out token, words being of the topics that observed ones tell."""
        from ...kernels.lda.inference import log_likelihood

        if labels is not None:
            raise DataError(f"{type(self).__name__} takes no doc_labels: leave them out")
        words, (_, rows) = words_at_hand(observed, held_out)
        phi, theta = padded_columns(self._word_probabilities(words)), self._shares(observed)
        place = (0, held_out.shape[0], held_out.indptr, rows, held_out.data)
        return float(log_likelihood(*place, phi, theta) / held_out.sum())

    def _check_state(self):
        super()._check_state()
        units = getattr(self, self._units)
        if units.shape != self.doc_topic_prior_.shape or units.dtype.kind not in "iu" or (units < 0).any():
            raise DataError(f"{self._units} cannot be that of the topics of a model")
