"""Fitting a topic model: documents and parameters become a program, and its result the model."""

import copy
import os
import warnings
from contextlib import contextmanager
from inspect import signature
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval

from ..._typing import Array, Matrix, Vector
from ...errors import CheckpointMismatch, DataError, shortened
from ...scheduler.engine import run
from ...scheduler.parameters import seed_from
from ...scheduler.stores.store import fingerprint_csr
from ..inputs.dask_arrays import is_dask
from ..inputs.matrices import check_prior, check_vocabulary
from .beginnings import FreshStart, FromTopics
from .blocks.draws import sweeps_of_draws
from .corpus.documents import Documents
from .corpus.shard_input import are_files, check_at_hand
from .found import (
    MOST_TOPICS,
    check_auto,
    fingerprint_of_prior,
    leave_out_unused,
    shares_of_used,
    warn_of_number,
)
from .growing import AveragedDraws
from .model import TopicModel
from .model_inputs import ModelInputs
from .samplers.choose import settled
from .samplers.of_users import check_object, fingerprint_of, name_or_object

_DOC_TOPIC_PRIOR, _TOPIC_WORD_PRIOR = 0.1, 0.01  # the defaults of tomotopy


class FittedTopicModel(TopicModel):
    """The steps of `LatentDirichletAllocation.fit` and `partial_fit`, and of models that are fitted alike."""

    _parameter_constraints: ClassVar[dict] = {
        **TopicModel._parameter_constraints,
        "topic_word_prior": [None, Interval(Real, 0, None, closed="neither"), "array-like"],
        "exact": ["boolean"],
        "n_groups": [None, Interval(Integral, 1, 2**16, closed="both")],
        "memmap_folder": [None, str, os.PathLike],
    }
    # Options of `LatentDirichletAllocation` as they are where a model does not offer them.
    sampler: Any = "gibbs"
    device: str = "cpu"
    optimize_priors: bool = False
    warm_start: bool = False
    n_draws: int = 0
    tol: float | None = None
    memory_limit: int | str | None = None
    _label = "LDA"  # of progress, and of a fit that was interrupted

    _inputs = ModelInputs  # class of what a fit is told besides counts

    def _fit_anew(self, X, y=None, *, callback=None, averages=False, **known):
        """Fit to documents; `known` are arguments of `ModelInputs`. Returns shares as `_fit` does."""
        self._validate_params()
        self._check_parameters()
        inputs = self._inputs(y, **known)
        inputs.check(self, X)
        begin = FreshStart()
        if self.warm_start and "word_topic_counts_" in vars(self):
            begin = FromTopics(self.word_topic_counts_)
        elif inputs.topics is not None:
            begin = FromTopics()
        with self._draft() as draft:
            return draft._fit(X, begin, inputs, callback, averages)

    def fit_transform(self, X: Matrix, y: Vector | None = None, **fit_params: Any) -> Array:
        """Fit, and return the topic shares of the documents, averaged over the sweeps.

        As `LatentDirichletAllocation.fit_transform`.

        Parameters
        ----------
        X, y, **fit_params
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_topics)
            Of files and Dask's data the result is that of `transform`.
        """
        model: Any = self
        given = self._arguments(X, y, fit_params)
        own = {name: given[name] for name in self._of_documents if name in given}
        if is_dask(X) or are_files(X):
            return model.fit(X, y, **given).transform(X, **own)
        check_at_hand(X)
        shares = self._fit_anew(X, y, averages=True, **given)
        return model.transform(X, **own) if shares is None else shares

    _of_documents: tuple = ()  # names of arguments of `fit` that `transform` has, too

    def _check_parameters(self):
        """Check what a fit asks of parameters together."""

    def _arguments(self, X, y, fit_params):
        """Arguments of `fit` by name but `X` and `y`; TypeError as of `fit` for others."""
        given = signature(self.fit).bind(X, y, **fit_params).arguments
        return {name: value for name, value in given.items() if name not in ("X", "y")}

    @property
    def _sampler(self):
        """The sampler by name, where it is one of stradask's; else the object."""
        return name_or_object(self.sampler)

    def _check_sampler(self):
        if not isinstance(self.sampler, str):
            check_object(self.sampler)
        sampler = self._sampler
        if self.exact and not getattr(sampler, "can_be_exact", sampler not in ("warp", "saber")):
            raise DataError(
                f"exact=True with sampler={shortened(self.sampler)}, which is not: set sampler='gibbs' or "
                "'light' (a class that leaves the posterior as it is says can_be_exact = True)"
            )
        if self.device == "cuda" and sampler not in ("saber", "light"):
            raise DataError(
                f"device='cuda' with sampler={self.sampler!r}, which runs on the CPU: set sampler='saber' or "
                "'light', or device='cpu'"
            )

    def _words(self, vocabulary):
        """Words of the columns, as given or as the names of `X` are; None if neither is there."""
        if vocabulary is not None:
            return check_vocabulary(vocabulary, self.n_features_in_)
        return self.__dict__.get("feature_names_in_")

    def _columns(self, vocabulary):
        """The column of each word, None where words are not known."""
        words = self._words(vocabulary)
        return None if words is None else {word: column for column, word in enumerate(words)}

    def _number_of_topics(self, goes_on):
        """Topics to fit, at most: those of the model where it goes on, if their number was found."""
        if not isinstance(self.n_components, str):
            return int(self.n_components)
        return self.word_topic_counts_.shape[1] if goes_on else MOST_TOPICS

    def _check_goes_on(self, previous, how):
        if previous is not None and previous.shape[1] != self._number_of_topics(True):
            raise DataError(
                f"{how} with n_components={self.n_components}, but the model has {previous.shape[1]}: keep "
                "the number of topics, or fit a new estimator"
            )

    def _priors(self, n_features, as_fitted):
        """alpha and beta: those of the model, or those that the parameters say."""
        if as_fitted:
            return self.doc_topic_prior_, self.topic_word_prior_
        n_topics = self._number_of_topics(False)
        alpha = check_prior("doc_topic_prior", self.doc_topic_prior, n_topics, _DOC_TOPIC_PRIOR)
        beta = check_prior("topic_word_prior", self.topic_word_prior, n_features, _TOPIC_WORD_PRIOR)
        if self.optimize_priors and np.ptp(beta) > 0:
            raise DataError(
                "optimize_priors=True fits one common topic_word_prior: give a number, not a vector"
            )
        return alpha, beta

    def _fit(self, X, begin, inputs, callback=None, averages=False):
        """Fit to documents: what is known, where it begins, run, store.

        Returns topic shares of the documents if `averages` are asked for and a sweep was averaged.
        """
        if isinstance(self.n_components, str):
            check_auto(self, inputs)
        X = begin.prepare(self, X, inputs)
        goes_on = begin.counts is not None
        self._check_goes_on(begin.counts, "partial_fit" if begin.adds else "warm_start=True")
        if goes_on and inputs.topics is not None:
            raise DataError(
                "warm_start=True begins from the topics of the last fit: leave topics out, or set "
                "warm_start=False"
            )
        n_topics = self._number_of_topics(begin.adds)
        how = {"begins": not goes_on, "adds": begin.adds, "known": inputs.needs_gibbs}
        documents = Documents(self, X, inputs.n_features, n_topics, **how)
        n_words = documents.corpus.summary.n_words
        alpha, beta = self._priors(n_words, begin.adds or (goes_on and self.optimize_priors))
        documents.corpus = inputs.read(self, X, documents.corpus, alpha)
        seed, sampler = self._seed(), begin.sampler(documents, inputs)  # once: a RandomState goes on
        sweeps = []
        if self.n_draws and not begin.adds:
            sweeps = sweeps_of_draws(self.n_draws, self.max_iter, sampler)
        program = begin.program(self, documents, inputs, sampler, (alpha, beta), seed, averages)
        documents.warn_of_groups(program.on_gpu)
        draws, counts = begin.draws(self, sweeps), begin.counts if begin.adds else None
        done = self._run(program, documents, inputs, callback, counts, begin.keeps_checkpoint, draws)
        self._read(done.fetched, done.history, counts, inputs)
        if draws is not None and (kept := draws.in_order()):
            self.draws_ = kept
        if done.activity is not None:
            self.worker_history_ = done.activity.as_dict()
        if isinstance(draws, AveragedDraws) and (mean := draws.mean()) is not None:
            self.word_topic_counts_ = mean if counts is None else sparse.csr_array(mean + counts)
        if self.optimize_priors and not goes_on and np.array_equal(self.doc_topic_prior_, alpha):
            warnings.warn(
                f"optimize_priors=True, but the fit ended after {self.n_iter_} sweeps, before priors were "
                "fitted: that begins with Gibbs sampling and sweep 20; raise max_iter",
                UserWarning,
                stacklevel=4,
            )
        if inputs.vocabulary is not None:
            self.vocabulary_ = self._words(inputs.vocabulary)
        shares = done.fetched.shares if averages else None
        if not self._finds_number or begin.adds:
            return shares
        warn_of_number(self, program, self._more_topics)
        return shares_of_used(done.fetched, shares)

    _more_topics = "give n_components a number, or take HDPTopicModel(n_components=...) with more of them"

    @property
    def _finds_number(self):
        """Whether a fit finds how many topics there are."""
        return isinstance(self.n_components, str)

    def _concentrations(self):
        """alpha and gamma of a number of topics that is found, where they are given."""
        return {}

    def _seed(self):
        return seed_from(self.random_state)

    def _run(self, program, documents, inputs, callback, counts, keeps_checkpoint, draws):
        """Sweep until done."""
        checkpoint = self.checkpoint if keeps_checkpoint else None
        digest = None if checkpoint is None else self._fingerprint(documents.digest, program, inputs)
        with self._remedy_of_groups():
            return run(
                program,
                program.schedule,
                max_rounds=self.max_iter,
                engine=documents.engine,
                n_jobs=documents.n_jobs,
                stop=settled(program, self.tol),
                callback=callback,
                snapshot=lambda history, gathered: copy.copy(self)._read(gathered, history, counts, inputs),
                checkpoint=checkpoint,
                checkpoint_every=program.measure_every,
                draws=draws,
                fingerprint=digest,
                label=self._label,
                verbose=self.verbose,
            )

    @contextmanager
    def _remedy_of_groups(self):
        """Where a checkpoint differs in its number of groups alone, say which number goes on from it."""
        try:
            yield
        except CheckpointMismatch as error:
            if "n_shards" not in error.there or not error.there.keys() <= {"n_shards", "n_blocks"}:
                raise
            n = error.there["n_shards"]
            said = f"{error}; set n_groups={n} to go on with its groups"
            raise CheckpointMismatch(said, error.there) from error

    def _read(self, gathered, history, before, inputs):
        """Take the model from what a program gathered."""
        self.n_iter_ = len(history)
        self.sampler_ = [dict(part) for part in gathered.ran if part["sweep"] <= max(self.n_iter_, 1)]
        self.n_batch_iter_: int = 1 if before is None else self.n_batch_iter_ + 1
        self.doc_topic_prior_, self.topic_word_prior_ = gathered.alpha, gathered.beta
        self.seed_prior_, self.doc_labels_ = gathered.seeds, gathered.labels
        self.doc_topic_counts_, counts = gathered.documents, gathered.words
        self.word_topic_counts_ = counts if before is None else sparse.csr_array(counts + before)
        self.history_ = history.as_dict()
        if np.isnan(self.history_["objective"][-1]):
            self.history_["objective"][-1] = gathered.joint
        for name in ("worker_history_", "draws_"):  # of the last fit
            self.__dict__.pop(name, None)
        if before is None and "vocabulary_" in self.__dict__:
            del self.vocabulary_  # the words of the last fit's columns
        if before is None:
            for name in ("n_topics_", "n_topics_interval_", "gamma_"):
                self.__dict__.pop(name, None)
            if self._finds_number:
                leave_out_unused(self, gathered)
        inputs.store(self, gathered)
        return self

    def _check_state(self):
        super()._check_state()
        if "n_topics_" in vars(self) and self.n_topics_ != self.word_topic_counts_.shape[1]:
            raise DataError("n_topics_ cannot be that of this model")

    def _fingerprint(self, X, program, inputs):
        """Parameters and data that a checkpoint belongs to; the sizes are in the hash."""
        parts = {
            "n_components": program.n_topics,
            "doc_topic_prior": program.alpha.tolist(),
            "topic_word_prior": _short(program.beta),
            "exact": bool(self.exact),
            "optimize_priors": bool(self.optimize_priors),
            "X": X if isinstance(X, str) else fingerprint_csr(X),
        }
        known = {"seed_words": program.seeds, "doc_labels": inputs.labels, "topics": inputs.topics}
        parts |= {name: fingerprint_csr(matrix) for name, matrix in known.items() if matrix is not None}
        if self.n_draws:  # they, and annealing, depend on the number of sweeps
            parts["draws"] = [int(self.n_draws), int(self.max_iter)]
        if program.averages:  # a part of the state
            parts["averages"] = True
        sampler = self._sampler
        if not isinstance(sampler, str):
            parts["sampler"] = fingerprint_of(sampler)
        if sampler == "saber":  # the arrays of the others hold its own
            parts["sampler"] = "saber"
        if sampler == "light" and self.device == "cuda":  # tokens lie in another order than on the CPU
            parts["device"] = "cuda"
        if self._finds_number:
            parts |= fingerprint_of_prior(program)
        if isinstance(self.random_state, Integral):
            parts["random_state"] = int(self.random_state)
        return parts | inputs.fingerprint(self, program)


def _short(vector):
    """Return a vector in a form that JSON takes: one number if all are equal."""
    return float(vector[0]) if np.ptp(vector) == 0 else vector.tolist()
