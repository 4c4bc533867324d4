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

from ...errors import CheckpointMismatch, DataError
from ...scheduler.engine import run
from ...scheduler.parameters import seed_from
from ...scheduler.stores.store import fingerprint_csr
from ..inputs.dask_arrays import is_dask
from ..inputs.matrices import check_prior, check_vocabulary
from .blocks.draws import ThinnedDraws, sweeps_of_draws
from .corpus.documents import Documents, groups_asked_for
from .corpus.shard_input import are_files, check_at_hand, check_order_of_files, with_labels
from .found import (
    MOST_TOPICS,
    check_auto,
    fingerprint_of_prior,
    leave_out_unused,
    program_that_finds,
    shares_of_used,
    warn_of_number,
)
from .growing import (
    AveragedDraws,
    YoungPriors,
    add_topics,
    add_words,
    check_forget,
    check_grow,
    forgotten,
)
from .guidance import check_doc_labels, check_given_topics, check_seed_words
from .model import TopicModel
from .rules import ANNEALED_OF_MORE
from .samplers.choose import annealed_of, fits_shards, program_of, settled, state_of_one_piece

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

    def _fit_anew(self, X, given=None, *, callback=None, n_features=None, **known):
        """Fit to documents of which a model knows what is `given`: keywords, covariates or responses."""
        self._validate_params()
        self._check_given(X, given)
        with self._draft() as draft:
            draft._given = given
            shares = draft._fit(X, callback, n_features, **known)
            for name in ("_given", "_held"):  # of the fit alone
                vars(draft).pop(name, None)
        return shares

    def _averaged_shares(self, X, y, fit_params, known=lambda given: None, of_documents=()):
        """Fit, and return shares averaged over its sweeps; of files and Dask's data those of `transform`.

        `known` takes what `_fit_anew` is given from the arguments of `fit`; `of_documents` names those that
        `transform` has, too.
        """
        given = self._arguments(X, y, fit_params)
        own = {name: given[name] for name in of_documents if name in given}
        if is_dask(X) or are_files(X):
            return self.fit(X, y, **given).transform(X, **own)
        check_at_hand(X)
        shares = self._fit_anew(X, known(given), averages=True, **given)
        return self.transform(X, **own) if shares is None else shares

    def _check_given(self, X, given):
        """Check what can be checked before documents are read."""

    def _arguments(self, X, y, fit_params):
        """Arguments of `fit` by name but `X` and `y`; TypeError as of `fit` for others."""
        given = signature(self.fit).bind(X, y, **fit_params).arguments
        return {name: value for name, value in given.items() if name not in ("X", "y")}

    def _check_sampler(self):
        if isinstance(self.sampler, type):
            name = self.sampler.__name__
            raise DataError(f"sampler={name} is a class: give an object of it, sampler={name}()")
        if self.exact and self.sampler in ("warp", "saber"):
            raise DataError(
                f"exact=True with sampler={self.sampler!r}, which is not: set sampler='gibbs' or 'light'"
            )
        if self.device == "cuda" and self.sampler not in ("saber", "light"):
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

    def _fit(
        self, X, callback, n_features, *, vocabulary=None, seed_words=None, doc_labels=None, topics=None,
        adds=False, averages=False, forget=0.0, grow=0,
    ):  # fmt: skip
        """Fit to documents; with `adds`, add them to the model, whose counts stay as they are.

        Returns topic shares of the documents if `averages` are asked for and a sweep was averaged.
        """
        in_parts = False
        if adds:
            _, in_parts = check_forget(forget, 1, 1)
            check_grow(grow)
        if isinstance(self.n_components, str):
            check_auto(self, {"seed_words": seed_words, "doc_labels": doc_labels, "topics": topics})
        if adds and grow and "word_topic_counts_" not in self.__dict__:
            raise DataError(
                f"grow={grow} in the first call of partial_fit, which begins the model: set n_components to "
                "the topics to begin with, and leave grow out"
            )
        if adds and "word_topic_counts_" in self.__dict__:
            add_topics(self, grow)
            X, vocabulary = X if vocabulary is None else add_words(self, X, vocabulary), None
        before = self.__dict__.get("word_topic_counts_") if adds or self.warm_start else None
        self._check_goes_on(before, "partial_fit" if adds else "warm_start=True")
        keeps, adds, sweeps = not adds, adds and before is not None, []
        n_topics = self._number_of_topics(adds)
        if before is not None and topics is not None:
            raise DataError(
                "warm_start=True begins from the topics of the last fit: leave topics out, or set "
                "warm_start=False"
            )
        given = seed_words is not None or doc_labels is not None
        documents = Documents(self, X, n_features, n_topics, begins=before is None, adds=adds, known=given)
        corpus = documents.corpus
        n_documents, n_words = corpus.summary.n_documents, corpus.summary.n_words
        model = self._priors(n_words, adds or (before is not None and self.optimize_priors))
        seeds = check_seed_words(seed_words, n_topics, n_words, self._columns(vocabulary))
        seeds = self.__dict__.get("seed_prior_") if adds else seeds
        if doc_labels is not None:
            check_order_of_files(X, "doc_labels")
        labels = check_doc_labels(doc_labels, n_documents, model[0])
        topics = check_given_topics(topics, n_topics, n_words)
        corpus = documents.corpus = self._with_known(
            corpus if labels is None else with_labels(corpus, labels)
        )
        seed = self._seed()  # once: of a RandomState the next one is another
        known, checkpoint = {"seeds": seeds}, self.checkpoint if keeps else None
        if adds and before is not None:
            n_new, n_old = sum(corpus.weights), float(before.sum())
            part, young = check_forget(forget, n_new, n_old)
            seed, options = derived(seed, self.n_batch_iter_), documents.options("gibbs")
            before, known["background"] = forgotten(before, part, seed)
            program = program_of("gibbs", corpus, n_topics, *model, seed, **options | known)
            documents.checked(program)
            if young:
                program.priors = YoungPriors.of_model(model[0], model[1], n_new, n_old)
        else:
            at_hand = None
            if before is not None:
                at_hand = {"background": forgotten(before, 0.0, seed)[1], "seeds": seeds}
            elif topics is not None:
                at_hand = {"seeds": topics * float(sum(corpus.weights))}
            sampler = documents.sampler(seeds is not None or labels is not None)
            known["averages"] = averages
            if self.n_draws:
                sweeps = sweeps_of_draws(self.n_draws, self.max_iter, sampler)
            program = self._begun(documents, corpus, sampler, model, seed, known, at_hand)
        documents.warn_of_groups(program.on_gpu)
        digest = None
        if checkpoint is not None:
            digest = self._fingerprint(documents.digest, program, topics, labels)
        draws: ThinnedDraws | None = None
        if in_parts and (adds or not self._finds_number):
            draws = AveragedDraws(sweeps, self.max_iter)
        elif sweeps:
            draws = ThinnedDraws(sweeps)
        done = self._run(program, documents, callback, before if adds else None, checkpoint, digest, draws)
        if isinstance(draws, AveragedDraws) and (mean := draws.mean()) is not None:
            self.word_topic_counts_ = sparse.csr_array(mean + before) if adds else mean
        if self.optimize_priors and before is None and np.array_equal(self.doc_topic_prior_, model[0]):
            warnings.warn(
                f"optimize_priors=True, but the fit ended after {self.n_iter_} sweeps, before priors were "
                "fitted: that begins with Gibbs sampling and sweep 20; raise max_iter",
                UserWarning,
                stacklevel=4,
            )
        if vocabulary is not None:
            self.vocabulary_ = self._words(vocabulary)
        shares = done.fetched.doc_topic_shares() if averages else None
        if not self._finds_number or adds:
            return shares
        warn_of_number(self, program, self._more_topics)
        return shares_of_used(self, shares)

    _more_topics = "give n_components a number, or take HDPTopicModel(n_components=...) with more of them"

    @property
    def _finds_number(self):
        """Whether a fit finds how many topics there are."""
        return isinstance(self.n_components, str)

    def _with_known(self, corpus):
        """The corpus with what else is known of its documents."""
        return corpus

    def _program(self, documents, corpus, sampler, model, seed, options):
        """A program over shards."""
        if self._finds_number:
            own = {"exact": self.exact, **self._concentrations()}
            return documents.checked(
                program_that_finds(corpus, len(model[0]), model[1], seed, options, **own)
            )
        sweeps = self.max_iter if self.n_draws else None
        options |= {"sweeps": sweeps} if sampler == "both" else {}
        return documents.checked(program_of(sampler, corpus, len(model[0]), *model, seed, **options))

    def _own_options(self, options, *gone):
        """Options of a program with parameters of its own, which are drawn when annealing is over."""
        left = {name: value for name, value in options.items() if name not in ("fits_priors", *gone)}
        return left | {"annealed": min(options["annealed"], ANNEALED_OF_MORE, self.max_iter // 2)}

    def _concentrations(self):
        """alpha and gamma of a number of topics that is found, where they are given."""
        return {}

    def _begun(self, documents, corpus, sampler, model, seed, known, at_hand):
        """The program of a fit, begun at random, or from topics drawn by an earlier model."""
        anneals = at_hand is None and known["seeds"] is None and corpus.labels is None and not self.exact
        own = {"fits_priors": self.optimize_priors, "averages": known["averages"]}
        sweeps = self.max_iter if self.n_draws else None
        own["annealed"] = annealed_of(sampler, sweeps) if anneals else 0
        options = documents.options(sampler, *([] if at_hand is None else ["gibbs"]))
        drawn = corpus
        if at_hand is not None:
            from .blocks.at_hand import FirstTopics, tokens_of, with_first_topics
            from .samplers.gibbs import Gibbs

            alpha, beta = model
            options_at_hand: dict = options | at_hand | {"sampler": Gibbs()}
            first = FirstTopics(corpus, len(alpha), alpha, beta, derived(seed, 0), **options_at_hand)
            drawn = with_first_topics(documents.checked(first), corpus, documents.engine, documents.n_jobs)
        if fits_shards(sampler, self.device):
            own |= {"seeds": known["seeds"]} if sampler == "gibbs" else {}
            return self._program(documents, drawn, sampler, model, seed, options | own)
        own |= {"folder": self.memmap_folder, "n_groups": groups_asked_for(self, documents.X)}
        own |= {"n_jobs": documents.n_jobs}
        state = (sampler, documents.X, len(model[0]), *model, seed)
        state = state_of_one_piece(*state, device=self.device, exact=self.exact, **own)
        if at_hand is not None:
            state.begin_from_tokens(*tokens_of(first, drawn))
        return state

    def _seed(self):
        return seed_from(self.random_state)

    def _run(self, program, documents, callback, before, checkpoint, digest, draws):
        """Sweep until done, then read the model off the program."""
        with self._remedy_of_groups():
            done = self._swept(program, documents, callback, before, checkpoint, digest, draws)
        self._read(done.fetched, done.history, before)
        if draws is not None and (kept := draws.in_order()):
            self.draws_ = kept
        if done.activity is not None:
            self.worker_history_ = done.activity.as_dict()
        return done

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

    def _swept(self, program, documents, callback, before, checkpoint, digest, draws):
        return run(
            program,
            program.schedule,
            max_rounds=self.max_iter,
            engine=documents.engine,
            n_jobs=documents.n_jobs,
            stop=settled(program, self.tol),
            callback=callback,
            snapshot=lambda history, gathered: self._copy()._read(gathered, history, before),
            checkpoint=checkpoint,
            checkpoint_every=program.measure_every,
            draws=draws,
            fingerprint=digest,
            label=self._label,
            verbose=self.verbose,
        )

    def _copy(self):
        return copy.copy(self)

    def _read(self, gathered, history, before):
        """Take the model from what a program gathered."""
        self.n_iter_ = len(history)
        self.sampler_ = [dict(part) for part in gathered.ran if part["sweep"] <= max(self.n_iter_, 1)]
        self.n_batch_iter_: int = 1 if before is None else self.n_batch_iter_ + 1
        self.doc_topic_prior_, self.topic_word_prior_ = gathered.alpha, gathered.beta
        self.seed_prior_, self.doc_labels_ = gathered.seeds, gathered.labels
        self.doc_topic_counts_ = gathered.doc_topic_counts()
        counts = gathered.word_topic_counts()
        self.word_topic_counts_ = counts if before is None else sparse.csr_array(counts + before)
        self.history_ = history.as_dict()
        if np.isnan(self.history_["objective"][-1]):
            self.history_["objective"][-1] = gathered.joint_log_likelihood()
        for name in ("worker_history_", "draws_"):  # of the last fit
            self.__dict__.pop(name, None)
        if before is None and "vocabulary_" in self.__dict__:
            del self.vocabulary_  # the words of the last fit's columns
        if before is None:
            for name in ("n_topics_", "n_topics_interval_", "gamma_"):
                self.__dict__.pop(name, None)
            if self._finds_number:
                leave_out_unused(self, gathered)
        return self

    def _check_state(self):
        super()._check_state()
        if "n_topics_" in vars(self) and self.n_topics_ != self.word_topic_counts_.shape[1]:
            raise DataError("n_topics_ cannot be that of this model")

    def _fingerprint(self, X, program, topics, labels):
        """Parameters and data that a checkpoint belongs to; the sizes are in the hash."""
        parts = {
            "n_components": program.n_topics,
            "doc_topic_prior": program.alpha.tolist(),
            "topic_word_prior": _short(program.beta),
            "exact": bool(self.exact),
            "optimize_priors": bool(self.optimize_priors),
            "X": X if isinstance(X, str) else fingerprint_csr(X),
        }
        known = {"seed_words": program.seeds, "doc_labels": labels, "topics": topics}
        parts |= {name: fingerprint_csr(matrix) for name, matrix in known.items() if matrix is not None}
        if self.n_draws:  # they, and annealing, depend on the number of sweeps
            parts["draws"] = [int(self.n_draws), int(self.max_iter)]
        if program.averages:  # a part of the state
            parts["averages"] = True
        if self.sampler == "saber":  # the arrays of the others hold its own
            parts["sampler"] = "saber"
        if self.sampler == "light" and self.device == "cuda":  # tokens lie in another order than on the CPU
            parts["device"] = "cuda"
        if self._finds_number:
            parts |= fingerprint_of_prior(program)
        if isinstance(self.random_state, Integral):
            parts["random_state"] = int(self.random_state)
        return parts


def derived(seed, number):
    """Another seed that follows from a seed."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])


def _short(vector):
    """Return a vector in a form that JSON takes: one number if all are equal."""
    return float(vector[0]) if np.ptp(vector) == 0 else vector.tolist()
