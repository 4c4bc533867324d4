"""How a topic model is fitted: a sampler's state of its parameters, its sweeps, and what is read off."""

import copy
from numbers import Integral

import numpy as np
from scipy import sparse

from ...errors import DataError
from ...scheduler.engine import run
from ...scheduler.parameters import seed_from
from ...scheduler.stores.store import fingerprint_csr
from ...scheduler.threads import effective_n_jobs
from ..inputs.matrices import check_prior, check_vocabulary
from .model import TopicModel
from .samplers.state import warn_of_fewer_groups, warn_of_idle_threads

_DOC_TOPIC_PRIOR, _TOPIC_WORD_PRIOR = 0.1, 0.01
WARM_SWEEPS = 5  # of a start from the last fit's counts, or from given topics, at hand


class FittedTopicModel(TopicModel):
    """The steps of `LatentDirichletAllocation.fit` and `partial_fit`."""

    def _check_sampler(self):
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

    def _check_goes_on(self, previous, how):
        if previous is not None and previous.shape[1] != self.n_components:
            raise DataError(
                f"{how} with n_components={self.n_components}, but the model has {previous.shape[1]}: keep "
                "the number of topics, or fit a new estimator"
            )

    def _priors(self, n_features, as_fitted):
        """alpha and beta: those of the model, or those that the parameters say."""
        if as_fitted:
            return self.doc_topic_prior_, self.topic_word_prior_
        alpha = check_prior("doc_topic_prior", self.doc_topic_prior, self.n_components, _DOC_TOPIC_PRIOR)
        beta = check_prior("topic_word_prior", self.topic_word_prior, n_features, _TOPIC_WORD_PRIOR)
        if self.optimize_priors and np.ptp(beta) > 0:
            raise DataError(
                "optimize_priors=True fits one common topic_word_prior: give a number, not a vector"
            )
        return alpha, beta

    def _new_state(self, X, priors, background=None, anneals=True, **known):
        """The state of a sampler; each batch of `partial_fit` has random streams of its own."""
        seed = self._seed()
        if background is not None:
            seed = derived(seed, self.n_batch_iter_)
        model = (X, self.n_components, *priors, seed)
        if background is not None:
            from .samplers.gibbs import GibbsState

            known |= {"background": background, "folder": self.memmap_folder, "n_groups": self._n_groups(X)}
            return GibbsState(*model, exact=self.exact, **known)
        from .samplers.choose import sampler_state

        choice = {"sampler": self.sampler, "device": self.device}
        choice |= {"exact": self.exact, "max_sweeps": self.max_iter}
        options = {"fits_priors": self.optimize_priors, "folder": self.memmap_folder, "anneals": anneals}
        options["n_groups"] = self._n_groups(X)
        return sampler_state(*model, known=known, **(choice | options))

    def _n_groups(self, X):
        """No more groups than documents: on a cluster an empty one would be a shard of nothing."""
        return None if self.n_groups is None else min(self.n_groups, X.shape[0])

    def _seed(self):
        return seed_from(self.random_state)

    def _begin_from(self, state, X, **known):
        """Give the state topics that were drawn with the last fit's counts, or with given topics, at hand."""
        from .samplers.gibbs import GibbsState

        seed = derived(int(state.seed), 0)
        known |= {"exact": self.exact, "folder": self.memmap_folder, "n_groups": self._n_groups(X)}
        at_hand = GibbsState(X, self.n_components, state.alpha, state.beta, seed, **known)
        done = run(at_hand, at_hand.schedule, max_rounds=WARM_SWEEPS, n_jobs=self.n_jobs, label="LDA")
        if done.reason == "interrupted":
            raise KeyboardInterrupt  # before there is anything new: the last model stays
        state.begin_from(at_hand.topics_for(state))

    def _run(self, state, X, callback, checkpoint=None, before=None, topics=None):
        """Sweep until done, then read the model off the state."""
        from .samplers.choose import settled

        n_jobs = 1 if self.exact else effective_n_jobs(self.n_jobs)
        if not (self.exact or state.on_gpu):
            warn_of_idle_threads(len(state.shards), state.n_tokens, n_jobs)
        if not self.exact:
            warn_of_fewer_groups(self.n_groups, self._n_groups(X), f"X has {X.shape[0]} documents")

        def snapshot(history):
            return self._copy()._read(state, history, before)

        done = run(
            state,
            state.schedule,
            max_rounds=self.max_iter,
            n_jobs=n_jobs,
            stop=settled(state, self.tol),
            callback=callback,
            snapshot=snapshot,
            checkpoint=checkpoint,
            checkpoint_every=state.measure_every,
            fingerprint=None if checkpoint is None else self._fingerprint(X, state, topics),
            label="LDA",
            verbose=self.verbose,
        )
        return self._read(state, done.history, before, n_jobs)

    def _copy(self):
        return copy.copy(self)

    def _read(self, state, history, before, n_jobs=1):
        """Take the model from the state."""
        self.n_iter_ = len(history)
        self.sampler_ = [dict(part) for part in state.ran if part["sweep"] <= max(self.n_iter_, 1)]
        self.n_batch_iter_: int = 1 if before is None else self.n_batch_iter_ + 1
        self.doc_topic_prior_, self.topic_word_prior_ = state.alpha, state.beta
        self.seed_prior_ = getattr(state, "seeds", None)
        self.doc_labels_ = getattr(state, "labels", None)
        self.doc_topic_counts_ = state.doc_topic_counts()
        counts = state.word_topic_counts()
        self.word_topic_counts_ = counts if before is None else sparse.csr_array(counts + before)
        self.history_ = history.as_dict()
        if np.isnan(self.history_["objective"][-1]):
            self.history_["objective"][-1] = state.joint_log_likelihood(n_jobs)
        self.__dict__.pop("worker_history_", None)
        if before is None and "vocabulary_" in self.__dict__:
            del self.vocabulary_  # the words of the last fit's columns
        return self

    def _fingerprint(self, X, state, topics, labels=None):
        """What a checkpoint belongs to; the sizes and the data stand in the hash."""
        parts = {
            "n_components": int(self.n_components),
            "doc_topic_prior": state.alpha.tolist(),
            "topic_word_prior": _short(state.beta),
            "exact": bool(self.exact),
            "optimize_priors": bool(self.optimize_priors),
            "X": X if isinstance(X, str) else fingerprint_csr(X),
        }
        known = {
            "seed_words": getattr(state, "seeds", None),
            "doc_labels": getattr(state, "labels", None) if labels is None else labels,
            "topics": topics,
        }
        parts |= {name: fingerprint_csr(matrix) for name, matrix in known.items() if matrix is not None}
        if self.sampler == "saber":  # the arrays of the others hold its own
            parts["sampler"] = "saber"
        if self.sampler == "light" and self.device == "cuda":  # tokens lie in another order than on the CPU
            parts["device"] = "cuda"
        if isinstance(self.random_state, Integral):
            parts["random_state"] = int(self.random_state)
        return parts


def derived(seed, number):
    """Another seed that follows from a seed."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])


def _short(vector):
    """Return a vector in a form that JSON takes: one number if all are equal."""
    return float(vector[0]) if np.ptp(vector) == 0 else vector.tolist()
